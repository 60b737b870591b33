use super::*;
use crate::psp::testing::{Scripted, endpoint, task, thai_account, torn, turn_in};

fn ipps(url: &str, deduplicates: bool) -> Ipps {
    let config = IppsConfig {
        endpoint: endpoint(url),
        currencies: vec!["THB".parse().unwrap()],
        deduplicates,
    };
    Ipps::new(config).unwrap()
}

/// A driver, and a provider for it that has nothing to say yet.
struct Pair(Scripted, Ipps);

impl Pair {
    async fn new(deduplicates: bool) -> Self {
        let provider = Scripted::new([]).await;
        let driver = ipps(&provider.url, deduplicates);
        Self(provider, driver)
    }

    /// Where a turn leads that is answered so.
    async fn after(&self, state: PspState, status: u16, body: &Value) -> PspState {
        let task = task(state, thai_account());
        let turn = turn_in((&self.0, &self.1), task, state, status, body).await;
        assert_eq!(turn.calls.len(), 1);
        turn.outcome.state_after(state).unwrap()
    }
}

#[tokio::test]
async fn every_code_leads_where_its_class_says() {
    use PspState as S;
    let pair = Pair::new(true).await;
    for (code, class, _) in CODES.0 {
        // The codes of statuses come with nothing else.
        let (status, body) = match code.strip_prefix("http_") {
            Some(status) => (status.parse().unwrap(), json!({})),
            None => (422, json!({ "code": code })),
        };
        let (looked_up, confirmed, inquired) = match class {
            ErrorClass::Terminal => (S::Failed, S::Failed, S::ManualReview),
            ErrorClass::Review => (S::ManualReview, S::ManualReview, S::ManualReview),
            ErrorClass::Retry => (S::QueryPending, S::Inquiring, S::Inquiring),
        };
        assert_eq!(
            pair.after(S::QueryPending, status, &body).await,
            looked_up,
            "{code}"
        );
        assert_eq!(
            pair.after(S::ConfirmPending, status, &body).await,
            confirmed,
            "{code}"
        );
        assert_eq!(
            pair.after(S::Inquiring, status, &body).await,
            inquired,
            "{code}"
        );
        let rejected = json!({ "code": "0000", "status": "REJECTED", "reasonCode": code });
        let of_payment = pair.after(S::Inquiring, 200, &rejected).await;
        assert_eq!(of_payment, confirmed, "{code}");
    }
}

#[test]
fn the_table_says_one_thing_of_a_code() {
    let mut codes: Vec<_> = CODES.0.iter().map(|(code, ..)| code).collect();
    codes.sort();
    codes.dedup();
    assert_eq!(codes.len(), CODES.0.len());
    assert!(!codes.contains(&&UNKNOWN_UID));
}

#[tokio::test]
async fn answers_that_say_nothing_decide_nothing() {
    use PspState as S;
    let both = Pair::new(true).await;
    for body in [
        json!({}),
        json!([]),
        json!("0000"),
        json!({ "code": null }),
        json!({ "code": "0000" }),
        json!({ "code": "0000", "status": "DONE" }),
    ] {
        assert_eq!(
            both.after(S::ConfirmPending, 200, &body).await,
            S::Inquiring,
            "{body}"
        );
        assert_eq!(
            both.after(S::Inquiring, 200, &body).await,
            S::Inquiring,
            "{body}"
        );
    }
    // A success by its code alone is none.
    let paid = json!({
        "code": "0000", "status": "PAID", "amount": "1234.50", "currency": "THB",
    });
    assert_eq!(
        both.after(S::ConfirmPending, 404, &paid).await,
        S::Inquiring
    );
    assert_eq!(
        both.after(S::ConfirmPending, 200, &paid).await,
        S::Confirmed
    );
    let other = json!({ "code": "0000", "status": "PAID", "amount": "1.00", "currency": "THB" });
    assert_eq!(both.after(S::Inquiring, 200, &other).await, S::ManualReview);
}

#[tokio::test]
async fn what_is_unknown_is_never_failed() {
    use PspState as S;
    let unknown = json!({ "code": UNKNOWN_UID });
    for (deduplicates, next) in [(true, S::Queried), (false, S::ManualReview)] {
        let pair = Pair::new(deduplicates).await;
        assert_eq!(pair.after(S::Inquiring, 404, &unknown).await, next);
        // Not failed either where it is the answer to the payment itself.
        let answered = pair.after(S::ConfirmPending, 404, &unknown).await;
        assert_eq!(answered, S::ManualReview);
    }
}

#[tokio::test]
async fn what_is_missing_is_for_a_person_and_calls_nobody() {
    use PspState as S;
    let provider = Scripted::new([]).await;
    let driver = ipps(&provider.url, true);
    let mut no_sender = task(S::QueryPending, thai_account());
    no_sender.sender = None;
    let mut not_looked_up = task(S::ConfirmPending, thai_account());
    not_looked_up.facts = Facts::default();
    for (task, reason) in [
        (no_sender, "wallet_not_registered"),
        (not_looked_up, "not_looked_up"),
        (
            task(S::QueryPending, Receiver::Wallet),
            "receiver_of_another_channel",
        ),
    ] {
        let turn = driver.process(&task).await;
        assert!(turn.calls.is_empty());
        assert!(matches!(turn.outcome, PspOutcome::ManualReview { .. }));
        assert_eq!(turn.outcome.reason(), Some(reason));
    }
}

#[tokio::test]
async fn a_torn_answer_to_a_payment_is_asked_about() {
    let provider = Scripted::new([torn()]).await;
    let state = PspState::ConfirmPending;
    let turn = ipps(&provider.url, true)
        .process(&task(state, thai_account()))
        .await;
    assert_eq!(turn.outcome.state_after(state), Ok(PspState::Inquiring));
    assert!(turn.calls[0].error.is_some());
}
