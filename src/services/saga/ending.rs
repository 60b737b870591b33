//! The last transaction of a saga: the request's new state with its event, the obligation, the
//! saga and its steps, all in the master. Sagas that end at the same time end in one commit.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, stream};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Fault, Run, Systems};
use crate::domain::plan::{Plan, Step};
use crate::domain::request::{Booked, Change, Request, RequestStatus};
use crate::domain::saga::{Direction, SagaKind, SagaStatus};
use crate::domain::settlement::Part;
use crate::runtime::Entropy;
use crate::services::announce;
use crate::services::lanes::Lanes;
use crate::stores::StoreError;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::requests::{self, Sealed};
use crate::stores::master::{self, MasterTx, disputes, feed, obligations, sagas, settlements};
use crate::stores::pool::Pool;

/// Who ends a saga, in the events of its request.
const ACTOR: &str = "saga";

/// A saga that has done all but its last step, or undone all of them.
pub(super) struct Ending {
    plan: Plan,
    request: Option<Request>,
    direction: Direction,
    booked: Vec<Booked>,
    diverted: bool,
}

/// How a saga has ended, and how it left its request where that happened here and now.
pub(super) struct End {
    pub(super) status: SagaStatus,
    pub(super) request: Option<Box<Request>>,
}

pub(super) enum EndingOutcome {
    /// Now, or before by somebody else.
    Ended(End),
    /// It was decided otherwise meanwhile.
    GoesForward,
    GoesBack,
    Failed(Fault),
}

impl Ending {
    pub(super) fn forward(run: &Run, booked: Vec<Booked>, diverted: bool) -> Self {
        Self {
            plan: run.plan.clone(),
            request: run.request.clone(),
            direction: Direction::Forward,
            booked,
            diverted,
        }
    }

    pub(super) fn back(run: &Run) -> Self {
        Self {
            plan: run.plan.clone(),
            request: run.request.clone(),
            direction: Direction::Back,
            booked: Vec::new(),
            diverted: false,
        }
    }

    const fn status(&self) -> SagaStatus {
        match self.direction {
            Direction::Back => SagaStatus::Compensated,
            Direction::Forward | Direction::Undecided => SagaStatus::Completed,
        }
    }

    /// What it does to obligations that a settlement has been promised: repays them, or gives them
    /// back where the acceptance came to nothing. Gives what was repaid.
    async fn settle(&self, tx: &mut MasterTx, now: DateTime<Utc>) -> Result<Vec<Part>, StoreError> {
        let Some(request) = self.request.as_ref().filter(|one| one.settles.is_some()) else {
            return Ok(Vec::new());
        };
        let subject = request.id.to_string();
        match (self.plan.kind, self.direction) {
            (SagaKind::Confirm, Direction::Forward) => {
                settlements::settle(tx, &subject, request.settled_amount().minor(), now).await
            }
            (SagaKind::Accept, Direction::Back) => {
                settlements::release(tx, &subject, now).await?;
                Ok(Vec::new())
            }
            (SagaKind::Accept | SagaKind::Confirm | SagaKind::Correct | SagaKind::Release, _) => {
                Ok(Vec::new())
            }
        }
    }

    /// Whether it did what an arbiter had decided.
    fn enforces(&self) -> bool {
        let status = self.request.as_ref().map(|request| request.status);
        status == Some(RequestStatus::Disputed)
    }

    /// The request's change; a release leaves it as it is.
    fn change(&self, settled: &[Part], reason: &Value, now: DateTime<Utc>) -> Option<Change> {
        let request = self.request.as_ref()?;
        let back = self.direction == Direction::Back;
        match (self.plan.kind, back) {
            (SagaKind::Accept, false) => Some(request.accept_settled(now)),
            (SagaKind::Accept, true) => Some(request.accept_failed(reason, now)),
            (SagaKind::Confirm, false) => Some(request.completed(&self.booked, settled, now)),
            (SagaKind::Confirm, true) => Some(request.confirm_failed(reason, now)),
            (SagaKind::Correct, false) => {
                Some(request.corrected(&self.booked, self.plan.corrected_by(), now))
            }
            (SagaKind::Correct, true) => Some(request.correction_failed(reason, now)),
            (SagaKind::Release, _) => None,
        }
    }
}

