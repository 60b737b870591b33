//! The work on a move, state by state.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::copy::Copy;
use super::engine::MoveEngine;
use super::fault::{Fault, Remedy};
use crate::domain::broker_move::{BookPlace, BrokerMove, MoveEvent, MoveProof, MoveState};
use crate::domain::fence::{Fence, NotOurs, Passage, take_copy};
use crate::domain::ids::BrokerId;
use crate::runtime::failpoint::{self, Ask};
use crate::services::provisioning::ProvisioningError;
use crate::stores::StoreError;
use crate::stores::book::HeldBook;
use crate::stores::master::alerts::NewAlert;
use crate::stores::master::moves::{self, Claim, Outcome, Step};
use crate::stores::master::{self, alerts, brokers};
use crate::stores::router::DatabaseKey;

/// Between two tries at opening a book that is closed.
const CLOSED_RETRY: TimeDelta = TimeDelta::milliseconds(250);
/// A book that can't be closed is waited for up to so many times the first wait: less than the lease.
const MOST_WAITS: u32 = 5;
/// A decision that meets a deadlock is tried again at once for so long.
const IN_THE_WAY: Duration = Duration::from_millis(200);
/// Waits double up to this many times.
const DOUBLINGS: u32 = 6;

/// Whether there is more to do at once.
pub(super) enum Next {
    GoOn,
    Rest,
}

impl MoveEngine {
    /// Goes on from state to state. What a fault leaves is tried again later, or told.
    pub(super) async fn drive(&self, claim: &Claim, stopping: &CancellationToken) {
        loop {
            let this = match moves::get(&self.0.master, claim.move_id).await {
                Ok(Some(this)) if this.claim == claim.number => this,
                Ok(_) => return,
                Err(error) => {
                    tracing::warn!(%error, "the move can't be read; its lease will run out");
                    return;
                }
            };
            match self.go_on(&this, claim, stopping).await {
                Ok(Next::GoOn) => {}
                Ok(Next::Rest) => return,
                Err(fault) => {
                    self.failed(claim, &fault).await;
                    return;
                }
            }
        }
    }

    /// Goes on with a move until its book is open, and leaves the rest to whoever has time.
    pub(super) async fn open(&self, claim: &Claim) {
        let never = CancellationToken::new();
        loop {
            let this = match moves::get(&self.0.master, claim.move_id).await {
                Ok(Some(this)) if this.claim == claim.number => this,
                Ok(_) | Err(_) => return,
            };
            if !this.state.is_closed() {
                if this.state == MoveState::Copying {
                    let left =
                        moves::retry_at(&self.0.master, claim, None, false, self.now()).await;
                    drop(left);
                }
                return;
            }
            if let Err(fault) = self.go_on(&this, claim, &never).await {
                self.failed(claim, &fault).await;
                return;
            }
        }
    }

    async fn go_on(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        stopping: &CancellationToken,
    ) -> Result<Next, Fault> {
        if this.cancel_wanted && this.state.after(MoveEvent::Cancel).is_some() {
            return self.step(this, claim, MoveEvent::Cancel, Step::On).await;
        }
        match this.state {
            MoveState::Preparing => self.prepare(this, claim).await,
            MoveState::Copying => self.copy(this, claim, stopping).await,
            // Only who closed the book knows what was copied, and that was somebody else.
            MoveState::Fencing => self.roll_back(this, claim).await,
            MoveState::RollingBack => self.reopen(this, claim).await,
            MoveState::Flipped => self.arrive(this, claim, None).await,
            MoveState::Retained => self.end_retention(this, claim).await,
            MoveState::Purging => self.purge(this, claim).await,
            MoveState::Cancelling => self.cancel(this, claim).await,
            MoveState::Abandoned => self.clear_up(this, claim).await,
            MoveState::Done | MoveState::Kept | MoveState::Stuck | MoveState::Cancelled => {
                Ok(Next::Rest)
            }
        }
    }

