//! `refresh_family` and `refresh_token`.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::{StoreError, failed, read_scopes, write_scopes};
use crate::domain::access::Scope;
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::domain::ids::UserId;
use crate::stores::master::MasterTx;

/// Why a family ended before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RevokedBy {
    Logout,
    /// One of its tokens was used twice.
    Reuse,
    /// Its user was disabled.
    Disabled,
}

impl RevokedBy {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Logout => "logout",
            Self::Reuse => "reuse",
            Self::Disabled => "disabled",
        }
    }
}

/// One log-in and all that descends from it.
#[derive(Clone, Debug)]
pub struct Family {
    pub family: Uuid,
    pub user_id: UserId,
    pub scopes: BTreeSet<Scope>,
    pub expires_at: DateTime<Utc>,
    pub revoked: bool,
}

/// A refresh token as it is kept.
#[derive(Clone, Copy, Debug)]
pub struct Token {
    pub expires_at: DateTime<Utc>,
    pub rotated: bool,
}

/// # Errors
/// The database's.
pub async fn insert_family(
    conn: &mut MasterTx,
    family: &Family,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO refresh_family (family, user_id, scopes, created_at, expires_at)
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(family.family)
    .bind(family.user_id.bits())
    .bind(write_scopes(&family.scopes))
    .bind(now)
    .bind(family.expires_at)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's.
pub async fn insert_token(
    conn: &mut MasterTx,
    token_hash: Hash,
    family: Uuid,
    now: DateTime<Utc>,
    expires_at: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO refresh_token (token_hash, family, issued_at, expires_at) VALUES (?, ?, ?, ?)",
    )
    .bind(token_hash.0.as_slice())
    .bind(family)
    .bind(now)
    .bind(expires_at)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// The token and its family, the family's row locked: read before the token, so that everything
/// about one family happens in order.
///
/// # Errors
/// The database's.
pub async fn lock(
    conn: &mut MasterTx,
    token_hash: Hash,
) -> Result<Option<(Family, Token)>, StoreError> {
    #[derive(FromRow)]
    struct FamilyRow {
        user_id: u64,
        scopes: Json<Vec<String>>,
        expires_at: DateTime<Utc>,
        revoked_at: Option<DateTime<Utc>>,
    }
    let family: Option<(Uuid,)> =
        sqlx::query_as("SELECT family FROM refresh_token WHERE token_hash = ?")
            .bind(token_hash.0.as_slice())
            .fetch_optional(&mut *conn)
            .await
            .map_err(failed)?;
    let Some((family,)) = family else {
        return Ok(None);
    };
    let row: FamilyRow = sqlx::query_as(
        "SELECT user_id, scopes, expires_at, revoked_at FROM refresh_family
         WHERE family = ? FOR UPDATE",
    )
    .bind(family)
    .fetch_one(&mut *conn)
    .await
    .map_err(failed)?;
    // A locking read: it sees what a rotation that we waited for has just committed.
    let (expires_at, rotated_at): (DateTime<Utc>, Option<DateTime<Utc>>) = sqlx::query_as(
        "SELECT expires_at, rotated_at FROM refresh_token WHERE token_hash = ? FOR UPDATE",
    )
    .bind(token_hash.0.as_slice())
    .fetch_one(conn)
    .await
    .map_err(failed)?;
    let family = Family {
        family,
        user_id: UserId::from_bits(row.user_id),
        scopes: read_scopes(&row.scopes),
        expires_at: row.expires_at,
        revoked: row.revoked_at.is_some(),
    };
    let token = Token {
        expires_at,
        rotated: rotated_at.is_some(),
    };
    Ok(Some((family, token)))
}

/// # Errors
/// The database's.
pub async fn mark_rotated(
    conn: &mut MasterTx,
    token_hash: Hash,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE refresh_token SET rotated_at = ? WHERE token_hash = ? AND rotated_at IS NULL",
    )
    .bind(now)
    .bind(token_hash.0.as_slice())
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's.
pub async fn revoke_family(
    conn: &mut MasterTx,
    family: Uuid,
    by: RevokedBy,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE refresh_family SET revoked_at = ?, revoked_by = ?
         WHERE family = ? AND revoked_at IS NULL",
    )
    .bind(now)
    .bind(by.as_str())
    .bind(family)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's.
pub async fn revoke_user(
    conn: &mut MasterTx,
    user_id: UserId,
    by: RevokedBy,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE refresh_family SET revoked_at = ?, revoked_by = ?
         WHERE user_id = ? AND revoked_at IS NULL",
    )
    .bind(now)
    .bind(by.as_str())
    .bind(user_id.bits())
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Of all people of a broker.
///
/// # Errors
/// The database's.
pub async fn revoke_broker(
    conn: &mut MasterTx,
    broker: BrokerId,
    by: RevokedBy,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE refresh_family SET revoked_at = ?, revoked_by = ?
         WHERE user_id IN (SELECT user_id FROM user WHERE broker_id = ?) AND revoked_at IS NULL",
    )
    .bind(now)
    .bind(by.as_str())
    .bind(broker)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Deletes up to `limit` families that expired before `before`, and their tokens; how many.
///
/// # Errors
/// The database's.
pub async fn purge(
    conn: &mut MasterTx,
    before: DateTime<Utc>,
    limit: u32,
) -> Result<u64, StoreError> {
    let families: Vec<(Uuid,)> =
        sqlx::query_as("SELECT family FROM refresh_family WHERE expires_at < ? LIMIT ?")
            .bind(before)
            .bind(limit)
            .fetch_all(&mut *conn)
            .await
            .map_err(failed)?;
    let mut gone = 0;
    for (family,) in families {
        sqlx::query("DELETE FROM refresh_token WHERE family = ?")
            .bind(family)
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
        gone += sqlx::query("DELETE FROM refresh_family WHERE family = ?")
            .bind(family)
            .execute(&mut *conn)
            .await
            .map_err(failed)?
            .rows_affected();
    }
    Ok(gone)
}
