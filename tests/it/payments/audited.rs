//! Reconciliation of payments: whatever of an intent, of what came in, or of the ledger is not as
//! the others say is found.

use std::time::Duration;

use settlenet::domain::ledger::{AccountName, TransferCode, transfer_id};
use settlenet::domain::payment::IntentStatus;
use settlenet::stores::ledger::{Leg, Movement};
use uuid::Uuid;

use super::Till;
use super::incoming::{AMOUNT, Stall};
use super::statements::found;

async fn run(till: &Till, sql: &str) {
    let done = sqlx::query(sqlx::AssertSqlSafe(sql.to_owned()));
    done.execute(&till.pm).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_intent_that_was_changed_or_deleted_is_found() {
    let till = Till::new().await;
    till.fund(1_000_000).await;
    let id = till.create(till.payout(40_000)).await;
    let refused = till.create(till.payout(10_000_000)).await;
    till.settle().await;
    assert_eq!(till.status(id).await, IntentStatus::Completed);
    assert_eq!(till.status(refused).await, IntentStatus::Failed);
    assert_eq!(found(&till).await, Vec::<String>::new());
    let beta = format!("merchant.{}.{}", till.world.beta, till.currency.code);
    let own = till.wallet.to_string();
    for (set, reset, says) in [
        (
            "amount = amount + 1",
            "amount = amount - 1",
            "transfer 0 moves 40000 and not 40001",
        ),
        (
            "fee_amount = fee_amount - 1",
            "fee_amount = fee_amount + 1",
            "transfer 1 moves 600 and not 599",
        ),
        (
            format!("wallet = '{beta}'").as_str(),
            format!("wallet = '{own}'").as_str(),
            "transfer 0 is from another account",
        ),
        (
            "ledger = ledger + 1",
            "ledger = ledger - 1",
            "transfer 0 is on ledger",
        ),
        (
            "channel = 'WISE'",
            "channel = 'IPPS'",
            "transfer 0 is to another account",
        ),
    ] {
        run(
            &till,
            &format!("UPDATE pm.intent SET {set} WHERE id = '{id}'"),
        )
        .await;
        let wrong = found(&till).await;
        let named = format!("intent {id}: {says}");
        assert!(
            wrong.iter().any(|one| one.starts_with(&named)),
            "{set}: {wrong:?}"
        );
        run(
            &till,
            &format!("UPDATE pm.intent SET {reset} WHERE id = '{id}'"),
        )
        .await;
    }
    assert_eq!(found(&till).await, Vec::<String>::new());

    // What has passed, and no payment says so.
    let of = |name: &str| name.parse::<AccountName>().unwrap();
    let stray = Uuid::new_v4();
    let nostro = format!("system.nostro.ipps.{}", till.currency.code);
    let movement = Movement {
        id: transfer_id(stray, 0),
        debit: of(&nostro),
        credit: till.wallet.clone(),
        amount: 7,
        ledger: till.currency.ledger,
        code: TransferCode::PayoutReturn,
        operation: stray,
    };
    let ledger = &till.world.app.systems.ledger;
    ledger.chain(&[Leg::Move(movement)]).await.unwrap();
    let wrong = found(&till).await;
    assert_eq!(wrong.len(), 1, "{wrong:?}");
    assert!(
        wrong[0].starts_with(&format!("{nostro}: 7 were taken from it")),
        "{wrong:?}"
    );

    run(
        &till,
        &format!("DELETE FROM pm.intent WHERE id IN ('{id}', '{refused}')"),
    )
    .await;
    let wrong = found(&till).await;
    for (id, table) in [
        (id, "psp_tx_map"),
        (id, "outbox_event"),
        (id, "intent_event"),
        (refused, "outbox_event"),
    ] {
        let named = format!("intent {id}: {table} is of it, and there is no such intent");
        assert!(wrong.contains(&named), "{named}: {wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_in_is_where_its_row_says() {
    let stall = Stall::set(Duration::from_mins(15), "").await;
    let till = &stall.till;
    let id = stall.ask().await;
    stall.settle().await;
    for _ in 0..2 {
        assert!(stall.sim.pay(&id.to_string()).await);
    }
    for payment in stall.payment_ids().await {
        let word = stall.word(&id.to_string(), &payment);
        stall.tell(&word).await.unwrap();
    }
    stall.until(id, IntentStatus::Completed).await;
    stall.settle().await;
    assert_eq!(stall.suspense().await, i128::from(AMOUNT));
    assert_eq!(found(till).await, Vec::<String>::new());
    let wallet = till.wallet.to_string();
    for (set, of, reset, says) in [
        (
            format!("status = 'assigned', wallet = '{wallet}'"),
            "suspense",
            "status = 'suspense', wallet = NULL",
            "nothing was moved",
        ),
        (
            "amount = amount + 1".to_owned(),
            "suspense",
            "amount = amount - 1",
            "transfer 0 moves",
        ),
        (
            "amount = amount + 1".to_owned(),
            "credited",
            "amount = amount - 1",
            "of another amount",
        ),
        (
            "payment_id = payment_id || 'x'".to_owned(),
            "credited",
            "payment_id = rtrim(payment_id, 'x')",
            "no top-up was confirmed by it",
        ),
        (
            "intent_id = gen_random_uuid()".to_owned(),
            "credited",
            "intent_id = NULL",
            "no such intent",
        ),
    ] {
        let one: Uuid = sqlx::query_scalar("SELECT id FROM pm.psp_incoming WHERE status = $1")
            .bind(of)
            .fetch_one(&till.pm)
            .await
            .unwrap();
        run(
            till,
            &format!("UPDATE pm.psp_incoming SET {set} WHERE id = '{one}'"),
        )
        .await;
        let wrong = found(till).await;
        assert!(
            wrong.iter().any(|one| one.contains(says)),
            "{set}: {wrong:?}"
        );
        run(
            till,
            &format!("UPDATE pm.psp_incoming SET {reset} WHERE id = '{one}'"),
        )
        .await;
    }
}