    /// Makes the target ready, after deleting what an earlier move has left there.
    async fn prepare(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        while let Some(left) = moves::left_in(&self.0.master, this.broker, &this.to).await? {
            self.purge_for(&left, this, claim).await?;
        }
        self.0.places.ready(&this.to, this.broker).await?;
        self.take(this, claim).await?;
        failpoint::at("move.prepared");
        self.step(this, claim, MoveEvent::Prepared, Step::On).await
    }

    /// Makes the copy this claim's alone.
    async fn take(&self, this: &BrokerMove, claim: &Claim) -> Result<(), Fault> {
        let target = self.held(this.broker, &this.to)?;
        let found = target.fence().await?;
        let other = found
            .and_then(|fence| fence.move_id)
            .filter(|id| *id != this.id);
        let other = match other {
            Some(id) => moves::get(&self.0.master, id).await?,
            None => None,
        };
        let orphan = found.filter(|_| other.is_some_and(|other| other.state.is_ended()));
        let turn = |found| take_copy(this.id, claim.number, orphan, found);
        fenced("target", target.turn(self.now(), turn).await?)?;
        // Where it was given up while this process stood still, nobody else would strike it off.
        if moves::holds(&self.0.master, claim).await? {
            return Ok(());
        }
        target.strike(this.id, claim.number).await?;
        Err(Fault::Lost)
    }

    /// Copies the book while it is open, closes it for what is left, and flips.
    async fn copy(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        stopping: &CancellationToken,
    ) -> Result<Next, Fault> {
        // A release may have come since it was made.
        self.0.places.ready(&this.to, this.broker).await?;
        self.take(this, claim).await?;
        let mut copy = Copy::new(self, claim, this)?;
        copy.clear().await?;
        for tried in 1..=self.0.limits.max_fencings {
            if let Err(fault) = copy.catch_up(stopping).await {
                // An import that was broken off leaves a book that does not hold, and closed.
                let fence = copy.source().fence().await?;
                let is_open = fence.is_some_and(|fence| fence.state == Fence::Open);
                return Err(if is_open { fault } else { Fault::Closed });
            }
            failpoint::at("move.caught_up");
            let now = moves::get(&self.0.master, this.id).await?;
            let Some(this) = now.filter(|now| now.claim == claim.number) else {
                return Err(Fault::Lost);
            };
            if this.cancel_wanted {
                return Ok(Next::GoOn);
            }
            match self.pass(&this, claim, &mut copy).await {
                // The copy stands: it is brought up to date, and another moment is waited for.
                Err(Fault::TooSlow) => {
                    tracing::info!("the book could not be closed for long enough; another try");
                    tokio::time::sleep(self.0.limits.backoff * tried.min(MOST_WAITS)).await;
                    copy.tell().await?;
                }
                done => return done,
            }
        }
        Err(Fault::TooSlow)
    }

