//! `obligation`: who owes whom.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};
use uuid::Uuid;

use super::failed;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::CurrencyCode;
use crate::domain::obligation::{AGES, DebtSide, ObligationStatus};
use crate::domain::plan::{Debt, Plan};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, list_of, padded, placeholders, push_after};

/// An obligation as it stands. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obligation {
    pub id: ObligationId,
    pub saga_id: Uuid,
    pub subject: String,
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub currency: String,
    pub amount: u64,
    pub remaining_amount: u64,
    pub reserved_amount: u64,
    pub status: ObligationStatus,
    pub created_at: DateTime<Utc>,
    pub activated_at: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct Row {
    obligation_id: u64,
    saga_id: Uuid,
    subject: String,
    debtor_broker_id: u64,
    creditor_broker_id: u64,
    currency_code: String,
    amount: u64,
    remaining_amount: u64,
    reserved_amount: u64,
    status: String,
    created_at: DateTime<Utc>,
    activated_at: Option<DateTime<Utc>>,
}

impl Row {
    fn read(self) -> Result<Obligation, StoreError> {
        let row = self;
        let id = ObligationId::from_bits(row.obligation_id);
        let status = ObligationStatus::parse(&row.status)
            .ok_or_else(|| corrupt("obligation", format!("{id}: status {}", row.status)))?;
        Ok(Obligation {
            id,
            saga_id: row.saga_id,
            subject: row.subject,
            debtor: row.debtor_broker_id,
            creditor: row.creditor_broker_id,
            currency: row.currency_code,
            amount: row.amount,
            remaining_amount: row.remaining_amount,
            reserved_amount: row.reserved_amount,
            status,
            created_at: row.created_at,
            activated_at: row.activated_at,
        })
    }
}

macro_rules! columns {
    () => {
        "obligation_id, saga_id, subject, debtor_broker_id, creditor_broker_id, currency_code, \
         amount, remaining_amount, reserved_amount, status, created_at, activated_at"
    };
}

/// Opens the pending obligations of plans, in the transaction that records their sagas.
///
/// # Errors
/// The master's; a duplicate where a saga has one.
pub async fn insert_pending(
    tx: &mut MasterTx,
    plans: &[&Plan],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let debts: Vec<(&Plan, &Debt)> = plans
        .iter()
        .filter_map(|plan| plan.opens().map(|debt| (*plan, debt)))
        .collect();
    let mut rest = debts.as_slice();
    for size in chunks(debts.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO obligation (obligation_id, saga_id, subject, debtor_broker_id, \
             creditor_broker_id, currency_code, amount, remaining_amount, status, created_at) ",
        );
        builder.push_values(chunk, |mut row, (plan, debt)| {
            row.push_bind(debt.obligation.bits())
                .push_bind(plan.saga_id)
                .push_bind(plan.subject.to_string())
                .push_bind(debt.debtor)
                .push_bind(debt.creditor)
                .push_bind(debt.currency.to_string())
                .push_bind(debt.amount)
                .push_bind(debt.amount)
                .push_bind(ObligationStatus::Pending.as_str())
                .push_bind(now);
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

/// The sagas have completed: their obligations stand.
///
/// # Errors
/// The master's.
pub async fn activate(
    tx: &mut MasterTx,
    saga_ids: &[Uuid],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    leave_pending(
        tx,
        saga_ids,
        "status = 'active', activated_at = ?",
        Some(now),
    )
    .await
}

/// The sagas were compensated: their obligations never stood.
///
/// # Errors
/// The master's.
pub async fn fail(tx: &mut MasterTx, saga_ids: &[Uuid]) -> Result<(), StoreError> {
    leave_pending(
        tx,
        saga_ids,
        "status = 'failed', remaining_amount = 0",
        None,
    )
    .await
}

async fn leave_pending(
    tx: &mut MasterTx,
    saga_ids: &[Uuid],
    set: &'static str,
    at: Option<DateTime<Utc>>,
) -> Result<(), StoreError> {
    let Some(first) = saga_ids.first() else {
        return Ok(());
    };
    let count = padded(saga_ids.len());
    let sql = format!(
        "UPDATE obligation SET {set} WHERE saga_id IN ({}) AND status = 'pending'",
        placeholders(count)
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql));
    if let Some(at) = at {
        query = query.bind(at);
    }
    for saga_id in saga_ids.iter().chain(std::iter::repeat(first)).take(count) {
        query = query.bind(*saga_id);
    }
    query.execute(tx).await.map_err(failed)?;
    Ok(())
}

/// # Errors
/// The master's.
pub async fn get(master: &Pool, id: ObligationId) -> Result<Option<Obligation>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM obligation WHERE obligation_id = ?"
    ))
    .bind(id.bits())
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The obligations that some sagas have opened.
///
/// # Errors
/// The master's.
pub async fn of_sagas(master: &Pool, saga_ids: &[Uuid]) -> Result<Vec<Obligation>, StoreError> {
    if saga_ids.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {} FROM obligation WHERE saga_id IN ({})",
        columns!(),
        placeholders(padded(saga_ids.len()))
    );
    let mut query = sqlx::query_as(sqlx::AssertSqlSafe(sql));
    for saga_id in list_of(saga_ids) {
        query = query.bind(*saga_id);
    }
    let rows: Vec<Row> = query.fetch_all(master).await.map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Which obligations of a broker a list shows.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub status: Option<ObligationStatus>,
    pub counterparty: Option<BrokerId>,
    pub currency: Option<CurrencyCode>,
    /// Where the broker is on that side; on both where there is none.
    pub side: Option<DebtSide>,
}

