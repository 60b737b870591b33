use std::collections::BTreeMap;

use futures::future::join_all;
use settlenet::domain::ids::BrokerId;
use settlenet::domain::netting::certificate::{self, Format};
use settlenet::domain::netting_round::{Answer, PartyState, Refusal, Round, RoundStatus};
use settlenet::domain::pause::Pausable;
use settlenet::services::netting::NettingError;
use settlenet::stores::master;
use settlenet::stores::master::netting::lines;
use settlenet::stores::master::settlements::{self, Debts};
use sqlx::AssertSqlSafe;

use super::{
    answer, approve_all, asked, certified, debts, in_ledger, nets, network, owe, owed, parties,
    propose, reductions, settled_by,
};
use crate::harness::{World, assert_invariants};

/// Everybody owes the next one, the last the first: all of the smallest goes round. And a side
/// way between two.
fn ring(world: &World, amount: u64) -> Vec<(BrokerId, BrokerId, u64)> {
    let brokers = &world.brokers;
    let next = brokers.iter().skip(1).chain(brokers.first());
    let ring = brokers.iter().zip(next);
    let ring = (0..)
        .zip(ring)
        .map(|(n, (one, next))| (*one, *next, amount + n));
    ring.chain([(brokers[1], brokers[0], 40), (brokers[3], brokers[2], 30)])
        .collect()
}