    /// The one moment in which the book is closed.
    async fn pass(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        copy: &mut Copy<'_>,
    ) -> Result<Next, Fault> {
        let broker = brokers::get(&self.0.master, this.broker).await?;
        let epoch = broker
            .ok_or(StoreError::NoBook {
                broker: this.broker,
            })?
            .route_epoch;
        let passage = Passage {
            move_id: this.id,
            epoch,
        };
        let found = copy.source().fence().await?;
        if !found.is_some_and(|fence| fence.state == Fence::Open && fence.epoch == epoch) {
            return Err(Fault::Closed);
        }
        let until = self.fence_lease_end();
        failpoint::at("move.fencing.before");
        if !moves::fence(&self.0.master, claim, epoch, until).await? {
            return Err(Fault::Lost);
        }
        failpoint::at("move.fencing.after");
        let fencing = BrokerMove {
            state: MoveState::Fencing,
            source_epoch: Some(epoch),
            ..this.clone()
        };
        let closed = Instant::now();
        let (proof, rows) = match self.tail(passage, copy, closed).await {
            Ok(copied) => copied,
            Err(fault) => {
                // Whatever it is, the book opens first.
                tracing::info!(%fault, "the book is opened again where it was");
                self.back(&fencing, claim).await?;
                copy.tell().await?;
                return Err(fault);
            }
        };
        failpoint::at("move.flip.before");
        let flip = Outcome::Flip {
            proof: proof.clone(),
            rows,
        };
        if let Err(fault) = self.decide(&fencing, claim, flip).await {
            // Somebody may want it cancelled since: then the book opens where it was, at once.
            let now = moves::get(&self.0.master, this.id).await?;
            let ours = now.is_some_and(|now| {
                now.claim == claim.number && now.state == MoveState::Fencing && now.cancel_wanted
            });
            if ours {
                self.back(&fencing, claim).await?;
                return Ok(Next::GoOn);
            }
            return Err(fault);
        }
        failpoint::at("move.flip.after");
        let flipped = BrokerMove {
            state: MoveState::Flipped,
            proof: Some(proof),
            ..fencing
        };
        self.arrive(&flipped, claim, Some(closed)).await
    }

    /// Opens the book where it was.
    async fn back(&self, fencing: &BrokerMove, claim: &Claim) -> Result<(), Fault> {
        self.roll_back(fencing, claim).await?;
        let back = BrokerMove {
            state: MoveState::RollingBack,
            ..fencing.clone()
        };
        self.reopen(&back, claim).await?;
        Ok(())
    }

    async fn tail(
        &self,
        passage: Passage,
        copy: &mut Copy<'_>,
        closed: Instant,
    ) -> Result<(MoveProof, u64), Fault> {
        let turn = |found| passage.close_source(found);
        match copy.source().turn(self.now(), turn).await {
            // Somebody writes for long: nothing was copied since, so the copy is as it was.
            Err(StoreError::Busy { .. }) => return Err(Fault::TooSlow),
            turned => fenced("source", turned?)?,
        }
        failpoint::at("move.closed");
        // Whatever stands still, the book does not stay closed for it.
        let bound = self.0.limits.fence_lease;
        let copied = tokio::time::timeout(bound, copy.finish()).await;
        let copied = copied.map_err(|_| Fault::StoodStill)??;
        if failpoint::at("move.tail") == Ask::Fail {
            return Err(Fault::TooSlow);
        }
        if closed.elapsed() > self.0.limits.tail_bound {
            return Err(Fault::TooSlow);
        }
        Ok(copied)
    }

    async fn roll_back(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        failpoint::at("move.back.before");
        self.decide(this, claim, Outcome::Back).await?;
        failpoint::at("move.back.after");
        Ok(Next::GoOn)
    }

    /// The one decision of a try. Whatever a fence says follows from it.
    async fn decide(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        outcome: Outcome,
    ) -> Result<(), Fault> {
        let (master, now) = (&self.0.master, self.now());
        let begun = Instant::now();
        loop {
            let until = self.fence_lease_end();
            match moves::decide(master, this, claim, &outcome, until, now).await {
                // The book is closed, and whoever got in the way of it has gone by.
                Err(StoreError::Busy { .. }) if begun.elapsed() < IN_THE_WAY => {}
                decided => return decided?.then_some(()).ok_or(Fault::Lost),
            }
        }
    }

    async fn reopen(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        let passage = passage(this)?;
        let source = self.held(this.broker, &this.from)?;
        failpoint::at("move.reopen.before");
        let turn = |found| passage.reopen_source(found);
        fenced("source", source.turn(self.now(), turn).await?)?;
        failpoint::at("move.reopen.after");
        self.0.router.forget(this.broker);
        metrics::counter!("settlenet_moves_total", "outcome" => "rolled_back").increment(1);
        self.step(this, claim, MoveEvent::Reopened, Step::On).await
    }

