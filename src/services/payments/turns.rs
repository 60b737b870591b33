//! The work at providers: rows of the queue are picked up, a driver makes a turn on each, and
//! what it came to is written.

use std::sync::Arc;

use serde_json::json;

use super::{Inner, PaymentError};
use crate::domain::payment::outcome::{Facts, Progress, PspOutcome};
use crate::domain::payment::{IntentEvent, IntentKind, OutboxAction, PspName, PspState};
use crate::psp::{CallRecord, Lease, PspTask, Turn};
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::master::alerts::NewAlert;
use crate::stores::pm::calls::{self, PspCall};
use crate::stores::pm::events::{self, NewIntentEvent};
use crate::stores::pm::intents::{self, Intent};
use crate::stores::pm::queue::{self, Applied, PspTx};
use crate::stores::pm::{self, incoming, outbox};

/// Kind of the alert of an intent that a person must look at; its subject is the intent.
pub const REVIEW: &str = "payment_review";

/// Why a payment is under review whose provider names one that another intent has.
const OF_ANOTHER: &str = "payment_of_another_intent";

/// Does the work at providers. Clones share everything.
#[derive(Clone)]
pub struct PspEngine(pub(super) Arc<Inner>);

/// A row that this process has, and for how long.
#[derive(Clone, Debug)]
pub struct PickedUp {
    row: PspTx,
    lease: Lease,
}

impl PspEngine {
    /// The providers that are configured.
    #[must_use]
    pub fn providers(&self) -> Vec<PspName> {
        self.0.providers.names().collect()
    }

    /// Whether a provider may send back what it has paid.
    #[must_use]
    pub fn is_watched(&self, psp: PspName) -> bool {
        let driver = self.0.providers.get(psp);
        driver.is_some_and(|driver| driver.sends_back_within().is_some())
    }

    /// Picks up rows of one provider, at most `limit`.
    ///
    /// # Errors
    /// The database's.
    pub async fn pick_up(&self, psp: PspName, limit: u32) -> Result<Vec<PickedUp>, StoreError> {
        let inner = &self.0;
        let leases = &inner.rules.queue;
        // From before they begin: a lease is never thought to last longer than it does.
        let [first, retried] = [leases.lease, leases.retry_lease]
            .map(|length| Lease::lasting(length.to_std().unwrap_or_default()));
        let limit = limit.min(inner.rules.batch);
        let now = inner.clock.now();
        let cursor = inner.cursor_of(psp);
        let look = queue::Look {
            psp,
            from: cursor.begin(now),
            by: &inner.process,
            limit,
        };
        let rows = queue::pick_up(&inner.pm, &look, leases, &inner.clock).await?;
        let newest = rows.last().map(|row| row.created_at);
        cursor.found(newest, rows.len() == limit as usize, now);
        let picked_up = rows.into_iter().map(|row| PickedUp {
            lease: if row.retry_count == 0 { first } else { retried },
            row,
        });
        Ok(picked_up.collect())
    }

    /// Makes a turn on a row that was picked up and writes what it came to. What goes wrong here
    /// is left to whoever comes after the lease.
    pub async fn serve(&self, picked_up: PickedUp) {
        let intent = picked_up.row.intent;
        if let Err(error) = self.turn(picked_up).await {
            tracing::warn!(%error, %intent, "a turn at a provider has failed; its lease runs out");
        }
    }

    async fn turn(&self, picked_up: PickedUp) -> Result<(), PaymentError> {
        let PickedUp {
            row: picked_up,
            lease,
        } = picked_up;
        let known = intents::with_sender(&self.0.pm, picked_up.intent).await?;
        let task = self.task(&picked_up, known.as_ref(), lease).await?;
        let Turn { outcome, calls } = match task {
            Ok(task) => {
                let driver = self.0.providers.get(picked_up.psp);
                let driver = driver.ok_or(PaymentError::NoSuchIntent)?;
                failpoint::at(asking(picked_up.state));
                driver.process(&task).await
            }
            Err(missing) => Turn {
                outcome: review(missing),
                calls: Vec::new(),
            },
        };
        failpoint::at(answered(picked_up.state));
        self.keep(&picked_up, &calls).await?;
        failpoint::at("psp.kept");
        let intent = known.map(|(intent, _)| intent);
        self.apply(&picked_up, intent.as_ref(), &outcome).await
    }

