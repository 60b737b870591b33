//! Servers that die under a move, and books that are not worth moving.

use settlenet::app::ledger_config;
use settlenet::domain::broker::Placement;
use settlenet::domain::broker_move::MoveState;
use settlenet::services::moves::Destination;
use settlenet::stores::ledger::Ledger;
use settlenet::stores::master::alerts;
use sqlx::{AssertSqlSafe, MySqlPool};

use super::{PAST_THE_LEASE, Stage};
use crate::harness::{
    Child, Databases, MovedClock, SOON, World, assert_invariants, private_stack, until,
};

/// Places at which a server dies, with the mover standing there.
const PLACES: [&str; 7] = [
    "move.prepared",
    "move.caught_up",
    "move.fencing.after",
    "move.closed",
    "move.tail",
    "move.flip.after",
    "move.open.after",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_at_any_place_holds_the_move_up_and_loses_nothing() {
    let stack = private_stack().await;
    let databases = Databases::on(&stack).await;
    let client = Ledger::connect(&ledger_config(&stack.config())).unwrap();
    let clock = MovedClock::new();
    let world = World::on(databases, client, clock.clock(chrono::Duration::zero()), 0).await;
    let stage = Box::pin(Stage::on(world, clock)).await;
    let alpha = stage.world.alpha;
    stage.furnish().await;
    for (n, place) in PLACES.iter().enumerate() {
        // On one way the server is the source's, on the other the target's; `a` has the master too.
        for (to, server) in [
            (Destination::Shard(Some(1)), "mariadb-b"),
            (
                Destination::Own(Some("b".into())),
                if n % 2 == 0 { "mariadb-b" } else { "mariadb-a" },
            ),
        ] {
            let id = stage.begin(alpha, to).await.expect("begins").id;
            let failpoints = format!("{place}=stop");
            let mut child = Child::acts(&stage.world, &stage.clock, "move", &failpoints);
            child.stopped(place).await;
            stack.order(format!("kill {server}")).await;
            child.go_on();
            child.ended().await;
            stack.order(format!("start {server}")).await;
            let mut last = None;
            until(place, SOON, async || {
                stage.clock.advance(PAST_THE_LEASE);
                // Connections of before the death fail once each.
                drop(stage.app().move_engine.open_books().await);
                let Ok(claims) = stage.app().move_engine.claim(10).await else {
                    return false;
                };
                for claim in claims {
                    stage
                        .app()
                        .move_engine
                        .run(claim, &tokio_util::sync::CancellationToken::new())
                        .await;
                }
                let now = stage.app().moves.get(id).await;
                last = now.ok();
                last.as_ref()
                    .is_some_and(|now| now.state == MoveState::Retained)
            })
            .await;
            stage.assert_proven(last.as_ref().unwrap()).await;
            until("it is written again", SOON, async || {
                let account = settlenet::services::books::NewAccount {
                    owner_kind: settlenet::domain::account::OwnerKind::Partner,
                    owner_ref: "FO-1".to_owned(),
                    currency: stage.world.currency.clone(),
                };
                let (books, now) = (&stage.app().books, stage.world.clock.now());
                let opened = books
                    .open_account(alpha, &World::intention(), account, now)
                    .await;
                let Ok(account) = opened else {
                    return false;
                };
                stage.book(alpha, account.owner.id()).await.is_ok()
            })
            .await;
        }
    }
    until("all is whole", SOON, async || {
        crate::harness::breaks(&stage.world).await.is_empty()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_that_does_not_hold_is_never_closed_and_an_admin_is_told() {
    let stage = Stage::new().await;
    let world = &stage.world;
    stage.furnish().await;
    let account = stage.open(world.alpha, "FO-1").await;
    for (spoil, mend, why) in [
        (
            "UPDATE transaction SET amount = amount + 1 WHERE broker_id = ? AND seq = 2",
            "UPDATE transaction SET amount = amount - 1 WHERE broker_id = ? AND seq = 2",
            "tx_hash",
        ),
        (
            "UPDATE account SET balance = balance + 1 WHERE broker_id = ? AND owner_ref = 'FO-1'",
            "UPDATE account SET balance = balance - 1 WHERE broker_id = ? AND owner_ref = 'FO-1'",
            "but its entries come to",
        ),
        (
            "UPDATE account SET reserved = reserved + 1 WHERE broker_id = ? AND owner_ref = 'FO-1'",
            "UPDATE account SET reserved = reserved - 1 WHERE broker_id = ? AND owner_ref = 'FO-1'",
            "its open promises come to",
        ),
        (
            "UPDATE chain_head SET seq = seq + 1 WHERE broker_id = ?",
            "UPDATE chain_head SET seq = seq - 1 WHERE broker_id = ?",
            "the head says",
        ),
        (
            "UPDATE chain_head SET change_seq = change_seq - 3 WHERE broker_id = ?",
            "UPDATE chain_head SET change_seq = change_seq + 3 WHERE broker_id = ?",
            "the head's change_seq is",
        ),
        (
            "UPDATE chain_head SET feed_position = feed_position - 1 WHERE broker_id = ?",
            "UPDATE chain_head SET feed_position = feed_position + 1 WHERE broker_id = ?",
            "the head's feed_position is",
        ),
    ] {
        let Placement::Own { server, database } = stage.placement(world.alpha).await else {
            panic!("it has a database of its own");
        };
        let home = world.databases.url(&server, &database);
        let pool = MySqlPool::connect(home.expose()).await.unwrap();
        let run = |sql: &'static str| sqlx::query(sql).bind(world.alpha).execute(&pool);
        run(spoil).await.unwrap();
        let begun = stage
            .begin(world.alpha, Destination::Shard(Some(1)))
            .await
            .unwrap();
        let stuck = stage.until(begun.id, MoveState::Stuck).await;
        assert!(
            stuck.fault.as_ref().unwrap().contains(why),
            "{:?}",
            stuck.fault
        );
        assert_eq!(stuck.fencings, 0, "the book was never closed");
        let open = alerts::list(&world.app.systems.master, true, None, 10)
            .await
            .unwrap();
        let told = open
            .iter()
            .find(|alert| alert.subject == begun.id.to_string())
            .unwrap();
        assert!(told.message.contains(why), "{}", told.message);
        run(mend).await.unwrap();
        // Mended, it goes on where an admin says so, and the alert with it.
        stage.app().moves.retry(begun.id).await.unwrap();
        stage.until(begun.id, MoveState::Retained).await;
        let open = alerts::list(&world.app.systems.master, true, None, 10)
            .await
            .unwrap();
        assert!(
            open.iter()
                .all(|alert| alert.subject != begun.id.to_string())
        );
        stage
            .moved(world.alpha, Destination::Own(Some("b".into())))
            .await;
        stage.book(world.alpha, account).await.unwrap();
    }
    assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_left_and_then_changed_is_kept() {
    let stage = Stage::new().await;
    let world = &stage.world;
    stage.furnish().await;
    let arrived = stage.moved(world.alpha, Destination::Shard(Some(1))).await;
    let url = world
        .databases
        .url(&arrived.from.server, &arrived.from.database);
    let pool = MySqlPool::connect(url.expose()).await.unwrap();
    let change = |sign: char| {
        let sql = format!(
            "UPDATE reservation SET amount = amount {sign} 1 WHERE broker_id = {}",
            world.alpha
        );
        let pool = pool.clone();
        async move {
            let done = sqlx::query(AssertSqlSafe(sql))
                .execute(&pool)
                .await
                .unwrap();
            assert!(done.rows_affected() > 0);
        }
    };
    change('+').await;
    stage.app().moves.purge(arrived.id).await.unwrap();
    let kept = stage.until(arrived.id, MoveState::Kept).await;
    assert!(kept.fault.unwrap().contains("its root is"));
    assert!(
        stage
            .rows_in(&arrived.from.server, &arrived.from.database, world.alpha)
            .await
            > 10
    );
    // Nor does a move overwrite it: it gets stuck, and the broker works on.
    stage
        .moved(world.alpha, Destination::Own(Some("a".into())))
        .await;
    let first = stage.moved(world.alpha, Destination::Shard(Some(1))).await;
    let url = world
        .databases
        .url(&first.from.server, &first.from.database);
    let left = MySqlPool::connect(url.expose()).await.unwrap();
    let spoil = "UPDATE reservation SET amount = amount + 1 WHERE broker_id = ?";
    sqlx::query(spoil)
        .bind(world.alpha)
        .execute(&left)
        .await
        .unwrap();
    let over = stage
        .begin(world.alpha, Destination::Own(Some("a".into())))
        .await
        .unwrap();
    let stuck = stage.until(over.id, MoveState::Stuck).await;
    assert!(stuck.fault.unwrap().contains(&first.id.to_string()));
    let account = stage.open(world.alpha, "FO-1").await;
    stage.book(world.alpha, account).await.unwrap();
    stage.app().moves.cancel(over.id).await.unwrap();
    stage.until(over.id, MoveState::Cancelled).await;
    assert!(
        stage
            .rows_in(&first.from.server, &first.from.database, world.alpha)
            .await
            > 10
    );
    change('-').await;
    stage.app().moves.retry(arrived.id).await.unwrap();
    stage.app().moves.purge(arrived.id).await.unwrap();
    stage.until(arrived.id, MoveState::Done).await;
    assert_invariants(world).await;
}
