//! `pm.intent_event`: what happened to an intent.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{PmTx, failed};
use crate::domain::payment::IntentStatus;
use crate::stores::StoreError;

/// One line of an intent's history, to be written with its cause.
#[derive(Clone, Debug)]
pub struct NewIntentEvent<'a> {
    pub intent: Uuid,
    /// `None` for its beginning.
    pub from: Option<IntentStatus>,
    pub to: IntentStatus,
    pub reason: Option<&'a str>,
    pub payload: Value,
}

/// One line of an intent's history.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct IntentEventRow {
    pub status_from: Option<String>,
    pub status_to: String,
    pub reason: Option<String>,
    pub payload: Value,
    pub created_at: DateTime<Utc>,
}

/// # Errors
/// The database's.
pub async fn insert(
    tx: &mut PmTx,
    event: &NewIntentEvent<'_>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.intent_event (intent_id, status_from, status_to, reason, payload, created_at)
         VALUES ($1, $2, $3, $4, $5, $6)",
    )
    .bind(event.intent)
    .bind(event.from.map(IntentStatus::as_str))
    .bind(event.to.as_str())
    .bind(event.reason)
    .bind(&event.payload)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Lines that are shown of one history.
const SHOWN: i64 = 500;

/// The history of an intent from its beginning: of a longer one its first line and the newest, 500
/// together.
///
/// # Errors
/// The database's.
pub async fn of(pm: &PgPool, intent: Uuid) -> Result<Vec<IntentEventRow>, StoreError> {
    sqlx::query_as(
        "SELECT status_from, status_to, reason, payload, created_at FROM (
             (SELECT * FROM pm.intent_event WHERE intent_id = $1 ORDER BY id LIMIT 1)
             UNION
             (SELECT * FROM pm.intent_event WHERE intent_id = $1 ORDER BY id DESC LIMIT $2)) shown
         ORDER BY id",
    )
    .bind(intent)
    .bind(SHOWN - 1)
    .fetch_all(pm)
    .await
    .map_err(failed)
}
