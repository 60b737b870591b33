//! `login_throttle` and `login_address`.

use chrono::{DateTime, Utc};

use super::{StoreError, failed};
use crate::domain::canonical::Hash;
use crate::domain::throttle::ThrottleRecord;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// The record of a subject, locked; a row is made for it where there is none.
///
/// # Errors
/// The database's.
pub async fn lock(
    conn: &mut MasterTx,
    subject: Hash,
    now: DateTime<Utc>,
) -> Result<ThrottleRecord, StoreError> {
    // Not INSERT IGNORE: that takes a shared lock on a row that is there, and two of those,
    // each wanting more, are a deadlock.
    sqlx::query(
        "INSERT INTO login_throttle (subject, attempts, window_started_at, updated_at)
         VALUES (?, 0, ?, ?) ON DUPLICATE KEY UPDATE attempts = attempts",
    )
    .bind(subject.0.as_slice())
    .bind(now)
    .bind(now)
    .execute(&mut *conn)
    .await
    .map_err(failed)?;
    let (attempts, window_started_at, blocked_until) = sqlx::query_as(
        "SELECT attempts, window_started_at, blocked_until FROM login_throttle
         WHERE subject = ? FOR UPDATE",
    )
    .bind(subject.0.as_slice())
    .fetch_one(conn)
    .await
    .map_err(failed)?;
    Ok(ThrottleRecord {
        attempts,
        window_started_at,
        blocked_until,
    })
}

/// # Errors
/// The database's.
pub async fn save(
    conn: &mut MasterTx,
    subject: Hash,
    record: ThrottleRecord,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE login_throttle
         SET attempts = ?, window_started_at = ?, blocked_until = ?, updated_at = ?
         WHERE subject = ?",
    )
    .bind(record.attempts)
    .bind(record.window_started_at)
    .bind(record.blocked_until)
    .bind(now)
    .bind(subject.0.as_slice())
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Forgets a subject: it has proved itself.
///
/// # Errors
/// The database's.
pub async fn forget(pool: &Pool, subject: Hash) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM login_throttle WHERE subject = ?")
        .bind(subject.0.as_slice())
        .execute(pool)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Takes one attempt back, and leaves a wait that others have earned.
///
/// # Errors
/// The database's.
pub async fn refund(pool: &Pool, subject: Hash) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE login_throttle SET attempts = attempts - 1 WHERE subject = ? AND attempts > 0",
    )
    .bind(subject.0.as_slice())
    .execute(pool)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Deletes up to `limit` records untouched since `before`; how many.
///
/// # Errors
/// The database's.
pub async fn purge(pool: &Pool, before: DateTime<Utc>, limit: u32) -> Result<u64, StoreError> {
    let done = sqlx::query("DELETE FROM login_throttle WHERE updated_at < ? LIMIT ?")
        .bind(before)
        .bind(limit)
        .execute(pool)
        .await
        .map_err(failed)?;
    Ok(done.rows_affected())
}

/// Notes that a login has proved itself from an address block.
///
/// # Errors
/// The database's.
pub async fn prove(pool: &Pool, subject: Hash, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO login_address (subject, proved_at) VALUES (?, ?)
         ON DUPLICATE KEY UPDATE proved_at = VALUES(proved_at)",
    )
    .bind(subject.0.as_slice())
    .bind(now)
    .execute(pool)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Whether a login has proved itself from an address block since a time.
///
/// # Errors
/// The database's.
pub async fn is_proved(
    pool: &Pool,
    subject: Hash,
    since: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let found: Option<i32> =
        sqlx::query_scalar("SELECT 1 FROM login_address WHERE subject = ? AND proved_at >= ?")
            .bind(subject.0.as_slice())
            .bind(since)
            .fetch_optional(pool)
            .await
            .map_err(failed)?;
    Ok(found.is_some())
}

/// Deletes up to `limit` proofs from before a time; how many.
///
/// # Errors
/// The database's.
pub async fn purge_proofs(
    pool: &Pool,
    before: DateTime<Utc>,
    limit: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query("DELETE FROM login_address WHERE proved_at < ? LIMIT ?")
        .bind(before)
        .bind(limit)
        .execute(pool)
        .await
        .map_err(failed)?;
    Ok(done.rows_affected())
}
