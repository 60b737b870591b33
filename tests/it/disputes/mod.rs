//! Disputes from their opening to what a decision does, in the books and in the ledger.

mod killed;
mod races;

use chrono::Duration;
use settlenet::config::Seconds;
use settlenet::domain::ids::RequestId;
use settlenet::domain::request::{CaseStatus, Refusal, RequestStatus, Verdict};
use settlenet::services::network::{Judgment, NetworkError};

use crate::harness::{World, assert_invariants};
use crate::saga::Shape;
use crate::saga::shapes::client;

pub const ARBITER: &str = "US-00000000000a";
const OTHER: &str = "US-00000000000b";

pub fn judgment(verdict: Verdict, amount: Option<&str>) -> Judgment {
    Judgment {
        verdict,
        amount: amount.map(str::to_owned),
        reason: "the slip says so".to_owned(),
    }
}

/// Alpha disputes, an arbiter takes it and decides.
async fn decided(world: &World, id: RequestId, verdict: Verdict, amount: Option<&str>) {
    let network = &world.app.network;
    let alpha = World::actor(world.alpha);
    let opened = network
        .dispute_request(&alpha, id, World::said("not so"))
        .await;
    assert_eq!(opened.unwrap().request.status, RequestStatus::Disputed);
    network.assign_dispute(ARBITER, id).await.unwrap();
    network
        .decide(ARBITER, id, &judgment(verdict, amount))
        .await
        .unwrap();
    assert_eq!(network.dispute(id).await.unwrap().status, CaseStatus::Over);
}

