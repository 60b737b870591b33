//! What a person may say of a payment, and what is refused: nobody is credited, or posted, by what
//! is another's.

use std::time::Duration;

use serde_json::json;
use settlenet::domain::money::Amount;
use settlenet::domain::payment::incoming::IncomingStatus;
use settlenet::domain::payment::{IntentStatus, PspName, PspState};
use settlenet::psp::Registry;
use settlenet::services::payments::{Finding, NewWallet, Verdict};
use uuid::Uuid;

use super::incoming::{AMOUNT, Stall};
use super::{Till, finding, meant, state_of, through};

fn by(payment: &str) -> Finding<'_> {
    Finding {
        payment_id: Some(payment),
        ..finding(Verdict::Confirmed)
    }
}

/// As it is where a provider has left it in doubt.
async fn in_review(till: &Till, id: Uuid, why: &str) {
    for sql in [
        "UPDATE pm.psp_tx_map SET state = 'MANUAL_REVIEW', last_error = $2, response_id = NULL,
             leased_by = NULL, leased_at = NULL WHERE intent_id = $1",
        "UPDATE pm.intent SET status = 'manual_review', reason = $2 WHERE id = $1",
        "DELETE FROM pm.outbox_event WHERE intent_id = $1 AND action = 'post_pending'
             AND $2::text IS NOT NULL",
    ] {
        let done = sqlx::query(sql).bind(id).bind(why);
        done.execute(&till.pm).await.unwrap();
    }
}

async fn resolved(till: &Till, id: Uuid) -> String {
    let state = sqlx::query_scalar("SELECT state FROM pm.psp_tx_map WHERE intent_id = $1");
    state.bind(id).fetch_one(&till.pm).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_payment_of_another_payout_confirms_nothing() {
    let till = Till::new().await;
    till.fund(1_000_000).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(till.create(till.payout(10_000)).await);
    }
    till.settle().await;
    let [paid, second, third] = ids.try_into().unwrap();
    for id in [second, third] {
        in_review(&till, id, "unknown_to_provider").await;
    }
    let of_paid = format!("R-{paid}");
    let refused = till.payments.resolve(second, &by(&of_paid)).await;
    assert_eq!(state_of(refused), "payment taken");
    // Nor one that the provider's statement has as another's.
    let currency = &till.currency.code;
    let statement = format!(
        "provider,uid,response_id,currency,amount,paid_at,status\n\
         IPPS,somebody,P7,{currency},100.00,2026-03-01T00:00:00Z,paid\n"
    );
    let reconcile = &till.world.app.reconcile;
    reconcile
        .take_statement(statement.as_bytes())
        .await
        .unwrap();
    let refused = till.payments.resolve(second, &by("P7")).await;
    assert_eq!(state_of(refused), "payment_id");
    // Two people at once: one of them is right.
    let said = by("P1");
    let (one, other) = tokio::join!(
        till.payments.resolve(second, &said),
        till.payments.resolve(third, &said)
    );
    let (confirmed, refused) = if one.is_ok() {
        (second, state_of(other))
    } else {
        (third, state_of(one))
    };
    assert_eq!(refused, "payment taken");
    assert_eq!(resolved(&till, confirmed).await, "CONFIRMED");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_top_up_is_confirmed_by_its_own_payment_of_its_own_amount() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let (till, payments) = (&stall.till, &stall.payments);
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(stall.ask().await);
    }
    stall.settle().await;
    for id in &ids {
        in_review(till, *id, "answer_not_understood").await;
    }
    let [own, other, less, listed, raced] = ids.try_into().unwrap();
    let name = |of: &str| format!("{of}-{}", Uuid::new_v4());
    let payment = name("P1");
    let told = stall.tell(&stall.word(&own.to_string(), &payment)).await;
    assert_eq!(told.unwrap().status, IncomingStatus::Waiting);
    let refused = payments.resolve(other, &by(&payment)).await;
    assert_eq!(state_of(refused), "payment_id");
    payments.resolve(own, &by(&payment)).await.unwrap();
    let refused = payments.resolve(other, &by(&payment)).await;
    assert_eq!(state_of(refused), "payment taken");

    // Something else came in than was asked for, by its word or by its statement.
    let of_less = name("P2");
    let mut word = stall.word(&less.to_string(), &of_less);
    word["amount"] = json!("1.00");
    stall.tell(&word).await.unwrap();
    let seen = payments.evidence(less).await.unwrap();
    assert_eq!((seen.incoming.len(), seen.incoming[0].amount), (1, 100));
    let unnamed = finding(Verdict::Confirmed);
    for said in [&unnamed, &by(&of_less), &by("never-heard-of")] {
        let refused = payments.resolve(less, said).await;
        assert_eq!(state_of(refused), "verdict");
    }
    let row = payments.evidence(listed).await.unwrap().psp;
    let (uid, currency) = (row.query_rq_uid.unwrap(), &till.currency.code);
    let statement = format!(
        "provider,uid,response_id,currency,amount,paid_at,status\n\
         QP,{uid},,{currency},2.00,2026-03-01T00:00:00Z,paid\n"
    );
    let reconcile = &till.world.app.reconcile;
    reconcile
        .take_statement(statement.as_bytes())
        .await
        .unwrap();
    assert_eq!(payments.evidence(listed).await.unwrap().lines.len(), 1);
    let refused = payments.resolve(listed, &unnamed).await;
    assert_eq!(state_of(refused), "verdict");

    // What is found out while somebody resolves it counts.
    let mut tx = till.pm.begin().await.unwrap();
    let sql = "UPDATE pm.psp_tx_map SET last_error = 'paid_another_amount' WHERE intent_id = $1";
    let found = sqlx::query(sql).bind(raced);
    found.execute(&mut *tx).await.unwrap();
    let resolving = payments.resolve(raced, &unnamed);
    let finding_out = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        tx.commit().await.unwrap();
    };
    let (refused, ()) = tokio::join!(resolving, finding_out);
    assert_eq!(state_of(refused), "verdict");
    stall.settle().await;
    assert_eq!(till.wallet().await.posted(), i128::from(AMOUNT));
}

