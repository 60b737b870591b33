//! Servers that die under a move and do not come back, or not for a long time.

use settlenet::domain::broker_move::MoveState;
use settlenet::services::moves::{Destination, MoveError};

use super::Stage;
use crate::harness::{Child, SOON, assert_invariants, until};

const LOST: &str = "its disk is gone";

async fn abandoned(stage: &Stage, id: uuid::Uuid) {
    let given_up = stage.app().moves.abandon(id, LOST).await.expect("gives up");
    assert_eq!(given_up.state, MoveState::Abandoned);
    assert_eq!(given_up.abandoned_because.as_deref(), Some(LOST));
    let again = stage.app().moves.abandon(id, "again").await.unwrap();
    assert_eq!(again, given_up, "a repeat changes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_in_a_server_that_is_lost_is_given_up_and_the_broker_moves_elsewhere() {
    let (stack, stage) = Stage::that_may_fail().await;
    let delta = stage.world.delta;
    let to_b = || Destination::Own(Some("b".to_owned()));
    let id = stage.begin(delta, to_b()).await.expect("begins").id;
    let mut child = Child::acts(&stage.world, &stage.clock, "move", "move.caught_up=stop");
    child.stopped("move.caught_up").await;
    stack.order("kill mariadb-b").await;
    child.go_on();
    child.ended().await;
    let early = stage.app().moves.abandon(id, LOST).await;
    assert!(matches!(early, Err(MoveError::State { .. })), "{early:?}");
    stage.app().moves.cancel(id).await.unwrap();
    stage
        .in_spite_of_faults(id, MoveState::Cancelling, "it waits for the server")
        .await;
    stage.turn().await;
    assert_eq!(stage.get(id).await.state, MoveState::Cancelling);
    let elsewhere = Destination::Own(Some("a".to_owned()));
    let held_up = stage.begin(delta, elsewhere.clone()).await;
    assert!(matches!(held_up, Err(MoveError::GoesOn { .. })));
    let unsaid = stage.app().moves.abandon(id, " \n").await;
    assert!(matches!(unsaid, Err(MoveError::Reason(_))));

    abandoned(&stage, id).await;
    stage.moved(delta, elsewhere).await;
    stage.written_again(delta).await;
    let retried = stage.app().moves.retry(id).await;
    assert!(matches!(retried, Err(MoveError::State { .. })));

    // It comes back all the same, with the copy; the book goes there once more.
    stack.order("start mariadb-b").await;
    let begun = stage.begin(delta, to_b()).await.expect("begins").id;
    let arrived = stage
        .in_spite_of_faults(begun, MoveState::Retained, "it arrives")
        .await;
    stage.assert_proven(&arrived).await;
    stage.written_again(delta).await;
    assert_eq!(stage.get(id).await.state, MoveState::Cancelled);
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_is_lost_holds_up_nobody_and_is_deleted_should_it_come_back() {
    let (stack, stage) = Stage::that_may_fail().await;
    let alpha = stage.world.alpha;
    stage.furnish().await;
    let to = Destination::Shard(Some(1));
    let id = stage.begin(alpha, to).await.expect("begins").id;
    let mut child = Child::acts(&stage.world, &stage.clock, "move", "move.flip.after=stop");
    child.stopped("move.flip.after").await;
    stack.order("kill mariadb-b").await;
    child.go_on();
    child.ended().await;
    // The book arrives without what it came from.
    stage
        .in_spite_of_faults(id, MoveState::Retained, "it arrives")
        .await;
    stage.written_again(alpha).await;
    stage.app().moves.purge(id).await.unwrap();
    stage.turn().await;
    let waits = stage.get(id).await;
    assert_eq!(waits.state, MoveState::Retained);
    assert!(waits.fault.is_some(), "says what it waits for");

    abandoned(&stage, id).await;
    let gone = stage.app().moves.reverse(id, None).await;
    assert!(matches!(gone, Err(MoveError::State { .. })));
    let elsewhere = Destination::Own(Some("a".to_owned()));
    stage.moved(alpha, elsewhere).await;

    // Asked for while it is away, it is done once it is back, and no sooner.
    stage.app().moves.purge(id).await.unwrap();
    stage.turn().await;
    assert_eq!(stage.get(id).await.state, MoveState::Abandoned);
    stack.order("start mariadb-b").await;
    let cleared = stage
        .in_spite_of_faults(id, MoveState::Done, "it is deleted")
        .await;
    let (server, database) = (&cleared.from.server, &cleared.from.database);
    assert_eq!(stage.rows_in(server, database, alpha).await, 0);
    stage.written_again(alpha).await;
    until("all is whole", SOON, async || {
        crate::harness::breaks(&stage.world).await.is_empty()
    })
    .await;
}

/// What was given up is verified like all that a move has left, once its database is back.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_given_up_and_changed_is_kept() {
    let stage = Stage::new().await;
    let (world, alpha) = (&stage.world, stage.world.alpha);
    stage.furnish().await;
    stage.moved(alpha, Destination::Own(Some("b".into()))).await;
    let left = stage.moved(alpha, Destination::Shard(Some(1))).await;
    abandoned(&stage, left.id).await;
    let url = world.databases.url(&left.from.server, &left.from.database);
    let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
    let change = async |sql: &'static str| {
        let done = sqlx::query(sql).bind(alpha).execute(&pool).await;
        assert!(done.unwrap().rows_affected() > 0);
    };
    change("UPDATE reservation SET amount = amount + 1 WHERE broker_id = ?").await;
    // Nobody's word deletes it: not a move's that would go there,
    let to_b = Destination::Own(Some("b".into()));
    let back = stage.begin(alpha, to_b).await.expect("begins").id;
    let stuck = stage.until(back, MoveState::Stuck).await;
    assert!(stuck.fault.unwrap().contains(&left.id.to_string()));
    stage.app().moves.cancel(back).await.unwrap();
    stage.until(back, MoveState::Cancelled).await;
    // and not an admin's who did not know.
    stage.app().moves.purge(left.id).await.unwrap();
    let kept = stage.until(left.id, MoveState::Kept).await;
    assert!(kept.fault.unwrap().contains("its root is"));
    assert!(
        stage
            .rows_in(&left.from.server, &left.from.database, alpha)
            .await
            > 10
    );
    change("UPDATE reservation SET amount = amount - 1 WHERE broker_id = ?").await;
    stage.app().moves.retry(left.id).await.unwrap();
    stage.app().moves.purge(left.id).await.unwrap();
    stage.until(left.id, MoveState::Done).await;
    assert_invariants(world).await;
}

