//! `pm.outbox_event`: what the ledger and a book are to be told of an intent.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{PmTx, failed};
use crate::domain::payment::OutboxAction;
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// An action that somebody has taken on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    pub id: Uuid,
    pub intent: Uuid,
    pub action: OutboxAction,
    pub leased_by: String,
    pub leased_at: DateTime<Utc>,
    pub retry_count: i32,
    pub created_at: DateTime<Utc>,
}

/// What became of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Done,
    /// It can't be: the other of post and void was first, or the money was not there.
    Refused,
    /// Nothing mends it by itself.
    Stuck,
}

impl Ended {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "refused",
            Self::Stuck => "stuck",
        }
    }
}

/// Writes down what is to be told, once per intent and action; gives whether it was not there.
///
/// # Errors
/// The database's.
pub async fn insert(
    tx: &mut PmTx,
    id: Uuid,
    intent: Uuid,
    action: OutboxAction,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT INTO pm.outbox_event (id, intent_id, action, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $4) ON CONFLICT (intent_id, action) DO NOTHING",
    )
    .bind(id)
    .bind(intent)
    .bind(action.as_str())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Takes on actions that nobody works on, the oldest first. `$1` now, `$2` how many seconds a
/// lease lasts, `$3` and `$4` the first and the longest wait in seconds, `$5` how many, `$6` by whom,
/// `$7` since when they were created, `$8` the present by which leases are given and run out: the
/// database's own where it is NULL.
pub const TAKE: &str = "WITH due AS (
         SELECT id FROM pm.outbox_event
         WHERE status = 'pending' AND created_at >= $7 AND (
               (leased_at IS NULL AND (retry_count = 0
                    OR updated_at <= $1 - make_interval(secs =>
                        LEAST($3 * power(2, LEAST(retry_count, 20) - 1), $4))))
               OR leased_at < COALESCE($8, now()) - make_interval(secs => $2))
         ORDER BY created_at, id
         LIMIT $5
         FOR UPDATE SKIP LOCKED
     )
     UPDATE pm.outbox_event e SET leased_by = $6, leased_at = COALESCE($8, now()), updated_at = $1
     FROM due WHERE e.id = due.id
     RETURNING e.id, e.intent_id, e.action, e.leased_by, e.leased_at, e.retry_count, e.created_at";

#[derive(FromRow)]
struct Row {
    id: Uuid,
    intent_id: Uuid,
    action: String,
    leased_by: String,
    leased_at: DateTime<Utc>,
    retry_count: i32,
    created_at: DateTime<Utc>,
}

/// How long what is taken on is left to whoever has it, and how long a fault waits.
#[derive(Clone, Copy, Debug)]
pub struct OutboxLeases {
    pub lease: TimeDelta,
    pub backoff: TimeDelta,
    pub most_backoff: TimeDelta,
}

/// Which actions are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    /// Those that were created then or later.
    pub from: DateTime<Utc>,
    pub by: &'a str,
    pub limit: u32,
}

