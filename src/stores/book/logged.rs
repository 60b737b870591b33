//! `chain_head`, as the log of heads sees it: which books of a database are newer than the log.

use std::collections::HashMap;

use sqlx::{FromRow, MySql, QueryBuilder};

use super::rows::hash;
use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::router::{DatabaseKey, Router};
use crate::stores::sql::chunks;

/// Books after a given one whose head the log does not have. Those that it has are not looked at.
pub const UNLOGGED: &str = "SELECT broker_id, seq, tx_hash FROM chain_head
     WHERE unlogged = 1 AND broker_id > ? ORDER BY broker_id LIMIT ?";

#[derive(FromRow)]
struct Row {
    broker_id: u64,
    seq: u64,
    tx_hash: Vec<u8>,
}

impl Row {
    fn read(self) -> Result<(BrokerId, Head), StoreError> {
        let hash = hash(&self.tx_hash).ok_or_else(|| corrupt("chain_head", "tx_hash"))?;
        let seq = self.seq;
        Ok((self.broker_id, Head { seq, hash }))
    }
}

/// See [`UNLOGGED`].
///
/// # Errors
/// The database's, or a row that can't be read.
pub(crate) async fn unlogged(
    router: &Router,
    database: &DatabaseKey,
    after: BrokerId,
    limit: u32,
) -> Result<Vec<(BrokerId, Head)>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(UNLOGGED)
        .bind(after)
        .bind(limit)
        .fetch_all(&router.quick_database(database)?)
        .await
        .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
    rows.into_iter().map(Row::read).collect()
}

/// A book's head as it is now.
///
/// # Errors
/// The database's, or a row that can't be read.
pub(crate) async fn head(
    router: &Router,
    database: &DatabaseKey,
    broker: BrokerId,
) -> Result<Option<Head>, StoreError> {
    let sql = "SELECT broker_id, seq, tx_hash FROM chain_head WHERE broker_id = ?";
    let row: Option<Row> = sqlx::query_as(sql)
        .bind(broker)
        .fetch_optional(&router.quick_database(database)?)
        .await
        .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
    row.map(|row| row.read().map(|(_, head)| head)).transpose()
}

/// The hashes of entries by their places, one of each book: a row of the key for each.
///
/// # Errors
/// The database's, or a row that can't be read.
pub(crate) async fn hashes_at(
    router: &Router,
    database: &DatabaseKey,
    places: &[(BrokerId, u64)],
) -> Result<HashMap<BrokerId, Hash>, StoreError> {
    let pool = router.quick_database(database)?;
    let mut found = HashMap::new();
    let mut rest = places;
    for size in chunks(places.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new("");
        for (place, (broker, seq)) in chunk.iter().enumerate() {
            builder.push(if place == 0 { "" } else { " UNION ALL " });
            builder
                .push("SELECT broker_id, seq, tx_hash FROM transaction WHERE broker_id = ")
                .push_bind(*broker)
                .push(" AND seq = ")
                .push_bind(*seq);
        }
        let rows: Vec<Row> = builder
            .build_query_as()
            .fetch_all(&pool)
            .await
            .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
        for row in rows {
            let (broker, head) = row.read()?;
            found.insert(broker, head.hash);
        }
    }
    Ok(found)
}

/// Marks how far a log has a book. A later log's mark stays.
///
/// # Errors
/// The database's.
pub(crate) async fn mark_logged(
    router: &Router,
    database: &DatabaseKey,
    broker: BrokerId,
    seq: u64,
    log: u32,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE chain_head SET logged_seq = ?, logged_in = ?
         WHERE broker_id = ? AND logged_in <= ? AND logged_seq < ?",
    )
    .bind(seq)
    .bind(log)
    .bind(broker)
    .bind(log)
    .bind(seq)
    .execute(&router.quick_database(database)?)
    .await
    .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
    Ok(done.rows_affected() == 1)
}

/// Takes the marks of earlier logs back, at most `limit` at a time; gives how many.
///
/// # Errors
/// The database's.
pub(crate) async fn unmark_logged(
    router: &Router,
    database: &DatabaseKey,
    log: u32,
    limit: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE chain_head SET logged_seq = 0, logged_in = ? WHERE logged_in < ? LIMIT ?",
    )
    .bind(log)
    .bind(log)
    .bind(limit)
    .execute(&router.quick_database(database)?)
    .await
    .map_err(|error| StoreError::from_sqlx(&database.server, error))?;
    Ok(done.rows_affected())
}
