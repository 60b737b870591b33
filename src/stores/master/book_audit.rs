//! `book_audit`: which book is to be verified next.

use chrono::{DateTime, Utc};

use super::{MasterTx, failed};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Pool;

/// Puts books that were never audited in line, at most `limit` at a time.
///
/// # Errors
/// The master's.
pub async fn add_new(master: &Pool, limit: u32, now: DateTime<Utc>) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "INSERT IGNORE INTO book_audit (broker_id, due_at)
         SELECT b.broker_id, ? FROM broker b LEFT JOIN book_audit a ON a.broker_id = b.broker_id
         WHERE a.broker_id IS NULL LIMIT ?",
    )
    .bind(now)
    .bind(limit)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}

/// The book that is due for longest. Ends at one row of an index.
pub const DUE: &str = "SELECT broker_id FROM book_audit WHERE due_at <= ?
     ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED";

/// Takes the book that is due for longest; whoever dies over it has put it off until `again`.
///
/// # Errors
/// The master's.
pub async fn take(
    tx: &mut MasterTx,
    again: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<Option<BrokerId>, StoreError> {
    let due: Option<BrokerId> = sqlx::query_scalar(DUE)
        .bind(now)
        .fetch_optional(&mut *tx)
        .await
        .map_err(failed)?;
    if let Some(broker) = due {
        sqlx::query("UPDATE book_audit SET due_at = ? WHERE broker_id = ?")
            .bind(again)
            .bind(broker)
            .execute(tx)
            .await
            .map_err(failed)?;
    }
    Ok(due)
}

/// Records what came of an audit, and when the next one is due.
///
/// # Errors
/// The master's.
pub async fn record(
    tx: &mut MasterTx,
    broker: BrokerId,
    (seq, holds): (u64, bool),
    next: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO book_audit (broker_id, due_at, audited_at, seq, holds) VALUES (?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE due_at = VALUES(due_at), audited_at = VALUES(audited_at),
             seq = VALUES(seq), holds = VALUES(holds)",
    )
    .bind(broker)
    .bind(next)
    .bind(now)
    .bind(seq)
    .bind(holds)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}
