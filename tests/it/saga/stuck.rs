//! Sagas that a person must look at.

use chrono::Duration;
use settlenet::domain::request::RequestStatus;
use settlenet::domain::saga::{Direction, SagaStatus};
use settlenet::runtime::failpoint;
use settlenet::services::saga::Waited;
use settlenet::stores::master::{self, alerts, sagas};

use super::shapes::Shape;
use crate::harness::{SOON, World, assert_invariants, hold_of, step_named};

async fn alerted(world: &World, saga_id: uuid::Uuid) -> bool {
    let alerts = alerts::list(&world.app.systems.master, true, None, 100).await;
    let subject = saga_id.to_string();
    let mut open = alerts.unwrap().into_iter();
    open.any(|alert| alert.kind == "saga_stuck" && alert.subject == subject)
}

#[tokio::test(flavor = "multi_thread")]
async fn sagas_that_wait_for_long_raise_one_alert_until_they_have_ended() {
    let world = World::new().await;
    let minute = std::time::Duration::from_mins(1);
    let open = async || {
        let alerts = world.app.alerts.list(true, None, 100).await.unwrap();
        let waiting = alerts
            .into_iter()
            .filter(|alert| alert.kind == "sagas_waiting");
        waiting.map(|alert| alert.message).collect::<Vec<_>>()
    };
    let [first, second] = [
        Shape::Plain.sent(&world).await,
        Shape::Plain.sent(&world).await,
    ];
    let plans = [
        world.record_confirm(first).await,
        world.record_confirm(second).await,
    ];
    world.app.alerts.watch_sagas(minute).await.unwrap();
    assert!(open().await.is_empty(), "they have only begun");

    world.clock.advance(Duration::minutes(2));
    for _ in 0..2 {
        world.app.alerts.watch_sagas(minute).await.unwrap();
        let [message] = &open().await[..] else {
            panic!("one alert, however often it is looked");
        };
        assert!(message.starts_with("2 sagas"), "{message}");
        assert!(message.contains(&plans[0].saga_id.to_string()), "{message}");
    }
    world.run_due(&world.app).await;
    world.app.alerts.watch_sagas(minute).await.unwrap();
    assert!(open().await.is_empty());

    // A saga that was given up and came to its end all the same.
    let [ended, _] = plans.map(|plan| plan.saga_id);
    let stuck = alerts::NewAlert {
        kind: sagas::STUCK_ALERT,
        subject: ended.to_string(),
        message: String::new(),
        details: serde_json::Value::Null,
    };
    let mut tx = master::begin(&world.app.systems.master).await.unwrap();
    let now = world.clock.now();
    alerts::raise(&mut tx, &stuck, now).await.unwrap();
    master::commit(tx).await.unwrap();
    assert!(alerted(&world, ended).await);
    world.app.alerts.watch_sagas(minute).await.unwrap();
    assert!(!alerted(&world, ended).await);
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_contradiction_in_the_ledger_waits_for_an_admin_who_may_take_it_back() {
    let world = World::new().await;
    let id = Shape::FromClient.sent(&world).await;
    let plan = world.record_confirm(id).await;
    let mut wrong = hold_of(&plan, plan.debt().expect("somebody owes"));
    wrong.amount += 1;
    world.app.systems.ledger.hold(&wrong).await.unwrap();

    world.run_due(&world.app).await;
    assert_eq!(world.saga(plan.saga_id).await.status, SagaStatus::Stuck);
    assert!(alerted(&world, plan.saga_id).await);
    let explained = world
        .app
        .engine
        .explain(plan.saga_id)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(explained.status, "stuck");
    let step = |name: &str| {
        explained
            .steps
            .iter()
            .find(|step| step.name == name)
            .unwrap()
    };
    assert_eq!(step("hold").shows["transfer"], "held");
    assert_eq!(step("hold").shows["amount"], "1000001");
    assert_eq!(step("post").shows["transfer"], "none");
    assert_eq!(step("debit").shows["book"][0]["outcome"], "done");
    assert!(explained.compensate_would.contains("voided"));

    // A stuck saga holds up no other.
    let other = Shape::Plain.sent(&world).await;
    world.confirm(other).await.expect("goes its way");

    assert!(world.app.engine.retry(plan.saga_id).await.unwrap());
    world.run_due(&world.app).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Stuck,
        "nothing has changed"
    );
    assert!(world.app.engine.compensate(plan.saga_id).await.unwrap());
    world.run_due(&world.app).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Compensated
    );
    assert!(
        !alerted(&world, plan.saga_id).await,
        "the alert is settled with it"
    );
    assert_eq!(world.request(id).await.status, RequestStatus::Sent);
    assert_invariants(&world).await;
    world.confirm(id).await.expect("a new saga");
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn past_its_pivot_a_stuck_saga_only_completes() {
    let world = World::new().await;
    let id = Shape::Plain.sent(&world).await;
    let plan = world.record_confirm(id).await;
    let server = |name: &'static str| {
        sqlx::query("UPDATE broker SET server_name = ? WHERE broker_id = ?")
            .bind(name)
            .bind(world.beta)
            .execute(&world.app.systems.master)
    };
    server("nowhere").await.unwrap();
    let worker = world.another(Duration::zero());
    world.run_due(&worker).await;
    let stuck = world.saga(plan.saga_id).await;
    assert_eq!(
        (stuck.status, stuck.direction),
        (SagaStatus::Stuck, Direction::Undecided)
    );
    let explained = worker.engine.explain(plan.saga_id).await.unwrap().unwrap();
    let credit = explained
        .steps
        .iter()
        .find(|step| step.name == "credit")
        .unwrap();
    assert!(credit.shows["unknown"].is_string(), "{credit:?}");
    let post = explained
        .steps
        .iter()
        .find(|step| step.name == "post")
        .unwrap();
    assert_eq!(post.shows["transfer"], "posted");

    assert!(worker.engine.compensate(plan.saga_id).await.unwrap());
    world.run_due(&worker).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Stuck,
        "it may not go back"
    );
    server("b").await.unwrap();
    assert!(worker.engine.retry(plan.saga_id).await.unwrap());
    world.run_due(&worker).await;
    assert_eq!(world.saga(plan.saga_id).await.status, SagaStatus::Completed);
    assert_eq!(world.request(id).await.status, RequestStatus::Completed);
    assert!(
        !alerted(&world, plan.saga_id).await,
        "the alert is settled with it"
    );
    assert!(
        !worker.engine.compensate(plan.saga_id).await.unwrap(),
        "it has ended"
    );
    assert!(
        !worker.engine.retry(plan.saga_id).await.unwrap(),
        "it has ended"
    );
    assert_invariants(&world).await;
}

