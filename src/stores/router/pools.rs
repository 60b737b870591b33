use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{ConnectOptions, MySqlPool};
use tokio::sync::Semaphore;

use crate::stores::StoreError;

/// One database of one server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DatabaseKey {
    /// The server's name in the registry and in the configuration.
    pub server: String,
    pub database: String,
}

/// A server of the configuration.
#[derive(Clone, Debug)]
pub struct ServerUrl {
    pub name: String,
    /// Without a database.
    pub url: String,
    /// Connections that this process may use there at once, over all its databases.
    pub max_connections: u32,
}

/// Bounds of the pools to books.
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Open pools; the one that was used longest ago is closed for a new one.
    pub max_pools: usize,
    pub connections_per_pool: u32,
    /// How long a caller waits for a connection before the server counts as away.
    pub acquire_timeout: Duration,
    /// How long a statement may take, well beyond the server's own wait for a lock: a server that
    /// stands still without closing its connections counts as away after that.
    pub statement_timeout: Duration,
    /// How long a server that was found away is not asked again.
    pub retry_down_after: Duration,
    /// Idle connections are closed after this time.
    pub idle_timeout: Duration,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            max_pools: 64,
            connections_per_pool: 16,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(10),
            retry_down_after: Duration::from_millis(500),
            idle_timeout: Duration::from_mins(5),
        }
    }
}

/// A pool as metrics show it.
#[derive(Clone, Debug)]
pub struct PoolUse {
    pub database: DatabaseKey,
    pub open: u32,
    pub idle: usize,
}

/// What all pools of one server share: a budget of connections, and whether it answers.
pub(super) struct Server {
    name: String,
    url: String,
    budget: Semaphore,
    down_until: Mutex<Option<Instant>>,
}

/// A pool with its server.
#[derive(Clone)]
pub(super) struct BookPool {
    pub(super) pool: MySqlPool,
    pub(super) server: Arc<Server>,
    acquire_timeout: Duration,
    statement_timeout: Duration,
    retry_down_after: Duration,
}

struct Open {
    pool: BookPool,
    used: AtomicU64,
}

pub(super) struct Pools {
    servers: HashMap<String, Arc<Server>>,
    limits: PoolLimits,
    open: Mutex<HashMap<DatabaseKey, Open>>,
    uses: AtomicU64,
}

impl Pools {
    pub(super) fn new(servers: Vec<ServerUrl>, limits: PoolLimits) -> Self {
        let servers = servers
            .into_iter()
            .map(|server| {
                let shared = Server {
                    name: server.name.clone(),
                    url: server.url,
                    budget: Semaphore::new(server.max_connections as usize),
                    down_until: Mutex::new(None),
                };
                (server.name, Arc::new(shared))
            })
            .collect();
        Self {
            servers,
            limits,
            open: Mutex::default(),
            uses: AtomicU64::new(0),
        }
    }

    pub(super) fn server_url(&self, server: &str) -> Result<String, StoreError> {
        self.server(server).map(|server| server.url.clone())
    }

    /// Whether a server answers a connection of its own: a pool may hold dead ones.
    pub(super) async fn answers(&self, server: &str) -> bool {
        let Ok(server) = self.server(server) else {
            return false;
        };
        let Ok(options) = server.url.parse::<MySqlConnectOptions>() else {
            return false;
        };
        match options.connect().await {
            Ok(connection) => sqlx::Connection::close(connection).await.is_ok(),
            Err(_) => false,
        }
    }

