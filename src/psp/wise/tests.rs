use super::*;
use crate::psp::testing::{Scripted, endpoint, json as answer, task as any_task, torn};

fn wise(url: &str, deduplicates: bool) -> Wise {
    let config = WiseConfig {
        endpoint: endpoint(url),
        profile: 16,
        currencies: vec!["THB".parse().unwrap()],
        deduplicates,
        watched_for: std::time::Duration::from_hours(24),
    };
    Wise::new(config).unwrap()
}

fn task(state: PspState, transfer: Option<&str>) -> PspTask {
    let receiver = Receiver::Iban {
        holder_name: "Jo Do".to_owned(),
        iban: "DE89370400440532013000".to_owned(),
    };
    let mut task = any_task(state, receiver);
    task.facts.response_id = transfer.map(str::to_owned);
    task
}

/// A driver, and a provider for it that has nothing to say yet.
struct Pair(Scripted, Wise);

impl Pair {
    async fn new(deduplicates: bool) -> Self {
        let provider = Scripted::new([]).await;
        let driver = wise(&provider.url, deduplicates);
        Self(provider, driver)
    }

    /// A turn with a provider that gives these answers, and what it was asked.
    async fn turn(&self, task: &PspTask, answers: Vec<Vec<u8>>) -> (Turn, Vec<String>) {
        self.0.gives(answers);
        let turn = self.1.process(task).await;
        let requests = self.0.requests();
        let lines = requests.iter().map(|request| {
            let line = request.lines().next().unwrap_or_default();
            line.trim_end_matches(" HTTP/1.1").to_owned()
        });
        (turn, lines.collect())
    }
}

fn error(code: &str) -> (u16, Value) {
    match code.strip_prefix("http_") {
        Some(status) => (status.parse().unwrap(), json!({})),
        None => (422, json!({ "errors": [{ "code": code }] })),
    }
}

/// A payment of [`transfer`]'s amount and uid.
struct Known {
    uid: String,
    facts: Facts,
    currency: CurrencyCode,
}

impl Known {
    fn new(transfer: Option<&str>) -> Self {
        Self {
            uid: uuid::Uuid::from_u128(9).to_string(),
            facts: Facts {
                response_id: transfer.map(str::to_owned),
                ..Facts::default()
            },
            currency: "THB".parse().unwrap(),
        }
    }

    fn made(&self) -> Made<'_> {
        Made {
            uid: &self.uid,
            facts: &self.facts,
            amount: 123_450,
            exponent: 2,
            currency: &self.currency,
        }
    }
}

fn transfer(status: &str) -> Value {
    json!({
        "id": 55, "status": status, "targetValue": 1234.5, "targetCurrency": "THB",
        "customerTransactionId": uuid::Uuid::from_u128(9).to_string(),
    })
}

