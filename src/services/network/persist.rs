//! One transaction for a decision: the request, its event, the saga with all its steps, what
//! rides along, and the feeds.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::{Actor, NetworkError, NetworkService};
use crate::domain::plan::{Action, Plan};
use crate::domain::proof::Proof;
use crate::domain::request::Change;
use crate::runtime::failpoint;
use crate::services::announce;
use crate::services::uploads::named_by;
use crate::stores::StoreError;
use crate::stores::master::requests::{self, Sealed};
use crate::stores::master::{self, MasterTx, feed, obligations, sagas, uploads};

impl NetworkService {
    /// Persists a change where the request is still as it was when it was decided; starts the
    /// saga that comes with it. Gives whether it was applied.
    pub(super) async fn persist(
        &self,
        actor: &Actor,
        change: Change,
        owner: Option<Uuid>,
        now: DateTime<Utc>,
    ) -> Result<bool, NetworkError> {
        let service = self.clone();
        let subject = actor.subject.clone();
        let task = tokio::spawn(async move { service.write(&subject, change, owner, now).await });
        task.await
            .map_err(|_| NetworkError::Lost)?
            .map_err(NetworkError::from)
    }

    async fn write(
        &self,
        subject: &str,
        change: Change,
        owner: Option<Uuid>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let plan = change.plan.clone();
        let salt = self.0.systems.entropy.uuid(now);
        let change = Change {
            event: change.event.salted(salt),
            ..change
        };
        let sealed = requests::seal(change, subject, now);
        let mut tx = master::begin(self.master()).await?;
        if !requests::update(&mut tx, &sealed, owner).await? {
            drop(tx.rollback().await);
            return Ok(false);
        }
        requests::insert_events(&mut tx, &[&sealed.event]).await?;
        let lease = self.0.engine.lease(now);
        if let Some(plan) = &plan {
            ride_along(&mut tx, plan, now).await?;
            sagas::insert(&mut tx, plan, &lease, self.0.engine.max_retries(), now).await?;
        }
        uploads::use_for(&mut tx, &uploads_of(&sealed), sealed.request.id, now).await?;
        feed::insert(&mut tx, &announce::of_transition(&sealed), now).await?;
        let kind = plan.as_ref().map_or("none", |plan| plan.kind.as_str());
        failpoint::at_step(kind, "record", "before");
        master::commit(tx).await?;
        failpoint::at_step(kind, "record", "after");
        if let Some(plan) = plan {
            let Sealed { request, .. } = sealed;
            self.0.engine.start(plan, request, lease, now);
        }
        Ok(true)
    }
}

/// What a plan does in the transaction that records it.
async fn ride_along(tx: &mut MasterTx, plan: &Plan, now: DateTime<Utc>) -> Result<(), StoreError> {
    for step in &plan.steps {
        match &step.action {
            Action::OpenObligation(debt) => {
                obligations::insert_pending(tx, plan.saga_id, &plan.subject.to_string(), debt, now)
                    .await?;
            }
            Action::Claim
            | Action::Hold(_)
            | Action::Book { .. }
            | Action::Reserve { .. }
            | Action::Release { .. }
            | Action::Post(_)
            | Action::Decide
            | Action::Finish => {}
        }
    }
    Ok(())
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
