//! Credit lines: no more is accepted than a creditor allows, and what is repaid is free again.

use futures::future::join_all;
use settlenet::domain::request::RequestStatus;
use settlenet::services::credit_lines::CreditLine;
use settlenet::services::network::{NetworkError, Shortage};
use settlenet::stores::master::standing;

use crate::harness::{World, assert_invariants};

async fn line(world: &World, limit: Option<u64>) -> Option<CreditLine> {
    let creditor = World::actor(world.beta);
    let currency = world.currency_of(&world.currency).await;
    let lines = &world.app.credit_lines;
    lines
        .set(&creditor, world.alpha, &currency, limit)
        .await
        .unwrap()
}

async fn used(world: &World) -> (u64, u64) {
    let lines = world.app.credit_lines.of_broker(world.alpha).await.unwrap();
    assert_eq!(lines.len(), 1);
    (lines[0].used_amount, lines[0].free_amount())
}

/// Whoever has looked for a line before it was set, or taken away, looks again.
#[tokio::test(flavor = "multi_thread")]
async fn a_line_binds_from_when_it_is_set() {
    let world = World::new().await;
    let master = &world.app.systems.master;
    let gate = async || {
        let (_, gate) = standing::look(master, [None, None], None).await.unwrap();
        gate
    };
    for limit in [Some(1), None] {
        let before = gate().await;
        line(&world, limit).await;
        assert_ne!(gate().await, before, "{limit:?}");
    }
}

/// 64 acceptances at once of 10,000.00 each, where 50,000.00 may be owed.
#[tokio::test(flavor = "multi_thread")]
async fn of_sixty_four_acceptances_at_once_as_many_are_made_as_there_is_credit() {
    let world = World::new().await;
    let network = &world.app.network;
    assert_eq!(line(&world, Some(5_000_000)).await.unwrap().used_amount, 0);
    let beta = World::actor(world.beta);
    let mut requests = Vec::new();
    for _ in 0..64 {
        let input = world.send(Some(world.beta));
        requests.push(world.create(world.alpha, input).await.id);
    }
    let accepts = requests.iter().map(|id| {
        let (network, beta, id) = (network.clone(), beta.clone(), *id);
        tokio::spawn(async move { (id, network.accept_request(&beta, id, None).await) })
    });
    let mut accepted = Vec::new();
    for answer in join_all(accepts).await {
        match answer.unwrap() {
            (id, Ok(_)) => accepted.push(id),
            (_, Err(NetworkError::Short { shortage, .. })) => {
                assert!(
                    matches!(shortage, Shortage::Credit { free: 0, .. }),
                    "{shortage:?}"
                );
            }
            (id, Err(other)) => panic!("{id}: {other}"),
        }
    }
    assert_eq!(accepted.len(), 5);
    assert_eq!(used(&world).await, (5_000_000, 0));

    // What completes goes on being used, what is cancelled is free again.
    for id in &accepted[1..] {
        world.mark_sent(&world.request(*id).await).await;
        world.confirm(*id).await.unwrap();
    }
    assert_eq!(used(&world).await, (5_000_000, 0));
    network
        .cancel_request(&World::actor(world.alpha), accepted[0])
        .await
        .unwrap();
    network.cancel_request(&beta, accepted[0]).await.unwrap();
    assert_eq!(used(&world).await, (4_000_000, 1_000_000));

    // What is repaid is free again.
    let repayment = world
        .create(world.alpha, world.repay(world.beta, "15000.00"))
        .await;
    network
        .accept_request(&beta, repayment.id, None)
        .await
        .unwrap();
    world.mark_sent(&world.request(repayment.id).await).await;
    assert_eq!(used(&world).await, (4_000_000, 1_000_000));
    world.confirm(repayment.id).await.unwrap();
    assert_eq!(used(&world).await, (2_500_000, 2_500_000));

    // A lower limit takes nothing back, and lets nothing new in.
    line(&world, Some(0)).await;
    assert_eq!(used(&world).await, (2_500_000, 0));
    let open = requests.iter().find(|id| !accepted.contains(id)).unwrap();
    let refused = network.accept_request(&beta, *open, None).await;
    assert!(matches!(refused, Err(NetworkError::Short { .. })));
    assert_eq!(world.request(*open).await.status, RequestStatus::Pending);
    assert!(line(&world, None).await.is_none());
    network.accept_request(&beta, *open, None).await.unwrap();
    assert_invariants(&world).await;
}
