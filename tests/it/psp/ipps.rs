use std::time::Duration;

use serde_json::json;
use settlenet::domain::payment::PspState;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::psp::Lease;

use super::{How, SLOW, Sim, drive, payout, thai_account, turn};

#[tokio::test]
async fn a_payout_is_looked_up_paid_and_reported() {
    let sim = Sim::start(How::default()).await;
    let task = payout(thai_account("0123456789"), "THB");
    let uid = task.confirm_rq_uid.clone();
    let outcome = drive(&sim.ipps(true, SLOW), task).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    let operations: Vec<_> = outcome.calls.iter().map(|call| call.operation).collect();
    assert_eq!(operations, ["Q-IPPS-13", "T-IPPS-04"]);
    let facts = &outcome.task.facts;
    assert_eq!(facts.receiver_name_en.as_deref(), Some("Somchai Jaidee"));
    assert_eq!(facts.receiver_bank.as_deref(), Some("004"));
    assert_eq!(facts.settlement_date.as_deref(), Some("20260301"));
    assert_eq!(facts.psp_fee_satang, Some(250));
    let response_id = facts.response_id.clone().unwrap();

    let paid = sim.payments().await;
    let expected = json!({
        "provider": "IPPS", "uid": uid, "intent": outcome.task.intent, "currency": "THB",
        "amount": "1234.50", "times": 1, "returned": 0, "response_ids": [response_id],
    });
    assert_eq!(paid, [expected]);
    let report = sim.get("/sim/report.csv").await.text().await.unwrap();
    let intent = outcome.task.intent;
    assert_eq!(
        report,
        format!(
            "provider,uid,intent,response_id,currency,amount,fee,settlement_date,paid_at,status\n\
             IPPS,{uid},{intent},{response_id},THB,1234.50,2.50,20260301,2026-03-01T10:00:00+00:00,paid\n"
        )
    );
}

#[tokio::test]
async fn a_proxy_is_paid() {
    let sim = Sim::start(How::default()).await;
    let proxy = "0801234567".to_owned();
    let outcome = drive(
        &sim.ipps(true, SLOW),
        payout(Receiver::PromptPay { proxy }, "THB"),
    )
    .await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    assert_eq!(outcome.task.facts.receiver_bank.as_deref(), Some("014"));
}

/// The receivers for whom it goes otherwise, and the wallets that are none.
#[tokio::test]
async fn who_can_not_be_paid_is_not_and_it_is_said_why() {
    use PspState as S;
    let sim = Sim::start(How::default()).await;
    let driver = sim.ipps(true, SLOW);
    for (digit, state, reason, confirms, times) in [
        (1, S::Failed, Some("receiver_not_found"), 0, 0),
        (2, S::Failed, Some("receiver_account_closed"), 0, 0),
        (3, S::Failed, Some("over_receiver_limit"), 1, 0),
        (4, S::Failed, Some("receiver_account_closed"), 1, 0),
        (5, S::Confirmed, None, 1, 1),
        (6, S::Failed, Some("receiver_bank_refused"), 1, 0),
        (7, S::ManualReview, Some("held_for_compliance"), 1, 0),
    ] {
        let task = payout(thai_account(&format!("019990000{digit}")), "THB");
        let intent = task.intent;
        let outcome = drive(&driver, task).await;
        assert_eq!(
            (outcome.state(), outcome.reason.as_deref()),
            (state, reason),
            "{digit}"
        );
        assert_eq!(outcome.called("T-IPPS-04"), confirms, "{digit}");
        assert_eq!(sim.times(intent).await, times, "{digit}");
    }
    for sender in [None, Some("unknown-wallet".to_owned())] {
        let mut task = payout(thai_account("0123456789"), "THB");
        task.sender = sender;
        let outcome = drive(&driver, task).await;
        assert_eq!(outcome.state(), S::ManualReview);
        assert_eq!(outcome.reason.as_deref(), Some("wallet_not_registered"));
    }
}

