use serde_json::json;
use settlenet::domain::payment::PspState;
use settlenet::domain::payment::outcome::Facts;
use settlenet::psp::wise::{Bounce, TransferState};
use settlenet::psp::{Made, PspTask};

use super::{How, SLOW, Sim, drive, iban, payout, turn};

const ORDINARY: &str = "DE89370400440532013000";

/// A German account number that ends in `9990000` and the digit, with its check digits.
fn magic(digit: u8) -> String {
    let bban = format!("37040044009990000{digit}");
    // Letters are numbers: D is 13 and E 14.
    let turned = format!("{bban}131400");
    let rest = turned.bytes().fold(0, |rest: u32, byte| {
        (rest * 10 + u32::from(byte - b'0')) % 97
    });
    format!("DE{:02}{bban}", 98 - rest)
}

fn made(task: &PspTask) -> Made<'_> {
    Made {
        uid: &task.confirm_rq_uid,
        facts: &task.facts,
        amount: task.amount,
        exponent: task.exponent,
        currency: &task.currency,
    }
}

#[tokio::test]
async fn a_payout_is_made_funded_and_sent() {
    let sim = Sim::start(How::default()).await;
    let task = payout(iban(ORDINARY), "EUR");
    let uid = task.confirm_rq_uid.clone();
    let outcome = drive(&sim.wise(true, SLOW), task).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    let operations: Vec<_> = outcome.calls.iter().map(|call| call.operation).collect();
    let expected = [
        "account",
        "quote",
        "transfer",
        "payment",
        "transfer_state",
        "transfer_state",
        "transfer_state",
    ];
    assert_eq!(operations, expected);
    assert_eq!(
        outcome.task.facts.receiver_name_en.as_deref(),
        Some("Jo Do")
    );
    let expected = json!({
        "provider": "WISE", "uid": uid, "intent": outcome.task.intent, "currency": "EUR",
        "amount": "1234.5", "times": 1, "returned": 0,
        "response_ids": [outcome.task.facts.response_id],
    });
    assert_eq!(sim.payments().await, [expected]);
}

#[tokio::test]
async fn who_can_not_be_paid_is_not_and_it_is_said_why() {
    use PspState as S;
    let sim = Sim::start(How::default()).await;
    let driver = sim.wise(true, SLOW);
    for (digit, state, reason, times) in [
        (1, S::Failed, Some("receiver_refused"), 0),
        (2, S::Failed, Some("receiver_refused"), 0),
        (3, S::Failed, Some("receiver_refused"), 0),
        (7, S::ManualReview, Some("message_not_understood"), 0),
        (8, S::Failed, Some("cancelled"), 1),
        (9, S::Confirmed, None, 1),
    ] {
        let receiver = iban(&magic(digit));
        receiver
            .check(settlenet::domain::payment::PspName::Wise)
            .unwrap();
        let task = payout(receiver, "EUR");
        let intent = task.intent;
        let outcome = drive(&driver, task).await;
        assert_eq!(
            (outcome.state(), outcome.reason.as_deref()),
            (state, reason),
            "{digit}"
        );
        assert_eq!(sim.times(intent).await, times, "{digit}");
        let payments = sim.payments().await;
        let returned = payments.iter().find(|p| p["intent"] == intent.to_string());
        let returned = returned.map_or(0, |payment| payment["returned"].as_u64().unwrap());
        assert_eq!(returned, u64::from(digit == 8), "{digit}");
    }
}

#[tokio::test]
async fn money_that_comes_back_after_success_is_seen() {
    let sim = Sim::start(How::default()).await;
    let driver = sim.wise(true, SLOW);
    let outcome = drive(&driver, payout(iban(ORDINARY), "EUR")).await;
    let transfer = outcome.task.facts.response_id.clone().unwrap();
    let known = made(&outcome.task);
    let sent = Bounce::In(TransferState::Sent);
    assert_eq!(driver.bounce(&known).await.0, sent);
    let path = format!("/sim/wise/{transfer}/bounce");
    assert_eq!(sim.post(&path, &json!({})).await.0, 200);
    assert_eq!(sim.post("/sim/wise/5/bounce", &json!({})).await.0, 404);
    for state in [
        TransferState::Bounced,
        TransferState::UnderWay,
        TransferState::Cancelled,
        TransferState::Refunded,
        TransferState::Refunded,
    ] {
        assert_eq!(driver.bounce(&known).await.0, Bounce::In(state));
        assert_eq!(state.is_returned(), state == TransferState::Refunded);
    }
    let report = sim.get("/sim/report.csv").await.text().await.unwrap();
    assert!(report.trim_end().ends_with(",returned"), "{report}");
    let other = Facts {
        response_id: Some("5".to_owned()),
        ..Facts::default()
    };
    let unknown = Made {
        facts: &other,
        ..known
    };
    assert_eq!(driver.bounce(&unknown).await.0, Bounce::NotFound);
}

#[tokio::test]
async fn bounces_come_by_themselves_where_they_are_to() {
    let how = How {
        rates: "bounce=100",
        ..How::default()
    };
    let sim = Sim::start(how).await;
    let driver = sim.wise(true, SLOW);
    let outcome = drive(&driver, payout(iban(ORDINARY), "EUR")).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    let mut state = Bounce::NotFound;
    for _ in 0..4 {
        state = driver.bounce(&made(&outcome.task)).await.0;
    }
    assert_eq!(state, Bounce::In(TransferState::Refunded));
}

/// A quote binds nobody.
#[tokio::test]
async fn a_quote_whose_answer_was_torn_is_made_again() {
    for pays_again in [false, true] {
        let how = How {
            pays_again,
            ..How::default()
        };
        let sim = Sim::start(how).await;
        let driver = sim.wise(!pays_again, SLOW);
        let mut task = payout(iban(ORDINARY), "EUR");
        turn(&driver, &mut task).await;
        let faults = json!({ "torn_after": 100 });
        let quoted = task.clone();
        sim.post("/sim/faults", &faults).await;
        turn(&driver, &mut task).await;
        assert_eq!(task.state, PspState::Queried, "the quote's answer was torn");
        assert_eq!(task.facts, quoted.facts);
        sim.post("/sim/faults", &json!({})).await;
        let intent = task.intent;
        let outcome = drive(&driver, task).await;
        assert_eq!(outcome.state(), PspState::Confirmed);
        assert_eq!(sim.times(intent).await, 1);
    }
}
