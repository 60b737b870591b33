//! Books move from one database to another while their brokers work, whoever dies or stands still.

mod abandoned;
mod faults;
mod killed;
mod limits;
mod partners;
mod stale;
mod working;

use chrono::Duration;
use settlenet::app::{App, ledger_config};
use settlenet::domain::account::{OwnerKind, Side};
use settlenet::domain::book_table::BOOK_TABLES;
use settlenet::domain::broker::Placement;
use settlenet::domain::broker_move::{BrokerMove, MoveState};
use settlenet::domain::ids::{AccountId, BrokerId, RequestId};
use settlenet::domain::money::Amount;
use settlenet::services::books::{BooksError, EntryInput, NewAccount, OwnEntryKind};
use settlenet::services::moves::{Destination, MoveError};
use settlenet::stores::book::StoredEntry;
use settlenet::stores::ledger::Ledger;
use settlenet::stores::master::brokers;
use sqlx::{AssertSqlSafe, MySqlPool};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::harness::{Databases, MovedClock, PrivateStack, SOON, World, private_stack, until};
use crate::saga::Shape;

/// Longer than every lease of a move.
const PAST_THE_LEASE: Duration = Duration::seconds(11);

/// A world whose books can move: both servers are registered, and there is a second shard, on the
/// other server.
pub struct Stage {
    pub world: World,
    pub clock: MovedClock,
    pub second: u32,
}

impl Stage {
    pub async fn new() -> Self {
        let clock = MovedClock::new();
        let world = Box::pin(World::with_clock(clock.clock(Duration::zero()))).await;
        Box::pin(Self::on(world, clock)).await
    }

    pub async fn on(world: World, clock: MovedClock) -> Self {
        let now = world.clock.now();
        let places = &world.app.provisioning;
        for server in ["a", "b"] {
            let put = places.register_server(server, 100, None, now).await;
            put.expect("is registered");
        }
        let shard = MySqlPool::connect(world.databases.shard_url().expose()).await;
        sqlx::query("INSERT INTO shard_meta (only_row, shard_id, created_at) VALUES (1, 1, ?)")
            .bind(now)
            .execute(&shard.expect("answers"))
            .await
            .expect("is numbered");
        let database = format!("{}second", world.databases.prefix);
        let second = Box::pin(places.create_shard("b", &database, 100, None, now)).await;
        let second = second.expect("is made").shard_id;
        Self {
            world,
            clock,
            second,
        }
    }

    /// On servers of its own, which may die.
    pub async fn that_may_fail() -> (PrivateStack, Self) {
        let stack = private_stack().await;
        let databases = Databases::on(&stack).await;
        let client = Ledger::connect(&ledger_config(&stack.config())).unwrap();
        let clock = MovedClock::new();
        let world = World::on(databases, client, clock.clock(Duration::zero()), 0).await;
        (stack, Box::pin(Self::on(world, clock)).await)
    }

    pub fn app(&self) -> &App {
        &self.world.app
    }

    pub async fn begin(&self, broker: BrokerId, to: Destination) -> Result<BrokerMove, MoveError> {
        self.app().moves.start(broker, to, None).await
    }

    pub async fn get(&self, id: Uuid) -> BrokerMove {
        self.app().moves.get(id).await.expect("is there")
    }

    /// Works on what is due, as a worker does; gives how much that was.
    pub async fn turn(&self) -> usize {
        self.app().move_engine.open_books().await.expect("opens");
        let claims = self.app().move_engine.claim(10).await.expect("claims");
        let count = claims.len();
        for claim in claims {
            self.app()
                .move_engine
                .run(claim, &CancellationToken::new())
                .await;
        }
        count
    }

    /// Works on a move until it is in a state, past lease after lease.
    pub async fn until(&self, id: Uuid, wanted: MoveState) -> BrokerMove {
        for _ in 0..20 {
            self.turn().await;
            let now = self.get(id).await;
            if now.state == wanted {
                return now;
            }
            self.clock.advance(PAST_THE_LEASE);
        }
        panic!("not {wanted:?}: {:?}", self.get(id).await);
    }

    /// As [`Self::until`], while servers die and come back: connections of before fail once each.
    pub async fn in_spite_of_faults(&self, id: Uuid, wanted: MoveState, what: &str) -> BrokerMove {
        let mut last = None;
        until(what, SOON, async || {
            self.clock.advance(PAST_THE_LEASE);
            drop(self.app().move_engine.open_books().await);
            let Ok(claims) = self.app().move_engine.claim(10).await else {
                return false;
            };
            for claim in claims {
                let never = CancellationToken::new();
                self.app().move_engine.run(claim, &never).await;
            }
            last = self.app().moves.get(id).await.ok();
            last.as_ref().is_some_and(|now| now.state == wanted)
        })
        .await;
        last.expect("was read")
    }

