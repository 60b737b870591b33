//! `pm.psp_tx_map`: the provider's side of each intent, and the queue of the work on it.
//!
//! A row that is picked up carries who has it and since when; what comes of the work is written
//! where both are still so. So whoever stood still for longer than its lease writes nothing.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{FromRow, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PmTx, failed};
use crate::domain::payment::outcome::Facts;
use crate::domain::payment::{PspName, PspState};
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// A row of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PspTx {
    pub id: Uuid,
    pub intent: Uuid,
    pub psp: PspName,
    pub state: PspState,
    /// What the lookup and the payment are known by at the provider; set before anything is sent,
    /// and never changed.
    pub query_rq_uid: Option<String>,
    pub confirm_rq_uid: Option<String>,
    pub facts: Facts,
    pub leased_by: Option<String>,
    pub leased_at: Option<DateTime<Utc>>,
    pub retry_count: i32,
    pub last_error: Option<String>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "t.id, t.intent_id, t.psp_name, t.state, t.query_rq_uid, t.lookup_ref, t.receiver_name_en, \
         t.receiver_display_name, t.receiver_bank, t.confirm_rq_uid, t.response_id, \
         t.settlement_date, t.psp_fee_satang, t.leased_by, t.leased_at, t.retry_count, \
         t.last_error, t.created_at, t.updated_at"
    };
}

