//! While brokers work.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use settlenet::domain::broker::{BrokerMode, BrokerPlan, Placement};
use settlenet::domain::broker_move::{MoveCause, MoveState};
use settlenet::domain::request::RequestStatus;
use settlenet::services::moves::{Destination, MoveError};
use settlenet::services::plans::AskedBy;
use settlenet::stores::master::idempotency::Intention;
use uuid::Uuid;

use super::Stage;
use crate::harness::{SOON, World, assert_invariants, until};

#[tokio::test(flavor = "multi_thread")]
async fn every_way_and_back_with_requests_in_flight() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let waiting = stage.furnish().await;
    let own = world.databases.tenants[0].clone();

    // FULL to SOLO; what was accepted before completes in the new place.
    let first = stage.moved(world.alpha, Destination::Shard(None)).await;
    assert_eq!(
        stage.placement(world.alpha).await,
        Placement::Shard(stage.second)
    );
    assert!(first.pause_us.unwrap() > 0 && first.fencings >= 1);
    let rows: u64 = first
        .proof
        .as_ref()
        .unwrap()
        .rows
        .as_object()
        .unwrap()
        .values()
        .map(|rows| rows.as_str().unwrap().parse::<u64>().unwrap())
        .sum();
    assert!(rows > 30, "{rows}");
    assert_eq!(first.rows_copied, rows);
    world.confirm(waiting[0]).await.unwrap();
    assert_eq!(
        world.request(waiting[0]).await.status,
        RequestStatus::Completed
    );
    assert_invariants(world).await;

    // Shard to shard, then SOLO to FULL.
    stage.moved(world.alpha, Destination::Shard(Some(1))).await;
    world.confirm(waiting[1]).await.unwrap();
    let third = stage
        .moved(world.alpha, Destination::Own(Some("a".into())))
        .await;
    assert_invariants(world).await;
    // Server to server.
    stage.moved(world.alpha, Destination::Own(None)).await;
    assert!(matches!(stage.placement(world.alpha).await,
        Placement::Own { server, .. } if server == "b"));
    // And back to where it was: what it left there is verified and makes room.
    let back = stage
        .app()
        .moves
        .reverse(back_of(&stage).await, None)
        .await
        .unwrap();
    stage.until(back.id, MoveState::Retained).await;
    assert_eq!(stage.get(back.id).await.to, third.to);
    let account = stage.open(world.alpha, "FO-2").await;
    stage.book(world.alpha, account).await.unwrap();
    assert_invariants(world).await;

    // Retention ends: what was left is verified and deleted, fence and all.
    assert!(stage.rows_in("b", &own, world.alpha).await > 30);
    let now = stage.app().moves.purge(first.id).await.unwrap();
    assert_eq!(now.state, MoveState::Retained);
    stage.until(first.id, MoveState::Done).await;
    assert_eq!(stage.rows_in("b", &own, world.alpha).await, 0);
    let gone = stage.app().moves.reverse(first.id, None).await;
    assert!(matches!(gone, Err(MoveError::State { .. })));
    assert_invariants(world).await;
}

/// The move that was the last to arrive.
async fn back_of(stage: &Stage) -> Uuid {
    stage
        .app()
        .moves
        .list(Some(stage.world.alpha), None, 1)
        .await
        .unwrap()[0]
        .id
}

