//! Every step done twice, from every point at which a process may have died, and by two
//! processes at once.

use chrono::Duration;
use futures::future::join_all;
use settlenet::domain::request::RequestStatus;
use settlenet::domain::saga::SagaStatus;

use super::shapes::{Shape, client, from_client};
use crate::harness::{World, assert_invariants};

#[tokio::test(flavor = "multi_thread")]
async fn a_confirm_goes_on_from_every_step_that_was_done_twice() {
    let world = World::new().await;
    let later = world.another(Duration::minutes(10));
    for shape in [
        Shape::ReceiverPays,
        Shape::FromClientNoDebt,
        Shape::Settles,
        Shape::Collect,
        Shape::Payout,
    ] {
        for died_after in 0.. {
            let id = shape.sent(&world).await;
            let plan = world.record_confirm(id).await;
            let Some(last) = plan.steps.iter().map(|step| step.number).nth(died_after) else {
                world.run(&later, plan.saga_id).await;
                break;
            };
            for step in 1..=last {
                world.do_step(&plan, step).await;
                world.do_step(&plan, step).await;
            }
            world.run(&later, plan.saga_id).await;
            let request = world.request(id).await;
            assert_eq!(request.status, RequestStatus::Completed, "{shape:?} {last}");
            // Late again, all of it, and by the process that thought it had it.
            for step in 1..=last {
                world.do_step(&plan, step).await;
            }
            world.run(&world.app, plan.saga_id).await;
            assert_eq!(world.request(id).await, request, "{shape:?} {last}");
        }
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn acceptances_and_releases_go_on_from_a_step_that_was_done_twice() {
    let world = World::new().await;
    let later = world.another(Duration::minutes(10));
    for done in [0, 1, 2] {
        let account = client(&world, world.alpha, 1_000_000).await;
        let mut input = from_client(&world, &account);
        input.deadline_at = Some(world.clock.now() + Duration::hours(1));
        let request = world.create(world.alpha, input).await;
        let plan = world.record_accept(request.id, world.beta).await;
        for _ in 0..done {
            world.do_step(&plan, 2).await;
        }
        world.run(&later, plan.saga_id).await;
        assert_eq!(
            world.request(request.id).await.status,
            RequestStatus::Accepted
        );
        assert_eq!(world.reserved(&account).await, 1_000_000);

        world.clock.advance(Duration::hours(2));
        let plan = world.record_expiry(request.id).await;
        for _ in 0..done {
            world.do_step(&plan, 1).await;
        }
        world.run(&later, plan.saga_id).await;
        assert_eq!(world.saga(plan.saga_id).await.status, SagaStatus::Completed);
        assert_eq!(world.reserved(&account).await, 0);
        world.run(&world.app, plan.saga_id).await;
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_processes_ten_minutes_apart_run_the_same_saga_at_once() {
    let world = World::new().await;
    let others = [
        world.another(Duration::minutes(10)),
        world.another(Duration::minutes(-10)),
    ];
    for shape in Shape::ALL {
        for _ in 0..3 {
            let (request, account) = shape.created(&world).await;
            if shape.reserves() && account.is_none() {
                let plan = world.record_accept(request.id, world.beta).await;
                join_all(others.iter().map(|app| world.run(app, plan.saga_id))).await;
                assert_eq!(world.saga(plan.saga_id).await.status, SagaStatus::Completed);
            } else {
                let accepted = world
                    .app
                    .network
                    .accept_request(&World::actor(world.beta), request.id, account)
                    .await;
                accepted.expect("is accepted");
            }
            let accepted = world.request(request.id).await;
            world.mark_sent(&accepted).await;
            let plan = world.record_confirm(request.id).await;
            join_all(others.iter().map(|app| world.run(app, plan.saga_id))).await;
            let status = world.request(request.id).await.status;
            assert_eq!(status, RequestStatus::Completed, "{shape:?}");
        }
    }
    assert_invariants(&world).await;
}
