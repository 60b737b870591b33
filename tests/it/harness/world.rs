//! A small network of a test's own: Alpha and Beta each in a database of server `b`, Gamma and
//! Delta on a shard of server `a`, and a currency that no other test has.

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use settlenet::app::{App, ledger_config};
use settlenet::config::Config;
use settlenet::domain::account::{AccountRef, OwnerKind};
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::money::CurrencyCode;
use settlenet::domain::proof::{Proof, ProofType};
use settlenet::domain::request::{Request, RequestKind};
use settlenet::domain::request_event::EventKind;
use settlenet::runtime::{Clock, Entropy};
use settlenet::services::network::{Actor, Answer, CreateRequest, NetworkError, Said};
use settlenet::stores::book;
use settlenet::stores::ledger::Ledger;
use settlenet::stores::master::idempotency::Intention;
use settlenet::stores::master::requests;
use settlenet::stores::migrate::{self, Kind};
use settlenet::stores::router::DatabaseKey;
use tokio::sync::OnceCell;

use super::{Databases, broker_ids, ledger};

pub struct World {
    pub databases: Databases,
    pub config: Box<Config>,
    pub app: App,
    pub clock: Clock,
    pub currency: CurrencyCode,
    /// The currency's ledger number.
    pub ledger: u32,
    pub alpha: BrokerId,
    pub beta: BrokerId,
    pub gamma: BrokerId,
    pub delta: BrokerId,
    /// All of them: the four, then what [`World::with_extra_brokers`] added.
    pub brokers: Vec<BrokerId>,
}

/// When every test begins.
pub fn start() -> DateTime<Utc> {
    "2026-01-01T00:00:00Z".parse().expect("a time")
}

impl World {
    pub async fn new() -> Self {
        Self::with_extra_brokers(0).await
    }

    /// With more brokers on the shard.
    pub async fn with_extra_brokers(extra: u64) -> Self {
        let (databases, client) = (Databases::new().await, Self::shared_ledger().await);
        Self::on(databases, client, Clock::manual(start()), extra).await
    }

    /// By a clock that programs which the test starts go by too: see [`Clock::from_env`].
    pub async fn with_clock(clock: Clock) -> Self {
        Self::on(
            Databases::new().await,
            Self::shared_ledger().await,
            clock,
            0,
        )
        .await
    }

    /// In given databases, with a client of the ledger.
    pub async fn on(mut databases: Databases, client: Ledger, clock: Clock, extra: u64) -> Self {
        let tenants = [databases.tenant().await, databases.tenant().await];
        let mut config = Box::new(databases.config());
        config.http.confirm_wait_ms = settlenet::config::Millis(20_000);
        migrate::migrate(databases.master_url(), Kind::Master)
            .await
            .expect("migrates");
        migrate::migrate(&databases.shard_url(), Kind::Shared)
            .await
            .expect("migrates");
        for tenant in &tenants {
            migrate::migrate(&databases.url("b", tenant), Kind::Tenant)
                .await
                .expect("migrates");
        }
        migrate::migrate_postgres(&config.postgres.url)
            .await
            .expect("migrates");
        let entropy = Entropy::seeded(rand::random());
        let app = App::on_ledger(&config, client, clock.clone(), entropy).expect("assembles");
        let ledger = ledger();
        let currency: CurrencyCode = format!("T{ledger:X}").parse().expect("a code");
        let brokers: Vec<BrokerId> = broker_ids(4 + extra).collect();
        let first = brokers[0];
        let world = Self {
            databases,
            config,
            app,
            clock,
            currency,
            ledger,
            alpha: first,
            beta: first + 1,
            gamma: first + 2,
            delta: first + 3,
            brokers,
        };
        world.register(&tenants).await;
        world
    }

    /// One client of the ledger for the whole process.
    pub async fn shared_ledger() -> Ledger {
        static LEDGER: OnceCell<Ledger> = OnceCell::const_new();
        LEDGER
            .get_or_init(|| async {
                let stack = tokio::task::spawn_blocking(super::stack)
                    .await
                    .expect("the stack starts");
                Ledger::connect(&ledger_config(&stack.config())).expect("connects")
            })
            .await
            .clone()
    }

