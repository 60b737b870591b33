//! Arbiters' ties: an arbiter who belongs, or has belonged, to a broker hears no dispute of it. What the
//! network can't know, that somebody of another name is the same person, an admin writes down.

use crate::domain::access::Role;
use crate::domain::ids::{BrokerId, UserId};
use crate::domain::reason::{self, NotAReason};
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master::access::user;
use crate::stores::master::{self, brokers, ties};
use crate::stores::pool::Pool;

pub use crate::stores::master::ties::Tie;

/// Why a tie was not written down, or not ended.
#[derive(Debug, thiserror::Error)]
pub enum TieError {
    #[error(transparent)]
    Reason(#[from] NotAReason),
    #[error("no arbiter {id}")]
    NoSuchArbiter { id: UserId },
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("no tie {id}")]
    NoSuchTie { id: u64 },
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Arbiters' ties. Cheap to clone.
#[derive(Clone)]
pub struct ArbiterService {
    master: Pool,
    clock: Clock,
}

impl ArbiterService {
    #[must_use]
    pub const fn new(master: Pool, clock: Clock) -> Self {
        Self { master, clock }
    }

    /// Ties an arbiter to a broker: from now on they hear no dispute of it, and what they are hearing
    /// another arbiter may take over. One that is tied already stays so, for the first reason.
    ///
    /// # Errors
    /// See [`TieError`].
    pub async fn tie(
        &self,
        arbiter: UserId,
        broker: BrokerId,
        reason: &str,
        by: &str,
    ) -> Result<Tie, TieError> {
        let reason = reason::checked(reason)?;
        let mut tx = master::begin(&self.master).await?;
        let person = user::by_id(&mut tx, arbiter).await?;
        drop(tx);
        if person.is_none_or(|person| person.role != Role::Arbiter) {
            return Err(TieError::NoSuchArbiter { id: arbiter });
        }
        if brokers::get(&self.master, broker).await?.is_none() {
            return Err(TieError::NoSuchBroker { id: broker });
        }
        let now = self.clock.now();
        ties::insert(&self.master, (arbiter, broker), &reason, by, now).await?;
        let tie = ties::active(&self.master, arbiter, broker).await?;
        // Somebody has ended it this moment.
        tie.ok_or(TieError::NoSuchTie { id: 0 })
    }

    /// Ends a tie. One that has ended stays as it is.
    ///
    /// # Errors
    /// See [`TieError`].
    pub async fn untie(&self, id: u64, by: &str) -> Result<Tie, TieError> {
        ties::end(&self.master, id, by, self.clock.now()).await?;
        let tie = ties::get(&self.master, id).await?;
        tie.ok_or(TieError::NoSuchTie { id })
    }

    /// Ties, the last first, at most `limit`; those that have ended too where `all`.
    ///
    /// # Errors
    /// The master's.
    pub async fn ties(&self, all: bool, limit: u32) -> Result<Vec<Tie>, StoreError> {
        ties::list(&self.master, all, None, limit).await
    }
}
