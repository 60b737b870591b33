//! Brings one database to the schema that this program knows, and says which databases the
//! master's registry names. Running it again goes on where it stopped; two processes at once
//! take turns.

mod postgres;
mod survey;

pub use postgres::{migrate_postgres, missing_in_payments};
pub use survey::{Survey, forget_number, is_system, survey};

use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection, MySqlPool, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use crate::config::SecretUrl;

/// How long to wait for another process that migrates the same database.
const LOCK_WAIT_S: u32 = 120;
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Where a shared shard keeps the history of what it has besides a tenant's
/// tables: the versions of the two folders are counted apart.
const SHARED_HISTORY: &str = "_sqlx_migrations_shared";

/// What a database is for, hence which tables it gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Master,
    /// A tenant's tables, and what only a shard has.
    Shared,
    Tenant,
    /// On `PostgreSQL`: see [`migrate_postgres`].
    PaymentManager,
}

/// One database of the network.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Database {
    pub kind: Kind,
    /// The server's name in the configuration; `None` for the master's own and the payment
    /// manager's.
    pub server: Option<String>,
    pub name: String,
}

impl std::fmt::Display for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            Some(server) => write!(f, "{server}/{}", self.name),
            None if self.kind == Kind::PaymentManager => write!(f, "postgres/{}", self.name),
            None => write!(f, "master/{}", self.name),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("no server {0:?} in the configuration ([servers.{0}])")]
    UnknownServer(String),
    #[error("the URL names no database")]
    NoDatabase,
    #[error("{0:?} is no name for a database: letters, digits, _ and - only, 64 at most")]
    BadName(String),
    #[error("not reachable")]
    Connect(#[source] sqlx::Error),
    #[error("another process has been migrating it for {LOCK_WAIT_S} s")]
    Locked,
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Migrate(#[from] MigrateError),
}

/// All databases that the master's registry names and that are whole, each once, with those that a
/// moved book has left: one that is being made is migrated by its making.
///
/// # Errors
/// When the master can't be reached or read.
pub async fn registered(master: &SecretUrl) -> Result<Vec<Database>, MigrationError> {
    let mut connection = connect(master.expose()).await?;
    let rows: Vec<(bool, String, String)> = sqlx::query_as(
        "SELECT TRUE, server_name, database_name FROM shared_shard WHERE state = 'open' \
         UNION \
         SELECT FALSE, server_name, database_name FROM broker \
         WHERE broker_mode = 'FULL' AND state <> 'provisioning' \
           AND server_name IS NOT NULL AND database_name IS NOT NULL \
         UNION \
         SELECT FALSE, from_server, from_database FROM broker_move \
         WHERE from_shard_id IS NULL AND state IN ('flipped', 'retained', 'purging', 'kept') \
         UNION \
         SELECT FALSE, to_server, to_database FROM broker_move \
         WHERE to_shard_id IS NULL \
           AND state IN ('copying', 'fencing', 'rolling_back', 'cancelling')",
    )
    .fetch_all(&mut connection)
    .await?;
    let _ = connection.close().await;
    let mut databases: Vec<Database> = rows
        .into_iter()
        .map(|(shared, server, name)| Database {
            kind: if shared { Kind::Shared } else { Kind::Tenant },
            server: Some(server),
            name,
        })
        .collect();
    databases.sort();
    Ok(databases)
}

/// The first migration of a folder that a database's history lacks, by number and name; `history`
/// are the versions that it has. What a later release has applied besides is none of our business:
/// it only adds.
fn first_missing(migrator: &Migrator, history: &[i64]) -> Option<String> {
    let missing = migrator
        .iter()
        .find(|known| !history.contains(&known.version));
    missing.map(|missing| format!("{:04} {}", missing.version, missing.description))
}

/// The first migration that the master lacks for this program.
///
/// # Errors
/// When it can't be reached or read.
pub async fn missing_in_master(url: &SecretUrl) -> Result<Option<String>, MigrationError> {
    let mut connection = connect(url.expose()).await?;
    let applied = sqlx::query_scalar(APPLIED).fetch_all(&mut connection);
    let applied: Vec<i64> = match applied.await {
        Ok(applied) => applied,
        // It was never migrated at all.
        Err(sqlx::Error::Database(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let _ = connection.close().await;
    Ok(first_missing(
        &sqlx::migrate!("migrations/master"),
        &applied,
    ))
}

/// The versions that a database has.
pub(super) const APPLIED: &str = "SELECT version FROM _sqlx_migrations WHERE success = TRUE";

/// The first migration that a database of books lacks for this program; `history` is what
/// [`APPLIED`] gives there.
#[must_use]
pub(super) fn missing_in_book(history: &[i64]) -> Option<String> {
    first_missing(&sqlx::migrate!("migrations/tenant"), history)
}

/// Migrates the one database that `url` names, creating it if there is none.
/// Returns how many migrations were applied.
///
/// # Errors
/// When it cannot be reached, locked or changed. It can be tried again: what is
/// done stays done.
pub async fn migrate(url: &SecretUrl, kind: Kind) -> Result<usize, MigrationError> {
    if kind == Kind::PaymentManager {
        return migrate_postgres(url).await;
    }
    let name = url.database().ok_or(MigrationError::NoDatabase)?;
    check_name(name)?;
    // The lock's connection names no database: there may be none yet.
    let mut guard = connect(&server_url(url)).await?;
    // sqlx's own lock waits for -1 seconds, which MariaDB takes for not at all.
    // Lock names are the server's, at most 64 bytes.
    let lock = format!("mig:{name}").chars().take(64).collect::<String>();
    let locked: Option<i64> = sqlx::query_scalar("SELECT CAST(GET_LOCK(?, ?) AS SIGNED)")
        .bind(&lock)
        .bind(LOCK_WAIT_S)
        .fetch_one(&mut guard)
        .await?;
    if locked != Some(1) {
        return Err(MigrationError::Locked);
    }
    sqlx::query(AssertSqlSafe(format!(
        "CREATE DATABASE IF NOT EXISTS `{name}` CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
    )))
    .execute(&mut guard)
    .await?;
    let outcome = apply(url, kind).await;
    // Ends the lock with it, also when this fails.
    let _ = guard.close().await;
    outcome
}

async fn apply(url: &SecretUrl, kind: Kind) -> Result<usize, MigrationError> {
    // A connection of the migrator's own: a failed run leaves it in any state.
    let pool = MySqlPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_LIMIT)
        .connect_with(options(url.expose())?)
        .await
        .map_err(MigrationError::Connect)?;
    let outcome = async {
        match kind {
            Kind::Master => run(&pool, sqlx::migrate!("migrations/master")).await,
            Kind::Tenant => run(&pool, sqlx::migrate!("migrations/tenant")).await,
            // Not on a server of this family.
            Kind::PaymentManager => Ok(0),
            Kind::Shared => {
                let tenant = run(&pool, sqlx::migrate!("migrations/tenant")).await?;
                let mut shared = sqlx::migrate!("migrations/shared");
                shared.dangerous_set_table_name(SHARED_HISTORY);
                Ok(tenant + run(&pool, shared).await?)
            }
        }
    };
    let outcome = outcome.await;
    pool.close().await;
    outcome
}

/// Runs what is missing and returns how many that were.
async fn run(pool: &MySqlPool, mut migrator: Migrator) -> Result<usize, MigrationError> {
    // The lock is taken by the caller, in a way that works.
    migrator.set_locking(false);
    let history = migrator.table_name.clone();
    let before = count(pool, &history).await?;
    if before.is_some() {
        // A process that died half-way leaves its file marked as not done. Every
        // file is safe to run again, and under the lock nobody else is at it.
        sqlx::query(AssertSqlSafe(format!(
            "DELETE FROM {history} WHERE success = FALSE"
        )))
        .execute(pool)
        .await?;
    }
    let before = if before.is_some() {
        count(pool, &history).await?
    } else {
        None
    };
    migrator.run(pool).await?;
    let after = count(pool, &history).await?;
    Ok(after.unwrap_or(0).saturating_sub(before.unwrap_or(0)))
}

/// Rows of the history table, `None` while there is no such table.
async fn count(pool: &MySqlPool, history: &str) -> Result<Option<usize>, MigrationError> {
    let exists: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM information_schema.tables \
         WHERE table_schema = DATABASE() AND table_name = ?",
    )
    .bind(history)
    .fetch_one(pool)
    .await?;
    if exists == 0 {
        return Ok(None);
    }
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM {history}")))
        .fetch_one(pool)
        .await?;
    Ok(Some(usize::try_from(rows).unwrap_or(usize::MAX)))
}

fn options(url: &str) -> Result<MySqlConnectOptions, MigrationError> {
    let options: MySqlConnectOptions = url.parse().map_err(MigrationError::Connect)?;
    // Statements of hundreds of databases tell nothing: progress is reported.
    Ok(options.disable_statement_logging())
}

async fn connect(url: &str) -> Result<MySqlConnection, MigrationError> {
    let options = options(url)?;
    let connecting = MySqlConnection::connect_with(&options);
    match tokio::time::timeout(CONNECT_LIMIT, connecting).await {
        Ok(connected) => connected.map_err(MigrationError::Connect),
        Err(_) => Err(MigrationError::Connect(sqlx::Error::PoolTimedOut)),
    }
}

/// The same server without a database.
fn server_url(url: &SecretUrl) -> String {
    url.with_database("").expose().to_owned()
}

/// Names go into statements as identifiers, where nothing can be bound.
///
/// # Errors
/// [`MigrationError::BadName`].
pub fn check_name(name: &str) -> Result<(), MigrationError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if !name.is_empty() && name.len() <= 64 && name.chars().all(plain) {
        return Ok(());
    }
    Err(MigrationError::BadName(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    /// Two changes that were made side by side may have taken the same number.
    #[test]
    fn no_two_migrations_have_one_number() {
        let all = [
            ("master", sqlx::migrate!("migrations/master")),
            ("tenant", sqlx::migrate!("migrations/tenant")),
            ("shared", sqlx::migrate!("migrations/shared")),
            ("pm", sqlx::migrate!("migrations/pm")),
        ];
        for (folder, migrator) in all {
            let mut numbers = HashSet::new();
            for migration in migrator.iter() {
                let number = migration.version;
                assert!(numbers.insert(number), "{folder} has {number} twice");
            }
        }
    }
}
