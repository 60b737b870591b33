//! The payment manager's database. `PostgreSQL` changes its schema in transactions, and sqlx's own
//! lock works there: a file is applied whole or not at all, by one process at a time.

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{APPLIED, CONNECT_LIMIT, MigrationError, first_missing};
use crate::config::SecretUrl;

/// Migrates the database that `url` names, which must be there. Returns how many migrations were
/// applied.
///
/// # Errors
/// When it cannot be reached or changed.
pub async fn migrate_postgres(url: &SecretUrl) -> Result<usize, MigrationError> {
    let options: PgConnectOptions = url.expose().parse().map_err(MigrationError::Connect)?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(CONNECT_LIMIT)
        .connect_with(options.disable_statement_logging())
        .await
        .map_err(MigrationError::Connect)?;
    let outcome = async {
        let before = applied(&pool).await?;
        sqlx::migrate!("migrations/pm").run(&pool).await?;
        Ok(applied(&pool).await?.saturating_sub(before))
    };
    let outcome = outcome.await;
    pool.close().await;
    outcome
}

/// The first migration that the payment manager's database lacks for this program.
///
/// # Errors
/// When it can't be reached or read.
pub async fn missing_in_payments(url: &SecretUrl) -> Result<Option<String>, MigrationError> {
    let options: PgConnectOptions = url.expose().parse().map_err(MigrationError::Connect)?;
    let options = options.disable_statement_logging();
    let connecting = tokio::time::timeout(CONNECT_LIMIT, options.connect()).await;
    let connected = connecting.map_err(|_| MigrationError::Connect(sqlx::Error::PoolTimedOut))?;
    let mut connection = connected.map_err(MigrationError::Connect)?;
    let applied = sqlx::query_scalar(APPLIED).fetch_all(&mut connection);
    let applied: Vec<i64> = match applied.await {
        Ok(applied) => applied,
        // It was never migrated at all.
        Err(sqlx::Error::Database(_)) => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    drop(connection.close().await);
    Ok(first_missing(&sqlx::migrate!("migrations/pm"), &applied))
}

async fn applied(pool: &PgPool) -> Result<usize, MigrationError> {
    let there: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await?;
    if !there {
        return Ok(0);
    }
    let rows: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations")
        .fetch_one(pool)
        .await?;
    Ok(usize::try_from(rows).unwrap_or(usize::MAX))
}
