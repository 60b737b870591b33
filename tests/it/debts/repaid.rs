//! Repayments: whole and in part, oldest debt first, and many at once.

use futures::future::join_all;
use settlenet::domain::obligation::ObligationStatus;
use settlenet::domain::request::RequestStatus;
use settlenet::domain::settlement::PartStatus;
use settlenet::domain::terms::Party;
use settlenet::services::network::{CreateRequest, NetworkError, Shortage};

use crate::harness::{World, assert_invariants};
use crate::saga::shapes::owing;

/// What remains of alpha's debts, the oldest first, and what of each is reserved.
async fn remains(world: &World) -> Vec<(u64, u64)> {
    let owed = world.obligations_of(world.alpha).await;
    owed.iter()
        .map(|one| (one.remaining_amount, one.reserved_amount))
        .collect()
}

fn advance(world: &World) {
    world.clock.advance(chrono::Duration::seconds(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_debts_are_repaid_first_and_the_ledger_goes_back() {
    let world = World::new().await;
    let network = &world.app.network;
    let beta = World::actor(world.beta);
    for _ in 0..3 {
        owing(&world, world.alpha, world.beta).await;
        advance(&world);
    }
    assert_eq!(world.position(world.beta, &world.currency).await, 3_000_000);
    let request = world
        .create(world.alpha, world.repay(world.beta, "15000.00"))
        .await;
    assert_eq!(
        remains(&world).await,
        [(1_000_000, 0); 3],
        "nothing before it is accepted"
    );
    network
        .accept_request(&beta, request.id, None)
        .await
        .unwrap();
    let reserved = [(1_000_000, 1_000_000), (1_000_000, 500_000), (1_000_000, 0)];
    assert_eq!(remains(&world).await, reserved);
    assert_invariants(&world).await;
    world.mark_sent(&world.request(request.id).await).await;
    // 9,999.99 less has come, and both sides agree to it.
    let less = Some("14000.00");
    network
        .confirm_received(&beta, request.id, less)
        .await
        .unwrap();
    let alpha = World::actor(world.alpha);
    let done = network
        .confirm_received(&alpha, request.id, less)
        .await
        .unwrap();
    assert_eq!(done.request.status, RequestStatus::Completed);
    assert_eq!(
        remains(&world).await,
        [(0, 0), (600_000, 0), (1_000_000, 0)]
    );
    assert_eq!(world.position(world.beta, &world.currency).await, 1_600_000);
    assert_eq!(
        world.entries_of(world.alpha, request.id).await,
        [-1_400_000]
    );
    assert_eq!(world.entries_of(world.beta, request.id).await, [1_400_000]);
    let owed = world.obligations_of(world.alpha).await;
    assert_eq!(owed[0].status, ObligationStatus::Settled);
    let parts = world.settlements_of(&owed[1]).await;
    assert_eq!(parts.len(), 1);
    assert_eq!(
        (parts[0].amount, parts[0].settled_amount),
        (500_000, 400_000)
    );
    assert_eq!(parts[0].status, PartStatus::Settled);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_creditor_may_ask_for_one_debt() {
    let world = World::new().await;
    let network = &world.app.network;
    owing(&world, world.alpha, world.beta).await;
    advance(&world);
    let second = owing(&world, world.alpha, world.beta).await;
    let input = CreateRequest {
        obligation_id: Some(second),
        ..world.repay(world.alpha, "2500.00")
    };
    let request = world.create(world.beta, input).await;
    assert_eq!(request.settles.unwrap().debtor, Party::Counterparty);
    let alpha = World::actor(world.alpha);
    network
        .accept_request(&alpha, request.id, None)
        .await
        .unwrap();
    world.mark_sent(&world.request(request.id).await).await;
    world.confirm(request.id).await.unwrap();
    assert_eq!(remains(&world).await, [(1_000_000, 0), (750_000, 0)]);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_to_nothing_is_given_back() {
    let world = World::new().await;
    let network = &world.app.network;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    owing(&world, world.alpha, world.beta).await;
    let request = world
        .create(world.alpha, world.repay(world.beta, "10000.00"))
        .await;
    network
        .accept_request(&beta, request.id, None)
        .await
        .unwrap();
    assert_eq!(remains(&world).await, [(1_000_000, 1_000_000)]);
    network.cancel_request(&alpha, request.id).await.unwrap();
    network.cancel_request(&beta, request.id).await.unwrap();
    assert_eq!(remains(&world).await, [(1_000_000, 0)]);
    assert_invariants(&world).await;

    // One that waits too long gives it back by itself.
    let input = CreateRequest {
        deadline_at: Some(world.clock.now() + chrono::Duration::hours(1)),
        ..world.repay(world.beta, "10000.00")
    };
    let request = world.create(world.alpha, input).await;
    network
        .accept_request(&beta, request.id, None)
        .await
        .unwrap();
    world.clock.advance(chrono::Duration::hours(2));
    assert_eq!(network.expire_overdue(10).await.unwrap(), 1);
    assert_eq!(remains(&world).await, [(1_000_000, 0)]);
    assert_invariants(&world).await;
}

/// More obligations than are locked at first.
#[tokio::test(flavor = "multi_thread")]
async fn a_repayment_spans_as_many_debts_as_it_takes() {
    let world = World::new().await;
    let network = &world.app.network;
    for _ in 0..20 {
        owing(&world, world.alpha, world.beta).await;
        advance(&world);
    }
    let input = world.repay(world.beta, "185000.00");
    let request = world.create(world.alpha, input).await;
    let beta = World::actor(world.beta);
    network
        .accept_request(&beta, request.id, None)
        .await
        .unwrap();
    let reserved: Vec<u64> = remains(&world).await.iter().map(|one| one.1).collect();
    let expected = [&[1_000_000; 18][..], &[500_000, 0]].concat();
    assert_eq!(reserved, expected);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_settlements_are_named() {
    let world = World::new().await;
    let network = &world.app.network;
    let id = owing(&world, world.alpha, world.beta).await;
    let alpha = World::actor(world.alpha);
    let base = || world.repay(world.beta, "100.00");
    let cases: Vec<(CreateRequest, &str)> = vec![
        (
            CreateRequest {
                target_broker_id: None,
                ..base()
            },
            "target_broker_id",
        ),
        (
            CreateRequest {
                amount: "10000.01".to_owned(),
                ..base()
            },
            "amount",
        ),
        (
            CreateRequest {
                debtor: Some(Party::Counterparty),
                ..base()
            },
            "amount",
        ),
        (
            CreateRequest {
                obligation_id: Some(id),
                target_broker_id: Some(world.gamma),
                ..base()
            },
            "obligation_id",
        ),
        (
            CreateRequest {
                obligation_id: Some(id),
                debtor: Some(Party::Counterparty),
                ..base()
            },
            "debtor",
        ),
        (
            CreateRequest {
                obligation: Some(settlenet::domain::terms::ObligationTerm::AuthorOwes),
                ..base()
            },
            "terms",
        ),
        (
            CreateRequest {
                counterpart_uid: Some("FO-2b9c1d4e8f3a".to_owned()),
                ..base()
            },
            "counterpart_uid",
        ),
        (
            CreateRequest {
                obligation_id: Some(id),
                ..world.send(Some(world.beta))
            },
            "obligation_id",
        ),
    ];
    for (input, field) in cases {
        let told = network
            .create_request(&alpha, World::intention(), input)
            .await
            .unwrap_err()
            .to_string();
        assert!(told.starts_with(field), "{field}: {told}");
    }
}

/// 64 acceptances at once over debts that there is enough of for 20, and then 64 confirmations at
/// once of what was accepted.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_settlements_at_once_take_no_more_than_is_owed() {
    let world = World::new().await;
    let network = &world.app.network;
    for _ in 0..2 {
        owing(&world, world.alpha, world.beta).await;
    }
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let mut requests = Vec::new();
    for _ in 0..64 {
        let input = world.repay(world.beta, "1000.00");
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
            (
                _,
                Err(NetworkError::Short {
                    shortage: Shortage::Debts { available, .. },
                    ..
                }),
            ) => {
                assert!(available < 100_000);
            }
            (id, Err(other)) => panic!("{id}: {other}"),
        }
    }
    assert_eq!(accepted.len(), 20);
    assert_eq!(remains(&world).await, [(1_000_000, 1_000_000); 2]);
    assert_invariants(&world).await;
    for id in &accepted {
        network
            .mark_sent(&alpha, *id, crate::harness::proof())
            .await
            .unwrap();
    }
    let confirms = (0..64).map(|turn| {
        let id = accepted[turn % accepted.len()];
        let (network, beta) = (network.clone(), beta.clone());
        tokio::spawn(async move { network.confirm_received(&beta, id, None).await })
    });
    for answer in join_all(confirms).await {
        let done = answer.unwrap().unwrap();
        assert_eq!(done.request.status, RequestStatus::Completed);
    }
    assert_eq!(remains(&world).await, [(0, 0); 2]);
    assert_eq!(world.position(world.alpha, &world.currency).await, 0);
    assert_invariants(&world).await;
}
