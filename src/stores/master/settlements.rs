//! `obligation_settlement`: what of each obligation is promised to a settlement, and what settled
//! it. Whoever takes of obligations locks them first, so that none is promised or settled twice;
//! all of them with the oldest first, so that few wait for each other crosswise.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::CurrencyCode;
use crate::domain::settlement::{self, MAX_PARTS, Open, Part, PartStatus, Short};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, list_of, padded, placeholders};

/// What one broker owes another in a currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Debts {
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub currency: CurrencyCode,
}

/// The active obligations of a debt, oldest first, locked until the transaction ends; at most
/// [`MAX_PARTS`]. By another index it would wait for the obligations of others.
pub const LOCK_OPEN: &str = "SELECT obligation_id, remaining_amount - reserved_amount
    FROM obligation FORCE INDEX (obligation_pair)
    WHERE debtor_broker_id = ? AND creditor_broker_id = ? AND currency_code = ?
      AND status = 'active'
    ORDER BY created_at, obligation_id LIMIT ? FOR UPDATE";

/// Locks a debt's active obligations, oldest first, or one of them alone; as many as it takes until
/// `enough` minor units are free, and at most [`MAX_PARTS`].
///
/// # Errors
/// The master's.
pub async fn lock_open(
    tx: &mut MasterTx,
    debts: &Debts,
    only: Option<ObligationId>,
    enough: u64,
) -> Result<Vec<Open>, StoreError> {
    if let Some(id) = only {
        let row: Option<(u64, u64)> = sqlx::query_as(
            "SELECT obligation_id, remaining_amount - reserved_amount FROM obligation
             WHERE obligation_id = ? AND debtor_broker_id = ? AND creditor_broker_id = ?
               AND currency_code = ? AND status = 'active' FOR UPDATE",
        )
        .bind(id.bits())
        .bind(debts.debtor)
        .bind(debts.creditor)
        .bind(debts.currency.as_str())
        .fetch_optional(tx)
        .await
        .map_err(failed)?;
        return Ok(row.into_iter().map(open).collect());
    }
    // What is locked already is locked again; the sizes grow, so that it is read twice at most.
    for size in LOCKED {
        let rows: Vec<(u64, u64)> = sqlx::query_as(LOCK_OPEN)
            .bind(debts.debtor)
            .bind(debts.creditor)
            .bind(debts.currency.as_str())
            .bind(u32::try_from(size).unwrap_or(u32::MAX))
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        let all = rows.len() < size;
        let found: Vec<Open> = rows.into_iter().map(open).collect();
        if all || size == MAX_PARTS || settlement::available(&found) >= enough {
            return Ok(found);
        }
    }
    Ok(Vec::new())
}

/// Obligations that are locked at first, and where those don't do.
const LOCKED: [usize; 3] = [16, 400, MAX_PARTS];

/// What of a debt, or of one obligation of it, nothing has reserved, in minor units.
///
/// # Errors
/// The master's.
pub async fn free(
    master: &Pool,
    debts: &Debts,
    only: Option<ObligationId>,
) -> Result<u64, StoreError> {
    sqlx::query_scalar(
        "SELECT CAST(COALESCE(SUM(remaining_amount - reserved_amount), 0) AS UNSIGNED)
         FROM obligation WHERE debtor_broker_id = ? AND creditor_broker_id = ?
           AND currency_code = ? AND status = 'active' AND (? IS NULL OR obligation_id = ?)",
    )
    .bind(debts.debtor)
    .bind(debts.creditor)
    .bind(debts.currency.as_str())
    .bind(only.map(ObligationId::bits))
    .bind(only.map(ObligationId::bits))
    .fetch_one(master)
    .await
    .map_err(failed)
}

fn open((id, free): (u64, u64)) -> Open {
    Open {
        obligation: ObligationId::from_bits(id),
        free,
    }
}