/// A worker that had the saga before it got stuck may decide its direction afterwards; it must
/// stay within an admin's reach.
#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_saga_that_a_stale_worker_turns_back_can_still_be_retried() {
    let world = World::new().await;
    let id = Shape::NoDebt.sent(&world).await;
    let plan = world.record_confirm(id).await;
    let master = &world.app.systems.master;
    let now = world.clock.now();
    let lease = World::lease_of(&world.app);
    assert_eq!(
        sagas::claim(master, &lease, now, 10).await.unwrap(),
        [plan.saga_id]
    );
    let alert = alerts::NewAlert {
        kind: "saga_stuck",
        subject: plan.saga_id.to_string(),
        message: "a person must look".to_owned(),
        details: serde_json::json!({}),
    };
    let stuck = sagas::AfterFailure::Stuck(alert);
    assert!(
        sagas::fail(
            master,
            plan.saga_id,
            lease.token,
            true,
            "broken",
            &stuck,
            now
        )
        .await
        .unwrap()
    );
    let decided = sagas::decide(master, plan.saga_id, Direction::Back, None, now).await;
    assert_eq!(decided.unwrap(), Direction::Back);
    assert_invariants(&world).await;
    assert!(
        world.app.engine.retry(plan.saga_id).await.unwrap(),
        "it is stuck"
    );
    world.run_due(&world.app).await;
    assert_eq!(
        world.saga(plan.saga_id).await.status,
        SagaStatus::Compensated
    );
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tries_that_fail_by_themselves_are_counted_and_then_it_is_stuck() {
    let world = World::new().await;
    let id = Shape::ReceiverPays.sent(&world).await;
    let plan = world.record_confirm(id).await;
    // A row that the unique key of entries forbids: every append of the debit fails.
    let mut book = world.book_connection(world.alpha).await;
    sqlx::query("RENAME TABLE saga_step TO saga_step_away")
        .execute(&mut book)
        .await
        .unwrap();
    for tried in 1..=5_u32 {
        world.run_due(&world.app).await;
        let saga = world.saga(plan.saga_id).await;
        let expected = if tried < 5 {
            SagaStatus::Running
        } else {
            SagaStatus::Stuck
        };
        assert_eq!(saga.status, expected, "try {tried}");
        world.clock.advance(Duration::seconds(20));
    }
    assert!(alerted(&world, plan.saga_id).await);
    sqlx::query("RENAME TABLE saga_step_away TO saga_step")
        .execute(&mut book)
        .await
        .unwrap();
    world.app.engine.retry(plan.saga_id).await.unwrap();
    world.run_due(&world.app).await;
    assert_eq!(world.request(id).await.status, RequestStatus::Completed);
    let hold = step_named(&plan, "hold");
    world.do_step(&plan, hold).await;
    assert_invariants(&world).await;
}

/// One thread, so that this test alone decides about its failpoints.
#[tokio::test]
async fn who_waits_for_a_try_that_panicked_hears_how_the_saga_ended_elsewhere() {
    let world = World::new().await;
    let id = Shape::Plain.sent(&world).await;
    let plan = world.record_confirm(id).await;
    failpoint::watch(Some(Box::new(|place| match place {
        "confirm.hold.before" => std::panic::resume_unwind(Box::new("a crash")),
        _ => failpoint::Ask::GoOn,
    })));
    let tried = world
        .app
        .engine
        .take_on(plan.saga_id, World::lease_of(&world.app));
    assert!(tried.await.is_err_and(|error| error.is_panic()));
    failpoint::watch(None);
    world
        .run(&world.another(Duration::minutes(10)), plan.saga_id)
        .await;
    assert_ne!(
        world.app.engine.wait(plan.saga_id, SOON).await.unwrap(),
        Waited::Running
    );
    assert_invariants(&world).await;
}
