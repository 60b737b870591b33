//! What the systems do by themselves: durable commits, and two-phase transfers.

use chrono::Utc;
use sqlx::MySqlPool;
use uuid::Uuid;

use super::load::{self, Timed};
use crate::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, TransferCode, transfer_id};
use crate::domain::money::CurrencyCode;
use crate::stores::ledger::{Hold, Ledger};

/// Single-row inserts, each its own durable commit.
pub(super) async fn commits(
    pool: &MySqlPool,
    count: usize,
    at_once: usize,
) -> anyhow::Result<Timed> {
    let pool = pool.clone();
    load::run(count, at_once, move |number| {
        let pool = pool.clone();
        async move {
            sqlx::query("INSERT INTO bare_commit (number, at) VALUES (?, ?)")
                .bind(u64::try_from(number)?)
                .bind(Utc::now())
                .execute(&pool)
                .await?;
            Ok(())
        }
    })
    .await
}

/// A hold and its post.
pub(super) async fn pairs(
    ledger: &Ledger,
    currency: &CurrencyCode,
    number: u32,
    count: usize,
    at_once: usize,
) -> anyhow::Result<Timed> {
    let (ledger, currency) = (ledger.clone(), currency.clone());
    load::run(count, at_once, move |_| {
        let (ledger, currency) = (ledger.clone(), currency.clone());
        async move {
            let operation = Uuid::now_v7();
            let hold = Hold {
                id: transfer_id(operation, HOLD_INDEX),
                debit: AccountName::position(u64::MAX - 1, &currency),
                credit: AccountName::position(u64::MAX - 2, &currency),
                amount: 1,
                ledger: number,
                code: TransferCode::Obligation,
                operation,
            };
            ledger.hold(&hold).await?;
            ledger
                .post(hold.id, transfer_id(operation, SETTLE_INDEX))
                .await?;
            Ok(())
        }
    })
    .await
}
