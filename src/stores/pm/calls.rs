//! `pm.psp_call`: every call to a provider, and its answer.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::failed;
use crate::domain::payment::PspName;
use crate::stores::StoreError;

/// A call as it was made, with what is secret in it masked.
#[derive(Clone, Debug, PartialEq)]
pub struct PspCall {
    pub id: Uuid,
    pub intent: Uuid,
    pub psp: PspName,
    pub operation: &'static str,
    pub rq_uid: Option<String>,
    pub request: Value,
    pub http_status: Option<u16>,
    pub response: Option<Value>,
    /// Why there is no answer, or none that could be read.
    pub error: Option<String>,
    pub took_us: u64,
    pub called_at: DateTime<Utc>,
}

/// A call as it is shown.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct PspCallRow {
    pub operation: String,
    pub rq_uid: Option<String>,
    pub request: Value,
    pub http_status: Option<i32>,
    pub response: Option<Value>,
    pub error: Option<String>,
    pub took_us: i64,
    pub called_at: DateTime<Utc>,
}

/// # Errors
/// The database's.
pub async fn insert(pm: &PgPool, call: &PspCall) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.psp_call (id, intent_id, psp_name, operation, rq_uid, request, http_status,
             response, error, took_us, called_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
    .bind(call.id)
    .bind(call.intent)
    .bind(call.psp.as_str())
    .bind(call.operation)
    .bind(&call.rq_uid)
    .bind(&call.request)
    .bind(call.http_status.map(i32::from))
    .bind(&call.response)
    .bind(&call.error)
    .bind(super::kept(call.took_us))
    .bind(call.called_at)
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Calls that are shown of one intent.
const SHOWN: i64 = 200;

/// The newest calls for an intent, at most 200, in the order they were made.
///
/// # Errors
/// The database's.
pub async fn of(pm: &PgPool, intent: Uuid) -> Result<Vec<PspCallRow>, StoreError> {
    sqlx::query_as(
        "SELECT * FROM (
             SELECT id, operation, rq_uid, request, http_status, response, error, took_us, called_at
             FROM pm.psp_call WHERE intent_id = $1 ORDER BY called_at DESC, id DESC LIMIT $2) newest
         ORDER BY called_at, id",
    )
    .bind(intent)
    .bind(SHOWN)
    .fetch_all(pm)
    .await
    .map_err(failed)
}

/// Deletes calls of before a time for payments that are over and that nobody watches any more; gives
/// how many those were.
///
/// # Errors
/// The database's.
pub async fn forget(pm: &PgPool, before: DateTime<Utc>, limit: u32) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM pm.psp_call WHERE id IN (
             SELECT c.id FROM pm.psp_call c
             JOIN pm.intent i ON i.id = c.intent_id
             WHERE c.called_at < $1 AND i.status IN ('completed', 'failed', 'returned')
               AND i.updated_at < $1
               AND NOT EXISTS (SELECT 1 FROM pm.psp_watch w WHERE w.intent_id = c.intent_id)
             ORDER BY c.called_at LIMIT $2)",
    )
    .bind(before)
    .bind(i64::from(limit))
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}
