//! Payments through a provider that keeps a record of its own: what it has paid is what the
//! ledger has posted, once.

mod audited;
pub mod desk;
pub mod incoming;
mod killed;
mod lives;
mod races;
mod returned;
mod reviewed;
pub mod sim;
mod statements;
mod truth;

use chrono::Duration;
use settlenet::domain::ids::BrokerId;
use settlenet::domain::ledger::{AccountName, AccountOwner, Balances, NamePart};
use settlenet::domain::money::{Amount, Currency};
use settlenet::domain::payment::receiver::Receiver;
use settlenet::domain::payment::{IntentStatus, PspName};
use settlenet::psp::Registry;
use settlenet::runtime::{Clock, Entropy};
use settlenet::services::books::BooksService;
use settlenet::services::payments::{
    FeeRule, Finding, IntentHistory, NewIntent, NewWallet, PaymentError, PaymentParts,
    PaymentRules, PaymentService, Verdict,
};
use settlenet::stores::ledger::AccountSpec;
use settlenet::stores::master::idempotency::Intention;
use sqlx::PgPool;
use std::sync::Arc;
use uuid::Uuid;

use crate::harness::{Databases, World, assert_invariants, start};
use desk::Desk;

/// What IPPS charges here: 5.00 and a quarter of a percent.
const FEE: FeeRule = FeeRule {
    fixed: 500,
    basis_points: 25,
};
/// Longer than every lease and every wait.
const PAST_ALL: Duration = Duration::minutes(10);

/// A world with a payment manager of its own, and a provider.
pub struct Till {
    pub world: Box<World>,
    pub payments: PaymentService,
    pub pm: PgPool,
    pub desk: Arc<Desk>,
    pub currency: Currency,
    pub wallet: AccountName,
}

impl Till {
    pub async fn new() -> Self {
        Self::with(Desk::default()).await
    }

    pub async fn with(desk: Desk) -> Self {
        Self::by(Clock::manual(start()), desk).await
    }

    /// By a clock that programs which the test starts go by too.
    pub async fn by(clock: Clock, desk: Desk) -> Self {
        let mut databases = Databases::new().await;
        databases.payments().await;
        let ledger = World::shared_ledger().await;
        let world = Box::new(Box::pin(World::on(databases, ledger, clock, 0)).await);
        let pm = world.app.systems.pm.clone();
        let found = world.app.currencies.get(&world.currency).await;
        let currency = found.expect("reads").expect("is there");
        let desk = Arc::new(desk.taking(&currency.code));
        let payments = service(&world, &pm, &desk, world.clock.clone());
        let new = NewWallet {
            partner: None,
            currency: currency.clone(),
            ipps_wallet_id: Some("W-1".to_owned()),
        };
        let opened = payments.open_wallet(world.alpha, new).await.expect("opens");
        let wallet = opened.wallet.name;
        Self {
            world,
            payments,
            pm,
            desk,
            currency,
            wallet,
        }
    }

    /// Another process of the same, by a clock that is ahead.
    pub fn another(&self, ahead: Duration) -> PaymentService {
        self.going_by(Clock::manual(self.world.clock.now() + ahead))
    }

    pub fn going_by(&self, clock: Clock) -> PaymentService {
        service(&self.world, &self.pm, &self.desk, clock)
    }

    /// Open alerts, by kind, with their subjects.
    pub async fn alerts(&self, kind: &str) -> Vec<String> {
        let found = self.world.app.alerts.list(true, None, 100).await;
        let found = found.expect("reads").into_iter();
        let found = found.filter(|alert| alert.kind == kind);
        found.map(|alert| alert.subject).collect()
    }

    pub async fn fund(&self, minor: u64) {
        let amount = Amount::from_minor(minor).unwrap();
        let key = meant().key;
        let funded = self.payments.fund(&self.wallet, amount, &key, "US-1").await;
        funded.expect("funds");
    }

    pub fn payout(&self, minor: u64) -> NewIntent {
        NewIntent {
            wallet: self.wallet.clone(),
            currency: self.currency.clone(),
            amount: Amount::from_minor(minor).unwrap(),
            channel: PspName::Ipps,
            receiver: Receiver::PromptPay {
                proxy: "0801234567".to_owned(),
            },
            book_account: None,
        }
    }

    pub async fn create(&self, new: NewIntent) -> Uuid {
        let created = self.payments.create(self.world.alpha, &meant(), new).await;
        created.expect("is created").intent.id
    }

    pub async fn get(&self, id: Uuid) -> IntentHistory {
        self.payments
            .get(self.world.alpha, id)
            .await
            .expect("is there")
    }

    pub async fn status(&self, id: Uuid) -> IntentStatus {
        self.get(id).await.intent.status
    }

    /// Both workers' turns until nothing is due; gives whether anything was done.
    pub async fn settle(&self) {
        while self.work(&self.payments).await {}
    }

