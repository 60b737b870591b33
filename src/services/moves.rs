//! Moves of books: a broker's book goes from one database to another while its broker works.
//!
//! [`crate::domain::broker_move`] has the states and who goes on after a crash in each. This is
//! what is asked for by people and plans; [`MoveEngine`] does the work, in whichever process
//! claims it.

mod copy;
mod drive;
mod engine;
mod fault;
mod purge;

pub use engine::{MoveEngine, MoveLimits};

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use crate::domain::broker::{Broker, BrokerMode, BrokerState, Placement};
use crate::domain::broker_move::{BookPlace, BrokerMove, MoveCause, MoveEvent, MoveState};
use crate::domain::ids::BrokerId;
use crate::domain::reason::{self, NotAReason};
use crate::runtime::{Clock, Entropy};
use crate::services::provisioning::{Provisioning, ProvisioningError};
use crate::stores::StoreError;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::moves::{self, NewMove, Step};
use crate::stores::master::{self, MasterTx, brokers, placement};
use crate::stores::pool::Pool;

/// Brokers whose moves are begun between two looks at the master.
const WANTED_BATCH: u32 = 100;

/// Where a book is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A shard: the one of that number, or the emptiest other one that takes brokers.
    Shard(Option<u32>),
    /// A database of its own on that server, or on the emptiest other one that takes databases.
    Own(Option<String>),
}