#[tokio::test]
async fn every_code_leads_where_its_class_says() {
    use PspState as S;
    let pair = Pair::new(true).await;
    for (code, class, _) in CODES.0 {
        let (status, body) = error(code);
        let refused = answer(status, &body);
        let quote = answer(200, &json!({ "id": "q-1" }));
        let (looked_up, quoted, made) = match class {
            ErrorClass::Terminal => (S::Failed, S::Failed, S::Failed),
            ErrorClass::Review => (S::ManualReview, S::ManualReview, S::ManualReview),
            ErrorClass::Retry => (S::QueryPending, S::Queried, S::Inquiring),
        };
        for (task, answers, next) in [
            (
                task(S::QueryPending, None),
                vec![refused.clone()],
                looked_up,
            ),
            (task(S::ConfirmPending, None), vec![refused.clone()], quoted),
            (
                task(S::ConfirmPending, None),
                vec![quote, refused.clone()],
                made,
            ),
            // A funding that is refused says nothing final.
            (
                task(S::ConfirmPending, Some("55")),
                vec![refused.clone()],
                S::Inquiring,
            ),
        ] {
            let (turn, asked) = pair.turn(&task, answers).await;
            assert_eq!(
                turn.outcome.state_after(task.state),
                Ok(next),
                "{code} {asked:?}"
            );
        }
        let asked = task(S::Inquiring, Some("55"));
        let (inquired, _) = pair.turn(&asked, vec![refused]).await;
        let next = match (class, *code == UNKNOWN_TRANSFER) {
            (_, true) => S::Queried,
            (ErrorClass::Retry, false) => S::Inquiring,
            (ErrorClass::Terminal | ErrorClass::Review, false) => S::ManualReview,
        };
        assert_eq!(
            inquired.outcome.state_after(S::Inquiring),
            Ok(next),
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
}

#[tokio::test]
async fn a_rejected_funding_is_no_success_and_no_failure() {
    let pair = Pair::new(true).await;
    let task = task(PspState::ConfirmPending, Some("55"));
    for (status, body, why) in [
        (
            201,
            json!({ "status": "COMPLETED", "errorCode": null }),
            "funded",
        ),
        (
            201,
            json!({ "status": "REJECTED", "errorCode": "balance.payment-option-unavailable" }),
            "funding_refused: balance_at_provider_too_small",
        ),
        (
            201,
            json!({ "status": "REJECTED" }),
            "funding_refused: answer_not_understood",
        ),
        (
            409,
            json!({ "status": "COMPLETED" }),
            "funding_refused: unlisted_code: http_409",
        ),
    ] {
        let (turn, _) = pair.turn(&task, vec![answer(status, &body)]).await;
        let next = turn.outcome.state_after(PspState::ConfirmPending);
        assert_eq!(next, Ok(PspState::Inquiring), "{body}");
        assert_eq!(turn.outcome.reason(), Some(why));
    }
}

/// Between making and funding the id is written down, so that nobody funds what another may have.
#[tokio::test]
async fn making_and_funding_are_two_turns() {
    let pair = Pair::new(false).await;
    let quote = answer(200, &json!({ "id": "q-1" }));
    let made = answer(200, &transfer("incoming_payment_waiting"));
    let first = task(PspState::ConfirmPending, None);
    let (first_turn, asked) = pair.turn(&first, vec![quote.clone(), made]).await;
    assert_eq!(asked, ["POST /v3/profiles/16/quotes", "POST /v1/transfers"]);
    assert_eq!(
        first_turn.outcome.facts().response_id.as_deref(),
        Some("55")
    );
    let next = first_turn.outcome.state_after(PspState::ConfirmPending);
    assert_eq!(next, Ok(PspState::Queried));
    assert_eq!(first_turn.outcome.reason(), None);

    let second = task(PspState::ConfirmPending, Some("55"));
    let completed = answer(201, &json!({ "status": "COMPLETED" }));
    let (_, asked) = pair.turn(&second, vec![completed]).await;
    assert_eq!(asked, ["POST /v3/profiles/16/transfers/55/payments"]);

    let (in_doubt, _) = pair.turn(&first, vec![quote, torn()]).await;
    let next = in_doubt.outcome.state_after(PspState::ConfirmPending);
    assert_eq!(next, Ok(PspState::Inquiring));
}

#[tokio::test]
async fn a_transfer_whose_id_was_not_heard_is_looked_for() {
    use PspState as S;
    let (once, again) = (Pair::new(true).await, Pair::new(false).await);
    let lost = task(S::Inquiring, None);
    let mut foreign = transfer("outgoing_payment_sent");
    foreign["customerTransactionId"] = json!("x");
    for (list, deduplicates, next, id) in [
        (
            json!([foreign, transfer("incoming_payment_waiting")]),
            false,
            S::Queried,
            Some("55"),
        ),
        (
            json!([transfer("processing")]),
            false,
            S::Inquiring,
            Some("55"),
        ),
        (
            json!([transfer("outgoing_payment_sent")]),
            false,
            S::Confirmed,
            Some("55"),
        ),
        (json!([transfer("cancelled")]), false, S::Failed, Some("55")),
        (json!([foreign]), true, S::Queried, None),
        (json!([foreign]), false, S::ManualReview, None),
        (json!([]), false, S::ManualReview, None),
        (json!({}), false, S::Inquiring, None),
    ] {
        let pair = if deduplicates { &once } else { &again };
        let (turn, asked) = pair.turn(&lost, vec![answer(200, &list)]).await;
        assert_eq!(asked, ["GET /v1/transfers?profile=16&limit=100&offset=0"]);
        assert_eq!(turn.outcome.state_after(S::Inquiring), Ok(next), "{list}");
        assert_eq!(turn.outcome.facts().response_id.as_deref(), id, "{list}");
    }
}

#[tokio::test]
async fn each_state_of_a_transfer_means_one_thing() {
    use PspState as S;
    let pair = Pair::new(false).await;
    let Pair(provider, driver) = &pair;
    let known = Known::new(Some("55"));
    for (status, next, returned) in [
        ("incoming_payment_initiated", S::Inquiring, Some(false)),
        ("processing", S::Inquiring, Some(false)),
        ("funds_converted", S::Inquiring, Some(false)),
        ("outgoing_payment_sent", S::Confirmed, Some(false)),
        ("bounced_back", S::Inquiring, Some(false)),
        ("charged_back", S::Inquiring, Some(false)),
        ("cancelled", S::Failed, Some(false)),
        ("funds_refunded", S::Failed, Some(true)),
        ("unknown", S::Inquiring, None),
        ("", S::Inquiring, None),
    ] {
        let asked = task(S::Inquiring, Some("55"));
        let (turn, _) = pair
            .turn(&asked, vec![answer(200, &transfer(status))])
            .await;
        assert_eq!(turn.outcome.state_after(S::Inquiring), Ok(next), "{status}");
        provider.says(200, &transfer(status));
        let (bounce, calls) = driver.bounce(&known.made()).await;
        let is_returned = match bounce {
            Bounce::In(state) => Some(state.is_returned()),
            _ => None,
        };
        assert_eq!(is_returned, returned, "{status}");
        assert_eq!(calls.len(), 1);
    }
    provider.says(404, &transfer("funds_refunded"));
    let (bounce, _) = driver.bounce(&known.made()).await;
    assert!(matches!(bounce, Bounce::Silent(_)), "{bounce:?}");
    let gone = json!({ "errors": [{ "code": UNKNOWN_TRANSFER }] });
    provider.says(404, &gone);
    assert_eq!(driver.bounce(&known.made()).await.0, Bounce::NotFound);
}

/// Somebody has named it, and was wrong.
#[tokio::test]
async fn the_transfer_of_another_payment_says_nothing_of_this_one() {
    let Pair(provider, driver) = &Pair::new(false).await;
    let known = Known::new(Some("55"));
    for (field, value) in [
        ("customerTransactionId", json!("x")),
        ("customerTransactionId", json!(null)),
        ("targetValue", json!(1234.51)),
        ("targetCurrency", json!("EUR")),
    ] {
        let mut of_another = transfer("funds_refunded");
        of_another[field] = value;
        provider.says(200, &of_another);
        let (bounce, _) = driver.bounce(&known.made()).await;
        assert!(matches!(bounce, Bounce::Anothers(_)), "{field}: {bounce:?}");
        provider.says(200, &of_another);
        let heard = driver.sent_back(&known.made()).await.word;
        assert!(matches!(heard, crate::psp::Word::Anothers(_)), "{heard:?}");
    }
}

#[tokio::test]
async fn a_transfer_whose_id_was_never_heard_is_known_by_its_uid() {
    let Pair(provider, driver) = &Pair::new(false).await;
    let known = Known::new(None);
    let page = |with: Option<Value>| {
        let foreign = (0..LISTED - 1).map(|n| json!({ "id": n, "customerTransactionId": "x" }));
        let last = with.unwrap_or_else(|| json!({ "id": 1, "customerTransactionId": "y" }));
        let all: Vec<Value> = foreign.chain([last]).collect();
        answer(200, &json!(all))
    };
    let told = answer(200, &transfer("funds_refunded"));
    provider.gives(vec![page(None), page(Some(transfer("processing"))), told]);
    let (bounce, calls) = driver.bounce(&known.made()).await;
    assert_eq!(bounce, Bounce::In(TransferState::Refunded));
    assert_eq!(calls.len(), 3, "page after page, and then itself");
    // What is kept is of this payment alone.
    let kept = |call: &CallRecord| call.response.clone().unwrap();
    assert_eq!(
        kept(&calls[0]),
        json!({ "transfers": [], "others": LISTED })
    );
    assert_eq!(kept(&calls[1])["others"], LISTED - 1);
    assert_eq!(kept(&calls[1])["transfers"][0]["id"], 55);
    provider.gives(vec![answer(200, &json!([]))]);
    assert_eq!(driver.bounce(&known.made()).await.0, Bounce::NotFound);
    provider.gives(vec![page(None); PAGES + 5]);
    let (bounce, calls) = driver.bounce(&known.made()).await;
    assert_eq!(
        (bounce, calls.len()),
        (Bounce::NotFound, PAGES),
        "not for ever"
    );
}

#[tokio::test]
async fn a_transfer_that_waits_is_funded_again_only_where_that_is_safe() {
    use PspState as S;
    let (once, again) = (Pair::new(true).await, Pair::new(false).await);
    let waiting = || vec![answer(200, &transfer("incoming_payment_waiting"))];
    for (deduplicates, tries, next) in [
        (true, 0, S::Queried),
        (true, 100, S::Queried),
        (false, 0, S::Inquiring),
        (false, ASKS_FOR_FUNDING - 1, S::Inquiring),
        (false, ASKS_FOR_FUNDING, S::ManualReview),
    ] {
        let mut asked = task(S::Inquiring, Some("55"));
        asked.tries = tries;
        let pair = if deduplicates { &once } else { &again };
        let (turn, _) = pair.turn(&asked, waiting()).await;
        assert_eq!(turn.outcome.state_after(S::Inquiring), Ok(next), "{tries}");
    }
}

#[tokio::test]
async fn an_id_that_can_not_stand_in_a_path_is_none() {
    let pair = Pair::new(true).await;
    for id in [
        json!("55/payments"),
        json!("../x"),
        json!(""),
        json!(null),
        json!({}),
    ] {
        let body = json!({ "id": id });
        let first = task(PspState::QueryPending, None);
        let (turn, _) = pair.turn(&first, vec![answer(200, &body)]).await;
        let next = turn.outcome.state_after(PspState::QueryPending);
        assert_eq!(next, Ok(PspState::QueryPending), "{id}");
    }
}