/// A provider that gives one name to two payments is asked by a person.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_another_intent_has_leaves_a_payment_to_a_person() {
    let till = Till::new().await;
    till.fund(1_000_000).await;
    let first = till.create(till.payout(10_000)).await;
    till.settle().await;
    let second = till.create(till.payout(10_000)).await;
    let sql = "UPDATE pm.psp_tx_map SET response_id = $1 WHERE intent_id = $2";
    let named = sqlx::query(sql).bind(format!("R-{second}")).bind(first);
    named.execute(&till.pm).await.unwrap();
    till.settle().await;
    assert_eq!(till.status(second).await, IntentStatus::ManualReview);
    let row = till.payments.evidence(second).await.unwrap().psp;
    assert_eq!(row.last_error.as_deref(), Some("payment_of_another_intent"));
    assert_eq!(row.facts.response_id, None);
}

/// The word comes after the verdict.
#[tokio::test(flavor = "multi_thread")]
async fn a_word_that_is_not_what_was_credited_moves_nothing_and_is_told_of() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let (till, payments) = (&stall.till, &stall.payments);
    let (id, over) = (stall.ask().await, stall.ask().await);
    stall.settle().await;
    for id in [id, over] {
        in_review(till, id, "answer_not_understood").await;
    }
    let payment = format!("P-{}", Uuid::new_v4());
    payments.resolve(id, &by(&payment)).await.unwrap();
    let failed = finding(Verdict::Failed);
    payments.resolve(over, &failed).await.unwrap();
    stall.until(id, IntentStatus::Completed).await;
    let mut word = stall.word(&id.to_string(), &payment);
    word["amount"] = json!("1.00");
    let kept = stall.tell(&word).await.unwrap();
    stall.settle().await;
    assert_eq!(stall.suspense().await, 0);
    assert_eq!(till.wallet().await.posted(), i128::from(AMOUNT));
    let alerts = async || till.alerts("payment_contradicts").await;
    assert_eq!(alerts().await, [kept.id.to_string()]);
    let open = payments.incoming(None, 10).await.unwrap();
    assert!(open[0].disputed_at.is_some(), "{open:?}");
    let wrong = super::statements::found(till).await;
    assert!(
        wrong
            .iter()
            .any(|one| one.contains("not what was credited"))
    );
    for alert in till.world.app.alerts.list(true, None, 10).await.unwrap() {
        till.world.app.alerts.resolve(alert.alert_id).await.unwrap();
    }
    payments.engine().remind(10).await.unwrap();
    assert_eq!(alerts().await, [kept.id.to_string()]);
}