    async fn register(&self, tenants: &[String; 2]) {
        let master = &self.app.systems.master;
        let now = self.clock.now();
        let run = |sql: &'static str| sqlx::query(sql);
        run("INSERT INTO currency (code, kind, exponent, ledger) VALUES (?, 'fiat', 2, ?)")
            .bind(self.currency.as_str())
            .bind(self.ledger)
            .execute(master)
            .await
            .expect("inserts");
        run("INSERT INTO shared_shard (shard_id, server_name, database_name, capacity, created_at) VALUES (1, 'a', ?, 100, ?)")
            .bind(&self.databases.shard)
            .bind(now)
            .execute(master)
            .await
            .expect("inserts");
        let place = |server: &str, database: &String| DatabaseKey {
            server: server.to_owned(),
            database: database.clone(),
        };
        let mut brokers = vec![
            (self.alpha, "Alpha", "FULL", place("b", &tenants[0])),
            (self.beta, "Beta", "FULL", place("b", &tenants[1])),
            (
                self.gamma,
                "Gamma",
                "SOLO",
                place("a", &self.databases.shard),
            ),
            (
                self.delta,
                "Delta",
                "SOLO",
                place("a", &self.databases.shard),
            ),
        ];
        for id in &self.brokers[4..] {
            let shard = place("a", &self.databases.shard);
            brokers.push((*id, "", "SOLO", shard));
        }
        for (id, name, mode, place) in brokers {
            let own = (mode == "FULL").then(|| place.clone());
            run("INSERT INTO broker (broker_id, name, broker_mode, plan, state, shared_shard_id, server_name, database_name, created_at)
                 VALUES (?, ?, ?, 'pro', 'active', ?, ?, ?, ?)")
                .bind(id)
                .bind(if name.is_empty() { format!("Broker {id}") } else { name.to_owned() })
                .bind(mode)
                .bind((mode == "SOLO").then_some(1))
                .bind(own.as_ref().map(|place| place.server.clone()))
                .bind(own.as_ref().map(|place| place.database.clone()))
                .bind(now)
                .execute(master)
                .await
                .expect("inserts");
            book::create(&self.app.systems.router, &place, id, 1, now)
                .await
                .expect("a book");
        }
    }

    pub fn actor(broker: BrokerId) -> Actor {
        Actor {
            broker,
            subject: format!("staff-of-{broker}"),
        }
    }

    /// A send of 10,000.00 from one broker to another, or to all.
    pub fn send(&self, target: Option<BrokerId>) -> CreateRequest {
        CreateRequest {
            target_broker_id: target,
            kind: RequestKind::Send,
            currency_code: self.currency.to_string(),
            amount: "10000.00".to_owned(),
            method: "cash".to_owned(),
            city_code: Some("DXB".to_owned()),
            counterpart_uid: None,
            contact: None,
            note: None,
            obligation: None,
            commission: None,
            account_id: None,
            deadline_at: None,
            obligation_id: None,
            debtor: None,
            auto_confirm: false,
        }
    }

    /// What one side says in a dispute.
    pub fn said(text: &str) -> Said {
        Said {
            text: text.to_owned(),
            proofs: Vec::new(),
        }
    }

    pub async fn create(&self, author: BrokerId, input: CreateRequest) -> Request {
        let answer = self
            .app
            .network
            .create_request(&Self::actor(author), Self::intention(), input)
            .await;
        answer.expect("is created").request
    }

    /// An order, and the code of a payout.
    pub async fn order(
        &self,
        author: BrokerId,
        input: CreateRequest,
    ) -> (Request, Option<SecretString>) {
        let network = &self.app.network;
        let created = network
            .create_order(&Self::actor(author), Self::intention(), input)
            .await
            .expect("is created");
        (created.answer.request, created.pickup_code)
    }

    /// The saga that has completed a request.
    pub async fn completed_by(&self, id: RequestId) -> uuid::Uuid {
        let events = requests::events(&self.app.systems.master, id).await;
        let events = events.expect("reads");
        let (last, _) = events.last().expect("has events");
        assert_eq!(last.kind, EventKind::Completed);
        let saga = last.payload["saga"].as_str().expect("names its saga");
        saga.parse().expect("a uuid")
    }

    /// An intention that nobody had before.
    pub fn intention() -> Intention {
        let key = uuid::Uuid::new_v4().to_string();
        Intention {
            client: "test".to_owned(),
            fingerprint: settlenet::domain::canonical::Hash::of_bytes(key.as_bytes()),
            key,
        }
    }

    /// Takes a request to `sent`; the target accepts and the sender sends.
    pub async fn bring_to_sent(&self, request: &Request, target: BrokerId) {
        let network = &self.app.network;
        network
            .accept_request(&Self::actor(target), request.id, None)
            .await
            .expect("is accepted");
        self.mark_sent(&self.request(request.id).await).await;
    }

    /// A request that only the receiver's confirmation is missing for.
    pub async fn sent(&self, author: BrokerId, target: BrokerId) -> RequestId {
        let request = self.create(author, self.send(Some(target))).await;
        self.bring_to_sent(&request, target).await;
        request.id
    }

    pub async fn mark_sent(&self, request: &Request) {
        let sender = request.broker_of(request.sender()).expect("is accepted");
        let (network, sender) = (&self.app.network, Self::actor(sender));
        let id = request.id;
        let sent = match request.kind {
            RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => {
                network.mark_sent(&sender, id, proof()).await
            }
            RequestKind::Collect => network.execute_order(&sender, id, proof(), None).await,
            RequestKind::Payout => {
                let author = Self::actor(request.author);
                let renewed = network.renew_pickup(&author, id).await;
                let (_, code) = renewed.expect("a code");
                network
                    .execute_order(&sender, id, proof(), Some(code))
                    .await
            }
        };
        sent.expect("is sent");
    }

    /// The receiver confirms.
    pub async fn confirm(&self, id: RequestId) -> Result<Answer, NetworkError> {
        let request = self.request(id).await;
        let receiver = request.broker_of(request.sender().other());
        let actor = Self::actor(receiver.expect("is accepted"));
        self.app.network.confirm_received(&actor, id, None).await
    }

    pub fn client(&self, broker: BrokerId, uid: &str) -> AccountRef {
        AccountRef {
            broker,
            owner_kind: OwnerKind::Partner,
            owner_ref: uid.to_owned(),
            currency: self.currency.clone(),
        }
    }
}

pub fn proof() -> Vec<Proof> {
    vec![Proof {
        kind: ProofType::TransferRef,
        url: None,
        value: Some("MT103-77".to_owned()),
        note: Some("handed to Ahmed at 14:30".to_owned()),
        sha256: None,
    }]
}
