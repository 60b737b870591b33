//! `dispute`: disputes as lists and workers look for them. Each row follows from its request's events
//! and is written in the transaction that writes them.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::{Case, CaseStatus};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

/// A dispute as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dispute {
    pub request: RequestId,
    pub status: CaseStatus,
    pub opened_by: BrokerId,
    pub against: BrokerId,
    /// The subject of who hears it.
    pub arbiter: Option<String>,
    /// When silence decides it, or a decision is final.
    pub due_at: Option<DateTime<Utc>>,
    pub opened_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// Writes how a dispute stands.
///
/// # Errors
/// The master's.
pub async fn write(
    tx: &mut MasterTx,
    request: RequestId,
    against: BrokerId,
    case: &Case,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO dispute (request_id, status, opened_by, against, arbiter, due_at, opened_at,
                              updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE
             opened_at = IF(status = 'over', VALUES(opened_at), opened_at),
             status = VALUES(status), opened_by = VALUES(opened_by), against = VALUES(against),
             arbiter = VALUES(arbiter), due_at = VALUES(due_at), updated_at = VALUES(updated_at)",
    )
    .bind(request.bits())
    .bind(case.status().as_str())
    .bind(case.opened_by)
    .bind(against)
    .bind(&case.arbiter)
    .bind(case.due_at())
    .bind(now)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// A dispute is over. Of a request without one nothing changes.
///
/// # Errors
/// The master's.
pub async fn end(
    tx: &mut MasterTx,
    request: RequestId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE dispute SET status = 'over', due_at = NULL, updated_at = ?
         WHERE request_id = ? AND status <> 'over'",
    )
    .bind(now)
    .bind(request.bits())
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Nothing is due of a dispute until somebody acts.
///
/// # Errors
/// The master's.
pub async fn wait(
    tx: &mut MasterTx,
    request: RequestId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE dispute SET due_at = NULL, updated_at = ? WHERE request_id = ?")
        .bind(now)
        .bind(request.bits())
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Which disputes a list shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    pub status: Option<CaseStatus>,
    /// Those that a broker is a side of.
    pub broker: Option<BrokerId>,
}

/// Where a page of a list ended: the next begins after it.
pub type After = (DateTime<Utc>, RequestId);

const COLUMNS: &str =
    "request_id, status, opened_by, against, arbiter, due_at, opened_at, updated_at";

/// Disputes, those opened last first: a range of an index for each side that a broker may be on, so
/// that a page costs the same however many there are.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    filter: Filter,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<Dispute>, StoreError> {
    let sides: &[&str] = match filter.broker {
        Some(_) => &["opened_by", "against"],
        None => &[""],
    };
    let mut builder = QueryBuilder::<MySql>::new("");
    for (number, side) in sides.iter().enumerate() {
        builder.push(if number == 0 { "(" } else { " UNION ALL (" });
        builder.push(format!("SELECT {COLUMNS} FROM dispute WHERE "));
        match filter.broker {
            Some(broker) => builder.push(*side).push(" = ").push_bind(broker),
            None => builder.push("TRUE"),
        };
        if let Some(status) = filter.status {
            builder.push(" AND status = ").push_bind(status.as_str());
        }
        if let Some((opened_at, id)) = after {
            let last = (opened_at, id.bits());
            push_after(&mut builder, ("opened_at", "request_id"), last);
        }
        builder
            .push(" ORDER BY opened_at DESC, request_id DESC LIMIT ")
            .push_bind(limit)
            .push(")");
    }
    builder
        .push(" ORDER BY opened_at DESC, request_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, request: RequestId) -> Result<Option<Dispute>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM dispute WHERE request_id = ?");
    let row: Option<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(request.bits())
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Disputes of which something is due, the longest due first.
pub const DUE: &str =
    "SELECT request_id FROM dispute WHERE due_at <= ? ORDER BY due_at, request_id LIMIT ?";

/// # Errors
/// The master's.
pub async fn due(
    master: &Pool,
    now: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<RequestId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(DUE)
        .bind(now)
        .bind(limit)
        .fetch_all(master)
        .await
        .map_err(failed)?;
    Ok(ids.into_iter().map(RequestId::from_bits).collect())
}

#[derive(FromRow)]
struct Row {
    request_id: u64,
    status: String,
    opened_by: u64,
    against: u64,
    arbiter: Option<String>,
    due_at: Option<DateTime<Utc>>,
    opened_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Dispute, StoreError> {
        let request = RequestId::from_bits(self.request_id);
        let status = CaseStatus::parse(&self.status)
            .ok_or_else(|| corrupt("dispute", format!("{request}: status {}", self.status)))?;
        Ok(Dispute {
            request,
            status,
            opened_by: self.opened_by,
            against: self.against,
            arbiter: self.arbiter,
            due_at: self.due_at,
            opened_at: self.opened_at,
            updated_at: self.updated_at,
        })
    }
}
