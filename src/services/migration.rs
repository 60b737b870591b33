//! Brings all databases of a network to the schema that this program knows.
//!
//! The master comes first: its registry says which databases of books there are. Those and the
//! payment manager's follow side by side, and one that fails holds up no other. Running it again goes on where it stopped; two
//! processes at once take turns on each database.

use futures::{StreamExt as _, stream};

use crate::config::{Config, SecretUrl};
use crate::stores::migrate::{
    Database, Kind, MigrationError, check_name, migrate, missing_in_master, missing_in_payments,
    registered,
};

/// Databases that are migrated at the same time.
const PARALLEL: usize = 8;

/// What became of one database.
#[derive(Debug)]
pub struct Report {
    pub database: Database,
    /// Migrations that this run applied.
    pub outcome: Result<usize, MigrationError>,
}

/// Migrates the master and then every database that its registry names, calling
/// `progress` as each is done: `(report, how many are done, how many there are)`.
/// Databases that do not exist yet are created.
///
/// # Errors
/// When the master itself fails; another's failure is in its report.
pub async fn migrate_all(
    config: &Config,
    mut progress: impl FnMut(&Report, usize, usize),
) -> Result<Vec<Report>, MigrationError> {
    let master = Database {
        kind: Kind::Master,
        server: None,
        name: database_of(&config.master.url)?,
    };
    let applied = migrate(&config.master.url, Kind::Master).await?;
    let books = registered(&config.master.url).await?;
    let payments = Database {
        kind: Kind::PaymentManager,
        server: None,
        name: database_of(&config.postgres.url)?,
    };
    let total = books.len() + 2;
    let first = Report {
        database: master,
        outcome: Ok(applied),
    };
    progress(&first, 1, total);
    let mut reports = vec![first];

    let mut running = stream::iter(books.into_iter().chain([payments]))
        .map(|database| async move {
            let outcome = migrate_registered(config, &database).await;
            Report { database, outcome }
        })
        .buffer_unordered(PARALLEL);
    while let Some(report) = running.next().await {
        progress(&report, reports.len() + 1, total);
        reports.push(report);
    }
    Ok(reports)
}

/// The first migration that the master or the payment manager's database lacks: a process that
/// works on it would fail in the middle of something. Nothing where they are away, which is found
/// out later.
pub async fn missing(config: &Config) -> Option<String> {
    let master = missing_in_master(&config.master.url).await.ok().flatten();
    if let Some(missing) = master {
        return Some(format!("the master's database lacks migration {missing}"));
    }
    let payments = missing_in_payments(&config.postgres.url).await;
    let missing = payments.ok().flatten()?;
    Some(format!(
        "the payment manager's database lacks migration {missing}"
    ))
}

fn database_of(url: &SecretUrl) -> Result<String, MigrationError> {
    let name = url.database().ok_or(MigrationError::NoDatabase)?;
    Ok(name.to_owned())
}

async fn migrate_registered(config: &Config, database: &Database) -> Result<usize, MigrationError> {
    if database.kind == Kind::PaymentManager {
        return migrate(&config.postgres.url, database.kind).await;
    }
    let server = database.server.as_deref().unwrap_or_default();
    let server = config
        .servers
        .get(server)
        .ok_or_else(|| MigrationError::UnknownServer(server.to_owned()))?;
    check_name(&database.name)?;
    migrate(&server.url.with_database(&database.name), database.kind).await
}
