//! The life of a request through the services, on real servers.

use settlenet::domain::ledger::AccountName;
use settlenet::domain::obligation::ObligationStatus;
use settlenet::domain::request::RequestStatus;
use settlenet::stores::book;
use settlenet::stores::ledger::AccountSpec;
use settlenet::stores::master::obligations;

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

    let owed = obligations::list(&world.app.systems.master, world.alpha, None, None, 10)
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
