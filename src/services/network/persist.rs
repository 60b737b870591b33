//! One transaction for a decision: the request, its event, the saga with all its steps, what
//! rides along, and the feeds. Decisions that are made at the same time are recorded in one
//! commit. What starts something new is recorded only where nothing has been paused since it was
//! looked at.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, stream};
use serde_json::json;
use uuid::Uuid;

use super::{Actor, NetworkError, NetworkService, Shortage};
use crate::domain::decision;
use crate::domain::ids::ObligationId;
use crate::domain::plan::Plan;
use crate::domain::proof::Proof;
use crate::domain::request::{Change, Request};
use crate::domain::request_event::EventKind;
use crate::domain::settlement::Short;
use crate::runtime::failpoint;
use crate::services::announce;
use crate::services::lanes::Lanes;
use crate::services::saga::{SagaEngine, Systems};
use crate::stores::StoreError;
use crate::stores::master::requests::{self, Sealed};
use crate::stores::master::settlements::{self, Debts};
use crate::stores::master::standing::{self, GateVersion};
use crate::stores::master::{
    self, MasterTx, credit_lines, disputes, feed, obligations, sagas, uploads,
};

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
    /// Of one that starts something new: the gate when it was found open.
    gate: Option<GateVersion>,
    takes: Takes,
}

/// What an acceptance takes in the master beyond the request itself, and there may be too little
/// of. It is recorded alone, so that one which goes too far takes no other with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    /// As much of the debts as a settlement is to repay, oldest first, or of one obligation.
    Debts {
        debts: Debts,
        only: Option<ObligationId>,
        amount: u64,
    },
    /// Room under the credit line that bounds these debts.
    Credit(Debts),
}

/// What became of a decision.
#[derive(Clone, Debug)]
pub(super) enum Outcome {
    /// The request as it is recorded.
    Recorded(Box<Request>),
    /// The request had changed meanwhile, and nothing was recorded.
    Changed,
    /// What may start had changed meanwhile, and nothing was recorded.
    GateTurned,
    /// There is too little of what it takes, and nothing was recorded.
    Short(Shortage),
}

pub(super) type Recorded = Result<Outcome, StoreError>;

impl NetworkService {
    /// Persists a change where the request is still as it was when it was decided, and the gate
    /// too where it starts something new; starts the saga that comes with it. It goes on when the
    /// caller hangs up.
    pub(super) async fn persist(
        &self,
        actor: &Actor,
        change: Change,
        owner: Option<Uuid>,
        (gate, takes): (Option<GateVersion>, Takes),
        now: DateTime<Utc>,
    ) -> Result<Outcome, NetworkError> {
        let plan = change.plan.clone();
        let salt = self.0.systems.entropy.uuid(now);
        let change = Change {
            event: change.event.salted(salt),
            ..change
        };
        let recording = Recording {
            sealed: Box::pin(self.seal(actor, change, now)).await?,
            plan,
            owner,
            gate,
            takes,
        };
        let recorded = self.0.recordings.submit((), recording).await;
        Ok(recorded.map_err(|_| NetworkError::Lost)??)
    }

