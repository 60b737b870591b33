use uuid::Uuid;

use crate::domain::book_check::BookFault;
use crate::domain::fence::NotOurs;
use crate::services::provisioning::ProvisioningError;
use crate::stores::StoreError;

/// Why a try at a move has failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Fault {
    /// Another process has gone on with it.
    #[error("another process has taken the move on")]
    Lost,
    /// This process is asked to end.
    #[error("the process ends")]
    Stopping,
    #[error("a server did not answer while the book was closed")]
    StoodStill,
    /// Not by this move: an import goes on, or has died.
    #[error("the book is closed by something else, such as an import that has to be finished")]
    Closed,
    #[error("{side}: {error}")]
    Fence {
        side: &'static str,
        #[source]
        error: NotOurs,
    },
    #[error("what the target has in {table} is not what was written there")]
    Differs { table: &'static str },
    #[error("the roots over the source and the target differ")]
    RootsDiffer,
    /// An earlier move has left something in the target that is not what it moved.
    #[error(
        "what move {id} has left there is not what it moved: it is kept, and must be looked at first"
    )]
    LeftBehind { id: Uuid },
    /// The book was wrong before it was to move.
    #[error("the book does not hold: {0}")]
    Book(#[from] BookFault),
    #[error("the tail could not be copied within the bound while the book was closed")]
    TooSlow,
    #[error(transparent)]
    Provisioning(#[from] ProvisioningError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What is to be done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Remedy {
    /// Nothing: somebody else does.
    Leave,
    /// Wait until a system is back.
    Wait,
    /// Try again, a bounded number of times.
    Retry,
    /// Only a person can tell.
    Tell,
}

impl Fault {
    pub(super) const fn remedy(&self) -> Remedy {
        match self {
            Self::Lost => Remedy::Leave,
            Self::Fence { .. }
            | Self::Differs { .. }
            | Self::RootsDiffer
            | Self::LeftBehind { .. }
            | Self::Book(_) => Remedy::Tell,
            Self::Stopping | Self::Closed | Self::StoodStill => Remedy::Wait,
            Self::Provisioning(ProvisioningError::Store(error)) | Self::Store(error) => {
                // A copy that another claim has taken shows as a book that is moving.
                match error {
                    StoreError::Unavailable { .. } | StoreError::Outdated { .. } => Remedy::Wait,
                    StoreError::Moving { .. } => Remedy::Leave,
                    StoreError::Corrupt { .. } => Remedy::Tell,
                    StoreError::Busy { .. }
                    | StoreError::NoBook { .. }
                    | StoreError::UnknownServer { .. }
                    | StoreError::Database { .. } => Remedy::Retry,
                }
            }
            Self::TooSlow | Self::Provisioning(_) => Remedy::Retry,
        }
    }
}
