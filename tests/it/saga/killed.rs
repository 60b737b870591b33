//! Processes killed between any two side effects.
//!
//! At each place one process is killed that does the work for a client, then the real worker
//! that takes it over, and a third finishes.

use std::sync::Mutex;

use chrono::Duration;
use settlenet::domain::account::{AccountRef, HousePurpose};
use settlenet::domain::ids::{AccountId, RequestId};
use settlenet::domain::request::RequestStatus;
use settlenet::domain::saga::SagaStatus;

use super::shapes::Shape;
use crate::harness::{Child, MovedClock, SOON, World, assert_invariants, until};

/// Longer than a lease and the longest wait for a retry.
pub const PAST_THE_LEASE: Duration = Duration::seconds(11);

/// What a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Accept,
    Confirm,
    /// The second of two who cancel.
    Cancel,
}

/// A request and what is asked of it.
pub struct Case {
    pub world: World,
    pub clock: MovedClock,
    shape: Shape,
    asked: Asked,
    /// Something is in the way in a book.
    refused: bool,
    /// The account that the last acceptance named.
    accepts_with: Mutex<Option<AccountId>>,
}

/// What is in the way.
enum Obstacle {
    None,
    Floor(AccountRef),
}

impl Case {
    pub async fn new(shape: Shape, asked: Asked, refused: bool) -> Self {
        let clock = MovedClock::new();
        let world = World::with_clock(clock.clock(Duration::zero())).await;
        if refused && !shape.reserves() {
            let purse = AccountRef::house(world.beta, HousePurpose::Commission, &world.currency);
            world.funded(purse, 1).await;
        }
        Self {
            world,
            clock,
            shape,
            asked,
            refused,
            accepts_with: Mutex::default(),
        }
    }

    /// The status that it all comes to.
    pub fn end(&self) -> RequestStatus {
        match (self.asked, self.refused) {
            (Asked::Accept, true) => RequestStatus::Pending,
            (Asked::Accept, false) => RequestStatus::Accepted,
            (Asked::Confirm, true) => RequestStatus::Sent,
            (Asked::Confirm, false) => RequestStatus::Completed,
            (Asked::Cancel, _) => RequestStatus::Cancelled,
        }
    }

    /// A request at the point where it is asked, and what a child is told to do.
    pub async fn ready(&self) -> (RequestId, String) {
        let world = &self.world;
        let (id, what) = match self.asked {
            Asked::Accept => {
                let (request, account) = self.shape.created(world).await;
                *self.accepts_with.lock().unwrap() = account;
                let with = account.map_or_else(String::new, |id| format!(" {id}"));
                (
                    request.id,
                    format!("accept {} {}{with}", world.beta, request.id),
                )
            }
            Asked::Confirm => {
                let id = self.shape.sent(world).await;
                let request = world.request(id).await;
                let receiver = request.broker_of(request.sender().other());
                (id, format!("confirm {} {id}", receiver.expect("accepted")))
            }
            Asked::Cancel => {
                let id = self.shape.accepted(world).await.id;
                let first = World::actor(world.alpha);
                world.app.network.cancel_request(&first, id).await.unwrap();
                (id, format!("cancel {} {id}", world.beta))
            }
        };
        if let Obstacle::Floor(account) = self.obstacle(id).await {
            world.set_floor(&account, 1_000_000_000).await;
        }
        (id, what)
    }

    async fn obstacle(&self, id: RequestId) -> Obstacle {
        if !self.refused {
            return Obstacle::None;
        }
        let world = &self.world;
        Obstacle::Floor(if self.shape.reserves() {
            world.request(id).await.author_account.expect("a client's")
        } else {
            AccountRef::house(world.beta, HousePurpose::Commission, &world.currency)
        })
    }

    /// What was in the way is cleared, so that floors hold again.
    pub async fn clear(&self, id: RequestId) {
        if let Obstacle::Floor(account) = self.obstacle(id).await {
            self.world.set_floor(&account, -1_000_000_000).await;
            if account.has_floor() {
                self.world.set_floor(&account, 0).await;
            }
        }
    }

    /// The saga of a request that has not ended, if any.
    pub async fn running(&self, id: RequestId) -> Option<uuid::Uuid> {
        let master = &self.world.app.systems.master;
        let sagas = settlenet::stores::master::sagas::list(master, None, None, 1_000).await;
        let mut open = sagas.unwrap().into_iter().filter(|saga| saga.subject == id);
        let found = open.find(|saga| !saga.status.is_terminal());
        assert_ne!(
            found.as_ref().map(|saga| saga.status),
            Some(SagaStatus::Stuck)
        );
        found.map(|saga| saga.saga_id)
    }

