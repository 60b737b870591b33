//! `idempotency_key` of the master: which intention of which client created what.

use chrono::{DateTime, Utc};

use super::failed;
use crate::domain::canonical::Hash;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// What a client meant: its key, and a digest of what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intention {
    pub client: String,
    pub key: String,
    pub fingerprint: Hash,
}

/// What is known of an intention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Known {
    /// It created this before.
    Same { subject: String },
    /// The key stood for something else.
    Other,
}

/// # Errors
/// The master's.
pub async fn find(master: &Pool, intention: &Intention) -> Result<Option<Known>, StoreError> {
    let row: Option<(Vec<u8>, String)> = sqlx::query_as(
        "SELECT fingerprint, subject FROM idempotency_key WHERE client = ? AND idempotency_key = ?",
    )
    .bind(&intention.client)
    .bind(&intention.key)
    .fetch_optional(master)
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

/// Records an intention with what it creates, in the transaction that creates it. A duplicate
/// error means that somebody else was first, also where that one is still under way: the insert
/// waits for it.
///
/// # Errors
/// The master's; a duplicate.
pub async fn insert(
    tx: &mut MasterTx,
    intention: &Intention,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO idempotency_key (client, idempotency_key, fingerprint, subject, created_at)
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(&intention.client)
    .bind(&intention.key)
    .bind(intention.fingerprint.0.to_vec())
    .bind(subject)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}
