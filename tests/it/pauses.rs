//! Pauses against those who begin something at the same moment.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use futures::future::join_all;
use settlenet::app::App;
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::pause::{Hindrance, Pausable};
use settlenet::domain::request::RequestStatus;
use settlenet::runtime::Entropy;
use settlenet::services::network::NetworkError;

use crate::harness::{SOON, World, assert_invariants, proof, until};

const ROUNDS: u32 = 8;
const RACERS: usize = 6;

/// What the racers see.
#[derive(Default)]
struct Race {
    begun: AtomicU64,
    refused: AtomicU64,
    over: AtomicBool,
}

impl Race {
    /// Creates and accepts until it is over, pauses or not.
    async fn run(&self, app: &App, world: &World, author: BrokerId, target: BrokerId) {
        let network = &app.network;
        while !self.over.load(Ordering::Relaxed) {
            let input = world.send(Some(target));
            let created = network
                .create_request(&World::actor(author), World::intention(), input)
                .await;
            let outcome = match created {
                Ok(answer) => {
                    let id = answer.request.id;
                    let target = World::actor(target);
                    network.accept_request(&target, id, None).await.map(drop)
                }
                Err(error) => Err(error),
            };
            match outcome {
                Ok(()) => self.begun.fetch_add(1, Ordering::Relaxed),
                Err(NetworkError::Hindered(Hindrance::Paused { .. })) => {
                    self.refused.fetch_add(1, Ordering::Relaxed)
                }
                Err(other) => panic!("no reason to refuse: {other}"),
            };
        }
    }

    async fn moves(&self, counter: &AtomicU64, what: &str) {
        let before = counter.load(Ordering::Relaxed);
        until(what, SOON, async || {
            counter.load(Ordering::Relaxed) > before + 2
        })
        .await;
    }
}

/// How many requests there are, and how many of them somebody has accepted, in which a broker or
/// a currency is concerned.
async fn there(world: &World, what: &Pausable) -> (i64, i64) {
    let broker = what.broker().unwrap_or(0);
    sqlx::query_as(
        "SELECT COUNT(*), CAST(COALESCE(SUM(accepted_at IS NOT NULL), 0) AS SIGNED)
         FROM network_request WHERE ? = 0 OR author_broker_id = ? OR target_broker_id = ?",
    )
    .bind(broker)
    .bind(broker)
    .bind(broker)
    .fetch_one(&world.app.systems.master)
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn once_a_pause_has_answered_nothing_new_is_there_any_more() {
    let world = World::new().await;
    let process = || {
        let entropy = Entropy::seeded(rand::random());
        let ledger = world.app.systems.ledger.clone();
        App::on_ledger(&world.config, ledger, world.clock.clone(), entropy).unwrap()
    };
    let apps = [process(), process()];
    let (gamma, delta) = (world.gamma, world.delta);
    let race = Race::default();
    let racers = join_all((0..RACERS).map(|number| {
        let (author, target) = if number % 2 == 0 {
            (gamma, delta)
        } else {
            (delta, gamma)
        };
        race.run(&apps[number % apps.len()], &world, author, target)
    }));
    let pauses = &world.app.pauses;
    let now = world.clock.now();
    let referee = async {
        for round in 0..ROUNDS {
            let what = match round % 3 {
                0 => Pausable::Network,
                1 => Pausable::Broker(gamma),
                _ => Pausable::Currency(world.currency.clone()),
            };
            race.moves(&race.begun, "requests are begun").await;
            pauses
                .pause(what.clone(), "a drill", "us", None, now)
                .await
                .unwrap();
            let answered = there(&world, &what).await;
            race.moves(&race.refused, "the racers are refused").await;
            assert_eq!(there(&world, &what).await, answered, "{what}");
            let lifted = pauses.resume(what, None, "us", now).await.unwrap();
            assert!(lifted.is_some());
        }
        race.over.store(true, Ordering::Relaxed);
    };
    futures::future::join(racers, referee).await;
    assert_invariants(&world).await;
}

/// Everything that may be done to a request that somebody has accepted.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_finished_under_every_pause() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    let (as_alpha, as_beta) = (World::actor(alpha), World::actor(beta));
    let network = &world.app.network;
    for what in [
        Pausable::Network,
        Pausable::Broker(alpha),
        Pausable::Broker(beta),
        Pausable::Currency(world.currency.clone()),
    ] {
        let mut ids: Vec<RequestId> = Vec::new();
        for _ in 0..3 {
            ids.push(world.create(alpha, world.send(Some(beta))).await.id);
        }
        let [accepted, unwanted, withdrawn] = ids[..] else {
            panic!("three")
        };
        network
            .accept_request(&as_beta, accepted, None)
            .await
            .unwrap();
        let now = world.clock.now();
        let pauses = &world.app.pauses;
        let pause = pauses.pause(what.clone(), "a drill", "us", None, now).await;
        pause.unwrap();

        let late = network.accept_request(&as_beta, unwanted, None).await;
        assert!(matches!(late, Err(NetworkError::Hindered(_))), "{what}");
        network
            .reject_request(&as_beta, unwanted, None)
            .await
            .unwrap();
        network.cancel_request(&as_alpha, withdrawn).await.unwrap();
        let again = network.accept_request(&as_beta, accepted, None).await;
        assert_eq!(again.unwrap().request.status, RequestStatus::Accepted);
        network
            .mark_sent(&as_alpha, accepted, proof())
            .await
            .unwrap();
        let done = network.confirm_received(&as_beta, accepted, None).await;
        assert_eq!(done.unwrap().request.status, RequestStatus::Completed);

        pauses.resume(what, None, "us", now).await.unwrap();
    }
    assert_invariants(&world).await;
}

/// A release that kept no pauses wrote the broker's state alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_by_an_older_release_holds_and_is_lifted() {
    let world = World::new().await;
    sqlx::query("UPDATE broker SET state = 'suspended' WHERE broker_id = ?")
        .bind(world.alpha)
        .execute(&world.app.systems.master)
        .await
        .unwrap();
    let create = async || {
        let input = world.send(Some(world.beta));
        let network = &world.app.network;
        network
            .create_request(&World::actor(world.alpha), World::intention(), input)
            .await
    };
    assert!(matches!(
        create().await,
        Err(NetworkError::Hindered(Hindrance::Paused {
            because: None,
            ..
        }))
    ));
    let what = Pausable::Broker(world.alpha);
    let pauses = &world.app.pauses;
    let lifted = pauses.resume(what, None, "us", world.clock.now()).await;
    assert_eq!(lifted.unwrap().unwrap().by, "unknown");
    create().await.unwrap();
}
