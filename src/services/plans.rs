//! A broker's plan, and how it changes.
//!
//! What a plan bounds is in two databases: people and domains in the master, under the broker's
//! row; offline partners in the broker's book, under its chain's head. So that no moment lets in
//! more than the plan in force, the bound of partners stands in the book itself (`book_limit`), with
//! the number of the change that has set it. A change to less goes through the book first, which
//! may refuse it; a change to more through the master first. From its first commit on, nothing
//! comes to people and domains that the wanted plan would not hold.
//!
//! | it dies | master | book | who goes on |
//! |---|---|---|---|
//! | before the first commit | the old plan | the old bound | the caller, anew |
//! | after it, to more | the new plan, wanted | the old bound | below; and whoever finds no room for a partner |
//! | after it, to less | the old plan, the new one wanted | the old bound | below |
//! | after the book's commit | the same | the new bound with the change's number, or its refusal | below |
//! | after the last commit | the new plan; the old one where the book refused | as it should be | nobody needs to |
//!
//! Below: the same request, any other change of the broker's plan, or a worker. A book answers a
//! change once, whoever asks: its refusal stays one though there be room by then.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::books::{BooksError, BooksService, Bound, BoundSet};
use crate::domain::broker::{Broker, BrokerPlan, BrokerState};
use crate::domain::ids::BrokerId;
use crate::domain::pause::Hindrance;
use crate::domain::plan_limits::{Excess, PlanLimit, Usage, excess};
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::master::access::user;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::{self, MasterTx, brokers, domains, moves, standing};
use crate::stores::pool::Pool;

/// Changes of others that one change sees to their end before it gives up.
const TRIES: u32 = 4;
/// Brokers whose changes a worker finishes between two looks at the master.
const BATCH: u32 = 100;

/// Why a plan stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("the broker is still being made")]
    BeingMade,
    /// Nothing new starts for the broker.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("for the plan {plan}: {}", removals(.excess))]
    DoesNotFit {
        plan: BrokerPlan,
        excess: Vec<Excess>,
    },
    #[error("the broker's plan is being changed by others; try again")]
    Overtaken,
    #[error(transparent)]
    Book(#[from] BooksError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn removals(excess: &[Excess]) -> String {
    let removals: Vec<&str> = excess.iter().map(|one| one.remove.as_str()).collect();
    removals.join(", ")
}

/// Who asks for another plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AskedBy {
    Platform,
    /// The broker itself.
    Broker,
}

/// Changes plans. Cheap to clone.
#[derive(Clone)]
pub struct PlanService {
    master: Pool,
    books: BooksService,
}

/// How a change has begun.
enum Begun {
    /// The broker is on the plan, and no change is under way.
    There(Broker),
    /// This change is under way.
    Ours(Broker),
    /// Another one is.
    Another(Broker),
}

impl PlanService {
    #[must_use]
    pub const fn new(master: Pool, books: BooksService) -> Self {
        Self { master, books }
    }

    /// Puts a broker on a plan; asking again changes nothing. The plan is another at once; where
    /// the book belongs elsewhere with it, it gets there by a move.
    ///
    /// # Errors
    /// [`PlanError::DoesNotFit`], which says what to remove; see [`PlanError`]. After a fault of a
    /// database the change may be under way, and goes on by itself.
    pub async fn change(
        &self,
        id: BrokerId,
        to: BrokerPlan,
        by: AskedBy,
        now: DateTime<Utc>,
    ) -> Result<Broker, PlanError> {
        for _ in 0..TRIES {
            match self.begin(id, to, by, now).await? {
                Begun::There(broker) => return Ok(broker),
                Begun::Ours(broker) => return self.finish(&broker, now).await,
                Begun::Another(broker) => self.see_through(&broker, now).await?,
            }
        }
        Err(PlanError::Overtaken)
    }

