use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use sqlx::ConnectOptions;
use sqlx::mysql::MySqlConnectOptions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::stores::StoreError;
use crate::stores::migrate::{APPLIED, missing_in_book};
use crate::stores::pool::{Connection, Health, Pool, PoolBounds};

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
    /// Of each pool.
    pub bounds: PoolBounds,
}

impl Default for PoolLimits {
    fn default() -> Self {
        Self {
            max_pools: 64,
            bounds: PoolBounds::default(),
        }
    }
}

/// A pool as metrics show it.
#[derive(Clone, Debug)]
pub struct PoolUse {
    pub database: DatabaseKey,
    pub open: usize,
    pub idle: usize,
}

/// A server as metrics show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerUse {
    pub server: String,
    /// Connections that this process may use there at once.
    pub budget: usize,
    /// Of those, in use now.
    pub in_use: usize,
    /// Connections that are open there, idle ones too.
    pub open: usize,
}

/// What all pools of one server share: a budget of connections, and whether it answers.
pub(super) struct Server {
    name: String,
    url: String,
    most: usize,
    budget: Arc<Semaphore>,
    /// Its open pools, by database.
    pools: Mutex<HashMap<String, Pool>>,
    /// Known with the first pool, which reads the server's address.
    health: OnceLock<Arc<Health>>,
}

/// A pool with its server.
#[derive(Clone)]
pub(super) struct BookPool {
    pub(super) pool: Pool,
    database: String,
    /// Whether the database was found to be at this release's schema: it only goes forward.
    is_current: Arc<AtomicBool>,
    server: Arc<Server>,
    acquire_timeout: Duration,
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

/// Pools are looked through for idle connections once in so many uses, and with the metrics.
const SWEEP_EVERY: u64 = 256;

impl Pools {
    pub(super) fn new(servers: Vec<ServerUrl>, limits: PoolLimits) -> Self {
        let servers = servers
            .into_iter()
            .map(|server| {
                let shared = Server {
                    name: server.name.clone(),
                    url: server.url,
                    most: server.max_connections as usize,
                    pools: Mutex::default(),
                    budget: Arc::new(Semaphore::new(server.max_connections as usize)),
                    health: OnceLock::new(),
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
        if now.is_multiple_of(SWEEP_EVERY) {
            open.values().for_each(|open| open.pool.pool.sweep());
        }
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
            // Whoever still works on it finishes; its last connection ends with the last user.
            if let Some(oldest) = oldest
                && let Some(closed) = open.remove(&oldest)
            {
                closed.pool.server.pools().remove(&oldest.database);
            }
        }
        let known = pool.pool.clone();
        pool.server.pools().insert(key.database.clone(), known);
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
            .map(|(database, open)| {
                open.pool.pool.sweep();
                let (open, idle) = open.pool.pool.in_use();
                PoolUse {
                    database: database.clone(),
                    open,
                    idle,
                }
            })
            .collect()
    }

    /// Every server of the configuration, by name.
    pub(super) fn servers(&self) -> Vec<ServerUse> {
        let mut all: Vec<ServerUse> = self.servers.values().map(|server| server.used()).collect();
        all.sort_by(|a, b| a.server.cmp(&b.server));
        all
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
        let bounds = self.limits.bounds;
        let health = server
            .health
            .get_or_init(|| Arc::new(Health::new(options.clone(), bounds.retry_down_after)));
        let pool = Pool::on_server(options.database(&key.database), bounds, Arc::clone(health));
        Ok(BookPool {
            pool,
            database: key.database.clone(),
            is_current: Arc::default(),
            server: Arc::clone(server),
            acquire_timeout: bounds.acquire_timeout,
        })
    }
}

impl Server {
    fn pools(&self) -> MutexGuard<'_, HashMap<String, Pool>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn used(&self) -> ServerUse {
        let open = self.pools().values().map(|pool| pool.in_use().0).sum();
        ServerUse {
            server: self.name.clone(),
            budget: self.most,
            in_use: self.most.saturating_sub(self.budget.available_permits()),
            open,
        }
    }

    /// Makes room for one more connection: what is idle in the pools of other databases counts
    /// too, or a server with many of them would be filled by connections that nobody uses.
    fn make_room(&self) {
        let pools = self.pools();
        loop {
            let used: Vec<(usize, usize)> = pools.values().map(Pool::in_use).collect();
            let open: usize = used.iter().map(|(open, _)| open).sum();
            if open < self.most {
                return;
            }
            // From where most is idle, so that every database keeps some.
            let fullest = pools.values().zip(&used).max_by_key(|(_, (_, idle))| *idle);
            if !fullest.is_some_and(|(pool, _)| pool.close_one_idle()) {
                return;
            }
        }
    }

    /// Counts a caller who got no connection.
    fn refused(&self, why: &'static str) {
        let server = self.name.clone();
        metrics::counter!("settlenet_server_refusals_total", "server" => server, "why" => why)
            .increment(1);
    }
}

impl BookPool {
    /// A connection, within the server's budget. A server that was found away a moment ago fails
    /// at once, so that its brokers' requests don't pile up.
    pub(super) async fn acquire(&self) -> Result<(OwnedSemaphorePermit, Connection), StoreError> {
        if self.pool.is_down() {
            self.server.refused("down");
            return Err(self.failed(sqlx::Error::PoolTimedOut));
        }
        let begun = Instant::now();
        let got = self.acquire_within().await;
        let server = self.server.name.clone();
        metrics::histogram!("settlenet_server_wait_seconds", "server" => server)
            .record(begun.elapsed());
        got
    }

    async fn acquire_within(&self) -> Result<(OwnedSemaphorePermit, Connection), StoreError> {
        let budget = Arc::clone(&self.server.budget).acquire_owned();
        let Ok(permit) = tokio::time::timeout(self.acquire_timeout, budget).await else {
            self.server.refused("budget");
            return Err(self.failed(sqlx::Error::PoolTimedOut));
        };
        let permit = permit.map_err(|_| self.failed(sqlx::Error::PoolClosed))?;
        let (_, idle) = self.pool.in_use();
        if idle == 0 {
            self.server.make_room();
        }
        match self.pool.acquire().await {
            Ok(mut connection) => {
                self.check_schema(&mut connection).await?;
                Ok((permit, connection))
            }
            Err(error) => {
                self.server.refused("connection");
                Err(self.failed(error))
            }
        }
    }

    /// Refuses a database that is behind this release, before a statement fails on it in the
    /// middle of something. Asked once while the pool is open.
    async fn check_schema(&self, connection: &mut Connection) -> Result<(), StoreError> {
        if self.is_current.load(Ordering::Relaxed) {
            return Ok(());
        }
        let applied = sqlx::query_scalar(APPLIED).fetch_all(connection).await;
        let applied: Vec<i64> = applied.map_err(|error| self.failed(error))?;
        if let Some(missing) = missing_in_book(&applied) {
            self.server.refused("outdated");
            let database = format!("{}/{}", self.server.name, self.database);
            return Err(StoreError::Outdated { database, missing });
        }
        self.is_current.store(true, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn failed(&self, error: sqlx::Error) -> StoreError {
        StoreError::from_sqlx(&self.server.name, error)
    }
}
