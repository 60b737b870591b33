//! Servers that die or stand still under load, and come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use settlenet::app::{App, ledger_config};
use settlenet::config::{Config, Millis};
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::request::RequestStatus;
use settlenet::runtime::{Clock, Entropy};
use settlenet::services::network::{Answer, CreateRequest, NetworkError};
use settlenet::stores::ledger::Ledger;
use settlenet::stores::pool::PoolBounds;
use settlenet::stores::router::{BookSql, PoolLimits, Router, ServerUrl};
use settlenet::workers;
use tokio_util::sync::CancellationToken;

use super::shapes::client;
use crate::harness::{
    Databases, PrivateStack, World, assert_invariants, private_stack, proof, until,
};

const BOUND: Duration = Duration::from_mins(1);

/// What the load has seen so far.
#[derive(Default)]
struct Load {
    completed: AtomicU64,
    failed: AtomicU64,
    enough: AtomicBool,
}

impl Load {
    /// Asks until it is answered: a client who may not give up.
    async fn insist(
        &self,
        ask: impl AsyncFn() -> Result<Answer, NetworkError>,
        reached: impl Fn(&Answer) -> bool,
    ) -> Answer {
        let began = Instant::now();
        loop {
            let answer = ask().await;
            match answer {
                Ok(answer) if reached(&answer) => return answer,
                Ok(_) | Err(NetworkError::Store(_) | NetworkError::Lost) => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                }
                Err(other) => panic!("a server that is away is no reason for this: {other}"),
            }
            assert!(began.elapsed() < BOUND, "never answered");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Creates and settles one request after the other; gives those that were acknowledged.
    async fn run(
        &self,
        app: &App,
        author: BrokerId,
        target: BrokerId,
        input: &CreateRequest,
    ) -> Vec<RequestId> {
        use RequestStatus as S;
        let (network, mut settled) = (&app.network, Vec::new());
        let (author, target) = (World::actor(author), World::actor(target));
        while !self.enough.load(Ordering::Relaxed) {
            let intention = World::intention();
            let create = async || {
                let intention = intention.clone();
                network
                    .create_request(&author, intention, input.clone())
                    .await
            };
            let id = self.insist(create, |_| true).await.request.id;
            let accept = async || network.accept_request(&target, id, None).await;
            let accepted = |answer: &Answer| answer.request.status == S::Accepted;
            self.insist(accept, accepted).await;
            let send = async || network.mark_sent(&author, id, proof()).await;
            self.insist(send, |answer| answer.request.status == S::Sent)
                .await;
            let confirm = async || network.confirm_received(&target, id, None).await;
            let completed = |answer: &Answer| answer.request.status == S::Completed;
            self.insist(confirm, completed).await;
            settled.push(id);
            self.completed.fetch_add(1, Ordering::Relaxed);
        }
        settled
    }

    async fn completes(&self, more: u64) {
        let goal = self.completed.load(Ordering::Relaxed) + more;
        until("settlements go on", BOUND, async || {
            self.completed.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    /// An outage that the load feels. Those whose books and ledger are up go on meanwhile.
    async fn outage(&self, stack: &PrivateStack, [down, up, server]: [&str; 3]) {
        let before = self.failed.load(Ordering::Relaxed);
        let began = Instant::now();
        stack.order(format!("{down} {server}")).await;
        if server == "mariadb-b" {
            self.completes(5).await;
        }
        until("the outage is felt", BOUND, async || {
            let felt = self.failed.load(Ordering::Relaxed) > before;
            felt && began.elapsed() > Duration::from_secs(2)
        })
        .await;
        stack.order(format!("{up} {server}")).await;
        self.completes(20).await;
    }
}

fn tuned(mut config: Config) -> Config {
    config.saga.lease_ms = Millis(2_000);
    config.saga.backoff_max_ms = Millis(1_000);
    config.saga.poll_ms = Millis(100);
    config.tigerbeetle.timeout_ms = Millis(1_500);
    config.http.confirm_wait_ms = Millis(2_000);
    config.pools.statement_timeout_ms = Millis(4_000);
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn no_acknowledged_write_is_lost_and_nothing_ends_half_when_servers_die_under_load() {
    let stack = private_stack().await;
    let ledger = Ledger::connect(&ledger_config(&tuned(stack.config()))).unwrap();
    let databases = Databases::on(&stack).await;
    let world = World::on(databases, ledger.clone(), Clock::System, 0).await;
    let config = tuned((*world.config).clone());
    let process = || {
        let entropy = Entropy::seeded(rand::random());
        App::on_ledger(&config, ledger.clone(), Clock::System, entropy).unwrap()
    };
    let (serving, working) = (process(), process());
    let shutdown = CancellationToken::new();
    let mut workers = workers::start(&working, &config, &shutdown);

    let (alpha, beta, gamma, delta) = (world.alpha, world.beta, world.gamma, world.delta);
    let mut pairs = Vec::new();
    for (author, target) in [(alpha, beta), (beta, gamma), (gamma, delta), (delta, alpha)] {
        let plain = world.send(Some(target));
        let mut of_client = plain.clone();
        let account = client(&world, author, 1_000_000_000_000).await;
        of_client.account_id = Some(account.id());
        pairs.extend([(author, target, plain), (author, target, of_client)]);
    }
    let load = Load::default();
    let outages = async {
        load.completes(20).await;
        for server in ["mariadb-a", "mariadb-b", "tigerbeetle"] {
            load.outage(&stack, ["kill", "start", server]).await;
            load.outage(&stack, ["pause", "resume", server]).await;
        }
        load.enough.store(true, Ordering::Relaxed);
    };
    let tasks = join_all(
        pairs
            .iter()
            .map(|(author, target, input)| load.run(&serving, *author, *target, input)),
    );
    let (settled, ()) = futures::future::join(tasks, outages).await;

    until("every saga has ended", BOUND, async || {
        let open: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM saga WHERE status NOT IN ('completed', 'compensated')",
        )
        .fetch_one(&world.app.systems.master)
        .await
        .unwrap_or(-1);
        open == 0
    })
    .await;
    shutdown.cancel();
    while workers.join_next().await.is_some() {}
    for id in settled.into_iter().flatten() {
        assert_eq!(world.request(id).await.status, RequestStatus::Completed);
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_is_never_answered_is_given_up_and_a_server_that_lives_is_not_condemned() {
    const NEVER: BookSql = BookSql::new("SELECT SLEEP(60) FROM chain_head WHERE broker_id = ?");
    let world = World::new().await;
    let servers = world.config.servers.iter().map(|(name, server)| ServerUrl {
        name: name.clone(),
        url: server.url.expose().to_owned(),
        max_connections: server.max_connections,
    });
    let limits = PoolLimits {
        bounds: PoolBounds {
            statement_timeout: Duration::from_millis(300),
            ..PoolBounds::default()
        },
        ..PoolLimits::default()
    };
    let router = Arc::new(Router::new(
        world.app.systems.master.clone(),
        servers.collect(),
        limits,
    ));
    let scope = router.book(world.alpha).await.unwrap();
    let mut read = scope.read().await.unwrap();
    let query = read.sql(NEVER);
    let asked = tokio::time::timeout(BOUND / 2, read.fetch_optional::<(i64,)>(query)).await;
    assert!(asked.expect("is given up").unwrap_err().is_unavailable());
    drop(read);
    // Long enough to have been asked for a sign of life, which it gives.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(20)).await;
        scope
            .read()
            .await
            .expect("others go on")
            .end()
            .await
            .unwrap();
    }
}
