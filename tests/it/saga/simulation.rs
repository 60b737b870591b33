//! Random brokers, requests and transitions, legal and not, with faults and crashes at any place
//! between two side effects, callers who hang up, jumps of the clock, and two processes whose
//! clocks are ten minutes apart; after each run every invariant is checked.
//!
//! Everything that a run decides comes from its seed, so a seed replays a run's operations and
//! crash points: `SETTLENET_SEED=… cargo test --test it saga::simulation`. Runs are started for
//! `SETTLENET_SIMULATION_S` seconds, 20 by default.

mod life;

use std::collections::BTreeMap;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use chrono::Duration as Span;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use settlenet::app::App;
use settlenet::config::Millis;
use settlenet::domain::account::AccountRef;
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::proof::Proof;
use settlenet::domain::request::{Request, RequestKind, RequestStatus};
use settlenet::domain::saga::SagaStatus;
use settlenet::domain::terms::{ObligationTerm, Party};
use settlenet::runtime::Clock;
use settlenet::runtime::failpoint::{self, Ask};
use settlenet::services::network::{Actor, Answer, CommissionInput, CreateRequest, NetworkError};
use settlenet::stores::StoreError;
use settlenet::stores::master::{requests, sagas};
use uuid::Uuid;

use life::{Move, after, next};

use crate::harness::{World, breaks, proof, start};

/// Operations of one run.
const OPERATIONS: usize = 120;

#[tokio::test]
async fn whatever_happens_in_any_order_the_invariants_hold() {
    let seconds = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text: String| text.parse::<u64>().ok())
    };
    if let Some(seed) = seconds("SETTLENET_SEED") {
        drop(Box::pin(Simulation::run(seed)).await);
        return;
    }
    let budget = Duration::from_secs(seconds("SETTLENET_SIMULATION_S").unwrap_or(20));
    let began = Instant::now();
    let mut told = BTreeMap::new();
    while began.elapsed() < budget {
        for status in Box::pin(Simulation::run(rand::random())).await {
            *told.entry(status).or_insert(0) += 1;
        }
    }
    eprintln!("what became of the requests: {told:?}");
    assert!(told.contains_key("completed"), "{told:?}");
}

/// Two processes on one network, and the hand of fate.
struct Simulation {
    seed: u64,
    rng: StdRng,
    world: World,
    clocks: [Clock; 2],
    apps: [App; 2],
    accounts: Vec<AccountRef>,
    requests: Vec<RequestId>,
    /// What was done, for whoever reads of a failure.
    log: Vec<String>,
}

impl Drop for Simulation {
    fn drop(&mut self) {
        failpoint::watch(None);
        if std::env::var_os("SETTLENET_SEED").is_some() || std::thread::panicking() {
            eprintln!(
                "replay with SETTLENET_SEED={}\n  {}",
                self.seed,
                self.log.join("\n  ")
            );
        }
    }
}

/// What befalls an operation.
#[derive(Clone, Copy, Debug)]
enum Fate {
    None,
    /// The n-th place that it arrives at fails, where a place can fail.
    Fault(u32),
    /// Its task ends at the n-th place.
    Crash(u32),
    /// Its caller hangs up after so many looks.
    HangUp(u32),
}