    /// What the driver is told; the inner error says what is missing for that.
    async fn task(
        &self,
        picked_up: &PspTx,
        known: Option<&(Intent, Option<String>)>,
        lease: Lease,
    ) -> Result<Result<PspTask, &'static str>, PaymentError> {
        let Some((intent, sender)) = known else {
            return Ok(Err("intent_not_found"));
        };
        if picked_up.psp == PspName::Ipps && sender.is_none() {
            return Ok(Err("wallet_not_registered"));
        }
        let currency = self.0.currencies.get(&intent.currency).await?;
        let (Some(currency), Some(query), Some(confirm)) = (
            currency,
            picked_up.query_rq_uid.clone(),
            picked_up.confirm_rq_uid.clone(),
        ) else {
            return Ok(Err("context_missing"));
        };
        Ok(Ok(PspTask {
            intent: intent.id,
            state: picked_up.state,
            query_rq_uid: query,
            confirm_rq_uid: confirm,
            facts: picked_up.facts.clone(),
            exponent: currency.exponent,
            currency: intent.currency.clone(),
            amount: intent.amount,
            receiver: intent.receiver.clone(),
            sender: sender.clone(),
            tries: picked_up.retry_count.unsigned_abs(),
            lease,
        }))
    }

    /// Keeps what was sent and answered, whether or not the turn still counts.
    pub(super) async fn keep(
        &self,
        picked_up: &PspTx,
        made: &[CallRecord],
    ) -> Result<(), StoreError> {
        let now = self.0.clock.now();
        for call in made {
            let call = PspCall {
                id: self.0.entropy.uuid(now),
                intent: picked_up.intent,
                psp: picked_up.psp,
                operation: call.operation,
                rq_uid: call.rq_uid.clone(),
                request: call.request.clone(),
                http_status: call.http_status,
                response: call.response.clone(),
                error: call.error.clone(),
                took_us: u64::try_from(call.took.as_micros()).unwrap_or(u64::MAX),
                called_at: now,
            };
            calls::insert(&self.0.pm, &call).await?;
        }
        Ok(())
    }

    /// Deletes old calls and old words of providers about payments that are over, at most `limit` of
    /// each; gives the greater number of both. What was paid is never deleted.
    ///
    /// # Errors
    /// The database's.
    pub async fn forget(&self, limit: u32) -> Result<usize, StoreError> {
        let inner = &self.0;
        let before = inner.clock.now() - inner.rules.calls_kept;
        let calls = calls::forget(&inner.pm, before, limit).await?;
        let words = incoming::forget_words(&inner.pm, before, limit).await?;
        Ok(usize::try_from(calls.max(words)).unwrap_or(usize::MAX))
    }

    /// Writes what a turn came to, in one transaction, where the row is still ours. The intent is as
    /// it was when the turn began: while the row is ours nobody else changes it.
    async fn apply(
        &self,
        picked_up: &PspTx,
        intent: Option<&Intent>,
        outcome: &PspOutcome,
    ) -> Result<(), PaymentError> {
        let inner = &self.0;
        let now = inner.clock.now();
        let state = outcome.state_after(picked_up.state);
        let (state, outcome) = match state {
            Ok(state) => (state, outcome.clone()),
            // A driver that is wrong gets nobody paid twice.
            Err(error) => (PspState::ManualReview, review(&error.to_string())),
        };
        let mut tx = pm::begin(&inner.pm).await?;
        let (state, outcome) = match &outcome.facts().response_id {
            Some(payment)
                if queue::holder(&mut tx, picked_up.psp, payment, picked_up.intent)
                    .await?
                    .is_some() =>
            {
                (PspState::ManualReview, review(OF_ANOTHER))
            }
            _ => (state, outcome),
        };
        let applied = Applied {
            state,
            facts: outcome.facts(),
            error: outcome.reason(),
            came_on: came_on(&outcome),
        };
        if !queue::apply(&mut tx, picked_up, &applied, now).await? {
            tracing::warn!(intent = %picked_up.intent, "somebody else has gone on with it");
            metrics::counter!("settlenet_psp_stale_total", "psp" => picked_up.psp.as_str())
                .increment(1);
            return Ok(());
        }
        if let Some(intent) = intent {
            self.tell(&mut tx, picked_up, intent, &applied).await?;
        }
        failpoint::at("psp.applied.before");
        pm::commit(tx).await?;
        failpoint::at("psp.applied.after");
        metrics::counter!("settlenet_psp_turns_total", "psp" => picked_up.psp.as_str(),
            "state" => state.as_str())
        .increment(1);
        if state == PspState::ManualReview {
            self.alert(picked_up, outcome.reason().unwrap_or_default())
                .await?;
        }
        if applied.came_on && !state.is_absorbing() {
            inner.cursor_of(picked_up.psp).back_to(picked_up.created_at);
        }
        inner.wake.up();
        Ok(())
    }

    /// The history's line, and what follows from the outcome.
    async fn tell(
        &self,
        tx: &mut pm::PmTx,
        picked_up: &PspTx,
        intent: &Intent,
        applied: &Applied<'_>,
    ) -> Result<(), PaymentError> {
        let now = self.0.clock.now();
        let event = match (applied.state, intent.kind) {
            (PspState::ManualReview, _) => Some(IntentEvent::Unclear),
            // Nothing was held that would have to be given back.
            (PspState::Failed, IntentKind::TopUp) => Some(IntentEvent::Voided),
            _ => None,
        };
        let to = event.and_then(|event| intent.status.after(event));
        if let Some(to) = to {
            intents::set_status(tx, intent.id, intent.status, to, applied.error, now).await?;
        }
        let line = NewIntentEvent {
            intent: intent.id,
            from: Some(intent.status),
            to: to.unwrap_or(intent.status),
            reason: applied.error,
            payload: json!({ "psp": {
                "name": picked_up.psp,
                "state_from": picked_up.state,
                "state_to": applied.state,
                "retry_count": picked_up.retry_count,
                "facts": applied.facts,
            } }),
        };
        events::insert(tx, &line, now).await?;
        let action = match (applied.state, intent.kind) {
            (PspState::Confirmed, _) => Some(OutboxAction::Post),
            (PspState::Failed, IntentKind::Payout) => Some(OutboxAction::Void),
            _ => None,
        };
        if let Some(action) = action {
            let id = self.0.entropy.uuid(now);
            outbox::insert(tx, id, intent.id, action, now).await?;
        }
        if applied.state == PspState::Confirmed {
            self.0.have_watched(tx, intent).await?;
        }
        Ok(())
    }

    pub(super) async fn alert(&self, row: &PspTx, reason: &str) -> Result<(), StoreError> {
        let alert = NewAlert {
            kind: REVIEW,
            subject: row.intent.to_string(),
            message: format!(
                "Whether {} has paid intent {} can't be known from here ({reason}). Its money stays \
                 held until somebody has asked the provider and resolved the review.",
                row.psp, row.intent
            ),
            details: json!({ "psp": row.psp, "confirm_rq_uid": row.confirm_rq_uid }),
        };
        self.0.raise(&alert).await
    }
}

