//! The move of a broker's book from one database to another while its broker works: its states,
//! who goes on after a crash in each, and what an admin may ask for.
//!
//! | state | what is there | it dies: who goes on |
//! |---|---|---|
//! | `preparing` | the row; perhaps a part of the target | the next claim, from the beginning |
//! | `copying` | source open; target closed, with a part of the rows | the next claim deletes the copy and makes it anew: only the process that copied knows what it has read |
//! | `fencing` | source closed, or about to be | the next claim rolls back, as soon as the short lease is over |
//! | `rolling_back` | the route has a new epoch, the source is to open under it | the next claim opens it |
//! | `flipped` | the route leads to the target, which is to open; the source is to be `moved` | the next claim turns both fences |
//! | `retained` | the book is at its new place; the source is kept until retention ends | – |
//! | `purging` | retention is over and the source is verified: it is being deleted | the next claim |
//! | `done` | nothing but the target | – |
//! | `kept` | what was retained is not what was moved: it stays, for somebody to look at | an admin |
//! | `stuck` | source open; it failed too often | an admin: `retry` or `cancel` |
//! | `cancelling` | source open; the copy is being deleted | the next claim |
//! | `cancelled` | as if it had not been | – |
//! | `abandoned` | a database with what it was to delete is lost, an admin says: that is waited for no longer | an admin, should the database come back: `purge` verifies and deletes |
//!
//! From `fencing` one compare-and-set in the master decides, `flipped` or `rolling_back`, together
//! with the broker's route; fences follow what it says and never lead.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::broker::{BrokerMode, Placement};
use super::canonical::Hash;
use super::chain::Head;
use super::fence::Passage;
use super::ids::BrokerId;
use super::words::words;

words!(
    MoveState {
        Preparing = "preparing",
        Copying = "copying",
        Fencing = "fencing",
        RollingBack = "rolling_back",
        Flipped = "flipped",
        Retained = "retained",
        Purging = "purging",
        Done = "done",
        Kept = "kept",
        Stuck = "stuck",
        Cancelling = "cancelling",
        Cancelled = "cancelled",
        Abandoned = "abandoned",
    }
);

words!(
    /// Why a book moves.
    MoveCause {
        /// An admin wants it.
        Admin = "admin",
        /// The broker's new plan has it in another kind of place.
        Plan = "plan",
        /// It goes back to where it came from.
        Reverse = "reverse",
    }
);

/// What happens to a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoveEvent {
    /// The target is there.
    Prepared,
    /// All but a short tail is copied: the source is to be closed.
    CaughtUp,
    /// The tail is copied and all of it verified.
    Flip,
    RollBack,
    /// The source is open again.
    Reopened,
    /// Both fences are turned.
    Arrived,
    /// Retention is over and what was retained is what was moved.
    Verified,
    /// Retention is over and it is not.
    Differs,
    Purged,
    GiveUp,
    Retry,
    Cancel,
    /// The copy is deleted.
    Cleared,
    /// What is left is in a database that is lost.
    Abandon,
}

impl MoveState {
    /// The next state; `None` where the event can't happen in this one.
    #[must_use]
    pub const fn after(self, event: MoveEvent) -> Option<Self> {
        use MoveEvent as E;
        Some(match (self, event) {
            (Self::Preparing, E::Prepared) | (Self::RollingBack, E::Reopened) => Self::Copying,
            (Self::Copying, E::CaughtUp) => Self::Fencing,
            (Self::Fencing, E::Flip) => Self::Flipped,
            (Self::Fencing, E::RollBack) => Self::RollingBack,
            (Self::Retained, E::Verified) => Self::Purging,
            (Self::Retained | Self::Abandoned, E::Differs) => Self::Kept,
            (Self::Purging | Self::Abandoned, E::Purged) => Self::Done,
            (Self::Preparing | Self::Copying, E::GiveUp) => Self::Stuck,
            (Self::Stuck, E::Retry) => Self::Preparing,
            (Self::Flipped, E::Arrived) | (Self::Kept, E::Retry) => Self::Retained,
            (Self::Preparing | Self::Copying | Self::Stuck, E::Cancel) => Self::Cancelling,
            (Self::Cancelling | Self::Abandoned, E::Cleared) => Self::Cancelled,
            (Self::Cancelling | Self::Retained | Self::Purging | Self::Kept, E::Abandon) => {
                Self::Abandoned
            }
            (
                Self::Preparing
                | Self::Copying
                | Self::Fencing
                | Self::RollingBack
                | Self::Flipped
                | Self::Retained
                | Self::Purging
                | Self::Done
                | Self::Kept
                | Self::Stuck
                | Self::Cancelling
                | Self::Cancelled
                | Self::Abandoned,
                _,
            ) => return None,
        })
    }

