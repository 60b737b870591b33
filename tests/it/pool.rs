//! Connections: what is never handed on, and what a restart of a server does to them.

use std::time::Duration;

use settlenet::stores::master::{self, placement};
use settlenet::stores::migrate::{Kind, migrate};
use settlenet::stores::pool::{Pool, PoolBounds};

use crate::harness::{Databases, SOON, until};

/// A pool to a database of this test's own.
async fn pool(bounds: PoolBounds) -> (Databases, Pool) {
    let databases = Databases::new().await;
    let url = databases.master_url();
    migrate(url, Kind::Master).await.unwrap();
    let pool = Pool::new(url.expose().parse().unwrap(), bounds);
    (databases, pool)
}

async fn connection_id(pool: &Pool) -> u64 {
    let id: i64 = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)")
        .fetch_one(pool)
        .await
        .unwrap();
    u64::try_from(id).unwrap()
}

#[tokio::test]
async fn the_connection_that_was_used_last_is_used_again() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let first = connection_id(&pool).await;
    for _ in 0..5 {
        assert_eq!(connection_id(&pool).await, first);
    }
    assert_eq!(pool.in_use(), (1, 1));
}

#[tokio::test]
async fn connections_that_a_server_has_closed_meanwhile_fail_nobody() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.acquire().await.unwrap());
    }
    held.truncate(1);
    let mut killer = held.remove(0);
    let mine: i64 = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)")
        .fetch_one(&mut killer)
        .await
        .unwrap();
    let others: Vec<i64> = sqlx::query_scalar(
        "SELECT CAST(id AS SIGNED) FROM information_schema.processlist
         WHERE db = DATABASE() AND id <> ?",
    )
    .bind(mine)
    .fetch_all(&mut killer)
    .await
    .unwrap();
    assert_eq!(others.len(), 3);
    for id in others {
        let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
        sqlx::raw_sql(kill).execute(&mut killer).await.unwrap();
    }
    // Longer than a connection is trusted without being asked.
    tokio::time::sleep(Duration::from_millis(600)).await;
    let mut used = Vec::new();
    for _ in 0..4 {
        let mut connection = pool.acquire().await.unwrap();
        let one: i64 = sqlx::query_scalar("SELECT 1")
            .fetch_one(&mut connection)
            .await
            .expect("a dead connection is not handed out");
        assert_eq!(one, 1);
        // Not given back, so that the next one is another.
        used.push(connection);
    }
}

#[tokio::test]
async fn one_broken_connection_makes_the_others_be_asked_before_use() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(pool.acquire().await.unwrap());
    }
    let mut killer = held.remove(0);
    for connection in &mut held {
        let id: i64 = sqlx::query_scalar("SELECT CAST(CONNECTION_ID() AS SIGNED)")
            .fetch_one(connection)
            .await
            .unwrap();
        let kill = sqlx::AssertSqlSafe(format!("KILL {id}"));
        sqlx::raw_sql(kill).execute(&mut killer).await.unwrap();
    }
    drop(held);
    let mut failed = 0;
    let mut used = Vec::new();
    for _ in 0..4 {
        let mut connection = pool.acquire().await.unwrap();
        let answer: Result<i64, _> = sqlx::query_scalar("SELECT 1")
            .fetch_one(&mut connection)
            .await;
        failed += usize::from(answer.is_err());
        used.push(connection);
    }
    assert!(failed <= 1, "{failed} of 4 met a dead connection");
}

#[tokio::test]
async fn a_session_that_holds_a_lock_by_name_ends_with_its_user() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let kept = placement::keep(&pool, "a", "some_database").await.unwrap();
    let kept = kept.expect("nobody else has it");
    // As a task that panics leaves it.
    drop(kept);
    let again = placement::keep(&pool, "a", "some_database").await.unwrap();
    assert!(again.is_some());
}

#[tokio::test]
async fn a_connection_left_in_the_middle_of_a_statement_is_not_handed_on() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let first = connection_id(&pool).await;
    let slow = sqlx::query("SELECT SLEEP(3)").fetch_all(&pool);
    let left = tokio::time::timeout(Duration::from_millis(100), slow).await;
    assert!(left.is_err());
    assert_ne!(connection_id(&pool).await, first);
}

#[tokio::test]
async fn a_statement_without_an_answer_is_given_up() {
    let (_databases, pool) = pool(PoolBounds {
        statement_timeout: Duration::from_millis(200),
        ..PoolBounds::default()
    })
    .await;
    let slow = sqlx::query("SELECT SLEEP(3)").fetch_all(&pool).await;
    assert!(matches!(slow, Err(sqlx::Error::Io(_))), "{slow:?}");
    connection_id(&pool).await;
    let patient = pool.patient();
    sqlx::query("SELECT SLEEP(0.5)")
        .fetch_all(&patient)
        .await
        .expect("who works on whole tables waits");
}

#[tokio::test]
async fn a_transaction_that_is_left_is_rolled_back() {
    let (_databases, pool) = pool(PoolBounds::default()).await;
    let count = async || -> i64 {
        sqlx::query_scalar("SELECT COUNT(*) FROM feed_event")
            .fetch_one(&pool)
            .await
            .unwrap()
    };
    let insert = "INSERT INTO feed_event (broker_id, kind, subject, payload, created_at)
                  VALUES (1, 'k', 's', '{}', '2026-01-01')";
    let mut left = master::begin(&pool).await.unwrap();
    sqlx::query(insert).execute(&mut left).await.unwrap();
    drop(left);
    until("it is rolled back", SOON, async || {
        let open: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.innodb_trx t
             JOIN information_schema.processlist p ON p.id = t.trx_mysql_thread_id
             WHERE p.db = DATABASE() AND p.id <> CONNECTION_ID()",
        )
        .fetch_one(&pool)
        .await
        .unwrap();
        open == 0
    })
    .await;
    assert_eq!(count().await, 0);

    let mut kept = master::begin(&pool).await.unwrap();
    sqlx::query(insert).execute(&mut kept).await.unwrap();
    master::commit(kept).await.unwrap();
    assert_eq!(count().await, 1);
}
