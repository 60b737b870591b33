//! `network_request`, as the log sees it: whose events are newer than the log's.

use std::collections::HashMap;

use serde_json::Value;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, FromRow, MySql, QueryBuilder};

use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request_event::{EventKind, named_entries};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::failed;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, placeholders};

/// Requests whose last event the log does not have. Those that it has are not looked at.
pub const UNLOGGED: &str = "SELECT request_id, event_seq, event_hash FROM network_request
     WHERE unlogged = 1 ORDER BY request_id LIMIT ?";

#[derive(FromRow)]
struct Row {
    request_id: u64,
    event_seq: u32,
    event_hash: Vec<u8>,
}

/// See [`UNLOGGED`].
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn unlogged(master: &Pool, limit: u32) -> Result<Vec<(RequestId, Head)>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(UNLOGGED)
        .bind(limit)
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter()
        .map(|row| {
            let hash: Option<Hash> = super::hash(&row.event_hash);
            let head = Head {
                seq: row.event_seq.into(),
                hash: hash.ok_or_else(|| corrupt("network_request", "event_hash"))?,
            };
            Ok((RequestId::from_bits(row.request_id), head))
        })
        .collect()
}

/// How many there are of [`UNLOGGED`], counted up to `limit`.
///
/// # Errors
/// The master's.
pub async fn count_unlogged(master: &Pool, limit: u32) -> Result<u64, StoreError> {
    let count: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM (SELECT 1 FROM network_request WHERE unlogged = 1 LIMIT ?) AS some",
    )
    .bind(limit)
    .fetch_one(master)
    .await
    .map_err(failed)?;
    Ok(count.unsigned_abs())
}

/// The hashes of events by their places, one of each request: a row of the key for each.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn hashes_at(
    master: &Pool,
    places: &[(RequestId, u64)],
) -> Result<HashMap<RequestId, Hash>, StoreError> {
    let mut found = HashMap::new();
    let mut rest = places;
    for size in chunks(places.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new("");
        for (place, (id, seq)) in chunk.iter().enumerate() {
            builder.push(if place == 0 { "" } else { " UNION ALL " });
            builder
                .push(
                    "SELECT request_id, event_hash FROM network_request_event WHERE request_id = ",
                )
                .push_bind(id.bits())
                .push(" AND seq = ")
                .push_bind(*seq);
        }
        let rows: Vec<(u64, Vec<u8>)> = builder
            .build_query_as()
            .fetch_all(master)
            .await
            .map_err(failed)?;
        for (id, bytes) in rows {
            let hash = super::hash(&bytes);
            let hash = hash.ok_or_else(|| corrupt("network_request_event", "event_hash"))?;
            found.insert(RequestId::from_bits(id), hash);
        }
    }
    Ok(found)
}

/// An event that names entries: of which request, its seq, and the entries by their books.
pub type Naming = (RequestId, u32, Vec<(BrokerId, Head)>);

/// The completions and corrections of some requests, with the entries that they name.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn namings(master: &Pool, ids: &[RequestId]) -> Result<Vec<Naming>, StoreError> {
    let mut found = Vec::new();
    let mut rest = ids;
    for size in chunks(ids.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let sql = format!(
            "SELECT request_id, seq, payload FROM network_request_event
             WHERE request_id IN ({}) AND kind IN (?, ?) ORDER BY request_id, seq",
            placeholders(chunk.len())
        );
        let mut query = sqlx::query_as(AssertSqlSafe(sql));
        for id in chunk {
            query = query.bind(id.bits());
        }
        let kinds = [EventKind::Completed, EventKind::Corrected].map(EventKind::as_str);
        let query = query.bind(kinds[0]).bind(kinds[1]);
        let rows: Vec<(u64, u32, Json<Value>)> = query.fetch_all(master).await.map_err(failed)?;
        for (id, seq, payload) in rows {
            let named = named_entries(&payload.0);
            let named = named.ok_or_else(|| corrupt("network_request_event", "entries"))?;
            found.push((RequestId::from_bits(id), seq, named));
        }
    }
    Ok(found)
}

/// Marks how far a log has a request's events. A later log's mark stays.
///
/// # Errors
/// The master's.
pub async fn mark(master: &Pool, id: RequestId, seq: u64, log: u32) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE network_request SET logged_seq = ?, logged_in = ?
         WHERE request_id = ? AND logged_in <= ? AND logged_seq < ?",
    )
    .bind(seq)
    .bind(log)
    .bind(id.bits())
    .bind(log)
    .bind(seq)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Takes the marks of earlier logs back, at most `limit` at a time; gives how many.
///
/// # Errors
/// The master's.
pub async fn unmark(master: &Pool, log: u32, limit: u32) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE network_request SET logged_seq = 0, logged_in = ? WHERE logged_in < ? LIMIT ?",
    )
    .bind(log)
    .bind(log)
    .bind(limit)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}
