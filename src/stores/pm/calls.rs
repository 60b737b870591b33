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

/// The calls for an intent, in the order they were made.
///
/// # Errors
/// The database's.
pub async fn of(pm: &PgPool, intent: Uuid) -> Result<Vec<PspCallRow>, StoreError> {
    sqlx::query_as(
        "SELECT operation, rq_uid, request, http_status, response, error, took_us, called_at
         FROM pm.psp_call WHERE intent_id = $1 ORDER BY called_at, id",
    )
    .bind(intent)
    .fetch_all(pm)
    .await
    .map_err(failed)
}
