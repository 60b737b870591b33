//! The tables of a book. Everything goes through a scope of the router.

mod accounts;
mod append;
mod census;
mod feed;
mod held;
mod intention;
mod limit;
pub mod logged;
pub mod partners;
mod read;
mod rows;
mod shard;

pub use accounts::{Closed, Opened, close_account, open_account};
pub use append::{Once, append, append_once};
pub use census::Census;
pub(crate) use census::census;
pub use held::{HeldBook, TableRows};
pub use limit::{Bound, BoundSet, Full, bound_partners, offline_partners, rebound_partners};
pub use read::{
    AccountRow, OF_KIND, Origin, ReservationRow, StepOutcome, account, accounts, accounts_newest,
    booked_before, entries_after, entries_of, entries_of_kind, entries_within, head, origins,
    outcomes_of, reservations_held, step_outcomes, transactions,
};
pub use rows::StoredEntry;
pub(crate) use shard::{set_shard_number, shard_number};

use chrono::{DateTime, Utc};

use super::StoreError;
use super::router::{BookScope, BookSql, BookTx, DatabaseKey, Router};
use crate::domain::chain::genesis;
use crate::domain::ids::BrokerId;

/// Opens an empty book for a broker in a database, with its fence at `epoch`. Running it again
/// changes nothing.
///
/// # Errors
/// The database's.
pub async fn create(
    router: &Router,
    database: &DatabaseKey,
    broker: BrokerId,
    epoch: u64,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let pool = router.database(database)?;
    let failed = |error| StoreError::from_sqlx(&database.server, error);
    let mut tx = super::master::begin(&pool).await?;
    sqlx::query("INSERT IGNORE INTO chain_head (broker_id, seq, tx_hash) VALUES (?, 0, ?)")
        .bind(broker)
        .bind(genesis(broker).0.to_vec())
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    sqlx::query("INSERT IGNORE INTO book_fence (broker_id, state, epoch, created_at) VALUES (?, 'open', ?, ?)")
        .bind(broker)
        .bind(epoch)
        .bind(now)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    tx.commit().await.map_err(failed)
}

const HEAD_FOR_UPDATE: BookSql = BookSql::new(
    "SELECT seq, tx_hash, feed_position, change_seq FROM chain_head WHERE broker_id = ? FOR UPDATE",
);

/// Begins a write with the chain's head locked: nobody else writes in the book until the
/// transaction ends. Every row that it inserts or changes takes the number [`rows::HeadRow::change`],
/// and the head too.
async fn begin(scope: &BookScope) -> Result<(BookTx, rows::HeadRow), StoreError> {
    let (tx, head) = scope.begin(HEAD_FOR_UPDATE).await?;
    let broker = scope.broker();
    Ok((tx, head.ok_or(StoreError::NoBook { broker })?))
}
