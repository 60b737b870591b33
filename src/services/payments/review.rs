//! What waits for a person: everything that is known of it, and the person's verdict.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::outbox::STUCK;
use super::turns::REVIEW;
use super::{IntentHistory, PaymentError, PaymentService};
use crate::domain::payment::outcome::PAID_ANOTHER_AMOUNT;
use crate::domain::payment::{IntentKind, IntentStatus, OutboxAction, PspState};
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

/// The longest name of a provider for a payment.
const MAX_PAYMENT_ID: usize = 128;

/// What somebody says of a payment under review.
#[derive(Clone, Copy, Debug)]
pub struct Finding<'a> {
    pub verdict: Verdict,
    /// The provider's name for the payment that it has made or taken in, where it is known: by it
    /// a payment that comes back, or a callback, is known again.
    pub payment_id: Option<&'a str>,
    /// What was found out, and where.
    pub reason: &'a str,
    pub by: &'a str,
}

/// Everything that is known of a payment.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// `None` where its row is missing: this database was restored to an older time.
    pub intent: Option<Intent>,
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
        let intent = intents::get(pm, id).await?;
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
    /// [`PaymentError::State`] for what waits for nobody, had the other verdict, or whose intent is
    /// missing; a reason that is none; a top-up that was paid with another amount, which is never
    /// credited as if it had been the right one.
    pub async fn resolve(&self, id: Uuid, finding: &Finding<'_>) -> Result<Evidence, PaymentError> {
        let &Finding { verdict, by, .. } = finding;
        let because = reason::checked(finding.reason)?;
        let payment_id = payment_id(finding)?;
        let (state, action) = match verdict {
            Verdict::Confirmed => (PspState::Confirmed, OutboxAction::Post),
            Verdict::Failed => (PspState::Failed, OutboxAction::Void),
        };
        let now = self.0.clock.now();
        let found = self.evidence(id).await?;
        let Some(intent) = found.intent else {
            let why =
                "its row is missing here: bring this database to the time of the others first";
            let status = IntentStatus::ManualReview;
            return Err(PaymentError::State { status, why });
        };
        let is_another = found.psp.last_error.as_deref() == Some(PAID_ANOTHER_AMOUNT);
        let credits = (verdict, intent.kind) == (Verdict::Confirmed, IntentKind::TopUp);
        if credits && is_another && found.psp.state == PspState::ManualReview {
            let rule = "is FAILED for a top-up that was paid with another amount: what came in goes \
                        to system.suspense by its callback, and from there to a wallet";
            return Err(PaymentError::Invalid {
                field: "verdict",
                rule: rule.to_owned(),
            });
        }
        let mut tx = pm::begin(&self.0.pm).await?;
        if !queue::resolve(&mut tx, id, state, payment_id, now).await? {
            drop(tx);
            let found = self.evidence(id).await?;
            if found.psp.state == state {
                return Ok(found);
            }
            let why = "only what is under review is resolved";
            return Err(PaymentError::State {
                status: found.intent.map_or(intent.status, |intent| intent.status),
                why,
            });
        }
        let line = NewIntentEvent {
            intent: id,
            from: Some(intent.status),
            to: IntentStatus::ManualReview,
            reason: Some(&because),
            payload: json!({ "review": { "verdict": verdict, "by": by, "payment_id": payment_id } }),
        };
        events::insert(&mut tx, &line, now).await?;
        let event = self.0.entropy.uuid(now);
        outbox::insert(&mut tx, event, id, action, now).await?;
        if verdict == Verdict::Confirmed {
            self.0.have_watched(&mut tx, &intent).await?;
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

/// A provider's name for a payment, where it can be one: it stands in paths.
fn payment_id<'a>(finding: &Finding<'a>) -> Result<Option<&'a str>, PaymentError> {
    let Some(id) = finding.payment_id else {
        return Ok(None);
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    let is_name = (1..=MAX_PAYMENT_ID).contains(&id.len()) && id.bytes().all(plain);
    if is_name && finding.verdict == Verdict::Confirmed {
        return Ok(Some(id));
    }
    let rule =
        format!("goes with CONFIRMED, and is 1 to {MAX_PAYMENT_ID} of letters, digits and '-'");
    let field = "payment_id";
    Err(PaymentError::Invalid { field, rule })
}