    /// The ledger's worker alone, past its leases, until it has nothing to do.
    pub async fn settle_outbox(&self) {
        let later = self.another(PAST_ALL);
        while later.outbox().serve(50).await.expect("serves") > 0 {}
    }

    /// One turn of each worker of a process; gives whether there was anything to do.
    pub async fn work(&self, payments: &PaymentService) -> bool {
        let acted = payments.outbox().serve(50).await.expect("serves");
        let engine = payments.engine();
        let picked_up = engine.pick_up(PspName::Ipps, 10).await.expect("picks up");
        let some = acted > 0 || !picked_up.is_empty();
        for row in picked_up {
            engine.serve(row).await;
        }
        some
    }

    /// The same, past lease after lease, until an intent has a status.
    pub async fn until(&self, id: Uuid, wanted: IntentStatus) {
        for _ in 0..30 {
            self.settle().await;
            if self.status(id).await == wanted {
                return;
            }
            self.world.clock.advance(PAST_ALL);
        }
        panic!("not {wanted}: {:#?}", self.get(id).await);
    }

    pub async fn balances(&self, owner: AccountOwner) -> Balances {
        let name = AccountName::new(owner, self.currency.code.clone());
        let spec = AccountSpec {
            name,
            ledger: self.currency.ledger,
        };
        let found = self.world.app.systems.ledger.balances(&[spec]).await;
        found.expect("answers").remove(0)
    }

    pub async fn wallet(&self) -> Balances {
        self.balances(self.wallet.owner().clone()).await
    }

    /// What the provider says that it has paid is what has left for it, and nothing is on its
    /// way; gives how much that is.
    pub async fn assert_paid(&self) -> u64 {
        let out = self.balances(nostro()).await;
        let transit = self.balances(transit()).await;
        let paid: u64 = self.desk.paid().iter().map(|(_, amount)| amount).sum();
        assert_eq!(
            out.credits_posted,
            u128::from(paid),
            "the ledger and the provider agree"
        );
        assert_eq!(transit.posted(), 0);
        let mut uids: Vec<_> = self.desk.paid().into_iter().map(|(uid, _)| uid).collect();
        let all = uids.len();
        uids.sort();
        uids.dedup();
        assert_eq!(uids.len(), all, "nothing is paid twice");
        assert!(self.wallet().await.posted() >= 0);
        assert_invariants(&self.world).await;
        paid
    }
}

pub fn nostro() -> AccountOwner {
    AccountOwner::Nostro(NamePart::new("ipps").unwrap())
}

pub fn transit() -> AccountOwner {
    AccountOwner::Transit(NamePart::new("IPPS").unwrap())
}

/// A client's intention, another each time.
pub fn meant() -> Intention {
    World::intention()
}

/// What somebody says of a review.
pub fn finding(verdict: Verdict) -> Finding<'static> {
    Finding {
        verdict,
        payment_id: None,
        reason: "asked them",
        by: "US-1",
    }
}

pub fn state_of(error: Result<impl std::fmt::Debug, PaymentError>) -> &'static str {
    match error.expect_err("is refused") {
        PaymentError::Invalid { field, .. } => field,
        PaymentError::NoSuchWallet => "no wallet",
        PaymentError::NoSuchIntent => "no intent",
        PaymentError::Incoming { .. } => "incoming",
        PaymentError::KeyReused => "key",
        PaymentError::PaymentTaken { .. } => "payment taken",
        PaymentError::SenderTaken { .. } => "sender taken",
        PaymentError::State { .. } => "state",
        PaymentError::Reason(_) => "reason",
        PaymentError::Hindered(_) => "hindered",
        PaymentError::HasLeft { .. } => "has left",
        other => panic!("{other}"),
    }
}

fn service(world: &World, pm: &PgPool, desk: &Arc<Desk>, clock: Clock) -> PaymentService {
    let providers = Registry::new([Arc::clone(desk) as Arc<dyn settlenet::psp::Driver>]);
    through(world, pm, providers, clock)
}

/// Payments through providers that a test chooses.
pub fn through(world: &World, pm: &PgPool, providers: Registry, clock: Clock) -> PaymentService {
    let systems = &world.app.systems;
    PaymentService::new(PaymentParts {
        pm: pm.clone(),
        master: systems.master.clone(),
        ledger: systems.ledger.clone(),
        currencies: Arc::clone(&world.app.currencies),
        books: BooksService::new(Arc::clone(&systems.router)),
        providers,
        rules: PaymentRules {
            fees: [(PspName::Ipps, FEE)].into(),
            ..PaymentRules::default()
        },
        clock,
        entropy: Entropy::seeded(rand::random()),
        process: Uuid::new_v4().to_string(),
    })
}

pub async fn other_broker_sees(till: &Till, broker: BrokerId, id: Uuid) -> bool {
    till.payments.get(broker, id).await.is_ok()
}