/// What one top-up was confirmed by is nobody else's, for whom ever it is told to be.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_credited_is_not_given_to_somebody_else() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let (till, payments) = (&stall.till, &stall.payments);
    let (id, over) = (stall.ask().await, stall.ask().await);
    stall.settle().await;
    for id in [id, over] {
        in_review(till, id, "answer_not_understood").await;
    }
    let payment = format!("P-{}", Uuid::new_v4());
    payments.resolve(id, &by(&payment)).await.unwrap();
    let failed = finding(Verdict::Failed);
    payments.resolve(over, &failed).await.unwrap();
    stall.settle().await;
    let told = stall.tell(&stall.word("nobody", &payment)).await.unwrap();
    assert_eq!(told.status, IncomingStatus::Unknown);
    let given = payments
        .assign(told.id, &till.wallet, "theirs", "US-1")
        .await;
    assert_eq!(state_of(given), "payment taken");
    sqlx::query("DELETE FROM pm.psp_incoming")
        .execute(&till.pm)
        .await
        .unwrap();
    let word = stall.word(&over.to_string(), &payment);
    let told = stall.tell(&word).await.unwrap();
    stall.settle().await;
    assert_eq!(stall.suspense().await, 0);
    assert_eq!(
        till.alerts("payment_contradicts").await,
        [told.id.to_string()]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_funds_once_whoever_says_it() {
    let till = Till::new().await;
    let amount = |minor| Amount::from_minor(minor).unwrap();
    let fund = async |minor, key: &str, by: &str| {
        let funded = till.payments.fund(&till.wallet, amount(minor), key, by);
        funded.await
    };
    let key = meant().key;
    for by in ["cli:ann", "cli:bob", "US-1"] {
        fund(5_000, &key, by).await.unwrap();
    }
    assert_eq!(till.wallet().await.posted(), 5_000);
    assert_eq!(state_of(fund(5_001, &key, "cli:ann").await), "key");
    for bad in ["", "a b", &"x".repeat(129)] {
        assert_eq!(state_of(fund(1, bad, "cli:ann").await), "key");
    }
    let made_by: Option<String> =
        sqlx::query_scalar("SELECT made_by FROM pm.idempotency_key WHERE idempotency_key = $1")
            .bind(&key)
            .fetch_one(&till.pm)
            .await
            .unwrap();
    assert_eq!(made_by.as_deref(), Some("cli:ann"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_at_the_provider_is_one_brokers() {
    let till = Till::new().await;
    let open = async |broker| {
        let new = NewWallet {
            partner: None,
            currency: till.currency.clone(),
            ipps_wallet_id: Some("W-1".to_owned()),
        };
        till.payments.open_wallet(broker, new).await
    };
    open(till.world.alpha).await.unwrap();
    assert_eq!(state_of(open(till.world.beta).await), "sender taken");
}

/// Whoever resolves it has not the provider; those who watch have.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_confirmed_without_the_provider_is_watched_all_the_same() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let id = till.create(till.payout(10_000)).await;
    till.settle().await;
    in_review(&till, id, "unknown_to_provider").await;
    for sql in [
        "UPDATE pm.psp_tx_map SET psp_name = 'WISE'",
        "UPDATE pm.intent SET channel = 'WISE'",
    ] {
        sqlx::query(sql).execute(&till.pm).await.unwrap();
    }
    let clock = till.world.clock.clone();
    let bare = through(&till.world, &till.pm, Registry::default(), clock);
    let resolved = bare.resolve(id, &finding(Verdict::Confirmed)).await;
    assert_eq!(resolved.unwrap().psp.state, PspState::Confirmed);
    let watched: Vec<String> = sqlx::query_scalar("SELECT psp_name FROM pm.psp_watch")
        .fetch_all(&till.pm)
        .await
        .unwrap();
    assert_eq!(watched, [PspName::Wise.as_str()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stuck_is_listed_and_told_of_until_it_is_tried_again() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let id = till.create(till.payout(10_000)).await;
    sqlx::query("UPDATE pm.outbox_event SET status = 'stuck', last_error = 'odd'")
        .execute(&till.pm)
        .await
        .unwrap();
    let [one] = till
        .payments
        .stuck(None, 10)
        .await
        .unwrap()
        .try_into()
        .unwrap();
    assert_eq!((one.intent, one.error.as_deref()), (id, Some("odd")));
    let after = Some((one.created_at, one.id));
    assert!(till.payments.stuck(after, 10).await.unwrap().is_empty());
    let alerts = async || till.alerts("payment_stuck").await;
    for _ in 0..2 {
        till.payments.engine().remind(10).await.unwrap();
        assert_eq!(alerts().await, [id.to_string()]);
        let all = till.world.app.alerts.list(true, None, 10).await.unwrap();
        let resolved = till.world.app.alerts.resolve(all[0].alert_id).await;
        resolved.unwrap();
    }
    till.payments.engine().remind(10).await.unwrap();
    till.payments.retry(id, "US-1").await.unwrap();
    assert!(alerts().await.is_empty());
    till.payments.engine().remind(10).await.unwrap();
    assert!(alerts().await.is_empty());
    till.settle().await;
    assert_eq!(till.status(id).await, IntentStatus::Completed);
}

/// Calls are kept for a while; what was paid, for ever.
#[tokio::test(flavor = "multi_thread")]
async fn old_calls_of_payments_that_are_over_are_deleted() {
    let till = Till::new().await;
    till.fund(100_000).await;
    let (over, open) = (
        till.create(till.payout(10_000)).await,
        till.create(till.payout(10_000)).await,
    );
    till.settle().await;
    in_review(&till, open, "unknown_to_provider").await;
    for id in [over, open] {
        let sql = "INSERT INTO pm.psp_call (id, intent_id, psp_name, operation, request, took_us,
                       called_at) SELECT gen_random_uuid(), $1, 'IPPS', 'inquiry', '{}', n, $2
                   FROM generate_series(1, 300) n";
        let calls = sqlx::query(sql).bind(id).bind(till.world.clock.now());
        calls.execute(&till.pm).await.unwrap();
        let word = "INSERT INTO pm.psp_callback (id, psp_name, verdict, body, received_at)
                    VALUES (gen_random_uuid(), 'QP', 'not_signed', '', $1)";
        let word = sqlx::query(word).bind(till.world.clock.now());
        word.execute(&till.pm).await.unwrap();
    }
    let shown = till.payments.evidence(open).await.unwrap().calls;
    assert_eq!(shown.len(), 200, "the newest");
    let engine = till.payments.engine();
    assert_eq!(engine.forget(1_000).await.unwrap(), 0);
    till.world.clock.advance(chrono::Duration::days(401));
    assert_eq!(engine.forget(1_000).await.unwrap(), 300);
    let left: Vec<Uuid> = sqlx::query_scalar("SELECT DISTINCT intent_id FROM pm.psp_call")
        .fetch_all(&till.pm)
        .await
        .unwrap();
    assert_eq!(left, [open], "of what is not over all is kept");
    let words: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM pm.psp_callback")
        .fetch_one(&till.pm)
        .await
        .unwrap();
    assert_eq!(words, 0);
    assert_eq!(till.status(over).await, IntentStatus::Completed);
}