    /// Opens the target and marks the source, in this order: nobody waits for the second.
    async fn arrive(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        closed: Option<Instant>,
    ) -> Result<Next, Fault> {
        let passage = passage(this)?;
        let target = self.held(this.broker, &this.to)?;
        failpoint::at("move.open.before");
        let turn = |found| passage.open_target(found);
        fenced("target", target.turn(self.now(), turn).await?)?;
        self.0.router.forget(this.broker);
        let pause = closed.map(|closed| closed.elapsed());
        failpoint::at("move.open.after");
        // A source that can't be marked stays closed: it is looked at again when retention ends.
        if let Err(fault) = self.leave_source(this).await {
            tracing::warn!(%fault, "what the book has left could not be marked");
        }
        failpoint::at("move.left");
        if let Some(pause) = pause {
            metrics::histogram!("settlenet_move_pause_seconds").record(pause.as_secs_f64());
        }
        metrics::counter!("settlenet_moves_total", "outcome" => "arrived").increment(1);
        let arrived = Step::Arrived {
            pause_us: pause.and_then(|pause| pause.as_micros().try_into().ok()),
            purge_at: self.now() + TimeDelta::seconds(this.retention_s.into()),
        };
        self.step(this, claim, MoveEvent::Arrived, arrived).await?;
        Ok(Next::Rest)
    }

    /// Marks what the book has left, for good.
    pub(super) async fn leave_source(&self, this: &BrokerMove) -> Result<(), Fault> {
        let passage = passage(this)?;
        let source = self.held(this.broker, &this.from)?;
        let turn = |found| passage.leave_source(found);
        fenced("source", source.turn(self.now(), turn).await?)
    }

