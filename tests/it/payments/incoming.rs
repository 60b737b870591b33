//! Money that comes in: paid once, twice, late, for nobody, and told of by anybody.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::{Value, json};
use settlenet::domain::ledger::AccountOwner;
use settlenet::domain::payment::incoming::IncomingStatus;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::domain::payment::{IntentStatus, PspName};
use settlenet::psp::breaker::Limits;
use settlenet::psp::client::Endpoint;
use settlenet::psp::qp::callback::{SIGNATURE_HEADER, TIMESTAMP_HEADER, sign};
use settlenet::psp::qp::{Qp, QpConfig};
use settlenet::psp::{Driver, Registry};
use settlenet::services::payments::{Incoming, NewIntent, PaymentService, Verdict, WordError};
use uuid::Uuid;

use super::sim::{Behaviour, Sim};
use super::{PAST_ALL, Till, finding, meant, state_of, through};

pub const SECRET: &str = "a-shared-secret";
pub const AMOUNT: u64 = 25_000;

/// A till that takes money in.
pub struct Stall {
    pub till: Till,
    pub sim: Sim,
    pub payments: PaymentService,
}

impl Stall {
    pub async fn set(valid_for: Duration, faults: &'static str) -> Self {
        let till = Till::new().await;
        let sim = Sim::start(Behaviour {
            deduplicates: true,
            faults,
            ..Behaviour::default()
        })
        .await;
        let qp = Qp::new(QpConfig {
            endpoint: Endpoint {
                url: sim.url.clone(),
                token: SecretString::from("sim-token"),
                connect_timeout: Duration::from_secs(5),
                timeout: Duration::from_secs(5),
                breaker: Limits {
                    failures: u32::MAX,
                    cool_down: Duration::from_secs(1),
                },
            },
            biller: "011000000000000".to_owned(),
            currencies: vec![till.currency.code.clone()],
            deduplicates: true,
            valid_for,
            callback_secrets: vec![SecretString::from(SECRET)],
        });
        let providers = Registry::new([Arc::new(qp.unwrap()) as Arc<dyn Driver>]);
        let clock = till.world.clock.clone();
        let payments = through(&till.world, &till.pm, providers, clock);
        Self {
            till,
            sim,
            payments,
        }
    }

    pub async fn ask(&self) -> Uuid {
        let new = NewIntent {
            channel: PspName::Qp,
            receiver: Receiver::Wallet,
            ..self.till.payout(AMOUNT)
        };
        let alpha = self.till.world.alpha;
        let created = self.payments.create(alpha, &meant(), new).await;
        created.expect("is created").intent.id
    }

    /// All workers' turns until nothing is due.
    pub async fn settle(&self) {
        loop {
            let mut done = self.payments.outbox().serve(50).await.unwrap();
            done += self.payments.outbox().take_in(50).await.unwrap();
            let engine = self.payments.engine();
            let rows = engine.pick_up(PspName::Qp, 10).await.unwrap();
            done += rows.len();
            for row in rows {
                engine.serve(row).await;
            }
            if done == 0 {
                return;
            }
        }
    }

    pub async fn until(&self, id: Uuid, wanted: IntentStatus) {
        for _ in 0..20 {
            self.settle().await;
            if self.till.status(id).await == wanted {
                return;
            }
            self.till.world.clock.advance(PAST_ALL);
        }
        panic!("not {wanted}: {:#?}", self.till.get(id).await);
    }

    /// The provider's names of what it took in, in their order.
    pub async fn payment_ids(&self) -> Vec<String> {
        let statement = self.sim.statement().await;
        let lines = statement.lines().skip(1);
        lines
            .filter_map(|line| line.split(',').nth(3))
            .map(str::to_owned)
            .collect()
    }

    pub fn word(&self, intent: &str, payment: &str) -> Value {
        json!({
            "eventId": format!("E{payment}"), "qrRef": "QR1", "reference": intent,
            "paymentId": payment, "amount": "250.00", "currency": self.till.currency.code,
            "paidAt": self.till.world.clock.now(),
        })
    }