    /// Its book takes entries again, soon.
    pub async fn written_again(&self, broker: BrokerId) {
        until("it is written again", SOON, async || {
            let account = NewAccount {
                owner_kind: OwnerKind::Partner,
                owner_ref: "FO-1".to_owned(),
                currency: self.world.currency.clone(),
            };
            let (books, now) = (&self.app().books, self.world.clock.now());
            let meant = World::intention();
            let Ok(opened) = books.open_account(broker, &meant, account, now).await else {
                return false;
            };
            self.book(broker, opened.owner.id()).await.is_ok()
        })
        .await;
    }

    /// A whole move.
    pub async fn moved(&self, broker: BrokerId, to: Destination) -> BrokerMove {
        let begun = self.begin(broker, to).await.expect("begins");
        let arrived = self.until(begun.id, MoveState::Retained).await;
        self.assert_proven(&arrived).await;
        arrived
    }

    /// What a move has shown is the book.
    pub async fn assert_proven(&self, arrived: &BrokerMove) {
        let proof = arrived.proof.as_ref().expect("a proof");
        assert_eq!(proof.root_before, proof.root_after);
        let found = brokers::get(&self.app().systems.master, arrived.broker).await;
        let found = found.unwrap().unwrap();
        assert_eq!(found.placement, Some(arrived.to.placement()));
        assert_eq!(found.mode, arrived.to.mode());
        let walked = self
            .app()
            .books
            .verify(arrived.broker, Some(proof.head), &|_, _| {});
        assert!(walked.await.unwrap().result.is_ok());
    }

    pub async fn placement(&self, broker: BrokerId) -> Placement {
        let found = brokers::get(&self.app().systems.master, broker).await;
        found.unwrap().unwrap().placement.unwrap()
    }

    /// Rows of a broker in a database, in all tables that have a broker.
    pub async fn rows_in(&self, server: &str, database: &str, broker: BrokerId) -> i64 {
        let url = self.world.databases.url(server, database);
        let Ok(pool) = MySqlPool::connect(url.expose()).await else {
            return 0;
        };
        let mut rows = 0;
        for table in BOOK_TABLES
            .iter()
            .map(|table| table.name)
            .chain(["book_fence"])
        {
            let sql = format!("SELECT COUNT(*) FROM {table} WHERE broker_id = {broker}");
            let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql))
                .fetch_one(&pool)
                .await
                .unwrap();
            rows += count;
        }
        pool.close().await;
        rows
    }

    pub async fn open(&self, broker: BrokerId, name: &str) -> AccountId {
        let account = NewAccount {
            owner_kind: OwnerKind::Partner,
            owner_ref: name.to_owned(),
            currency: self.world.currency.clone(),
        };
        let (books, now) = (&self.app().books, self.world.clock.now());
        let meant = World::intention();
        let opened = books.open_account(broker, &meant, account, now);
        opened.await.expect("opens").owner.id()
    }

    pub async fn book(
        &self,
        broker: BrokerId,
        account: AccountId,
    ) -> Result<StoredEntry, BooksError> {
        let input = entry(account);
        let (books, now) = (&self.app().books, self.world.clock.now());
        books
            .book_entry(broker, &World::intention(), input, now)
            .await
    }

    /// Alpha's book with something in every table: own entries, reservations that are held,
    /// consumed and released, steps, tombstones' places, events, keys. Gives requests that still
    /// hold a reservation, all but confirmed.
    pub async fn furnish(&self) -> Vec<RequestId> {
        Box::pin(self.furnished()).await
    }

    async fn furnished(&self) -> Vec<RequestId> {
        let world = &self.world;
        let account = self.open(world.alpha, "FO-1").await;
        for _ in 0..3 {
            self.book(world.alpha, account).await.expect("is booked");
        }
        for shape in [Shape::FromClient, Shape::NoDebt, Shape::SenderPays] {
            let id = shape.sent(world).await;
            world.confirm(id).await.expect("is confirmed");
        }
        let taken_back = Shape::FromClient.accepted(world).await;
        for broker in [world.alpha, world.beta] {
            let network = &world.app.network;
            let actor = World::actor(broker);
            let cancelled = network.cancel_request(&actor, taken_back.id);
            cancelled.await.expect("is cancelled");
        }
        vec![
            Shape::FromClient.sent(world).await,
            Shape::FromClientNoDebt.sent(world).await,
        ]
    }
}

/// A hundred minor units come to an account.
fn entry(account: AccountId) -> EntryInput {
    EntryInput {
        account,
        kind: OwnEntryKind::Opening,
        side: Side::Credit,
        amount: Amount::from_minor(100).expect("an amount"),
        note: Some("наличные".to_owned()),
    }
}