pub async fn status(world: &World, id: RequestId) -> RequestStatus {
    world.request(id).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_completes_or_not_as_the_arbiter_decides() {
    let world = World::new().await;
    let complete = Shape::FromClient.sent(&world).await;
    decided(&world, complete, Verdict::Complete, None).await;
    assert_eq!(status(&world, complete).await, RequestStatus::Completed);
    assert_eq!(world.entries_of(world.beta, complete).await, [1_000_000]);

    let less = Shape::FromClient.sent(&world).await;
    decided(&world, less, Verdict::Adjust, Some("9000.00")).await;
    assert_eq!(status(&world, less).await, RequestStatus::Completed);
    assert_eq!(world.entries_of(world.beta, less).await, [900_000]);

    let none = Shape::FromClient.sent(&world).await;
    let account = world.request(none).await.author_account.unwrap();
    assert_eq!(world.reserved(&account).await, 1_000_000);
    decided(&world, none, Verdict::Cancel, None).await;
    assert_eq!(status(&world, none).await, RequestStatus::Cancelled);
    crate::harness::until("is released", crate::harness::SOON, async || {
        world.reserved(&account).await == 0
    })
    .await;
    assert_invariants(&world).await;
}

/// Of orders and settlements too: what they had been promised is booked, or given back.
#[tokio::test(flavor = "multi_thread")]
async fn orders_and_repayments_are_decided_too() {
    let world = World::new().await;
    for shape in [
        Shape::Collect,
        Shape::Payout,
        Shape::Settles,
        Shape::SettlesFromClient,
    ] {
        for verdict in [Verdict::Complete, Verdict::Cancel] {
            let id = shape.sent(&world).await;
            decided(&world, id, verdict, None).await;
            let end = match verdict {
                Verdict::Cancel => RequestStatus::Cancelled,
                Verdict::Complete | Verdict::Adjust => RequestStatus::Completed,
            };
            assert_eq!(status(&world, id).await, end, "{shape:?} {verdict}");
        }
    }
    crate::harness::until("all is released", crate::harness::SOON, async || {
        crate::harness::breaks(&world).await.is_empty()
    })
    .await;
}

/// Counterfeit notes: what has completed is corrected by new entries and a debt of its own.
#[tokio::test(flavor = "multi_thread")]
async fn what_has_completed_is_corrected_and_never_undone() {
    let world = World::new().await;
    let network = &world.app.network;
    for shape in [
        Shape::Plain,
        Shape::ReceiverPays,
        Shape::NoDebt,
        Shape::Collect,
        Shape::Payout,
        Shape::Settles,
    ] {
        for (verdict, amount, counts) in [
            (Verdict::Adjust, Some("4000.00"), 400_000_i64),
            (Verdict::Cancel, None, 0),
            (Verdict::Complete, None, -1),
        ] {
            let id = shape.sent(&world).await;
            world.confirm(id).await.unwrap();
            let before = world.entries_of(world.beta, id).await;
            decided(&world, id, verdict, amount).await;
            let entries = world.entries_of(world.beta, id).await;
            assert!(entries.starts_with(&before), "{shape:?}: new entries only");
            let request = world.request(id).await;
            match counts {
                -1 => assert_eq!(entries, before),
                0 => assert_eq!(entries.iter().sum::<i64>(), 0, "{shape:?} {entries:?}"),
                _ => assert_eq!(request.settled_amount().minor(), 400_000),
            }
            let again = network
                .dispute_request(&World::actor(world.beta), id, World::said("no"))
                .await;
            assert!(matches!(
                again,
                Err(NetworkError::Refused(Refusal::WrongStatus { .. }))
            ));
        }
        assert_invariants(&world).await;
    }
}

/// The client has spent what an arbiter takes back: the house stands in, and the books hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_correction_is_never_refused_for_want_of_a_clients_money() {
    let world = World::new().await;
    let client = client(&world, world.beta, 1).await;
    let mut input = world.send(Some(world.beta));
    input.counterpart_uid = Some(client.owner_ref.clone());
    let request = world.create(world.alpha, input).await;
    world.bring_to_sent(&request, world.beta).await;
    world.confirm(request.id).await.unwrap();
    world.set_floor(&client, 1_000_000_000).await;
    decided(&world, request.id, Verdict::Cancel, None).await;
    assert_eq!(status(&world, request.id).await, RequestStatus::Cancelled);
    assert_eq!(world.balance(&client).await, 1_000_001);
    world.set_floor(&client, 0).await;
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_silent_loses_and_a_dispute_can_be_taken_back() {
    let world = World::new().await;
    let network = &world.app.network;
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    // The sender says that the receiver won't confirm, and the receiver says nothing.
    let silent = world.sent(world.alpha, world.beta).await;
    network
        .dispute_request(&alpha, silent, World::said("it is there"))
        .await
        .unwrap();
    // The receiver says that nothing came, and the sender answers.
    let answered = world.sent(world.alpha, world.beta).await;
    network
        .dispute_request(&beta, answered, World::said("nothing came"))
        .await
        .unwrap();
    network
        .state(&alpha, answered, World::said("here is the slip"))
        .await
        .unwrap();
    let withdrawn = world.sent(world.alpha, world.beta).await;
    network
        .dispute_request(&beta, withdrawn, World::said("hm"))
        .await
        .unwrap();
    let theirs = network.withdraw_dispute(&alpha, withdrawn).await;
    assert!(matches!(
        theirs,
        Err(NetworkError::Refused(Refusal::NotYourMove { .. }))
    ));
    network.withdraw_dispute(&beta, withdrawn).await.unwrap();
    assert_eq!(status(&world, withdrawn).await, RequestStatus::Sent);

    assert_eq!(network.go_on_with_disputes(10).await.unwrap(), 0);
    world.clock.advance(Duration::days(4));
    network.go_on_with_disputes(10).await.unwrap();
    assert_eq!(status(&world, silent).await, RequestStatus::Completed);
    assert_eq!(status(&world, answered).await, RequestStatus::Disputed);
    // Asked for more, and silent now.
    network.assign_dispute(ARBITER, answered).await.unwrap();
    network
        .ask(ARBITER, answered, world.alpha, "which courier?")
        .await
        .unwrap();
    world.clock.advance(Duration::days(4));
    network.go_on_with_disputes(10).await.unwrap();
    assert_eq!(status(&world, answered).await, RequestStatus::Cancelled);
    world.confirm(withdrawn).await.unwrap();
    world.clock.advance(Duration::days(8));
    let late = network
        .dispute_request(&alpha, withdrawn, World::said("late"))
        .await;
    assert!(matches!(
        late,
        Err(NetworkError::Refused(Refusal::WrongStatus { .. }))
    ));
    assert_invariants(&world).await;
}

/// Nothing moves while a decision may be appealed, and another arbiter hears the appeal.
#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_appealed_once() {
    let mut world = World::new().await;
    world.config.network.appeal_window_s = Seconds(86_400);
    world.app = world.another_by(world.clock.clone());
    let network = world.app.network.clone();
    let (alpha, beta) = (World::actor(world.alpha), World::actor(world.beta));
    let id = Shape::FromClient.sent(&world).await;
    network
        .dispute_request(&beta, id, World::said("nothing came"))
        .await
        .unwrap();
    let not_taken = network
        .decide(ARBITER, id, &judgment(Verdict::Cancel, None))
        .await;
    assert!(matches!(
        not_taken,
        Err(NetworkError::Refused(Refusal::NotYourMove { .. }))
    ));
    network.assign_dispute(ARBITER, id).await.unwrap();
    let taken = network.assign_dispute(OTHER, id).await;
    assert!(matches!(
        taken,
        Err(NetworkError::Refused(Refusal::NotYourMove { .. }))
    ));
    network
        .decide(ARBITER, id, &judgment(Verdict::Cancel, None))
        .await
        .unwrap();
    assert_eq!(
        network.dispute(id).await.unwrap().status,
        CaseStatus::Decided
    );
    let late = network.state(&alpha, id, World::said("but")).await;
    assert!(matches!(late, Err(NetworkError::Refused(Refusal::Decided))));
    network
        .appeal(&alpha, id, World::said("here is the slip"))
        .await
        .unwrap();
    let same = network.assign_dispute(ARBITER, id).await;
    assert!(matches!(
        same,
        Err(NetworkError::Refused(Refusal::NotYourMove { .. }))
    ));
    network.assign_dispute(OTHER, id).await.unwrap();
    network
        .decide(OTHER, id, &judgment(Verdict::Complete, None))
        .await
        .unwrap();
    // Of an appeal there is none: it is final, and whoever comes first enforces it.
    network.go_on_with_disputes(10).await.unwrap();
    assert_eq!(status(&world, id).await, RequestStatus::Completed);
    let evidence = network.evidence(OTHER, id).await.unwrap();
    assert_eq!(evidence.entries.len(), 2);
    assert!(
        evidence
            .entries
            .iter()
            .all(|(_, of_book)| of_book.as_ref().unwrap().len() == 1)
    );
    assert_invariants(&world).await;
}
