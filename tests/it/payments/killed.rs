//! A worker dies, or stands still, at each place between two effects of a payout.

use settlenet::domain::payment::IntentStatus;
use settlenet::domain::payment::receiver::Receiver;
use settlenet::services::payments::NewIntent;
use uuid::Uuid;

use super::desk::Desk;
use super::sim::{Behaviour, Sim};
use super::{PAST_ALL, Till};
use crate::harness::{MovedClock, SOON, until};

const PAID: &str = "0801234567";
/// The simulator refuses it when it is to be paid.
const REFUSED_RECEIVER: (&str, &str) = ("004", "0199900003");

/// Places that every payout passes that is paid.
const PLACES: [&str; 14] = [
    "payment.hold.before",
    "payment.hold.after",
    "payment.told.before",
    "payment.told.after",
    "psp.asking.lookup",
    "psp.answered.lookup",
    "psp.asking.payment",
    "psp.answered.payment",
    "psp.kept",
    "psp.applied.before",
    "psp.applied.after",
    "payment.post.before",
    "payment.post.after",
    "2*payment.told.before",
];
/// Places that only one that is refused passes.
const VOIDING: [&str; 2] = ["payment.void.before", "payment.void.after"];

struct Scene {
    till: Till,
    clock: MovedClock,
    sim: Sim,
}

impl Scene {
    async fn set(deduplicates: bool) -> Self {
        let clock = MovedClock::new();
        let till = Till::by(clock.clock(chrono::Duration::zero()), Desk::default()).await;
        till.fund(1_000_000).await;
        let sim = Sim::start(Behaviour {
            deduplicates,
            ..Behaviour::default()
        })
        .await;
        Self { till, clock, sim }
    }

    fn payout(&self, is_refused: bool) -> NewIntent {
        let receiver = if is_refused {
            let (bank_code, account_no) = REFUSED_RECEIVER;
            Receiver::ThaiAccount {
                bank_code: bank_code.to_owned(),
                account_no: account_no.to_owned(),
            }
        } else {
            Receiver::PromptPay {
                proxy: PAID.to_owned(),
            }
        };
        NewIntent {
            receiver,
            ..self.till.payout(40_000)
        }
    }

    async fn rests(&self, place: &str, id: Uuid) -> IntentStatus {
        let mut status = IntentStatus::Created;
        until(place, SOON, async || {
            status = self.till.status(id).await;
            status.is_over() || status == IntentStatus::ManualReview
        })
        .await;
        status
    }

    /// Whether what the simulator has paid is what has left, each once; gives how often.
    async fn assert_agrees(&self, place: &str) -> u64 {
        let paid = self.sim.paid().await;
        assert!(
            paid.values().all(|(_, times)| *times <= 1),
            "{place}: {paid:?}"
        );
        let sum: u64 = paid.values().map(|(amount, times)| amount * times).sum();
        let out = self.till.balances(super::nostro()).await;
        assert_eq!(out.credits_posted, u128::from(sum), "{place}");
        crate::harness::assert_invariants(&self.till.world).await;
        paid.len() as u64
    }
}

async fn die_at(place: &str, is_refused: bool, deduplicates: bool) -> IntentStatus {
    let scene = Scene::set(deduplicates).await;
    let failpoints = if place.contains('*') {
        let (nth, name) = place.split_once('*').unwrap();
        format!("{name}={nth}*kill")
    } else {
        format!("{place}=kill")
    };
    let mut dying = scene.sim.worker(&scene.till, &scene.clock, &failpoints);
    let id = scene.till.create(scene.payout(is_refused)).await;
    dying.killed(place).await;
    scene.clock.advance(PAST_ALL);
    let next = scene.sim.worker(&scene.till, &scene.clock, "");
    let status = scene.rests(place, id).await;
    drop(next);
    scene.assert_agrees(place).await;
    let held = scene.till.wallet().await.debits_pending;
    let is_held = status == IntentStatus::ManualReview;
    assert_eq!(held > 0, is_held, "{place}: {status}, {held} held");
    status
}

async fn die_everywhere(deduplicates: bool) {
    for place in PLACES {
        let status = die_at(place, false, deduplicates).await;
        // It died before it asked: a provider that takes a uid more than once can't say whether
        // what it doesn't know is still to come.
        let expected = if place == "psp.asking.payment" && !deduplicates {
            IntentStatus::ManualReview
        } else {
            IntentStatus::Completed
        };
        assert_eq!(status, expected, "{place}");
    }
    for place in VOIDING {
        let status = die_at(place, true, deduplicates).await;
        assert_eq!(status, IntentStatus::Failed, "{place}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_anywhere_is_gone_on_for() {
    die_everywhere(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_dies_anywhere_is_gone_on_for_where_a_uid_is_paid_as_often_as_it_is_sent() {
    die_everywhere(false).await;
}

/// It stands still past its lease, another takes over, and then it goes on.
#[tokio::test(flavor = "multi_thread")]
async fn who_stood_still_past_its_lease_sends_nothing_and_writes_nothing() {
    for (place, deduplicates, ends, paid) in [
        ("psp.asking.payment", true, IntentStatus::Completed, 1),
        ("psp.asking.payment", false, IntentStatus::ManualReview, 0),
        ("psp.answered.payment", false, IntentStatus::Completed, 1),
        ("psp.applied.before", false, IntentStatus::Completed, 1),
    ] {
        let scene = Scene::set(deduplicates).await;
        // Of the payment's turn, which is the second.
        let nth = if place == "psp.applied.before" {
            "2*"
        } else {
            ""
        };
        let mut slow = scene
            .sim
            .worker(&scene.till, &scene.clock, &format!("{place}={nth}stop"));
        let id = scene.till.create(scene.payout(false)).await;
        slow.stopped(place).await;
        // Its lease runs by the machine's own clock as well, where it is to send.
        tokio::time::sleep(std::time::Duration::from_millis(3_200)).await;
        scene.clock.advance(PAST_ALL);
        let next = scene.sim.worker(&scene.till, &scene.clock, "");
        assert_eq!(scene.rests(place, id).await, ends, "{place} {deduplicates}");
        slow.go_on();
        // Long enough to send and to write, if it could.
        tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
        drop((slow, next));
        assert_eq!(scene.till.status(id).await, ends, "{place} {deduplicates}");
        let agreed = scene.assert_agrees(place).await;
        assert_eq!(agreed, paid, "{place} {deduplicates}");
        let evidence = scene.till.payments.evidence(id).await.unwrap();
        let sent = evidence
            .calls
            .iter()
            .filter(|call| call.operation == "T-IPPS-04" && call.http_status.is_some());
        let most = usize::try_from(paid).unwrap();
        assert!(sent.count() <= most.max(1), "{place} {deduplicates}");
    }
}
