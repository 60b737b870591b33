//! `book_audit`: which book is to be verified next.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, FromRow};

use super::{MasterTx, failed};
use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, placeholders};

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

/// Books that have grown are due `within` a time of their last audit, and not only when their round is
/// over.
///
/// # Errors
/// The master's.
pub async fn grown(
    master: &Pool,
    brokers: &[BrokerId],
    within: Duration,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let within = i64::try_from(within.as_secs()).unwrap_or(i64::MAX);
    let mut rest = brokers;
    for size in chunks(brokers.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let sql = format!(
            "UPDATE book_audit
             SET due_at = LEAST(due_at, GREATEST(?, audited_at + INTERVAL ? SECOND))
             WHERE broker_id IN ({}) AND holds = 1",
            placeholders(chunk.len())
        );
        let mut query = sqlx::query(AssertSqlSafe(sql)).bind(now).bind(within);
        for broker in chunk {
            query = query.bind(*broker);
        }
        query.execute(master).await.map_err(failed)?;
    }
    Ok(())
}

/// What is known of a book that held when it was audited last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Up to there.
    pub to: Head,
    /// When it was last verified from genesis.
    pub whole_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct HeldRow {
    seq: u64,
    tx_hash: Option<Vec<u8>>,
    whole_at: Option<DateTime<Utc>>,
}

/// See [`Held`]; nothing of a book that was never audited, or did not hold.
///
/// # Errors
/// The master's.
pub async fn held(master: &Pool, broker: BrokerId) -> Result<Option<Held>, StoreError> {
    let row: Option<HeldRow> = sqlx::query_as(
        "SELECT seq, tx_hash, whole_at FROM book_audit WHERE broker_id = ? AND holds = 1",
    )
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(row.and_then(|row| {
        let hash = Hash(row.tx_hash?.try_into().ok()?);
        let to = Head { seq: row.seq, hash };
        let whole_at = row.whole_at?;
        Some(Held { to, whole_at })
    }))
}

/// Records what came of an audit, and when the next one is due: up to where the book holds, and when
/// it was last verified from genesis where all of it does.
///
/// # Errors
/// The master's.
pub async fn record(
    tx: &mut MasterTx,
    broker: BrokerId,
    (to, whole_at): (Head, Option<DateTime<Utc>>),
    next: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO book_audit (broker_id, due_at, audited_at, seq, tx_hash, holds, whole_at)
         VALUES (?, ?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE due_at = VALUES(due_at), audited_at = VALUES(audited_at),
             seq = VALUES(seq), tx_hash = VALUES(tx_hash), holds = VALUES(holds),
             whole_at = VALUES(whole_at)",
    )
    .bind(broker)
    .bind(next)
    .bind(now)
    .bind(to.seq)
    .bind(to.hash.0.to_vec())
    .bind(whole_at.is_some())
    .bind(whole_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}
