//! What a person must look at: alerts are raised with their causes, and listed and resolved here.

use std::time::Duration;

use serde_json::json;

use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::sagas::{self, STUCK_ALERT, WAITING_ALERT, Waiting};
use crate::stores::pool::Pool;

pub use crate::stores::master::alerts::Alert;

/// What came of resolving an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    Now,
    /// It was resolved already.
    Before,
    NoSuchAlert,
}

/// The subject of alerts that concern no one thing.
const NETWORK: &str = "network";

/// Alerts. Cheap to clone.
#[derive(Clone)]
pub struct AlertService {
    master: Pool,
    clock: Clock,
}

impl AlertService {
    #[must_use]
    pub const fn new(master: Pool, clock: Clock) -> Self {
        Self { master, clock }
    }

    /// Alerts, newest first; open ones only, or all. `before` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        open_only: bool,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Alert>, StoreError> {
        alerts::list(&self.master, open_only, before, limit).await
    }

    /// Looks at the sagas: where some have been going on for longer than `patience`, because a
    /// system is away or for any other reason, one alert says so until there are none. Alerts of
    /// stuck sagas that have ended since (by a worker that was only slow) are resolved.
    ///
    /// # Errors
    /// The master's.
    pub async fn watch_sagas(&self, patience: Duration) -> Result<(), StoreError> {
        let now = self.clock.now();
        alerts::resolve_of_ended_sagas(&self.master, STUCK_ALERT, now).await?;
        let since = now - chrono::Duration::from_std(patience).unwrap_or_default();
        let waiting = sagas::waiting(&self.master, since).await?;
        let mut tx = master::begin(&self.master).await?;
        match waiting {
            Some(waiting) => alerts::raise(&mut tx, &waiting_alert(&waiting), now).await?,
            None => {
                alerts::resolve(&mut tx, WAITING_ALERT, NETWORK, now).await?;
            }
        }
        master::commit(tx).await
    }

    /// Marks an alert resolved. It comes back where what it warns of is still so.
    ///
    /// # Errors
    /// The master's.
    pub async fn resolve(&self, id: u64) -> Result<Resolved, StoreError> {
        if alerts::resolve_id(&self.master, id, self.clock.now()).await? {
            return Ok(Resolved::Now);
        }
        Ok(if alerts::is_there(&self.master, id).await? {
            Resolved::Before
        } else {
            Resolved::NoSuchAlert
        })
    }
}

fn waiting_alert(waiting: &Waiting) -> NewAlert {
    let Waiting {
        count,
        saga_id,
        since,
        error,
    } = waiting;
    let why = error.as_deref().unwrap_or("no try has ended yet");
    NewAlert {
        kind: WAITING_ALERT,
        subject: NETWORK.to_owned(),
        message: format!(
            "{count} sagas have been going on for long, the oldest ({saga_id}) since {}: {why}. \
             They go on by themselves when what they wait for is back.",
            since.to_rfc3339_opts(chrono::SecondsFormat::Secs, true)
        ),
        details: json!({ "count": count, "oldest": saga_id, "since": since, "error": error }),
    }
}
