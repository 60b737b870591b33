use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use chrono::TimeDelta;
use secrecy::SecretString;
use serde_json::json;
use settlenet::domain::payment::PspState;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::psp::PspTask;
use settlenet::psp::qp::callback::{Callback, SIGNATURE_HEADER, TIMESTAMP_HEADER, verify};
use settlenet::psp::qp::payload;
use tokio::net::TcpListener;

use super::{BILLER, CALLBACK_SECRET, How, Sim, drive, payout, start_of_time, turn};
use crate::harness::{SOON, until};

fn top_up() -> PspTask {
    payout(Receiver::Wallet, "THB")
}

/// Hears callbacks, and refuses as many as it is told to first.
#[derive(Clone, Default)]
struct Hearer {
    heard: Arc<Mutex<Vec<Callback>>>,
    refuse: Arc<Mutex<u32>>,
}

impl Hearer {
    async fn listen(&self) -> String {
        let app = Router::new()
            .route("/callback", post(hear))
            .with_state(self.clone());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/callback", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        url
    }

    fn heard(&self) -> Vec<Callback> {
        self.heard.lock().unwrap().clone()
    }

    async fn hears(&self, count: usize) -> Vec<Callback> {
        until("callbacks come", SOON, async || self.heard().len() >= count).await;
        self.heard()
    }
}

async fn hear(State(ear): State<Hearer>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let refuse = {
        let mut left = ear.refuse.lock().unwrap();
        let refuse = *left > 0;
        *left = left.saturating_sub(1);
        refuse
    };
    if refuse {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let header = |name| headers[name].to_str().unwrap();
    let callback = verify(
        &[SecretString::from(CALLBACK_SECRET)],
        header(TIMESTAMP_HEADER),
        header(SIGNATURE_HEADER),
        &body,
        start_of_time(),
        TimeDelta::minutes(5),
    );
    ear.heard.lock().unwrap().push(callback.unwrap());
    StatusCode::OK
}

#[tokio::test]
async fn a_code_is_registered_scanned_and_credited() {
    let hearer = Hearer::default();
    let sim = Sim::start(How {
        callback: Some(hearer.listen().await),
        ..How::default()
    })
    .await;
    *hearer.refuse.lock().unwrap() = 1;
    let driver = sim.qp(true);
    let mut task = top_up();
    let (_, calls) = turn(&driver, &mut task).await;
    assert_eq!(task.state, PspState::Queried);
    let sent = calls[0].request["payload"].as_str().unwrap();
    assert_eq!(sent, payload(BILLER, task.intent, task.amount).unwrap());
    for _ in 0..3 {
        turn(&driver, &mut task).await;
        assert_eq!(task.state, PspState::Inquiring, "nobody has paid");
    }
    let qr_ref = task.facts.lookup_ref.clone().unwrap();
    let (status, paid) = sim.post(&format!("/sim/qp/{qr_ref}/pay"), &json!({})).await;
    assert_eq!((status, &paid["amount"]), (200, &json!("1234.50")));
    let intent = task.intent;
    let outcome = drive(&driver, task).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    assert_eq!(
        outcome.task.facts.response_id.as_deref(),
        paid["paymentId"].as_str()
    );
    assert_eq!(
        outcome.task.facts.settlement_date.as_deref(),
        Some("20260301")
    );
    assert_eq!(outcome.task.facts.psp_fee_satang, Some(100));
    // It was refused once, and came again.
    let heard = hearer.hears(1).await;
    assert_eq!(heard[0].reference, intent.to_string());
    assert_eq!(heard[0].qr_ref, qr_ref);
    assert_eq!(heard[0].amount, "1234.50");
}

#[tokio::test]
async fn nobody_pays_in_time_and_then_somebody_does() {
    let hearer = Hearer::default();
    let sim = Sim::start(How {
        callback: Some(hearer.listen().await),
        ..How::default()
    })
    .await;
    let driver = sim.qp(true);
    let mut task = top_up();
    turn(&driver, &mut task).await;
    sim.clock
        .advance(TimeDelta::minutes(15) - TimeDelta::seconds(1));
    turn(&driver, &mut task).await;
    assert_eq!(task.state, PspState::Inquiring);
    sim.clock.advance(TimeDelta::seconds(1));
    let intent = task.intent;
    let outcome = drive(&driver, task).await;
    assert_eq!(outcome.state(), PspState::Failed);
    assert_eq!(outcome.reason.as_deref(), Some("expired"));
    // Nobody can keep a payer from paying, late and twice.
    sim.clock.advance(TimeDelta::minutes(-15));
    for _ in 0..2 {
        let (status, _) = sim.post(&format!("/sim/qp/{intent}/pay"), &json!({})).await;
        assert_eq!(status, 200);
    }
    let heard = hearer.hears(2).await;
    assert_ne!(heard[0].payment_id, heard[1].payment_id);
    assert_ne!(heard[0].event_id, heard[1].event_id);
    assert_eq!(sim.times(intent).await, 2);
}

#[tokio::test]
async fn callbacks_come_twice_and_late() {
    let hearer = Hearer::default();
    let sim = Sim::start(How {
        rates: "duplicate_callback=100,late_callback=100,late_ms=150",
        callback: Some(hearer.listen().await),
        ..How::default()
    })
    .await;
    let mut task = top_up();
    turn(&sim.qp(true), &mut task).await;
    let began = std::time::Instant::now();
    sim.post(&format!("/sim/qp/{}/pay", task.intent), &json!({}))
        .await;
    let heard = hearer.hears(2).await;
    assert!(began.elapsed() >= Duration::from_millis(150));
    assert_eq!(heard[0], heard[1]);
    assert_eq!(sim.times(task.intent).await, 1);
}

#[tokio::test]
async fn a_code_that_the_provider_has_lost_is_registered_again() {
    use PspState as S;
    for (deduplicates, end) in [(true, S::Inquiring), (false, S::ManualReview)] {
        let lost = Sim::start(How::default()).await;
        let mut task = top_up();
        turn(&lost.qp(deduplicates), &mut task).await;
        let sim = Sim::start(How::default()).await;
        let driver = sim.qp(deduplicates);
        turn(&driver, &mut task).await;
        assert_eq!(task.state, end);
    }
}

#[tokio::test]
async fn a_payment_that_the_provider_is_slow_to_tell_of_is_not_expired() {
    let how = How {
        rates: "unknown=100,unknown_asks=2",
        ..How::default()
    };
    let sim = Sim::start(how).await;
    let driver = sim.qp(true);
    let mut task = top_up();
    turn(&driver, &mut task).await;
    sim.post(&format!("/sim/qp/{}/pay", task.intent), &json!({}))
        .await;
    sim.clock.advance(TimeDelta::hours(1));
    assert_eq!(drive(&driver, task).await.state(), PspState::Confirmed);
}

#[tokio::test]
async fn codes_that_are_none() {
    let sim = Sim::start(How::default()).await;
    let (status, _) = sim.post("/sim/qp/nothing/pay", &json!({})).await;
    assert_eq!(status, 404);
    let good = payload(BILLER, uuid::Uuid::new_v4(), 100).unwrap();
    for (payload, amount) in [(good.as_str(), "1.01"), ("00020101", "1.00")] {
        let body = json!({
            "rqUid": "u", "reference": "r", "payload": payload, "amount": amount,
            "currency": "THB", "validForSeconds": 60,
        });
        let (status, body) = sim.post("/qp/v1/codes", &body).await;
        assert_eq!((status, &body["code"]), (422, &json!("4001")), "{payload}");
    }
}