/// Endings of a group that failed, and groups that wait for rows of others, at once.
const AT_ONCE: usize = 8;
/// A group that waits for a row longer than this is passed by the next.
const PASSED_AFTER: Duration = Duration::from_millis(100);

pub(super) fn lanes(systems: &Systems, group_max: usize) -> Lanes<(), Ending, EndingOutcome> {
    let pool = systems.master.clone();
    let (clock, entropy) = (systems.clock.clone(), systems.entropy.clone());
    let work = move |(), endings: Vec<Ending>| {
        let pool = pool.clone();
        let now = clock.now();
        let entropy = entropy.clone();
        async move { end_group(&pool, &entropy, endings, now).await }.boxed()
    };
    Lanes::new(group_max, Arc::new(work)).passing(PASSED_AFTER, AT_ONCE)
}

/// All in one transaction where nothing is in the way; else each by itself, so that one which
/// was ended by somebody else, or fails, holds up no other.
async fn end_group(
    pool: &Pool,
    entropy: &Entropy,
    endings: Vec<Ending>,
    now: DateTime<Utc>,
) -> Vec<EndingOutcome> {
    let forward = endings
        .iter()
        .all(|ending| ending.direction == Direction::Forward);
    if endings.len() > 1 && forward {
        match end_together(pool, entropy, &endings, now).await {
            Ok(Some(ends)) => return ends.into_iter().map(EndingOutcome::Ended).collect(),
            Ok(None) => {}
            Err(error) if error.is_unavailable() => {
                let fault = Fault::from(&error);
                return endings
                    .iter()
                    .map(|_| EndingOutcome::Failed(fault.clone()))
                    .collect();
            }
            Err(error) => tracing::debug!(%error, "a group of sagas ends one by one"),
        }
    }
    stream::iter(endings)
        .map(|ending| async move {
            let ended = end_alone(pool, entropy, &ending, now).await;
            ended.unwrap_or_else(|error| EndingOutcome::Failed(error.into()))
        })
        .buffered(AT_ONCE)
        .collect()
        .await
}

/// Nothing where a saga is not open or doesn't own its request any more.
async fn end_together(
    pool: &Pool,
    entropy: &Entropy,
    endings: &[Ending],
    now: DateTime<Utc>,
) -> Result<Option<Vec<End>>, StoreError> {
    let mut tx = master::begin(pool).await?;
    let ids: Vec<Uuid> = endings.iter().map(|ending| ending.plan.saga_id).collect();
    let open = sagas::finish(&mut tx, &ids, SagaStatus::Completed, now).await?;
    let written = if usize::try_from(open) == Ok(ids.len()) {
        write(&mut tx, entropy, endings, &Value::Null, now).await?
    } else {
        None
    };
    let Some(ends) = written else {
        drop(tx.rollback().await);
        return Ok(None);
    };
    crate::runtime::failpoint::at("saga.end.commit");
    master::commit(tx).await?;
    Ok(Some(ends))
}

async fn end_alone(
    pool: &Pool,
    entropy: &Entropy,
    ending: &Ending,
    now: DateTime<Utc>,
) -> Result<EndingOutcome, StoreError> {
    let saga_id = ending.plan.saga_id;
    let mut tx = master::begin(pool).await?;
    let open = sagas::finish(&mut tx, &[saga_id], ending.status(), now).await?;
    if open == 0 {
        drop(tx.rollback().await);
        return decided_elsewhere(pool, saga_id).await;
    }
    let reason = match ending.direction {
        Direction::Back => sagas::reason(&mut tx, saga_id).await?,
        Direction::Forward | Direction::Undecided => Value::Null,
    };
    let written = write(&mut tx, entropy, std::slice::from_ref(ending), &reason, now).await?;
    let Some(end) = written.and_then(|mut ends| ends.pop()) else {
        drop(tx.rollback().await);
        let fault = Fault::Integrity(format!(
            "{} is not owned by the saga that is about to end",
            ending.plan.subject
        ));
        return Ok(EndingOutcome::Failed(fault));
    };
    crate::runtime::failpoint::at("saga.end.commit");
    master::commit(tx).await?;
    Ok(EndingOutcome::Ended(end))
}

