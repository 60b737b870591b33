//! Reconciliation knows what proposals and rounds have settled.

use settlenet::domain::ids::{NettingProposalId, NettingRoundId};
use settlenet::domain::netting_proposal::{Act, ProposalStatus};
use settlenet::domain::netting_round::RoundStatus;
use settlenet::services::netting::NewProposal;
use sqlx::AssertSqlSafe;

use super::{approve_all, debts, network, propose};
use crate::harness::World;

/// What is found of settlements, as text; debts that only the master has are other findings.
async fn found(world: &World) -> Vec<String> {
    let report = world.app.reconcile.run(Some(1), &|_| {}).await.unwrap();
    let breaks = report.invariants[0].breaks.iter();
    breaks
        .filter(|one| !one.subject.starts_with("NR-000000000001"))
        .map(|one| format!("{}: {}", one.subject, one.what))
        .collect()
}

async fn run(world: &World, sql: String) {
    let done = sqlx::query(AssertSqlSafe(sql.clone()))
        .execute(&world.app.systems.master)
        .await;
    assert!(done.unwrap().rows_affected() > 0, "{sql}");
}

/// A change is found as `what`, and nothing is once it is taken back.
async fn finds(world: &World, change: &[String], back: &[String], what: &str) {
    for sql in change {
        run(world, sql.clone()).await;
    }
    let lines = found(world).await;
    assert!(
        lines.iter().any(|line| line.contains(what)),
        "{what}: {lines:?}"
    );
    for sql in back {
        run(world, sql.clone()).await;
    }
    assert!(found(world).await.is_empty(), "{what}");
}

/// Settles one of each direction under a name, so that each remainder is what its settlements say.
fn forged(subject: &str) -> ([String; 2], [String; 2]) {
    let settle = format!(
        "INSERT INTO obligation_settlement (subject, obligation_id, amount, settled_amount, status,
             created_at, closed_at)
         SELECT '{subject}', obligation_id, 10, 10, 'settled', NOW(6), NOW(6) FROM obligation
         WHERE status = 'active' AND amount IN (1001, 1002)"
    );
    let lower = |sign: char| {
        format!(
            "UPDATE obligation SET remaining_amount = remaining_amount {sign} 10
             WHERE amount IN (1001, 1002)"
        )
    };
    let forget = format!("DELETE FROM obligation_settlement WHERE subject = '{subject}'");
    ([settle, lower('-')], [forget, lower('+')])
}

/// A world with an applied proposal and an applied round, and a debt each way that is left.
async fn netted() -> (World, NettingProposalId, NettingRoundId) {
    let world = network().await;
    let (alpha, beta, gamma) = (world.alpha, world.beta, world.gamma);
    debts(&world, &[(alpha, beta, 700), (beta, alpha, 500)]).await;
    let new = NewProposal {
        counterparty: beta,
        currency_code: world.currency.to_string(),
        amount: None,
        expires_at: None,
    };
    let (netting, actor) = (&world.app.netting, World::actor(alpha));
    let proposed = netting.propose_to(&actor, World::intention(), new).await;
    let pair = proposed.unwrap().id;
    let applied = netting
        .act_on(&World::actor(beta), pair, Act::Approve)
        .await;
    assert_eq!(applied.unwrap().status, ProposalStatus::Applied);
    debts(&world, &[(beta, gamma, 300), (gamma, alpha, 300)]).await;
    let round = propose(&world).await.unwrap().id;
    assert_eq!(
        approve_all(&world, round).await.status,
        RoundStatus::Applied
    );
    debts(&world, &[(alpha, beta, 1_001), (beta, alpha, 1_002)]).await;
    assert!(found(&world).await.is_empty());
    (world, pair, round)
}

#[tokio::test(flavor = "multi_thread")]
async fn settlements_that_nothing_stands_for_are_found() {
    let (world, pair, round) = netted().await;
    // Nothing stands behind these; the remainders are what they say.
    for subject in ["NP-ffffffffffff", "MN-ffffffffffff", "NR-ffffffffffff", "x"] {
        let (change, back) = forged(subject);
        let what = format!("{subject}: has settled debts, and ");
        finds(&world, &change, &back, &what).await;
    }
    // More than was netted, and what the round does not reduce.
    for (subject, what) in [
        (
            pair.to_string(),
            "has settled 510 of the proposer's debts, 510 of",
        ),
        (round.to_string(), "takes nothing"),
    ] {
        let (change, back) = forged(&subject);
        finds(
            &world,
            &change,
            &[
                back[0].replace("subject", "amount = 10 AND subject"),
                back[1].clone(),
            ],
            what,
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_netted_is_what_proposals_and_rounds_say() {
    let (world, pair, round) = netted().await;
    let set = |table: &str, what: &str, of: String| format!("UPDATE {table} SET {what} WHERE {of}");
    let (of_pair, of_round) = (
        format!("proposal_id = {}", pair.bits()),
        format!("round_id = {}", round.bits()),
    );
    let of = |subject: &dyn std::fmt::Display| format!("subject = '{subject}'");
    let settlements = "obligation_settlement";
    for (change, back, what) in [
        // Not applied after all.
        (
            set("netting_proposal", "status = 'declined'", of_pair.clone()),
            set("netting_proposal", "status = 'applied'", of_pair.clone()),
            "was not applied",
        ),
        (
            set("netting_round", "status = 'failed'", of_round.clone()),
            set("netting_round", "status = 'applied'", of_round.clone()),
            "was not applied",
        ),
        // Other sums than the rows'.
        (
            set("netting_proposal", "netted = 499", of_pair.clone()),
            set("netting_proposal", "netted = 500", of_pair.clone()),
            "not 499 of each side",
        ),
        (
            set(
                "netting_revision",
                "cleared = cleared + 1",
                of_round.clone(),
            ),
            set(
                "netting_revision",
                "cleared = cleared - 1",
                of_round.clone(),
            ),
            "clears",
        ),
        (
            set(
                "netting_line",
                "reduction = reduction - 1",
                of_round.clone() + " AND reduction > 0",
            ),
            set(
                "netting_line",
                "reduction = reduction + 1",
                of_round.clone() + " AND reduction > 0",
            ),
            "has not settled so",
        ),
        // Applied, and without rows.
        (
            set(settlements, "subject = 'NR-000000000001'", of(&pair)),
            set(
                settlements,
                &of(&pair),
                "subject = 'NR-000000000001'".to_owned(),
            ),
            "has settled 0 of",
        ),
        (
            set(settlements, "subject = 'NR-000000000001'", of(&round)),
            set(
                settlements,
                &of(&round),
                "subject = 'NR-000000000001'".to_owned(),
            ),
            "has not settled so",
        ),
        (
            set(settlements, "status = 'released'", of(&pair)),
            set(settlements, "status = 'settled'", of(&pair)),
            "in part only",
        ),
    ] {
        finds(&world, &[change], &[back], what).await;
    }
}
