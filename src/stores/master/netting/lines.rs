//! `netting_line` and `netting_price`: what went into a round, what is cleared of it, and the
//! proof. With the round's name and currency they are its certificate, byte for byte.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use crate::domain::ids::{BrokerId, NettingRoundId, ObligationId};
use crate::domain::money::CurrencyCode;
use crate::domain::netting::certificate::Line;
use crate::domain::netting::{Claim, Clearing};
use crate::stores::StoreError;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;
use crate::stores::sql::chunks;

/// Rows of one INSERT: a statement has at most 65,535 values.
const ROWS: usize = 4_096;

/// One working out of a round.
pub type RevisionKey = (NettingRoundId, u32);

#[derive(FromRow)]
struct ClaimRow {
    obligation_id: u64,
    debtor_broker_id: u64,
    creditor_broker_id: u64,
    amount: u64,
    created_at: DateTime<Utc>,
}

/// Claims in the order in which obligations are settled: oldest first.
fn in_order(mut rows: Vec<ClaimRow>) -> Vec<Claim> {
    rows.sort_unstable_by_key(|row| (row.created_at, row.obligation_id));
    let claims = rows.into_iter().map(|row| Claim {
        id: ObligationId::from_bits(row.obligation_id),
        debtor: row.debtor_broker_id,
        creditor: row.creditor_broker_id,
        amount: row.amount,
    });
    claims.collect()
}

/// What is free of all active obligations in a currency between brokers that are active, as of one
/// moment. Read from each debtor's open obligations, so that what was settled long ago costs
/// nothing. May take a while on a large network: give it a patient pool.
///
/// # Errors
/// The master's.
pub async fn snapshot(master: &Pool, currency: &CurrencyCode) -> Result<Vec<Claim>, StoreError> {
    let rows: Vec<ClaimRow> = sqlx::query_as(
        "SELECT o.obligation_id, o.debtor_broker_id, o.creditor_broker_id,
                o.remaining_amount - o.reserved_amount AS amount, o.created_at
         FROM broker d
         STRAIGHT_JOIN obligation o ON o.debtor_broker_id = d.broker_id
              AND o.status = 'active' AND o.currency_code = ?
         STRAIGHT_JOIN broker c ON c.broker_id = o.creditor_broker_id AND c.state = 'active'
         WHERE d.state = 'active' AND o.remaining_amount > o.reserved_amount",
    )
    .bind(currency.as_str())
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(in_order(rows))
}

/// What may be cleared in a smaller round: of each obligation at most what was to be cleared and
/// what is free now, and nothing that touches a broker who has declined.
///
/// # Errors
/// The master's.
pub async fn capped(
    master: &Pool,
    (round, revision): RevisionKey,
) -> Result<Vec<Claim>, StoreError> {
    let rows: Vec<ClaimRow> = sqlx::query_as(
        "SELECT l.obligation_id, l.debtor_broker_id, l.creditor_broker_id,
                CAST(LEAST(l.reduction, o.remaining_amount - o.reserved_amount) AS UNSIGNED) AS amount, o.created_at
         FROM netting_line l
         STRAIGHT_JOIN obligation o ON o.obligation_id = l.obligation_id AND o.status = 'active'
         STRAIGHT_JOIN netting_party d ON d.round_id = l.round_id
              AND d.broker_id = l.debtor_broker_id AND d.state <> 'declined'
         STRAIGHT_JOIN netting_party c ON c.round_id = l.round_id
              AND c.broker_id = l.creditor_broker_id AND c.state <> 'declined'
         WHERE l.round_id = ? AND l.revision = ? AND l.reduction > 0
           AND o.remaining_amount > o.reserved_amount",
    )
    .bind(round.bits())
    .bind(revision)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(in_order(rows))
}

/// Keeps all lines and prices of a clearing.
///
/// # Errors
/// The master's.
pub async fn insert(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    clearing: &Clearing,
) -> Result<(), StoreError> {
    for part in clearing.lines.chunks(ROWS) {
        let mut rest = part;
        for size in chunks(part.len()) {
            let (chunk, after) = rest.split_at(size);
            rest = after;
            let mut builder = QueryBuilder::<MySql>::new(
                "INSERT INTO netting_line (round_id, revision, obligation_id, debtor_broker_id, \
                 creditor_broker_id, amount, reduction) ",
            );
            builder.push_values(chunk, |mut row, line| {
                row.push_bind(round.bits())
                    .push_bind(revision)
                    .push_bind(line.id.bits())
                    .push_bind(line.debtor)
                    .push_bind(line.creditor)
                    .push_bind(line.amount)
                    .push_bind(line.reduction);
            });
            builder.build().execute(&mut *tx).await.map_err(failed)?;
        }
    }
    let prices: Vec<(BrokerId, i64)> = clearing.prices.iter().map(|(b, p)| (*b, *p)).collect();
    for part in prices.chunks(ROWS) {
        let mut rest = part;
        for size in chunks(part.len()) {
            let (chunk, after) = rest.split_at(size);
            rest = after;
            let mut builder = QueryBuilder::<MySql>::new(
                "INSERT INTO netting_price (round_id, revision, broker_id, price) ",
            );
            builder.push_values(chunk, |mut row, (broker, price)| {
                row.push_bind(round.bits())
                    .push_bind(revision)
                    .push_bind(*broker)
                    .push_bind(*price);
            });
            builder.build().execute(&mut *tx).await.map_err(failed)?;
        }
    }
    Ok(())
}

#[derive(FromRow)]
struct LineRow {
    obligation_id: u64,
    debtor_broker_id: u64,
    creditor_broker_id: u64,
    amount: u64,
    reduction: u64,
}

