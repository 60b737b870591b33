//! The payment manager's database: `PostgreSQL`, schema `pm`.

pub mod audit;
pub mod calls;
pub mod events;
pub mod idempotency;
pub mod incoming;
pub mod intents;
pub mod log_signed;
pub mod outbox;
pub mod queue;
pub mod statements;
pub mod waiting;
pub mod wallets;
pub mod watch;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Executor as _, Postgres, Transaction};

use super::StoreError;

/// A transaction of the payment manager's. Dropped without a commit it is rolled back.
pub type PmTx = Transaction<'static, Postgres>;

/// Bounds of the use of the database.
#[derive(Clone, Copy, Debug)]
pub struct PmBounds {
    pub max_connections: u32,
    /// How long a caller waits for a connection, and a new connection may take.
    pub acquire_timeout: Duration,
    /// How long a statement may take.
    pub statement_timeout: Duration,
}

impl Default for PmBounds {
    fn default() -> Self {
        Self {
            max_connections: 16,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(10),
        }
    }
}

/// What every session has. Nobody waits long for a lock, and one that stands still inside a
/// transaction does not keep its locks.
const SESSION: &str = "SET lock_timeout = '3s'; SET idle_in_transaction_session_timeout = '5s'; \
     SET TIME ZONE 'UTC'";

/// A pool that connects when it is first used.
///
/// # Errors
/// An address that can't be read.
pub fn connect(url: &str, bounds: PmBounds) -> Result<PgPool, StoreError> {
    let options: PgConnectOptions = url.parse().map_err(failed)?;
    let timeout = bounds.statement_timeout.as_millis().to_string();
    let options = options.options([("statement_timeout", timeout.as_str())]);
    Ok(PgPoolOptions::new()
        .max_connections(bounds.max_connections)
        .acquire_timeout(bounds.acquire_timeout)
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute(SESSION).await.map(drop) })
        })
        .connect_lazy_with(options))
}

/// # Errors
/// The database being away.
pub async fn begin(pool: &PgPool) -> Result<PmTx, StoreError> {
    pool.begin().await.map_err(failed)
}

/// # Errors
/// The database's: whether it took effect is unknown where the connection broke.
pub async fn commit(tx: PmTx) -> Result<(), StoreError> {
    tx.commit().await.map_err(failed)
}

pub(crate) fn failed(error: sqlx::Error) -> StoreError {
    StoreError::from_postgres("the payment manager's database", error)
}

/// Minor units as they are kept: what is beyond the column's range was never an amount.
pub(crate) fn kept(minor: u64) -> i64 {
    i64::try_from(minor).unwrap_or(i64::MAX)
}
