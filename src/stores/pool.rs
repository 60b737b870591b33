//! Connections to one database of the MySQL family: pooled, and bounded in number and in time.
//!
//! A server that closes its connections is noticed by itself. One that stands still, or is gone
//! without a word, is noticed by the bounds: on connecting, and on every statement. It is not
//! asked again for a moment then, so that what depends on it fails at once instead of queueing
//! (see [`Health`]).
//! A connection whose statement was given up, or which was left inside a transaction, may be in
//! any state: it is closed and never handed on.

mod connection;
mod health;

pub use connection::Connection;
pub use health::Health;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use deadpool::managed::{
    self, Metrics, PoolError, QueueMode, RecycleError, RecycleResult, Timeouts,
};
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryFutureExt};
use sqlx::mysql::{MySqlConnectOptions, MySqlQueryResult, MySqlRow, MySqlStatement};
use sqlx::{
    ConnectOptions as _, Connection as _, Describe, Either, Execute, Executor, MySql,
    MySqlConnection, SqlStr,
};

/// Bounds of one pool.
#[derive(Clone, Copy, Debug)]
pub struct PoolBounds {
    pub max_connections: usize,
    /// How long a caller waits for a connection, and a new connection may take.
    pub acquire_timeout: Duration,
    /// How long a statement may take, well beyond the server's own wait for a lock.
    pub statement_timeout: Duration,
    /// How long a server that was found away is not asked again.
    pub retry_down_after: Duration,
    /// Connections that were idle for so long are closed.
    pub idle_timeout: Duration,
}

impl Default for PoolBounds {
    fn default() -> Self {
        Self {
            max_connections: 16,
            acquire_timeout: Duration::from_secs(2),
            statement_timeout: Duration::from_secs(10),
            retry_down_after: Duration::from_millis(500),
            idle_timeout: Duration::from_mins(5),
        }
    }
}

/// How long a statement on a whole table may take.
const PATIENT: Duration = Duration::from_mins(10);
/// Statements that a connection keeps prepared: ours, each in the few sizes of its lists.
const STATEMENTS: usize = 256;
/// An idle connection is asked whether it still lives before it is used again, unless it was
/// used a moment ago and none has been found broken since.
const TRUSTED_FOR: Duration = Duration::from_millis(500);
/// How long it may take to say so.
const PING: Duration = Duration::from_secs(1);
/// Connections are renewed, so that they follow a server's name to another address.
const LIFETIME: Duration = Duration::from_mins(30);
/// What every session has, whatever the server's own settings. Nobody waits long for a lock.
const SESSION: &str = "SET SESSION innodb_lock_wait_timeout = 3; \
     SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED";
/// `MariaDB` only: a client that stands still inside a transaction must not hold a book's rows.
const SESSION_OF_MARIADB: &str = "SET SESSION idle_transaction_timeout = 5";

/// How one more connection is made, and an idle one looked at.
#[derive(Debug)]
struct Connector {
    options: MySqlConnectOptions,
    health: Arc<Health>,
}

impl managed::Manager for Connector {
    type Type = MySqlConnection;
    type Error = sqlx::Error;

    async fn create(&self) -> Result<MySqlConnection, sqlx::Error> {
        let mut connection = self.options.connect().await?;
        connection.execute(SESSION).await?;
        match connection.execute(SESSION_OF_MARIADB).await {
            // MySQL has no such variable.
            Ok(_) | Err(sqlx::Error::Database(_)) => Ok(connection),
            Err(error) => Err(error),
        }
    }

    async fn recycle(
        &self,
        connection: &mut MySqlConnection,
        metrics: &Metrics,
    ) -> RecycleResult<sqlx::Error> {
        if metrics.age() > LIFETIME {
            return Err(RecycleError::message("it is old"));
        }
        let used = metrics.recycled.unwrap_or(metrics.created);
        if used.elapsed() < TRUSTED_FOR && !self.health.lost_since(used) {
            return Ok(());
        }
        match tokio::time::timeout(PING, connection.ping()).await {
            Ok(answer) => Ok(answer?),
            Err(late) => {
                self.health.mark_down();
                Err(RecycleError::Backend(sqlx::Error::Io(late.into())))
            }
        }
    }
}

/// Connections to one database. Clones share them; none is made before it is needed.
#[derive(Clone, Debug)]
pub struct Pool {
    inner: managed::Pool<Connector>,
    health: Arc<Health>,
    acquire_timeout: Duration,
    statement_timeout: Duration,
    idle_timeout: Duration,
    /// When idle connections were last looked for.
    swept: Arc<Mutex<Instant>>,
}

impl Pool {
    /// A pool to a database of its own server.
    #[must_use]
    pub fn new(options: MySqlConnectOptions, bounds: PoolBounds) -> Self {
        let health = Arc::new(Health::new(options.clone(), bounds.retry_down_after));
        Self::on_server(options, bounds, health)
    }

