//! `credit_line`: what creditors let debtors owe. What is used follows from the obligations and from
//! what requests under way hold (`network_request.credit_amount`); both change in the same
//! transaction where one becomes the other, and are read in one statement.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::failed;
use super::settlements::Debts;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// What of a debtor's debt to a creditor in a currency counts against a line: it uses the indexes
/// `obligation_pair` and `request_credit`.
pub const USED: &str = "SELECT CAST(
        (SELECT COALESCE(SUM(remaining_amount), 0) FROM obligation FORCE INDEX (obligation_pair)
         WHERE debtor_broker_id = ? AND creditor_broker_id = ? AND currency_code = ?
           AND status = 'active')
      + (SELECT COALESCE(SUM(credit_amount), 0) FROM network_request FORCE INDEX (request_credit)
         WHERE credit_debtor_id = ? AND credit_creditor_id = ? AND currency_code = ?)
    AS UNSIGNED)";

/// A credit line and what is used of it, in minor units.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct CreditLine {
    #[sqlx(rename = "creditor_broker_id")]
    pub creditor: BrokerId,
    #[sqlx(rename = "debtor_broker_id")]
    pub debtor: BrokerId,
    pub currency_code: String,
    pub limit_amount: u64,
    /// More than the limit where it was lowered since.
    pub used_amount: u64,
    pub updated_at: DateTime<Utc>,
}

impl CreditLine {
    /// What may still be taken.
    #[must_use]
    pub const fn free_amount(&self) -> u64 {
        self.limit_amount.saturating_sub(self.used_amount)
    }
}

/// Whether a creditor bounds what a debtor may owe it.
///
/// # Errors
/// The master's.
pub async fn is_bounded(master: &Pool, debts: &Debts) -> Result<bool, StoreError> {
    let found: Option<(u64,)> = sqlx::query_as(
        "SELECT limit_amount FROM credit_line
         WHERE creditor_broker_id = ? AND debtor_broker_id = ? AND currency_code = ?",
    )
    .bind(debts.creditor)
    .bind(debts.debtor)
    .bind(debts.currency.as_str())
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(found.is_some())
}

/// Locks a line, so that acceptances under it come one after another. Gives its limit; nothing
/// where there is no bound.
///
/// # Errors
/// The master's.
pub async fn lock(tx: &mut MasterTx, debts: &Debts) -> Result<Option<u64>, StoreError> {
    sqlx::query_scalar(
        "SELECT limit_amount FROM credit_line
         WHERE creditor_broker_id = ? AND debtor_broker_id = ? AND currency_code = ? FOR UPDATE",
    )
    .bind(debts.creditor)
    .bind(debts.debtor)
    .bind(debts.currency.as_str())
    .fetch_optional(tx)
    .await
    .map_err(failed)
}

/// What is used of a line, as a transaction that holds it sees it.
///
/// # Errors
/// The master's.
pub async fn used(tx: &mut MasterTx, debts: &Debts) -> Result<u64, StoreError> {
    let mut query = sqlx::query_scalar(USED);
    for _ in 0..2 {
        query = query
            .bind(debts.debtor)
            .bind(debts.creditor)
            .bind(debts.currency.as_str());
    }
    query.fetch_one(tx).await.map_err(failed)
}

/// Sets a line, or takes it away where there is no limit.
///
/// # Errors
/// The master's.
pub async fn set(
    tx: &mut MasterTx,
    debts: &Debts,
    limit: Option<u64>,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let Some(limit) = limit else {
        sqlx::query(
            "DELETE FROM credit_line
             WHERE creditor_broker_id = ? AND debtor_broker_id = ? AND currency_code = ?",
        )
        .bind(debts.creditor)
        .bind(debts.debtor)
        .bind(debts.currency.as_str())
        .execute(tx)
        .await
        .map_err(failed)?;
        return Ok(());
    };
    sqlx::query(
        "INSERT INTO credit_line (creditor_broker_id, debtor_broker_id, currency_code,
                                  limit_amount, set_by, created_at, updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE limit_amount = VALUES(limit_amount), set_by = VALUES(set_by),
                                 updated_at = VALUES(updated_at)",
    )
    .bind(debts.creditor)
    .bind(debts.debtor)
    .bind(debts.currency.as_str())
    .bind(limit)
    .bind(by)
    .bind(now)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

macro_rules! lines {
    () => {
        "SELECT l.creditor_broker_id, l.debtor_broker_id, l.currency_code, l.limit_amount,
                l.updated_at,
                CAST((SELECT COALESCE(SUM(o.remaining_amount), 0) FROM obligation o
                      WHERE o.debtor_broker_id = l.debtor_broker_id
                        AND o.creditor_broker_id = l.creditor_broker_id
                        AND o.currency_code = l.currency_code AND o.status = 'active')
                   + (SELECT COALESCE(SUM(r.credit_amount), 0) FROM network_request r
                      WHERE r.credit_debtor_id = l.debtor_broker_id
                        AND r.credit_creditor_id = l.creditor_broker_id
                        AND r.currency_code = l.currency_code) AS UNSIGNED) AS used_amount
         FROM credit_line l "
    };
}

/// One line by its primary key.
pub const ONE: &str = concat!(
    lines!(),
    "WHERE l.creditor_broker_id = ? AND l.debtor_broker_id = ? AND l.currency_code = ?"
);

/// A line with what is used of it; nothing where there is no bound.
///
/// # Errors
/// The master's.
pub async fn get(master: &Pool, debts: &Debts) -> Result<Option<CreditLine>, StoreError> {
    sqlx::query_as(ONE)
        .bind(debts.creditor)
        .bind(debts.debtor)
        .bind(debts.currency.as_str())
        .fetch_optional(master)
        .await
        .map_err(failed)
}

/// The lines that a broker gives and that it is given, with what is used of each.
///
/// # Errors
/// The master's.
pub async fn of_broker(master: &Pool, broker: BrokerId) -> Result<Vec<CreditLine>, StoreError> {
    sqlx::query_as(concat!(
        lines!(),
        "WHERE l.creditor_broker_id = ? OR l.debtor_broker_id = ?
         ORDER BY l.creditor_broker_id, l.debtor_broker_id, l.currency_code"
    ))
    .bind(broker)
    .bind(broker)
    .fetch_all(master)
    .await
    .map_err(failed)
}
