//! Many callers at once, and callers who don't wait for the answer.

use std::time::Duration;

use futures::future::join_all;
use settlenet::domain::ids::RequestId;
use settlenet::domain::request::{Refusal, RequestStatus};
use settlenet::services::network::NetworkError;
use settlenet::stores::master;

use super::shapes::Shape;
use crate::harness::{SOON, World, assert_invariants, proof, until};

#[tokio::test(flavor = "multi_thread")]
async fn two_hundred_confirms_are_one_settlement_and_two_hundred_equal_answers() {
    let world = World::new().await;
    let id = Shape::FromClient.sent(&world).await;
    let answers = join_all((0..200).map(|_| {
        let network = world.app.network.clone();
        let actor = World::actor(world.beta);
        tokio::spawn(async move { network.confirm_received(&actor, id, None).await })
    }))
    .await;
    let mut answers = answers
        .into_iter()
        .map(|answer| answer.unwrap().expect("an answer"));
    let first = answers.next().expect("200 of them");
    assert_eq!(first.request.status, RequestStatus::Completed);
    for answer in answers {
        assert_eq!((&answer.request, answer.running), (&first.request, None));
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_racing_accepts_have_one_winner_and_nineteen_who_come_too_late() {
    let world = World::with_extra_brokers(17).await;
    let mut input = world.send(None);
    let account = super::shapes::client(&world, world.alpha, 1_000_000).await;
    input.account_id = Some(account.id());
    let request = world.create(world.alpha, input).await;
    let racers = world
        .brokers
        .iter()
        .filter(|broker| **broker != world.alpha);
    let racers: Vec<_> = racers.copied().collect();
    assert_eq!(racers.len(), 20);
    let accepts = racers.iter().map(|broker| {
        let network = world.app.network.clone();
        let actor = World::actor(*broker);
        tokio::spawn(async move { network.accept_request(&actor, request.id, None).await })
    });
    let mut winners = Vec::new();
    let mut refused = 0;
    for (broker, answer) in racers.iter().zip(join_all(accepts).await) {
        match answer.unwrap() {
            Ok(answer) => {
                assert_eq!(answer.request.target, Some(*broker));
                winners.push(*broker);
            }
            Err(NetworkError::Refused(Refusal::Taken)) => refused += 1,
            Err(other) => panic!("{broker}: {other}"),
        }
    }
    assert_eq!((winners.len(), refused), (1, 19));
    assert_eq!(world.request(request.id).await.target, Some(winners[0]));
    assert_invariants(&world).await;
}

/// Takes a request one transition further, whichever is next.
async fn push(world: &World, id: RequestId) {
    let network = &world.app.network;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    // Whatever a transition answers, the next look at the request tells.
    match world.request(id).await.status {
        RequestStatus::Pending => drop(network.accept_request(&beta, id, None).await),
        RequestStatus::Accepted => drop(network.mark_sent(&alpha, id, proof()).await),
        RequestStatus::Sent => drop(network.confirm_received(&beta, id, None).await),
        _ => {}
    }
}

async fn hang_up_until_completed(world: &World, id: RequestId) {
    let mut patience = 0;
    until("the request is completed", SOON, async || {
        // After 0 to 12 ms, later and later, at whatever point that is.
        let micros = rand::random_range(0..6_000) + patience * 100;
        patience = (patience + 1).min(60);
        drop(tokio::time::timeout(Duration::from_micros(micros), push(world, id)).await);
        world.request(id).await.status == RequestStatus::Completed
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_who_hang_up_leave_no_transaction_open_and_the_request_ends_right() {
    let world = World::new().await;
    // The count can tell: here is one that somebody left open.
    let pool = &world.app.systems.master;
    let mut left = master::begin(pool).await.unwrap();
    sqlx::query("SELECT saga_id FROM saga FOR UPDATE")
        .execute(&mut left)
        .await
        .unwrap();
    assert_eq!(world.open_transactions().await, 1);
    left.rollback().await.unwrap();

    let mut ids = Vec::new();
    for shape in [
        Shape::Plain,
        Shape::NoDebt,
        Shape::FromClient,
        Shape::ReceiverPays,
    ] {
        for _ in 0..5 {
            ids.push(shape.created(&world).await.0.id);
        }
    }
    join_all(ids.iter().map(|id| hang_up_until_completed(&world, *id))).await;
    // Shorter than the five seconds after which the server itself ends an idle transaction.
    until("nothing is left open", Duration::from_secs(3), async || {
        world.open_transactions().await == 0
    })
    .await;
    assert_invariants(&world).await;
}