    /// The pool of a database; opening one connects to nothing yet.
    pub(super) fn get(&self, key: &DatabaseKey) -> Result<BookPool, StoreError> {
        let now = self.uses.fetch_add(1, Ordering::Relaxed);
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = open.get(key) {
            found.used.store(now, Ordering::Relaxed);
            return Ok(found.pool.clone());
        }
        let pool = self.connect_lazily(key)?;
        if open.len() >= self.limits.max_pools {
            let oldest = open
                .iter()
                .min_by_key(|(_, pool)| pool.used.load(Ordering::Relaxed))
                .map(|(key, _)| key.clone());
            if let Some(closed) = oldest.and_then(|key| open.remove(&key)) {
                // Whoever still works on it finishes: closing waits for connections to come back.
                tokio::spawn(async move { closed.pool.pool.close().await });
            }
        }
        let used = AtomicU64::new(now);
        open.insert(
            key.clone(),
            Open {
                pool: pool.clone(),
                used,
            },
        );
        Ok(pool)
    }

    pub(super) fn in_use(&self) -> Vec<PoolUse> {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .map(|(database, open)| PoolUse {
                database: database.clone(),
                open: open.pool.pool.size(),
                idle: open.pool.pool.num_idle(),
            })
            .collect()
    }

    fn server(&self, name: &str) -> Result<&Arc<Server>, StoreError> {
        self.servers
            .get(name)
            .ok_or_else(|| StoreError::UnknownServer {
                server: name.to_owned(),
            })
    }

    fn connect_lazily(&self, key: &DatabaseKey) -> Result<BookPool, StoreError> {
        let server = self.server(&key.server)?;
        let options: MySqlConnectOptions = server
            .url
            .parse()
            .map_err(|error| StoreError::from_sqlx(&key.server, error))?;
        let options = options.database(&key.database).disable_statement_logging();
        let pool = MySqlPoolOptions::new()
            .max_connections(self.limits.connections_per_pool)
            .acquire_timeout(self.limits.acquire_timeout)
            .idle_timeout(self.limits.idle_timeout)
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Ok(BookPool {
            pool,
            server: Arc::clone(server),
            acquire_timeout: self.limits.acquire_timeout,
            statement_timeout: self.limits.statement_timeout,
            retry_down_after: self.limits.retry_down_after,
        })
    }
}

impl BookPool {
    /// A connection, within the server's budget. A server that was found away a moment ago fails
    /// at once, so that its brokers' requests don't pile up.
    pub(super) async fn acquire(
        &self,
    ) -> Result<
        (
            tokio::sync::SemaphorePermit<'_>,
            sqlx::pool::PoolConnection<sqlx::MySql>,
        ),
        StoreError,
    > {
        if self.is_down() {
            return Err(self.unavailable(sqlx::Error::PoolTimedOut));
        }
        let permit = tokio::time::timeout(self.acquire_timeout, self.server.budget.acquire())
            .await
            .map_err(|_| self.unavailable(sqlx::Error::PoolTimedOut))?
            .map_err(|_| self.unavailable(sqlx::Error::PoolClosed))?;
        match self.pool.acquire().await {
            Ok(connection) => Ok((permit, connection)),
            Err(error) => {
                let error = StoreError::from_sqlx(&self.server.name, error);
                if error.is_unavailable() {
                    self.mark_down();
                }
                Err(error)
            }
        }
    }

    /// A statement's outcome, within the bound. One that is given up leaves its connection in an
    /// unknown state: it must be closed.
    pub(super) async fn statement<T>(
        &self,
        work: impl Future<Output = Result<T, sqlx::Error>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.statement_timeout, work).await {
            Ok(outcome) => outcome.map_err(|error| StoreError::from_sqlx(&self.server.name, error)),
            Err(late) => {
                self.mark_down();
                Err(self.unavailable(sqlx::Error::Io(late.into())))
            }
        }
    }

    fn unavailable(&self, source: sqlx::Error) -> StoreError {
        StoreError::Unavailable {
            database: self.server.name.clone(),
            source,
        }
    }

    fn is_down(&self) -> bool {
        self.server
            .down_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|until| Instant::now() < until)
    }

    fn mark_down(&self) {
        let until = Instant::now() + self.retry_down_after;
        *self
            .server
            .down_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
    }
}
