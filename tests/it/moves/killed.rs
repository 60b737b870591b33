//! The mover killed, or standing still, at every place.

use std::time::{Duration, Instant};

use settlenet::domain::broker::BrokerPlan;
use settlenet::domain::broker_move::MoveState;
use settlenet::services::moves::Destination;
use settlenet::services::plans::AskedBy;
use sqlx::Row as _;
use uuid::Uuid;

use super::{PAST_THE_LEASE, Stage};
use crate::harness::{Child, SOON, assert_invariants, until};
use crate::saga::told;

/// Places on the way there, in order; `N*` is the N-th arrival.
const THERE: [&str; 12] = [
    "move.prepared",
    "move.caught_up",
    "move.fencing.before",
    "move.fencing.after",
    "2*fence.before",
    "2*fence.after",
    "move.closed",
    "move.tail",
    "move.flip.before",
    "move.flip.after",
    "move.open.after",
    "move.left",
];

/// On the way back, after the tail was given up once.
const BACK: [&str; 4] = [
    "move.back.before",
    "move.back.after",
    "move.reopen.before",
    "move.reopen.after",
];

/// When what was left is deleted.
const PURGE: [&str; 3] = ["move.verified", "move.purged.table", "4*move.purged.table"];

/// A stage whose alpha has a book worth moving, and where it goes by turns.
async fn ready() -> Stage {
    let stage = Stage::new().await;
    stage.furnish().await;
    stage
}

async fn next(stage: &Stage, n: usize) -> Uuid {
    let to = match n % 3 {
        0 => Destination::Shard(Some(1)),
        1 => Destination::Own(None),
        _ => Destination::Shard(Some(stage.second)),
    };
    stage.begin(stage.world.alpha, to).await.expect("begins").id
}

/// Writes in the book, and gives how long that took.
async fn writes(stage: &Stage) -> Duration {
    let began = Instant::now();
    let account = stage.open(stage.world.alpha, "FO-1").await;
    stage
        .book(stage.world.alpha, account)
        .await
        .expect("is booked");
    began.elapsed()
}

