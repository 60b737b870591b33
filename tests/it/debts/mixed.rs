//! Repayments, nettings and new debts at once over the same obligations.

use futures::FutureExt as _;
use futures::future::{BoxFuture, join_all};
use settlenet::domain::netting_proposal::Act;
use settlenet::services::netting::{NettingError, NewProposal};
use settlenet::services::network::NetworkError;

use crate::harness::{World, assert_invariants};
use crate::saga::shapes::owing;

/// What became of one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Done,
    /// There was too little left, or others were faster.
    Refused,
}

fn of_network<T>(answer: Result<T, NetworkError>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(NetworkError::Short { .. } | NetworkError::Contended) => Outcome::Refused,
        Err(NetworkError::Store(error)) if error.is_transient() => Outcome::Refused,
        Err(other) => panic!("{other}"),
    }
}

fn of_netting<T>(answer: Result<T, NettingError>) -> Outcome {
    match answer {
        Ok(_) => Outcome::Done,
        Err(NettingError::NothingBetween { .. } | NettingError::Overtaken) => Outcome::Refused,
        Err(NettingError::Store(error)) if error.is_transient() => Outcome::Refused,
        Err(other) => panic!("{other}"),
    }
}

/// 64 at once: 16 acceptances of repayments, 16 confirmations of others, 16 approvals of nettings
/// and 16 confirmations that leave new debts, in both directions.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_over_the_same_debts() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    for number in 0..16 {
        owing(&world, alpha, beta).await;
        if number % 2 == 0 {
            owing(&world, beta, alpha).await;
        }
        world.clock.advance(chrono::Duration::seconds(1));
    }
    let mut work: Vec<BoxFuture<'static, Outcome>> = Vec::new();
    for number in 0..16 {
        let (debtor, creditor) = if number % 2 == 0 {
            (alpha, beta)
        } else {
            (beta, alpha)
        };
        let network = world.app.network.clone();
        let repay = world.create(debtor, world.repay(creditor, "7000.00")).await;
        let by = World::actor(creditor);
        let accept = async move { of_network(network.accept_request(&by, repay.id, None).await) };
        work.push(accept.boxed());

        let network = world.app.network.clone();
        let repay = world.create(debtor, world.repay(creditor, "100.00")).await;
        let by = World::actor(creditor);
        network.accept_request(&by, repay.id, None).await.unwrap();
        world.mark_sent(&world.request(repay.id).await).await;
        let confirm =
            async move { of_network(network.confirm_received(&by, repay.id, None).await) };
        work.push(confirm.boxed());

        let netting = world.app.netting.clone();
        let new = NewProposal {
            counterparty: creditor,
            currency_code: world.currency.to_string(),
            amount: Some("9000.00".to_owned()),
            expires_at: None,
        };
        let by = World::actor(debtor);
        let proposed = netting.propose_to(&by, World::intention(), new).await;
        let id = proposed.unwrap().id;
        let by = World::actor(creditor);
        let approve = async move { of_netting(netting.act_on(&by, id, Act::Approve).await) };
        work.push(approve.boxed());

        let network = world.app.network.clone();
        let id = world.sent(debtor, creditor).await;
        let by = World::actor(creditor);
        let confirm = async move { of_network(network.confirm_received(&by, id, None).await) };
        work.push(confirm.boxed());
    }
    assert_eq!(work.len(), 64);
    let outcomes = join_all(work.into_iter().map(tokio::spawn)).await;
    let done = outcomes
        .into_iter()
        .filter(|outcome| *outcome.as_ref().unwrap() == Outcome::Done)
        .count();
    assert!(done >= 33, "{done}: confirmations are never refused");
    assert_invariants(&world).await;
}