impl From<LineRow> for Line {
    fn from(row: LineRow) -> Self {
        Self {
            id: ObligationId::from_bits(row.obligation_id),
            debtor: row.debtor_broker_id,
            creditor: row.creditor_broker_id,
            amount: row.amount,
            reduction: row.reduction,
        }
    }
}

/// Lines of a revision by obligation, after one.
///
/// # Errors
/// The master's.
pub async fn page(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    after: Option<ObligationId>,
    limit: u32,
) -> Result<Vec<Line>, StoreError> {
    let rows: Vec<LineRow> = sqlx::query_as(
        "SELECT obligation_id, debtor_broker_id, creditor_broker_id, amount, reduction
         FROM netting_line
         WHERE round_id = ? AND revision = ? AND obligation_id >= ?
         ORDER BY obligation_id LIMIT ?",
    )
    .bind(round.bits())
    .bind(revision)
    .bind(after.map_or(0, |after| after.bits() + 1))
    .bind(limit)
    .fetch_all(tx)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().map(Line::from).collect())
}

/// All lines of a revision, by obligation.
///
/// # Errors
/// The master's.
pub async fn all(master: &Pool, (round, revision): RevisionKey) -> Result<Vec<Line>, StoreError> {
    let rows: Vec<LineRow> = sqlx::query_as(
        "SELECT obligation_id, debtor_broker_id, creditor_broker_id, amount, reduction
         FROM netting_line WHERE round_id = ? AND revision = ? ORDER BY obligation_id",
    )
    .bind(round.bits())
    .bind(revision)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().map(Line::from).collect())
}

/// The prices of a revision.
///
/// # Errors
/// The master's.
pub async fn prices(
    master: &Pool,
    (round, revision): RevisionKey,
) -> Result<BTreeMap<BrokerId, i64>, StoreError> {
    let rows: Vec<(u64, i64)> = sqlx::query_as(
        "SELECT broker_id, price FROM netting_price WHERE round_id = ? AND revision = ?",
    )
    .bind(round.bits())
    .bind(revision)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().collect())
}

/// What is cleared of one broker's obligations, as debtor and as creditor, by obligation.
///
/// # Errors
/// The master's.
pub async fn of_broker(
    master: &Pool,
    (round, revision): RevisionKey,
    broker: BrokerId,
    after: Option<ObligationId>,
    limit: u32,
) -> Result<Vec<Line>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new("");
    for (number, side) in ["debtor_broker_id", "creditor_broker_id"]
        .into_iter()
        .enumerate()
    {
        builder.push(if number == 0 { "(" } else { " UNION ALL (" });
        builder
            .push(
                "SELECT obligation_id, debtor_broker_id, creditor_broker_id, amount, reduction
                 FROM netting_line WHERE round_id = ",
            )
            .push_bind(round.bits())
            .push(" AND revision = ")
            .push_bind(revision)
            .push(" AND reduction > 0 AND ")
            .push(side)
            .push(" = ")
            .push_bind(broker);
        if let Some(after) = after {
            builder
                .push(" AND obligation_id > ")
                .push_bind(after.bits());
        }
        builder
            .push(" ORDER BY obligation_id LIMIT ")
            .push_bind(limit)
            .push(")");
    }
    builder
        .push(" ORDER BY obligation_id LIMIT ")
        .push_bind(limit);
    let rows: Vec<LineRow> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    Ok(rows.into_iter().map(Line::from).collect())
}

/// An obligation that a round reduces, as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromRow)]
pub struct Now {
    /// Whether it is what its line says, in the round's currency, and active.
    pub stands: bool,
    /// Minor units that nothing has reserved.
    pub free: u64,
    pub reduction: u64,
}

/// What a round reduces, each obligation locked until the transaction ends; by obligation.
///
/// # Errors
/// The master's; busy where others hold one of them for too long.
pub async fn lock_reduced(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    currency: &CurrencyCode,
) -> Result<Vec<Now>, StoreError> {
    sqlx::query_as(
        "SELECT o.status = 'active' AND o.debtor_broker_id = l.debtor_broker_id
                AND o.creditor_broker_id = l.creditor_broker_id AND o.currency_code = ? AS stands,
                o.remaining_amount - o.reserved_amount AS free, l.reduction
         FROM netting_line l STRAIGHT_JOIN obligation o ON o.obligation_id = l.obligation_id
         WHERE l.round_id = ? AND l.revision = ? AND l.reduction > 0
         ORDER BY l.obligation_id FOR UPDATE",
    )
    .bind(currency.as_str())
    .bind(round.bits())
    .bind(revision)
    .fetch_all(tx)
    .await
    .map_err(failed)
}

/// Writes what a round settles, under its name. The obligations are locked.
///
/// # Errors
/// The master's; a duplicate where it was written before.
pub async fn settle(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "INSERT INTO obligation_settlement
             (subject, obligation_id, amount, settled_amount, status, created_at, closed_at)
         SELECT ?, obligation_id, reduction, reduction, 'settled', ?, ? FROM netting_line
         WHERE round_id = ? AND revision = ? AND reduction > 0",
    )
    .bind(round.to_string())
    .bind(now)
    .bind(now)
    .bind(round.bits())
    .bind(revision)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}

/// Takes what a round settles off its obligations, and gives how many there were.
///
/// # Errors
/// The master's.
pub async fn reduce(tx: &mut MasterTx, (round, revision): RevisionKey) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE netting_line l STRAIGHT_JOIN obligation o ON o.obligation_id = l.obligation_id
         SET o.remaining_amount = o.remaining_amount - l.reduction
         WHERE l.round_id = ? AND l.revision = ? AND l.reduction > 0",
    )
    .bind(round.bits())
    .bind(revision)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}
