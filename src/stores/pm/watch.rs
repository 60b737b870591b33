//! `pm.psp_watch`: payments that were made and may yet be sent back.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{PmTx, failed};
use crate::domain::payment::PspName;
use crate::stores::StoreError;

/// A payment that is due to be asked about.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Watched {
    pub intent_id: Uuid,
    /// It can't come back after that.
    pub until_at: DateTime<Utc>,
}

/// Has a payment watched until a time.
///
/// # Errors
/// The database's.
pub async fn insert(
    tx: &mut PmTx,
    intent: Uuid,
    psp: PspName,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.psp_watch (intent_id, psp_name, next_at, until_at, created_at)
         VALUES ($1, $2, $3, $4, $3) ON CONFLICT (intent_id) DO NOTHING",
    )
    .bind(intent)
    .bind(psp.as_str())
    .bind(now)
    .bind(until)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Takes on what is due, the longest due first, and says when it is due again: after a tenth of its
/// age, at least `$3` and at most `$4` seconds. `$1` the provider, `$2` now, `$5` how many.
pub const DUE: &str = "WITH due AS (
         SELECT intent_id FROM pm.psp_watch
         WHERE psp_name = $1 AND next_at <= $2
         ORDER BY next_at
         LIMIT $5
         FOR UPDATE SKIP LOCKED
     )
     UPDATE pm.psp_watch w
     SET next_at = $2 + make_interval(secs => LEAST(GREATEST(
             extract(epoch FROM $2 - w.created_at)::float8 / 10, $3), $4))
     FROM due WHERE w.intent_id = due.intent_id
     RETURNING w.intent_id, w.until_at";

/// See [`DUE`]. Whoever dies over it has only put it off.
///
/// # Errors
/// The database's.
pub async fn due(
    pm: &PgPool,
    psp: PspName,
    between: (f64, f64),
    limit: u32,
    now: DateTime<Utc>,
) -> Result<Vec<Watched>, StoreError> {
    sqlx::query_as(DUE)
        .bind(psp.as_str())
        .bind(now)
        .bind(between.0)
        .bind(between.1)
        .bind(i64::from(limit))
        .fetch_all(pm)
        .await
        .map_err(failed)
}

/// # Errors
/// The database's.
pub async fn end(tx: &mut PmTx, intent: Uuid) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM pm.psp_watch WHERE intent_id = $1")
        .bind(intent)
        .execute(&mut **tx)
        .await
        .map_err(failed)?;
    Ok(())
}

/// The provider has said what state a payment is in.
///
/// # Errors
/// The database's.
pub async fn heard(pm: &PgPool, intent: Uuid, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query("UPDATE pm.psp_watch SET heard_at = $1 WHERE intent_id = $2")
        .bind(now)
        .bind(intent)
        .execute(pm)
        .await
        .map_err(failed)?;
    Ok(())
}
