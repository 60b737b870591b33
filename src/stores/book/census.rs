//! Whose rows a database holds: for reconciliation, which looks at whole databases.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::AssertSqlSafe;

use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::router::{DatabaseKey, Router};

/// The brokers that a database has rows of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// By table: every table that has a `broker_id`, found in the database itself.
    pub tables: BTreeMap<String, BTreeSet<BrokerId>>,
    /// Books that are read and never written.
    pub frozen: BTreeSet<BrokerId>,
}

/// # Errors
/// The database's.
pub(crate) async fn census(router: &Router, database: &DatabaseKey) -> Result<Census, StoreError> {
    let pool = router.database(database)?;
    let failed = |error| StoreError::from_sqlx(&database.server, error);
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.columns
         WHERE table_schema = DATABASE() AND column_name = 'broker_id' ORDER BY table_name",
    )
    .fetch_all(&pool)
    .await
    .map_err(failed)?;
    let mut census = Census::default();
    for table in tables {
        // The name comes from the database's own dictionary, and can't be bound.
        let sql = format!(
            "SELECT DISTINCT broker_id FROM `{}`",
            table.replace('`', "``")
        );
        let brokers: Vec<u64> = sqlx::query_scalar(AssertSqlSafe(sql))
            .fetch_all(&pool)
            .await
            .map_err(failed)?;
        census.tables.insert(table, brokers.into_iter().collect());
    }
    let frozen: Vec<u64> =
        sqlx::query_scalar("SELECT broker_id FROM book_fence WHERE state = 'frozen'")
            .fetch_all(&pool)
            .await
            .map_err(failed)?;
    census.frozen = frozen.into_iter().collect();
    Ok(census)
}
