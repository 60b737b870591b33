//! `pm.idempotency_key`: which intention of which client created what.

use chrono::{DateTime, Utc};
use sqlx::PgPool;

use super::{PmTx, failed};
use crate::stores::StoreError;
use crate::stores::master::idempotency::{Intention, Known};

/// # Errors
/// The database's.
pub async fn find(pm: &PgPool, intention: &Intention) -> Result<Option<Known>, StoreError> {
    let row: Option<(Vec<u8>, String)> = sqlx::query_as(
        "SELECT fingerprint, subject FROM pm.idempotency_key
         WHERE client = $1 AND idempotency_key = $2",
    )
    .bind(&intention.client)
    .bind(&intention.key)
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    Ok(row.map(|(fingerprint, subject)| {
        if fingerprint == intention.fingerprint.0 {
            Known::Same { subject }
        } else {
            Known::Other
        }
    }))
}

/// Records an intention with what it creates, in the transaction that creates it, and by whom where
/// its client is not one. A duplicate error means that somebody else was first.
///
/// # Errors
/// The database's; a duplicate.
pub async fn insert(
    tx: &mut PmTx,
    intention: &Intention,
    subject: &str,
    by: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.idempotency_key (client, idempotency_key, fingerprint, subject, created_at,
             made_by)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(&intention.client)
    .bind(&intention.key)
    .bind(intention.fingerprint.0.to_vec())
    .bind(subject)
    .bind(now)
    .bind(by)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}
