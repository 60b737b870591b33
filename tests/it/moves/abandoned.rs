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
