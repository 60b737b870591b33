//! Going back: refusals, tombstones, burned holds, and the race with the way forward.

use chrono::Duration;
use futures::future::join;
use settlenet::domain::account::{AccountRef, HousePurpose};
use settlenet::domain::book::JobOutcome;
use settlenet::domain::plan::Plan;
use settlenet::domain::request::RequestStatus;
use settlenet::domain::request_event::EventKind;
use settlenet::domain::saga::SagaStatus;
use settlenet::services::network::NetworkError;
use settlenet::stores::ledger::{BurnOutcome, HoldOutcome};
use settlenet::stores::master::{alerts, obligations, requests};

use super::shapes::{Shape, client, from_client};
use crate::harness::{World, assert_invariants, hold_of, step_named};

async fn obligation_status(world: &World, plan: &Plan) -> String {
    let owed = obligations::of_sagas(&world.app.systems.master, &[plan.saga_id]).await;
    owed.unwrap()
        .first()
        .expect("there is one")
        .status
        .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_undo_that_comes_first_keeps_its_step_from_ever_happening() {
    let world = World::new().await;
    let shapes = [
        (Shape::ReceiverPays, "debit"),
        (Shape::FromClient, "debit"),
        (Shape::FromClientNoDebt, "debit"),
    ];
    for (shape, name) in shapes {
        let id = shape.sent(&world).await;
        let plan = world.record_confirm(id).await;
        let step = step_named(&plan, name);
        world.undo_in_book(&plan, step).await;
        assert_eq!(world.do_in_book(&plan, step).await, JobOutcome::Tombstone);
        world.run(&world.app, plan.saga_id).await;
        assert_eq!(
            world.saga(plan.saga_id).await.status,
            SagaStatus::Compensated
        );
        assert_eq!(
            world.request(id).await.status,
            RequestStatus::Sent,
            "{shape:?}"
        );
        assert_eq!(world.do_in_book(&plan, step).await, JobOutcome::Tombstone);
        let again = world.confirm(id).await.expect("a new saga may do it");
        assert_eq!(again.request.status, RequestStatus::Completed);
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_acceptance_undone_first_reserves_nothing() {
    let world = World::new().await;
    let account = client(&world, world.alpha, 1_000_000).await;
    let request = world
        .create(world.alpha, from_client(&world, &account))
        .await;
    let plan = world.record_accept(request.id, world.beta).await;
    let step = step_named(&plan, "reserve");
    world.undo_in_book(&plan, step).await;
    world.run(&world.app, plan.saga_id).await;
    assert_eq!(world.do_in_book(&plan, step).await, JobOutcome::Tombstone);
    assert_eq!(
        world.request(request.id).await.status,
        RequestStatus::Pending
    );
    assert_eq!(world.reserved(&account).await, 0);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_was_burned_never_lands_and_the_saga_goes_back() {
    let world = World::new().await;
    let id = Shape::FromClient.sent(&world).await;
    let plan = world.record_confirm(id).await;
    let debt = plan.debt().expect("somebody owes").clone();
    let ledger = &world.app.systems.ledger;
    let hold = hold_of(&plan, &debt);
    assert_eq!(ledger.burn(&hold).await.unwrap(), BurnOutcome::Burned);
    world.run(&world.app, plan.saga_id).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Compensated
    );
    // The call that had timed out arrives at last.
    assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::NeverLands);
    assert_eq!(obligation_status(&world, &plan).await, "failed");
    assert_invariants(&world).await;

    // Compensation without knowing whether the hold is there burns it by itself.
    let plan = world.record_confirm(id).await;
    assert!(world.app.engine.compensate(plan.saga_id).await.unwrap());
    world.run(&world.app, plan.saga_id).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Compensated
    );
    let hold = hold_of(&plan, plan.debt().expect("somebody owes"));
    assert_eq!(ledger.hold(&hold).await.unwrap(), HoldOutcome::NeverLands);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_debit_sends_the_request_back_to_sent_with_the_reason() {
    let world = World::new().await;
    for shape in [Shape::FromClient, Shape::FromClientNoDebt] {
        let id = shape.sent(&world).await;
        let account = world.request(id).await.author_account.expect("a client's");
        world.set_open(&account, false).await;
        let Err(NetworkError::SagaRefused { status, reason }) = world.confirm(id).await else {
            panic!("a closed account is debited");
        };
        assert_eq!(status, RequestStatus::Sent);
        let book = world.alpha.to_string();
        assert_eq!(
            reason,
            serde_json::json!({ "book": book, "code": "account_closed" }),
            "the receiver learns no more"
        );
        let events = requests::events(&world.app.systems.master, id)
            .await
            .unwrap();
        let (last, _) = events.last().expect("has events");
        assert_eq!(last.kind, EventKind::ConfirmFailed);
        assert_eq!(last.payload["reason"], reason);
        assert_eq!(last.private_for(world.beta), None);
        let told = last.reason_for(world.alpha);
        assert_eq!(told["account"], account.id().to_string());
        assert_eq!(
            world.reserved(&account).await,
            1_000_000,
            "the promise is kept"
        );
        assert_invariants(&world).await;

        world.set_open(&account, true).await;
        let again = world.confirm(id).await.expect("a new saga");
        assert_eq!(again.request.status, RequestStatus::Completed);
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_book_had_booked_is_reversed_when_the_other_refuses() {
    let world = World::new().await;
    let purse = AccountRef::house(world.beta, HousePurpose::Commission, &world.currency);
    let purse = world.funded(purse, 100).await;
    let id = Shape::ReceiverPays.sent(&world).await;
    world.set_floor(&purse, 0).await;
    let refused = world.confirm(id).await;
    assert!(
        matches!(refused, Err(NetworkError::SagaRefused { .. })),
        "{refused:?}"
    );
    let debits = world.entries_of(world.alpha, id).await;
    assert_eq!(debits, [-1_000_000, 1_000_000], "booked and reversed");
    assert_invariants(&world).await;
    world.set_floor(&purse, -1_000_000).await;
    world.confirm(id).await.expect("a new saga");
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broadcast_whose_reservation_is_refused_is_open_to_others_again() {
    let world = World::new().await;
    let account = client(&world, world.alpha, 1_000_000).await;
    let mut input = from_client(&world, &account);
    input.target_broker_id = None;
    let request = world.create(world.alpha, input).await;
    let network = &world.app.network;
    world.set_floor(&account, 1).await;
    let refused = network
        .accept_request(&World::actor(world.beta), request.id, None)
        .await;
    let Err(NetworkError::SagaRefused { status, reason }) = refused else {
        panic!("the floor holds: {refused:?}");
    };
    assert_eq!(status, RequestStatus::Pending);
    let book = world.alpha.to_string();
    assert_eq!(
        reason,
        serde_json::json!({ "book": book, "code": "insufficient_funds" })
    );
    assert_eq!(world.request(request.id).await.target, None);
    world.set_floor(&account, 0).await;
    network
        .accept_request(&World::actor(world.gamma), request.id, None)
        .await
        .expect("another has it");
    assert_eq!(world.request(request.id).await.target, Some(world.gamma));
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credit_that_finds_its_account_closed_waits_in_suspense_and_somebody_is_told() {
    let world = World::new().await;
    let id = Shape::ToClient.sent(&world).await;
    let account = world
        .request(id)
        .await
        .counterparty_account
        .expect("a client's");
    world.set_open(&account, false).await;
    let answer = world.confirm(id).await.expect("a credit is never refused");
    assert_eq!(answer.request.status, RequestStatus::Completed);
    let suspense = AccountRef::house(world.beta, HousePurpose::Suspense, &world.currency);
    assert_eq!(world.balance(&suspense).await, 1_000_000);
    let alerts = alerts::list(&world.app.systems.master, true, None, 10)
        .await
        .unwrap();
    let told = alerts.iter().find(|alert| alert.kind == "credit_diverted");
    assert_eq!(told.expect("an alert").subject, id.to_string());
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_of_post_and_void_decides() {
    let world = World::new().await;
    for posted_first in [true, false] {
        let id = Shape::FromClient.sent(&world).await;
        let plan = world.record_confirm(id).await;
        world.do_step(&plan, step_named(&plan, "hold")).await;
        world.do_step(&plan, step_named(&plan, "debit")).await;
        if posted_first {
            world.do_step(&plan, step_named(&plan, "post")).await;
        }
        world.app.engine.compensate(plan.saga_id).await.unwrap();
        world.run(&world.app, plan.saga_id).await;
        let status = if posted_first {
            RequestStatus::Completed
        } else {
            RequestStatus::Sent
        };
        assert_eq!(world.request(id).await.status, status);
        assert_invariants(&world).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_way_back_and_the_way_forward_at_once_come_to_one_end() {
    let world = World::new().await;
    let other = world.another(Duration::minutes(10));
    for round in 0..12 {
        for shape in [Shape::ReceiverPays, Shape::FromClientNoDebt] {
            let id = shape.sent(&world).await;
            let plan = world.record_confirm(id).await;
            let back = async {
                // A different head start each time.
                for _ in 0..round * 40 {
                    tokio::task::yield_now().await;
                }
                other.engine.compensate(plan.saga_id).await.unwrap();
                world.run(&other, plan.saga_id).await;
            };
            join(world.run(&world.app, plan.saga_id), back).await;
            let status = world.ended(plan.saga_id).await;
            let expected = match status {
                SagaStatus::Completed => RequestStatus::Completed,
                _ => RequestStatus::Sent,
            };
            assert_eq!(world.request(id).await.status, expected);
        }
    }
    assert_invariants(&world).await;
}