    /// Seals a change's event; a decision with the server's signatures in it.
    async fn seal(
        &self,
        actor: &Actor,
        mut change: Change,
        now: DateTime<Utc>,
    ) -> Result<Sealed, NetworkError> {
        if change.event.kind == EventKind::Decided {
            let unsigned = requests::seal(change.clone(), &actor.subject, now);
            let text = decision::text(&unsigned.event.canonical());
            let signed = self.0.checkpoints.sign_text(&text).await;
            let signatures = signed.map_err(NetworkError::Unsigned)?;
            let facts = &mut change.event.payload;
            facts.insert(decision::SIGNATURES.to_owned(), json!(signatures));
        }
        Ok(requests::seal(change, &actor.subject, now))
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

impl Recording {
    /// Takes what the acceptance needs; gives back what a settlement had that ends without a saga
    /// of its own.
    async fn take(
        &self,
        tx: &mut MasterTx,
        now: DateTime<Utc>,
    ) -> Result<Result<(), Shortage>, StoreError> {
        let request = &self.sealed.request;
        let subject = request.id.to_string();
        match &self.takes {
            Takes::Nothing => {
                if request.settles.is_some() && request.closed_at.is_some() {
                    settlements::release(tx, &subject, now).await?;
                }
                Ok(Ok(()))
            }
            Takes::Debts {
                debts,
                only,
                amount,
            } => {
                let reserved = settlements::reserve(tx, &subject, debts, *only, *amount, now);
                let short = |short: Short| Shortage::Debts {
                    debtor: debts.debtor,
                    creditor: debts.creditor,
                    available: short.available,
                    spans: short.spans,
                };
                Ok(reserved.await?.map_err(short))
            }
            Takes::Credit(debts) => {
                let Some(limit) = credit_lines::lock(tx, debts).await? else {
                    return Ok(Ok(()));
                };
                // What this request takes is in it: its row has been written.
                let used = credit_lines::used(tx, debts).await?;
                if used <= limit {
                    return Ok(Ok(()));
                }
                let own = request.credit_hold().map_or(0, |owing| owing.amount);
                Ok(Err(Shortage::Credit {
                    debtor: debts.debtor,
                    creditor: debts.creditor,
                    limit,
                    free: limit.saturating_sub(used - own),
                }))
            }
        }
    }
}

#[derive(Clone)]
struct Recorder {
    systems: Systems,
    engine: SagaEngine,
}

impl Recorder {
    /// All in one transaction; where that fails each in its own, so that one which is in the way
    /// of others fails alone, as do all where one takes what there may be too little of. A commit
    /// that was not acknowledged may have happened: the second try finds then that the request has
    /// changed.
    async fn record(&self, group: Vec<Recording>) -> Vec<Recorded> {
        let together = group.iter().all(|one| one.takes == Takes::Nothing);
        if group.len() > 1 && together {
            match self.write(&group).await {
                Ok(recorded) => return recorded.into_iter().map(Ok).collect(),
                Err(error) => tracing::debug!(%error, "decisions are recorded one by one"),
            }
        }
        stream::iter(group)
            .map(|recording| async move {
                let recorded = self.write(std::slice::from_ref(&recording)).await;
                recorded.map(|mut one| one.pop().unwrap_or(Outcome::Changed))
            })
            .buffered(AT_ONCE)
            .collect()
            .await
    }

    async fn write(&self, group: &[Recording]) -> Result<Vec<Outcome>, StoreError> {
        let now = self.systems.clock.now();
        let (mut tx, gate) = self.begin(group).await?;
        let applied = update(&mut tx, group, gate).await?;
        let chosen: Vec<&Recording> = chosen(group, &applied).collect();
        if chosen.is_empty() {
            drop(tx.rollback().await);
            return Ok(outcomes(group, applied));
        }
        for recording in &chosen {
            if let Err(shortage) = recording.take(&mut tx, now).await? {
                drop(tx.rollback().await);
                return Ok(vec![Outcome::Short(shortage)]);
            }
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
        for Recording { sealed, .. } in &chosen {
            follow_dispute(&mut tx, sealed, now).await?;
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
        Ok(outcomes(group, applied))
    }

    /// A transaction for a group: with the gate held, and its version, where one of the group
    /// starts something new.
    async fn begin(
        &self,
        group: &[Recording],
    ) -> Result<(MasterTx, Option<GateVersion>), StoreError> {
        let master = &self.systems.master;
        if group.iter().all(|one| one.gate.is_none()) {
            return Ok((master::begin(master).await?, None));
        }
        let (tx, gate) = standing::begin(master).await?;
        Ok((tx, Some(gate)))
    }
}

/// Writes how a request's dispute stands after an event, where it is or was in one.
async fn follow_dispute(
    tx: &mut MasterTx,
    sealed: &Sealed,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let Sealed { request, event } = sealed;
    if let Some(case) = &request.past.case {
        let party = request.party(case.opened_by);
        let against = party.and_then(|party| request.broker_of(party.other()));
        let against = against.unwrap_or_default();
        return disputes::write(tx, request.id, against, case, now).await;
    }
    match event.kind {
        EventKind::DisputeWithdrawn | EventKind::DisputeDismissed | EventKind::Cancelled => {
            disputes::end(tx, request.id, now).await
        }
        _ => Ok(()),
    }
}

/// What became of the row of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Applied {
    Yes,
    Changed,
    GateTurned,
}

fn outcomes(group: &[Recording], applied: Vec<Applied>) -> Vec<Outcome> {
    let pairs = group.iter().zip(applied);
    pairs
        .map(|(one, applied)| match applied {
            Applied::Yes => Outcome::Recorded(Box::new(one.sealed.request.clone())),
            Applied::Changed => Outcome::Changed,
            Applied::GateTurned => Outcome::GateTurned,
        })
        .collect()
}

/// Updates the requests in the order of their ids, so that two groups never wait for each other.
/// Gives which were still as they were when they were decided.
async fn update(
    tx: &mut MasterTx,
    group: &[Recording],
    gate: Option<GateVersion>,
) -> Result<Vec<Applied>, StoreError> {
    let mut order: Vec<usize> = (0..group.len()).collect();
    order.sort_by_key(|index| group[*index].sealed.request.id);
    let mut applied = vec![Applied::Changed; group.len()];
    for index in order {
        let one = &group[index];
        if one.gate.is_some() && one.gate != gate {
            applied[index] = Applied::GateTurned;
        } else if requests::update(tx, &one.sealed, one.owner).await? {
            applied[index] = Applied::Yes;
        }
    }
    Ok(applied)
}

fn chosen<'a>(group: &'a [Recording], applied: &[Applied]) -> impl Iterator<Item = &'a Recording> {
    let pairs = group.iter().zip(applied);
    let yes = pairs.filter(|(_, applied)| **applied == Applied::Yes);
    yes.map(|(one, _)| one)
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
    proofs.iter().filter_map(Proof::upload).collect()
}
