//! What admins are told of for as long as it is so: what waits for a person, and what doesn't come
//! on by itself.
//!
//! Whoever writes down that a person must look may die before it could tell, and an alert that was
//! resolved by hand may be right all the same: so all of it is looked at again and again.

use chrono::{SecondsFormat, TimeDelta};
use serde_json::json;

use super::Inner;
use super::incoming::SUSPENSE;
use super::outbox::STUCK;
use super::turns::{PspEngine, REVIEW};
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::{PspName, PspState};
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::pm::waiting::{self, Waiting};
use crate::stores::pm::{incoming, outbox, queue};

/// Kind of the alert of payments that don't come on; its subject is the provider that they are at,
/// or what of ours they wait for.
pub const WAITING: &str = "payments_waiting";
/// Kind of the alert of payments that may have come back, and of which nothing is heard; its subject
/// is the provider.
pub const UNWATCHED: &str = "payments_unwatched";
/// Questions are at most six hours apart: after so long several have had no answer.
const UNHEARD: TimeDelta = TimeDelta::hours(24);
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
            inner.remind_of_stuck(limit).await,
            inner.remind_of_incoming(limit).await,
            inner.watch_watches().await,
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
            let row = queue::of(&self.0.pm, row.intent).await?;
            if let Some(over) = row.filter(|row| row.state != PspState::ManualReview) {
                // Somebody has resolved it meanwhile.
                self.0.over(REVIEW, &over.intent.to_string()).await?;
            }
        }
        Ok(())
    }
}

impl Inner {
    async fn remind_of_incoming(&self, limit: u32) -> Result<(), StoreError> {
        for payment in incoming::of_nobody(&self.pm, limit).await? {
            self.alert_open(&payment).await?;
            let now = incoming::get(&self.pm, payment.id).await?;
            if now.is_some_and(|now| now.status == IncomingStatus::Assigned) {
                // Somebody has given it to somebody meanwhile.
                self.over(SUSPENSE, &payment.id.to_string()).await?;
            }
        }
        for payment in incoming::disputed(&self.pm, limit).await? {
            let why = payment.last_error.clone().unwrap_or_default();
            self.alert_dispute(&payment, &why).await?;
        }
        Ok(())
    }

    async fn remind_of_stuck(&self, limit: u32) -> Result<(), StoreError> {
        for one in outbox::stuck(&self.pm, None, limit).await? {
            let error = one.error.unwrap_or_default();
            self.alert_stuck(one.intent, one.action, &error).await?;
            if !outbox::is_stuck(&self.pm, one.intent).await? {
                // Somebody has it tried again meanwhile.
                self.over(STUCK, &one.intent.to_string()).await?;
            }
        }
        Ok(())
    }

    async fn watch_watches(&self) -> Result<(), StoreError> {
        let mut all = Ok(());
        for psp in PspName::ALL {
            all = all.and(self.watch_watch(*psp).await);
        }
        all
    }

    async fn watch_watch(&self, psp: PspName) -> Result<(), StoreError> {
        let since = self.clock.now() - UNHEARD;
        let found = waiting::of_watch(&self.pm, psp, since).await?;
        let Some(found) = found else {
            return self.over(UNWATCHED, psp.as_str()).await;
        };
        self.raise(&unwatched_alert(psp, &found)).await
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
        self.over(WAITING, subject).await
    }

    /// What it told of is so no more.
    async fn over(&self, kind: &str, subject: &str) -> Result<(), StoreError> {
        let mut tx = master::begin(&self.master).await?;
        alerts::resolve(&mut tx, kind, subject, self.clock.now()).await?;
        master::commit(tx).await
    }
}

fn unwatched_alert(psp: PspName, found: &Waiting) -> NewAlert {
    let Waiting {
        intent,
        since,
        why,
        count,
    } = found;
    let named = intent.map_or_else(String::new, |intent| format!(" (intent {intent})"));
    let reason = why.as_deref().unwrap_or("nobody has asked");
    NewAlert {
        kind: UNWATCHED,
        subject: psp.as_str().to_owned(),
        message: format!(
            "Of {count} payments that {psp} may send back nothing has been heard for long, of the \
             first{named} since {}: {reason}. One that came back would not be noticed. They are asked \
             about until there is an answer; a worker needs the provider in its configuration.",
            since.to_rfc3339_opts(SecondsFormat::Secs, true)
        ),
        details: json!({ "count": count, "oldest": intent, "since": since, "error": why }),
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
