//! Where books live, and how a new broker gets one: in steps that can be repeated, so that
//! whoever runs them again finishes what a crash left.
//!
//! | step | of a broker | of a shard |
//! |---|---|---|
//! | 1 | row `provisioning`, with its place, in one transaction | row `making`, that takes no brokers |
//! | 2 | its own database made and migrated (FULL) | database made and migrated |
//! | 3 | an empty book with an open fence | its number written in it |
//! | 4 | `active` | `open`, and open to brokers |
//!
//! A database is made by its name, and something may have that name already. So it is looked at
//! before anything is done: it is taken where it is empty, or where all that it holds is what an
//! earlier try of the same has left. What is still being made is left out of `migrate` and
//! `reconcile`: the same call again finishes it, and a shard that never will be is removed.

mod places;

use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::config::SecretUrl;
use crate::domain::broker::{self, Broker, BrokerMode, BrokerPlan, BrokerState, Placement};
use crate::domain::broker_move::BookPlace;
use crate::domain::ids::BrokerId;
use crate::domain::pause::Hindrance;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::master::brokers::{self, NewBroker};
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::{self, MasterTx, placement, standing};
use crate::stores::migrate::{Kind, MigrationError, Survey, migrate, survey};
use crate::stores::pool::Pool;
use crate::stores::router::{DatabaseKey, Router};

pub use crate::stores::master::placement::{Server, Shard};

/// Most databases of a server, or brokers of a shard, that an admin can ask for.
pub const CAPACITY_MAX: u32 = 1_000_000;

/// Why a place could not be made or found.
#[derive(Debug, thiserror::Error)]
pub enum ProvisioningError {
    #[error(
        "a name is one line of 1 to {} characters without invisible ones and ones that turn the direction of writing",
        broker::MAX_NAME
    )]
    InvalidName,
    #[error("there is a broker of this name: {id}")]
    NameTaken { id: BrokerId },
    /// The idempotency key stood for something else.
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error("the name of a database is 1 to 64 letters, digits, '_' and '-'")]
    InvalidDatabase,
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("no broker {id} could have referred it")]
    NoSuchReferrer { id: BrokerId },
    #[error("no shard with room takes new brokers")]
    NoShard,
    #[error("no server with room takes new databases")]
    NoServer,
    #[error("the configuration has no server {server} (servers.{server}.url)")]
    NoSuchServer { server: String },
    /// It is somebody else's, or may be.
    #[error("the database {database} on {server} can't be taken: {why}")]
    Occupied {
        server: String,
        database: String,
        why: String,
    },
    #[error("no shard {name}")]
    NoSuchShard { name: String },
    #[error("shard {id} holds the books of brokers: {brokers}")]
    ShardInUse { id: u32, brokers: i64 },
    /// The database is another shard's, or the connection string points elsewhere.
    #[error("database {database} on {server} says that it is shard {found}, not {expected}")]
    AnotherShard {
        server: String,
        database: String,
        expected: u32,
        found: u32,
    },
    #[error("{database} could not be migrated: {source}")]
    Migration {
        database: String,
        #[source]
        source: MigrationError,
    },
    /// The network is paused.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work has panicked: what it did stands, and can be gone on with.
    #[error("the work was broken off")]
    BrokenOff,
}

/// Makes places for books and books in them. Clones share everything.
#[derive(Clone)]
pub struct Provisioning {
    master: Pool,
    router: Arc<Router>,
    database_prefix: Arc<str>,
}

impl Provisioning {
    /// `database_prefix` begins the names of FULL brokers' databases.
    #[must_use]
    pub fn new(master: Pool, router: Arc<Router>, database_prefix: &str) -> Self {
        Self {
            master,
            router,
            database_prefix: database_prefix.into(),
        }
    }

