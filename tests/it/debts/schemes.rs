//! The three ways in which brokers serve each other's clients, and netting what comes of them, with
//! the numbers of the documentation.

use settlenet::domain::account::OwnerKind;
use settlenet::domain::request::{RequestKind, RequestStatus};
use settlenet::services::network::CreateRequest;

use crate::harness::{World, assert_invariants, proof};

const VASYA: &str = "FO-7a3f8b2c4d1e";
const OF_BETA: &str = "FO-2b9c1d4e8f3a";

/// Vasya, a client of Alpha's, hands 47,500 roubles to Beta's cashier in Istanbul.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_pays_in_at_another_broker() {
    let world = World::new().await;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let network = &world.app.network;
    let vasya = World::account_in(world.alpha, OwnerKind::Partner, VASYA, "RUB-CASH");
    let cashier = World::account_in(world.beta, OwnerKind::Cashier, "ahmed", "RUB-CASH");
    world.funded(vasya.clone(), 1).await;
    world.funded(cashier.clone(), 1).await;
    let input = CreateRequest {
        kind: RequestKind::Collect,
        currency_code: "RUB-CASH".to_owned(),
        amount: "47500".to_owned(),
        counterpart_uid: Some(VASYA.to_owned()),
        ..world.send(Some(world.beta))
    };
    let (order, code) = world.order(world.alpha, input).await;
    assert!(order.id.to_string().starts_with("OR-") && code.is_none());
    let accepted = network
        .accept_request(&beta, order.id, Some(cashier.id()))
        .await;
    assert_eq!(accepted.unwrap().request.status, RequestStatus::Accepted);
    let executed = network.execute_order(&beta, order.id, proof(), None).await;
    assert_eq!(executed.unwrap().request.status, RequestStatus::Sent);
    let confirmed = network.confirm_received(&alpha, order.id, None).await;
    assert_eq!(confirmed.unwrap().request.status, RequestStatus::Completed);

    assert_eq!(world.balance(&vasya).await, 4_750_001);
    assert_eq!(world.balance(&cashier).await, 4_750_001);
    assert_eq!(world.entries_of(world.alpha, order.id).await, [4_750_000]);
    assert_eq!(world.entries_of(world.beta, order.id).await, [4_750_000]);
    let owed = &world.obligations_of(world.alpha).await[0];
    assert_eq!((owed.debtor, owed.creditor), (world.alpha, world.beta));
    assert_eq!((owed.amount, owed.remaining_amount), (4_750_000, 4_750_000));
    assert_eq!(owed.subject, order.id.to_string());
    let code = vasya.currency;
    assert_eq!(world.position(world.alpha, &code).await, -4_750_000);
    assert_eq!(world.position(world.beta, &code).await, 4_750_000);
    assert_invariants(&world).await;
}

/// Vasya takes 500 dollars from Beta's cashier.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_paid_out_at_another_broker() {
    let world = World::new().await;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let network = &world.app.network;
    let vasya = World::account_in(world.alpha, OwnerKind::Partner, VASYA, "USD-CASH");
    let cashier = World::account_in(world.beta, OwnerKind::Cashier, "ahmed", "USD-CASH");
    world.funded(vasya.clone(), 60_000).await;
    world.funded(cashier.clone(), 200_000).await;
    let input = CreateRequest {
        kind: RequestKind::Payout,
        currency_code: "USD-CASH".to_owned(),
        amount: "500".to_owned(),
        counterpart_uid: Some(VASYA.to_owned()),
        ..world.send(Some(world.beta))
    };
    let (order, code) = world.order(world.alpha, input).await;
    let accepted = network
        .accept_request(&beta, order.id, Some(cashier.id()))
        .await;
    assert_eq!(accepted.unwrap().request.status, RequestStatus::Accepted);
    assert_eq!(world.reserved(&vasya).await, 50_000);
    assert_eq!(world.reserved(&cashier).await, 50_000);
    let executed = network.execute_order(&beta, order.id, proof(), code).await;
    assert_eq!(executed.unwrap().request.status, RequestStatus::Sent);
    let confirmed = network.confirm_received(&alpha, order.id, None).await;
    assert_eq!(confirmed.unwrap().request.status, RequestStatus::Completed);

    assert_eq!(world.balance(&vasya).await, 10_000);
    assert_eq!(world.balance(&cashier).await, 150_000);
    assert_eq!(world.reserved(&vasya).await, 0);
    assert_eq!(world.reserved(&cashier).await, 0);
    let owed = &world.obligations_of(world.alpha).await[0];
    assert_eq!((owed.debtor, owed.creditor), (world.alpha, world.beta));
    assert_eq!(owed.remaining_amount, 50_000);
    assert_eq!(world.position(world.alpha, &vasya.currency).await, -50_000);
    assert_eq!(world.position(world.beta, &vasya.currency).await, 50_000);
    assert_invariants(&world).await;
}

/// Alpha sends 5,000 USDT to a client of Beta's, whom it names by uid.
#[tokio::test(flavor = "multi_thread")]
async fn money_goes_to_a_client_of_another_broker_by_uid() {
    let world = World::new().await;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let network = &world.app.network;
    let client = World::account_in(world.beta, OwnerKind::Partner, OF_BETA, "USDT-TRC20");
    let input = CreateRequest {
        currency_code: "USDT-TRC20".to_owned(),
        amount: "5000".to_owned(),
        method: "crypto".to_owned(),
        counterpart_uid: Some(OF_BETA.to_owned()),
        ..world.send(Some(world.beta))
    };
    let request = world.create(world.alpha, input).await;
    // The client is looked for when Beta accepts, not before.
    let refused = network.accept_request(&beta, request.id, None).await;
    assert!(refused.unwrap_err().to_string().contains("account_id"));
    world.funded(client.clone(), 1).await;
    let accepted = network
        .accept_request(&beta, request.id, None)
        .await
        .unwrap();
    assert_eq!(accepted.request.counterparty_account, Some(client.clone()));
    network
        .mark_sent(&alpha, request.id, proof())
        .await
        .unwrap();
    let confirmed = network.confirm_received(&beta, request.id, None).await;
    assert_eq!(confirmed.unwrap().request.status, RequestStatus::Completed);

    let minor = 5_000_000_000;
    assert_eq!(world.balance(&client).await, minor + 1);
    assert_eq!(world.entries_of(world.alpha, request.id).await, [-minor]);
    let owed = &world.obligations_of(world.alpha).await[0];
    assert_eq!((owed.debtor, owed.creditor), (world.beta, world.alpha));
    assert_eq!(i64::try_from(owed.remaining_amount), Ok(minor));
    let position = world.position(world.alpha, &client.currency).await;
    assert_eq!(position, i128::from(minor));
    assert_invariants(&world).await;
}