impl Simulation {
    /// Gives what became of each request.
    async fn run(seed: u64) -> Vec<&'static str> {
        let mut run = Box::pin(Self::new(seed)).await;
        for number in 0..OPERATIONS {
            run.operation(number).await;
        }
        failpoint::watch(None);
        run.quiesce().await;
        let mut broken = breaks(&run.world).await;
        let mut ends = Vec::new();
        for id in run.all().await {
            broken.extend(run.illegal(id).await);
            ends.push(run.world.request(id).await.status.as_str());
        }
        assert!(broken.is_empty(), "broken:\n  {}", broken.join("\n  "));
        ends
    }

    async fn new(seed: u64) -> Self {
        let mut world = World::new().await;
        world.config.http.confirm_wait_ms = Millis(60);
        let clocks = [Span::zero(), Span::minutes(10)].map(|ahead| Clock::manual(start() + ahead));
        let apps = clocks.clone().map(|clock| world.another_by(clock));
        let mut run = Self {
            seed,
            rng: StdRng::seed_from_u64(seed),
            world,
            clocks,
            apps,
            accounts: Vec::new(),
            requests: Vec::new(),
            log: Vec::new(),
        };
        for broker in run.world.brokers.clone() {
            let network = &run.world.app.network;
            let cities = network.set_cities(broker, vec!["DXB".to_owned()]);
            cities.await.expect("are set");
            let client = run.world.client(broker, "FO-000000000001");
            let cashier = run.world.cashier(broker, "till");
            for account in [client, cashier] {
                let balance = run.rng.random_range(1..500_000);
                run.accounts.push(run.world.funded(account, balance).await);
            }
        }
        run
    }

    async fn operation(&mut self, number: usize) {
        let weight: u32 = Move::DRAW.iter().map(|(_, weight)| weight).sum();
        let mut drawn = self.rng.random_range(0..weight);
        let (what, _) = Move::DRAW
            .iter()
            .find(|(_, weight)| {
                let here = drawn < *weight;
                drawn = drawn.saturating_sub(*weight);
                here
            })
            .expect("one of them");
        let fate = match self.rng.random_range(0..10) {
            0..=3 => Fate::None,
            4..=5 => Fate::Fault(self.rng.random_range(1..12)),
            6..=8 => Fate::Crash(self.rng.random_range(1..14)),
            _ => Fate::HangUp(self.rng.random_range(1..30)),
        };
        let request = self.pick().await;
        let what = match (what, &request) {
            (Move::Carry, Some(request)) => next(request.status),
            _ => *what,
        };
        let request = request.map(|request| request.id);
        let broker = *self.world.brokers.choose(&mut self.rng).expect("some");
        let process = self.rng.random_range(0..2);
        self.log.push(format!(
            "{number}: {what:?} of {request:?} by {broker} on {process}, {fate:?}"
        ));
        watch(fate);
        match (what, request) {
            (Move::Create, _) => self.create(broker, process, fate).await,
            (Move::Jump, _) => self.jump(),
            (Move::Restart, _) => {
                self.apps[process] = self.world.another_by(self.clocks[process].clone());
            }
            (Move::OpenOrClose, _) => {
                let account = self.accounts.choose(&mut self.rng).expect("some").clone();
                let open = self.rng.random_bool(0.7);
                self.world.set_open(&account, open).await;
            }
            (Move::Work, _) => {
                let app = self.apps[process].clone();
                within(fate, work(&app)).await;
            }
            (Move::Stale | Move::Compensate | Move::Retry, _) => {
                self.on_saga(what, process, fate).await;
            }
            (_, None) => {}
            (_, Some(id)) => self.transition(what, id, broker, process, fate).await,
        }
        failpoint::watch(None);
    }

    /// Some request, rather one whose life has not ended.
    async fn pick(&mut self) -> Option<Request> {
        let mut picked = None;
        for _ in 0..4 {
            let id = *self.requests.choose(&mut self.rng)?;
            let request = self.world.request(id).await;
            let open = request.closed_at.is_none();
            picked = Some(request);
            if open {
                break;
            }
        }
        picked
    }

    async fn create(&mut self, author: BrokerId, process: usize, fate: Fate) {
        let input = self.input(author);
        let network = self.apps[process].network.clone();
        let actor = World::actor(author);
        let intention = World::intention();
        if input.kind.is_order() {
            let created = network.create_order(&actor, intention, input);
            if let Some(Ok(created)) = within(fate, created).await {
                self.requests.push(created.answer.request.id);
            }
            return;
        }
        let created = network.create_request(&actor, intention, input);
        match within(fate, created).await {
            Some(Ok(answer)) => self.requests.push(answer.request.id),
            other => self.log.push(format!("    {other:?}")),
        }
    }

    /// A request to repay some of what is owed, or an order, in place of a plain one.
    fn vary(&mut self, input: &mut CreateRequest) {
        let target = input.target_broker_id;
        match (self.rng.random_range(0..10), target) {
            (0..=1, Some(_)) => {
                input.kind = RequestKind::Settlement;
                input.obligation = None;
                input.commission = None;
                input.counterpart_uid = None;
                input.debtor = Some(Party::Author).filter(|_| self.rng.random_bool(0.5));
                if input.debtor.is_none() {
                    input.debtor = Some(Party::Counterparty);
                    input.account_id = None;
                }
                // Small, so that there is something to repay.
                "3.00".clone_into(&mut input.amount);
            }
            (2..=4, _) => {
                input.kind = if self.rng.random_bool(0.5) {
                    RequestKind::Collect
                } else {
                    RequestKind::Payout
                };
                input.counterpart_uid = Some("FO-000000000001".to_owned());
                input.account_id = None;
                input.auto_confirm = self.rng.random_bool(0.3);
            }
            _ => {}
        }
    }

    /// Executes an order; a payout with its code, or now and then with another.
    async fn execute(
        &mut self,
        request: &Request,
        actor: &Actor,
        proofs: Vec<Proof>,
        process: usize,
        fate: Fate,
    ) -> Option<Result<Answer, NetworkError>> {
        let network = self.apps[process].network.clone();
        let id = request.id;
        let mut code = None;
        if request.kind == RequestKind::Payout && request.status == RequestStatus::Accepted {
            let author = World::actor(request.author);
            code = match within(Fate::None, network.renew_pickup(&author, id)).await {
                Some(Ok((_, code))) if self.rng.random_bool(0.8) => Some(code),
                _ => Some("00000000".into()),
            };
        }
        within(fate, network.execute_order(actor, id, proofs, code)).await
    }

    fn input(&mut self, author: BrokerId) -> CreateRequest {
        let others: Vec<_> = self
            .world
            .brokers
            .iter()
            .copied()
            .filter(|id| *id != author)
            .collect();
        let rng = &mut self.rng;
        let target = rng
            .random_bool(0.8)
            .then(|| *others.choose(rng).expect("some"));
        let mut input = self.world.send(target);
        let minor = rng.random_range(100..300_000_u64);
        input.amount = format!("{}.{:02}", minor / 100, minor % 100);
        if rng.random_bool(0.4) {
            input.kind = RequestKind::Receive;
        }
        input.obligation = *[
            None,
            Some(ObligationTerm::None),
            Some(ObligationTerm::AuthorOwes),
            Some(ObligationTerm::CounterpartyOwes),
        ]
        .choose(rng)
        .expect("some");
        let payer = *[Party::Author, Party::Counterparty]
            .choose(rng)
            .expect("some");
        input.commission = match rng.random_range(0..3) {
            0 => None,
            1 => Some(CommissionInput {
                payer,
                amount: Some("0.37".to_owned()),
                basis_points: None,
            }),
            _ => Some(CommissionInput {
                payer,
                amount: None,
                basis_points: Some(rng.random_range(60..2_000)),
            }),
        };
        if rng.random_bool(0.5) {
            input.account_id = self.account_of(author).map(|account| account.id());
        }
        let rng = &mut self.rng;
        if rng.random_bool(0.3) {
            input.counterpart_uid = Some("FO-000000000001".to_owned());
        }
        if rng.random_bool(0.3) {
            let hours = rng.random_range(1..10);
            input.deadline_at = Some(self.clocks[1].now() + Span::hours(hours));
        }
        self.vary(&mut input);
        input
    }

    fn account_of(&mut self, broker: BrokerId) -> Option<AccountRef> {
        let own: Vec<_> = self
            .accounts
            .iter()
            .filter(|account| account.broker == broker)
            .collect();
        own.choose(&mut self.rng).map(|account| (*account).clone())
    }

    /// Mostly by whoever may, sometimes by anybody.
    async fn transition(
        &mut self,
        what: Move,
        id: RequestId,
        anybody: BrokerId,
        process: usize,
        fate: Fate,
    ) {
        let request = self.world.request(id).await;
        let by = self
            .whose(what, &request)
            .filter(|_| self.rng.random_bool(0.85));
        let by = by.unwrap_or(anybody);
        let actor = World::actor(by);
        let often = if request.kind.is_order() { 0.9 } else { 0.4 };
        let account = self
            .rng
            .random_bool(often)
            .then(|| self.account_of(by))
            .flatten();
        let account = account.map(|account| account.id());
        let less = request.received_amount.map_or_else(
            || request.amount.minor() - request.amount.minor() / 50 - 1,
            settlenet::domain::money::Amount::minor,
        );
        let less = format!("{}.{:02}", less / 100, less % 100);
        let network = self.apps[process].network.clone();
        // The same again, or another after the first was taken back.
        let mut proofs = proof();
        proofs[0].value = Some(format!("MT103-{}", self.rng.random_range(0..3)));
        let network = &network;
        let outcome = match what {
            Move::Accept => within(fate, network.accept_request(&actor, id, account)).await,
            Move::Reject => within(fate, network.reject_request(&actor, id, None)).await,
            Move::Cancel => within(fate, network.cancel_request(&actor, id)).await,
            Move::Resend => within(fate, network.resend_request(&actor, id)).await,
            Move::Sent if request.kind.is_order() => {
                self.execute(&request, &actor, proofs, process, fate).await
            }
            Move::Sent => within(fate, network.mark_sent(&actor, id, proofs)).await,
            Move::Confirm => within(fate, network.confirm_received(&actor, id, None)).await,
            Move::ConfirmLess => {
                within(fate, network.confirm_received(&actor, id, Some(&less))).await
            }
            Move::Dispute => {
                within(
                    fate,
                    network.dispute_request(&actor, id, World::said("short")),
                )
                .await
            }
            Move::Expire => {
                let expired = within(fate, network.expire_overdue(10)).await;
                return self.log.push(format!("    {expired:?}"));
            }
            other => panic!("{other:?} is no transition"),
        };
        match outcome {
            Some(Err(
                error @ NetworkError::Store(
                    StoreError::Corrupt { .. }
                    | StoreError::Database { .. }
                    | StoreError::NoBook { .. }
                    | StoreError::UnknownServer { .. }
                    | StoreError::Moving { .. },
                ),
            )) => panic!("{error}"),
            Some(Err(NetworkError::Lost)) => assert!(matches!(fate, Fate::Crash(_))),
            Some(Err(error)) => self.log.push(format!("    {error}")),
            Some(Ok(answer)) => self.log.push(format!("    {}", answer.request.status)),
            None => self.log.push("    hung up".to_owned()),
        }
    }

    fn whose(&mut self, what: Move, request: &Request) -> Option<BrokerId> {
        let sender = request.broker_of(request.sender());
        let receiver = request.broker_of(request.sender().other());
        match what {
            Move::Sent => sender,
            Move::ConfirmLess if request.received_amount.is_some() => sender,
            Move::Confirm | Move::ConfirmLess => receiver,
            Move::Accept | Move::Reject => request.target,
            _ => [Some(request.author), request.target]
                .choose(&mut self.rng)
                .copied()
                .flatten(),
        }
    }

    async fn on_saga(&mut self, what: Move, process: usize, fate: Fate) {
        let master = &self.world.app.systems.master;
        let mut all = sagas::list(master, None, None, 1_000).await.expect("lists");
        all.sort_by_key(|saga| (saga.created_at, saga.subject, saga.kind.as_str()));
        let Some(saga) = all.choose(&mut self.rng) else {
            return;
        };
        let app = self.apps[process].clone();
        let engine = &app.engine;
        match what {
            Move::Compensate => drop(within(fate, engine.compensate(saga.saga_id)).await),
            Move::Retry => drop(within(fate, engine.retry(saga.saga_id)).await),
            _ => {
                let tried = engine.take_on(saga.saga_id, World::lease_of(&app));
                // It may have crashed.
                within(fate, async { drop(tried.await) }).await;
            }
        }
    }

    fn jump(&mut self) {
        let by = Span::seconds(self.rng.random_range(1..3_000));
        for clock in &self.clocks {
            clock.advance(by);
        }
        // They drift, but stay within ten minutes or so of each other.
        let drift = Span::seconds(self.rng.random_range(0..600));
        let apart = self.clocks[1].now() - self.clocks[0].now();
        let behind = usize::from(apart <= Span::zero());
        self.clocks[behind].advance(drift);
    }

    /// No more faults: workers run until every saga has ended, and an admin retries what is stuck.
    async fn quiesce(&mut self) {
        for _ in 0..200 {
            for clock in &self.clocks {
                clock.advance(Span::minutes(20));
            }
            self.apps = self
                .clocks
                .clone()
                .map(|clock| self.world.another_by(clock));
            let master = &self.world.app.systems.master;
            let stuck = sagas::list(master, Some(SagaStatus::Stuck), None, 1_000).await;
            for saga in stuck.expect("lists") {
                assert!(
                    self.apps[0]
                        .engine
                        .retry(saga.saga_id)
                        .await
                        .expect("answers")
                );
            }
            for app in &self.apps {
                self.world.run_due(app).await;
            }
            let mut open = sagas::counts(master).await.expect("counts");
            open.retain(|(status, _)| !status.is_terminal());
            if open.is_empty() {
                return;
            }
        }
        panic!("sagas never end");
    }

    async fn all(&self) -> Vec<RequestId> {
        let rows: Vec<u64> = sqlx::query_scalar("SELECT request_id FROM network_request")
            .fetch_all(&self.world.app.systems.master)
            .await
            .expect("reads");
        rows.into_iter().map(RequestId::from_bits).collect()
    }

    /// The events of a request that its life doesn't allow, told by a table of its own.
    async fn illegal(&self, id: RequestId) -> Vec<String> {
        let events = requests::events(&self.world.app.systems.master, id).await;
        let at_once = self.world.request(id).await.auto_confirm;
        let mut status = None;
        let mut illegal = Vec::new();
        for (event, _) in events.expect("reads") {
            match after(status, event.kind, at_once) {
                Some(next) => status = Some(next),
                None => illegal.push(format!("{id}: {} when {status:?}", event.kind)),
            }
        }
        let present = self.world.request(id).await.status;
        if status.map(|(status, _)| status) != Some(present) {
            illegal.push(format!("{id}: is {present}, its events say {status:?}"));
        }
        illegal
    }
}