/// Where a page of a list ended: the next begins after it.
pub type After = (DateTime<Utc>, ObligationId);

/// A broker's obligations, as debtor and as creditor, newest first.
///
/// # Errors
/// The master's.
pub async fn list(
    master: &Pool,
    broker: BrokerId,
    filter: &Filter,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<Obligation>, StoreError> {
    let rows: Vec<Row> = newest("", broker, filter, after, limit)
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// The statement of a list, after `prefix`: two ranges of an index, merged, so that a page costs
/// the same however many there are. MariaDB uses an index for a row's place only where it is
/// spelt out.
#[must_use]
pub fn newest(
    prefix: &'static str,
    broker: BrokerId,
    filter: &Filter,
    after: Option<After>,
    limit: u32,
) -> QueryBuilder<MySql> {
    let mut builder = QueryBuilder::<MySql>::new(prefix);
    let sides = DebtSide::ALL.iter().copied();
    let sides = sides.filter(|side| filter.side.is_none_or(|only| only == *side));
    for (number, side) in sides.enumerate() {
        let (own, other) = match side {
            DebtSide::Debtor => ("debtor_broker_id", "creditor_broker_id"),
            DebtSide::Creditor => ("creditor_broker_id", "debtor_broker_id"),
        };
        builder.push(if number == 0 { "(" } else { " UNION ALL (" });
        builder
            .push(concat!("SELECT ", columns!(), " FROM obligation WHERE "))
            .push(own)
            .push(" = ")
            .push_bind(broker);
        if let Some(counterparty) = filter.counterparty {
            builder
                .push(" AND ")
                .push(other)
                .push(" = ")
                .push_bind(counterparty);
        }
        if let Some(currency) = &filter.currency {
            builder
                .push(" AND currency_code = ")
                .push_bind(currency.to_string());
        }
        if let Some(status) = filter.status {
            builder.push(" AND status = ").push_bind(status.as_str());
        }
        if let Some((created_at, id)) = after {
            let last = (created_at, id.bits());
            push_after(&mut builder, ("created_at", "obligation_id"), last);
        }
        builder
            .push(" ORDER BY created_at DESC, obligation_id DESC LIMIT ")
            .push_bind(limit)
            .push(")");
    }
    builder
        .push(" ORDER BY created_at DESC, obligation_id DESC LIMIT ")
        .push_bind(limit);
    builder
}

/// What a broker owes and is owed, by counterparty and currency, in minor units.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Position {
    pub counterparty: BrokerId,
    pub currency_code: String,
    /// The counterparty owes the broker.
    pub owed: u64,
    /// The broker owes the counterparty.
    pub owing: u64,
}

/// # Errors
/// The master's.
pub async fn positions(master: &Pool, broker: BrokerId) -> Result<Vec<Position>, StoreError> {
    sqlx::query_as(
        "SELECT counterparty, currency_code,
                CAST(SUM(owed) AS UNSIGNED) AS owed, CAST(SUM(owing) AS UNSIGNED) AS owing
         FROM (
             SELECT debtor_broker_id AS counterparty, currency_code, remaining_amount AS owed, 0 AS owing
             FROM obligation WHERE creditor_broker_id = ? AND status = 'active'
             UNION ALL
             SELECT creditor_broker_id, currency_code, 0, remaining_amount
             FROM obligation WHERE debtor_broker_id = ? AND status = 'active'
         ) AS both_sides
         GROUP BY counterparty, currency_code ORDER BY counterparty, currency_code",
    )
    .bind(broker)
    .bind(broker)
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// What a broker is owed less what it owes in a currency, in minor units.
///
/// # Errors
/// The master's, or a sum that can't be read.
pub async fn net(
    master: &Pool,
    broker: BrokerId,
    currency: &CurrencyCode,
) -> Result<i128, StoreError> {
    let sum: String = sqlx::query_scalar(
        "SELECT CAST((SELECT COALESCE(SUM(remaining_amount), 0) FROM obligation
                      WHERE creditor_broker_id = ? AND status = 'active' AND currency_code = ?)
                   - (SELECT COALESCE(SUM(remaining_amount), 0) FROM obligation
                      WHERE debtor_broker_id = ? AND status = 'active' AND currency_code = ?)
                AS CHAR)",
    )
    .bind(broker)
    .bind(currency.as_str())
    .bind(broker)
    .bind(currency.as_str())
    .fetch_one(master)
    .await
    .map_err(failed)?;
    sum.parse()
        .map_err(|_| corrupt("obligation", format!("{sum:?} is no sum")))
}

