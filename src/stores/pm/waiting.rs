//! What has been going on for long: the oldest of its kind, and how many there are.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::failed;
use crate::domain::payment::PspName;
use crate::stores::StoreError;

/// The oldest of what waits, and how much there is of it.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Waiting {
    pub intent: Option<Uuid>,
    pub since: DateTime<Utc>,
    /// What the last try came to.
    pub why: Option<String>,
    pub count: i64,
}

/// Rows of a provider that have been worked on since before `since`. For some reasons one may be
/// worked on for longer: so many seconds are added for each of those.
///
/// # Errors
/// The database's.
pub async fn of_provider(
    pm: &PgPool,
    psp: PspName,
    longer: &[(&str, f64)],
    since: DateTime<Utc>,
) -> Result<Option<Waiting>, StoreError> {
    let (reasons, seconds): (Vec<&str>, Vec<f64>) = longer.iter().copied().unzip();
    sqlx::query_as(
        "SELECT t.intent_id AS intent, t.created_at AS since, t.last_error AS why,
             COUNT(*) OVER () AS count
         FROM pm.psp_tx_map t
         LEFT JOIN unnest($3::text[], $4::float8[]) AS longer (why, secs)
             ON longer.why = t.last_error
         WHERE t.psp_name = $1
           AND t.state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')
           AND t.created_at <= $2 - make_interval(secs => COALESCE(longer.secs, 0))
         ORDER BY t.created_at LIMIT 1",
    )
    .bind(psp.as_str())
    .bind(since)
    .bind(reasons)
    .bind(seconds)
    .fetch_optional(pm)
    .await
    .map_err(failed)
}

/// What the ledger and books should have been told before `since`.
///
/// # Errors
/// The database's.
pub async fn of_outbox(pm: &PgPool, since: DateTime<Utc>) -> Result<Option<Waiting>, StoreError> {
    sqlx::query_as(
        "SELECT intent_id AS intent, created_at AS since, last_error AS why,
             COUNT(*) OVER () AS count
         FROM pm.outbox_event WHERE status = 'pending' AND created_at <= $1
         ORDER BY created_at LIMIT 1",
    )
    .bind(since)
    .fetch_optional(pm)
    .await
    .map_err(failed)
}

/// Payments that a provider may send back, and of which it has not said anything since `since`.
///
/// # Errors
/// The database's.
pub async fn of_watch(
    pm: &PgPool,
    psp: PspName,
    since: DateTime<Utc>,
) -> Result<Option<Waiting>, StoreError> {
    sqlx::query_as(
        "SELECT intent_id AS intent, COALESCE(heard_at, created_at) AS since,
             (SELECT COALESCE(c.error, 'answered with ' || c.http_status) FROM pm.psp_call c
              WHERE c.intent_id = w.intent_id ORDER BY c.called_at DESC, c.id DESC LIMIT 1) AS why,
             COUNT(*) OVER () AS count
         FROM pm.psp_watch w WHERE psp_name = $1 AND COALESCE(heard_at, created_at) <= $2
         ORDER BY COALESCE(heard_at, created_at) LIMIT 1",
    )
    .bind(psp.as_str())
    .bind(since)
    .fetch_optional(pm)
    .await
    .map_err(failed)
}

/// Payments that were said to have come in before `since`, or were given to somebody before that,
/// and are nowhere yet.
///
/// # Errors
/// The database's.
pub async fn of_incoming(pm: &PgPool, since: DateTime<Utc>) -> Result<Option<Waiting>, StoreError> {
    sqlx::query_as(
        "SELECT p.intent_id AS intent, s.since, COALESCE(p.last_error, t.last_error) AS why,
             COUNT(*) OVER () AS count
         FROM pm.psp_incoming p LEFT JOIN pm.psp_tx_map t ON t.intent_id = p.intent_id
         CROSS JOIN LATERAL (SELECT CASE WHEN p.status = 'waiting' THEN p.received_at
                                    ELSE COALESCE(p.given_at, p.updated_at) END AS since) s
         WHERE s.since <= $1 AND (
               (p.status = 'waiting' AND p.disputed_at IS NULL
                AND t.state IS DISTINCT FROM 'MANUAL_REVIEW')
            OR (p.status IN ('suspense', 'unknown') AND p.wallet IS NOT NULL))
         ORDER BY s.since LIMIT 1",
    )
    .bind(since)
    .fetch_optional(pm)
    .await
    .map_err(failed)
}
