use serde_json::Value;

use super::*;
use crate::domain::payment::receiver::Receiver;
use crate::psp::testing::{Scripted, endpoint, json as answer, task, turn_in};

fn qp(url: &str, deduplicates: bool) -> Qp {
    let config = QpConfig {
        endpoint: endpoint(url),
        biller: "0000000000001".to_owned(),
        currencies: vec!["THB".parse().unwrap()],
        deduplicates,
        valid_for: Duration::from_mins(15),
        callback_secrets: Vec::new(),
    };
    Qp::new(config).unwrap()
}

/// A driver, and a provider for it that has nothing to say yet.
struct Pair(Scripted, Qp);

impl Pair {
    async fn new(deduplicates: bool) -> Self {
        let provider = Scripted::new([]).await;
        let driver = qp(&provider.url, deduplicates);
        Self(provider, driver)
    }

    /// Where a turn leads that is answered so.
    async fn after(&self, state: PspState, status: u16, body: &Value) -> PspState {
        let task = task(state, Receiver::Wallet);
        let turn = turn_in((&self.0, &self.1), task, state, status, body).await;
        turn.outcome.state_after(state).unwrap()
    }
}

#[tokio::test]
async fn every_code_leads_where_its_class_says() {
    use PspState as S;
    let pair = Pair::new(true).await;
    for (code, class, _) in CODES.0 {
        let (status, body) = match code.strip_prefix("http_") {
            Some(status) => (status.parse().unwrap(), json!({})),
            None => (422, json!({ "code": code })),
        };
        let (registered, asked) = match class {
            ErrorClass::Terminal => (S::Failed, S::ManualReview),
            ErrorClass::Review => (S::ManualReview, S::ManualReview),
            ErrorClass::Retry => (S::QueryPending, S::Inquiring),
        };
        assert_eq!(
            pair.after(S::QueryPending, status, &body).await,
            registered,
            "{code}"
        );
        assert_eq!(
            pair.after(S::ConfirmPending, status, &body).await,
            asked,
            "{code}"
        );
        assert_eq!(
            pair.after(S::Inquiring, status, &body).await,
            asked,
            "{code}"
        );
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
async fn a_code_is_paid_waits_or_has_expired() {
    use PspState as S;
    let both = Pair::new(true).await;
    let paid = json!({
        "code": "0000", "status": "PAID", "amount": "1234.50", "currency": "THB",
        "paymentId": "QP1", "fee": "1.00", "settlementDate": "20260301",
    });
    let mut other = paid.clone();
    other["amount"] = json!("1234.49");
    for (body, next) in [
        (paid, S::Confirmed),
        (other, S::ManualReview),
        (json!({ "code": "0000", "status": "WAITING" }), S::Inquiring),
        (json!({ "code": "0000", "status": "EXPIRED" }), S::Failed),
        (json!({ "code": "0000", "status": "?" }), S::Inquiring),
        (json!({ "code": "0000" }), S::Inquiring),
        (json!({}), S::Inquiring),
    ] {
        for state in [S::ConfirmPending, S::Inquiring] {
            assert_eq!(both.after(state, 200, &body).await, next, "{body}");
        }
    }
}

#[tokio::test]
async fn a_code_that_is_unknown_is_registered_again_where_that_is_safe() {
    use PspState as S;
    let unknown = json!({ "code": UNKNOWN_UID });
    let (once, again) = (Pair::new(true).await, Pair::new(false).await);
    assert_eq!(once.after(S::Inquiring, 404, &unknown).await, S::Queried);
    for state in [S::Inquiring, S::ConfirmPending] {
        assert_eq!(again.after(state, 404, &unknown).await, S::ManualReview);
    }
    let registered = json!({ "code": "0000", "qrRef": "QR1", "status": "WAITING" });
    let provider = Scripted::new([answer(404, &unknown), answer(200, &registered)]).await;
    let asked = task(S::ConfirmPending, Receiver::Wallet);
    let turn = qp(&provider.url, true).process(&asked).await;
    assert_eq!(
        turn.outcome.state_after(S::ConfirmPending),
        Ok(S::Inquiring)
    );
    assert_eq!(turn.outcome.facts().lookup_ref.as_deref(), Some("QR1"));
    assert!(provider.requests()[1].starts_with("POST /qp/v1/codes "));
}

#[test]
fn the_code_names_the_intent() {
    let intent: Uuid = "0193a5b0-7c3e-7abc-8def-0123456789ab".parse().unwrap();
    let payload = payload("0000000000001", intent, 123_450).unwrap();
    let read = Payload::decode(&payload).unwrap();
    assert_eq!((read.amount, read.dynamic), (Some(123_450), true));
    let Payee::Bill {
        reference_1,
        reference_2,
        ..
    } = read.payee
    else {
        panic!("it is a bill's");
    };
    assert_eq!(reference_1, "0193A5B07C3E7ABC");
    assert_eq!(reference_2.as_deref(), Some("8DEF0123456789AB"));
}
