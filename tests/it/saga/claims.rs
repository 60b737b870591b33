//! How workers share sagas out.

use std::collections::BTreeSet;

use chrono::Duration;
use futures::future::join_all;
use settlenet::domain::plan::PAYLOAD_VERSION;
use settlenet::domain::request::RequestStatus;
use settlenet::stores::master::sagas::{self, AfterFailure};

use super::shapes::Shape;
use crate::harness::{World, assert_invariants};

#[tokio::test(flavor = "multi_thread")]
async fn no_saga_is_claimed_twice_and_a_lease_runs_out() {
    const SAGAS: usize = 40;
    let world = World::new().await;
    let mut ids = BTreeSet::new();
    for _ in 0..SAGAS {
        let request = Shape::Plain.sent(&world).await;
        ids.insert(world.record_confirm(request).await.saga_id);
    }
    let workers: Vec<_> = (0..4).map(|_| world.another(Duration::zero())).collect();
    let claims = workers.iter().map(|app| async {
        let mut mine = Vec::new();
        loop {
            let now = app.systems.clock.now();
            let lease = World::lease_of(app);
            let master = &app.systems.master;
            let claimed = sagas::claim(master, &lease, now, 3).await.unwrap();
            if claimed.is_empty() && mine.len() * 2 > SAGAS / workers.len() {
                return mine;
            }
            let none_left = claimed.is_empty();
            mine.extend(claimed);
            if none_left {
                return mine;
            }
        }
    });
    let claimed: Vec<_> = join_all(claims).await.into_iter().flatten().collect();
    assert_eq!(
        claimed.len(),
        claimed.iter().collect::<BTreeSet<_>>().len(),
        "twice"
    );
    let master = &world.app.systems.master;
    let lease = World::lease_of(&world.app);
    let now = world.clock.now();
    // Rows that another claim held locked were passed over; they are still there.
    let rest = sagas::claim(master, &lease, now, 100).await.unwrap();
    let all: BTreeSet<_> = claimed.iter().chain(&rest).copied().collect();
    assert_eq!(all, ids);
    assert_eq!(claimed.len() + rest.len(), SAGAS);

    let not_yet = lease.until - Duration::microseconds(1);
    assert!(
        sagas::claim(master, &lease, not_yet, 100)
            .await
            .unwrap()
            .is_empty()
    );
    let over = sagas::claim(master, &lease, lease.until, 100)
        .await
        .unwrap();
    assert_eq!(over.len(), SAGAS);
    for saga in ids {
        world.run(&world.app, saga).await;
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_word_of_a_worker_whose_lease_was_taken_over_counts_nothing() {
    let world = World::new().await;
    let id = Shape::Plain.sent(&world).await;
    let plan = world.record_confirm(id).await;
    let master = &world.app.systems.master;
    let now = world.clock.now();
    let stale = World::lease_of(&world.app);
    assert_eq!(
        sagas::claim(master, &stale, now, 10).await.unwrap(),
        [plan.saga_id]
    );
    let later = world.another(Duration::minutes(10));
    let fresh = World::lease_of(&later);
    let then = later.systems.clock.now();
    assert_eq!(
        sagas::claim(master, &fresh, then, 10).await.unwrap(),
        [plan.saga_id]
    );

    let before = sagas::show(master, plan.saga_id)
        .await
        .unwrap()
        .unwrap()
        .steps;
    let give_up = AfterFailure::RetryAt(now);
    let counted = sagas::fail(
        master,
        plan.saga_id,
        stale.token,
        true,
        "late",
        &give_up,
        now,
    )
    .await;
    assert!(!counted.unwrap());
    let after = sagas::show(master, plan.saga_id)
        .await
        .unwrap()
        .unwrap()
        .steps;
    assert_eq!(format!("{before:?}"), format!("{after:?}"));
    let counted = sagas::fail(
        master,
        plan.saga_id,
        fresh.token,
        true,
        "mine",
        &give_up,
        then,
    )
    .await;
    assert!(counted.unwrap());
    world.run(&later, plan.saga_id).await;
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payloads_of_a_newer_version_are_left_to_newer_workers() {
    let world = World::new().await;
    let newer = Shape::Plain.sent(&world).await;
    let known = Shape::Plain.sent(&world).await;
    let plan = world.record_confirm(newer).await;
    world.record_confirm(known).await;
    let version = |version: u16| {
        sqlx::query("UPDATE exchange_outbox SET payload_version = ? WHERE saga_id = ?")
            .bind(version)
            .bind(plan.saga_id)
            .execute(&world.app.systems.master)
    };
    version(PAYLOAD_VERSION + 1).await.unwrap();
    world.run_due(&world.app).await;
    assert_eq!(world.request(known).await.status, RequestStatus::Completed);
    assert_eq!(
        world.request(newer).await.saga_id,
        Some(plan.saga_id),
        "untouched"
    );
    assert!(world.entries_of(world.alpha, newer).await.is_empty());
    version(PAYLOAD_VERSION).await.unwrap();
    world.run_due(&world.app).await;
    assert_eq!(world.request(newer).await.status, RequestStatus::Completed);
    assert_invariants(&world).await;
}
