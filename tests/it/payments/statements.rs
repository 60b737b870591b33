//! What a provider's statement says is what we say, or is told.

use settlenet::domain::payment::IntentStatus;
use settlenet::services::payments::Verdict;

use super::Till;
use super::desk::Desk;
use super::sim::{Behaviour, Sim};
use crate::harness::{MovedClock, SOON, until};

/// Findings of invariant 5.
pub async fn found(till: &Till) -> Vec<String> {
    let report = till
        .world
        .app
        .reconcile
        .run(Some(5), &|_| {})
        .await
        .unwrap();
    let breaks = report.invariants[0].breaks.iter();
    breaks
        .map(|one| format!("{}: {}", one.subject, one.what))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_is_compared_both_ways() {
    let clock = MovedClock::new();
    let till = Till::by(clock.clock(chrono::Duration::zero()), Desk::default()).await;
    till.fund(1_000_000).await;
    let sim = Sim::start(Behaviour::default()).await;
    let worker = sim.worker(&till, &clock, "");
    let mut ids = Vec::new();
    for minor in [10_000, 20_000, 30_000] {
        ids.push(till.create(till.payout(minor)).await);
    }
    until("they are paid", SOON, async || {
        let mut all = true;
        for id in &ids {
            all &= till.status(*id).await == IntentStatus::Completed;
        }
        all
    })
    .await;
    drop(worker);
    let reconcile = &till.world.app.reconcile;
    let statement = sim.statement().await;
    assert_eq!(statement.lines().count(), 4, "{statement}");
    for _ in 0..2 {
        let taken = reconcile
            .take_statement(statement.as_bytes())
            .await
            .unwrap();
        assert_eq!(taken.into_values().collect::<Vec<_>>(), [3]);
        assert_eq!(found(&till).await, Vec::<String>::new());
    }

    // A line too much, one with another sum, and one paid twice.
    let uid = ids[0].to_string();
    let line = |uid: &str, response: &str, amount: &str| {
        let currency = &till.currency.code;
        format!("IPPS,{uid},,{response},{currency},{amount},0,20260101,2026-01-01T00:00:00Z,paid\n")
    };
    let header = format!("{}\n", statement.lines().next().unwrap());
    let own = statement.lines().find(|line| line.contains(&uid)).unwrap();
    let own_id = own.split(',').nth(3).unwrap();
    for (extra, says) in [
        (line("nobody", "r1", "1.00"), "we know no such payment"),
        (line(&uid, own_id, "999.00"), "and we have 10000"),
        (line(&uid, "another", "100.00"), "it was paid 2 times"),
    ] {
        sqlx::query("DELETE FROM pm.psp_statement_entry")
            .execute(&till.pm)
            .await
            .unwrap();
        let with = format!("{statement}{extra}");
        reconcile.take_statement(with.as_bytes()).await.unwrap();
        let found = found(&till).await;
        assert!(
            found.iter().any(|one| one.contains(says)),
            "{says}: {found:?}"
        );
    }

    // One that is missing, of a time that the statement covers.
    sqlx::query("DELETE FROM pm.psp_statement_entry")
        .execute(&till.pm)
        .await
        .unwrap();
    let covers = |at: &str| line("nobody", at, "1.00").replace("2026-01-01T00:00:00Z", at);
    let without = format!(
        "{header}{}{}",
        covers("2020-01-01T00:00:00Z"),
        covers("2099-01-01T00:00:00Z")
    );
    reconcile.take_statement(without.as_bytes()).await.unwrap();
    let missing = found(&till).await;
    let missing = missing
        .iter()
        .filter(|one| one.contains("no statement of IPPS has it"));
    assert_eq!(missing.count(), 3);

    // What is no statement is not taken in, not in part either.
    sqlx::query("DELETE FROM pm.psp_statement_entry")
        .execute(&till.pm)
        .await
        .unwrap();
    for (bad, says) in [
        (line("u", "r", "1.001"), "line 3: amount"),
        (line("", "r", "1.00"), "line 3: uid"),
        (
            line("u", "r", "1.00").replace(till.currency.code.as_str(), "XXX"),
            "none of ours",
        ),
        (line("u", "r", "1.00").replace("paid\n", "maybe\n"), "maybe"),
        (line("u", "r", "1.00").replace("IPPS", "BANK"), "BANK"),
        ("\u{0}\n".to_owned(), "record"),
        (
            line("u", "r", "1.00").replace("2026-01-01T00:00:00Z", "-200000-01-01T00:00:00Z"),
            "line 3: paid_at",
        ),
    ] {
        let text = format!("{header}{}{bad}", line("first", "r", "1.00"));
        let error = reconcile.take_statement(text.as_bytes()).await.unwrap_err();
        let told = format!("{error:#}");
        assert!(told.contains(says), "{says}: {told}");
    }
    let kept: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM pm.psp_statement_entry")
        .fetch_one(&till.pm)
        .await
        .unwrap();
    assert_eq!(kept, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_review_that_was_resolved_wrongly_is_found_by_the_statement() {
    let clock = MovedClock::new();
    let till = Till::by(clock.clock(chrono::Duration::zero()), Desk::default()).await;
    till.fund(1_000_000).await;
    // It pays, the worker dies before it could hear of it, and then it does not know.
    let sim = Sim::start(Behaviour {
        faults: "unknown=100,unknown_asks=50",
        ..Behaviour::default()
    })
    .await;
    let place = "psp.answered.payment";
    let mut dying = sim.worker(&till, &clock, &format!("{place}=kill"));
    let id = till.create(till.payout(10_000)).await;
    dying.killed(place).await;
    clock.advance(super::PAST_ALL);
    let worker = sim.worker(&till, &clock, "");
    until("it is a person's", SOON, async || {
        till.status(id).await == IntentStatus::ManualReview
    })
    .await;
    drop(worker);
    let reconcile = &till.world.app.reconcile;
    let statement = sim.statement().await;
    reconcile
        .take_statement(statement.as_bytes())
        .await
        .unwrap();
    let open = found(&till).await;
    assert!(open[0].contains("its review is not resolved"), "{open:?}");
    till.payments
        .resolve(id, &super::finding(Verdict::Failed))
        .await
        .unwrap();
    till.settle_outbox().await;
    let wrong = found(&till).await;
    assert!(wrong[0].contains("gave the money back"), "{wrong:?}");
}

/// Without names of their own, two lines of one file are two payments, and those of two files one.
#[tokio::test(flavor = "multi_thread")]
async fn lines_without_a_name_are_counted_in_their_own_file() {
    let till = Till::new().await;
    till.fund(1_000_000).await;
    let id = till.create(till.payout(10_000)).await;
    till.settle().await;
    let line = |response: &str| {
        let currency = &till.currency.code;
        format!("IPPS,{id},{response},{currency},100.00,2026-01-01T00:00:00Z,paid\n")
    };
    let taken = async |lines: &[String]| {
        let text = format!(
            "provider,uid,response_id,currency,amount,paid_at,status\n{}",
            lines.concat()
        );
        let reconcile = &till.world.app.reconcile;
        let counts = reconcile.take_statement(text.as_bytes()).await.unwrap();
        assert_eq!(counts.into_values().collect::<Vec<_>>(), [lines.len()]);
        found(&till).await
    };
    let none = Vec::<String>::new();
    assert_eq!(taken(&[line("")]).await, none);
    assert_eq!(taken(&[line(&format!("R-{id}"))]).await, none);
    assert_eq!(taken(&[line("")]).await, none, "once more");
    let twice = taken(&[line(""), line("")]).await;
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert!(twice[0].contains("it was paid 2 times"), "{twice:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_without_the_columns_of_a_statement_is_none() {
    let till = Till::new().await;
    let reconcile = &till.world.app.reconcile;
    for text in ["", "x", "provider,uid,currency\n", "\n\n"] {
        let taken = reconcile.take_statement(text.as_bytes()).await;
        let told = format!("{:#}", taken.unwrap_err());
        assert!(told.contains("lacks the columns"), "{text:?}: {told}");
    }
    let bare = "status,paid_at,amount,currency,uid,provider\n";
    let taken = reconcile.take_statement(bare.as_bytes()).await;
    assert!(taken.unwrap().is_empty());
}