    /// A third process goes on, past every lease and every wait for a retry.
    pub async fn finish(&self, id: RequestId, place: &str) {
        let other = self
            .world
            .another_by(self.clock.clock(Duration::minutes(10)));
        until(place, SOON, async || {
            self.clock.advance(PAST_THE_LEASE);
            self.world.run_due(&other).await;
            self.running(id).await.is_none()
        })
        .await;
    }

    /// Does what was asked through another process, where it is as if nobody had asked.
    pub async fn ask_again(&self, id: RequestId) {
        let (world, network) = (&self.world, &self.world.app.network);
        let beta = World::actor(world.beta);
        // A refusal is as good as an answer; what it has come to is asserted by the caller.
        match self.asked {
            Asked::Accept => {
                let account = *self.accepts_with.lock().unwrap();
                drop(network.accept_request(&beta, id, account).await);
            }
            Asked::Confirm => drop(world.confirm(id).await),
            Asked::Cancel => drop(network.cancel_request(&beta, id).await),
        }
    }

    /// The order for the same place in a process that takes the saga over: one that goes back
    /// already doesn't arrive in the books on the way forward again.
    fn told_again(&self, place: &str) -> String {
        let forward = match self.asked {
            Asked::Confirm => 2,
            Asked::Accept | Asked::Cancel => 1,
        };
        match place.split_once("*book.") {
            Some((count, rest)) if self.refused => {
                let count: u32 = count.parse().expect("a count");
                told(&format!("{}*book.{rest}", count - forward), "kill")
            }
            _ => told(place, "kill"),
        }
    }

    async fn killed_at(&self, place: &str) {
        let (id, what) = self.ready().await;
        let told = told(place, "kill");
        let mut first = Child::acts(&self.world, &self.clock, &what, &told);
        first.killed(place).await;
        if place.ends_with("record.before") {
            assert_eq!(self.running(id).await, None, "{place}");
            self.ask_again(id).await;
        } else if let Some(saga) = self.running(id).await {
            self.clock.advance(PAST_THE_LEASE);
            let told = self.told_again(place);
            let mut second = Child::worker(&self.world, &self.clock, &told);
            until(place, SOON, async || {
                second.is_killed() || self.world.saga(saga).await.status.is_terminal()
            })
            .await;
            if !place.ends_with("record.after") {
                second.killed(place).await;
            }
        }
        self.finish(id, place).await;
        assert_eq!(self.world.request(id).await.status, self.end(), "{place}");
        self.clear(id).await;
        assert_invariants(&self.world).await;
    }
}

/// The order to do so at a place; `2*book.commit.before` is the second arrival there.
pub fn told(place: &str, action: &str) -> String {
    match place.split_once('*') {
        None => format!("{place}={action}"),
        Some((count, name)) => format!("{name}={count}*{action}"),
    }
}

async fn killed_everywhere(shape: Shape, asked: Asked, refused: bool, places: &[&str]) {
    let case = Case::new(shape, asked, refused).await;
    for place in places {
        case.killed_at(place).await;
    }
}

/// The places of a confirm with a debt, in the order of its steps.
pub const CONFIRM: [&str; 17] = [
    "confirm.record.before",
    "confirm.record.after",
    "confirm.hold.before",
    "confirm.hold.after",
    "confirm.debit.before",
    "book.commit.before",
    "book.commit.after",
    "confirm.debit.after",
    "confirm.post.before",
    "confirm.post.after",
    "confirm.credit.before",
    "2*book.commit.before",
    "2*book.commit.after",
    "confirm.credit.after",
    "confirm.finish.before",
    "saga.end.commit",
    "confirm.finish.after",
];

pub const CONFIRM_NO_DEBT: [&str; 15] = [
    "confirm.record.before",
    "confirm.record.after",
    "confirm.debit.before",
    "book.commit.before",
    "book.commit.after",
    "confirm.debit.after",
    "confirm.decide.before",
    "confirm.decide.after",
    "confirm.credit.before",
    "2*book.commit.before",
    "2*book.commit.after",
    "confirm.credit.after",
    "confirm.finish.before",
    "saga.end.commit",
    "confirm.finish.after",
];

pub const ACCEPT: [&str; 9] = [
    "accept.record.before",
    "accept.record.after",
    "accept.reserve.before",
    "book.commit.before",
    "book.commit.after",
    "accept.reserve.after",
    "accept.finish.before",
    "saga.end.commit",
    "accept.finish.after",
];

