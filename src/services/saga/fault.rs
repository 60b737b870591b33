use std::sync::Arc;

use crate::services::lanes::Dropped;
use crate::stores::StoreError;
use crate::stores::ledger::LedgerError;

/// Why a try at a saga did not come to an end. Nothing that it did is lost or undone by it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Fault {
    /// A system is away. That says nothing about the saga, so it is no failed try.
    #[error("{0}")]
    Away(String),
    /// A try that failed and may succeed the next time.
    #[error("{0}")]
    Transient(String),
    /// What is there contradicts itself: a person must look.
    #[error("{0}")]
    Integrity(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::from(&error)
    }
}

impl From<Arc<StoreError>> for Fault {
    fn from(error: Arc<StoreError>) -> Self {
        Self::from(&*error)
    }
}

impl From<&StoreError> for Fault {
    fn from(error: &StoreError) -> Self {
        let text = error.to_string();
        match error {
            StoreError::Unavailable { .. }
            | StoreError::Outdated { .. }
            | StoreError::Moving { .. } => Self::Away(text),
            StoreError::Busy { .. } | StoreError::Database { .. } => Self::Transient(text),
            StoreError::NoBook { .. }
            | StoreError::UnknownServer { .. }
            | StoreError::Corrupt { .. } => Self::Integrity(text),
        }
    }
}

impl From<LedgerError> for Fault {
    fn from(error: LedgerError) -> Self {
        let text = error.to_string();
        match error {
            LedgerError::Unknown { .. } | LedgerError::Client(_) => Self::Away(text),
            LedgerError::Integrity { .. } | LedgerError::Invalid { .. } => Self::Integrity(text),
        }
    }
}

impl From<Dropped> for Fault {
    fn from(dropped: Dropped) -> Self {
        Self::Transient(dropped.to_string())
    }
}
