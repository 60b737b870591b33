//! What waits for a person: everything that is known of it, and the person's verdict.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::outbox::STUCK;
use super::turns::REVIEW;
use super::{IntentHistory, PaymentError, PaymentService};
use crate::domain::payment::{IntentStatus, OutboxAction, PspState};
use crate::domain::reason;
use crate::domain::words::words;
use crate::stores::master::{self, alerts};
use crate::stores::pm::calls::{self, PspCallRow};
use crate::stores::pm::events::{self, IntentEventRow, NewIntentEvent};
use crate::stores::pm::intents::{self, Intent};
use crate::stores::pm::queue::{self, PspTx};
use crate::stores::pm::{self, outbox};

words!(
    /// What somebody has found out at the provider.
    Verdict {
        /// It has paid.
        Confirmed = "CONFIRMED",
        /// It has not, and will not.
        Failed = "FAILED",
    }
);

/// Everything that is known of a payment.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    pub intent: Intent,
    pub psp: PspTx,
    pub events: Vec<IntentEventRow>,
    pub calls: Vec<PspCallRow>,
}

impl PaymentService {
    /// What waits for a person, the oldest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The database's.
    pub async fn reviews(
        &self,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<(PspTx, Option<Intent>)>, PaymentError> {
        let rows = queue::reviews(&self.0.pm, after, limit).await?;
        let ids: Vec<Uuid> = rows.iter().map(|row| row.intent).collect();
        let intents = intents::many(&self.0.pm, &ids).await?;
        let intent_of = |id| intents.iter().find(|intent| intent.id == id).cloned();
        Ok(rows
            .into_iter()
            .map(|row| {
                let intent = intent_of(row.intent);
                (row, intent)
            })
            .collect())
    }

    /// All that is known of a payment, whoever's it is.
    ///
    /// # Errors
    /// [`PaymentError::NoSuchIntent`]; the database's.
    pub async fn evidence(&self, id: Uuid) -> Result<Evidence, PaymentError> {
        let pm = &self.0.pm;
        let intent = intents::get(pm, id)
            .await?
            .ok_or(PaymentError::NoSuchIntent)?;
        let psp = queue::of(pm, id).await?.ok_or(PaymentError::NoSuchIntent)?;
        let events = events::of(pm, id).await?;
        let calls = calls::of(pm, id).await?;
        Ok(Evidence {
            intent,
            psp,
            events,
            calls,
        })
    }

    /// Ends a review by what somebody has found out. The money is posted or given back by that.
    /// The same verdict again changes nothing.
    ///
    /// # Errors
    /// [`PaymentError::State`] for what waits for nobody, or had the other verdict; a reason that
    /// is none.
    pub async fn resolve(
        &self,
        id: Uuid,
        verdict: Verdict,
        because: &str,
        by: &str,
    ) -> Result<Evidence, PaymentError> {
        let because = reason::checked(because)?;
        let (state, action) = match verdict {
            Verdict::Confirmed => (PspState::Confirmed, OutboxAction::Post),
            Verdict::Failed => (PspState::Failed, OutboxAction::Void),
        };
        let now = self.0.clock.now();
        let found = self.evidence(id).await?;
        let mut tx = pm::begin(&self.0.pm).await?;
        if !queue::resolve(&mut tx, id, state, now).await? {
            drop(tx);
            let found = self.evidence(id).await?;
            if found.psp.state == state {
                return Ok(found);
            }
            let why = "only what is under review is resolved";
            return Err(PaymentError::State {
                status: found.intent.status,
                why,
            });
        }
        let line = NewIntentEvent {
            intent: id,
            from: Some(found.intent.status),
            to: IntentStatus::ManualReview,
            reason: Some(&because),
            payload: json!({ "review": { "verdict": verdict, "by": by } }),
        };
        events::insert(&mut tx, &line, now).await?;
        let event = self.0.entropy.uuid(now);
        outbox::insert(&mut tx, event, id, action, now).await?;
        if verdict == Verdict::Confirmed {
            self.0.have_watched(&mut tx, &found.intent).await?;
        }
        pm::commit(tx).await?;
        let mut tx = master::begin(&self.0.master).await?;
        alerts::resolve(&mut tx, REVIEW, &id.to_string(), now).await?;
        master::commit(tx).await?;
        self.0.wake.up();
        self.evidence(id).await
    }

    /// Has what is stuck of a payment tried again, once somebody has mended what was wrong.
    ///
    /// # Errors
    /// [`PaymentError::State`] where nothing is stuck; [`PaymentError::NoSuchIntent`].
    pub async fn retry(&self, id: Uuid, by: &str) -> Result<IntentHistory, PaymentError> {
        let now = self.0.clock.now();
        let intent = intents::get(&self.0.pm, id).await?;
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        let mut tx = pm::begin(&self.0.pm).await?;
        if outbox::retry(&mut tx, id, now).await? == 0 {
            return Err(PaymentError::State {
                status: intent.status,
                why: "nothing of it is stuck",
            });
        }
        let line = NewIntentEvent {
            intent: id,
            from: Some(intent.status),
            to: intent.status,
            reason: Some("tried again"),
            payload: json!({ "retry": { "by": by } }),
        };
        events::insert(&mut tx, &line, now).await?;
        pm::commit(tx).await?;
        let mut tx = master::begin(&self.0.master).await?;
        alerts::resolve(&mut tx, STUCK, &id.to_string(), now).await?;
        master::commit(tx).await?;
        self.0.actions.reset();
        self.0.wake.up();
        self.get(intent.broker, id).await
    }
}
