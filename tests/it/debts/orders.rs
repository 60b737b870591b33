//! Orders: the code of a payout, executors in a city, confirmation by execution, what books refuse.

use settlenet::domain::request::{Refusal, RequestKind, RequestStatus};
use settlenet::services::network::{CreateRequest, NetworkError};
use settlenet::stores::master::requests::Filter;

use crate::harness::{World, assert_invariants, proof};
use crate::saga::shapes::client;

/// An order of alpha's, and the account that beta's cashier has for it.
async fn ordered(world: &World, kind: RequestKind, to: Option<u64>) -> CreateRequest {
    let client = client(world, world.alpha, 1_000_000).await;
    CreateRequest {
        kind,
        counterpart_uid: Some(client.owner_ref),
        ..world.send(to)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_opens_to_its_code_alone() {
    let world = World::new().await;
    let network = &world.app.network;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let input = ordered(&world, RequestKind::Payout, Some(world.beta)).await;
    let (order, code) = world.order(world.alpha, input).await;
    let code = code.unwrap();
    let id = order.id;
    let cashier = world
        .funded(world.cashier(world.beta, "ahmed"), 2_000_000)
        .await;
    let no_cashier = network.accept_request(&beta, id, None).await.unwrap_err();
    assert!(no_cashier.to_string().starts_with("account_id"));
    network
        .accept_request(&beta, id, Some(cashier.id()))
        .await
        .unwrap();

    let missing = network.execute_order(&beta, id, proof(), None).await;
    assert!(missing.unwrap_err().to_string().starts_with("pickup_code"));
    let past = network.mark_sent(&beta, id, proof()).await;
    assert!(past.is_err(), "not past the code");
    for left in (0..5).rev() {
        let wrong = network
            .execute_order(&beta, id, proof(), Some("00000000".into()))
            .await;
        match wrong {
            Err(NetworkError::PickupRefused { left: told }) => assert_eq!(told, left),
            other => panic!("{other:?}"),
        }
    }
    let late = network
        .execute_order(&beta, id, proof(), Some(code.clone()))
        .await;
    assert!(matches!(
        late,
        Err(NetworkError::Refused(Refusal::TooOften { .. }))
    ));
    let not_theirs = network.renew_pickup(&beta, id).await;
    assert!(matches!(
        not_theirs,
        Err(NetworkError::Refused(Refusal::NotYourMove { .. }))
    ));
    let (_, new) = network.renew_pickup(&alpha, id).await.unwrap();
    let old = network.execute_order(&beta, id, proof(), Some(code)).await;
    assert!(matches!(old, Err(NetworkError::PickupRefused { left: 4 })));
    let done = network
        .execute_order(&beta, id, proof(), Some(new))
        .await
        .unwrap();
    assert_eq!(done.request.status, RequestStatus::Sent);
    let again = network
        .execute_order(&beta, id, proof(), None)
        .await
        .unwrap();
    assert_eq!(again.request.status, RequestStatus::Sent, "a repeat");
    world.confirm(id).await.unwrap();
    assert_invariants(&world).await;
}

/// A code that can't be one costs no try, and nobody makes codes without end.
#[tokio::test(flavor = "multi_thread")]
async fn codes_have_a_form_and_are_made_so_often() {
    let world = World::new().await;
    let network = &world.app.network;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let input = ordered(&world, RequestKind::Payout, Some(world.beta)).await;
    let (order, _) = world.order(world.alpha, input).await;
    let cashier = world
        .funded(world.cashier(world.beta, "ahmed"), 2_000_000)
        .await;
    let accepted = network.accept_request(&beta, order.id, Some(cashier.id()));
    accepted.await.unwrap();
    for code in ["", "1234567", "123456789", "1234567x", "１２３４５６７８"] {
        let told = network.execute_order(&beta, order.id, proof(), Some(code.into()));
        let told = told.await.unwrap_err().to_string();
        assert!(told.starts_with("pickup_code"), "{told}");
    }
    let mut made = 0;
    while network.renew_pickup(&alpha, order.id).await.is_ok() {
        made += 1;
    }
    assert_eq!(made, 20);
    let more = network.renew_pickup(&alpha, order.id).await;
    assert!(matches!(
        more,
        Err(NetworkError::Refused(Refusal::TooOften { .. }))
    ));
}

/// An order to all is for those who serve its city, and the first to accept gets it.
#[tokio::test(flavor = "multi_thread")]
async fn executors_in_a_city_see_its_orders() {
    let world = World::new().await;
    let network = &world.app.network;
    network
        .set_cities(world.beta, vec!["IST".to_owned(), "DXB".to_owned()])
        .await
        .unwrap();
    network
        .set_cities(world.gamma, vec!["DXB".to_owned()])
        .await
        .unwrap();
    let nowhere = CreateRequest {
        city_code: None,
        ..ordered(&world, RequestKind::Collect, None).await
    };
    let told = network
        .create_order(&World::actor(world.alpha), World::intention(), nowhere)
        .await
        .unwrap_err();
    assert!(told.to_string().starts_with("city_code"), "{told}");
    let input = CreateRequest {
        city_code: Some("IST".to_owned()),
        auto_confirm: true,
        ..ordered(&world, RequestKind::Collect, None).await
    };
    let (order, _) = world.order(world.alpha, input).await;
    let seen = async |broker| {
        let orders = Filter {
            orders: true,
            ..Filter::default()
        };
        let found = network.requests(broker, orders, None, 10).await.unwrap();
        let plain = network.requests(broker, Filter::default(), None, 10).await;
        assert!(plain.unwrap().is_empty(), "an order is no request");
        found.len()
    };
    assert_eq!((seen(world.alpha).await, seen(world.beta).await), (1, 1));
    assert_eq!((seen(world.gamma).await, seen(world.delta).await), (0, 0));
    for stranger in [world.gamma, world.delta] {
        let actor = World::actor(stranger);
        let hidden = network.request(stranger, order.id).await;
        assert!(matches!(
            hidden,
            Err(NetworkError::Refused(Refusal::NotFound))
        ));
        let hidden = network.accept_request(&actor, order.id, None).await;
        assert!(matches!(
            hidden,
            Err(NetworkError::Refused(Refusal::NotFound))
        ));
    }
    let beta = World::actor(world.beta);
    let cashier = world.funded(world.cashier(world.beta, "ahmed"), 1).await;
    network
        .accept_request(&beta, order.id, Some(cashier.id()))
        .await
        .unwrap();
    // Executed is confirmed.
    let done = network
        .execute_order(&beta, order.id, proof(), None)
        .await
        .unwrap();
    assert_eq!(done.request.status, RequestStatus::Completed);
    assert_eq!(world.balance(&cashier).await, 1_000_001);
    assert_invariants(&world).await;
}

/// Either book may refuse to reserve; the other gives back what it had.
#[tokio::test(flavor = "multi_thread")]
async fn a_payout_needs_the_clients_balance_and_the_cashiers_float() {
    let world = World::new().await;
    let network = &world.app.network;
    let beta = World::actor(world.beta);
    let poor = world.funded(world.cashier(world.beta, "poor"), 5).await;
    let rich = world
        .funded(world.cashier(world.beta, "rich"), 3_000_000)
        .await;
    for (client_has, cashier) in [(1_000_000, &poor), (999_999, &rich)] {
        let account = client(&world, world.alpha, client_has).await;
        let input = CreateRequest {
            kind: RequestKind::Payout,
            counterpart_uid: Some(account.owner_ref.clone()),
            ..world.send(Some(world.beta))
        };
        let (order, _) = world.order(world.alpha, input).await;
        let refused = network
            .accept_request(&beta, order.id, Some(cashier.id()))
            .await;
        match refused {
            Err(NetworkError::SagaRefused { status, .. }) => {
                assert_eq!(status, RequestStatus::Pending);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(world.reserved(&account).await, 0);
        assert_eq!(world.reserved(cashier).await, 0);
        assert_invariants(&world).await;
    }
}