    /// Brokers, newest first; `before` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn brokers(
        &self,
        state: Option<BrokerState>,
        before: Option<BrokerId>,
        limit: u32,
    ) -> Result<Vec<Broker>, ProvisioningError> {
        Ok(brokers::list(&self.master, state, before, limit).await?)
    }

    /// # Errors
    /// [`ProvisioningError::NoSuchBroker`]; the master's.
    pub async fn broker(&self, id: BrokerId) -> Result<Broker, ProvisioningError> {
        let found = brokers::get(&self.master, id).await?;
        found.ok_or(ProvisioningError::NoSuchBroker { id })
    }

    /// Creates a broker with its book, and gives it as it is when it can work. `intention` is
    /// recorded with it; a repeat gives the same broker, finished if it was not.
    ///
    /// # Errors
    /// See [`ProvisioningError`]. After a fault the broker stays `provisioning`, and
    /// [`Self::finish_broker`] goes on.
    pub async fn create_broker(
        &self,
        name: &str,
        plan: BrokerPlan,
        referred_by: Option<BrokerId>,
        intention: Option<Intention>,
        now: DateTime<Utc>,
    ) -> Result<Broker, ProvisioningError> {
        if let Some(id) = referred_by
            && brokers::get(&self.master, id).await?.is_none()
        {
            return Err(ProvisioningError::NoSuchReferrer { id });
        }
        let name = broker::name(name).ok_or(ProvisioningError::InvalidName)?;
        let new = NewBroker {
            name: name.to_owned(),
            plan,
            referred_by,
        };
        let this = self.clone();
        whole(async move {
            let id = this.record(&new, intention.as_ref(), now).await?;
            this.make_book(id, now).await
        })
        .await
    }

    /// Finishes a broker that is still `provisioning`; gives one that is not as it is.
    ///
    /// # Errors
    /// See [`ProvisioningError`].
    pub async fn finish_broker(
        &self,
        id: BrokerId,
        now: DateTime<Utc>,
    ) -> Result<Broker, ProvisioningError> {
        let this = self.clone();
        whole(async move { this.make_book(id, now).await }).await
    }

    /// The broker's row with its place, and the intention that it comes of.
    async fn record(
        &self,
        new: &NewBroker,
        intention: Option<&Intention>,
        now: DateTime<Utc>,
    ) -> Result<BrokerId, ProvisioningError> {
        if let Some(known) = self.known(intention).await? {
            return Ok(known);
        }
        match self.insert(new, intention, now).await {
            Err(ProvisioningError::Store(error)) if error.is_duplicate() => {
                // Somebody was first, with the same intention or the same name.
                if let Some(known) = self.known(intention).await? {
                    return Ok(known);
                }
                let named = brokers::by_name(&self.master, &new.name).await?;
                Err(
                    named.map_or(error.into(), |broker| ProvisioningError::NameTaken {
                        id: broker.id,
                    }),
                )
            }
            other => other,
        }
    }

    /// The broker that an intention has made.
    pub(super) async fn known(
        &self,
        intention: Option<&Intention>,
    ) -> Result<Option<BrokerId>, ProvisioningError> {
        let Some(intention) = intention else {
            return Ok(None);
        };
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(ProvisioningError::KeyReused),
            Some(Known::Same { subject }) => match subject.parse() {
                Ok(id) => Ok(Some(id)),
                Err(_) => Err(ProvisioningError::KeyReused),
            },
        }
    }

    async fn insert(
        &self,
        new: &NewBroker,
        intention: Option<&Intention>,
        now: DateTime<Utc>,
    ) -> Result<BrokerId, ProvisioningError> {
        // A pause of the network that has answered lets nobody in any more: the gate is held first,
        // and what is read after it is as it stays.
        let (mut tx, _) = standing::begin(&self.master).await?;
        let id = self.record_in(&mut tx, new, now).await?;
        if let Some(intention) = intention {
            idempotency::insert(&mut tx, intention, &id.to_string(), now).await?;
        }
        master::commit(tx).await?;
        Ok(id)
    }

    /// A broker's row with its place, in a transaction that holds the gate of what may start and
    /// has more to record. Once it has committed, [`Self::finish_broker`] goes on.
    pub(super) async fn record_in(
        &self,
        tx: &mut MasterTx,
        new: &NewBroker,
        now: DateTime<Utc>,
    ) -> Result<BrokerId, ProvisioningError> {
        let (standing, _) = standing::look(&mut *tx, [None, None], None).await?;
        standing.network_is_open()?;
        // The place next: its rows are what placements take turns on.
        let place = match new.plan.mode() {
            BrokerMode::Solo => Place::Shard(
                placement::emptiest_shard(tx, None)
                    .await?
                    .ok_or(ProvisioningError::NoShard)?
                    .shard_id,
            ),
            BrokerMode::Full => Place::Server(
                placement::emptiest_server(tx, None)
                    .await?
                    .ok_or(ProvisioningError::NoServer)?
                    .name,
            ),
        };
        let id = brokers::insert(tx, new, now).await?;
        let placement = match place {
            Place::Shard(shard) => Placement::Shard(shard),
            Place::Server(server) => Placement::Own {
                server,
                database: self.own_database(id),
            },
        };
        brokers::place(tx, id, &placement).await?;
        Ok(id)
    }

    async fn make_book(
        &self,
        id: BrokerId,
        now: DateTime<Utc>,
    ) -> Result<Broker, ProvisioningError> {
        let broker = self.broker(id).await?;
        match broker.state {
            BrokerState::Provisioning => {}
            BrokerState::Active
            | BrokerState::Suspended
            | BrokerState::Leaving
            | BrokerState::Archived => return Ok(broker),
        }
        let database = match &broker.placement {
            None => return Err(StoreError::NoBook { broker: id }.into()),
            Some(Placement::Own { server, database }) => {
                let key = key(server, database);
                self.make_own(&key, id).await?;
                key
            }
            Some(Placement::Shard(number)) => {
                let shard = placement::shard(&self.master, *number).await?;
                let shard = shard.ok_or(ProvisioningError::NoShard)?;
                key(&shard.server_name, &shard.database_name)
            }
        };
        book::create(&self.router, &database, id, broker.route_epoch, now).await?;
        brokers::set_state(
            &self.master,
            id,
            BrokerState::Provisioning,
            BrokerState::Active,
        )
        .await?;
        self.router.forget(id);
        self.broker(id).await
    }

    async fn make_own(&self, key: &DatabaseKey, id: BrokerId) -> Result<(), ProvisioningError> {
        let there = self.survey(key, Some(id)).await?;
        if there.is_shard {
            return Err(occupied(key, "it is a shard"));
        }
        self.migrate(key, Kind::Tenant).await
    }

    /// The name that a broker's own database has on any server.
    pub(super) fn own_database(&self, id: BrokerId) -> String {
        format!("{}tenant_{id}", self.database_prefix)
    }

    /// Makes a place ready for a broker's book: its own database is made, a shard is there and
    /// migrated.
    pub(super) async fn ready(
        &self,
        place: &BookPlace,
        id: BrokerId,
    ) -> Result<(), ProvisioningError> {
        let key = key(&place.server, &place.database);
        match place.shard_id {
            None => self.make_own(&key, id).await,
            Some(expected) => match book::shard_number(&self.router, &key).await? {
                Some(found) if found == expected => self.migrate(&key, Kind::Shared).await,
                Some(found) => Err(another(&key, expected, found)),
                None => Err(occupied(&key, "it is not the shard that it is said to be")),
            },
        }
    }

    /// What is in a database, where all of it may be ours.
    async fn survey(
        &self,
        key: &DatabaseKey,
        broker: Option<BrokerId>,
    ) -> Result<Survey, ProvisioningError> {
        let url = self.url(key)?;
        let there = survey(&url, broker).await;
        let there = there.map_err(|source| not_migrated(key, source))?;
        if let Some(table) = &there.stranger {
            return Err(occupied(
                key,
                format!("it has a table {table}, which is none of ours"),
            ));
        }
        match (broker, there.book_of) {
            (Some(_), Some(id)) => Err(occupied(key, format!("it holds the book of broker {id}"))),
            _ => Ok(there),
        }
    }

    fn configured(&self, server: &str) -> Result<(), ProvisioningError> {
        match self.router.server_url(server) {
            Ok(_) => Ok(()),
            Err(StoreError::UnknownServer { server }) => {
                Err(ProvisioningError::NoSuchServer { server })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn url(&self, key: &DatabaseKey) -> Result<SecretUrl, ProvisioningError> {
        let server = SecretUrl::new(self.router.server_url(&key.server)?);
        Ok(server.with_database(&key.database))
    }

    async fn migrate(&self, key: &DatabaseKey, kind: Kind) -> Result<(), ProvisioningError> {
        let applied = migrate(&self.url(key)?, kind).await;
        applied
            .map(drop)
            .map_err(|source| not_migrated(key, source))
    }
}

fn not_migrated(key: &DatabaseKey, source: MigrationError) -> ProvisioningError {
    ProvisioningError::Migration {
        database: format!("{}/{}", key.server, key.database),
        source,
    }
}

fn occupied(key: &DatabaseKey, why: impl Into<String>) -> ProvisioningError {
    ProvisioningError::Occupied {
        server: key.server.clone(),
        database: key.database.clone(),
        why: why.into(),
    }
}

fn another(key: &DatabaseKey, expected: u32, found: u32) -> ProvisioningError {
    ProvisioningError::AnotherShard {
        server: key.server.clone(),
        database: key.database.clone(),
        expected,
        found,
    }
}

enum Place {
    Shard(u32),
    Server(String),
}

fn key(server: &str, database: &str) -> DatabaseKey {
    DatabaseKey {
        server: server.to_owned(),
        database: database.to_owned(),
    }
}

/// Runs work to its end in a task of its own, whether or not the caller stays.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, ProvisioningError>> + Send + 'static,
) -> Result<T, ProvisioningError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(ProvisioningError::BrokenOff))
}
