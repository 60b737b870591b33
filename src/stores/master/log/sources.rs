//! `log_source`: which log the marks in each database are of; and where books are.

use std::collections::{BTreeSet, HashMap};

use sqlx::{MySql, QueryBuilder};

use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::failed;
use crate::stores::pool::Pool;
use crate::stores::router::DatabaseKey;
use crate::stores::sql::list_of;

/// The master itself, among the databases.
#[must_use]
pub fn master_itself() -> DatabaseKey {
    DatabaseKey {
        server: String::new(),
        database: String::new(),
    }
}

/// The log of each database's marks.
///
/// # Errors
/// The master's.
pub async fn all(master: &Pool) -> Result<HashMap<DatabaseKey, u32>, StoreError> {
    let rows: Vec<(String, String, u32)> =
        sqlx::query_as("SELECT server_name, database_name, log_number FROM log_source")
            .fetch_all(master)
            .await
            .map_err(failed)?;
    let source = |(server, database, log)| (DatabaseKey { server, database }, log);
    Ok(rows.into_iter().map(source).collect())
}

/// # Errors
/// The master's.
pub async fn set(master: &Pool, database: &DatabaseKey, log: u32) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO log_source (server_name, database_name, log_number) VALUES (?, ?, ?)
         ON DUPLICATE KEY UPDATE log_number = GREATEST(log_number, VALUES(log_number))",
    )
    .bind(&database.server)
    .bind(&database.database)
    .bind(log)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Of those brokers, the ones whose book is in that database: a copy of a book, or one that has
/// moved away, speaks for nobody.
///
/// # Errors
/// The master's.
pub async fn at_home(
    master: &Pool,
    brokers: &[BrokerId],
    database: &DatabaseKey,
) -> Result<BTreeSet<BrokerId>, StoreError> {
    if brokers.is_empty() {
        return Ok(BTreeSet::new());
    }
    let mut builder = QueryBuilder::<MySql>::new(
        "SELECT b.broker_id FROM broker b
         LEFT JOIN shared_shard s ON s.shard_id = b.shared_shard_id AND b.broker_mode = 'SOLO'
         WHERE COALESCE(s.server_name, b.server_name) = ",
    );
    builder
        .push_bind(&database.server)
        .push(" AND COALESCE(s.database_name, b.database_name) = ")
        .push_bind(&database.database)
        .push(" AND b.broker_id IN (");
    let mut list = builder.separated(", ");
    for broker in list_of(brokers) {
        list.push_bind(*broker);
    }
    builder.push(")");
    let found: Vec<u64> = builder
        .build_query_scalar()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    Ok(found.into_iter().collect())
}