/// Promises `amount` of a debt to a settlement, oldest first. What its subject had reserved before
/// must have been released.
///
/// # Errors
/// The master's. In the answer, what there is where that is less.
pub async fn reserve(
    tx: &mut MasterTx,
    subject: &str,
    debts: &Debts,
    only: Option<ObligationId>,
    amount: u64,
    now: DateTime<Utc>,
) -> Result<Result<(), Short>, StoreError> {
    let found = lock_open(tx, debts, only, amount).await?;
    let parts = match settlement::allocate(&found, amount) {
        Ok(parts) => parts,
        Err(short) => return Ok(Err(short)),
    };
    insert(tx, subject, &parts, PartStatus::Reserved, now).await?;
    sqlx::query(
        "UPDATE obligation o JOIN obligation_settlement s ON s.obligation_id = o.obligation_id
         SET o.reserved_amount = o.reserved_amount + s.amount
         WHERE s.subject = ? AND s.status = 'reserved'",
    )
    .bind(subject)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(Ok(()))
}

/// Settles what a subject has reserved, up to `received`, oldest first, and releases the rest. Gives
/// what was settled. Of a subject that has nothing reserved nothing changes.
///
/// # Errors
/// The master's; [`StoreError::Corrupt`] where less is reserved than was received.
pub async fn settle(
    tx: &mut MasterTx,
    subject: &str,
    received: u64,
    now: DateTime<Utc>,
) -> Result<Vec<Part>, StoreError> {
    let rows: Vec<(u64, u64)> = sqlx::query_as(
        "SELECT o.obligation_id, s.amount
         FROM obligation_settlement s JOIN obligation o ON o.obligation_id = s.obligation_id
         WHERE s.subject = ? AND s.status = 'reserved'
         ORDER BY o.created_at, o.obligation_id FOR UPDATE",
    )
    .bind(subject)
    .fetch_all(&mut *tx)
    .await
    .map_err(failed)?;
    let reserved: Vec<Open> = rows.into_iter().map(open).collect();
    let parts = settlement::allocate(&reserved, received).map_err(|short| {
        let what = format!(
            "{subject} has reserved {}, {received} came",
            short.available
        );
        corrupt("obligation_settlement", what)
    })?;
    // All but the last part are whole.
    if let Some((last, whole)) = parts.split_last() {
        let ids: Vec<u64> = whole.iter().map(|part| part.obligation.bits()).collect();
        mark_whole(tx, subject, &ids).await?;
        sqlx::query(
            "UPDATE obligation_settlement SET settled_amount = ?
             WHERE subject = ? AND obligation_id = ? AND status = 'reserved'",
        )
        .bind(last.amount)
        .bind(subject)
        .bind(last.obligation.bits())
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    }
    close(tx, subject, now).await?;
    Ok(parts)
}

/// Gives back all that a subject has reserved.
///
/// # Errors
/// The master's.
pub async fn release(
    tx: &mut MasterTx,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    close(tx, subject, now).await
}

/// Settles parts at once, as netting does. The obligations are locked, and that much is free.
///
/// # Errors
/// The master's.
pub async fn settle_now(
    tx: &mut MasterTx,
    subject: &str,
    parts: &[Part],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    insert(tx, subject, parts, PartStatus::Settled, now).await?;
    sqlx::query(
        "UPDATE obligation o JOIN obligation_settlement s ON s.obligation_id = o.obligation_id
         SET o.remaining_amount = o.remaining_amount - s.settled_amount
         WHERE s.subject = ? AND s.status = 'settled'",
    )
    .bind(subject)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    end_settled(tx, subject).await
}

/// Obligations of which nothing remains are settled.
///
/// # Errors
/// The master's.
pub async fn end_settled(tx: &mut MasterTx, subject: &str) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE obligation o JOIN obligation_settlement s ON s.obligation_id = o.obligation_id
         SET o.status = 'settled'
         WHERE s.subject = ? AND o.status = 'active' AND o.remaining_amount = 0",
    )
    .bind(subject)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

