//! `alert`: what a person must look at. An alert is raised once per kind and subject.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;

use super::failed;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// What happened, what each side shows and what can be done.
#[derive(Clone, Debug, PartialEq)]
pub struct NewAlert {
    pub kind: &'static str,
    pub subject: String,
    pub message: String,
    pub details: Value,
}

/// # Errors
/// The master's.
pub async fn raise(
    tx: &mut MasterTx,
    alert: &NewAlert,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO alert (kind, subject, message, details, created_at) VALUES (?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE message = VALUES(message), details = VALUES(details),
             created_at = IF(resolved_at IS NULL, created_at, VALUES(created_at)), resolved_at = NULL",
    )
    .bind(alert.kind)
    .bind(&alert.subject)
    .bind(&alert.message)
    .bind(&alert.details)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Marks the alert of a kind and subject resolved, if there is one.
///
/// # Errors
/// The master's.
pub async fn resolve(
    tx: &mut MasterTx,
    kind: &str,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE alert SET resolved_at = ? WHERE kind = ? AND subject = ? AND resolved_at IS NULL",
    )
    .bind(now)
    .bind(kind)
    .bind(subject)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Resolves the alerts of a kind whose subjects are sagas that have ended meanwhile.
///
/// # Errors
/// The master's.
pub async fn resolve_of_ended_sagas(
    master: &Pool,
    kind: &str,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE alert a JOIN saga s ON s.saga_id = UNHEX(REPLACE(a.subject, '-', ''))
         SET a.resolved_at = ?
         WHERE a.kind = ? AND a.resolved_at IS NULL AND s.status IN ('completed', 'compensated')",
    )
    .bind(now)
    .bind(kind)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}

/// Marks an alert resolved by its id.
///
/// # Errors
/// The master's.
pub async fn resolve_id(
    master: &Pool,
    alert_id: u64,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE alert SET resolved_at = ? WHERE alert_id = ? AND resolved_at IS NULL")
            .bind(now)
            .bind(alert_id)
            .execute(master)
            .await
            .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Whether there is an alert of this id, resolved or not.
///
/// # Errors
/// The master's.
pub async fn is_there(master: &Pool, alert_id: u64) -> Result<bool, StoreError> {
    let found: Option<i32> = sqlx::query_scalar("SELECT 1 FROM alert WHERE alert_id = ?")
        .bind(alert_id)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    Ok(found.is_some())
}

/// An alert as an admin sees it.
#[derive(Clone, Debug, FromRow)]
pub struct Alert {
    pub alert_id: u64,
    pub kind: String,
    pub subject: String,
    pub message: String,
    pub details: Value,
    pub created_at: DateTime<Utc>,
    pub resolved_at: Option<DateTime<Utc>>,
}

/// Alerts, newest first; open ones only, or all.
///
/// # Errors
/// The master's.
pub async fn list(
    master: &Pool,
    open_only: bool,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<Alert>, StoreError> {
    sqlx::query_as(
        "SELECT alert_id, kind, subject, message, details, created_at, resolved_at FROM alert
         WHERE alert_id < ? AND (? = 0 OR resolved_at IS NULL) ORDER BY alert_id DESC LIMIT ?",
    )
    .bind(before.unwrap_or(u64::MAX))
    .bind(open_only)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}