/// A server may come back without the database.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_back_without_the_database_is_as_good_as_deleted() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    let to_b = || Destination::Own(Some("b".to_owned()));
    for abandons in [true, false] {
        stage.moved(delta, to_b()).await;
        let left = stage.moved(delta, Destination::Shard(Some(1))).await;
        if abandons {
            abandoned(&stage, left.id).await;
        }
        let server = world.databases.url(&left.from.server, "information_schema");
        let server = sqlx::MySqlPool::connect(server.expose()).await.unwrap();
        let drop = format!("DROP DATABASE `{}`", left.from.database);
        sqlx::query(sqlx::AssertSqlSafe(drop))
            .execute(&server)
            .await
            .unwrap();
        stage.app().moves.purge(left.id).await.unwrap();
        stage.until(left.id, MoveState::Done).await;
    }
    stage.moved(delta, to_b()).await;
    assert_invariants(world).await;
}

/// A fence that a move can't have left stands before rows that may be a book.
#[tokio::test(flavor = "multi_thread")]
async fn what_looks_like_a_book_is_not_deleted() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    stage
        .moved(delta, Destination::Own(Some("b".to_owned())))
        .await;
    let left = stage.moved(delta, Destination::Shard(Some(1))).await;
    abandoned(&stage, left.id).await;
    let url = world.databases.url(&left.from.server, &left.from.database);
    let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
    let set = "UPDATE book_fence SET state = 'open', epoch = epoch - 2, move_id = NULL";
    sqlx::query(set).execute(&pool).await.unwrap();
    stage.app().moves.purge(left.id).await.unwrap();
    for _ in 0..3 {
        stage.turn().await;
        stage.clock.advance(super::PAST_THE_LEASE);
    }
    let waits = stage.get(left.id).await;
    assert_eq!(waits.state, MoveState::Abandoned);
    assert!(waits.fault.unwrap().contains("what was left"));
    assert!(
        stage
            .rows_in(&left.from.server, &left.from.database, delta)
            .await
            > 0
    );
}

/// Who stood still while a move was given up comes late, and leaves nothing in anybody's way.
#[tokio::test(flavor = "multi_thread")]
async fn who_begins_a_copy_that_was_given_up_takes_it_back() {
    let stage = Stage::new().await;
    let (world, delta) = (&stage.world, stage.world.delta);
    let to_b = || Destination::Own(Some("b".to_owned()));
    let ended = stage.begin(delta, to_b()).await.expect("begins");
    let mut child = Child::acts(world, &stage.clock, "move", "fence.before=1*stop");
    child.stopped("fence.before").await;
    stage.app().moves.cancel(ended.id).await.unwrap();
    stage.clock.advance(super::PAST_THE_LEASE);
    stage.until(ended.id, MoveState::Cancelled).await;
    child.go_on();
    child.ended().await;
    assert_eq!(stage.rows_in("b", &ended.to.database, delta).await, 0);
    // One that died before it could is taken over by whoever moves there next.
    let url = world.databases.url("b", &ended.to.database);
    let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
    let late = "INSERT INTO book_fence (broker_id, state, epoch, move_id, created_at)
                VALUES (?, 'closed', 1, ?, ?)";
    let late = sqlx::query(late)
        .bind(delta)
        .bind(ended.id)
        .bind(world.clock.now());
    late.execute(&pool).await.unwrap();
    stage.moved(delta, to_b()).await;
    stage.written_again(delta).await;
    assert_invariants(world).await;
}