async fn decided_elsewhere(pool: &Pool, saga_id: Uuid) -> Result<EndingOutcome, StoreError> {
    let record = sagas::record(pool, saga_id).await?;
    Ok(match record {
        Some(record) if record.status.is_terminal() => EndingOutcome::Ended(End {
            status: record.status,
            request: None,
        }),
        Some(record) if record.direction == Direction::Back => EndingOutcome::GoesBack,
        Some(_) => EndingOutcome::GoesForward,
        None => EndingOutcome::Failed(Fault::Integrity(format!("saga {saga_id} is gone"))),
    })
}

/// Writes all but the sagas' own rows; nothing where a request was not its saga's any more.
async fn write(
    tx: &mut MasterTx,
    entropy: &Entropy,
    endings: &[Ending],
    reason: &Value,
    now: DateTime<Utc>,
) -> Result<Option<Vec<End>>, StoreError> {
    let mut sealed: Vec<Sealed> = Vec::with_capacity(endings.len());
    let mut ends = Vec::with_capacity(endings.len());
    for ending in endings {
        let settled = ending.settle(tx, now).await?;
        let change = ending.change(&settled, reason, now);
        let change = change.map(|change| {
            let event = change.event.salted(entropy.uuid(now));
            requests::seal(Change { event, ..change }, ACTOR, now)
        });
        if let Some(change) = &change
            && !requests::update(tx, change, Some(ending.plan.saga_id)).await?
        {
            return Ok(None);
        }
        ends.push(End {
            status: ending.status(),
            request: change
                .as_ref()
                .map(|change| Box::new(change.request.clone())),
        });
        sealed.extend(change);
    }
    let events: Vec<_> = sealed.iter().map(|change| &change.event).collect();
    requests::insert_events(tx, &events).await?;
    let announcements: Vec<_> = sealed.iter().flat_map(announce::of_transition).collect();
    feed::insert(tx, &announcements, now).await?;

    let with_obligation = |direction| {
        endings
            .iter()
            .filter(move |ending| ending.direction == direction && ending.plan.opens().is_some())
            .map(|ending| ending.plan.saga_id)
            .collect::<Vec<_>>()
    };
    obligations::activate(tx, &with_obligation(Direction::Forward), now).await?;
    obligations::fail(tx, &with_obligation(Direction::Back)).await?;
    for ending in endings {
        if ending.enforces() {
            end_dispute(tx, ending, now).await?;
        }
        if ending.direction == Direction::Back {
            let undone: Vec<&Step> = ending.plan.before_pivot().collect();
            sagas::insert_undone(tx, ending.plan.saga_id, undone, now).await?;
        }
        if ending.diverted {
            alerts::raise(tx, &diverted(ending), now).await?;
        }
    }
    Ok(Some(ends))
}

/// The dispute is over; or, where a book has refused what was decided, waits for a person.
async fn end_dispute(
    tx: &mut MasterTx,
    ending: &Ending,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let subject = ending.plan.subject;
    if ending.direction == Direction::Forward {
        disputes::end(tx, subject, now).await?;
        return alerts::resolve(tx, UNENFORCED, &subject.to_string(), now)
            .await
            .map(drop);
    }
    disputes::wait(tx, subject, now).await?;
    let alert = NewAlert {
        kind: UNENFORCED,
        subject: subject.to_string(),
        message: format!("a book refused what an arbiter has decided of {subject}"),
        details: json!({ "saga": ending.plan.saga_id }),
    };
    alerts::raise(tx, &alert, now).await.map(drop)
}

/// A decision that a book has refused to follow.
const UNENFORCED: &str = "dispute_unenforced";

fn diverted(ending: &Ending) -> NewAlert {
    NewAlert {
        kind: "credit_diverted",
        subject: ending.plan.subject.to_string(),
        message: format!(
            "a credit of {} found its account closed and is on the house's suspense account",
            ending.plan.subject
        ),
        details: json!({ "saga": ending.plan.saga_id }),
    }
}
