//! `idempotency_key`, the same table in every database: its row is written in the transaction
//! of the effect it stands for, so both are there or neither.

use chrono::{DateTime, Utc};
use sqlx::MySqlConnection;

use super::StoreError;
use crate::domain::idempotency::OperationKey;

/// What a key turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Never seen: the caller goes on and commits.
    New,
    /// This very operation has happened; the id of what it made.
    Replay(String),
    /// The key has been used for something else.
    OtherRequest,
}

/// Takes a key for `subject`, waiting while another transaction is taking the same one.
///
/// # Errors
/// [`StoreError::Contended`] where the other one outlasts the lock wait.
pub async fn claim(
    conn: &mut MySqlConnection,
    operation: &OperationKey,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<Claim, StoreError> {
    let inserted = sqlx::query(
        "INSERT INTO idempotency_key (client, idempotency_key, fingerprint, subject, created_at)
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&operation.client)
    .bind(&operation.key)
    .bind(operation.fingerprint.0.as_slice())
    .bind(subject)
    .bind(now)
    .execute(&mut *conn)
    .await
    .map_err(StoreError::from);
    match inserted {
        Ok(_) => return Ok(Claim::New),
        Err(StoreError::Duplicate) => {}
        Err(error) => return Err(error),
    }
    let (fingerprint, subject): (Vec<u8>, String) = sqlx::query_as(
        "SELECT fingerprint, subject FROM idempotency_key
         WHERE client = ? AND idempotency_key = ?",
    )
    .bind(&operation.client)
    .bind(&operation.key)
    .fetch_one(conn)
    .await?;
    if fingerprint == operation.fingerprint.0 {
        Ok(Claim::Replay(subject))
    } else {
        Ok(Claim::OtherRequest)
    }
}
