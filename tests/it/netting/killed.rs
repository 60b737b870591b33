//! Processes killed around the last approval, the recomputation and the application.

use std::collections::BTreeMap;

use chrono::Duration;
use settlenet::domain::ids::{BrokerId, NettingRoundId};
use settlenet::domain::netting_proposal::Act;
use settlenet::domain::netting_round::{Answer, RoundStatus};
use settlenet::services::netting::NewProposal;

use super::{answer, asked, in_ledger, nets, owe, owed, propose, settled_by};
use crate::harness::{Child, Databases, MovedClock, SOON, World, assert_invariants, until};

/// Longer than a round is left to whoever has it.
const PAST_ALL_PATIENCE: Duration = Duration::seconds(6);

struct Case {
    world: World,
    clock: MovedClock,
}

impl Case {
    async fn new() -> Self {
        let clock = MovedClock::new();
        let (databases, ledger) = (Databases::new().await, World::shared_ledger().await);
        let own = clock.clock(Duration::zero());
        let world = World::on(databases, ledger, own, 6).await;
        Self { world, clock }
    }

    /// A round over three brokers, each of whom owes the next: 90 of each go round. One more owes
    /// and is owed beside it.
    async fn proposed(&self) -> (NettingRoundId, BTreeMap<BrokerId, i128>) {
        let world = &self.world;
        let (alpha, beta, gamma, delta) = (world.alpha, world.beta, world.gamma, world.delta);
        owe(world, alpha, beta, "0.90").await;
        owe(world, beta, gamma, "1.00").await;
        owe(world, gamma, alpha, "0.90").await;
        owe(world, delta, beta, "0.40").await;
        owe(world, beta, delta, "0.40").await;
        let round = propose(world).await.unwrap();
        assert_eq!(round.status, RoundStatus::Proposed);
        (round.id, nets(world).await)
    }

    /// All or nothing: what stands in the round's row is what its obligations say.
    async fn is_whole(&self, id: NettingRoundId, place: &str, before: &BTreeMap<BrokerId, i128>) {
        let world = &self.world;
        let round = world.app.netting.round(id).await.unwrap();
        let settled = settled_by(world, id).await;
        assert_eq!(
            round.status == RoundStatus::Applied,
            !settled.is_empty(),
            "{place}: {}",
            round.status
        );
        assert_eq!(&nets(world).await, before, "{place}");
        assert_eq!(&in_ledger(world).await, before, "{place}");
    }

    async fn worker_finishes(&self, id: NettingRoundId, place: &str) {
        let netting = &self.world.app.netting;
        until(place, SOON, async || {
            self.clock.advance(PAST_ALL_PATIENCE);
            netting.go_on(10).await.unwrap();
            let status = netting.round(id).await.unwrap().status;
            !matches!(status, RoundStatus::Approved | RoundStatus::Recomputing)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_is_applied_whole_whoever_dies() {
    let case = Case::new().await;
    let world = &case.world;
    for place in [
        "netting.answer.commit",
        "netting.answer.after",
        "netting.apply.before",
        "netting.apply.locked",
        "netting.apply.settled",
        "netting.apply.reduced",
        "netting.apply.commit",
        "netting.apply.after",
    ] {
        let (id, before) = case.proposed().await;
        let mut left = asked(world, id).await;
        let last = left.pop().unwrap();
        for broker in left {
            answer(world, broker, id, Answer::Approve).await;
        }
        let (what, told) = (format!("approve {last} {id}"), format!("{place}=kill"));
        let mut first = Child::acts(world, &case.clock, &what, &told);
        first.killed(place).await;
        case.is_whole(id, place, &before).await;
        let status = world.app.netting.round(id).await.unwrap().status;
        match place {
            "netting.answer.commit" => {
                assert_eq!(status, RoundStatus::Proposed, "{place}");
                let again = answer(world, last, id, Answer::Approve).await;
                assert_eq!(again.status, RoundStatus::Applied, "{place}");
            }
            "netting.apply.after" => assert_eq!(status, RoundStatus::Applied, "{place}"),
            _ => {
                assert_eq!(status, RoundStatus::Approved, "{place}");
                case.clock.advance(PAST_ALL_PATIENCE);
                let mut second = Child::worker(world, &case.clock, &told);
                if place.starts_with("netting.apply.") {
                    second.killed(place).await;
                    case.is_whole(id, place, &before).await;
                }
                drop(second);
            }
        }
        case.worker_finishes(id, place).await;
        let status = world.app.netting.round(id).await.unwrap().status;
        assert_eq!(status, RoundStatus::Applied, "{place}");
        case.is_whole(id, place, &before).await;
        assert_eq!(owed(world, world.alpha, world.beta).await, 0, "{place}");
    }
    assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_net_whole_or_not_at_all() {
    let case = Case::new().await;
    let world = &case.world;
    let (alpha, beta) = (world.alpha, world.beta);
    for (place, left) in [
        ("netting.net.locked", 700),
        ("netting.act_on.commit", 700),
        ("netting.act_on.after", 0),
    ] {
        owe(world, alpha, beta, "10.00").await;
        owe(world, beta, alpha, "7.00").await;
        let before = nets(world).await;
        let new = NewProposal {
            counterparty: beta,
            currency_code: world.currency.to_string(),
            amount: None,
            expires_at: None,
        };
        let netting = &world.app.netting;
        let actor = World::actor(alpha);
        let proposed = netting.propose_to(&actor, World::intention(), new).await;
        let id = proposed.unwrap().id;
        let told = format!("{place}=kill");
        let mut child = Child::acts(world, &case.clock, &format!("net {beta} {id}"), &told);
        child.killed(place).await;
        assert_eq!(owed(world, beta, alpha).await, left, "{place}");
        assert_eq!(settled_by(world, id).await.is_empty(), left > 0, "{place}");
        let again = netting.act_on(&World::actor(beta), id, Act::Approve).await;
        assert_eq!(again.unwrap().netted, Some(700), "{place}");
        assert_eq!(owed(world, beta, alpha).await, 0, "{place}");
        assert_eq!(nets(world).await, before, "{place}");
        assert_eq!(in_ledger(world).await, before, "{place}");
    }
    assert_eq!(owed(world, alpha, beta).await, 900);
    assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_smaller_round_is_worked_out_whoever_dies() {
    let case = Case::new().await;
    let world = &case.world;
    for place in [
        "netting.answer.after",
        "netting.recompute.commit",
        "netting.recompute.after",
    ] {
        let (id, before) = case.proposed().await;
        let what = format!("decline {} {id}", world.delta);
        let mut first = Child::acts(world, &case.clock, &what, &format!("{place}=kill"));
        first.killed(place).await;
        case.worker_finishes(id, place).await;
        let round = world.app.netting.round(id).await.unwrap();
        assert_eq!(
            (round.status, round.revision),
            (RoundStatus::Proposed, 2),
            "{place}"
        );
        assert!(!asked(world, id).await.contains(&world.delta), "{place}");
        for broker in asked(world, id).await {
            answer(world, broker, id, Answer::Approve).await;
        }
        let status = world.app.netting.round(id).await.unwrap().status;
        assert_eq!(status, RoundStatus::Applied, "{place}");
        case.is_whole(id, place, &before).await;
        assert_eq!(owed(world, world.alpha, world.beta).await, 0, "{place}");
    }
}
