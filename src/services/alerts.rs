//! What a person must look at: alerts are raised with their causes, and listed and resolved here.

use crate::stores::pool::Pool;

use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master::alerts;

pub use crate::stores::master::alerts::Alert;

/// What came of resolving an alert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolved {
    Now,
    /// It was resolved already.
    Before,
    NoSuchAlert,
}

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