async fn insert(
    tx: &mut MasterTx,
    subject: &str,
    parts: &[Part],
    status: PartStatus,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let settled = status == PartStatus::Settled;
    let mut rest = parts;
    for size in chunks(parts.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO obligation_settlement (subject, obligation_id, amount, settled_amount, \
             status, created_at, closed_at) ",
        );
        builder.push_values(chunk, |mut row, part| {
            row.push_bind(subject.to_owned())
                .push_bind(part.obligation.bits())
                .push_bind(part.amount)
                .push_bind(if settled { part.amount } else { 0 })
                .push_bind(status.as_str())
                .push_bind(now)
                .push_bind(settled.then_some(now));
        });
        // A request that a book refused to accept may be accepted again.
        builder.push(
            " ON DUPLICATE KEY UPDATE amount = VALUES(amount), settled_amount = 0, \
             status = VALUES(status), created_at = VALUES(created_at), closed_at = NULL",
        );
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

async fn mark_whole(tx: &mut MasterTx, subject: &str, ids: &[u64]) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    let sql = format!(
        "UPDATE obligation_settlement SET settled_amount = amount
         WHERE subject = ? AND status = 'reserved' AND obligation_id IN ({})",
        placeholders(padded(ids.len()))
    );
    let mut query = sqlx::query(sqlx::AssertSqlSafe(sql)).bind(subject);
    for id in list_of(ids) {
        query = query.bind(*id);
    }
    query.execute(tx).await.map_err(failed)?;
    Ok(())
}

/// Takes what is marked as settled off the obligations, and what was reserved off the reservations.
async fn close(tx: &mut MasterTx, subject: &str, now: DateTime<Utc>) -> Result<(), StoreError> {
    let changed = sqlx::query(
        "UPDATE obligation o JOIN obligation_settlement s ON s.obligation_id = o.obligation_id
         SET o.remaining_amount = o.remaining_amount - s.settled_amount,
             o.reserved_amount = o.reserved_amount - s.amount
         WHERE s.subject = ? AND s.status = 'reserved'",
    )
    .bind(subject)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    if changed.rows_affected() == 0 {
        return Ok(());
    }
    end_settled(tx, subject).await?;
    sqlx::query(
        "UPDATE obligation_settlement
         SET status = IF(settled_amount > 0, 'settled', 'released'), closed_at = ?
         WHERE subject = ? AND status = 'reserved'",
    )
    .bind(now)
    .bind(subject)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// What a settlement, or a netting, has to do with an obligation. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settlement {
    pub subject: String,
    pub obligation: ObligationId,
    pub amount: u64,
    pub settled_amount: u64,
    pub status: PartStatus,
    pub created_at: DateTime<Utc>,
    pub closed_at: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct Row {
    subject: String,
    obligation_id: u64,
    amount: u64,
    settled_amount: u64,
    status: String,
    created_at: DateTime<Utc>,
    closed_at: Option<DateTime<Utc>>,
}

impl Row {
    fn read(self) -> Result<Settlement, StoreError> {
        let obligation = ObligationId::from_bits(self.obligation_id);
        let status = PartStatus::parse(&self.status).ok_or_else(|| {
            let what = format!("{obligation} of {}: status {}", self.subject, self.status);
            corrupt("obligation_settlement", what)
        })?;
        Ok(Settlement {
            subject: self.subject,
            obligation,
            amount: self.amount,
            settled_amount: self.settled_amount,
            status,
            created_at: self.created_at,
            closed_at: self.closed_at,
        })
    }
}

const COLUMNS: &str =
    "subject, obligation_id, amount, settled_amount, status, created_at, closed_at";

/// What settled an obligation, or is promised to, oldest first.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn of_obligation(
    master: &Pool,
    id: ObligationId,
    limit: u32,
) -> Result<Vec<Settlement>, StoreError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM obligation_settlement WHERE obligation_id = ?
         ORDER BY created_at, subject LIMIT ?"
    );
    let rows: Vec<Row> = sqlx::query_as(sqlx::AssertSqlSafe(sql))
        .bind(id.bits())
        .bind(limit)
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// What some subjects have settled or promised.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn of_subjects(
    master: &Pool,
    subjects: &[String],
) -> Result<Vec<Settlement>, StoreError> {
    if subjects.is_empty() {
        return Ok(Vec::new());
    }
    let sql = format!(
        "SELECT {COLUMNS} FROM obligation_settlement WHERE subject IN ({})
         ORDER BY subject, obligation_id",
        placeholders(padded(subjects.len()))
    );
    let mut query = sqlx::query_as(sqlx::AssertSqlSafe(sql));
    for subject in list_of(subjects) {
        query = query.bind(subject.clone());
    }
    let rows: Vec<Row> = query.fetch_all(master).await.map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}
