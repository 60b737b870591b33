//! The master database: the network's own tables.

pub mod access;
pub mod alerts;
pub mod audit;
pub mod brokers;
pub mod currencies;
pub mod feed;
pub mod idempotency;
pub mod obligations;
pub mod placement;
pub mod requests;
pub mod sagas;
pub mod standing;
pub mod uploads;

use sqlx::{MySql, MySqlPool, Transaction};

use super::StoreError;

/// A transaction on the master.
pub type MasterTx = Transaction<'static, MySql>;

/// Begins a transaction. Run it in a task of its own where the caller may be dropped.
///
/// # Errors
/// The master being away.
pub async fn begin(master: &MySqlPool) -> Result<MasterTx, StoreError> {
    master.begin().await.map_err(failed)
}

/// # Errors
/// The master's: whether it took effect is unknown where the connection broke.
pub async fn commit(tx: MasterTx) -> Result<(), StoreError> {
    tx.commit().await.map_err(failed)
}

pub(crate) fn failed(error: sqlx::Error) -> StoreError {
    StoreError::from_sqlx("master", error)
}