    /// A pool to one of several databases of a server.
    ///
    /// # Panics
    /// Never: bounds in time have the runtime that they need.
    #[must_use]
    pub fn on_server(
        options: MySqlConnectOptions,
        bounds: PoolBounds,
        health: Arc<Health>,
    ) -> Self {
        let options = options
            .statement_cache_capacity(STATEMENTS)
            .disable_statement_logging();
        let connector = Connector {
            options,
            health: Arc::clone(&health),
        };
        let inner = managed::Pool::builder(connector)
            .max_size(bounds.max_connections)
            .timeouts(Timeouts {
                wait: Some(bounds.acquire_timeout),
                create: Some(bounds.acquire_timeout),
                recycle: Some(bounds.acquire_timeout),
            })
            .runtime(deadpool::Runtime::Tokio1)
            // The one that was used last has its statements prepared and its server's caches
            // warm; the others may grow old and be closed.
            .queue_mode(QueueMode::Lifo)
            .build()
            .expect("a runtime is given, which is all that can be missing");
        Self {
            inner,
            health,
            acquire_timeout: bounds.acquire_timeout,
            statement_timeout: bounds.statement_timeout,
            idle_timeout: bounds.idle_timeout,
            swept: Arc::new(Mutex::new(Instant::now())),
        }
    }

    /// The same connections for work on whole tables, whose statements may take minutes.
    #[must_use]
    pub fn patient(&self) -> Self {
        Self {
            statement_timeout: self.statement_timeout.max(PATIENT),
            ..self.clone()
        }
    }

    /// A connection, within the bound.
    ///
    /// # Errors
    /// The server being away, or found away a moment ago.
    pub async fn acquire(&self) -> Result<Connection, sqlx::Error> {
        if self.is_down() {
            return Err(sqlx::Error::PoolTimedOut);
        }
        // Boxed: it is large, and part of nearly every future of the product. Bounded as a whole:
        // it may try one dead connection after another.
        let getting = self.inner.get().boxed();
        let Ok(got) = tokio::time::timeout(self.acquire_timeout, getting).await else {
            // All connections in use says nothing about the server; a connect without an answer
            // does.
            self.health.suspect();
            return Err(sqlx::Error::PoolTimedOut);
        };
        match got {
            Ok(object) => Ok(Connection::new(
                object,
                Arc::clone(&self.health),
                self.statement_timeout,
            )),
            Err(PoolError::Backend(error)) => {
                if matches!(error, sqlx::Error::Io(_) | sqlx::Error::Tls(_)) {
                    self.health.mark_down();
                }
                Err(error)
            }
            Err(PoolError::Timeout(what)) => {
                // All connections in use says nothing about the server.
                if !matches!(what, managed::TimeoutType::Wait) {
                    self.health.mark_down();
                }
                Err(sqlx::Error::PoolTimedOut)
            }
            Err(PoolError::Closed) => Err(sqlx::Error::PoolClosed),
            Err(PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)) => {
                Err(sqlx::Error::WorkerCrashed)
            }
        }
    }

    /// Whether its server was found away a moment ago.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.health.is_down()
    }

    /// Open and idle connections.
    #[must_use]
    pub fn in_use(&self) -> (usize, usize) {
        let status = self.inner.status();
        (status.size, status.available)
    }

    /// Closes one connection that is idle; gives whether there was one.
    pub(super) fn close_one_idle(&self) -> bool {
        let mut left = 1;
        let idle = self.inner.retain(|_, _| {
            let keeps = left == 0;
            left = 0;
            keeps
        });
        let found = !idle.removed.is_empty();
        for connection in idle.removed {
            connection::close(connection);
        }
        found
    }

    /// Closes what has been idle for too long. Cheap to call often.
    pub fn sweep(&self) {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        if swept.elapsed() < self.idle_timeout / 4 {
            return;
        }
        *swept = Instant::now();
        drop(swept);
        let idle = self
            .inner
            .retain(|_, metrics| metrics.last_used() < self.idle_timeout);
        for connection in idle.removed {
            connection::close(connection);
        }
    }
}

type Rows<'e> = BoxStream<'e, Result<Either<MySqlQueryResult, MySqlRow>, sqlx::Error>>;

/// One statement on a connection of its own. All of its rows are read before the first is given.
impl<'c> Executor<'c> for &Pool {
    type Database = MySql;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Rows<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        let pool = self.clone();
        async move {
            let mut connection = pool.acquire().await?;
            connection.all(query).await
        }
        .map_ok(|rows| stream::iter(rows.into_iter().map(Ok)))
        .try_flatten_stream()
        .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<MySqlRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        let pool = self.clone();
        async move {
            let mut connection = pool.acquire().await?;
            connection.optional(query).await
        }
        .boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [sqlx::mysql::MySqlTypeInfo],
    ) -> BoxFuture<'e, Result<MySqlStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        let pool = self.clone();
        async move { pool.acquire().await?.prepared(sql, parameters).await }.boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<MySql>, sqlx::Error>>
    where
        'c: 'e,
    {
        let pool = self.clone();
        async move { pool.acquire().await?.described(sql).await }.boxed()
    }
}
