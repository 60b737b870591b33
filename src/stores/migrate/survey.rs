//! What a database that is to hold books holds already. A database is made by its name, and one
//! of that name may be there: it is taken only where all that is in it is ours.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Connection as _};

use super::{MigrationError, SHARED_HISTORY, check_name, connect, server_url};
use crate::config::SecretUrl;
use crate::domain::ids::BrokerId;

/// Where sqlx keeps what has been applied.
const HISTORY: &str = "_sqlx_migrations";

/// Names that the servers keep for themselves.
const SYSTEM: [&str; 4] = ["information_schema", "mysql", "performance_schema", "sys"];

/// What is in a database; nothing, where there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// A table that no database of books has.
    pub stranger: Option<String>,
    /// The number of the shard that it is.
    pub shard: Option<u32>,
    /// Whether it is a shard, with or without a number yet.
    pub is_shard: bool,
    /// One of the brokers whose books it holds, other than the one asked for.
    pub book_of: Option<BrokerId>,
}

/// Whether a name is one that servers keep for themselves.
#[must_use]
pub fn is_system(name: &str) -> bool {
    SYSTEM
        .iter()
        .any(|system| name.eq_ignore_ascii_case(system))
}

/// Looks at the database that `url` names, leaving the book of `broker` out of account.
///
/// # Errors
/// The server's.
pub async fn survey(url: &SecretUrl, broker: Option<BrokerId>) -> Result<Survey, MigrationError> {
    let name = url.database().ok_or(MigrationError::NoDatabase)?;
    check_name(name)?;
    let mut connection = connect(&server_url(url)).await?;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = ?
         ORDER BY table_name",
    )
    .bind(name)
    .fetch_all(&mut connection)
    .await?;
    let ours = ours();
    let has = |table: &str| tables.iter().any(|there| there == table);
    let mut survey = Survey {
        stranger: tables
            .iter()
            .find(|table| !ours.contains(table.as_str()))
            .or_else(|| tables.first().filter(|_| !has(HISTORY)))
            .cloned(),
        is_shard: has("shard_meta") || has(SHARED_HISTORY),
        ..Survey::default()
    };
    if survey.stranger.is_none() && has(HISTORY) {
        let applied: Vec<(i64, Vec<u8>)> = sqlx::query_as(AssertSqlSafe(format!(
            "SELECT version, checksum FROM `{name}`.{HISTORY}"
        )))
        .fetch_all(&mut connection)
        .await?;
        // Other programs keep a history of that name too.
        let tenant = sqlx::migrate!("migrations/tenant");
        let known = |(version, checksum): &(i64, Vec<u8>)| {
            let mut ours = tenant.iter();
            ours.any(|own| own.version == *version && *own.checksum == **checksum)
        };
        if !applied.iter().all(known) {
            survey.stranger = Some(HISTORY.to_owned());
        }
    }
    if survey.stranger.is_none() && has("shard_meta") {
        survey.shard = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT shard_id FROM `{name}`.shard_meta"
        )))
        .fetch_optional(&mut connection)
        .await?;
    }
    if survey.stranger.is_none() && has("book_fence") {
        survey.book_of = sqlx::query_scalar(AssertSqlSafe(format!(
            "SELECT broker_id FROM `{name}`.book_fence WHERE broker_id <> ? LIMIT 1"
        )))
        .bind(broker.unwrap_or(0))
        .fetch_optional(&mut connection)
        .await?;
    }
    let _ = connection.close().await;
    Ok(survey)
}

/// Takes its number from a shard without books, so that its database may be another shard.
///
/// # Errors
/// The server's.
pub async fn forget_number(url: &SecretUrl, number: u32) -> Result<(), MigrationError> {
    let name = url.database().ok_or(MigrationError::NoDatabase)?;
    check_name(name)?;
    let mut connection = connect(&server_url(url)).await?;
    sqlx::query(AssertSqlSafe(format!(
        "DELETE FROM `{name}`.shard_meta WHERE shard_id = ?"
    )))
    .bind(number)
    .execute(&mut connection)
    .await?;
    let _ = connection.close().await;
    Ok(())
}

/// The tables that a database of books may have: those that its migrations make, and their
/// histories.
fn ours() -> BTreeSet<String> {
    let migrators = [
        sqlx::migrate!("migrations/tenant"),
        sqlx::migrate!("migrations/shared"),
    ];
    let made = migrators.iter().flat_map(|migrator| {
        migrator
            .iter()
            .filter_map(|migration| made_by(migration.sql.as_str()))
            .collect::<Vec<_>>()
    });
    made.chain([HISTORY.to_owned(), SHARED_HISTORY.to_owned()])
        .collect()
}

/// The table that a migration makes, if it makes one.
fn made_by(sql: &str) -> Option<String> {
    let (_, rest) = sql.split_once("CREATE TABLE IF NOT EXISTS ")?;
    rest.split_whitespace().next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_of_books_are_those_of_the_migrations() {
        let ours = ours();
        for table in [
            "account",
            "transaction",
            "book_fence",
            "shard_meta",
            HISTORY,
        ] {
            assert!(ours.contains(table), "{table}");
        }
        assert!(!ours.contains("broker"), "that is the master's");
    }

    #[test]
    fn system_schemas_are_known_in_any_case() {
        assert!(is_system("MySQL") && is_system("sys"));
        assert!(!is_system("settlenet_shard_1"));
    }
}
