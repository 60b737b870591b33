//! Payments that were made and come back: a provider may send the money back weeks after it had
//! sent it out.
//!
//! Whatever a provider may send back is asked about for as long as it may, at ever longer
//! intervals, and once more after that: only an answer ends it. That it came back is written down once, with what the ledger and the book are to be
//! told; what is confirmed is never changed, new transfers correct it.

use chrono::TimeDelta;
use serde_json::json;

use super::incoming::CONTRADICTS;
use super::turns::PspEngine;
use super::{Inner, PaymentError};
use crate::domain::payment::{IntentStatus, OutboxAction, PspName, PspState};
use crate::psp::{Made, Word};
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::master::alerts::NewAlert;
use crate::stores::pm::events::{self, NewIntentEvent};
use crate::stores::pm::intents::Intent;
use crate::stores::pm::queue::PspTx;
use crate::stores::pm::watch::{self, Watched};
use crate::stores::pm::{self, PmTx, intents, outbox, queue};

/// The shortest and the longest wait between two questions about one payment, in seconds.
const BETWEEN: (f64, f64) = (300.0, 21_600.0);

impl PspEngine {
    /// Asks a provider about payments that it may send back; gives how many it was asked about.
    ///
    /// # Errors
    /// The first of the database's; the others are asked about all the same, and what could not
    /// be asked is asked again in its turn.
    pub async fn watch(&self, psp: PspName, limit: u32) -> Result<usize, PaymentError> {
        let inner = &self.0;
        let now = inner.clock.now();
        let due = watch::due(&inner.pm, psp, BETWEEN, limit, now).await?;
        let mut all = Ok(());
        for one in &due {
            let looked = self.look_at(psp, one).await;
            if let Err(error) = &looked {
                tracing::warn!(%error, intent = %one.intent_id, "it is asked about in its turn");
            }
            all = all.and(looked);
        }
        all?;
        Ok(due.len())
    }

    async fn look_at(&self, psp: PspName, watched: &Watched) -> Result<(), PaymentError> {
        let inner = &self.0;
        let Some(driver) = inner.providers.get(psp) else {
            return Ok(());
        };
        let id = watched.intent_id;
        let row = queue::of(&inner.pm, id).await?;
        let Some(row) = row.filter(|row| row.state == PspState::Confirmed) else {
            return self.stop_watching(watched).await;
        };
        let intent = intents::get(&inner.pm, id).await?;
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        let currency = inner.currencies.get(&intent.currency).await?;
        let (Some(currency), Some(uid)) = (currency, row.confirm_rq_uid.as_deref()) else {
            return Err(PaymentError::NoSuchIntent);
        };
        let made = Made {
            uid,
            facts: &row.facts,
            amount: intent.amount,
            exponent: currency.exponent,
            currency: &intent.currency,
        };
        let answer = driver.sent_back(&made).await;
        self.keep(&row, &answer.calls).await?;
        match answer.word {
            Word::SentBack => {}
            // Whatever it was asked before, it may have come back since.
            Word::Silent(_) => return Ok(()),
            Word::AsItWas => {
                watch::heard(&inner.pm, id, inner.clock.now()).await?;
                return self.end_if_over(watched).await;
            }
            Word::Nothing(_) => return self.end_if_over(watched).await,
            Word::Anothers(why) => {
                self.alert_anothers(&row, &why).await?;
                return self.end_if_over(watched).await;
            }
        }
        watch::heard(&inner.pm, id, inner.clock.now()).await?;
        if intent.status != IntentStatus::Completed {
            // The ledger has not been told that it was paid. It is asked again.
            return Ok(());
        }
        let now = inner.clock.now();
        let mut tx = pm::begin(&inner.pm).await?;
        watch::end(&mut tx, id).await?;
        let event = inner.entropy.uuid(now);
        if outbox::insert(&mut tx, event, id, OutboxAction::Return, now).await? {
            let line = NewIntentEvent {
                intent: id,
                from: Some(intent.status),
                to: intent.status,
                reason: Some("sent_back"),
                payload: json!({ "psp": { "name": psp, "response_id": row.facts.response_id } }),
            };
            events::insert(&mut tx, &line, now).await?;
        }
        failpoint::at("watch.told.before");
        pm::commit(tx).await?;
        inner.wake.up();
        Ok(())
    }

    /// An answer of after the time that it could come back in is the last.
    async fn end_if_over(&self, watched: &Watched) -> Result<(), PaymentError> {
        if self.0.clock.now() < watched.until_at {
            return Ok(());
        }
        self.stop_watching(watched).await
    }

    async fn alert_anothers(&self, row: &PspTx, why: &str) -> Result<(), StoreError> {
        let alert = NewAlert {
            kind: CONTRADICTS,
            subject: row.intent.to_string(),
            message: format!(
                "What {} is asked about for intent {} is not its payment: {why}. Whether its own has \
                 come back can't be heard; find out at the provider.",
                row.psp, row.intent
            ),
            details: json!({
                "psp": row.psp,
                "payment_id": row.facts.response_id,
                "confirm_rq_uid": row.confirm_rq_uid,
            }),
        };
        self.0.raise(&alert).await
    }

    async fn stop_watching(&self, watched: &Watched) -> Result<(), PaymentError> {
        let mut tx = pm::begin(&self.0.pm).await?;
        watch::end(&mut tx, watched.intent_id).await?;
        Ok(pm::commit(tx).await?)
    }
}

impl Inner {
    /// Has a payment that was made watched, where its provider sends any back.
    pub(super) async fn have_watched(
        &self,
        tx: &mut PmTx,
        intent: &Intent,
    ) -> Result<(), StoreError> {
        let psp = intent.channel;
        // Another process may have the provider where this one has not.
        let within = match self.providers.get(psp) {
            Some(driver) => driver.sends_back_within().map(TimeDelta::from_std),
            None => psp.sends_back_within().map(Ok),
        };
        let Some(Ok(within)) = within else {
            return Ok(());
        };
        let now = self.clock.now();
        watch::insert(tx, intent.id, psp, now + within, now).await
    }
}