    /// Whether the broker can't move elsewhere yet.
    #[must_use]
    pub const fn is_open(self) -> bool {
        match self {
            Self::Preparing
            | Self::Copying
            | Self::Fencing
            | Self::RollingBack
            | Self::Flipped
            | Self::Stuck
            | Self::Cancelling => true,
            Self::Retained
            | Self::Purging
            | Self::Done
            | Self::Kept
            | Self::Cancelled
            | Self::Abandoned => false,
        }
    }

    /// Whether the broker's readers and writers wait.
    #[must_use]
    pub const fn is_closed(self) -> bool {
        match self {
            Self::Fencing | Self::RollingBack | Self::Flipped => true,
            Self::Preparing
            | Self::Copying
            | Self::Retained
            | Self::Purging
            | Self::Done
            | Self::Kept
            | Self::Stuck
            | Self::Cancelling
            | Self::Cancelled
            | Self::Abandoned => false,
        }
    }

    /// Whether all that it will do is to delete rows that nobody needs.
    #[must_use]
    pub const fn deletes(self) -> bool {
        match self {
            Self::Retained | Self::Purging | Self::Cancelling | Self::Abandoned => true,
            Self::Preparing
            | Self::Copying
            | Self::Fencing
            | Self::RollingBack
            | Self::Flipped
            | Self::Done
            | Self::Kept
            | Self::Stuck
            | Self::Cancelled => false,
        }
    }

    /// Whether it has nothing anywhere any more.
    #[must_use]
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Done | Self::Cancelled => true,
            Self::Preparing
            | Self::Copying
            | Self::Fencing
            | Self::RollingBack
            | Self::Flipped
            | Self::Retained
            | Self::Purging
            | Self::Kept
            | Self::Stuck
            | Self::Cancelling
            | Self::Abandoned => false,
        }
    }

    /// Whether nothing will happen to it any more by itself.
    #[must_use]
    pub const fn is_at_rest(self) -> bool {
        match self {
            Self::Done | Self::Kept | Self::Stuck | Self::Cancelled | Self::Abandoned => true,
            Self::Preparing
            | Self::Copying
            | Self::Fencing
            | Self::RollingBack
            | Self::Flipped
            | Self::Retained
            | Self::Purging
            | Self::Cancelling => false,
        }
    }
}

/// A database that holds a book, by the names of the registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookPlace {
    /// `None` for a broker's own database.
    pub shard_id: Option<u32>,
    pub server: String,
    pub database: String,
}

impl BookPlace {
    #[must_use]
    pub const fn mode(&self) -> BrokerMode {
        match self.shard_id {
            Some(_) => BrokerMode::Solo,
            None => BrokerMode::Full,
        }
    }

    #[must_use]
    pub fn placement(&self) -> Placement {
        match self.shard_id {
            Some(shard) => Placement::Shard(shard),
            None => Placement::Own {
                server: self.server.clone(),
                database: self.database.clone(),
            },
        }
    }

    /// Whether it is the same database.
    #[must_use]
    pub fn is(&self, other: &Self) -> bool {
        self.server == other.server && self.database == other.database
    }
}

impl std::fmt::Display for BookPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.shard_id {
            Some(shard) => write!(f, "shard {shard} ({}/{})", self.server, self.database),
            None => write!(f, "{}/{}", self.server, self.database),
        }
    }
}