#[derive(FromRow)]
struct Row {
    id: Uuid,
    intent_id: Uuid,
    psp_name: String,
    state: String,
    query_rq_uid: Option<String>,
    lookup_ref: Option<String>,
    receiver_name_en: Option<String>,
    receiver_display_name: Option<String>,
    receiver_bank: Option<String>,
    confirm_rq_uid: Option<String>,
    response_id: Option<String>,
    settlement_date: Option<String>,
    psp_fee_satang: Option<i32>,
    leased_by: Option<String>,
    leased_at: Option<DateTime<Utc>>,
    retry_count: i32,
    last_error: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<PspTx, StoreError> {
        let bad = |column: &str| corrupt("psp_tx_map", format!("{}: {column}", self.id));
        Ok(PspTx {
            id: self.id,
            intent: self.intent_id,
            psp: PspName::parse(&self.psp_name).ok_or_else(|| bad("psp_name"))?,
            state: PspState::parse(&self.state).ok_or_else(|| bad("state"))?,
            query_rq_uid: self.query_rq_uid,
            confirm_rq_uid: self.confirm_rq_uid,
            facts: Facts {
                lookup_ref: self.lookup_ref,
                receiver_name_en: self.receiver_name_en,
                receiver_display_name: self.receiver_display_name,
                receiver_bank: self.receiver_bank,
                response_id: self.response_id,
                settlement_date: self.settlement_date,
                psp_fee_satang: self.psp_fee_satang,
            },
            leased_by: self.leased_by,
            leased_at: self.leased_at,
            retry_count: self.retry_count,
            last_error: self.last_error,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// How long what is picked up is left to whoever has it, and how long what came to nothing waits.
#[derive(Clone, Copy, Debug)]
pub struct Leases {
    /// Of a row that was not tried before.
    pub lease: TimeDelta,
    /// Of one that was, so that a provider in trouble is not stormed.
    pub retry_lease: TimeDelta,
    /// The wait after the first turn that came to nothing; it doubles with each further one.
    pub backoff: TimeDelta,
    pub most_backoff: TimeDelta,
}

/// Queues the work on an intent.
///
/// # Errors
/// The database's; a duplicate where it is queued already.
pub async fn insert(
    tx: &mut PmTx,
    intent: Uuid,
    psp: PspName,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.psp_tx_map (intent_id, psp_name, created_at, updated_at)
         VALUES ($1, $2, $3, $3)",
    )
    .bind(intent)
    .bind(psp.as_str())
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Takes on rows of a provider, the oldest first. `$1` the provider, `$2` now, `$3` and `$4` how
/// many seconds a lease lasts, `$5` and `$6` the first and the longest wait in seconds, `$7` how
/// many, `$8` by whom, `$9` since when they were created, `$10` the present by which leases are
/// given and run out: the database's own where it is NULL, so that no process's clock decides over
/// another's lease.
///
/// What is found in `CONFIRM_PENDING` may have been sent: it is asked about and not sent again. An
/// intent that is picked up for the first time is `processing` from then on.
pub const PICK_UP: &str = concat!(
    "WITH due AS (
         SELECT id FROM pm.psp_tx_map
         WHERE psp_name = $1 AND created_at >= $9
           AND state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')
           AND (
               (leased_at IS NULL AND (retry_count = 0
                    OR updated_at <= $2 - make_interval(secs =>
                        LEAST($5 * power(2, LEAST(retry_count, 20) - 1), $6))))
               OR (retry_count = 0
                   AND leased_at < COALESCE($10, now()) - make_interval(secs => $3))
               OR (retry_count >= 1
                   AND leased_at < COALESCE($10, now()) - make_interval(secs => $4))
           )
         ORDER BY created_at
         LIMIT $7
         FOR UPDATE SKIP LOCKED
     ),
     picked AS (UPDATE pm.psp_tx_map t
     SET leased_by = $8, leased_at = COALESCE($10, now()), updated_at = $2,
         query_rq_uid = COALESCE(t.query_rq_uid, md5(t.intent_id::text || ':query')::uuid::text),
         confirm_rq_uid = COALESCE(t.confirm_rq_uid, t.intent_id::text),
         state = CASE t.state
             WHEN 'NEW' THEN 'QUERY_PENDING'
             WHEN 'QUERIED' THEN 'CONFIRM_PENDING'
             WHEN 'CONFIRM_PENDING' THEN 'INQUIRING'
             ELSE t.state END
     FROM due WHERE t.id = due.id
     RETURNING t.*),
     begun AS (UPDATE pm.intent i SET status = 'processing', updated_at = $2
     FROM picked WHERE i.id = picked.intent_id AND i.status = 'held'
     RETURNING i.id),
     told AS (INSERT INTO pm.intent_event (intent_id, status_from, status_to, payload, created_at)
     SELECT id, 'held', 'processing', jsonb_build_object('by', $8), $2 FROM begun)
     SELECT ",
    columns!(),
    " FROM picked t"
);

/// Which rows are looked for.
#[derive(Clone, Copy, Debug)]
pub struct Look<'a> {
    pub psp: PspName,
    /// Those that were created then or later.
    pub from: DateTime<Utc>,
    pub by: &'a str,
    pub limit: u32,
}

/// Takes on rows that nobody works on; see [`PICK_UP`]. What is sent is known by the uids of the
/// row, which are committed with this.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn pick_up(
    pm: &PgPool,
    look: &Look<'_>,
    leases: &Leases,
    clock: &Clock,
) -> Result<Vec<PspTx>, StoreError> {
    let seconds = |delta: TimeDelta| delta.as_seconds_f64();
    let rows: Vec<Row> = sqlx::query_as(PICK_UP)
        .bind(look.psp.as_str())
        .bind(clock.now())
        .bind(seconds(leases.lease))
        .bind(seconds(leases.retry_lease))
        .bind(seconds(leases.backoff))
        .bind(seconds(leases.most_backoff))
        .bind(i64::from(look.limit))
        .bind(look.by)
        .bind(look.from)
        .bind(clock.shared())
        .fetch_all(pm)
        .await
        .map_err(failed)?;
    let rows: Result<Vec<_>, _> = rows.into_iter().map(Row::read).collect();
    rows.map(|mut rows| {
        rows.sort_by_key(|row| row.created_at);
        rows
    })
}

/// What a turn came to, to be written.
#[derive(Clone, Debug)]
pub struct Applied<'a> {
    pub state: PspState,
    pub facts: &'a Facts,
    pub error: Option<&'a str>,
    /// Whether the turn brought it on: the next may be at once.
    pub came_on: bool,
}

