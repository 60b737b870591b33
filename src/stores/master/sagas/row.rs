use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::domain::ids::RequestId;
use crate::domain::plan::{Action, Plan, Step};
use crate::domain::saga::{Direction, SagaKind, SagaStatus};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::failed;
use crate::stores::pool::Pool;

/// A saga's own row.
#[derive(Clone, Debug, PartialEq)]
pub struct SagaRecord {
    pub saga_id: Uuid,
    pub kind: SagaKind,
    pub subject: RequestId,
    pub direction: Direction,
    pub status: SagaStatus,
    pub reason: Option<Value>,
    /// An admin asks to go back.
    pub compensation_requested: bool,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// A saga with its plan and how its tries have gone.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadedSaga {
    pub record: SagaRecord,
    pub plan: Plan,
    pub retries: u32,
    pub max_retries: u32,
}

#[derive(FromRow)]
pub(super) struct SagaRow {
    pub(super) saga_id: Uuid,
    kind: String,
    subject: String,
    direction: String,
    status: String,
    reason: Option<Value>,
    requested: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

macro_rules! saga_columns {
    () => {
        "saga_id, kind, subject, direction, status, reason, requested, created_at, updated_at"
    };
}
pub(super) use saga_columns;

impl SagaRow {
    pub(super) fn read(self) -> Result<SagaRecord, StoreError> {
        let bad = |column: &str| corrupt("saga", format!("{}: {column}", self.saga_id));
        Ok(SagaRecord {
            saga_id: self.saga_id,
            kind: SagaKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            subject: self.subject.parse().map_err(|_| bad("subject"))?,
            direction: Direction::parse(&self.direction).ok_or_else(|| bad("direction"))?,
            status: SagaStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            reason: self.reason,
            compensation_requested: self.requested.is_some(),
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

pub(super) async fn record(master: &Pool, saga_id: Uuid) -> Result<Option<SagaRecord>, StoreError> {
    let row: Option<SagaRow> = sqlx::query_as(concat!(
        "SELECT ",
        saga_columns!(),
        " FROM saga WHERE saga_id = ?"
    ))
    .bind(saga_id)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(SagaRow::read).transpose()
}

pub(super) async fn load(master: &Pool, saga_id: Uuid) -> Result<Option<LoadedSaga>, StoreError> {
    let Some(record) = record(master, saga_id).await? else {
        return Ok(None);
    };
    let rows: Vec<(u16, Json<Action>, u32, u32)> = sqlx::query_as(
        "SELECT step, payload, retries, max_retries FROM exchange_outbox
         WHERE saga_id = ? AND direction = 'do' ORDER BY step",
    )
    .bind(saga_id)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let retries = rows.iter().map(|row| row.2).max().unwrap_or(0);
    let max_retries = rows.iter().map(|row| row.3).max().unwrap_or(0);
    let steps = rows
        .into_iter()
        .map(|(number, action, _, _)| Step {
            number,
            action: action.0,
        })
        .collect();
    let plan = Plan {
        saga_id,
        kind: record.kind,
        subject: record.subject,
        steps,
    };
    Ok(Some(LoadedSaga {
        record,
        plan,
        retries,
        max_retries,
    }))
}