fn status_of(outcome: Result<Round, NettingError>) -> RoundStatus {
    outcome.unwrap().status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_is_applied_when_all_have_approved() {
    let world = network().await;
    for pair in [(0, 1), (1, 2), (2, 0), (3, 4), (4, 3)] {
        let (one, other) = (world.brokers[pair.0], world.brokers[pair.1]);
        owe(&world, one, other, "100.00").await;
    }
    for number in 5..12 {
        let (one, other) = (world.brokers[number], world.brokers[5 + (number - 4) % 7]);
        owe(&world, one, other, "20.00").await;
    }
    world.clock.advance(chrono::Duration::seconds(1));
    owe(&world, world.brokers[0], world.brokers[1], "7.50").await;
    let (before, ledger) = (nets(&world).await, in_ledger(&world).await);
    assert_eq!(before, ledger);

    let round = propose(&world).await.unwrap();
    assert_eq!(round.status, RoundStatus::Proposed);
    assert_eq!(round.sums.cleared, 50_000 + 14_000);
    assert_eq!(round.sums.bilateral, 20_000);
    assert_eq!(round.sums.total, round.sums.bound + 750);
    assert_eq!(asked(&world, round.id).await, world.brokers);
    assert!(matches!(
        propose(&world).await,
        Err(NettingError::RoundOpen { id }) if id == round.id
    ));
    for (broker, last) in world.brokers.iter().zip((0..12).rev()) {
        assert_eq!(nets(&world).await, before);
        assert!(settled_by(&world, round.id).await.is_empty());
        for _ in 0..2 {
            let after = answer(&world, *broker, round.id, Answer::Approve).await;
            let expected = if last == 0 {
                RoundStatus::Applied
            } else {
                RoundStatus::Proposed
            };
            assert_eq!(after.status, expected);
        }
    }
    assert_eq!(settled_by(&world, round.id).await.len(), 12);
    assert_eq!(nets(&world).await, before);
    assert_eq!(in_ledger(&world).await, ledger);
    assert_eq!(owed(&world, world.brokers[0], world.brokers[1]).await, 750);
    assert_eq!(owed(&world, world.brokers[1], world.brokers[2]).await, 0);
    let verified = certified(&world, round.id, None).await;
    assert_eq!(verified.cleared, round.sums.cleared);
    assert_eq!(verified.root, round.sums.root);
    assert_invariants(&world).await;

    let (netting, actor) = (&world.app.netting, World::actor(world.alpha));
    let late = netting.answer(&actor, round.id, Answer::Decline).await;
    assert!(matches!(
        late,
        Err(NettingError::Round(Refusal::Status {
            status: RoundStatus::Applied
        }))
    ));
    // What is left does not go round.
    assert!(matches!(
        propose(&world).await,
        Err(NettingError::NothingClears { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_makes_it_smaller_and_approvals_stand() {
    let world = network().await;
    let brokers = world.brokers.clone();
    let mut all = ring(&world, 100);
    // A second way round that does not lead by the refuser.
    all.push((brokers[5], brokers[3], 60));
    debts(&world, &all).await;
    let before = nets(&world).await;
    let round = propose(&world).await.unwrap();
    let first = reductions(&world, round.id, 1).await;
    let refuser = brokers[8];
    for broker in asked(&world, round.id).await {
        if broker != refuser && broker != brokers[3] {
            answer(&world, broker, round.id, Answer::Approve).await;
        }
    }
    for _ in 0..2 {
        let after = answer(&world, refuser, round.id, Answer::Decline).await;
        assert_eq!((after.status, after.revision), (RoundStatus::Proposed, 2));
    }
    let second = reductions(&world, round.id, 2).await;
    assert!(!second.is_empty() && second.len() < first.len());
    for (id, reduction) in &second {
        assert!(*reduction <= first[id]);
    }
    let states: BTreeMap<BrokerId, PartyState> = parties(&world, round.id)
        .await
        .iter()
        .map(|party| (party.broker, party.state))
        .collect();
    assert_eq!(states[&refuser], PartyState::Declined);
    assert_eq!(states[&brokers[9]], PartyState::Dropped);
    assert_eq!(states[&brokers[4]], PartyState::Approved);
    assert_eq!(asked(&world, round.id).await, [brokers[3]]);
    assert!(matches!(
        world
            .app
            .netting
            .answer(&World::actor(brokers[9]), round.id, Answer::Approve)
            .await,
        Err(NettingError::Round(
            Refusal::Dropped | Refusal::Answered { .. }
        ))
    ));
    for revision in [1, 2] {
        certified(&world, round.id, Some(revision)).await;
    }
    let applied = answer(&world, brokers[3], round.id, Answer::Approve).await;
    assert_eq!(applied.status, RoundStatus::Applied);
    assert_eq!(nets(&world).await, before);
    let settled = settled_by(&world, round.id).await;
    let settled: BTreeMap<u64, u64> = settled
        .iter()
        .map(|part| (part.obligation.bits(), part.settled_amount))
        .collect();
    assert_eq!(settled, second);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_at_once_leave_what_nobody_has_refused() {
    let world = network().await;
    debts(&world, &ring(&world, 100)).await;
    let before = nets(&world).await;
    let round = propose(&world).await.unwrap();
    let parties = asked(&world, round.id).await;
    let netting = &world.app.netting;
    let outcomes = join_all(
        parties
            .iter()
            .enumerate()
            .map(|(number, broker)| async move {
                let said = if number % 3 == 2 {
                    Answer::Decline
                } else {
                    Answer::Approve
                };
                netting.answer(&World::actor(*broker), round.id, said).await
            }),
    )
    .await;
    for outcome in outcomes {
        match outcome {
            // Dropped or ended by what others have said meanwhile.
            Ok(_) | Err(NettingError::Round(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
    let left = approve_all(&world, round.id).await;
    // Only the two next to each other at the beginning are left, or nothing.
    assert!(
        matches!(left.status, RoundStatus::Applied | RoundStatus::Failed),
        "{}",
        left.status
    );
    assert_eq!(nets(&world).await, before);

    // Where everybody declines, nothing is left.
    let Ok(round) = propose(&world).await else {
        panic!("the ring is still there");
    };
    let mut last = round;
    while let Some(broker) = asked(&world, last.id).await.first() {
        last = answer(&world, *broker, last.id, Answer::Decline).await;
        if !last.status.is_open() {
            break;
        }
    }
    assert_eq!(last.status, RoundStatus::Failed);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_auto_approve_nobody_is_asked() {
    let world = network().await;
    debts(&world, &ring(&world, 100)).await;
    let before = nets(&world).await;
    let netting = &world.app.netting;
    for broker in &world.brokers[1..] {
        assert!(!netting.auto_approve(*broker).await.unwrap());
        netting
            .set_auto_approve(*broker, true, "US-1")
            .await
            .unwrap();
    }
    let round = propose(&world).await.unwrap();
    assert_eq!(asked(&world, round.id).await, [world.alpha]);
    let others = parties(&world, round.id).await;
    assert_eq!(others.iter().filter(|party| party.auto).count(), 11);
    let cancelled = netting.cancel_round(round.id, "US-1").await;
    assert_eq!(status_of(cancelled), RoundStatus::Cancelled);

    netting
        .set_auto_approve(world.alpha, true, "US-1")
        .await
        .unwrap();
    let round = propose(&world).await.unwrap();
    assert_eq!(round.status, RoundStatus::Applied);
    assert_eq!(nets(&world).await, before);
    let cancelled = netting.cancel_round(round.id, "US-1").await;
    assert!(matches!(
        cancelled,
        Err(NettingError::Round(Refusal::Status { .. }))
    ));
}

/// Between the proposal and the last approval a part of an obligation is promised to a settlement.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_reserved_meanwhile_is_left_alone() {
    let world = network().await;
    debts(&world, &ring(&world, 100)).await;
    let before = nets(&world).await;
    let round = propose(&world).await.unwrap();
    let (last, others) = (world.brokers[11], &world.brokers[..11]);
    for broker in others {
        answer(&world, *broker, round.id, Answer::Approve).await;
    }
    let debt = Debts {
        debtor: world.brokers[6],
        creditor: world.brokers[7],
        currency: world.currency.clone(),
    };
    let mut tx = master::begin(&world.app.systems.master).await.unwrap();
    let now = world.clock.now();
    settlements::reserve(&mut tx, "NR-00000000000a", &debt, None, 81, now)
        .await
        .unwrap()
        .unwrap();
    master::commit(tx).await.unwrap();
    // 106 were owed; 25 are free, so 25 go round instead of 100.
    let applied = answer(&world, last, round.id, Answer::Approve).await;
    assert_eq!(
        (applied.status, applied.revision),
        (RoundStatus::Applied, 2)
    );
    assert_eq!(owed(&world, debt.debtor, debt.creditor).await, 81);
    assert_eq!(
        owed(&world, world.brokers[8], world.brokers[9]).await,
        108 - 25
    );
    assert_eq!(nets(&world).await, before);
    let (one, two) = (
        reductions(&world, round.id, 1).await,
        reductions(&world, round.id, 2).await,
    );
    assert!(two.iter().all(|(id, reduction)| *reduction <= one[id]));
    certified(&world, round.id, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rounds_that_can_not_be() {
    let few = World::new().await;
    debts(&few, &ring(&few, 100)).await;
    assert!(matches!(
        propose(&few).await,
        Err(NettingError::TooFewBrokers {
            active: 4,
            needed: 10
        })
    ));
    drop(few);
    let world = network().await;
    debts(&world, &[(world.alpha, world.beta, 5)]).await;
    let nothing = propose(&world).await.unwrap_err().to_string();
    assert!(nothing.contains("0.05"), "{nothing}");
    debts(&world, &ring(&world, 100)).await;
    let (pauses, now) = (&world.app.pauses, world.clock.now());
    let currency = Pausable::Currency(world.currency.clone());
    for what in [Pausable::Network, currency] {
        pauses
            .pause(what.clone(), "a drill", "us", None, now)
            .await
            .unwrap();
        assert!(matches!(
            propose(&world).await,
            Err(NettingError::Hindered(_))
        ));
        pauses.resume(what, None, "us", now).await.unwrap();
    }
    // Whoever is paused is left out of it, and approves nothing.
    let round = propose(&world).await.unwrap();
    let what = Pausable::Broker(world.alpha);
    pauses
        .pause(what.clone(), "a drill", "us", None, now)
        .await
        .unwrap();
    let actor = World::actor(world.alpha);
    let approved = world
        .app
        .netting
        .answer(&actor, round.id, Answer::Approve)
        .await;
    assert!(matches!(approved, Err(NettingError::Hindered(_))));
    let netting = &world.app.netting;
    assert_eq!(netting.expire_rounds(10).await.unwrap(), 0);
    world.clock.advance(chrono::Duration::days(4));
    assert_eq!(netting.expire_rounds(10).await.unwrap(), 1);
    assert_eq!(
        netting.round(round.id).await.unwrap().status,
        RoundStatus::Expired
    );
    let smaller = propose(&world).await.unwrap();
    assert!(!asked(&world, smaller.id).await.contains(&world.alpha));
    pauses.resume(what, None, "us", now).await.unwrap();
}

/// Reductions that the master has changed are not in the root, and are not applied either.
#[tokio::test(flavor = "multi_thread")]
async fn reductions_that_do_not_add_up_are_not_applied() {
    let world = network().await;
    let (one, other) = (world.brokers[0], world.brokers[1]);
    let all = ring(&world, 100);
    debts(&world, &all).await;
    let before = nets(&world).await;
    let round = propose(&world).await.unwrap();
    let master = &world.app.systems.master;
    let set = |sign: &'static str, which: &'static str| {
        let change = format!(
            "UPDATE netting_line SET reduction = reduction {sign} 1
             WHERE round_id = {} AND reduction > 0 AND {which}",
            round.id.bits()
        );
        async move {
            let done = sqlx::query(AssertSqlSafe(change)).execute(master).await;
            assert!(done.unwrap().rows_affected() > 0, "{which}");
        }
    };
    let netting = &world.app.netting;
    let told = || async {
        let sql = "SELECT message FROM alert WHERE kind = 'netting_stuck' AND resolved_at IS NULL";
        let found: Vec<String> = sqlx::query_scalar(sql).fetch_all(master).await.unwrap();
        found
    };
    // One alone moves two brokers; all of them move nobody, and clear less.
    for (number, (which, why)) in [
        (
            "debtor_broker_id = (SELECT MIN(broker_id) FROM broker)",
            "net position",
        ),
        ("TRUE", "clear"),
    ]
    .into_iter()
    .enumerate()
    {
        set("-", which).await;
        if number == 0 {
            let last = approve_all(&world, round.id).await;
            assert_eq!(last.status, RoundStatus::Approved);
        }
        world.clock.advance(chrono::Duration::seconds(6));
        assert_eq!(netting.go_on(10).await.unwrap(), 1);
        let found = netting.round(round.id).await.unwrap();
        assert_eq!(found.status, RoundStatus::Approved);
        let told = told().await;
        assert!(
            matches!(&told[..], [message] if message.contains(why)),
            "{told:?}"
        );
        assert!(settled_by(&world, round.id).await.is_empty());
        assert_eq!(owed(&world, one, other).await, all[0].2);
        set("+", which).await;
    }
    world.clock.advance(chrono::Duration::seconds(6));
    assert_eq!(netting.go_on(10).await.unwrap(), 1);
    let found = netting.round(round.id).await.unwrap();
    assert_eq!(found.status, RoundStatus::Applied);
    assert!(told().await.is_empty());
    assert_eq!(nets(&world).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_preview_changes_nothing_and_says_what_a_broker_adds() {
    let world = network().await;
    debts(&world, &ring(&world, 100)).await;
    let code = world.currency.as_str();
    let netting = &world.app.netting;
    let (preview, joining) = netting.preview(code, Some(world.brokers[6])).await.unwrap();
    let joining = joining.unwrap();
    // Without one of the ring only the two ways back and forth are left.
    // Beside the ring there is room for two each between the third and the fourth.
    assert_eq!(preview.sums.cleared, 12 * 100 + 4);
    assert_eq!(joining.cleared_without, 2 * 40 + 2 * 30);
    assert_eq!(joining.adds, preview.sums.cleared - joining.cleared_without);
    assert_eq!(preview.sums.bilateral, 140);
    assert_eq!((preview.active, preview.needed), (12, 10));
    assert!(preview.sums.cleared <= preview.sums.bound);
    let round = propose(&world).await.unwrap();
    assert_eq!(round.sums, preview.sums);
    let parties = parties(&world, round.id).await.into_iter();
    let falls: BTreeMap<BrokerId, u128> = parties.map(|party| (party.broker, party.fall)).collect();
    assert_eq!(falls, preview.falls);
}

/// A round that was proposed before there was the present format keeps the root that was approved.
#[tokio::test(flavor = "multi_thread")]
async fn a_round_of_an_older_release_is_applied_and_certified_as_it_was_proposed() {
    let world = network().await;
    debts(&world, &ring(&world, 100)).await;
    let before = nets(&world).await;
    let round = propose(&world).await.unwrap();
    let master = &world.app.systems.master;
    let all = lines::all(master, (round.id, 1)).await.unwrap();
    let older = certificate::root(Format::V1, &all);
    assert_ne!(older, round.sums.root);
    sqlx::query("UPDATE netting_revision SET root = ? WHERE round_id = ?")
        .bind(older.0.to_vec())
        .bind(round.id.bits())
        .execute(master)
        .await
        .unwrap();
    let last = approve_all(&world, round.id).await;
    assert_eq!(last.status, RoundStatus::Applied);
    let verified = certified(&world, round.id, None).await;
    assert_eq!(verified.root, older);
    assert_eq!(verified.cleared, round.sums.cleared);
    let bytes = world.app.netting.certificate(round.id, None).await.unwrap();
    assert!(
        String::from_utf8(bytes)
            .unwrap()
            .contains(Format::V1.as_str())
    );
    assert_eq!(nets(&world).await, before);
}
