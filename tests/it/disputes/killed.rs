//! Processes killed between a decision and the last of what it does.

use chrono::Duration;
use settlenet::domain::ids::RequestId;
use settlenet::domain::request::{CaseStatus, RequestStatus};

use super::{ARBITER, judgment, status};
use crate::harness::{Child, MovedClock, SOON, World, assert_invariants, until};
use crate::saga::Shape;
use crate::saga::killed::{PAST_THE_LEASE, told};

/// The places of a decision over what had completed, in the order of its steps.
const CORRECT: [&str; 19] = [
    "none.record.before",
    "none.record.after",
    "correct.record.before",
    "correct.record.after",
    "correct.hold.before",
    "correct.hold.after",
    "correct.debit.before",
    "book.commit.before",
    "book.commit.after",
    "correct.debit.after",
    "correct.post.before",
    "correct.post.after",
    "correct.credit.before",
    "2*book.commit.before",
    "2*book.commit.after",
    "correct.credit.after",
    "correct.finish.before",
    "saga.end.commit",
    "correct.finish.after",
];

/// Of a decision that cancels what was sent: what had been reserved is given back.
const CANCEL: [&str; 10] = [
    "none.record.before",
    "none.record.after",
    "release.record.before",
    "release.record.after",
    "release.release.before",
    "book.commit.before",
    "book.commit.after",
    "release.release.after",
    "release.finish.before",
    "saga.end.commit",
];

struct Case {
    world: World,
    clock: MovedClock,
}

impl Case {
    async fn new() -> Self {
        let clock = MovedClock::new();
        let world = World::with_clock(clock.clock(Duration::zero())).await;
        Self { world, clock }
    }

    /// Disputed, and taken by an arbiter.
    async fn heard(&self, id: RequestId) {
        let network = &self.world.app.network;
        let alpha = World::actor(self.world.alpha);
        let opened = network.dispute_request(&alpha, id, World::said("not so"));
        opened.await.unwrap();
        network.assign_dispute(ARBITER, id).await.unwrap();
    }

    /// One process dies that decides, then one that goes on, then a third finishes.
    async fn killed_at(&self, id: RequestId, what: &str, place: &str) {
        let network = &self.world.app.network;
        let mut first = Child::acts(&self.world, &self.clock, what, &told(place, "kill"));
        first.killed(place).await;
        let decided = network.dispute(id).await.unwrap().status != CaseStatus::Heard;
        assert_eq!(decided, place != "none.record.before", "{place}");
        if decided {
            self.clock.advance(PAST_THE_LEASE);
            let mut second = Child::worker(&self.world, &self.clock, &told(place, "kill"));
            until(place, SOON, async || {
                second.is_killed() || self.is_over(id).await
            })
            .await;
        } else {
            let mut again = Child::acts(&self.world, &self.clock, what, "");
            again.ended().await;
        }
        let other = self
            .world
            .another_by(self.clock.clock(Duration::minutes(10)));
        until(place, SOON, async || {
            self.clock.advance(PAST_THE_LEASE);
            other.network.go_on_with_disputes(10).await.unwrap();
            self.world.run_due(&other).await;
            self.is_over(id).await
        })
        .await;
        // Whoever asks once more changes nothing.
        let again = network.decide(ARBITER, id, &judgment_of(what)).await;
        assert!(again.is_err(), "{place}");
    }

    async fn is_over(&self, id: RequestId) -> bool {
        let dispute = self.world.app.network.dispute(id).await.unwrap();
        dispute.status == CaseStatus::Over && self.world.request(id).await.saga_id.is_none()
    }
}

fn judgment_of(what: &str) -> settlenet::services::network::Judgment {
    let words: Vec<&str> = what.split(' ').collect();
    judgment(words[3].parse().unwrap(), words.get(4).copied())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_correction_is_booked_once_whoever_dies() {
    let case = Case::new().await;
    for place in CORRECT {
        let id = case.world.sent(case.world.alpha, case.world.beta).await;
        case.world.confirm(id).await.unwrap();
        case.heard(id).await;
        let what = format!("decide 0 {id} adjust 4000.00");
        case.killed_at(id, &what, place).await;
        let request = case.world.request(id).await;
        assert_eq!(request.status, RequestStatus::Completed, "{place}");
        assert_eq!(request.settled_amount().minor(), 400_000, "{place}");
        let booked = case.world.entries_of(case.world.beta, id).await;
        assert_eq!(booked, [1_000_000, -600_000], "{place}");
        assert_invariants(&case.world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reserved_is_given_back_once_whoever_dies() {
    let case = Case::new().await;
    for place in CANCEL {
        let id = Shape::FromClient.sent(&case.world).await;
        let client = case.world.request(id).await.author_account.unwrap();
        let before = case.world.reserved(&client).await;
        case.heard(id).await;
        let what = format!("decide 0 {id} cancel");
        case.killed_at(id, &what, place).await;
        assert_eq!(status(&case.world, id).await, RequestStatus::Cancelled);
        let other = case
            .world
            .another_by(case.clock.clock(Duration::minutes(10)));
        until(place, SOON, async || {
            case.clock.advance(PAST_THE_LEASE);
            case.world.run_due(&other).await;
            case.world.reserved(&client).await == before - 1_000_000
        })
        .await;
        assert_invariants(&case.world).await;
    }
}