/// Writes what a turn came to, where the row is as it was picked up; gives whether it was.
///
/// # Errors
/// The database's.
pub async fn apply(
    tx: &mut PmTx,
    picked_up: &PspTx,
    applied: &Applied<'_>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let facts = applied.facts;
    let done = sqlx::query(
        "UPDATE pm.psp_tx_map SET state = $1, leased_by = NULL, leased_at = NULL, updated_at = $2,
             retry_count = CASE WHEN $3 THEN 0 ELSE retry_count + 1 END,
             last_error = $4,
             lookup_ref = COALESCE($5, lookup_ref),
             receiver_name_en = COALESCE($6, receiver_name_en),
             receiver_display_name = COALESCE($7, receiver_display_name),
             receiver_bank = COALESCE($8, receiver_bank),
             response_id = COALESCE($9, response_id),
             settlement_date = COALESCE($10, settlement_date),
             psp_fee_satang = COALESCE($11, psp_fee_satang)
         WHERE id = $12 AND state = $13 AND leased_by = $14 AND leased_at = $15",
    )
    .bind(applied.state.as_str())
    .bind(now)
    .bind(applied.came_on)
    .bind(applied.error)
    .bind(&facts.lookup_ref)
    .bind(&facts.receiver_name_en)
    .bind(&facts.receiver_display_name)
    .bind(&facts.receiver_bank)
    .bind(&facts.response_id)
    .bind(&facts.settlement_date)
    .bind(facts.psp_fee_satang)
    .bind(picked_up.id)
    .bind(picked_up.state.as_str())
    .bind(&picked_up.leased_by)
    .bind(picked_up.leased_at)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Resolves what waits for a person, and keeps the provider's name for the payment where that is
/// known; gives whether it did.
///
/// # Errors
/// The database's.
pub async fn resolve(
    tx: &mut PmTx,
    intent: Uuid,
    to: PspState,
    payment_id: Option<&str>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.psp_tx_map
         SET state = $1, updated_at = $2, response_id = COALESCE($4, response_id)
         WHERE intent_id = $3 AND state = 'MANUAL_REVIEW'",
    )
    .bind(to.as_str())
    .bind(now)
    .bind(intent)
    .bind(payment_id)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// # Errors
/// The database's, or a row that can't be read.
pub async fn of(pm: &PgPool, intent: Uuid) -> Result<Option<PspTx>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_tx_map t WHERE t.intent_id = $1"
    ))
    .bind(intent)
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// A row of the queue as it is, which nobody changes before the end of the transaction.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn lock(tx: &mut PmTx, intent: Uuid) -> Result<Option<PspTx>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_tx_map t WHERE t.intent_id = $1 FOR UPDATE"
    ))
    .bind(intent)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The other intent that has a provider's payment, where there is one.
///
/// # Errors
/// The database's.
pub async fn holder(
    tx: &mut PmTx,
    psp: PspName,
    payment: &str,
    but: Uuid,
) -> Result<Option<Uuid>, StoreError> {
    sqlx::query_scalar(
        "SELECT intent_id FROM pm.psp_tx_map
         WHERE psp_name = $1 AND response_id = $2 AND intent_id <> $3",
    )
    .bind(psp.as_str())
    .bind(payment)
    .bind(but)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed)
}

/// What waits for a person, the oldest first; `after` is the last of the page before.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn reviews(
    pm: &PgPool,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Vec<PspTx>, StoreError> {
    let mut builder = QueryBuilder::<Postgres>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_tx_map t WHERE t.state = 'MANUAL_REVIEW'"
    ));
    if let Some((at, id)) = after {
        builder.push(" AND (t.created_at, t.id) > (").push_bind(at);
        builder.push(", ").push_bind(id).push(")");
    }
    builder
        .push(" ORDER BY t.created_at, t.id LIMIT ")
        .push_bind(i64::from(limit));
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(pm)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// How many rows there are of each provider and state that is not over.
///
/// # Errors
/// The database's.
pub async fn counts(pm: &PgPool) -> Result<Vec<(String, String, i64)>, StoreError> {
    sqlx::query_as(
        "SELECT psp_name, state, COUNT(*) FROM pm.psp_tx_map
         WHERE state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')
         GROUP BY psp_name, state
         UNION ALL
         SELECT psp_name, state, COUNT(*) FROM pm.psp_tx_map
         WHERE state = 'MANUAL_REVIEW' GROUP BY psp_name, state",
    )
    .fetch_all(pm)
    .await
    .map_err(failed)
}
