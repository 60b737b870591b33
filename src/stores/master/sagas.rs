//! `saga` and `exchange_outbox`.
//!
//! One row of a running saga is `pending`: its cursor, which carries the lease and the count of
//! retries. `available_at` of a leased row is the end of its lease, so a claim reads only rows
//! that are due.

mod admin;
mod row;

pub use admin::{Detail, Listed, StepDetail, list, release_to_workers, request_compensation, show};
pub use row::{LoadedSaga, SagaRecord};

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::types::Json;
use sqlx::{FromRow, MySql, QueryBuilder};
use uuid::Uuid;

use super::alerts::{self, NewAlert};
use super::failed;
use crate::domain::plan::{PAYLOAD_VERSION, Plan, Step};
use crate::domain::saga::{Direction, SagaStatus, StepDirection, StepStatus};
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, padded, placeholders};

/// The kind of the alert of a stuck saga; its subject is the saga's id.
pub const STUCK_ALERT: &str = "saga_stuck";
/// The kind of the one alert of sagas that wait for a system.
pub const WAITING_ALERT: &str = "sagas_waiting";

/// Who works on a saga, and until when nobody else may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The process, unique per start.
    pub by: String,
    pub token: Uuid,
    pub until: DateTime<Utc>,
}

/// Records sagas with all their steps in the transaction of their causes; the first step of each
/// is leased to the process that will run it at once.
///
/// # Errors
/// The master's.
pub async fn insert(
    tx: &mut MasterTx,
    plans: &[&Plan],
    lease: &Lease,
    max_retries: u32,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut rest = plans;
    for size in chunks(plans.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO saga (saga_id, kind, subject, direction, status, created_at, updated_at) ",
        );
        builder.push_values(chunk, |mut row, plan| {
            row.push_bind(plan.saga_id)
                .push_bind(plan.kind.as_str())
                .push_bind(plan.subject.to_string())
                .push_bind(plan.kind.first_direction().as_str())
                .push_bind(SagaStatus::Running.as_str())
                .push_bind(now)
                .push_bind(now);
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    let steps: Vec<(&Plan, &Step)> = plans
        .iter()
        .flat_map(|plan| plan.steps.iter().map(|step| (*plan, step)))
        .collect();
    let mut rest = steps.as_slice();
    for size in chunks(steps.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        insert_steps(tx, chunk, lease, max_retries, now).await?;
    }
    Ok(())
}

async fn insert_steps(
    tx: &mut MasterTx,
    steps: &[(&Plan, &Step)],
    lease: &Lease,
    max_retries: u32,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(
        "INSERT INTO exchange_outbox (saga_id, step, direction, target_db, entity_class, payload, \
         payload_version, status, max_retries, available_at, leased_by, lease_token, leased_until, \
         created_at, processed_at) ",
    );
    builder.push_values(steps, |mut row, (plan, step)| {
        let status = match step.action.rides() {
            true => StepStatus::Done,
            false if step.number == plan.first_step() => StepStatus::Pending,
            false => StepStatus::Waiting,
        };
        let leased = (status == StepStatus::Pending).then_some(lease);
        row.push_bind(plan.saga_id)
            .push_bind(step.number)
            .push_bind(StepDirection::Do.as_str())
            .push_bind(step.action.target())
            .push_bind(step.action.entity_class())
            .push_bind(Json(&step.action))
            .push_bind(PAYLOAD_VERSION)
            .push_bind(status.as_str())
            .push_bind(max_retries)
            .push_bind(leased.map_or(now, |lease| lease.until))
            .push_bind(leased.map(|lease| lease.by.clone()))
            .push_bind(leased.map(|lease| lease.token))
            .push_bind(leased.map(|lease| lease.until))
            .push_bind(now)
            .push_bind((status == StepStatus::Done).then_some(now));
    });
    builder.build().execute(tx).await.map_err(failed)?;
    Ok(())
}

/// Cursors that are due. Without the index on (status, `available_at`, id) the first worker would
/// lock every row.
pub const DUE: &str = "SELECT id, saga_id FROM exchange_outbox
    WHERE status = 'pending' AND available_at <= ? AND payload_version <= ?
    ORDER BY available_at, id LIMIT ? FOR UPDATE SKIP LOCKED";

/// Leases sagas that are due, oldest first, whose payloads this program knows. Rows that another
/// worker is claiming are passed over.
///
/// # Errors
/// The master's.
pub async fn claim(
    master: &Pool,
    lease: &Lease,
    now: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<Uuid>, StoreError> {
    let mut tx = super::begin(master).await?;
    let due: Vec<(u64, Uuid)> = sqlx::query_as(DUE)
        .bind(now)
        .bind(PAYLOAD_VERSION)
        .bind(limit)
        .fetch_all(&mut tx)
        .await
        .map_err(failed)?;
    if !due.is_empty() {
        let sql = format!(
            "UPDATE exchange_outbox SET leased_by = ?, lease_token = ?, leased_until = ?, available_at = ?
             WHERE id IN ({})",
            placeholders(padded(due.len()))
        );
        let mut query = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(&lease.by)
            .bind(lease.token)
            .bind(lease.until)
            .bind(lease.until);
        let ids = due.iter().map(|(id, _)| *id);
        for id in ids
            .chain(std::iter::repeat(due[0].0))
            .take(padded(due.len()))
        {
            query = query.bind(id);
        }
        query.execute(&mut tx).await.map_err(failed)?;
    }
    super::commit(tx).await?;
    Ok(due.into_iter().map(|(_, saga_id)| saga_id).collect())
}

/// A saga with its plan, as its rows say.
///
/// # Errors
/// The master's, or rows that can't be read.
pub async fn load(master: &Pool, saga_id: Uuid) -> Result<Option<LoadedSaga>, StoreError> {
    row::load(master, saga_id).await
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn record(master: &Pool, saga_id: Uuid) -> Result<Option<SagaRecord>, StoreError> {
    row::record(master, saga_id).await
}

/// Decides the direction of a saga that has none yet; the first to come decides, and everybody
/// gets what was decided. A saga that is decided back is compensating from now on; one that is
/// stuck stays so, since its cursor waits for an admin, not for a worker.
///
/// # Errors
/// The master's, or no such saga.
pub async fn decide(
    master: &Pool,
    saga_id: Uuid,
    direction: Direction,
    reason: Option<&Value>,
    now: DateTime<Utc>,
) -> Result<Direction, StoreError> {
    let status = match direction {
        Direction::Back => SagaStatus::Compensating,
        Direction::Forward | Direction::Undecided => SagaStatus::Running,
    };
    let done = sqlx::query(
        "UPDATE saga SET direction = ?, status = IF(status = 'stuck', status, ?),
             reason = COALESCE(?, reason), updated_at = ?
         WHERE saga_id = ? AND direction = 'undecided'",
    )
    .bind(direction.as_str())
    .bind(status.as_str())
    .bind(reason)
    .bind(now)
    .bind(saga_id)
    .execute(master)
    .await
    .map_err(failed)?;
    if done.rows_affected() == 1 {
        return Ok(direction);
    }
    record(master, saga_id)
        .await?
        .map(|record| record.direction)
        .ok_or_else(|| crate::stores::error::corrupt("saga", format!("{saga_id} is gone")))
}

/// Ends sagas in the caller's transaction: the sagas, and all their steps. Returns how many were
/// still open.
///
/// # Errors
/// The master's.
pub async fn finish(
    tx: &mut MasterTx,
    saga_ids: &[Uuid],
    status: SagaStatus,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let Some(first) = saga_ids.first() else {
        return Ok(0);
    };
    let direction = match status {
        SagaStatus::Compensated | SagaStatus::Compensating => Direction::Back,
        SagaStatus::Completed | SagaStatus::Running | SagaStatus::Stuck => Direction::Forward,
    };
    let count = padded(saga_ids.len());
    let list = placeholders(count);
    let ids = || saga_ids.iter().chain(std::iter::repeat(first)).take(count);
    let sql = format!(
        "UPDATE saga SET status = ?, direction = ?, updated_at = ?
         WHERE saga_id IN ({list}) AND status NOT IN ('completed', 'compensated')
           AND direction IN ('undecided', ?)"
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(status.as_str())
        .bind(direction.as_str())
        .bind(now);
    for id in ids() {
        query = query.bind(*id);
    }
    let ended = query
        .bind(direction.as_str())
        .execute(&mut *tx)
        .await
        .map_err(failed)?
        .rows_affected();
    let sql = format!(
        "UPDATE exchange_outbox SET status = ?, processed_at = ?, leased_by = NULL
         WHERE saga_id IN ({list}) AND status IN ('pending', 'waiting', 'failed')"
    );
    let closed = match status {
        SagaStatus::Compensated => StepStatus::Refused,
        SagaStatus::Completed
        | SagaStatus::Running
        | SagaStatus::Compensating
        | SagaStatus::Stuck => StepStatus::Done,
    };
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql))
        .bind(closed.as_str())
        .bind(now);
    for id in ids() {
        query = query.bind(*id);
    }
    query.execute(tx).await.map_err(failed)?;
    Ok(ended)
}

/// Records the steps that a compensation undid, in the transaction that ends it.
///
/// # Errors
/// The master's.
pub async fn insert_undone<'a>(
    tx: &mut MasterTx,
    saga_id: Uuid,
    steps: impl IntoIterator<Item = &'a Step>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let steps: Vec<&Step> = steps.into_iter().collect();
    if steps.is_empty() {
        return Ok(());
    }
    let mut builder = QueryBuilder::<MySql>::new(
        "INSERT IGNORE INTO exchange_outbox (saga_id, step, direction, target_db, entity_class, payload, \
         payload_version, status, available_at, created_at, processed_at) ",
    );
    builder.push_values(steps, |mut row, step| {
        row.push_bind(saga_id)
            .push_bind(step.number)
            .push_bind(StepDirection::Undo.as_str())
            .push_bind(step.action.target())
            .push_bind(step.action.entity_class())
            .push_bind(Json(&step.action))
            .push_bind(PAYLOAD_VERSION)
            .push_bind(StepStatus::Done.as_str())
            .push_bind(now)
            .push_bind(now)
            .push_bind(now);
    });
    builder.build().execute(tx).await.map_err(failed)?;
    Ok(())
}

/// What to do with a saga whose try has failed.
#[derive(Clone, Debug, PartialEq)]
pub enum AfterFailure {
    /// Tried again by whichever worker is first after this time.
    RetryAt(DateTime<Utc>),
    /// Waits for an admin, who learns of it by this alert.
    Stuck(NewAlert),
}

/// Ends a try: the cursor says why and when next, and the lease is given up. Only the holder of
/// the lease does this; a stale worker's word counts nothing. Gives whether this was the holder.
///
/// # Errors
/// The master's.
pub async fn fail(
    master: &Pool,
    saga_id: Uuid,
    token: Uuid,
    counts: bool,
    error: &str,
    after: &AfterFailure,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let (status, available_at) = match after {
        AfterFailure::RetryAt(at) => (StepStatus::Pending, *at),
        AfterFailure::Stuck(_) => (StepStatus::Failed, now),
    };
    let mut tx = super::begin(master).await?;
    let done = sqlx::query(
        "UPDATE exchange_outbox
         SET status = ?, retries = retries + ?, error_message = ?, available_at = ?,
             leased_by = NULL, lease_token = NULL, leased_until = NULL
         WHERE saga_id = ? AND status = 'pending' AND lease_token = ?",
    )
    .bind(status.as_str())
    .bind(u32::from(counts))
    .bind(error)
    .bind(available_at)
    .bind(saga_id)
    .bind(token)
    .execute(&mut tx)
    .await
    .map_err(failed)?;
    let held = done.rows_affected() == 1;
    if let (true, AfterFailure::Stuck(alert)) = (held, after) {
        alerts::raise(&mut tx, alert, now).await?;
        sqlx::query(
            "UPDATE saga SET status = 'stuck', updated_at = ?
             WHERE saga_id = ? AND status IN ('running', 'compensating')",
        )
        .bind(now)
        .bind(saga_id)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    }
    super::commit(tx).await?;
    Ok(held)
}

/// Sagas by status, and the depth and age of what is due: for metrics.
///
/// # Errors
/// The master's.
pub async fn counts(master: &Pool) -> Result<Vec<(SagaStatus, u64)>, StoreError> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT status, COUNT(*) FROM saga WHERE status IN ('running', 'compensating', 'stuck') GROUP BY status",
    )
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows
        .into_iter()
        .filter_map(|(status, count)| SagaStatus::parse(&status).zip(u64::try_from(count).ok()))
        .collect())
}