#[tokio::test]
async fn another_payment_under_a_uid_is_for_a_person() {
    let sim = Sim::start(How::default()).await;
    let driver = sim.ipps(true, SLOW);
    let first = payout(thai_account("0123456789"), "THB");
    let mut second = payout(thai_account("0123456789"), "THB");
    second.confirm_rq_uid.clone_from(&first.confirm_rq_uid);
    assert_eq!(drive(&driver, first).await.state(), PspState::Confirmed);
    let outcome = drive(&driver, second).await;
    assert_eq!(outcome.state(), PspState::ManualReview);
    assert_eq!(
        outcome.reason.as_deref(),
        Some("uid_used_for_another_payment")
    );
}

#[tokio::test]
async fn a_lookup_that_was_of_something_else_pays_nobody() {
    let sim = Sim::start(How::default()).await;
    let driver = sim.ipps(true, SLOW);
    let mut task = payout(thai_account("0123456789"), "THB");
    turn(&driver, &mut task).await;
    task.amount += 1;
    let outcome = drive(&driver, task).await;
    assert_eq!(outcome.state(), PspState::Failed);
    assert_eq!(outcome.reason.as_deref(), Some("lookup_expired"));
}

#[tokio::test]
async fn a_token_that_is_refused_fails_nothing() {
    let sim = Sim::start(How::default()).await;
    let mut task = payout(thai_account("0123456789"), "THB");
    turn(&sim.ipps(true, SLOW), &mut task).await;
    let mut config = settlenet::psp::ipps::IppsConfig {
        endpoint: super::endpoint(&sim.url, SLOW),
        currencies: Vec::new(),
        deduplicates: true,
    };
    config.endpoint.token = "wrong".into();
    let stranger = settlenet::psp::ipps::Ipps::new(config).unwrap();
    let (outcome, _) = turn(&stranger, &mut task).await;
    assert_eq!(outcome.reason(), Some("token_refused"));
    assert_eq!(task.state, PspState::Inquiring);
    // It is paid once the token is right again.
    let outcome = drive(&sim.ipps(true, SLOW), task).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
}

#[tokio::test]
async fn with_too_little_of_the_lease_nothing_is_sent() {
    let sim = Sim::start(How::default()).await;
    let driver = sim.ipps(false, SLOW);
    let mut task = payout(thai_account("0123456789"), "THB");
    turn(&driver, &mut task).await;
    // The driver's timeout is 20 s, and 2 s more are for writing down what came of it.
    task.lease = Lease::lasting(Duration::from_millis(21_500));
    let (_, calls) = turn(&driver, &mut task).await;
    assert!(calls.is_empty());
    assert_eq!(task.state, PspState::Queried);
    assert_eq!(sim.times(task.intent).await, 0);
    task.lease = Lease::lasting(Duration::from_mins(1));
    assert_eq!(drive(&driver, task).await.state(), PspState::Confirmed);
}

/// Even a provider that pays a uid twice may be asked again after a connection that was refused.
#[tokio::test]
async fn a_refused_connection_is_no_doubt() {
    let how = How {
        pays_again: true,
        ..How::default()
    };
    let sim = Sim::start(how.clone()).await;
    let mut task = payout(thai_account("0123456789"), "THB");
    turn(&sim.ipps(false, SLOW), &mut task).await;
    let nowhere = {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let config = settlenet::psp::ipps::IppsConfig {
        endpoint: super::endpoint(&nowhere, SLOW),
        currencies: Vec::new(),
        deduplicates: false,
    };
    let away = settlenet::psp::ipps::Ipps::new(config).unwrap();
    let (_, calls) = turn(&away, &mut task).await;
    assert_eq!(calls.len(), 1);
    assert_eq!(task.state, PspState::Queried);
    let intent = task.intent;
    assert_eq!(
        drive(&sim.ipps(false, SLOW), task).await.state(),
        PspState::Confirmed
    );
    assert_eq!(sim.times(intent).await, 1);
}
