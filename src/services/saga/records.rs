//! The sagas as the master has them: for admins, and for what is measured. The ledger has no part
//! in it.

use crate::stores::pool::Pool;
use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::saga::SagaStatus;
use crate::stores::StoreError;
use crate::stores::master::sagas;

pub use crate::stores::master::sagas::SagaRecord;

/// The records of sagas. Cheap to clone.
#[derive(Clone)]
pub struct SagaRecords {
    master: Pool,
}

impl SagaRecords {
    #[must_use]
    pub const fn new(master: Pool) -> Self {
        Self { master }
    }

    /// Sagas, those that changed last first; of one status or all. `after` is the last of the
    /// page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        status: Option<SagaStatus>,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<SagaRecord>, StoreError> {
        sagas::list(&self.master, status, after, limit).await
    }

    /// The numbers of sagas that have not ended, by status.
    ///
    /// # Errors
    /// The master's.
    pub async fn counts(&self) -> Result<Vec<(SagaStatus, u64)>, StoreError> {
        sagas::counts(&self.master).await
    }

    /// How many sagas a worker has or will have to run, and when the oldest of them was recorded.
    ///
    /// # Errors
    /// The master's.
    pub async fn backlog(&self) -> Result<(u64, Option<DateTime<Utc>>), StoreError> {
        sagas::backlog(&self.master).await
    }
}
