//! The life of a request through the services, on real servers.

use settlenet::domain::ledger::AccountName;
use settlenet::domain::obligation::ObligationStatus;
use settlenet::domain::request::RequestStatus;
use settlenet::stores::book;
use settlenet::stores::ledger::AccountSpec;
use settlenet::stores::master::obligations::{self, Filter};

use crate::harness::World;

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_send_changes_three_books_and_the_ledger() {
    let world = World::new().await;
    let id = world.sent(world.alpha, world.beta).await;
    let answer = world
        .app
        .network
        .confirm_received(&World::actor(world.beta), id, None)
        .await
        .expect("is confirmed");
    assert_eq!(answer.request.status, RequestStatus::Completed);
    assert_eq!(answer.running, None);

    for (broker, balance) in [(world.alpha, -1_000_000), (world.beta, 1_000_000)] {
        let scope = world.app.systems.router.book(broker).await.unwrap();
        let mut read = scope.read().await.unwrap();
        let entries = book::entries_after(&mut read, 0, 10).await.unwrap();
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].entry.balance, balance);
        assert_eq!(entries[0].entry.hash(), entries[0].tx_hash);
        let head = book::head(&mut read).await.unwrap();
        assert_eq!((head.seq, head.hash), (1, entries[0].tx_hash));
        read.end().await.unwrap();
    }

    let owed = obligations::list(
        &world.app.systems.master,
        world.alpha,
        &Filter::default(),
        None,
        10,
    )
    .await
    .unwrap();
    assert_eq!(owed.len(), 1);
    assert_eq!(
        (owed[0].debtor, owed[0].creditor),
        (world.alpha, world.beta)
    );
    assert_eq!(
        (owed[0].amount, owed[0].status),
        (1_000_000, ObligationStatus::Active)
    );

    let positions = [world.alpha, world.beta].map(|broker| AccountSpec {
        name: AccountName::position(broker, &world.currency),
        ledger: world.ledger,
    });
    let balances = world.app.systems.ledger.balances(&positions).await.unwrap();
    assert_eq!(balances[0].posted(), -1_000_000);
    assert_eq!(balances[1].posted(), 1_000_000);
}

/// One that can't be read, and dates that are none, come first in every look for what is overdue.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_cannot_expire_keeps_others_from_it() {
    let world = World::new().await;
    let mut input = world.send(Some(world.beta));
    input.deadline_at = Some(world.clock.now() + chrono::Duration::hours(1));
    let mut ids = Vec::new();
    for _ in 0..8 {
        ids.push(world.create(world.alpha, input.clone()).await.id);
        input.deadline_at = input
            .deadline_at
            .map(|at| at + chrono::Duration::seconds(1));
    }
    let master = &world.app.systems.master;
    for (broken, change) in [
        (&ids[..3], "method = 'cash', terms = '{}'"),
        (&ids[3..6], "deadline_at = '0000-00-00 00:00:00'"),
    ] {
        for id in broken {
            let sql = format!(
                "SET STATEMENT sql_mode = '' FOR UPDATE network_request SET {change} WHERE request_id = {}",
                id.bits()
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(master)
                .await
                .unwrap();
        }
    }
    world.clock.advance(chrono::Duration::hours(2));
    assert_eq!(world.app.network.expire_overdue(2).await.unwrap(), 2);
    for id in &ids[6..] {
        assert_eq!(world.request(*id).await.status, RequestStatus::Expired);
    }
    assert_eq!(world.app.network.expire_overdue(2).await.unwrap(), 0);
}
