//! Every kind of saga on its way through.

use chrono::Duration;
use settlenet::domain::request::RequestStatus;
use settlenet::domain::saga::{SagaKind, SagaStatus};
use settlenet::stores::master::sagas;

use super::shapes::{Shape, client, from_client};
use crate::harness::{SOON, World, assert_invariants, until};

#[tokio::test(flavor = "multi_thread")]
async fn every_shape_of_request_completes_with_what_its_terms_say() {
    let world = World::new().await;
    for shape in Shape::ALL {
        let id = shape.sent(&world).await;
        let reserved = world.request(id).await.reservation_saga_id;
        assert_eq!(reserved.is_some(), shape.reserves(), "{shape:?}");
        let answer = world.confirm(id).await.expect("is confirmed");
        assert_eq!(answer.request.status, RequestStatus::Completed, "{shape:?}");
        assert_eq!(answer.running, None, "{shape:?}");
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn less_than_agreed_is_booked_once_the_sender_agrees() {
    let world = World::new().await;
    for shape in [Shape::FromClient, Shape::ReceiverPays, Shape::NoDebt] {
        let id = shape.sent(&world).await;
        let network = &world.app.network;
        let less = Some("9990.00");
        let claimed = network
            .confirm_received(&World::actor(world.beta), id, less)
            .await
            .unwrap();
        assert_eq!(claimed.request.status, RequestStatus::Sent);
        let agreed = network
            .confirm_received(&World::actor(world.alpha), id, less)
            .await
            .unwrap();
        assert_eq!(agreed.request.status, RequestStatus::Completed);
        assert_eq!(agreed.request.settled_amount().minor(), 999_000);
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reserved_is_given_back_when_nothing_comes_of_it() {
    let world = World::new().await;
    let account = client(&world, world.alpha, 1_000_000).await;
    let network = &world.app.network;
    for by_agreement in [true, false] {
        let mut input = from_client(&world, &account);
        input.deadline_at = Some(world.clock.now() + Duration::hours(1));
        let request = world.create(world.alpha, input).await;
        let accepted = network
            .accept_request(&World::actor(world.beta), request.id, None)
            .await;
        accepted.expect("the client has it all again");
        assert_eq!(world.reserved(&account).await, 1_000_000);
        let ends_as = if by_agreement {
            for broker in [world.beta, world.alpha] {
                let actor = World::actor(broker);
                network.cancel_request(&actor, request.id).await.unwrap();
            }
            RequestStatus::Cancelled
        } else {
            world.clock.advance(Duration::hours(2));
            assert_eq!(network.expire_overdue(10).await.unwrap(), 1);
            RequestStatus::Expired
        };
        assert_eq!(world.request(request.id).await.status, ends_as);
        until("the reservation is given back", SOON, async || {
            world.reserved(&account).await == 0
        })
        .await;
        until("the release has ended", SOON, async || {
            let all = sagas::list(&world.app.systems.master, None, None, 100).await;
            all.unwrap().iter().all(|saga| saga.status.is_terminal())
        })
        .await;
    }
    let completed = sagas::list(
        &world.app.systems.master,
        Some(SagaStatus::Completed),
        None,
        100,
    )
    .await
    .unwrap();
    let releases = completed
        .iter()
        .filter(|saga| saga.kind == SagaKind::Release);
    assert_eq!(releases.count(), 2);
    assert_invariants(&world).await;
}