/// Why a move can't be begun or changed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("no move {id}")]
    NoSuchMove { id: Uuid },
    #[error("broker {id} is {state}; only the book of an active or suspended one can move", state = .state.as_str())]
    NotMovable { id: BrokerId, state: BrokerState },
    #[error("move {id} of this broker goes on: it must end or be cancelled first")]
    GoesOn { id: Uuid },
    #[error("the book is there already: {place}")]
    ThereAlready { place: String },
    #[error("no shard {id}")]
    NoSuchShard { id: u32 },
    #[error("shard {id} has no room, or is not open")]
    ShardFull { id: u32 },
    #[error("no server {name} is registered")]
    NoSuchServer { name: String },
    #[error("server {name} has no room")]
    ServerFull { name: String },
    #[error("no other shard with room takes brokers")]
    NoShard,
    #[error("no other server with room takes databases")]
    NoServer,
    /// The idempotency key stood for something else.
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error(transparent)]
    Reason(#[from] NotAReason),
    /// The move is in another state than the wish needs.
    #[error("the move is {state}: {why}", state = .state.as_str())]
    State { state: MoveState, why: &'static str },
    #[error(transparent)]
    Provisioning(#[from] ProvisioningError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What people ask of moves. Clones share everything.
#[derive(Clone)]
pub struct MoveService {
    master: Pool,
    places: Provisioning,
    clock: Clock,
    entropy: Entropy,
    /// How long what was left behind is kept.
    retention_s: u32,
}

impl MoveService {
    #[must_use]
    pub const fn new(
        master: Pool,
        places: Provisioning,
        clock: Clock,
        entropy: Entropy,
        retention_s: u32,
    ) -> Self {
        Self {
            master,
            places,
            clock,
            entropy,
            retention_s,
        }
    }

    /// Begins a move. `intention` is recorded with it; a repeat gives the same move as it is now.
    ///
    /// # Errors
    /// See [`MoveError`].
    pub async fn start(
        &self,
        broker: BrokerId,
        to: Destination,
        intention: Option<&Intention>,
    ) -> Result<BrokerMove, MoveError> {
        if let Some(known) = self.known(intention).await? {
            return Ok(known);
        }
        self.begin(broker, to, MoveCause::Admin, intention).await
    }

    /// Takes a book back to where a move has brought it from.
    ///
    /// # Errors
    /// As [`Self::start`]; [`MoveError::State`] once what was left there is being deleted.
    pub async fn reverse(
        &self,
        of: Uuid,
        intention: Option<&Intention>,
    ) -> Result<BrokerMove, MoveError> {
        if let Some(known) = self.known(intention).await? {
            return Ok(known);
        }
        let this = self.get(of).await?;
        if this.state != MoveState::Retained {
            let why = "only one whose source is retained can be reversed";
            let state = this.state;
            return Err(MoveError::State { state, why });
        }
        let to = match this.from.shard_id {
            Some(shard) => Destination::Shard(Some(shard)),
            None => Destination::Own(Some(this.from.server)),
        };
        self.begin(this.broker, to, MoveCause::Reverse, intention)
            .await
    }

    async fn known(&self, intention: Option<&Intention>) -> Result<Option<BrokerMove>, MoveError> {
        let Some(intention) = intention else {
            return Ok(None);
        };
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(MoveError::KeyReused),
            Some(Known::Same { subject }) => match subject.parse() {
                Ok(id) => self.get(id).await.map(Some),
                Err(_) => Err(MoveError::KeyReused),
            },
        }
    }

    /// Begins the moves that plans ask for. One that finds no room is told of, and tried again the
    /// next time.
    ///
    /// # Errors
    /// The master's.
    pub async fn begin_wanted(&self) -> Result<(), StoreError> {
        let mut after = 0;
        loop {
            let found = moves::wanting(&self.master, after, WANTED_BATCH).await?;
            for (broker, mode) in &found {
                let to = match mode {
                    BrokerMode::Solo => Destination::Shard(None),
                    BrokerMode::Full => Destination::Own(None),
                };
                let begun = self.begin(*broker, to, MoveCause::Plan, None).await;
                self.tell_of_room(*broker, begun).await?;
            }
            match found.last() {
                Some((last, _)) if found.len() == WANTED_BATCH as usize => after = *last,
                Some(_) | None => return Ok(()),
            }
        }
    }

    async fn tell_of_room(
        &self,
        broker: BrokerId,
        begun: Result<BrokerMove, MoveError>,
    ) -> Result<(), StoreError> {
        let (now, subject) = (self.clock.now(), broker.to_string());
        let mut tx = master::begin(&self.master).await?;
        match begun {
            Ok(_) => {
                alerts::resolve(&mut tx, moves::NO_ROOM_ALERT, &subject, now).await?;
            }
            Err(error @ (MoveError::NoShard | MoveError::NoServer)) => {
                let alert = NewAlert {
                    kind: moves::NO_ROOM_ALERT,
                    message: format!(
                        "The plan of broker {broker} puts its book elsewhere, but {error}. It works \
                         on where it is; make room, and the move begins by itself."
                    ),
                    subject,
                    details: json!({ "broker_id": broker }),
                };
                alerts::raise(&mut tx, &alert, now).await?;
            }
            // Somebody else has begun it, or a database is away: the next time tells.
            Err(error) => tracing::info!(%error, broker, "a move that a plan wants waits"),
        }
        master::commit(tx).await
    }

    async fn begin(
        &self,
        broker: BrokerId,
        to: Destination,
        cause: MoveCause,
        intention: Option<&Intention>,
    ) -> Result<BrokerMove, MoveError> {
        let now = self.clock.now();
        let id = self.entropy.uuid(now);
        let inserted = async {
            let mut tx = master::begin(&self.master).await?;
            // Whoever closes the book for something else, or lets the broker go, takes turns.
            let found = brokers::lock(&mut tx, broker).await?;
            let found = found.ok_or(MoveError::NoSuchBroker { id: broker })?;
            self.insert(&mut tx, id, &found, to, cause, now).await?;
            if let Some(intention) = intention {
                idempotency::insert(&mut tx, intention, &id.to_string(), now).await?;
            }
            Ok(master::commit(tx).await?)
        };
        match inserted.await {
            Ok(()) => self.get(id).await,
            // The same wish at the same time, or another move.
            Err(MoveError::Store(error)) if error.is_duplicate() => {
                if let Some(known) = self.known(intention).await? {
                    return Ok(known);
                }
                Err(match moves::open_of(&self.master, broker).await? {
                    Some(open) => MoveError::GoesOn { id: open.id },
                    None => error.into(),
                })
            }
            Err(error) => Err(error),
        }
    }

    async fn insert(
        &self,
        tx: &mut MasterTx,
        id: Uuid,
        broker: &Broker,
        to: Destination,
        cause: MoveCause,
        now: DateTime<Utc>,
    ) -> Result<(), MoveError> {
        match broker.state {
            BrokerState::Active | BrokerState::Suspended => {}
            BrokerState::Provisioning | BrokerState::Leaving | BrokerState::Archived => {
                let (id, state) = (broker.id, broker.state);
                return Err(MoveError::NotMovable { id, state });
            }
        }
        let from = self.place_of(tx, broker).await?;
        let to = self.place_for(tx, broker.id, &from, to).await?;
        if to.is(&from) {
            let place = from.to_string();
            return Err(MoveError::ThereAlready { place });
        }
        let new = NewMove {
            id,
            broker: broker.id,
            cause,
            from,
            to,
            retention_s: self.retention_s,
        };
        Ok(moves::insert(tx, &new, now).await?)
    }

    async fn place_of(&self, tx: &mut MasterTx, broker: &Broker) -> Result<BookPlace, MoveError> {
        let no_book = StoreError::NoBook { broker: broker.id };
        match &broker.placement {
            None => Err(no_book.into()),
            Some(Placement::Own { server, database }) => Ok(BookPlace {
                shard_id: None,
                server: server.clone(),
                database: database.clone(),
            }),
            Some(Placement::Shard(id)) => {
                let shard = placement::shard_of(tx, *id).await?.ok_or(no_book)?;
                Ok(BookPlace {
                    shard_id: Some(*id),
                    server: shard.server_name,
                    database: shard.database_name,
                })
            }
        }
    }

    async fn place_for(
        &self,
        tx: &mut MasterTx,
        broker: BrokerId,
        from: &BookPlace,
        to: Destination,
    ) -> Result<BookPlace, MoveError> {
        match to {
            Destination::Shard(None) => {
                let shard = placement::emptiest_shard(tx, from.shard_id).await?;
                let shard = shard.ok_or(MoveError::NoShard)?;
                Ok(in_shard(shard))
            }
            Destination::Shard(Some(id)) => {
                placement::lock_shards(tx).await?;
                let shard = placement::shard_of(tx, id).await?;
                let shard = shard.ok_or(MoveError::NoSuchShard { id })?;
                let room = shard.state == "open" && shard.brokers < i64::from(shard.capacity);
                if !room && from.shard_id != Some(id) {
                    return Err(MoveError::ShardFull { id });
                }
                Ok(in_shard(shard))
            }
            Destination::Own(server) => {
                let own = from.shard_id.is_none().then_some(from.server.as_str());
                let server = match server {
                    None => {
                        let found = placement::emptiest_server(tx, own).await?;
                        found.ok_or(MoveError::NoServer)?.name
                    }
                    Some(name) => {
                        placement::lock_servers(tx).await?;
                        let found = placement::server_of(tx, &name).await?;
                        let Some(found) = found else {
                            return Err(MoveError::NoSuchServer { name });
                        };
                        // What an earlier move has left there makes room for what comes back.
                        let back = BookPlace {
                            shard_id: None,
                            server: name.clone(),
                            database: self.places.own_database(broker),
                        };
                        let left = moves::left_in(&self.master, broker, &back).await?;
                        let full = found.held >= i64::from(found.capacity);
                        if full && left.is_none() && own != Some(&*name) {
                            return Err(MoveError::ServerFull { name });
                        }
                        name
                    }
                };
                Ok(BookPlace {
                    shard_id: None,
                    server,
                    database: self.places.own_database(broker),
                })
            }
        }
    }

    /// # Errors
    /// [`MoveError::NoSuchMove`]; the master's.
    pub async fn get(&self, id: Uuid) -> Result<BrokerMove, MoveError> {
        let found = moves::get(&self.master, id).await?;
        found.ok_or(MoveError::NoSuchMove { id })
    }

    /// Moves, newest first, of one broker or of all; `after` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        broker: Option<BrokerId>,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<BrokerMove>, MoveError> {
        Ok(moves::list(&self.master, broker, after, limit).await?)
    }

    /// How many moves go on, by their states.
    ///
    /// # Errors
    /// The master's.
    pub async fn counts(&self) -> Result<Vec<(String, i64)>, StoreError> {
        moves::counts(&self.master).await
    }

    /// Asks for a move to be given up. The book stays where it is, unless it has gone already.
    ///
    /// # Errors
    /// [`MoveError::State`] once it has.
    pub async fn cancel(&self, id: Uuid) -> Result<BrokerMove, MoveError> {
        let can = moves::want_cancelled(&self.master, id, self.clock.now()).await?;
        let this = self.get(id).await?;
        if can {
            return Ok(this);
        }
        let why = "the book has arrived; another move can bring it back";
        let state = this.state;
        Err(MoveError::State { state, why })
    }

    /// Lets a move that is stuck, or whose source was kept, go on. Repeating it changes nothing.
    ///
    /// # Errors
    /// [`MoveError::State`] for one that has ended.
    pub async fn retry(&self, id: Uuid) -> Result<BrokerMove, MoveError> {
        let this = self.get(id).await?;
        let now = self.clock.now();
        match this.state {
            MoveState::Stuck | MoveState::Kept => {
                let mut tx = master::begin(&self.master).await?;
                if moves::step(&mut tx, &this, None, MoveEvent::Retry, &Step::Again, now).await? {
                    alerts::resolve(&mut tx, moves::ALERT, &id.to_string(), now).await?;
                }
                master::commit(tx).await?;
            }
            MoveState::Done | MoveState::Cancelled | MoveState::Abandoned => {
                let why = "it has ended";
                let state = this.state;
                return Err(MoveError::State { state, why });
            }
            MoveState::Preparing
            | MoveState::Copying
            | MoveState::Fencing
            | MoveState::RollingBack
            | MoveState::Flipped
            | MoveState::Retained
            | MoveState::Purging
            | MoveState::Cancelling => {}
        }
        self.get(id).await
    }

    /// Gives up what a move has left, or its copy, where the database that has it is lost: the
    /// broker may move elsewhere, and nobody waits for it to be deleted. Repeating it changes
    /// nothing.
    ///
    /// # Errors
    /// [`MoveError::State`] for one that goes on or has ended; a reason that is none.
    pub async fn abandon(&self, id: Uuid, because: &str) -> Result<BrokerMove, MoveError> {
        let because = reason::checked(because)?;
        let this = self.get(id).await?;
        if this.state == MoveState::Abandoned {
            return Ok(this);
        }
        let event = MoveEvent::Abandon;
        if this.state.after(event).is_none() {
            let state = this.state;
            let why =
                "only what a move has left, or the copy of one that was cancelled, is given up";
            return Err(MoveError::State { state, why });
        }
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        let given_up = Step::Abandoned { because };
        let done = moves::step(&mut tx, &this, None, event, &given_up, now).await?;
        if done {
            alerts::resolve(&mut tx, moves::ALERT, &id.to_string(), now).await?;
        }
        master::commit(tx).await?;
        let this = self.get(id).await?;
        if this.state == MoveState::Abandoned {
            return Ok(this);
        }
        let state = this.state;
        let why = "it has just gone on";
        Err(MoveError::State { state, why })
    }

    /// Ends the retention of a move's source now: it is verified once more and deleted. What was
    /// abandoned is deleted as soon as its database is back.
    ///
    /// # Errors
    /// [`MoveError::State`] for one that retains nothing.
    pub async fn purge(&self, id: Uuid) -> Result<BrokerMove, MoveError> {
        let this = self.get(id).await?;
        match this.state {
            MoveState::Retained | MoveState::Abandoned => {
                moves::make_due(&self.master, id, this.state, self.clock.now()).await?;
                self.get(id).await
            }
            MoveState::Purging | MoveState::Done => Ok(this),
            state @ (MoveState::Preparing
            | MoveState::Copying
            | MoveState::Fencing
            | MoveState::RollingBack
            | MoveState::Flipped
            | MoveState::Kept
            | MoveState::Stuck
            | MoveState::Cancelling
            | MoveState::Cancelled) => {
                let why = "nothing of it is retained that could be deleted";
                Err(MoveError::State { state, why })
            }
        }
    }
}

fn in_shard(shard: placement::Shard) -> BookPlace {
    BookPlace {
        shard_id: Some(shard.shard_id),
        server: shard.server_name,
        database: shard.database_name,
    }
}