#[tokio::test(flavor = "multi_thread")]
async fn no_reader_and_no_writer_is_told_of_a_move() {
    let stage = Arc::new(Stage::new().await);
    let (gamma, delta) = (stage.world.gamma, stage.world.delta);
    let account = stage.open(gamma, "FO-1").await;
    let beside = stage.open(delta, "FO-1").await;
    let stop = Arc::new(AtomicBool::new(false));
    let booked = Arc::new(AtomicUsize::new(0));
    let mut work = tokio::task::JoinSet::new();
    for worker in 0..12 {
        let (stage, stop, booked) = (Arc::clone(&stage), Arc::clone(&stop), Arc::clone(&booked));
        work.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                match worker % 4 {
                    0 | 1 => {
                        stage.book(gamma, account).await.expect("is booked");
                        booked.fetch_add(1, Ordering::Relaxed);
                    }
                    2 => {
                        let id = stage.world.sent(gamma, delta).await;
                        stage.world.confirm(id).await.expect("is confirmed");
                        stage.book(delta, beside).await.expect("is booked");
                    }
                    _ => {
                        let books = &stage.app().books;
                        let at = books.account(gamma, account).await.expect("reads");
                        let page = books.transactions(gamma, Some(account), None, 1).await;
                        let page = page.expect("reads");
                        let newest = page.first().map_or(0, |entry| entry.entry.balance);
                        assert!(newest >= at.balance.balance, "a reader went back in time");
                    }
                }
            }
        });
    }
    for to in [
        Destination::Own(None),
        Destination::Shard(Some(1)),
        Destination::Shard(Some(stage.second)),
        Destination::Own(Some("a".into())),
    ] {
        // Some book to move, each time.
        let enough = booked.load(Ordering::Relaxed) + 40;
        until("there is a book to move", SOON, async || {
            booked.load(Ordering::Relaxed) >= enough
        })
        .await;
        stage.moved(gamma, to).await;
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(done) = work.join_next().await {
        done.expect("no reader and no writer sees an error");
    }
    let books = &stage.app().books;
    let at = books.account(gamma, account).await.unwrap();
    let booked = i64::try_from(booked.load(Ordering::Relaxed)).unwrap();
    assert_eq!(at.balance.balance, booked * 100, "each once");
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_that_is_cancelled_leaves_nothing() {
    let stage = Stage::new().await;
    let world = &stage.world;
    stage.furnish().await;
    let (meant, shard) = (World::intention(), Destination::Shard(Some(1)));
    let moves = &stage.app().moves;
    let begun = moves
        .start(world.alpha, shard.clone(), Some(&meant))
        .await
        .unwrap();
    let goes_on = stage.begin(world.alpha, Destination::Shard(Some(1))).await;
    assert!(matches!(goes_on, Err(MoveError::GoesOn { id }) if id == begun.id));
    let same = moves.start(world.alpha, shard, Some(&meant)).await;
    assert_eq!(same.unwrap().id, begun.id, "the same intention");
    let other = Intention {
        fingerprint: settlenet::domain::canonical::Hash::of_bytes(b"another"),
        ..meant
    };
    let other = moves
        .start(world.alpha, Destination::Own(None), Some(&other))
        .await;
    assert!(matches!(other, Err(MoveError::KeyReused)));
    stage.app().moves.cancel(begun.id).await.unwrap();
    stage.until(begun.id, MoveState::Cancelled).await;
    let shard = world.databases.shard.clone();
    assert_eq!(stage.rows_in("a", &shard, world.alpha).await, 0);
    // Again is the same, and the next one may come.
    assert_eq!(
        stage.app().moves.cancel(begun.id).await.unwrap().state,
        MoveState::Cancelled
    );
    let arrived = stage.moved(world.alpha, Destination::Shard(Some(1))).await;
    let late = stage.app().moves.cancel(arrived.id).await;
    assert!(matches!(late, Err(MoveError::State { .. })));
    assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn where_a_book_can_not_go() {
    let stage = Stage::new().await;
    let (alpha, gamma) = (stage.world.alpha, stage.world.gamma);
    let shard = |id| Destination::Shard(Some(id));
    let own = |name: &str| Destination::Own(Some(name.to_owned()));
    let told = |told: Result<_, MoveError>| told.map(drop).unwrap_err();
    assert!(matches!(
        told(stage.begin(gamma, shard(1)).await),
        MoveError::ThereAlready { .. }
    ));
    assert!(matches!(
        told(stage.begin(gamma, shard(99)).await),
        MoveError::NoSuchShard { id: 99 }
    ));
    assert!(matches!(
        told(stage.begin(gamma, own("c")).await),
        MoveError::NoSuchServer { .. }
    ));
    assert!(matches!(
        told(stage.begin(1, shard(1)).await),
        MoveError::NoSuchBroker { id: 1 }
    ));
    let places = &stage.app().provisioning;
    let now = stage.world.clock.now();
    // No room: what is there already counts.
    places.register_server("a", 0, None, now).await.unwrap();
    assert!(matches!(
        told(stage.begin(alpha, own("a")).await),
        MoveError::ServerFull { .. }
    ));
    assert!(matches!(
        told(stage.begin(alpha, Destination::Own(None)).await),
        MoveError::NoServer
    ));
    let unknown = Uuid::new_v4();
    assert!(matches!(
        told(stage.app().moves.cancel(unknown).await),
        MoveError::NoSuchMove { .. }
    ));
    assert!(
        stage
            .app()
            .moves
            .list(None, None, 10)
            .await
            .unwrap()
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn room_is_kept_for_what_is_coming() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let now = world.clock.now();
    let places = &stage.app().provisioning;
    let database = format!("{}small", world.databases.prefix);
    let small = places
        .create_shard("a", &database, 1, None, now)
        .await
        .unwrap()
        .shard_id;
    stage
        .begin(world.gamma, Destination::Shard(Some(small)))
        .await
        .unwrap();
    let second = stage
        .begin(world.delta, Destination::Shard(Some(small)))
        .await;
    assert!(matches!(second, Err(MoveError::ShardFull { id }) if id == small));
    // Nor is a shard taken away from under it.
    assert!(places.remove_shard(&small.to_string()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_moves_the_book_by_itself() {
    let stage = Stage::new().await;
    let (world, app) = (&stage.world, stage.app());
    let gamma = world.gamma;
    // As the first of its people would find it: a SOLO broker on starter.
    let set = "UPDATE broker SET plan = 'starter' WHERE broker_id = ?";
    sqlx::query(set)
        .bind(gamma)
        .execute(&app.systems.master)
        .await
        .unwrap();
    let account = stage.open(gamma, "FO-1").await;
    stage.book(gamma, account).await.unwrap();
    let put = async |plan| {
        let changed = app
            .plans
            .change(gamma, plan, AskedBy::Platform, world.clock.now());
        Box::pin(changed).await.unwrap()
    };
    let moves = async || app.moves.list(Some(gamma), None, 10).await.unwrap();

    let broker = put(BrokerPlan::Pro).await;
    assert_eq!(
        (broker.plan, broker.mode),
        (BrokerPlan::Pro, BrokerMode::Solo)
    );
    for _ in 0..2 {
        app.moves.begin_wanted().await.unwrap();
    }
    let begun = moves().await;
    assert_eq!((begun.len(), begun[0].cause), (1, MoveCause::Plan));
    // Down again before it has arrived: that move is given up, and no other is needed.
    put(BrokerPlan::Growth).await;
    stage.until(begun[0].id, MoveState::Cancelled).await;
    app.moves.begin_wanted().await.unwrap();
    assert_eq!(moves().await.len(), 1);

    // Without room it is told of, and begins when there is some.
    let now = world.clock.now();
    for (server, capacity) in [("a", 0), ("b", 0)] {
        let put = app
            .provisioning
            .register_server(server, capacity, None, now);
        put.await.unwrap();
    }
    put(BrokerPlan::Pro).await;
    app.moves.begin_wanted().await.unwrap();
    let alerts = async || app.alerts.list(true, None, 10).await.unwrap();
    assert_eq!(alerts().await[0].kind, "no_room");
    let put_back = app.provisioning.register_server("b", 100, None, now);
    put_back.await.unwrap();
    app.moves.begin_wanted().await.unwrap();
    assert!(alerts().await.is_empty());
    let up = moves().await[0].id;
    stage.until(up, MoveState::Retained).await;
    assert!(matches!(
        stage.placement(gamma).await,
        Placement::Own { .. }
    ));
    app.moves.begin_wanted().await.unwrap();
    assert_eq!(moves().await.len(), 2);

    // An admin who moves it elsewhere all the same is not overruled, nor one who gives it up.
    stage.moved(gamma, Destination::Shard(Some(1))).await;
    app.moves.begin_wanted().await.unwrap();
    assert_eq!(moves().await.len(), 3);
    put(BrokerPlan::Starter).await;
    put(BrokerPlan::Pro).await;
    app.moves.begin_wanted().await.unwrap();
    let given_up = moves().await[0].id;
    app.moves.cancel(given_up).await.unwrap();
    stage.until(given_up, MoveState::Cancelled).await;
    app.moves.begin_wanted().await.unwrap();
    assert_eq!(moves().await.len(), 4);
    assert_invariants(world).await;
}

/// What a move has left keeps its place for as long as it can be reversed.
#[tokio::test(flavor = "multi_thread")]
async fn there_is_always_room_to_go_back() {
    let stage = Stage::new().await;
    let world = &stage.world;
    let places = &stage.app().provisioning;
    let to_b = || Destination::Own(Some("b".to_owned()));
    stage.moved(world.delta, to_b()).await;
    let left = stage.moved(world.delta, Destination::Shard(Some(1))).await;
    let servers = places.servers().await.unwrap();
    let b = servers.iter().find(|server| server.name == "b").unwrap();
    let full = u32::try_from(b.held).unwrap();
    let put = places.register_server("b", full, None, world.clock.now());
    put.await.unwrap();
    let refused = stage.begin(world.gamma, to_b()).await;
    assert!(matches!(refused, Err(MoveError::ServerFull { .. })));
    let back = stage.app().moves.reverse(left.id, None).await.unwrap();
    let arrived = stage.until(back.id, MoveState::Retained).await;
    stage.assert_proven(&arrived).await;
    assert_eq!(arrived.to, left.from);
    assert_eq!(stage.get(left.id).await.state, MoveState::Done);
}
