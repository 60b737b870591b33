//! `signing_key`: the public halves.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{StoreError, corrupt, failed};
use crate::stores::pool::Pool;

/// A key that signs, or has signed, access tokens.
#[derive(Clone, Debug)]
pub struct SigningKey {
    pub kid: String,
    /// Ed25519.
    pub public_key: [u8; 32],
    pub signs_from: DateTime<Utc>,
    /// Set when it is retired.
    pub verifies_until: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct Row {
    kid: String,
    public_key: Vec<u8>,
    signs_from: DateTime<Utc>,
    verifies_until: Option<DateTime<Utc>>,
}

/// Makes a key known; one that is known already stays as it is.
///
/// # Errors
/// The database's.
pub async fn register(
    pool: &Pool,
    kid: &str,
    public_key: &[u8; 32],
    signs_from: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT IGNORE INTO signing_key (kid, public_key, signs_from, created_at)
         VALUES (?, ?, ?, ?)",
    )
    .bind(kid)
    .bind(public_key.as_slice())
    .bind(signs_from)
    .bind(now)
    .execute(pool)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Those that still verify at `now`.
///
/// # Errors
/// The database's.
pub async fn verifying(pool: &Pool, now: DateTime<Utc>) -> Result<Vec<SigningKey>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT kid, public_key, signs_from, verifies_until FROM signing_key
         WHERE verifies_until IS NULL OR verifies_until > ? ORDER BY signs_from, kid",
    )
    .bind(now)
    .fetch_all(pool)
    .await
    .map_err(failed)?;
    rows.into_iter()
        .map(|row| {
            let public_key = row
                .public_key
                .try_into()
                .map_err(|_| corrupt("signing_key", "a public key of another length"))?;
            Ok(SigningKey {
                kid: row.kid,
                public_key,
                signs_from: row.signs_from,
                verifies_until: row.verifies_until,
            })
        })
        .collect()
}

/// Retires a key, or retires it sooner; false where there is none of that name.
///
/// # Errors
/// The database's.
pub async fn retire(
    pool: &Pool,
    kid: &str,
    verifies_until: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE signing_key SET verifies_until = LEAST(COALESCE(verifies_until, ?), ?) WHERE kid = ?",
    )
    .bind(verifies_until)
    .bind(verifies_until)
    .bind(kid)
    .execute(pool)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}
