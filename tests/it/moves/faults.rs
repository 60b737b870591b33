//! Servers that die under a move, and books that are not worth moving.

use std::time::{Duration, Instant};

use settlenet::domain::broker::Placement;
use settlenet::domain::broker_move::MoveState;
use settlenet::services::moves::Destination;
use settlenet::stores::master::alerts;
use sqlx::{AssertSqlSafe, MySqlPool};

use super::{PAST_THE_LEASE, Stage};
use crate::harness::{Child, PrivateStack, SOON, assert_invariants, until};
use crate::saga::told;

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
    let (stack, stage) = Stage::that_may_fail().await;
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
            let arrived = stage.in_spite_of_faults(id, MoveState::Retained, place);
            stage.assert_proven(&arrived.await).await;
            stage.written_again(alpha).await;
        }
    }
    until("all is whole", SOON, async || {
        crate::harness::breaks(&stage.world).await.is_empty()
    })
    .await;
}

/// The source's server while its book is opened again, after a try that came to nothing.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_a_try_is_taken_back_opens_the_book_once_it_is_there() {
    let (stack, stage) = Stage::that_may_fail().await;
    let alpha = stage.world.alpha;
    stage.furnish().await;
    for place in ["move.back.before", "move.back.after", "move.reopen.after"] {
        let to = Destination::Shard(Some(1));
        let id = stage.begin(alpha, to).await.expect("begins").id;
        let failpoints = format!("move.tail=1*error;{place}=stop");
        let mut child = Child::acts(&stage.world, &stage.clock, "move", &failpoints);
        child.stopped(place).await;
        stack.order("kill mariadb-b").await;
        child.go_on();
        child.ended().await;
        stack.order("start mariadb-b").await;
        let arrived = stage.in_spite_of_faults(id, MoveState::Retained, place);
        stage.assert_proven(&arrived.await).await;
        stage.written_again(alpha).await;
        stage.moved(alpha, Destination::Own(Some("b".into()))).await;
    }
    until("all is whole", SOON, async || {
        crate::harness::breaks(&stage.world).await.is_empty()
    })
    .await;
}

/// The source's server while what was left is deleted, the target's while a copy is.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_while_something_is_deleted_holds_that_up() {
    let (stack, stage) = Stage::that_may_fail().await;
    let (alpha, delta) = (stage.world.alpha, stage.world.delta);
    stage.furnish().await;
    let to_b = || Destination::Own(Some("b".into()));
    for place in ["move.verified", "3*move.purged.table"] {
        let arrived = stage.moved(alpha, Destination::Shard(Some(1))).await;
        stage.app().moves.purge(arrived.id).await.unwrap();
        dies_at(&stack, &stage, place).await;
        let done = stage.in_spite_of_faults(arrived.id, MoveState::Done, place);
        let from = done.await.from;
        assert_eq!(stage.rows_in(&from.server, &from.database, alpha).await, 0);
        stage.moved(alpha, to_b()).await;
    }
    let begun = stage.begin(delta, to_b()).await.expect("begins");
    let mut child = Child::acts(&stage.world, &stage.clock, "move", "move.caught_up=kill");
    child.killed("move.caught_up").await;
    stage.app().moves.cancel(begun.id).await.unwrap();
    stage.clock.advance(PAST_THE_LEASE);
    dies_at(&stack, &stage, "move.cleared").await;
    let cancelled = stage.in_spite_of_faults(begun.id, MoveState::Cancelled, "move.cleared");
    let to = cancelled.await.to;
    assert_eq!(stage.rows_in(&to.server, &to.database, delta).await, 0);
    stage.written_again(delta).await;
    until("all is whole", SOON, async || {
        crate::harness::breaks(&stage.world).await.is_empty()
    })
    .await;
}

/// Server `b` dies while a mover stands at a place, and comes back once that has failed.
async fn dies_at(stack: &PrivateStack, stage: &Stage, place: &str) {
    let mut child = Child::acts(&stage.world, &stage.clock, "move", &told(place, "stop"));
    child.stopped(place).await;
    stack.order("kill mariadb-b").await;
    child.go_on();
    child.ended().await;
    stack.order("start mariadb-b").await;
}

/// Nothing flips to a server that does not answer: the book opens where it was, and is written in
/// before that server is back.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_fails_while_the_book_is_closed_opens_it_where_it_was() {
    let (stack, stage) = Stage::that_may_fail().await;
    let delta = stage.world.delta;
    for (down, up) in [("kill", "start"), ("pause", "resume")] {
        let to = Destination::Own(Some("b".into()));
        let id = stage.begin(delta, to).await.expect("begins").id;
        let mut child = Child::acts(&stage.world, &stage.clock, "move", "move.closed=stop");
        child.stopped("move.closed").await;
        stack.order(format!("{down} mariadb-b")).await;
        let since = Instant::now();
        child.go_on();
        stage.written_again(delta).await;
        // The lease of a closed book, and the time to say so.
        assert!(
            since.elapsed() < Duration::from_secs(5),
            "{down}: {:?}",
            since.elapsed()
        );
        assert_eq!(stage.get(id).await.flipped_at, None, "{down}");
        stack.order(format!("{up} mariadb-b")).await;
        child.ended().await;
        let arrived = stage.in_spite_of_faults(id, MoveState::Retained, down);
        stage.assert_proven(&arrived.await).await;
        stage.moved(delta, Destination::Shard(Some(1))).await;
    }
    assert_invariants(&stage.world).await;
}

/// A release that comes while a book is copied finds its target as it was before the release.
#[tokio::test(flavor = "multi_thread")]
async fn a_target_that_lacks_a_migration_gets_it_before_the_book_comes() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    let to = Destination::Own(Some("b".into()));
    let begun = stage.begin(delta, to).await.expect("begins");
    let mut child = Child::acts(world, &stage.clock, "move", "move.caught_up=kill");
    child.killed("move.caught_up").await;
    let url = world.databases.url("b", &begun.to.database);
    let target = MySqlPool::connect(url.expose()).await.unwrap();
    for older in [
        "DROP TABLE book_limit",
        "DELETE FROM _sqlx_migrations WHERE version = 21",
    ] {
        sqlx::query(older).execute(&target).await.unwrap();
    }
    stage.clock.advance(PAST_THE_LEASE);
    let arrived = stage.until(begun.id, MoveState::Retained).await;
    stage.assert_proven(&arrived).await;
    stage.written_again(delta).await;
    assert_invariants(world).await;
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
