//! Databases of a test's own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use settlenet::config::{Config, SecretUrl};
use settlenet::stack::ServerName;
use settlenet::stores::migrate::migrate_postgres;
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::sync::OnceCell;

use super::servers::{Stack, stack};

/// A server that stands still doesn't answer at all.
const DROPPED_WITHIN: std::time::Duration = std::time::Duration::from_secs(20);

/// Uniquely named databases: a master and a shard on server `a`, and tenants on
/// server `b` as asked for. Dropped at the end; what a killed test leaves, the
/// next run sweeps.
pub struct Databases {
    /// Starts the name of each of this test's databases.
    pub prefix: String,
    /// On server `a`.
    pub master: String,
    /// On server `a`.
    pub shard: String,
    /// On server `b`, as made by [`Databases::tenant`].
    pub tenants: Vec<String>,
    config: Config,
    config_file: PathBuf,
}

impl Databases {
    /// On the shared stack. They are empty: migrations are the caller's.
    pub async fn new() -> Self {
        static SWEPT: OnceCell<()> = OnceCell::const_new();
        // Off the runtime: starting a stack takes seconds.
        let shared = tokio::task::spawn_blocking(stack)
            .await
            .expect("the stack starts");
        let prepare = async || {
            sweep(shared).await;
            // The payment manager's database is all tests'.
            let url = shared.config().postgres.url;
            migrate_postgres(&url).await.expect("migrates");
        };
        SWEPT.get_or_init(prepare).await;
        Self::on(shared).await
    }

    /// On a given stack.
    pub async fn on(stack: &Stack) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let me = std::process::id();
        let started = start_time(me).expect("this process runs");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("test_{me}_{started}_{number}_");
        let config_file = stack.description.config.clone();
        let mut config = stack.config();
        let master = format!("{prefix}master");
        let shard = format!("{prefix}shard");
        config.master.url = config.master.url.with_database(&master);
        config.books.database_prefix.clone_from(&prefix);
        // What was signed last is kept in the payment manager's database, which is all tests'.
        config.checkpoints.name = format!("{prefix}log");
        let databases = Self {
            prefix,
            master,
            shard,
            tenants: Vec::new(),
            config,
            config_file,
        };
        databases.create("a", &databases.master).await;
        databases.create("a", &databases.shard).await;
        databases
    }

    /// Makes one more tenant database on server `b`; returns its name.
    pub async fn tenant(&mut self) -> String {
        let name = format!("{}tenant{}", self.prefix, self.tenants.len() + 1);
        self.create("b", &name).await;
        self.tenants.push(name.clone());
        name
    }

    /// Makes a payment manager's database of the test's own; else it has the stack's, which is
    /// nobody's to write in.
    pub async fn payments(&mut self) {
        let url = &self.config.postgres.url;
        let name = format!("{}pm", self.prefix);
        let mut connection = PgConnection::connect(url.expose())
            .await
            .expect("PostgreSQL answers");
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {name}")))
            .execute(&mut connection)
            .await
            .expect("a new name");
        self.config.postgres.url = url.with_database(&name);
    }

    /// A configuration whose master is this one.
    pub fn config(&self) -> Config {
        self.config.clone()
    }

    /// The configuration file of the stack, for programs that a test starts; the
    /// master's URL goes into `SETTLENET_MASTER__URL`.
    pub fn config_file(&self) -> &Path {
        &self.config_file
    }

    /// Of the payment manager's database.
    pub fn payments_url(&self) -> &SecretUrl {
        &self.config.postgres.url
    }

    pub fn master_url(&self) -> &SecretUrl {
        &self.config.master.url
    }

    pub fn shard_url(&self) -> SecretUrl {
        self.url("a", &self.shard)
    }

    /// The URL of any database on server `a` or `b`.
    pub fn url(&self, server: &str, database: &str) -> SecretUrl {
        self.config.servers[server].url.with_database(database)
    }

    async fn create(&self, server: &str, name: &str) {
        let url = self.config.servers[server].url.expose();
        let mut connection = MySqlConnection::connect(url)
            .await
            .expect("MariaDB answers");
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE `{name}`")))
            .execute(&mut connection)
            .await
            .expect("a new name");
    }
}

impl Drop for Databases {
    fn drop(&mut self) {
        let urls: Vec<String> = self
            .config
            .servers
            .values()
            .map(|s| s.url.expose().to_owned())
            .collect();
        let prefix = std::mem::take(&mut self.prefix);
        let payments = format!("{prefix}pm");
        let theirs = self.config.postgres.url.clone();
        let own = theirs.database() == Some(payments.as_str());
        // A runtime of its own, on its own thread: the test's may be single.
        let cleaner = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.expect("a runtime").block_on(async {
                for url in urls {
                    // A server that the test has stopped or paused keeps them for the sweep.
                    let dropped = drop_where(&url, |name| name.starts_with(&prefix));
                    let _ = tokio::time::timeout(DROPPED_WITHIN, dropped).await;
                }
                if own {
                    let admin = theirs.with_database("postgres");
                    let dropped = drop_payments(admin.expose(), |name| name == payments);
                    let _ = tokio::time::timeout(DROPPED_WITHIN, dropped).await;
                }
            });
        });
        let _ = cleaner.join();
    }
}

/// Drops what tests left that no longer run.
async fn sweep(stack: &Stack) {
    drop_payments(stack.url(ServerName::Postgres), is_abandoned)
        .await
        .expect("PostgreSQL answers");
    for server in [ServerName::MariadbA, ServerName::MariadbB] {
        drop_where(stack.url(server), is_abandoned)
            .await
            .expect("MariaDB answers");
    }
}

async fn drop_where(url: &str, chosen: impl Fn(&str) -> bool) -> sqlx::Result<()> {
    let mut connection = MySqlConnection::connect(url).await?;
    // A connection that somebody left in a transaction must not hang the test.
    sqlx::query("SET SESSION lock_wait_timeout = 5")
        .execute(&mut connection)
        .await?;
    let names: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(schema_name AS CHAR) FROM information_schema.schemata \
         WHERE schema_name LIKE 'test\\_%'",
    )
    .fetch_all(&mut connection)
    .await?;
    for name in names.iter().filter(|name| chosen(name)) {
        sqlx::query(AssertSqlSafe(format!("DROP DATABASE IF EXISTS `{name}`")))
            .execute(&mut connection)
            .await?;
    }
    Ok(())
}

async fn drop_payments(url: &str, chosen: impl Fn(&str) -> bool) -> sqlx::Result<()> {
    let mut connection = PgConnection::connect(url).await?;
    let names: Vec<String> =
        sqlx::query_scalar("SELECT datname::text FROM pg_database WHERE datname LIKE 'test\\_%'")
            .fetch_all(&mut connection)
            .await?;
    for name in names.iter().filter(|name| chosen(name)) {
        let drop = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
        sqlx::query(AssertSqlSafe(drop))
            .execute(&mut connection)
            .await?;
    }
    Ok(())
}

/// Whether the process that named the database is gone.
fn is_abandoned(database: &str) -> bool {
    let mut parts = database.split('_').skip(1);
    let pid = parts.next().and_then(|pid| pid.parse().ok());
    let started = parts.next().and_then(|ticks| ticks.parse::<u64>().ok());
    match (pid, started) {
        (Some(pid), Some(started)) => start_time(pid) != Some(started),
        _ => false,
    }
}

/// A process's start, in ticks since boot; a recycled pid has another one.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_ascii_whitespace()
        .nth(19)?
        .parse()
        .ok()
}