pub const RELEASE: [&str; 9] = [
    "release.record.before",
    "release.record.after",
    "release.release.before",
    "book.commit.before",
    "book.commit.after",
    "release.release.after",
    "release.finish.before",
    "saga.end.commit",
    "release.finish.after",
];

/// One book has booked its debit and the other has refused.
pub const CONFIRM_BACK: [&str; 15] = [
    "2*confirm.debit.after",
    "confirm.void.before",
    "confirm.void.after",
    "confirm.back.after",
    "confirm.debit.undo.before",
    "3*book.commit.before",
    "3*book.commit.after",
    "confirm.debit.undo.after",
    "2*confirm.debit.undo.before",
    "4*book.commit.before",
    "4*book.commit.after",
    "2*confirm.debit.undo.after",
    "confirm.finish.undo.before",
    "saga.end.commit",
    "confirm.finish.undo.after",
];

pub const CONFIRM_NO_DEBT_BACK: [&str; 13] = [
    "2*confirm.debit.after",
    "confirm.back.after",
    "confirm.debit.undo.before",
    "3*book.commit.before",
    "3*book.commit.after",
    "confirm.debit.undo.after",
    "2*confirm.debit.undo.before",
    "4*book.commit.before",
    "4*book.commit.after",
    "2*confirm.debit.undo.after",
    "confirm.finish.undo.before",
    "saga.end.commit",
    "confirm.finish.undo.after",
];

pub const ACCEPT_BACK: [&str; 9] = [
    "accept.reserve.after",
    "accept.back.after",
    "accept.reserve.undo.before",
    "2*book.commit.before",
    "2*book.commit.after",
    "accept.reserve.undo.after",
    "accept.finish.undo.before",
    "saga.end.commit",
    "accept.finish.undo.after",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_with_a_debt_is_completed_whoever_dies() {
    killed_everywhere(Shape::FromClient, Asked::Confirm, false, &CONFIRM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_without_a_debt_is_completed_whoever_dies() {
    let shape = Shape::FromClientNoDebt;
    killed_everywhere(shape, Asked::Confirm, false, &CONFIRM_NO_DEBT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_is_made_whoever_dies() {
    killed_everywhere(Shape::FromCashier, Asked::Accept, false, &ACCEPT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release_is_made_whoever_dies() {
    killed_everywhere(Shape::FromClient, Asked::Cancel, false, &RELEASE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_confirm_with_a_debt_is_taken_back_whoever_dies() {
    killed_everywhere(Shape::ReceiverPays, Asked::Confirm, true, &CONFIRM_BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_confirm_without_a_debt_is_taken_back_whoever_dies() {
    let shape = Shape::ReceiverPaysNoDebt;
    killed_everywhere(shape, Asked::Confirm, true, &CONFIRM_NO_DEBT_BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_acceptance_is_taken_back_whoever_dies() {
    killed_everywhere(Shape::FromClient, Asked::Accept, true, &ACCEPT_BACK).await;
}

/// A settlement takes of debts when it is accepted, and repays them in its last commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_settlement_repays_once_whoever_dies() {
    killed_everywhere(Shape::Settles, Asked::Confirm, false, &CONFIRM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_settlement_was_promised_is_given_back_whoever_dies() {
    killed_everywhere(Shape::SettlesFromClient, Asked::Accept, true, &ACCEPT_BACK).await;
    killed_everywhere(Shape::SettlesFromClient, Asked::Cancel, false, &RELEASE).await;
}

/// Both credits after the pivot.
pub const COLLECT: [&str; 15] = [
    "confirm.record.before",
    "confirm.record.after",
    "confirm.hold.before",
    "confirm.hold.after",
    "confirm.post.before",
    "confirm.post.after",
    "confirm.credit.before",
    "book.commit.before",
    "book.commit.after",
    "2*book.commit.before",
    "2*book.commit.after",
    "2*confirm.credit.after",
    "confirm.finish.before",
    "saga.end.commit",
    "confirm.finish.after",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_collect_is_completed_whoever_dies() {
    killed_everywhere(Shape::Collect, Asked::Confirm, false, &COLLECT).await;
}

/// Both debits before the pivot, and the commission's credit after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_payout_is_completed_whoever_dies() {
    killed_everywhere(Shape::Payout, Asked::Confirm, false, &CONFIRM).await;
    killed_everywhere(Shape::Payout, Asked::Accept, false, &ACCEPT).await;
    killed_everywhere(Shape::Payout, Asked::Cancel, false, &RELEASE).await;
}