    /// Deletes the copy.
    async fn cancel(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        let target = self.held(this.broker, &this.to)?;
        // The same; where the target can't be made ready there is no copy in it.
        match self.0.places.ready(&this.to, this.broker).await {
            Ok(()) | Err(ProvisioningError::Occupied { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match self.take(this, claim).await {
            Ok(()) => {
                Copy::new(self, claim, this)?.clear().await?;
                target.remove_fence(this.id).await?;
            }
            // It had not come to having a target, or the target is not there any more.
            Err(Fault::Store(error)) if error.is_absence() => {}
            // What is there is another's.
            Err(Fault::Fence { error, .. }) if !error.is_of(this.id) => {}
            Err(fault) => return Err(fault),
        }
        failpoint::at("move.cleared");
        metrics::counter!("settlenet_moves_total", "outcome" => "cancelled").increment(1);
        self.step(this, claim, MoveEvent::Cleared, Step::Ended)
            .await?;
        Ok(Next::Rest)
    }

    /// Writes a step; somebody else having been there is a lost claim.
    pub(super) async fn step(
        &self,
        this: &BrokerMove,
        claim: &Claim,
        event: MoveEvent,
        step: Step,
    ) -> Result<Next, Fault> {
        let now = self.now();
        let mut tx = master::begin(&self.0.master).await?;
        if !moves::step(&mut tx, this, Some(claim), event, &step, now).await? {
            tx.rollback().await.map_err(master::failed)?;
            return Err(Fault::Lost);
        }
        let subject = this.id.to_string();
        match &step {
            Step::Rests { fault } => {
                alerts::raise(&mut tx, &alert(this, event, fault), now).await?;
            }
            Step::On
            | Step::Again
            | Step::Arrived { .. }
            | Step::Ended
            | Step::Abandoned { .. } => {
                alerts::resolve(&mut tx, moves::ALERT, &subject, now).await?;
            }
        }
        master::commit(tx).await?;
        Ok(Next::GoOn)
    }

    /// Leaves a move that has failed for later, or for a person.
    async fn failed(&self, claim: &Claim, fault: &Fault) {
        tracing::warn!(%fault, "a try at a move has failed");
        if fault.remedy() == Remedy::Leave {
            return;
        }
        if matches!(fault, Fault::Stopping) {
            // Somebody else may go on at once.
            let left = moves::retry_at(&self.0.master, claim, None, false, self.now()).await;
            drop(left);
            return;
        }
        if let Err(error) = self.leave(claim, fault).await {
            tracing::warn!(%error, "that could not be recorded; the lease will run out");
        }
    }

    async fn leave(&self, claim: &Claim, fault: &Fault) -> Result<(), Fault> {
        let Some(this) = moves::get(&self.0.master, claim.move_id).await? else {
            return Ok(());
        };
        if this.claim != claim.number {
            return Ok(());
        }
        let remedy = fault.remedy();
        let out_of_tries = this.tries + 1 >= self.0.limits.max_tries;
        let hopeless = remedy == Remedy::Tell || (remedy == Remedy::Retry && out_of_tries);
        let text = fault.to_string();
        if hopeless && this.state.after(MoveEvent::GiveUp).is_some() {
            metrics::counter!("settlenet_moves_total", "outcome" => "stuck").increment(1);
            let rests = Step::Rests { fault: text };
            self.step(&this, claim, MoveEvent::GiveUp, rests).await?;
            return Ok(());
        }
        let now = self.now();
        let wait = if this.state.is_closed() {
            CLOSED_RETRY
        } else {
            let doubled = self.0.limits.backoff * (1 << this.tries.min(DOUBLINGS));
            TimeDelta::from_std(doubled).unwrap_or(CLOSED_RETRY)
        };
        let counts = remedy != Remedy::Wait;
        moves::retry_at(&self.0.master, claim, Some(&text), counts, now + wait).await?;
        // A book that can't be opened, or a deletion that does not go on, is told of as well.
        if hopeless {
            let mut tx = master::begin(&self.0.master).await?;
            alerts::raise(&mut tx, &alert(&this, MoveEvent::GiveUp, &text), now).await?;
            master::commit(tx).await?;
        }
        Ok(())
    }

    pub(super) fn held(&self, broker: BrokerId, place: &BookPlace) -> Result<HeldBook, Fault> {
        let database = DatabaseKey {
            server: place.server.clone(),
            database: place.database.clone(),
        };
        Ok(HeldBook::new(&self.0.router, broker, &database)?)
    }
}

fn passage(this: &BrokerMove) -> Result<Passage, Fault> {
    this.passage().ok_or_else(|| {
        let what = format!("{} is {} and has no epoch", this.id, this.state.as_str());
        Fault::Store(StoreError::Corrupt {
            table: "broker_move",
            what,
        })
    })
}

pub(super) fn fenced(side: &'static str, turned: Result<(), NotOurs>) -> Result<(), Fault> {
    turned.map_err(|error| Fault::Fence { side, error })
}

fn alert(this: &BrokerMove, event: MoveEvent, fault: &str) -> NewAlert {
    let then = match event {
        MoveEvent::Differs => {
            "What the move left behind is not what was moved, so it is kept: compare it with the \
             book, then delete it by hand or let `retry` verify it again."
        }
        _ if this.state.is_closed() => {
            "The book can't be opened yet: its readers and writers wait. It goes on by itself."
        }
        _ if this.state.deletes() => {
            "The book works where it is; what was to be deleted is not yet. It is tried again by \
             itself; where the database is lost, `abandon` ends that."
        }
        _ => "The book works where it was. `retry` tries again, `cancel` gives the move up.",
    };
    NewAlert {
        kind: moves::ALERT,
        subject: this.id.to_string(),
        message: format!(
            "The move of broker {} from {} to {} needs a look: {fault}. {then}",
            this.broker, this.from, this.to
        ),
        details: json!({ "broker_id": this.broker, "move_id": this.id, "state": this.state,
                         "fault": fault }),
    }
}