/// See [`TAKE`].
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn take(
    pm: &PgPool,
    look: &Look<'_>,
    leases: &OutboxLeases,
    clock: &Clock,
) -> Result<Vec<Taken>, StoreError> {
    let mut rows: Vec<Row> = sqlx::query_as(TAKE)
        .bind(clock.now())
        .bind(leases.lease.as_seconds_f64())
        .bind(leases.backoff.as_seconds_f64())
        .bind(leases.most_backoff.as_seconds_f64())
        .bind(i64::from(look.limit))
        .bind(look.by)
        .bind(look.from)
        .bind(clock.shared())
        .fetch_all(pm)
        .await
        .map_err(failed)?;
    rows.sort_by_key(|row| (row.created_at, row.id));
    let read = |row: Row| {
        let action = OutboxAction::parse(&row.action);
        Ok(Taken {
            action: action.ok_or_else(|| corrupt("outbox_event", format!("{}: action", row.id)))?,
            id: row.id,
            intent: row.intent_id,
            leased_by: row.leased_by,
            leased_at: row.leased_at,
            retry_count: row.retry_count,
            created_at: row.created_at,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Ends an action, where it is still taken on by the same; gives whether it was.
///
/// # Errors
/// The database's.
pub async fn end(
    tx: &mut PmTx,
    taken: &Taken,
    ended: Ended,
    error: Option<&str>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.outbox_event
         SET status = $1, leased_by = NULL, leased_at = NULL, last_error = $2, updated_at = $3
         WHERE id = $4 AND status = 'pending' AND leased_by = $5 AND leased_at = $6",
    )
    .bind(ended.as_str())
    .bind(error)
    .bind(now)
    .bind(taken.id)
    .bind(&taken.leased_by)
    .bind(taken.leased_at)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Leaves an action for later, where it is still taken on by the same.
///
/// # Errors
/// The database's.
pub async fn leave(
    pm: &PgPool,
    taken: &Taken,
    error: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE pm.outbox_event
         SET leased_by = NULL, leased_at = NULL, retry_count = retry_count + 1, last_error = $1,
             updated_at = $2
         WHERE id = $3 AND status = 'pending' AND leased_by = $4 AND leased_at = $5",
    )
    .bind(error)
    .bind(now)
    .bind(taken.id)
    .bind(&taken.leased_by)
    .bind(taken.leased_at)
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(())
}

/// An action that nothing mends by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stuck {
    pub id: Uuid,
    pub intent: Uuid,
    pub action: OutboxAction,
    /// What the last try came to.
    pub error: Option<String>,
    pub created_at: DateTime<Utc>,
    /// Since when it is stuck.
    pub updated_at: DateTime<Utc>,
}

/// What is stuck, the oldest first; `after` is the last of the page before.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn stuck(
    pm: &PgPool,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Vec<Stuck>, StoreError> {
    #[derive(FromRow)]
    struct StuckRow {
        id: Uuid,
        intent_id: Uuid,
        action: String,
        last_error: Option<String>,
        created_at: DateTime<Utc>,
        updated_at: DateTime<Utc>,
    }
    let (at, id) = after.unwrap_or((DateTime::UNIX_EPOCH, Uuid::nil()));
    let rows: Vec<StuckRow> = sqlx::query_as(
        "SELECT id, intent_id, action, last_error, created_at, updated_at FROM pm.outbox_event
         WHERE status = 'stuck' AND (created_at, id) > ($1, $2)
         ORDER BY created_at, id LIMIT $3",
    )
    .bind(at)
    .bind(id)
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let read = |row: StuckRow| {
        let action = OutboxAction::parse(&row.action);
        Ok(Stuck {
            action: action.ok_or_else(|| corrupt("outbox_event", format!("{}: action", row.id)))?,
            id: row.id,
            intent: row.intent_id,
            error: row.last_error,
            created_at: row.created_at,
            updated_at: row.updated_at,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Whether anything of an intent is stuck.
///
/// # Errors
/// The database's.
pub async fn is_stuck(pm: &PgPool, intent: Uuid) -> Result<bool, StoreError> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pm.outbox_event WHERE intent_id = $1 AND status = 'stuck')",
    )
    .bind(intent)
    .fetch_one(pm)
    .await
    .map_err(failed)
}

/// How many actions are to be done, and since when the oldest of them.
///
/// # Errors
/// The database's.
pub async fn backlog(pm: &PgPool) -> Result<(i64, Option<DateTime<Utc>>), StoreError> {
    sqlx::query_as("SELECT COUNT(*), MIN(created_at) FROM pm.outbox_event WHERE status = 'pending'")
        .fetch_one(pm)
        .await
        .map_err(failed)
}

/// Has an intent's actions done that nothing mended by itself; gives how many there were.
///
/// # Errors
/// The database's.
pub async fn retry(tx: &mut PmTx, intent: Uuid, now: DateTime<Utc>) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.outbox_event SET status = 'pending', retry_count = 0, updated_at = $1
         WHERE intent_id = $2 AND status = 'stuck'",
    )
    .bind(now)
    .bind(intent)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}
