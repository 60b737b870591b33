use futures::future::join_all;
use settlenet::app::App;
use settlenet::domain::ids::BrokerId;
use settlenet::domain::netting_proposal::{Act, Proposal, ProposalStatus, Refusal};
use settlenet::domain::pause::{Hindrance, Pausable};
use settlenet::domain::settlement::PartStatus;
use settlenet::runtime::Entropy;
use settlenet::services::netting::{NettingError, NewProposal};
use settlenet::stores::book;
use settlenet::stores::master::settlements::{self, Debts};
use settlenet::stores::master::{self, feed};

use super::{debts, in_ledger, nets, owe, owed, settled_by};
use crate::harness::{World, assert_invariants};

async fn proposed(
    world: &World,
    proposer: BrokerId,
    counterparty: BrokerId,
    amount: Option<&str>,
) -> Result<Proposal, NettingError> {
    let new = NewProposal {
        counterparty,
        currency_code: world.currency.to_string(),
        amount: amount.map(str::to_owned),
        expires_at: None,
    };
    let netting = &world.app.netting;
    netting
        .propose_to(&World::actor(proposer), World::intention(), new)
        .await
}

async fn act(
    world: &World,
    broker: BrokerId,
    proposal: &Proposal,
    act: Act,
) -> Result<Proposal, NettingError> {
    let netting = &world.app.netting;
    netting
        .act_on(&World::actor(broker), proposal.id, act)
        .await
}

/// Promises a part of a debt to a settlement.
async fn reserve(world: &World, debtor: BrokerId, creditor: BrokerId, amount: u64) {
    let debts = Debts {
        debtor,
        creditor,
        currency: world.currency.clone(),
    };
    let mut tx = master::begin(&world.app.systems.master).await.unwrap();
    let subject = format!("NR-{:012x}", rand::random::<u64>() >> 16);
    settlements::reserve(&mut tx, &subject, &debts, None, amount, world.clock.now())
        .await
        .unwrap()
        .unwrap();
    master::commit(tx).await.unwrap();
}