/// The places before and after a provider is asked, by what for.
const fn asking(state: PspState) -> &'static str {
    match state {
        PspState::ConfirmPending => "psp.asking.payment",
        PspState::Inquiring => "psp.asking.inquiry",
        _ => "psp.asking.lookup",
    }
}

const fn answered(state: PspState) -> &'static str {
    match state {
        PspState::ConfirmPending => "psp.answered.payment",
        PspState::Inquiring => "psp.answered.inquiry",
        _ => "psp.answered.lookup",
    }
}

fn review(reason: &str) -> PspOutcome {
    PspOutcome::ManualReview {
        reason: reason.to_owned(),
        facts: Facts::default(),
    }
}

/// Whether there is more to do at once.
const fn came_on(outcome: &PspOutcome) -> bool {
    match outcome {
        // A payment that may be asked for, and nothing was wrong: it was prepared.
        PspOutcome::InProgress { progress, why, .. } => match progress {
            Progress::LookedUp => true,
            Progress::MayAsk => why.is_none(),
            Progress::LookUpAgain | Progress::InDoubt => false,
        },
        PspOutcome::Confirmed { .. } | PspOutcome::Failed { .. } => true,
        PspOutcome::ManualReview { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_came_on_is_gone_on_with_at_once() {
        let facts = Facts::default;
        let in_progress = |progress, why: Option<&str>| PspOutcome::InProgress {
            progress,
            why: why.map(str::to_owned),
            facts: facts(),
        };
        assert!(came_on(&in_progress(Progress::LookedUp, None)));
        assert!(came_on(&in_progress(Progress::MayAsk, None)));
        for (progress, why) in [
            (Progress::LookUpAgain, Some("busy")),
            (Progress::MayAsk, Some("not sent")),
            (Progress::InDoubt, Some("no answer")),
        ] {
            assert!(!came_on(&in_progress(progress, why)));
        }
        assert!(came_on(&PspOutcome::Confirmed { facts: facts() }));
    }
}
