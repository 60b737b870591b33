//! The test of truth: two real workers, one of them killed or paused every second, against a
//! simulator with faults. What the simulator says it has paid is what the ledger has posted, each
//! once, whatever happened on the way.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use settlenet::domain::payment::IntentStatus;
use settlenet::services::payments::Verdict;
use uuid::Uuid;

use super::Till;
use super::desk::Desk;
use super::sim::{Behaviour, Sim};
use crate::harness::MovedClock;

/// Every kind of fault, now and then.
const FAULTS: &str =
    "error_before=8,error_after=8,torn_after=8,unknown=20,unknown_asks=2,latency=20,latency_ms=400";
/// Payouts of one run; `SETTLENET_TRUTH_PAYOUTS` makes it longer, `SETTLENET_TRUTH_SEEDS` more.
const PAYOUTS: u64 = 200;
const SEEDS: u64 = 3;
/// How long a run may take, by the number of its payouts.
const PATIENCE: Duration = Duration::from_secs(90);

fn setting(name: &str, usual: u64) -> u64 {
    let set = std::env::var(name).ok();
    set.map_or(usual, |text| text.parse().expect("a number"))
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_paid_is_what_was_posted() {
    for seed in 1..=setting("SETTLENET_TRUTH_SEEDS", SEEDS) {
        run(seed, seed % 2 == 1).await;
    }
}

async fn run(seed: u64, deduplicates: bool) {
    eprintln!("seed {seed}, deduplicates {deduplicates}");
    let payouts = setting("SETTLENET_TRUTH_PAYOUTS", PAYOUTS);
    let clock = MovedClock::new();
    let till = Till::by(clock.clock(chrono::Duration::zero()), Desk::default()).await;
    let simulator = Sim::start(Behaviour {
        seed,
        deduplicates,
        faults: FAULTS,
    })
    .await;
    let mut random = StdRng::seed_from_u64(seed);
    // Some of it is not covered.
    till.fund(payouts * 900).await;
    let mut workers = [0, 1].map(|_| simulator.worker(&till, &clock, ""));
    let mut ids = Vec::new();
    for _ in 0..payouts {
        let minor = random.random_range(100..1_500);
        ids.push(till.create(till.payout(minor)).await);
    }
    let patience = PATIENCE * u32::try_from(payouts.div_ceil(PAYOUTS)).unwrap();
    let began = std::time::Instant::now();
    while !all_rest(&till, &ids).await {
        assert!(
            began.elapsed() < patience,
            "seed {seed}: {:?}",
            left(&till, &ids).await
        );
        tokio::time::sleep(Duration::from_secs(1)).await;
        let which = random.random_range(0..2_usize);
        if random.random_bool(0.5) {
            workers[which] = simulator.worker(&till, &clock, "");
        } else {
            workers[which].stand_still();
            tokio::time::sleep(Duration::from_millis(random.random_range(200..2_500))).await;
            workers[which].go_on();
        }
    }
    // What is under review is resolved by what a person would find in the provider's statement.
    let paid = simulator.paid().await;
    for id in &ids {
        if till.status(*id).await == IntentStatus::ManualReview {
            assert!(
                !deduplicates,
                "seed {seed}: a provider that takes a uid once leaves no doubt"
            );
            let verdict = match paid.get(&id.to_string()) {
                Some(_) => Verdict::Confirmed,
                None => Verdict::Failed,
            };
            till.payments
                .resolve(*id, &super::finding(verdict))
                .await
                .unwrap();
        }
    }
    drop(workers);
    till.settle_outbox().await;
    let paid = simulator.paid().await;
    let mut sum = 0;
    for (uid, (amount, times)) in &paid {
        assert_eq!(*times, 1, "seed {seed}: {uid} was paid {times} times");
        let status = till.status(uid.parse().unwrap()).await;
        assert_eq!(status, IntentStatus::Completed, "seed {seed}: {uid}");
        sum += amount;
    }
    for id in &ids {
        let completed = till.status(*id).await == IntentStatus::Completed;
        assert_eq!(
            completed,
            paid.contains_key(&id.to_string()),
            "seed {seed}: {id}"
        );
    }
    let out = till.balances(super::nostro()).await;
    assert_eq!(out.credits_posted, u128::from(sum), "seed {seed}");
    assert_eq!(till.balances(super::transit()).await.posted(), 0);
    let wallet = till.wallet().await;
    assert_eq!(
        wallet.debits_pending, 0,
        "seed {seed}: something is held for nobody"
    );
    assert!(wallet.posted() >= 0);
    crate::harness::assert_invariants(&till.world).await;
}

async fn all_rest(till: &Till, ids: &[Uuid]) -> bool {
    left(till, ids).await.is_empty()
}

async fn left(till: &Till, ids: &[Uuid]) -> Vec<(Uuid, String)> {
    sqlx::query_as(
        "SELECT id, status FROM pm.intent WHERE id = ANY($1)
         AND status NOT IN ('completed', 'failed', 'returned', 'manual_review')",
    )
    .bind(ids)
    .fetch_all(&till.pm)
    .await
    .unwrap()
}