/// The number of cursors that are due or leased, and when the oldest was made.
///
/// # Errors
/// The master's.
pub async fn backlog(master: &Pool) -> Result<(u64, Option<DateTime<Utc>>), StoreError> {
    let (count, oldest): (i64, Option<DateTime<Utc>>) = sqlx::query_as(
        "SELECT COUNT(*), MIN(created_at) FROM exchange_outbox WHERE status = 'pending'",
    )
    .fetch_one(master)
    .await
    .map_err(failed)?;
    Ok((u64::try_from(count).unwrap_or(0), oldest))
}

/// Why a saga goes back, as it was first recorded.
///
/// # Errors
/// The master's.
pub async fn reason(tx: &mut MasterTx, saga_id: Uuid) -> Result<Value, StoreError> {
    let row: Option<(Option<Value>,)> = sqlx::query_as("SELECT reason FROM saga WHERE saga_id = ?")
        .bind(saga_id)
        .fetch_optional(tx)
        .await
        .map_err(failed)?;
    Ok(row.and_then(|row| row.0).unwrap_or(Value::Null))
}

/// Sagas that have been going on for long.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Waiting {
    pub count: i64,
    /// The oldest of them.
    pub saga_id: Uuid,
    pub since: DateTime<Utc>,
    /// Why its last try failed.
    pub error: Option<String>,
}

/// The sagas that were recorded before `since` and have neither ended nor are stuck.
///
/// # Errors
/// The master's.
pub async fn waiting(master: &Pool, since: DateTime<Utc>) -> Result<Option<Waiting>, StoreError> {
    sqlx::query_as(
        "SELECT COUNT(*) OVER () AS count, saga_id, created_at AS since, error_message AS error
         FROM exchange_outbox WHERE status = 'pending' AND created_at < ?
         ORDER BY created_at, id LIMIT 1",
    )
    .bind(since)
    .fetch_optional(master)
    .await
    .map_err(failed)
}
