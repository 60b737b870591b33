//! The master database: the network's own tables.

pub mod access;
pub mod alerts;
pub mod audit;
pub mod book_audit;
pub mod brokers;
pub mod cities;
pub mod credit_lines;
pub mod currencies;
pub mod disputes;
pub mod domains;
pub mod exits;
pub mod feed;
pub mod idempotency;
pub mod invites;
pub mod log;
pub mod moves;
pub mod netting;
pub mod obligations;
pub mod pauses;
pub mod placement;
pub mod requests;
pub mod sagas;
pub mod settlements;
pub mod standing;
pub mod ties;
pub mod uploads;

use sqlx::SqlSafeStr;

use super::StoreError;
use super::pool::{Connection, Pool};

/// A transaction on the master. Dropped without [`commit`] or a rollback, it closes its
/// connection, and the server rolls it back.
pub type MasterTx = Connection;

/// Begins a transaction. Run it in a task of its own where the caller may be dropped.
///
/// # Errors
/// The master being away.
pub async fn begin(master: &Pool) -> Result<MasterTx, StoreError> {
    let mut tx = master.acquire().await.map_err(failed)?;
    let begin = "START TRANSACTION".into_sql_str();
    tx.begin(begin).await.map_err(failed)?;
    Ok(tx)
}

/// # Errors
/// The master's: whether it took effect is unknown where the connection broke.
pub async fn commit(mut tx: MasterTx) -> Result<(), StoreError> {
    tx.commit().await.map_err(failed)
}

pub(crate) fn failed(error: sqlx::Error) -> StoreError {
    StoreError::from_sqlx("master", error)
}