async fn killed_at(stage: &Stage, n: usize, failpoints: &str, place: &str) {
    let id = next(stage, n).await;
    let mut child = Child::acts(&stage.world, &stage.clock, "move", failpoints);
    child.killed(place).await;
    stage.clock.advance(PAST_THE_LEASE);
    let arrived = stage.until(id, MoveState::Retained).await;
    stage.assert_proven(&arrived).await;
    writes(stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_the_way_there() {
    let stage = ready().await;
    for (n, place) in THERE.iter().enumerate() {
        killed_at(&stage, n, &told(place, "kill"), place).await;
    }
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_on_the_way_back() {
    let stage = ready().await;
    for (n, place) in BACK.iter().enumerate() {
        let failpoints = format!("move.tail=1*error;{}", told(place, "kill"));
        killed_at(&stage, n, &failpoints, place).await;
    }
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_what_was_left_is_deleted() {
    let stage = ready().await;
    for (n, place) in PURGE.iter().enumerate() {
        let id = next(&stage, n).await;
        let arrived = stage.until(id, MoveState::Retained).await;
        stage.app().moves.purge(id).await.unwrap();
        let mut child = Child::acts(&stage.world, &stage.clock, "move", &told(place, "kill"));
        child.killed(place).await;
        stage.clock.advance(PAST_THE_LEASE);
        stage.until(id, MoveState::Done).await;
        let from = &arrived.from;
        let left = stage
            .rows_in(&from.server, &from.database, stage.world.alpha)
            .await;
        assert_eq!(left, 0, "{place}");
        writes(&stage).await;
    }
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_it_is_cancelled() {
    let stage = ready().await;
    for (n, at) in ["move.caught_up", "move.cleared"].iter().enumerate() {
        let id = next(&stage, n).await;
        if *at == "move.cleared" {
            stage.app().moves.cancel(id).await.unwrap();
        }
        let mut child = Child::acts(&stage.world, &stage.clock, "move", &told(at, "kill"));
        child.killed(at).await;
        stage.app().moves.cancel(id).await.unwrap();
        stage.clock.advance(PAST_THE_LEASE);
        let ended = stage.until(id, MoveState::Cancelled).await;
        let left = stage
            .rows_in(&ended.to.server, &ended.to.database, stage.world.alpha)
            .await;
        assert_eq!(left, 0, "{at}");
        writes(&stage).await;
    }
    assert_invariants(&stage.world).await;
}

/// A process that stands still holds up nobody for longer than its lease; when it goes on, it
/// changes nothing.
async fn stopped_at(stage: &Stage, n: usize, failpoints: &str, place: &str) {
    let id = next(stage, n).await;
    let mut child = Child::acts(&stage.world, &stage.clock, "move", failpoints);
    child.stopped(place).await;
    // Whoever writes now is served once the lease is over and anybody has looked.
    let writer = async { writes(stage).await };
    let others = async {
        stage.clock.advance(PAST_THE_LEASE);
        let arrived = stage.until(id, MoveState::Retained).await;
        stage.assert_proven(&arrived).await;
    };
    let (took, ()) = futures::future::join(writer, others).await;
    assert!(
        took < Duration::from_secs(4),
        "{place}: a writer waited {took:?}"
    );
    assert!(child.is_stopped(), "{place}");
    let before = sums(stage).await;
    child.go_on();
    child.ended().await;
    assert_eq!(sums(stage).await, before, "{place}: it changed something");
    writes(stage).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_on_the_way_there() {
    let stage = ready().await;
    for (n, place) in THERE.iter().enumerate() {
        stopped_at(&stage, n, &told(place, "stop"), place).await;
    }
    assert_invariants(&stage.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_on_the_way_back() {
    let stage = ready().await;
    for (n, place) in BACK.iter().enumerate() {
        let failpoints = format!("move.tail=1*error;{}", told(place, "stop"));
        stopped_at(&stage, n, &failpoints, place).await;
    }
    assert_invariants(&stage.world).await;
}

/// A book that somebody has closed waits behind no other move, and for no clock: one who looks at
/// it for as long as its lease opens it.
#[tokio::test(flavor = "multi_thread")]
async fn a_closed_book_is_opened_whatever_else_is_to_be_moved() {
    let stage = ready().await;
    let id = next(&stage, 0).await;
    let failpoints = told("move.closed", "kill");
    let mut child = Child::acts(&stage.world, &stage.clock, "move", &failpoints);
    child.killed("move.closed").await;
    let to = Destination::Shard(Some(stage.second));
    let waiting = stage.begin(stage.world.gamma, to).await.unwrap();
    let began = Instant::now();
    until("it is open", SOON, async || {
        stage.app().move_engine.open_books().await.unwrap();
        !stage.get(id).await.state.is_closed()
    })
    .await;
    assert!(
        began.elapsed() < Duration::from_secs(4),
        "{:?}",
        began.elapsed()
    );
    assert!(writes(&stage).await < Duration::from_secs(1));
    assert_eq!(stage.get(waiting.id).await.state, MoveState::Preparing);
    stage.until(id, MoveState::Retained).await;
    stage.until(waiting.id, MoveState::Retained).await;
    assert_invariants(&stage.world).await;
}

/// What is cancelled before it is decided does not arrive.
#[tokio::test(flavor = "multi_thread")]
async fn cancelled_in_the_last_moment() {
    let stage = ready().await;
    let before = stage.placement(stage.world.alpha).await;
    let id = next(&stage, 0).await;
    let failpoints = told("move.flip.before", "stop");
    let mut child = Child::acts(&stage.world, &stage.clock, "move", &failpoints);
    child.stopped("move.flip.before").await;
    stage.app().moves.cancel(id).await.unwrap();
    child.go_on();
    child.ended().await;
    assert_eq!(stage.get(id).await.state, MoveState::Cancelled);
    assert_eq!(stage.placement(stage.world.alpha).await, before);
    writes(&stage).await;
    // So it is with a plan that changes its mind.
    let set = "UPDATE broker SET plan = 'pro' WHERE broker_id = ?";
    let master = &stage.app().systems.master;
    sqlx::query(set)
        .bind(stage.world.alpha)
        .execute(master)
        .await
        .unwrap();
    // Asked again where the book was closed for longer than a caller waits.
    let put = async |plan| {
        until("the plan changes", SOON, async || {
            let now = stage.world.clock.now();
            let plans = &stage.app().plans;
            let changed = plans.change(stage.world.alpha, plan, AskedBy::Platform, now);
            Box::pin(changed).await.is_ok()
        })
        .await;
    };
    put(BrokerPlan::Growth).await;
    stage.app().moves.begin_wanted().await.unwrap();
    let mut child = Child::acts(&stage.world, &stage.clock, "move", &failpoints);
    child.stopped("move.flip.before").await;
    // The plan is recorded while the book is closed, and goes on once it is open.
    let id = stage.app().moves.list(None, None, 1).await.unwrap()[0].id;
    let meanwhile = async {
        until("the move is given up", SOON, async || {
            stage.get(id).await.cancel_wanted
        })
        .await;
        child.go_on();
        child.ended().await;
    };
    futures::future::join(put(BrokerPlan::Pro), meanwhile).await;
    stage.app().moves.begin_wanted().await.unwrap();
    stage.turn().await;
    assert_eq!(
        stage.placement(stage.world.alpha).await,
        before,
        "pro has its own"
    );
    assert_invariants(&stage.world).await;
}

/// A checksum of every table with a book's or a move's rows, on both servers.
async fn sums(stage: &Stage) -> Vec<(String, i64)> {
    let mut sums = Vec::new();
    let databases = &stage.world.databases;
    for server in ["a", "b"] {
        let url = databases.url(server, "information_schema");
        let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT CAST(CONCAT('`', table_schema, '`.`', table_name, '`') AS CHAR) FROM tables \
             WHERE table_schema LIKE ? ORDER BY 1",
        )
        .bind(format!("{}%", databases.prefix.replace('_', "\\_")))
        .fetch_all(&pool)
        .await
        .unwrap();
        assert!(tables.len() > 10);
        for table in tables {
            let sql = sqlx::AssertSqlSafe(format!("CHECKSUM TABLE {table} EXTENDED"));
            let row = sqlx::query(sql).fetch_one(&pool).await.unwrap();
            sums.push((table, row.get::<i64, _>(1)));
        }
        pool.close().await;
    }
    sums
}
