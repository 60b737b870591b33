//! Those who act in a dispute at the same moment: one of them is first, and the others find that out.

use chrono::Duration;
use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use settlenet::app::App;
use settlenet::config::Seconds;
use settlenet::domain::ids::RequestId;
use settlenet::domain::request::{CaseStatus, RequestStatus, Verdict};
use settlenet::domain::request_event::EventKind;
use settlenet::stores::master::requests;

use super::{ARBITER, OTHER, judgment};
use crate::harness::{World, assert_invariants};

const ROUNDS: usize = 6;

async fn kinds(world: &World, id: RequestId) -> Vec<EventKind> {
    let events = requests::events(&world.app.systems.master, id).await;
    events
        .unwrap()
        .iter()
        .map(|(event, _)| event.kind)
        .collect()
}

async fn count(world: &World, id: RequestId, kind: EventKind) -> usize {
    let kinds = kinds(world, id).await;
    kinds.iter().filter(|one| **one == kind).count()
}

fn default(app: &App) -> BoxFuture<'_, ()> {
    let done = app.network.go_on_with_disputes(100);
    done.map(|done| assert!(done.is_ok(), "{done:?}")).boxed()
}

/// Time runs out while the side answers, whoever opened it withdraws, and two workers look.
#[tokio::test(flavor = "multi_thread")]
async fn silence_ends_once() {
    let world = World::new().await;
    for round in 0..ROUNDS {
        let id = world.sent(world.alpha, world.beta).await;
        let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
        let network = &world.app.network;
        let opened = network.dispute_request(&beta, id, World::said("nothing came"));
        opened.await.unwrap();
        world.clock.advance(Duration::days(4));
        let other = world.another(Duration::zero());
        let answers = network.state(&alpha, id, World::said("here it is"));
        let takes_back = other.network.withdraw_dispute(&beta, id);
        let mut all: Vec<BoxFuture<'_, ()>> = vec![
            default(&world.app),
            default(&other),
            answers.map(drop).boxed(),
            takes_back.map(drop).boxed(),
        ];
        let turned = round % all.len();
        all.rotate_left(turned);
        join_all(all).await;
        let (decided, withdrawn) = (
            count(&world, id, EventKind::Decided).await,
            count(&world, id, EventKind::DisputeWithdrawn).await,
        );
        assert!(decided + withdrawn <= 1, "{:?}", kinds(&world, id).await);
        let status = world.request(id).await.status;
        match (decided, withdrawn) {
            (1, _) => assert_eq!(status, RequestStatus::Cancelled),
            (_, 1) => assert_eq!(status, RequestStatus::Sent),
            // The answer came first.
            _ => {
                assert_eq!(status, RequestStatus::Disputed);
                assert_eq!(count(&world, id, EventKind::DisputeStatement).await, 1);
            }
        }
        assert_invariants(&world).await;
    }
}

/// An arbiter decides while the side that he asked is late, and the same decision comes twice.
#[tokio::test(flavor = "multi_thread")]
async fn it_is_decided_once() {
    let world = World::new().await;
    for round in 0..ROUNDS {
        let id = world.sent(world.alpha, world.beta).await;
        world.confirm(id).await.unwrap();
        let network = &world.app.network;
        let alpha = World::actor(world.alpha);
        let opened = network.dispute_request(&alpha, id, World::said("counterfeit"));
        opened.await.unwrap();
        network.assign_dispute(ARBITER, id).await.unwrap();
        network
            .ask(ARBITER, id, world.beta, "which notes?")
            .await
            .unwrap();
        world.clock.advance(Duration::days(4));
        let other = world.another(Duration::zero());
        let less = judgment(Verdict::Adjust, Some("4000.00"));
        let none = judgment(Verdict::Cancel, None);
        let mut all: Vec<BoxFuture<'_, ()>> = vec![
            network.decide(ARBITER, id, &less).map(drop).boxed(),
            other.network.decide(ARBITER, id, &less).map(drop).boxed(),
            other.network.decide(ARBITER, id, &none).map(drop).boxed(),
            default(&world.app),
            default(&other),
        ];
        let turned = round % all.len();
        all.rotate_left(turned);
        join_all(all).await;
        assert_eq!(count(&world, id, EventKind::Decided).await, 1);
        let dispute = network.dispute(id).await.unwrap();
        assert_eq!(dispute.status, CaseStatus::Over);
        let booked = world.entries_of(world.beta, id).await;
        let expected: [&[i64]; 3] = [
            &[1_000_000],
            &[1_000_000, -600_000],
            &[1_000_000, -1_000_000],
        ];
        assert!(expected.contains(&&booked[..]), "{booked:?}");
        assert_invariants(&world).await;
    }
}

/// An appeal at the last moment, while workers find that the decision is final.
#[tokio::test(flavor = "multi_thread")]
async fn an_appeal_comes_before_the_end_or_too_late() {
    let mut world = World::new().await;
    world.config.network.appeal_window_s = Seconds(86_400);
    world.app = world.another_by(world.clock.clone());
    for round in 0..ROUNDS {
        let id = world.sent(world.alpha, world.beta).await;
        let network = world.app.network.clone();
        let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
        let opened = network.dispute_request(&beta, id, World::said("nothing came"));
        opened.await.unwrap();
        network.assign_dispute(ARBITER, id).await.unwrap();
        let cancel = judgment(Verdict::Cancel, None);
        network.decide(ARBITER, id, &cancel).await.unwrap();
        // The appellant's clock is behind the workers', who find it final.
        world.clock.advance(Duration::seconds(86_399));
        let ahead = world.another(Duration::seconds(2));
        let mut all: Vec<BoxFuture<'_, ()>> = vec![
            network
                .appeal(&alpha, id, World::said("here is the slip"))
                .map(drop)
                .boxed(),
            default(&ahead),
            default(&ahead),
        ];
        let turned = round % all.len();
        all.rotate_left(turned);
        join_all(all).await;
        let status = world.request(id).await.status;
        if count(&world, id, EventKind::Appealed).await == 1 {
            assert_eq!(status, RequestStatus::Disputed);
            network.assign_dispute(OTHER, id).await.unwrap();
            network
                .decide(OTHER, id, &judgment(Verdict::Complete, None))
                .await
                .unwrap();
            let once_more = network.appeal(&beta, id, World::said("no")).await;
            assert!(once_more.is_err(), "of an appeal there is none");
            ahead.network.go_on_with_disputes(10).await.unwrap();
            assert_eq!(world.request(id).await.status, RequestStatus::Completed);
        } else {
            assert_eq!(status, RequestStatus::Cancelled);
        }
        assert_invariants(&world).await;
    }
}
