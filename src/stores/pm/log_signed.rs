//! `pm.log_signed`: the last state of each log that was signed, apart from the master that has the
//! log.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{PmTx, failed};
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::Checkpoint;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

#[derive(FromRow)]
struct Row {
    log_number: i64,
    origin: String,
    size: i64,
    root: Vec<u8>,
}

/// The last state that was signed of the last log of that name, and the log's number; its row is
/// locked. `None` where nothing was ever signed.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn lock_last(tx: &mut PmTx, name: &str) -> Result<Option<(u32, Checkpoint)>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT log_number, origin, size, root FROM pm.log_signed
         WHERE name = $1 ORDER BY log_number DESC LIMIT 1 FOR UPDATE",
    )
    .bind(name)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed)?;
    row.map(|row| {
        let bad = |column: &str| corrupt("pm.log_signed", column);
        let number = u32::try_from(row.log_number).map_err(|_| bad("log_number"))?;
        let root = row.root.try_into().map_err(|_| bad("root"))?;
        let checkpoint = Checkpoint {
            origin: row.origin,
            size: u64::try_from(row.size).map_err(|_| bad("size"))?,
            root: Hash(root),
        };
        Ok((number, checkpoint))
    })
    .transpose()
}

/// Writes down a state that is about to be signed. One that is larger stays; false where it does.
///
/// # Errors
/// The database's.
pub async fn put(
    tx: &mut PmTx,
    name: &str,
    log: u32,
    checkpoint: &Checkpoint,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let size = i64::try_from(checkpoint.size).unwrap_or(i64::MAX);
    let done = sqlx::query(
        "INSERT INTO pm.log_signed AS s (name, log_number, origin, size, root, signed_at)
         VALUES ($1, $2, $3, $4, $5, $6)
         ON CONFLICT (name, log_number) DO UPDATE
         SET size = EXCLUDED.size, root = EXCLUDED.root, signed_at = EXCLUDED.signed_at
         WHERE s.size < EXCLUDED.size OR (s.size = EXCLUDED.size AND s.root = EXCLUDED.root)",
    )
    .bind(name)
    .bind(i64::from(log))
    .bind(&checkpoint.origin)
    .bind(size)
    .bind(checkpoint.root.0.to_vec())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}
