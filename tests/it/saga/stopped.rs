//! Processes stopped between any two side effects, past their lease; others finish meanwhile,
//! and when the stopped one goes on, it changes nothing.

use std::time::{Duration, Instant};

use settlenet::domain::request::RequestStatus;
use sqlx::{AssertSqlSafe, Row as _};

use super::killed::{
    ACCEPT, ACCEPT_BACK, Asked, CONFIRM, CONFIRM_BACK, CONFIRM_NO_DEBT, CONFIRM_NO_DEBT_BACK, Case,
    RELEASE, told,
};
use super::shapes::Shape;
use crate::harness::{Child, SOON, World, assert_invariants, until};

/// Within this another settlement on the same books ends, even while a process is stopped inside
/// a transaction: the server ends that one after 5 s, and a wait for a lock lasts 3 s at most.
const NOT_STALLED: Duration = Duration::from_secs(12);

impl Case {
    async fn stopped_at(&self, place: &str) {
        let world = &self.world;
        let (id, what) = self.ready().await;
        let mut child = Child::acts(world, &self.clock, &what, &told(place, "stop"));
        child.stopped(place).await;

        // Another settlement on the same books, asked for until it is answered.
        let began = Instant::now();
        let other = Shape::Plain.sent(world).await;
        until(place, NOT_STALLED, async || {
            drop(world.confirm(other).await);
            world.request(other).await.status == RequestStatus::Completed
        })
        .await;
        assert!(began.elapsed() < NOT_STALLED, "{place}");

        self.finish(id, place).await;
        if place.ends_with("record.before") {
            until(place, SOON, async || {
                self.ask_again(id).await;
                self.finish(id, place).await;
                world.request(id).await.status == self.end()
            })
            .await;
        }
        assert_eq!(world.request(id).await.status, self.end(), "{place}");
        assert!(
            child.is_stopped(),
            "{place}: it has stood still all the while"
        );
        let before = sums(world).await;
        child.go_on();
        child.ended().await;
        assert_eq!(sums(world).await, before, "{place}: it changed something");
        self.clear(id).await;
        assert_invariants(world).await;
    }
}

/// A checksum of every table of the network, by name.
async fn sums(world: &World) -> Vec<(String, i64)> {
    let mut sums = Vec::new();
    let databases = &world.databases;
    let mut places = vec![("a", &databases.master), ("a", &databases.shard)];
    places.extend(databases.tenants.iter().map(|tenant| ("b", tenant)));
    for (server, database) in places {
        let url = databases.url(server, database);
        let pool = sqlx::MySqlPool::connect(url.expose()).await.unwrap();
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
             WHERE table_schema = DATABASE() ORDER BY table_name",
        )
        .fetch_all(&pool)
        .await
        .unwrap();
        assert!(tables.len() > 5);
        for table in tables {
            let sql = AssertSqlSafe(format!("CHECKSUM TABLE `{table}` EXTENDED"));
            let row = sqlx::query(sql).fetch_one(&pool).await.unwrap();
            sums.push((format!("{database}.{table}"), row.get::<i64, _>(1)));
        }
        pool.close().await;
    }
    sums
}

async fn stopped_everywhere(shape: Shape, asked: Asked, refused: bool, places: &[&str]) {
    let case = Case::new(shape, asked, refused).await;
    for place in places {
        case.stopped_at(place).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_with_a_debt() {
    stopped_everywhere(Shape::FromClient, Asked::Confirm, false, &CONFIRM).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_without_a_debt() {
    let shape = Shape::FromClientNoDebt;
    stopped_everywhere(shape, Asked::Confirm, false, &CONFIRM_NO_DEBT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance() {
    stopped_everywhere(Shape::FromCashier, Asked::Accept, false, &ACCEPT).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_release() {
    stopped_everywhere(Shape::FromClient, Asked::Cancel, false, &RELEASE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_confirm_with_a_debt() {
    stopped_everywhere(Shape::ReceiverPays, Asked::Confirm, true, &CONFIRM_BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_confirm_without_a_debt() {
    let shape = Shape::ReceiverPaysNoDebt;
    stopped_everywhere(shape, Asked::Confirm, true, &CONFIRM_NO_DEBT_BACK).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_acceptance() {
    stopped_everywhere(Shape::FromClient, Asked::Accept, true, &ACCEPT_BACK).await;
}