/// What a move has shown: the same before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveProof {
    pub head: Head,
    /// Over every row, as read from the source.
    pub root_before: Hash,
    /// As read back from the target.
    pub root_after: Hash,
    /// Rows by table.
    pub rows: serde_json::Value,
    /// Of the tables and columns that the roots are over.
    pub layout: Hash,
}

/// A move as the master holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct BrokerMove {
    pub id: Uuid,
    pub broker: BrokerId,
    pub state: MoveState,
    pub cause: MoveCause,
    pub from: BookPlace,
    pub to: BookPlace,
    pub retention_s: u32,
    pub cancel_wanted: bool,
    /// Of the route before the last fencing.
    pub source_epoch: Option<u64>,
    /// How often the source was closed for it.
    pub fencings: u32,
    pub claim: u64,
    pub due_at: Option<DateTime<Utc>>,
    /// Faults since it last came on.
    pub tries: u32,
    pub fault: Option<String>,
    /// Rows in the source when the copy began.
    pub rows_total: u64,
    pub rows_copied: u64,
    pub proof: Option<MoveProof>,
    /// How long the book was closed.
    pub pause_us: Option<u64>,
    pub created_at: DateTime<Utc>,
    pub flipped_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Why what it has left is waited for no longer.
    pub abandoned_because: Option<String>,
}

impl BrokerMove {
    /// When what was left behind is deleted.
    #[must_use]
    pub fn purge_at(&self) -> Option<DateTime<Utc>> {
        match self.state {
            MoveState::Retained => self.due_at,
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::Fencing
            | MoveState::RollingBack
            | MoveState::Flipped
            | MoveState::Purging
            | MoveState::Done
            | MoveState::Kept
            | MoveState::Stuck
            | MoveState::Cancelling
            | MoveState::Cancelled
            | MoveState::Abandoned => None,
        }
    }

    /// Where rows are that are to be deleted once nobody needs them: what it has left, or the copy
    /// of a move that did not arrive.
    #[must_use]
    pub const fn leavings(&self) -> &BookPlace {
        match self.flipped_at {
            Some(_) => &self.from,
            None => &self.to,
        }
    }

    /// The try that has closed the source, or is about to.
    #[must_use]
    pub const fn passage(&self) -> Option<Passage> {
        match self.source_epoch {
            Some(epoch) => Some(Passage {
                move_id: self.id,
                epoch,
            }),
            None => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [MoveEvent; 14] = [
        MoveEvent::Prepared,
        MoveEvent::CaughtUp,
        MoveEvent::Flip,
        MoveEvent::RollBack,
        MoveEvent::Reopened,
        MoveEvent::Arrived,
        MoveEvent::Verified,
        MoveEvent::Differs,
        MoveEvent::Purged,
        MoveEvent::GiveUp,
        MoveEvent::Retry,
        MoveEvent::Cancel,
        MoveEvent::Cleared,
        MoveEvent::Abandon,
    ];

    #[test]
    fn every_move_can_come_to_rest_and_none_is_lost() {
        for state in MoveState::ALL {
            let next: Vec<MoveState> = EVENTS.iter().filter_map(|e| state.after(*e)).collect();
            let ended = matches!(state, MoveState::Done | MoveState::Cancelled);
            assert_eq!(next.is_empty(), ended, "{state:?}");
            // Only an outcome leads out of a closed book, and only into what opens it.
            if *state == MoveState::Fencing {
                assert_eq!(next, [MoveState::Flipped, MoveState::RollingBack]);
            }
            // Once the book has arrived, the move is no way back.
            if matches!(state, MoveState::Flipped | MoveState::Retained) {
                assert!(next.iter().all(|next| !next.is_closed() || *next == *state));
                assert_eq!(state.after(MoveEvent::Cancel), None);
            }
        }
    }

    #[test]
    fn a_closed_book_is_of_an_open_move() {
        for state in MoveState::ALL {
            assert!(!state.is_closed() || state.is_open(), "{state:?}");
            assert!(!state.is_closed() || !state.is_at_rest(), "{state:?}");
        }
    }
}