/// What of a debt is how old, in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ageing {
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub currency_code: String,
    /// By [`AGES`]: what is younger than the first, than the second, and so on, and the rest.
    pub by_age: [u64; AGES.len() + 1],
    pub oldest_at: DateTime<Utc>,
}

/// How old a broker's active debts and claims are, by counterparty and currency.
///
/// # Errors
/// The master's.
pub async fn ageing(
    master: &Pool,
    broker: BrokerId,
    now: DateTime<Utc>,
) -> Result<Vec<Ageing>, StoreError> {
    type Sums = (u64, u64, String, u64, u64, u64, u64, DateTime<Utc>);
    let [week, month, quarter] = AGES.map(|days| now - chrono::Duration::days(days));
    let mut builder = QueryBuilder::<MySql>::new("");
    for (number, side) in ["debtor_broker_id", "creditor_broker_id"]
        .into_iter()
        .enumerate()
    {
        if number > 0 {
            builder.push(" UNION ALL ");
        }
        builder.push("SELECT debtor_broker_id, creditor_broker_id, currency_code");
        let bounds = [
            (Some(week), None),
            (Some(month), Some(week)),
            (Some(quarter), Some(month)),
            (None, Some(quarter)),
        ];
        for (from, until) in bounds {
            builder.push(", CAST(SUM(IF(TRUE");
            if let Some(from) = from {
                builder.push(" AND created_at > ").push_bind(from);
            }
            if let Some(until) = until {
                builder.push(" AND created_at <= ").push_bind(until);
            }
            builder.push(", remaining_amount, 0)) AS UNSIGNED)");
        }
        builder
            .push(", MIN(created_at) FROM obligation WHERE status = 'active' AND ")
            .push(side)
            .push(" = ")
            .push_bind(broker)
            .push(" GROUP BY debtor_broker_id, creditor_broker_id, currency_code");
    }
    builder.push(" ORDER BY 1, 2, 3");
    let rows: Vec<Sums> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    let ageing = |(debtor, creditor, currency_code, a, b, c, d, oldest_at): Sums| Ageing {
        debtor,
        creditor,
        currency_code,
        by_age: [a, b, c, d],
        oldest_at,
    };
    Ok(rows.into_iter().map(ageing).collect())
}