    /// Ends the change that is under way for a broker, where there is one, whatever comes of it.
    ///
    /// # Errors
    /// A database's, or a book that is not there.
    pub async fn see_through(&self, broker: &Broker, now: DateTime<Utc>) -> Result<(), PlanError> {
        match self.finish(broker, now).await {
            Ok(_) | Err(PlanError::DoesNotFit { .. } | PlanError::Overtaken) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Ends every change that is under way. One that can't be ended now is left for the next time,
    /// and holds up no other.
    ///
    /// # Errors
    /// The master's.
    pub async fn see_all_through(&self, now: DateTime<Utc>) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let found = brokers::with_plan_wanted(&self.master, after, BATCH).await?;
            for broker in &found {
                if let Err(error) = self.see_through(broker, now).await {
                    tracing::warn!(broker_id = broker.id, %error, "a change of plan waits");
                }
            }
            match found.last() {
                Some(last) if found.len() == BATCH as usize => after = last.id,
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// Records a change, where nothing of it in the master is in the way.
    async fn begin(
        &self,
        id: BrokerId,
        to: BrokerPlan,
        by: AskedBy,
        now: DateTime<Utc>,
    ) -> Result<Begun, PlanError> {
        let missing = PlanError::NoSuchBroker { id };
        let Some(seen) = brokers::get(&self.master, id).await? else {
            return Err(missing);
        };
        // Only to say all that is in the way at once: what counts is counted in the book later.
        let offline_partners = if is_less(seen.plan, to) && seen.state != BrokerState::Provisioning
        {
            self.books.offline_partners(id).await?
        } else {
            0
        };
        let mut tx = master::begin(&self.master).await?;
        let broker = brokers::lock(&mut tx, id).await?.ok_or(missing)?;
        match broker.plan_wanted {
            Some(wanted) if wanted == to => return Ok(Begun::Ours(broker)),
            Some(_) => return Ok(Begun::Another(broker)),
            None if broker.plan == to => return Ok(Begun::There(broker)),
            None => {}
        }
        match (broker.state, by) {
            (BrokerState::Provisioning, _) => return Err(PlanError::BeingMade),
            (BrokerState::Suspended, AskedBy::Platform) | (BrokerState::Active, _) => {}
            (BrokerState::Suspended, AskedBy::Broker)
            | (BrokerState::Leaving | BrokerState::Archived, _) => {
                let (standing, _) = standing::look(&mut tx, [Some(id), None], None).await?;
                standing.broker_is_open(id, id)?;
            }
        }
        let number = broker.plan_number + 1;
        let in_force = if is_less(broker.plan, to) {
            let usage = Usage {
                offline_partners,
                team_members: user::count_active(&mut tx, id).await?,
                domain: domains::of_broker(&mut tx, id)
                    .await?
                    .map(|domain| domain.host),
            };
            let excess = excess(to, &usage);
            if !excess.is_empty() {
                return Err(PlanError::DoesNotFit { plan: to, excess });
            }
            broker.plan
        } else {
            changed(&mut tx, &broker, to, now).await?;
            to
        };
        brokers::begin_plan(&mut tx, id, in_force, to, number).await?;
        master::commit(tx).await?;
        failpoint::at("plan.recorded");
        Ok(Begun::Ours(Broker {
            plan: in_force,
            plan_wanted: Some(to),
            plan_number: number,
            ..broker
        }))
    }

    /// Takes a change that was recorded to the book, and to its end.
    async fn finish(&self, broker: &Broker, now: DateTime<Utc>) -> Result<Broker, PlanError> {
        let (id, to) = (broker.id, broker.plan_to_fit());
        let limit = PlanLimit::OfflinePartners;
        let to_less = broker.plan != to;
        let bound = Bound {
            number: broker.plan_number,
            most: to.most(limit),
        };
        // Without a bound of its own the book has that of the plan in force.
        let before = broker.plan.most(limit);
        let set = self
            .books
            .bound_partners(id, bound, before, to_less, now)
            .await?;
        failpoint::at("plan.bounded");
        let there = match set {
            BoundSet::Set => None,
            BoundSet::Refused { there } => Some(there),
            BoundSet::Superseded => return Err(PlanError::Overtaken),
        };
        let mut tx = master::begin(&self.master).await?;
        let in_force = if there.is_some() { broker.plan } else { to };
        let ended = brokers::end_plan(&mut tx, id, broker.plan_number, in_force).await?;
        if ended && in_force != broker.plan {
            changed(&mut tx, broker, to, now).await?;
        }
        let present = brokers::lock(&mut tx, id).await?;
        master::commit(tx).await?;
        if let Some(offline_partners) = there {
            let usage = Usage {
                offline_partners,
                ..Usage::default()
            };
            let excess = excess(to, &usage);
            return Err(PlanError::DoesNotFit { plan: to, excess });
        }
        present.ok_or(PlanError::NoSuchBroker { id })
    }
}

/// Whether the second of two plans is the lesser: what a dearer plan allows, a cheaper one may not.
const fn is_less(from: BrokerPlan, to: BrokerPlan) -> bool {
    to.price_usd() < from.price_usd()
}

/// What follows from another plan, in the transaction that puts it in force. `broker` is as it was.
async fn changed(
    tx: &mut MasterTx,
    broker: &Broker,
    to: BrokerPlan,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let told = NewEvent {
        broker: broker.id,
        kind: "broker.plan_changed".to_owned(),
        subject: broker.id.to_string(),
        payload: json!({ "from": broker.plan, "to": to }),
    };
    feed::insert(tx, &[told], now).await?;
    // The book follows by a move, which a worker begins; until it has arrived the broker's mode stays
    // what it is.
    moves::want_mode(tx, broker.id, to.mode(), now).await
}
