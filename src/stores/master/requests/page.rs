//! Requests and their events by the page: for reconciliation, which reads all of them. A row that
//! can't be read stands in the page as what is wrong with it, so that it hides no other.

use sqlx::mysql::MySqlRow;
use sqlx::{FromRow, Row};

use super::row::{EventRow, RequestRow, request_columns};
use super::{StoreError, failed};
use crate::domain::canonical::Hash;
use crate::domain::ids::RequestId;
use crate::domain::request::Request;
use crate::domain::request_event::Event;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;
use crate::stores::sql::{list_of, padded, placeholders};

/// What a row of a request holds, or why it can't be read.
pub type Read<T> = (RequestId, Result<T, StoreError>);

/// Requests after an id, in the order of ids.
///
/// # Errors
/// The master's.
pub async fn after(
    master: &Pool,
    after: Option<RequestId>,
    limit: u32,
) -> Result<Vec<Read<Request>>, StoreError> {
    // The id with no bit set is nobody's: ids are digests.
    let after = after.map_or(0, RequestId::bits);
    let rows = sqlx::query(concat!(
        "SELECT ",
        request_columns!(),
        " FROM network_request WHERE request_id > ? ORDER BY request_id LIMIT ?"
    ))
    .bind(after)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.iter().map(request).collect()
}

/// The requests of some ids that are there, in the order of ids.
///
/// # Errors
/// The master's.
pub async fn some(master: &Pool, ids: &[RequestId]) -> Result<Vec<Read<Request>>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {} FROM network_request WHERE request_id IN ({}) ORDER BY request_id",
        request_columns!(),
        placeholders(padded(ids.len()))
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql));
    for id in list_of(ids) {
        query = query.bind(id.bits());
    }
    let rows = query.fetch_all(master).await.map_err(failed)?;
    rows.iter().map(request).collect()
}

/// The events of some requests, each request's in order, each with the hash that is stored for it.
///
/// # Errors
/// The master's.
pub async fn events_of(
    master: &Pool,
    ids: &[RequestId],
) -> Result<Vec<Read<(Event, Hash)>>, StoreError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT request_id, seq, kind, actor_broker_id, actor, at, payload, private, prev_hash,
             event_hash
         FROM network_request_event WHERE request_id IN ({}) ORDER BY request_id, seq",
        placeholders(padded(ids.len()))
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql));
    for id in list_of(ids) {
        query = query.bind(id.bits());
    }
    let rows = query.fetch_all(master).await.map_err(failed)?;
    rows.iter()
        .map(|row| read(row, "network_request_event", EventRow::read))
        .collect()
}

fn request(row: &MySqlRow) -> Result<Read<Request>, StoreError> {
    read(row, "network_request", RequestRow::read)
}

fn read<'r, R: FromRow<'r, MySqlRow>, T>(
    row: &'r MySqlRow,
    table: &'static str,
    value: impl FnOnce(R) -> Result<T, StoreError>,
) -> Result<Read<T>, StoreError> {
    let id = RequestId::from_bits(row.try_get("request_id").map_err(failed)?);
    let found = R::from_row(row)
        .map_err(|error| corrupt(table, format!("{id}: {error}")))
        .and_then(value);
    Ok((id, found))
}
