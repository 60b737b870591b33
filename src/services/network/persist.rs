//! One transaction for a decision: the request, its event, the saga with all its steps, what
//! rides along, and the feeds. Decisions that are made at the same time are recorded in one
//! commit.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, stream};
use uuid::Uuid;

use super::{Actor, NetworkError, NetworkService};
use crate::domain::plan::Plan;
use crate::domain::proof::Proof;
use crate::domain::request::{Change, Request};
use crate::runtime::failpoint;
use crate::services::announce;
use crate::services::lanes::Lanes;
use crate::services::saga::{SagaEngine, Systems};
use crate::services::uploads::named_by;
use crate::stores::StoreError;
use crate::stores::master::requests::{self, Sealed};
use crate::stores::master::{self, MasterTx, feed, obligations, sagas, uploads};

/// Decisions in one commit.
const GROUP: usize = 64;
/// A group that waits for a row longer than this is passed by the next.
const PASSED_AFTER: Duration = Duration::from_millis(100);
/// Groups, and decisions of a group that failed, at once.
const AT_ONCE: usize = 8;

/// A decision to be recorded.
pub(super) struct Recording {
    sealed: Sealed,
    plan: Option<Plan>,
    /// The saga that owned the request when it was decided.
    owner: Option<Uuid>,
}

/// The request as recorded; nothing where it had changed meanwhile.
pub(super) type Recorded = Result<Option<Request>, StoreError>;

impl NetworkService {
    /// Persists a change where the request is still as it was when it was decided; starts the
    /// saga that comes with it. Gives the request as it is then, or nothing where others were
    /// faster. It goes on when the caller hangs up.
    pub(super) async fn persist(
        &self,
        actor: &Actor,
        change: Change,
        owner: Option<Uuid>,
        now: DateTime<Utc>,
    ) -> Result<Option<Request>, NetworkError> {
        let plan = change.plan.clone();
        let salt = self.0.systems.entropy.uuid(now);
        let change = Change {
            event: change.event.salted(salt),
            ..change
        };
        let recording = Recording {
            sealed: requests::seal(change, &actor.subject, now),
            plan,
            owner,
        };
        let recorded = self.0.recordings.submit((), recording).await;
        Ok(recorded.map_err(|_| NetworkError::Lost)??)
    }
}

pub(super) fn lanes(systems: &Systems, engine: &SagaEngine) -> Lanes<(), Recording, Recorded> {
    let recorder = Recorder {
        systems: systems.clone(),
        engine: engine.clone(),
    };
    let work = move |(), group: Vec<Recording>| {
        let recorder = recorder.clone();
        async move { recorder.record(group).await }.boxed()
    };
    Lanes::new(GROUP, Arc::new(work)).passing(PASSED_AFTER, AT_ONCE)
}

#[derive(Clone)]
struct Recorder {
    systems: Systems,
    engine: SagaEngine,
}

impl Recorder {
    /// All in one transaction; where that fails each in its own, so that one which is in the way
    /// of others fails alone. A commit that was not acknowledged may have happened: the second
    /// try finds then that the request has changed.
    async fn record(&self, group: Vec<Recording>) -> Vec<Recorded> {
        if group.len() > 1 {
            match self.write(&group).await {
                Ok(recorded) => return recorded.into_iter().map(Ok).collect(),
                Err(error) => tracing::debug!(%error, "decisions are recorded one by one"),
            }
        }
        stream::iter(group)
            .map(|recording| async move {
                let recorded = self.write(std::slice::from_ref(&recording)).await;
                recorded.map(|mut one| one.pop().flatten())
            })
            .buffered(AT_ONCE)
            .collect()
            .await
    }

    async fn write(&self, group: &[Recording]) -> Result<Vec<Option<Request>>, StoreError> {
        let now = self.systems.clock.now();
        let mut tx = master::begin(&self.systems.master).await?;
        let applied = update(&mut tx, group).await?;
        let chosen: Vec<&Recording> = chosen(group, &applied).collect();
        if chosen.is_empty() {
            drop(tx.rollback().await);
            return Ok(vec![None; group.len()]);
        }
        let events: Vec<_> = chosen.iter().map(|one| &one.sealed.event).collect();
        requests::insert_events(&mut tx, &events).await?;
        let plans: Vec<&Plan> = chosen.iter().filter_map(|one| one.plan.as_ref()).collect();
        obligations::insert_pending(&mut tx, &plans, now).await?;
        let lease = self.engine.lease(now);
        sagas::insert(&mut tx, &plans, &lease, self.engine.max_retries(), now).await?;
        for Recording { sealed, .. } in &chosen {
            uploads::use_for(&mut tx, &uploads_of(sealed), sealed.request.id, now).await?;
        }
        let announced = chosen.iter().map(|one| &one.sealed);
        let announced: Vec<_> = announced.flat_map(announce::of_transition).collect();
        feed::insert(&mut tx, &announced, now).await?;
        arrive(&chosen, "before");
        master::commit(tx).await?;
        arrive(&chosen, "after");
        for Recording { sealed, plan, .. } in chosen {
            if let Some(plan) = plan {
                let (plan, request) = (plan.clone(), sealed.request.clone());
                self.engine.start(plan, request, lease.clone(), now);
            }
        }
        let recorded = group.iter().zip(applied);
        Ok(recorded
            .map(|(one, applied)| applied.then(|| one.sealed.request.clone()))
            .collect())
    }
}

/// Updates the requests in the order of their ids, so that two groups never wait for each other.
/// Gives which were still as they were when they were decided.
async fn update(tx: &mut MasterTx, group: &[Recording]) -> Result<Vec<bool>, StoreError> {
    let mut order: Vec<usize> = (0..group.len()).collect();
    order.sort_by_key(|index| group[*index].sealed.request.id);
    let mut applied = vec![false; group.len()];
    for index in order {
        let Recording { sealed, owner, .. } = &group[index];
        applied[index] = requests::update(tx, sealed, *owner).await?;
    }
    Ok(applied)
}

fn chosen<'a>(group: &'a [Recording], applied: &[bool]) -> impl Iterator<Item = &'a Recording> {
    let pairs = group.iter().zip(applied);
    pairs.filter(|(_, applied)| **applied).map(|(one, _)| one)
}

fn arrive(recordings: &[&Recording], when: &str) {
    for Recording { plan, .. } in recordings {
        let kind = plan.as_ref().map_or("none", |plan| plan.kind.as_str());
        failpoint::at_step(kind, "record", when);
    }
}

/// The uploads that the proofs of a `sent` name: the other side may read them from now on.
fn uploads_of(sealed: &Sealed) -> Vec<Uuid> {
    let private = sealed
        .event
        .private
        .as_ref()
        .and_then(|private| private.get("proof"));
    let proofs: Vec<Proof> = private
        .and_then(|proofs| serde_json::from_value(proofs.clone()).ok())
        .unwrap_or_default();
    proofs.iter().filter_map(named_by).collect()
}
