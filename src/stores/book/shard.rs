//! `shard_meta`: which shard a database is.

use chrono::{DateTime, Utc};

use crate::stores::StoreError;
use crate::stores::router::{DatabaseKey, Router};

/// The number that a database says it has; `None` for one that is not finished.
///
/// # Errors
/// The database's.
pub(crate) async fn shard_number(
    router: &Router,
    database: &DatabaseKey,
) -> Result<Option<u32>, StoreError> {
    sqlx::query_scalar("SELECT shard_id FROM shard_meta WHERE only_row = 1")
        .fetch_optional(&router.database(database)?)
        .await
        .map_err(|error| StoreError::from_sqlx(&database.server, error))
}

/// Writes a database's number, once and for all.
///
/// # Errors
/// The database's.
pub(crate) async fn set_shard_number(
    router: &Router,
    database: &DatabaseKey,
    number: u32,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("INSERT IGNORE INTO shard_meta (only_row, shard_id, created_at) VALUES (1, ?, ?)")
        .bind(number)
        .bind(now)
        .execute(&router.database(database)?)
        .await
        .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
    Ok(())
}