async fn heads(world: &World) -> Vec<String> {
    let mut heads = Vec::new();
    for broker in [world.alpha, world.beta] {
        let book = world.app.systems.router.book(broker).await.unwrap();
        let head = book::head(&mut book.read().await.unwrap()).await.unwrap();
        heads.push(format!("{head:?}"));
    }
    heads
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_against_seven_leaves_three() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    owe(&world, alpha, beta, "10000.00").await;
    owe(&world, beta, alpha, "4000.00").await;
    owe(&world, beta, alpha, "3000.00").await;
    let (books, ledger, before) = (
        heads(&world).await,
        in_ledger(&world).await,
        nets(&world).await,
    );
    assert_eq!(ledger, before);

    let proposal = proposed(&world, alpha, beta, None).await.unwrap();
    let both = world.app.netting.owed_both_ways(&proposal).await.unwrap();
    assert_eq!(both, Some(700_000));
    assert!(matches!(
        act(&world, alpha, &proposal, Act::Approve).await,
        Err(NettingError::Proposal(Refusal::NotYourMove))
    ));
    assert!(matches!(
        act(&world, world.gamma, &proposal, Act::Approve).await,
        Err(NettingError::Proposal(Refusal::NoParty))
    ));
    assert_eq!(owed(&world, alpha, beta).await, 1_000_000);
    for _ in 0..2 {
        let applied = act(&world, beta, &proposal, Act::Approve).await.unwrap();
        assert_eq!(applied.status, ProposalStatus::Applied);
        assert_eq!(applied.netted, Some(700_000));
    }
    assert_eq!(owed(&world, alpha, beta).await, 300_000);
    assert_eq!(owed(&world, beta, alpha).await, 0);
    for (who, what) in [(beta, Act::Decline), (alpha, Act::Cancel)] {
        let status = ProposalStatus::Applied;
        assert!(matches!(
            act(&world, who, &proposal, what).await,
            Err(NettingError::Proposal(Refusal::Status { status: found })) if found == status
        ));
    }

    let parts = settled_by(&world, proposal.id).await;
    assert_eq!(parts.len(), 3);
    assert!(parts.iter().all(|part| part.status == PartStatus::Settled));
    let sum: u64 = parts.iter().map(|part| part.settled_amount).sum();
    assert_eq!(sum, 1_400_000);
    assert_eq!(heads(&world).await, books);
    assert_eq!(in_ledger(&world).await, ledger);
    assert_eq!(nets(&world).await, before);
    assert_invariants(&world).await;

    let pool = &world.app.systems.master;
    while world.app.feeds.sequence(100).await.unwrap() > 0 {}
    for broker in [alpha, beta] {
        let events = feed::after(pool, broker, 0, 100).await.unwrap();
        let own = events
            .iter()
            .filter(|event| event.subject == proposal.id.to_string());
        let kinds: Vec<&str> = own.map(|event| event.kind.as_str()).collect();
        assert_eq!(
            kinds,
            ["netting_proposal.proposed", "netting_proposal.applied"]
        );
    }
    // Nothing is left on one side.
    let late = proposed(&world, beta, alpha, None).await.unwrap_err();
    let said = late.to_string();
    assert!(said.contains("3000.00") && said.contains("0.00"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bound_is_kept_and_what_is_reserved_is_left_alone() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    debts(
        &world,
        &[(alpha, beta, 1_000), (beta, alpha, 400), (beta, alpha, 300)],
    )
    .await;
    let bounded = proposed(&world, alpha, beta, Some("5.00")).await.unwrap();
    let applied = act(&world, beta, &bounded, Act::Approve).await.unwrap();
    assert_eq!(applied.netted, Some(500));
    assert_eq!(owed(&world, alpha, beta).await, 500);
    assert_eq!(owed(&world, beta, alpha).await, 200);
    // The older of two is settled, the newer in part.
    let parts = settled_by(&world, bounded.id).await;
    let mut amounts: Vec<u64> = parts.iter().map(|part| part.amount).collect();
    amounts.sort_unstable();
    assert_eq!(amounts, [100, 400, 500]);

    reserve(&world, beta, alpha, 150).await;
    let rest = proposed(&world, beta, alpha, None).await.unwrap();
    reserve(&world, alpha, beta, 480).await;
    let applied = act(&world, alpha, &rest, Act::Approve).await.unwrap();
    assert_eq!(applied.netted, Some(20));
    assert_eq!(owed(&world, alpha, beta).await, 480);
    assert_eq!(owed(&world, beta, alpha).await, 180);

    let none = proposed(&world, beta, alpha, None).await;
    assert!(matches!(none, Err(NettingError::NothingBetween { .. })));
    debts(&world, &[(alpha, beta, 50)]).await;
    let open = proposed(&world, beta, alpha, None).await.unwrap();
    reserve(&world, beta, alpha, 30).await;
    let nothing = act(&world, alpha, &open, Act::Approve).await;
    assert!(matches!(nothing, Err(NettingError::NothingBetween { .. })));
    let found = world.app.netting.proposal(alpha, open.id).await.unwrap();
    assert_eq!(found.status, ProposalStatus::Proposed);
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_at_once_never_net_a_unit_twice() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    let mut both_ways = Vec::new();
    for number in 0..200_u64 {
        both_ways.push((alpha, beta, 3 + number % 7));
        both_ways.push((beta, alpha, 1 + number % 5));
    }
    debts(&world, &both_ways).await;
    let before = nets(&world).await;
    let (owes, is_owed) = (
        owed(&world, alpha, beta).await,
        owed(&world, beta, alpha).await,
    );
    let process = || {
        let entropy = Entropy::seeded(rand::random());
        let ledger = world.app.systems.ledger.clone();
        App::on_ledger(&world.config, ledger, world.clock.clone(), entropy).unwrap()
    };
    let apps = [process(), process()];
    let mut proposals = Vec::new();
    for number in 0..64 {
        let (one, other) = if number % 2 == 0 {
            (alpha, beta)
        } else {
            (beta, alpha)
        };
        proposals.push(proposed(&world, one, other, Some("0.17")).await.unwrap());
    }
    let outcomes = join_all(proposals.iter().enumerate().map(|(number, proposal)| {
        let netting = &apps[number % apps.len()].netting;
        async move {
            let actor = World::actor(proposal.counterparty);
            netting.act_on(&actor, proposal.id, Act::Approve).await
        }
    }))
    .await;
    let mut netted = 0;
    for outcome in outcomes {
        match outcome {
            Ok(applied) => netted += applied.netted.unwrap(),
            Err(NettingError::NothingBetween { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
    // 64 × 17 are more than either side owes.
    assert_eq!(netted, is_owed.min(owes));
    assert_eq!(owed(&world, alpha, beta).await, owes - netted);
    assert_eq!(owed(&world, beta, alpha).await, is_owed - netted);
    assert_eq!(nets(&world).await, before);

    // And one proposal, by everybody at once.
    debts(&world, &[(beta, alpha, 40)]).await;
    let one = proposed(&world, alpha, beta, None).await.unwrap();
    let owes = owed(&world, alpha, beta).await;
    let outcomes = join_all((0..64).map(|number: usize| {
        let netting = &apps[number % apps.len()].netting;
        async move {
            let actor = World::actor(beta);
            netting.act_on(&actor, one.id, Act::Approve).await
        }
    }));
    for outcome in outcomes.await {
        assert_eq!(outcome.unwrap().netted, Some(40));
    }
    assert_eq!(owed(&world, alpha, beta).await, owes - 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn ends_other_than_approval_change_nothing() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    debts(&world, &[(alpha, beta, 1_000), (beta, alpha, 700)]).await;
    for (who, what) in [(beta, Act::Decline), (alpha, Act::Cancel)] {
        let proposal = proposed(&world, alpha, beta, None).await.unwrap();
        for _ in 0..2 {
            let ended = act(&world, who, &proposal, what).await.unwrap();
            assert_eq!(ended.status, what.end());
        }
        let late = act(&world, beta, &proposal, Act::Approve).await;
        assert!(matches!(
            late,
            Err(NettingError::Proposal(Refusal::Status { .. }))
        ));
    }
    let proposal = proposed(&world, alpha, beta, None).await.unwrap();
    assert_eq!(world.app.netting.expire_proposals(10).await.unwrap(), 0);
    world.clock.advance(chrono::Duration::days(8));
    let late = act(&world, beta, &proposal, Act::Approve).await;
    let status = ProposalStatus::Expired;
    assert!(matches!(
        late,
        Err(NettingError::Proposal(Refusal::Status { status: found })) if found == status
    ));
    assert_eq!(world.app.netting.expire_proposals(10).await.unwrap(), 1);
    let found = world.app.netting.proposal(beta, proposal.id).await.unwrap();
    assert_eq!(
        (found.status, found.ended_by.as_deref()),
        (status, Some("expiry"))
    );
    assert_eq!(owed(&world, alpha, beta).await, 1_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_netted_while_it_is_paused() {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    debts(&world, &[(alpha, beta, 1_000), (beta, alpha, 700)]).await;
    let open = proposed(&world, alpha, beta, None).await.unwrap();
    let pauses = &world.app.pauses;
    let now = world.clock.now();
    for what in [
        Pausable::Network,
        Pausable::Broker(alpha),
        Pausable::Broker(beta),
        Pausable::Currency(world.currency.clone()),
    ] {
        pauses
            .pause(what.clone(), "a drill", "us", None, now)
            .await
            .unwrap();
        let approved = act(&world, beta, &open, Act::Approve).await;
        let new = proposed(&world, alpha, beta, None).await;
        for outcome in [approved, new] {
            assert!(
                matches!(
                    outcome,
                    Err(NettingError::Hindered(Hindrance::Paused { .. }))
                ),
                "{what}: {outcome:?}"
            );
        }
        pauses.resume(what, None, "us", now).await.unwrap();
    }
    act(&world, beta, &open, Act::Approve).await.unwrap();
    assert_eq!(owed(&world, alpha, beta).await, 300);
}
