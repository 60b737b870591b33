//! What the log is kept from is away, dies, or is somewhere else.

use chrono::Duration;
use settlenet::app::{App, ledger_config};
use settlenet::domain::broker_move::MoveState;
use settlenet::domain::checkpoint::LeafKind;
use settlenet::runtime::Entropy;
use settlenet::services::checkpoints::{CheckpointError, Wanted};
use settlenet::services::moves::Destination;
use settlenet::stores::ledger::Ledger;
use sqlx::mysql::MySqlPool;

use super::{INTERVAL, completed, is_whole, passed, signed};
use crate::harness::{Child, Databases, MovedClock, SOON, World, private_stack, until};
use crate::moves::Stage;

async fn no_alert(world: &World) {
    let alerts = world.app.alerts.list(true, None, 10).await.unwrap();
    assert!(alerts.is_empty(), "{alerts:?}");
}

/// Without the payment manager's database nothing is signed, for what was signed last is not known;
/// without a books' server its books wait, and the rest goes on.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_away_is_waited_for() {
    let stack = private_stack().await;
    let databases = Databases::on(&stack).await;
    let client = Ledger::connect(&ledger_config(&stack.config())).unwrap();
    let clock = MovedClock::new();
    let world = World::on(databases, client, clock.clock(Duration::zero()), 0).await;
    let pass = async || {
        clock.advance(INTERVAL);
        world.app.checkpoints.pass().await
    };
    completed(&world).await;
    assert!(pass().await.unwrap().signed);
    let before = signed(&world).await;

    completed(&world).await;
    stack.order("kill postgres").await;
    let refused = pass().await;
    assert!(
        matches!(refused, Err(CheckpointError::Store(_))),
        "{refused:?}"
    );
    assert_eq!(signed(&world).await, before);
    stack.order("start postgres").await;
    until(
        "it is signed",
        SOON,
        async || matches!(pass().await, Ok(passed) if passed.signed),
    )
    .await;
    is_whole(&world).await;

    // Alpha's and Beta's books are on it.
    completed(&world).await;
    stack.order("kill mariadb-b").await;
    let alone = pass().await.unwrap();
    let of_the_request = alone.appended;
    assert!(alone.signed && of_the_request == 3, "{alone:?}");
    stack.order("start mariadb-b").await;
    until(
        "its heads are logged",
        SOON,
        async || matches!(pass().await, Ok(passed) if passed.appended == 2),
    )
    .await;
    is_whole(&world).await;
    no_alert(&world).await;
}

/// Whoever dies over the beginning of a log has begun it or not; said again, it is one.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_is_begun_once() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(Duration::zero())).await;
    let service = &world.app.checkpoints;
    let pass = async || {
        clock.advance(INTERVAL);
        service.pass().await.unwrap()
    };
    completed(&world).await;
    assert!(pass().await.signed);
    let reason = "the master's disk is lost";
    for (place, number) in [("log.new.before", 1), ("log.new.after", 2)] {
        let args = ["admin", "log", "begin", "--after", "1", "--reason", reason];
        let mut dies = Child::program(&world, &clock, &args, &format!("{place}=kill"));
        dies.killed(place).await;
        assert_eq!(service.log(None).await.unwrap().number, number, "{place}");
    }
    let begun = service.log(None).await.unwrap();
    for _ in 0..2 {
        let again = service.begin_new(1, reason, "US-1").await.unwrap();
        assert_eq!(again, begun);
        let other = service.begin_new(2, reason, "US-1").await;
        let expected = CheckpointError::NotTheLast { after: 2, last: 1 }.to_string();
        assert_eq!(other.unwrap_err().to_string(), expected);
    }
    completed(&world).await;
    assert!(pass().await.signed);
    is_whole(&world).await;
    // It is the last that was signed now, and the first is still not begun anew twice.
    let again = service.begin_new(1, reason, "US-1").await.unwrap();
    assert_eq!(again.number, begun.number);
    let further = service.begin_new(2, reason, "US-1").await.unwrap();
    assert_eq!(further.number, 3);
    no_alert(&world).await;
}

/// A book that has moved goes on in the log where it was, and what it has left speaks for nobody.
#[tokio::test(flavor = "multi_thread")]
async fn a_book_that_moves_goes_on_in_the_log() {
    let stage = Stage::new().await;
    let (world, clock) = (&stage.world, &stage.clock);
    let pass = async || {
        clock.advance(INTERVAL);
        world.app.checkpoints.pass().await.unwrap()
    };
    completed(world).await;
    pass().await;
    for to in [Destination::Shard(Some(1)), Destination::Own(None)] {
        stage.moved(world.alpha, to).await;
        assert_eq!(pass().await.appended, 0, "its head is the same");
        completed(world).await;
        pass().await;
        is_whole(world).await;
    }
    assert_eq!(pass().await.marked, 0, "nothing is looked at again");
    no_alert(world).await;

    // While the copy of a later head is not the book yet, the log has it from where it is at home.
    let begun = stage
        .begin(world.alpha, Destination::Shard(Some(1)))
        .await
        .unwrap();
    completed(world).await;
    pass().await;
    is_whole(world).await;
    stage.until(begun.id, MoveState::Retained).await;
    assert_eq!(pass().await.appended, 0);
    is_whole(world).await;
    no_alert(world).await;
}

fn with_batches_of_four(world: &World) -> App {
    let mut config = world.config.clone();
    config.checkpoints.batch = 4;
    let (ledger, clock) = (world.app.systems.ledger.clone(), world.clock.clone());
    App::on_ledger(&config, ledger, clock, Entropy::seeded(1)).unwrap()
}

/// More than a batch is gone on with at once, and not an interval later.
#[tokio::test(flavor = "multi_thread")]
async fn a_backlog_is_worked_off_at_once() {
    let world = World::new().await;
    let app = with_batches_of_four(&world);
    for _ in 0..6 {
        completed(&world).await;
    }
    world.clock.advance(INTERVAL);
    let first = app.checkpoints.pass().await.unwrap();
    assert!(first.signed && first.more, "{first:?}");
    let second = app.checkpoints.pass().await.unwrap();
    assert!(second.signed && !second.more, "{second:?}");
    assert_eq!(first.appended + second.appended, 2 + 6 * 3);
    is_whole(&world).await;
    let third = app.checkpoints.pass().await.unwrap();
    assert_eq!(third.marked, 0, "{third:?}");
}

/// Heads of books that are not at home can't be logged; however many there are, they keep no other
/// book out of the log.
#[tokio::test(flavor = "multi_thread")]
async fn strays_hold_up_nobody() {
    let world = World::new().await;
    let app = with_batches_of_four(&world);
    let shard = MySqlPool::connect(world.databases.shard_url().expose())
        .await
        .unwrap();
    sqlx::query(
        "INSERT INTO chain_head (broker_id, seq, tx_hash) SELECT seq, 1, REPEAT('x', 32) FROM seq_1_to_21",
    )
    .execute(&shard)
    .await
    .unwrap();
    let id = world.sent(world.gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    let head = world.app.books.head(world.gamma).await.unwrap();
    let wanted = Wanted::At(LeafKind::Book, world.gamma.to_string(), head.seq);
    for _ in 0..7 {
        world.clock.advance(INTERVAL);
        app.checkpoints.pass().await.unwrap();
    }
    let found = app
        .checkpoints
        .inclusion(None, None, &wanted)
        .await
        .unwrap();
    assert_eq!(found.leaf.hash, head.hash);
    let again = passed(&world).await;
    assert_eq!(again.appended, 0);
    no_alert(&world).await;
}
