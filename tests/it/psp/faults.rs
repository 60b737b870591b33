//! Faults of every kind, with providers that pay a uid once and ones that pay as often as they are
//! asked to.

use std::time::Duration;

use futures::future::join_all;
use settlenet::domain::payment::PspState;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::psp::{Driver, PspTask};

use super::{Driven, How, SLOW, Sim, drive, iban, payout, thai_account, times};

const EVERYTHING: &str =
    "latency=30,latency_ms=40,error_before=15,error_after=15,torn_after=15,unknown=40";
const SEEDS: std::ops::Range<u64> = 0..3;
const PAYOUTS: usize = 40;

fn receivers() -> Vec<Receiver> {
    let digit = |n: usize| if n.is_multiple_of(5) { (n / 5) % 8 } else { 0 };
    let account = |n| thai_account(&format!("019990000{}", digit(n)));
    (0..PAYOUTS).map(account).collect()
}

fn ibans() -> Vec<Receiver> {
    let all = ["DE89370400440532013000", "GB82WEST12345698765432"];
    (0..PAYOUTS).map(|n| iban(all[n % 2])).collect()
}

fn payouts(receivers: Vec<Receiver>, currency: &str) -> Vec<PspTask> {
    let payout = |receiver| payout(receiver, currency);
    receivers.into_iter().map(payout).collect()
}

async fn all(driver: &dyn Driver, payouts: Vec<PspTask>) -> Vec<Driven> {
    join_all(payouts.into_iter().map(|task| drive(driver, task))).await
}

/// What the queue believes is what the simulator has done.
async fn assert_true(sim: &Sim, outcome: &[Driven]) {
    let payments = sim.payments().await;
    for Driven { task, reason, .. } in outcome {
        let times = times(&payments, task.intent);
        match task.state {
            PspState::Confirmed => assert_eq!(times, 1, "{task:?}"),
            PspState::Failed => assert_eq!(times, 0, "{reason:?} {task:?}"),
            _ => assert!(times <= 1, "{reason:?} {task:?}"),
        }
    }
}

fn how(seed: u64, pays_again: bool) -> How {
    How {
        seed,
        rates: EVERYTHING,
        pays_again,
        ..How::default()
    }
}

#[tokio::test]
async fn ipps_that_pays_a_uid_once_needs_nobody_to_look() {
    for seed in SEEDS {
        let sim = Sim::start(how(seed, false)).await;
        let outcome = all(&sim.ipps(true, SLOW), payouts(receivers(), "THB")).await;
        assert_true(&sim, &outcome).await;
        for Driven { task, reason, .. } in &outcome {
            let held = reason.as_deref() == Some("held_for_compliance");
            assert!(
                task.state != PspState::ManualReview || held,
                "{seed} {reason:?}"
            );
        }
        let again = outcome
            .iter()
            .filter(|outcome| outcome.called("T-IPPS-04") > 1);
        assert!(again.count() > 0, "no fault made a driver ask again");
    }
}

#[tokio::test]
async fn ipps_that_pays_a_uid_twice_is_asked_once() {
    for seed in SEEDS {
        let sim = Sim::start(how(seed, true)).await;
        let outcome = all(&sim.ipps(false, SLOW), payouts(receivers(), "THB")).await;
        assert_true(&sim, &outcome).await;
        for one in &outcome {
            assert!(one.called("T-IPPS-04") <= 1, "{seed} {:?}", one.task);
        }
        let unknown = outcome.iter().filter(|outcome| {
            outcome.state() == PspState::ManualReview
                && outcome.reason.as_deref() == Some("unknown_to_provider")
        });
        assert!(unknown.count() > 0, "no fault left a payment unknown");
        assert!(
            outcome
                .iter()
                .any(|outcome| outcome.state() == PspState::Confirmed)
        );
    }
}

#[tokio::test]
async fn wise_that_pays_a_uid_once_needs_nobody_to_look() {
    for seed in SEEDS {
        let sim = Sim::start(how(seed, false)).await;
        let outcome = all(&sim.wise(true, SLOW), payouts(ibans(), "EUR")).await;
        assert_true(&sim, &outcome).await;
        for one in &outcome {
            assert_eq!(one.state(), PspState::Confirmed, "{seed} {:?}", one.reason);
        }
    }
}

#[tokio::test]
async fn wise_that_pays_a_uid_twice_is_asked_once() {
    for seed in SEEDS {
        let sim = Sim::start(how(seed, true)).await;
        let outcome = all(&sim.wise(false, SLOW), payouts(ibans(), "EUR")).await;
        assert_true(&sim, &outcome).await;
        for one in &outcome {
            assert!(one.called("payment") <= 1, "{seed} {:?}", one.task);
            assert!(one.called("transfer") <= 1, "{seed} {:?}", one.task);
        }
        assert!(
            outcome
                .iter()
                .any(|outcome| outcome.state() == PspState::Confirmed)
        );
    }
}

/// The provider takes longer than the driver waits, and pays all the same.
#[tokio::test]
async fn what_is_paid_after_the_driver_has_gone_is_paid_once() {
    for (deduplicates, currency) in [(true, "THB"), (false, "THB"), (true, "EUR"), (false, "EUR")] {
        let sim = Sim::start(How {
            seed: 5,
            rates: "latency=70,latency_ms=600",
            pays_again: !deduplicates,
            ..How::default()
        })
        .await;
        let timeout = Duration::from_millis(200);
        let payouts = payouts(
            if currency == "THB" {
                receivers()
            } else {
                ibans()
            },
            currency,
        );
        let outcome = if currency == "THB" {
            all(&sim.ipps(deduplicates, timeout), payouts).await
        } else {
            all(&sim.wise(deduplicates, timeout), payouts).await
        };
        let doubts = outcome.iter().flat_map(|outcome| &outcome.calls);
        let timed_out = doubts.filter(|call| call.error.is_some()).count();
        assert!(timed_out > 0, "nothing timed out");
        // The late ones come in.
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_true(&sim, &outcome).await;
    }
}

/// Each fault by itself, always: the driver is asked again until the provider is well.
#[tokio::test]
async fn each_fault_ends_well_once_it_is_over() {
    for (rate, first) in [
        ("error_before=100", PspState::Inquiring),
        ("error_after=100", PspState::Inquiring),
        ("torn_after=100", PspState::Inquiring),
    ] {
        for deduplicates in [true, false] {
            let sim = Sim::start(How {
                pays_again: !deduplicates,
                ..How::default()
            })
            .await;
            let driver = sim.ipps(deduplicates, SLOW);
            let mut task = payout(thai_account("0123456789"), "THB");
            super::turn(&driver, &mut task).await;
            let name = rate.trim_end_matches("=100");
            sim.post("/sim/faults", &serde_json::json!({ name: 100 }))
                .await;
            for _ in 0..5 {
                super::turn(&driver, &mut task).await;
                assert_eq!(task.state, first, "{rate}");
            }
            sim.post("/sim/faults", &serde_json::json!({})).await;
            let intent = task.intent;
            let outcome = drive(&driver, task).await;
            // Before the effect: only a provider that pays once may be asked again.
            let (state, times) = if name == "error_before" && !deduplicates {
                (PspState::ManualReview, 0)
            } else {
                (PspState::Confirmed, 1)
            };
            assert_eq!(outcome.state(), state, "{rate} {deduplicates}");
            assert_eq!(sim.times(intent).await, times, "{rate} {deduplicates}");
        }
    }
}