/// Claims once and runs what it gets; a try may crash.
async fn work(app: &App) {
    let lease = World::lease_of(app);
    let now = app.systems.clock.now();
    let claimed = sagas::claim(&app.systems.master, &lease, now, 10).await;
    let tries: Vec<_> = claimed
        .unwrap_or_default()
        .into_iter()
        .map(|saga_id: Uuid| app.engine.take_on(saga_id, lease.clone()))
        .collect();
    futures::future::join_all(tries).await;
}

/// Lets fate strike at the places that the next operation arrives at.
fn watch(fate: Fate) {
    let (nth, crash) = match fate {
        Fate::None | Fate::HangUp(_) => return failpoint::watch(None),
        Fate::Fault(nth) => (nth, false),
        Fate::Crash(nth) => (nth, true),
    };
    let mut arrivals = 0;
    failpoint::watch(Some(Box::new(move |_| {
        arrivals += 1;
        match (arrivals == nth, crash) {
            (false, _) => Ask::GoOn,
            (true, false) => Ask::Fail,
            // Without the message of a panic: nothing is wrong.
            (true, true) => std::panic::resume_unwind(Box::new("a crash")),
        }
    })));
}

/// An operation's outcome, or nothing where its caller hung up.
async fn within<F: Future>(fate: Fate, work: F) -> Option<F::Output> {
    let Fate::HangUp(mut looks) = fate else {
        return Some(work.await);
    };
    let mut work = pin!(work);
    std::future::poll_fn(|context| {
        if looks == 0 {
            return Poll::Ready(None);
        }
        looks -= 1;
        work.as_mut().poll(context).map(Some)
    })
    .await
}
