//! The tenancy router: where a broker's book is, and the only way to it.
//!
//! A [`BookScope`] carries the broker and the connection; every statement run through it has the
//! broker bound as its first value (see [`BookSql`]), so a query that forgets the broker does not
//! compile, and a connection to a book can't be had otherwise.

mod pools;
mod scope;
mod statement;
mod table;

pub use pools::{DatabaseKey, PoolLimits, PoolUse, ServerUrl, ServerUse};
pub(in crate::stores) use scope::BookPlace;
pub use scope::{BookRead, BookScope, BookTx};
pub use statement::{BookQuery, BookSql};

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::StoreError;
use super::error::corrupt;
use super::master::standing;
use crate::domain::ids::BrokerId;
use crate::domain::pause::Standing;
use crate::stores::pool::Pool;

/// Where one broker's book is, as the master says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub broker: BrokerId,
    pub database: DatabaseKey,
    /// Must equal the epoch of the book's fence.
    pub epoch: u64,
}

/// Maps brokers to books and hands out scopes. One per process.
pub struct Router {
    master: Pool,
    pools: pools::Pools,
    routes: RwLock<HashMap<BrokerId, Route>>,
    most_routes: usize,
    move_wait: Duration,
}

/// Mode, own server and database, the shard's, epoch.
type PlaceRow = (
    String,
    Option<String>,
    Option<String>,
    Option<String>,
    Option<String>,
    u64,
);

/// Routes are small; beyond this many the memory of them starts anew.
const MOST_ROUTES: usize = 100_000;

/// How long a caller waits for a book that is between two places: longer than the lease of
/// whoever moves it, so that one who stands still is not noticed as an error.
pub const MOVE_WAIT: Duration = Duration::from_secs(5);

impl Router {
    #[must_use]
    pub fn new(master: Pool, servers: Vec<ServerUrl>, limits: PoolLimits) -> Self {
        Self {
            master,
            pools: pools::Pools::new(servers, limits),
            routes: RwLock::default(),
            most_routes: MOST_ROUTES,
            move_wait: MOVE_WAIT,
        }
    }

    /// The same, with another bound on how long a caller waits for a book that is moving.
    #[must_use]
    pub const fn waiting(mut self, move_wait: Duration) -> Self {
        self.move_wait = move_wait;
        self
    }

    const fn move_wait(&self) -> Duration {
        self.move_wait
    }

    /// The scope of a broker's book.
    ///
    /// # Errors
    /// A broker without a book, a server that the configuration lacks, the master or the book's
    /// server being away.
    pub async fn book(self: &Arc<Self>, broker: BrokerId) -> Result<BookScope, StoreError> {
        let place = self.place(broker).await?;
        Ok(BookScope::new(Arc::clone(self), place))
    }

    async fn place(&self, broker: BrokerId) -> Result<BookPlace, StoreError> {
        let route = match self.remembered(broker) {
            Some(route) => route,
            None => self.look_up(broker).await?,
        };
        let pool = self.pools.get(&route.database).inspect_err(|_| {
            // The registry is wrong or the configuration is; what puts it right must be seen.
            self.forget(broker);
        })?;
        Ok(BookPlace::new(route, pool))
    }

    /// As the master says now, whatever is remembered.
    async fn place_now(&self, broker: BrokerId) -> Result<BookPlace, StoreError> {
        self.forget(broker);
        self.place(broker).await
    }

    /// A broker's book, or what is to become one, in a database that need not be where the book
    /// is now: for whoever moves it.
    pub(in crate::stores) fn place_in(
        &self,
        broker: BrokerId,
        database: &DatabaseKey,
    ) -> Result<BookPlace, StoreError> {
        let route = Route {
            broker,
            database: database.clone(),
            epoch: 0,
        };
        Ok(BookPlace::new(route, self.pools.get(database)?))
    }

    /// Forgets where a broker's book is, after a fence said that it moved.
    pub fn forget(&self, broker: BrokerId) {
        self.write_routes().remove(&broker);
    }

    /// The use of every open pool, for metrics.
    #[must_use]
    pub fn pool_use(&self) -> Vec<PoolUse> {
        self.pools.in_use()
    }

    /// The use of every server of the configuration, for metrics.
    #[must_use]
    pub fn server_use(&self) -> Vec<ServerUse> {
        self.pools.servers()
    }

    /// A pool of any database of the registry: for provisioning and migrations, which work on
    /// whole databases and not on a book.
    pub(crate) fn database(&self, key: &DatabaseKey) -> Result<Pool, StoreError> {
        Ok(self.pools.get(key)?.pool.patient())
    }

    /// The same for what is looked at in passing, whose statements have the usual bound.
    pub(crate) fn quick_database(&self, key: &DatabaseKey) -> Result<Pool, StoreError> {
        Ok(self.pools.get(key)?.pool)
    }

    /// The URL of a server of the configuration, without a database.
    pub(crate) fn server_url(&self, server: &str) -> Result<String, StoreError> {
        self.pools.server_url(server)
    }

    /// Whether a server of the configuration answers, whatever databases it has.
    pub async fn answers(&self, server: &str) -> bool {
        self.pools.answers(server).await
    }

    /// How the network and a broker stand.
    ///
    /// # Errors
    /// The master's.
    pub async fn standing(&self, broker: BrokerId) -> Result<Standing, StoreError> {
        let (standing, _) = standing::look(&self.master, [Some(broker), None], None).await?;
        Ok(standing)
    }

    fn remembered(&self, broker: BrokerId) -> Option<Route> {
        self.routes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&broker)
            .cloned()
    }

    fn write_routes(&self) -> std::sync::RwLockWriteGuard<'_, HashMap<BrokerId, Route>> {
        self.routes.write().unwrap_or_else(PoisonError::into_inner)
    }

    async fn look_up(&self, broker: BrokerId) -> Result<Route, StoreError> {
        let row: Option<PlaceRow> = sqlx::query_as(
            "SELECT b.broker_mode, b.server_name, b.database_name,
                        s.server_name, s.database_name, b.route_epoch
                 FROM broker b LEFT JOIN shared_shard s ON s.shard_id = b.shared_shard_id
                 WHERE b.broker_id = ?",
        )
        .bind(broker)
        .fetch_optional(&self.master)
        .await
        .map_err(|error| StoreError::from_sqlx("master", error))?;
        let Some((mode, own_server, own_database, shard_server, shard_database, epoch)) = row
        else {
            return Err(StoreError::NoBook { broker });
        };
        let place = match mode.as_str() {
            "FULL" => own_server.zip(own_database),
            "SOLO" => shard_server.zip(shard_database),
            other => return Err(corrupt("broker", format!("broker_mode {other}"))),
        };
        let (server, database) = place.ok_or(StoreError::NoBook { broker })?;
        let route = Route {
            broker,
            database: DatabaseKey { server, database },
            epoch,
        };
        let mut routes = self.write_routes();
        if routes.len() >= self.most_routes {
            routes.clear();
        }
        routes.insert(broker, route.clone());
        Ok(route)
    }
}