    pub async fn tell(&self, word: &Value) -> Result<Incoming, WordError> {
        let body = word.to_string();
        let headers = self.signed(body.as_bytes(), SECRET, 0);
        let psp = PspName::Qp;
        self.payments.callback(psp, &headers, body.as_bytes()).await
    }

    fn signed(&self, body: &[u8], secret: &str, apart_s: i64) -> HeaderMap {
        signed(self.till.world.clock.now(), body, secret, apart_s)
    }

    pub async fn suspense(&self) -> i128 {
        self.till.balances(AccountOwner::Suspense).await.posted()
    }

    /// What has come in by the ledger: nostro's debits.
    async fn came_in(&self) -> u128 {
        let part = settlenet::domain::ledger::NamePart::new("qp").unwrap();
        let nostro = self.till.balances(AccountOwner::Nostro(part)).await;
        nostro.debits_posted
    }
}

/// The headers of a callback that is sent so many seconds from now.
pub fn signed(now: DateTime<Utc>, body: &[u8], secret: &str, apart_s: i64) -> HeaderMap {
    let at = (now.timestamp() + apart_s).to_string();
    let signature = sign(&SecretString::from(secret), &at, body);
    let mut headers = HeaderMap::new();
    headers.insert(TIMESTAMP_HEADER, at.parse().unwrap());
    headers.insert(SIGNATURE_HEADER, signature.parse().unwrap());
    headers
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_up_is_credited_once_it_was_paid_and_told_of() {
    // The provider itself does not know of it at the first questions.
    let stall = Stall::set(Duration::from_mins(15), "unknown=100,unknown_asks=2").await;
    let id = stall.ask().await;
    let intent = stall.till.get(id).await.intent;
    assert_eq!(intent.status, IntentStatus::Processing);
    let payload = stall.payments.payload(&intent).unwrap();
    assert!(payload.starts_with("000201010212") && payload.contains("250.00"));
    stall.settle().await;
    assert!(stall.sim.pay(&id.to_string()).await);
    let [payment] = stall.payment_ids().await.try_into().unwrap();
    let told = stall.tell(&stall.word(&id.to_string(), &payment)).await;
    let told = told.unwrap();
    assert_eq!((told.status, told.deliveries), (IncomingStatus::Waiting, 1));
    assert_eq!(
        stall.till.wallet().await.posted(),
        0,
        "a word moves nothing"
    );
    // It is asked about every second, not with the patience of a code that nobody was heard to pay.
    for _ in 0..8 {
        stall.settle().await;
        stall.till.world.clock.advance(chrono::Duration::seconds(1));
    }
    assert_eq!(stall.till.status(id).await, IntentStatus::Completed);
    assert_eq!(stall.till.wallet().await.posted(), i128::from(AMOUNT));
    stall.settle().await;
    let again = stall.tell(&stall.word(&id.to_string(), &payment)).await;
    let again = again.unwrap();
    assert_eq!(
        (again.status, again.deliveries),
        (IncomingStatus::Credited, 2)
    );
    stall.settle().await;
    assert_eq!(stall.till.wallet().await.posted(), i128::from(AMOUNT));
    assert_eq!(stall.came_in().await, u128::from(AMOUNT));
    let paid = stall.till.get(id).await.intent;
    assert_eq!(
        stall.payments.payload(&paid),
        None,
        "nobody is to pay it again"
    );
    crate::harness::assert_invariants(&stall.till.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_twice_waits_for_a_person_and_goes_where_they_say() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let id = stall.ask().await;
    stall.settle().await;
    for _ in 0..2 {
        assert!(stall.sim.pay(&id.to_string()).await);
    }
    let [first, second] = stall.payment_ids().await.try_into().unwrap();
    for payment in [&second, &first] {
        stall
            .tell(&stall.word(&id.to_string(), payment))
            .await
            .unwrap();
    }
    stall.until(id, IntentStatus::Completed).await;
    stall.settle().await;
    let amount = i128::from(AMOUNT);
    assert_eq!(stall.till.wallet().await.posted(), amount);
    assert_eq!(stall.suspense().await, amount);
    let open = stall.payments.incoming(None, 10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(
        (open[0].payment_id.as_str(), open[0].status),
        (second.as_str(), IncomingStatus::Suspense)
    );
    let alerts = stall.till.world.app.alerts.list(true, None, 10).await;
    let alerts = alerts.unwrap();
    assert_eq!(alerts[0].kind, "payment_suspense");

    let wallet = &stall.till.wallet;
    let assign = async |wallet, why| stall.payments.assign(open[0].id, wallet, why, "US-1").await;
    assert_eq!(state_of(assign(wallet, " ").await), "reason");
    let other = settlenet::services::payments::NewWallet {
        partner: None,
        currency: stall.till.currency.clone(),
        ipps_wallet_id: None,
    };
    let beta = stall.till.world.beta;
    let other = stall.payments.open_wallet(beta, other).await.unwrap();
    for _ in 0..2 {
        let assigned = assign(wallet, "they asked for it back").await.unwrap();
        assert_eq!(assigned.status, IncomingStatus::Assigned);
    }
    assert_eq!(
        state_of(assign(&other.wallet.name, "no, theirs").await),
        "incoming"
    );
    assert_eq!(stall.till.wallet().await.posted(), 2 * amount);
    assert_eq!(stall.suspense().await, 0);
    assert_eq!(stall.came_in().await, 2 * u128::from(AMOUNT));
    assert!(stall.payments.incoming(None, 10).await.unwrap().is_empty());
    let alerts = stall.till.world.app.alerts.list(true, None, 10).await;
    assert!(alerts.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paid_late_is_not_lost() {
    let stall = Stall::set(Duration::from_secs(1), "").await;
    let id = stall.ask().await;
    stall.settle().await;
    // The simulator goes by the machine's clock.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    stall.until(id, IntentStatus::Failed).await;
    assert_eq!(
        stall.till.get(id).await.intent.reason.as_deref(),
        Some("expired")
    );
    assert!(stall.sim.pay(&id.to_string()).await);
    let [payment] = stall.payment_ids().await.try_into().unwrap();
    stall
        .tell(&stall.word(&id.to_string(), &payment))
        .await
        .unwrap();
    stall.settle().await;
    assert_eq!(stall.till.wallet().await.posted(), 0);
    assert_eq!(stall.suspense().await, i128::from(AMOUNT));
    assert_eq!(stall.till.status(id).await, IntentStatus::Failed);
    crate::harness::assert_invariants(&stall.till.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn words_of_anybody_else_and_of_nobody_move_nothing() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let id = stall.ask().await;
    let word = stall.word(&id.to_string(), "P1").to_string();
    let refused = async |headers: &HeaderMap, body: &str| {
        let (psp, body) = (PspName::Qp, body.as_bytes());
        match stall.payments.callback(psp, headers, body).await {
            Err(WordError::Refused(error)) => {
                let kept = stall.payments.keep_refused(psp, &error, body).await;
                kept.unwrap();
            }
            other => panic!("{other:?}"),
        }
    };
    refused(&HeaderMap::new(), &word).await;
    refused(&stall.signed(word.as_bytes(), "another", 0), &word).await;
    refused(&stall.signed(word.as_bytes(), SECRET, -301), &word).await;
    refused(&stall.signed(word.as_bytes(), SECRET, 301), &word).await;
    let signed = stall.signed(word.as_bytes(), SECRET, 0);
    refused(&signed, &word.replace("250.00", "999.00")).await;
    let mut twice = signed.clone();
    twice.append(SIGNATURE_HEADER, signed[SIGNATURE_HEADER].clone());
    refused(&twice, &word).await;
    let long = "\0x".repeat(10_000);
    refused(&stall.signed(long.as_bytes(), SECRET, 0), &long).await;
    let ipps = stall
        .payments
        .callback(PspName::Ipps, &signed, word.as_bytes())
        .await;
    assert!(matches!(ipps, Err(WordError::NoSuchProvider)));

    let bad = |field: &str, value: Value| {
        let mut word = stall.word(&id.to_string(), "P2");
        word[field] = value;
        word
    };
    for word in [
        bad("currency", json!("XXX")),
        bad("amount", json!("1.234")),
        bad("amount", json!("-1.00")),
        bad("amount", json!("0.00")),
        bad("paymentId", json!("")),
        bad("paymentId", json!("a\u{0}b")),
        bad("reference", json!("r".repeat(200))),
    ] {
        let told = matches!(
            stall.tell(&word).await,
            Err(WordError::NotUnderstood { .. })
        );
        assert!(told, "{word}");
    }

    // Signed, and for nobody: it is written down, and waits for a person.
    for reference in [Uuid::new_v4().to_string(), "hello".to_owned()] {
        let payment = format!("P-{reference}");
        let told = stall.tell(&stall.word(&reference, &payment)).await.unwrap();
        assert_eq!(told.status, IncomingStatus::Unknown);
    }
    // A payout is no top-up.
    stall.till.fund(100_000).await;
    let payout = stall.till.create(stall.till.payout(1_000)).await;
    let told = stall.tell(&stall.word(&payout.to_string(), "P3")).await;
    assert_eq!(told.unwrap().status, IncomingStatus::Unknown);
    // One payment has one amount.
    stall
        .tell(&stall.word(&id.to_string(), "P4"))
        .await
        .unwrap();
    let mut other = stall.word(&id.to_string(), "P4");
    other["amount"] = json!("251.00");
    let answer = stall.tell(&other).await;
    assert!(matches!(answer, Err(WordError::Contradicts(_))));

    stall.settle().await;
    assert_eq!(stall.came_in().await, 0);
    assert_eq!(stall.suspense().await, 0);
    assert_eq!(stall.till.status(id).await, IntentStatus::Processing);
    let verdicts: Vec<(String, i64)> = sqlx::query_as(
        "SELECT verdict, COUNT(*) FROM pm.psp_callback GROUP BY verdict ORDER BY verdict",
    )
    .fetch_all(&stall.till.pm)
    .await
    .unwrap();
    let verdicts: Vec<_> = verdicts.iter().map(|(v, n)| (v.as_str(), *n)).collect();
    assert_eq!(
        verdicts,
        [
            ("contradicts", 1),
            ("not_signed", 4),
            ("not_understood", 8),
            ("out_of_time", 2),
            ("taken", 4),
        ]
    );
    given_to_somebody(&stall).await;
}

/// One of nobody's is given to somebody.
async fn given_to_somebody(stall: &Stall) {
    let open = stall.payments.incoming(None, 10).await.unwrap();
    let nobodys = open
        .iter()
        .find(|one| one.status == IncomingStatus::Unknown)
        .unwrap();
    let wallet = &stall.till.wallet;
    let before = stall.till.wallet().await.posted();
    let assigned = stall
        .payments
        .assign(nobodys.id, wallet, "by their letter", "US-1")
        .await;
    assert_eq!(assigned.unwrap().status, IncomingStatus::Assigned);
    let after = stall.till.wallet().await.posted();
    assert_eq!(after - before, i128::from(AMOUNT));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_up_that_a_person_ends_holds_nothing_and_gives_nothing_back() {
    for (verdict, ends, credited) in [
        (Verdict::Failed, IntentStatus::Failed, 0),
        (Verdict::Confirmed, IntentStatus::Completed, AMOUNT),
    ] {
        let stall = Stall::set(Duration::from_mins(15), "").await;
        let id = stall.ask().await;
        stall.settle().await;
        for sql in [
            "UPDATE pm.psp_tx_map SET state = 'MANUAL_REVIEW', last_error = 'held_for_compliance'",
            "UPDATE pm.intent SET status = 'manual_review'",
        ] {
            sqlx::query(sql).execute(&stall.till.pm).await.unwrap();
        }
        // Nobody was told: whoever wrote that down has died.
        let alerts = async || {
            let alerts = &stall.till.world.app.alerts;
            alerts.list(true, None, 10).await.unwrap()
        };
        assert!(alerts().await.is_empty());
        for _ in 0..2 {
            stall.payments.engine().remind(10).await.unwrap();
        }
        assert_eq!(alerts().await.len(), 1);
        let said = finding(verdict);
        stall.payments.resolve(id, &said).await.unwrap();
        stall.until(id, ends).await;
        assert!(alerts().await.is_empty(), "{:?}", alerts().await);
        assert_eq!(stall.till.wallet().await.posted(), i128::from(credited));
        crate::harness::assert_invariants(&stall.till.world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_up_that_was_paid_with_another_amount_is_never_credited_in_full() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let till = &stall.till;
    let id = stall.ask().await;
    stall.settle().await;
    for sql in [
        "UPDATE pm.psp_tx_map SET state = 'MANUAL_REVIEW', last_error = 'paid_another_amount',
             leased_by = NULL, leased_at = NULL",
        "UPDATE pm.intent SET status = 'manual_review'",
    ] {
        sqlx::query(sql).execute(&till.pm).await.unwrap();
    }
    let word = stall.word(&id.to_string(), &Uuid::new_v4().to_string());
    let kept = stall.tell(&word).await.unwrap();
    assert_eq!(kept.status, IncomingStatus::Waiting);
    let paid = finding(Verdict::Confirmed);
    let refused = stall.payments.resolve(id, &paid).await;
    assert_eq!(state_of(refused), "verdict");
    assert_eq!(till.status(id).await, IntentStatus::ManualReview);
    let unpaid = finding(Verdict::Failed);
    stall.payments.resolve(id, &unpaid).await.unwrap();
    stall.until(id, IntentStatus::Failed).await;
    assert_eq!(stall.suspense().await, i128::from(AMOUNT));
    assert_eq!(till.wallet().await.posted(), 0);
    assert_eq!(till.alerts("payment_suspense").await, [kept.id.to_string()]);
    crate::harness::assert_invariants(&till.world).await;
}

/// Whoever wrote it down may have died before it could tell, and what can't be moved stands in
/// nobody's way.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_in_for_nobody_is_told_of_until_somebody_has_it() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let till = &stall.till;
    let reference = Uuid::new_v4().to_string();
    let other = |_| stall.word(&reference, &Uuid::new_v4().to_string());
    let [first, second] = [0, 1].map(other);
    let unknown = stall.tell(&first).await.unwrap();
    assert_eq!(unknown.status, IncomingStatus::Unknown);
    let alerts = async || till.alerts("payment_suspense").await;
    for alert in till.world.app.alerts.list(true, None, 10).await.unwrap() {
        till.world.app.alerts.resolve(alert.alert_id).await.unwrap();
    }
    assert!(alerts().await.is_empty());
    stall.payments.engine().remind(10).await.unwrap();
    assert_eq!(alerts().await, [unknown.id.to_string()]);

    // One that the ledger has with another amount.
    let broken = stall.tell(&second).await.unwrap();
    let broken = stall
        .payments
        .assign(broken.id, &till.wallet, "theirs", "US-1");
    let broken = broken.await.unwrap();
    let sql = "UPDATE pm.psp_incoming SET status = 'unknown', amount = amount + 1,
                   received_at = 'epoch', updated_at = 'epoch' WHERE id = $1";
    let wrong = sqlx::query(sql).bind(broken.id);
    wrong.execute(&till.pm).await.unwrap();
    // One that was given to somebody by whoever died over it.
    let sql = "UPDATE pm.psp_incoming SET wallet = $1 WHERE id = $2";
    let given = sqlx::query(sql).bind(till.wallet.to_string());
    let given = given.bind(unknown.id);
    given.execute(&till.pm).await.unwrap();
    till.world.clock.advance(chrono::Duration::seconds(1));
    stall.payments.outbox().take_in(1).await.unwrap_err();
    stall.payments.outbox().take_in(1).await.unwrap();
    assert_eq!(till.wallet().await.posted(), 2 * i128::from(AMOUNT));
    let open = stall.payments.incoming(None, 10).await.unwrap();
    assert_eq!(open.len(), 1);
    assert_eq!(open[0].id, broken.id);
    // It is tried again and again, and is told of with what the last try came to.
    for _ in 0..11 {
        till.world.clock.advance(chrono::Duration::minutes(1));
        stall.payments.outbox().take_in(10).await.unwrap_err();
    }
    stall.payments.engine().remind(10).await.unwrap();
    assert_eq!(till.alerts("payments_waiting").await, ["incoming"]);
    let alerts = till.world.app.alerts.list(true, None, 10).await.unwrap();
    let told = alerts.iter().find(|one| one.kind == "payments_waiting");
    let message = &told.unwrap().message;
    assert!(message.contains("ExistsWithDifferentAmount"), "{message}");
}
