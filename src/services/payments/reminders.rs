//! What admins are told of for as long as it is so: what waits for a person, and what doesn't come
//! on by itself.
//!
//! Whoever writes down that a person must look may die before it could tell, and an alert that was
//! resolved by hand may be right all the same: so all of it is looked at again and again.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::json;

use super::Inner;
use super::turns::PspEngine;
use crate::domain::payment::PspName;
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::pm::waiting::{self, Waiting};
use crate::stores::pm::{incoming, queue};

/// Kind of the alert of payments that don't come on; its subject is the provider that they are at,
/// or what of ours they wait for.
pub const WAITING: &str = "payments_waiting";
/// What is to be told to the ledger and books.
const LEDGER: &str = "ledger";
/// What came in.
const INCOMING: &str = "incoming";

impl PspEngine {
    /// Tells admins of all that waits for a person, at most `limit` of each kind, and of what has
    /// been going on for longer than it should. One that can't be told keeps nobody from hearing of
    /// the others.
    ///
    /// # Errors
    /// The first of the databases'.
    pub async fn remind(&self, limit: u32) -> Result<(), StoreError> {
        let inner = &self.0;
        let mut all = Ok(());
        for told in [
            self.remind_of_reviews(limit).await,
            inner.remind_of_incoming(limit).await,
            inner.watch_queues().await,
            inner.watch_outbox().await,
            inner.watch_incoming().await,
        ] {
            all = all.and(told);
        }
        all
    }

    async fn remind_of_reviews(&self, limit: u32) -> Result<(), StoreError> {
        for row in queue::reviews(&self.0.pm, None, limit).await? {
            let reason = row.last_error.clone().unwrap_or_default();
            self.alert(&row, &reason).await?;
        }
        Ok(())
    }
}

impl Inner {
    async fn remind_of_incoming(&self, limit: u32) -> Result<(), StoreError> {
        for payment in incoming::of_nobody(&self.pm, limit).await? {
            self.alert_open(&payment).await?;
        }
        Ok(())
    }

    async fn watch_queues(&self) -> Result<(), StoreError> {
        let mut all = Ok(());
        for psp in PspName::ALL {
            all = all.and(self.watch_queue(*psp).await);
        }
        all
    }

    async fn watch_queue(&self, psp: PspName) -> Result<(), StoreError> {
        let driver = self.providers.get(psp);
        let longer: Vec<(&str, f64)> = driver.map_or_else(Vec::new, |driver| {
            let longer = driver.works_on_it().into_iter();
            longer
                .map(|(why, time)| (why, time.as_secs_f64()))
                .collect()
        });
        let since = self.clock.now() - self.rules.patience;
        let found = waiting::of_provider(&self.pm, psp, &longer, since).await?;
        let at = format!("at {psp}");
        self.tell_of(psp.as_str(), &at, found).await
    }

    async fn watch_outbox(&self) -> Result<(), StoreError> {
        let since = self.clock.now() - self.rules.patience;
        let found = waiting::of_outbox(&self.pm, since).await?;
        self.tell_of(LEDGER, "to be told to the ledger or a book", found)
            .await
    }

    async fn watch_incoming(&self) -> Result<(), StoreError> {
        let since = self.clock.now() - self.rules.patience;
        let found = waiting::of_incoming(&self.pm, since).await?;
        let what = "said to have come in and credited to nobody";
        self.tell_of(INCOMING, what, found).await
    }

    async fn tell_of(
        &self,
        subject: &str,
        what: &str,
        found: Option<Waiting>,
    ) -> Result<(), StoreError> {
        if let Some(found) = found {
            return self.raise(&waiting_alert(subject, what, &found)).await;
        }
        let mut tx = master::begin(&self.master).await?;
        alerts::resolve(&mut tx, WAITING, subject, self.clock.now()).await?;
        master::commit(tx).await
    }
}

fn waiting_alert(subject: &str, what: &str, found: &Waiting) -> NewAlert {
    let Waiting {
        intent,
        since,
        why,
        count,
    } = found;
    let named = intent.map_or_else(String::new, |intent| format!(" (intent {intent})"));
    let reason = why.as_deref().unwrap_or("no try has ended yet");
    NewAlert {
        kind: WAITING,
        subject: subject.to_owned(),
        message: format!(
            "{count} payments have been {what} for long, the oldest{named} since {}: {reason}. \
             Their money stays held. They go on by themselves when what they wait for is there.",
            since.to_rfc3339_opts(SecondsFormat::Secs, true)
        ),
        details: json!({ "count": count, "oldest": intent, "since": since, "error": why }),
    }
}

/// How long a payment may go on before somebody should know, where nothing else is said.
pub(super) const PATIENCE: TimeDelta = TimeDelta::minutes(10);
