//! What an admin sees of sagas and may ask of them.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow, MySql, QueryBuilder};
use uuid::Uuid;

use super::row::{SagaRecord, SagaRow, saga_columns};
use crate::domain::saga::SagaStatus;
use crate::stores::StoreError;
use crate::stores::master::{alerts, begin, commit, failed};
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

use super::STUCK_ALERT;

/// A page of sagas.
pub type Listed = Vec<SagaRecord>;

/// A saga with its rows of the outbox.
#[derive(Clone, Debug)]
pub struct Detail {
    pub record: SagaRecord,
    pub steps: Vec<StepDetail>,
}

/// A row of the outbox, as an admin sees it.
#[derive(Clone, Debug, FromRow)]
pub struct StepDetail {
    pub step: u16,
    pub direction: String,
    pub target_db: String,
    pub entity_class: String,
    pub payload: Value,
    pub status: String,
    pub retries: u32,
    pub max_retries: u32,
    pub error_message: Option<String>,
    pub available_at: DateTime<Utc>,
    pub leased_by: Option<String>,
    pub leased_until: Option<DateTime<Utc>>,
    pub processed_at: Option<DateTime<Utc>>,
}

/// Sagas, those that changed last first; of one status or all; `after` is the last of the page
/// before.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    status: Option<SagaStatus>,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Listed, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        saga_columns!(),
        " FROM saga WHERE 1 = 1"
    ));
    if let Some(status) = status {
        builder.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some(last) = after {
        push_after(&mut builder, ("updated_at", "saga_id"), last);
    }
    builder
        .push(" ORDER BY updated_at DESC, saga_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<SagaRow> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(SagaRow::read).collect()
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn show(master: &Pool, saga_id: Uuid) -> Result<Option<Detail>, StoreError> {
    let Some(record) = super::row::record(master, saga_id).await? else {
        return Ok(None);
    };
    let steps = sqlx::query_as(
        "SELECT step, direction, target_db, entity_class, payload, status, retries, max_retries,
                error_message, available_at, leased_by, leased_until, processed_at
         FROM exchange_outbox WHERE saga_id = ? ORDER BY step, direction",
    )
    .bind(saga_id)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(Some(Detail { record, steps }))
}

/// Puts a stuck saga back before the workers, with its retries counted anew, in the direction
/// that it had; its alert is resolved, and raised again if it gets stuck again. Gives whether it
/// was stuck.
///
/// # Errors
/// The master's.
pub async fn release_to_workers(
    master: &Pool,
    saga_id: Uuid,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let mut tx = begin(master).await?;
    let done = sqlx::query(
        "UPDATE saga SET status = IF(direction = 'back', 'compensating', 'running'), updated_at = ?
         WHERE saga_id = ? AND status = 'stuck'",
    )
    .bind(now)
    .bind(saga_id)
    .execute(&mut tx)
    .await
    .map_err(failed)?;
    let was_stuck = done.rows_affected() == 1;
    if was_stuck {
        sqlx::query(
            "UPDATE exchange_outbox SET status = 'pending', retries = 0, available_at = ?
             WHERE saga_id = ? AND status = 'failed'",
        )
        .bind(now)
        .bind(saga_id)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
        alerts::resolve(&mut tx, STUCK_ALERT, &saga_id.to_string(), now).await?;
    }
    commit(tx).await?;
    Ok(was_stuck)
}

/// Asks a saga that has not ended to go back. Whether it still can is the ledger's to say.
///
/// # Errors
/// The master's.
pub async fn request_compensation(
    master: &Pool,
    saga_id: Uuid,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE saga SET requested = 'compensate', updated_at = ?
         WHERE saga_id = ? AND status IN ('running', 'compensating', 'stuck')",
    )
    .bind(now)
    .bind(saga_id)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}
