//! What reconciliation reads of the master, beyond what the product needs from day to day.

pub mod netting;
mod strays;

pub use strays::{
    ObligationRow, SagaRow, Sides, eventful, obligations, open_steps, sagas, sagas_there, sides,
    stepping,
};

use std::collections::BTreeMap;

use sqlx::FromRow;
use uuid::Uuid;

use super::{failed, requests};
use crate::domain::ids::{BrokerId, ObligationId, RequestId};
use crate::domain::request::Owing;
use crate::domain::saga::{SagaKind, SagaStatus};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;
use crate::stores::router::DatabaseKey;

/// A broker with the database that its book is to be in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub broker: BrokerId,
    pub database: DatabaseKey,
    /// Its book is still being made.
    pub provisioning: bool,
    /// It has left, and its book is kept.
    pub archived: bool,
}

/// Brokers that have a place, after a number, in the order of numbers.
///
/// # Errors
/// The master's.
pub async fn placed(master: &Pool, after: BrokerId, limit: u32) -> Result<Vec<Placed>, StoreError> {
    let rows: Vec<(u64, String, String, String)> = sqlx::query_as(
        "SELECT broker_id, server, db, state FROM (
             SELECT b.broker_id, b.state,
                    IF(b.broker_mode = 'FULL', b.server_name, s.server_name) AS server,
                    IF(b.broker_mode = 'FULL', b.database_name, s.database_name) AS db
             FROM broker b LEFT JOIN shared_shard s ON s.shard_id = b.shared_shard_id
             WHERE b.broker_id > ? ORDER BY b.broker_id
         ) AS place WHERE server IS NOT NULL AND db IS NOT NULL ORDER BY broker_id LIMIT ?",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows
        .into_iter()
        .map(|(broker, server, database, state)| Placed {
            broker,
            database: DatabaseKey { server, database },
            provisioning: state == "provisioning",
            archived: state == "archived",
        })
        .collect())
}

/// Every database that the registry names and that is whole.
///
/// # Errors
/// The master's.
pub async fn databases(master: &Pool) -> Result<Vec<DatabaseKey>, StoreError> {
    let rows: Vec<(String, String)> = sqlx::query_as(
        "SELECT server_name, database_name FROM shared_shard WHERE state = 'open'
         UNION
         SELECT server_name, database_name FROM broker
         WHERE broker_mode = 'FULL' AND state <> 'provisioning'
           AND server_name IS NOT NULL AND database_name IS NOT NULL
         ORDER BY 1, 2",
    )
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows
        .into_iter()
        .map(|(server, database)| DatabaseKey { server, database })
        .collect())
}

/// Whether there are at most so many requests and brokers. Counts no further.
///
/// # Errors
/// The master's.
pub async fn is_within(master: &Pool, requests: u32, brokers: u32) -> Result<bool, StoreError> {
    let (found_requests, found_brokers): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM (SELECT 1 FROM network_request LIMIT ?) AS r),
                (SELECT COUNT(*) FROM (SELECT 1 FROM broker LIMIT ?) AS b)",
    )
    .bind(requests.saturating_add(1))
    .bind(brokers.saturating_add(1))
    .fetch_one(master)
    .await
    .map_err(failed)?;
    Ok(found_requests <= i64::from(requests) && found_brokers <= i64::from(brokers))
}

/// A broker's requests whose reservations stand.
///
/// # Errors
/// The master's.
pub async fn promising(master: &Pool, broker: BrokerId) -> Result<Vec<RequestId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(
        "SELECT request_id FROM network_request
         WHERE author_broker_id = ? AND reservation_saga_id IS NOT NULL
         UNION
         SELECT request_id FROM network_request
         WHERE target_broker_id = ? AND reservation_saga_id IS NOT NULL",
    )
    .bind(broker)
    .bind(broker)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(ids.into_iter().map(RequestId::from_bits).collect())
}

/// What the rows of some requests say that they take of credit lines.
///
/// # Errors
/// The master's.
pub async fn credit_holds(
    master: &Pool,
    ids: &[RequestId],
) -> Result<BTreeMap<RequestId, Option<Owing>>, StoreError> {
    type Row = (u64, Option<u64>, Option<u64>, Option<u64>);
    let bits: Vec<u64> = ids.iter().map(|id| id.bits()).collect();
    let rows: Vec<Row> = strays::among(
        master,
        "SELECT request_id, credit_debtor_id, credit_creditor_id, credit_amount
         FROM network_request WHERE request_id IN (",
        &bits,
        ")",
    )
    .await?;
    let hold = |(id, debtor, creditor, amount): Row| {
        let owing = debtor.zip(creditor).zip(amount);
        let owing = owing.map(|((debtor, creditor), amount)| Owing {
            debtor,
            creditor,
            amount,
        });
        (RequestId::from_bits(id), owing)
    };
    Ok(rows.into_iter().map(hold).collect())
}

/// A saga of a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SagaOf {
    pub saga_id: Uuid,
    pub kind: SagaKind,
    pub status: SagaStatus,
}

/// The sagas of some subjects, each with its subject, the oldest first.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn sagas_of_all(
    master: &Pool,
    subjects: &[String],
) -> Result<Vec<(String, SagaOf)>, StoreError> {
    let rows: Vec<(String, Uuid, String, String)> = strays::among(
        master,
        "SELECT subject, saga_id, kind, status FROM saga WHERE subject IN (",
        subjects,
        ") ORDER BY subject, created_at, saga_id",
    )
    .await?;
    rows.into_iter()
        .map(|(subject, saga_id, kind, status)| {
            let bad = |column: &str| corrupt("saga", format!("{saga_id}: {column}"));
            let saga = SagaOf {
                saga_id,
                kind: SagaKind::parse(&kind).ok_or_else(|| bad("kind"))?,
                status: SagaStatus::parse(&status).ok_or_else(|| bad("status"))?,
            };
            Ok((subject, saga))
        })
        .collect()
}

/// A broker's claims less its debts in one currency, minor units, of active obligations.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Net {
    pub broker: BrokerId,
    pub currency_code: String,
    pub net: i64,
}

/// The nets of brokers from one number to another, both included.
///
/// # Errors
/// The master's.
pub async fn nets(master: &Pool, from: BrokerId, to: BrokerId) -> Result<Vec<Net>, StoreError> {
    sqlx::query_as(
        "SELECT broker, currency_code, CAST(SUM(amount) AS SIGNED) AS net FROM (
             SELECT creditor_broker_id AS broker, currency_code, CAST(remaining_amount AS SIGNED) AS amount
             FROM obligation WHERE creditor_broker_id BETWEEN ? AND ? AND status = 'active'
             UNION ALL
             SELECT debtor_broker_id, currency_code, -CAST(remaining_amount AS SIGNED)
             FROM obligation WHERE debtor_broker_id BETWEEN ? AND ? AND status = 'active'
         ) AS both_sides GROUP BY broker, currency_code ORDER BY broker, currency_code",
    )
    .bind(from)
    .bind(to)
    .bind(from)
    .bind(to)
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// A debt, or a repayment, whose saga has not ended: in the ledger it is held, posted or void. A
/// repayment goes the other way: there its creditor is the debtor.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InFlight {
    pub saga_id: Uuid,
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub currency_code: String,
    pub amount: u64,
}

/// The debts in flight that touch brokers from one number to another, both included.
///
/// # Errors
/// The master's.
pub async fn in_flight(
    master: &Pool,
    from: BrokerId,
    to: BrokerId,
) -> Result<Vec<InFlight>, StoreError> {
    let rows: Vec<(Uuid, u64, u64, String, u64)> = sqlx::query_as(
        "SELECT saga_id, debtor_broker_id, creditor_broker_id, currency_code, amount
         FROM obligation WHERE debtor_broker_id BETWEEN ? AND ? AND status = 'pending'
         UNION
         SELECT saga_id, debtor_broker_id, creditor_broker_id, currency_code, amount
         FROM obligation WHERE creditor_broker_id BETWEEN ? AND ? AND status = 'pending'
         ORDER BY 1",
    )
    .bind(from)
    .bind(to)
    .bind(from)
    .bind(to)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let debts =
        rows.into_iter().map(
            |(saga_id, debtor, creditor, currency_code, amount)| InFlight {
                saga_id,
                debtor,
                creditor,
                currency_code,
                amount,
            },
        );
    let mut all: Vec<InFlight> = debts.collect();
    let within = from..=to;
    let repayments = repayments_in_flight(master).await?.into_iter();
    all.extend(
        repayments.filter(|one| within.contains(&one.debtor) || within.contains(&one.creditor)),
    );
    all.sort_unstable();
    Ok(all)
}

/// The settlements whose sagas have not ended: of the few sagas that run.
async fn repayments_in_flight(master: &Pool) -> Result<Vec<InFlight>, StoreError> {
    let rows: Vec<(String, Uuid)> = sqlx::query_as(
        "SELECT subject, saga_id FROM saga
         WHERE status IN ('running', 'compensating', 'stuck') AND kind = 'confirm'",
    )
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let sagas: BTreeMap<RequestId, Uuid> = rows
        .into_iter()
        .filter_map(|(subject, saga_id)| Some((subject.parse().ok()?, saga_id)))
        .collect();
    let ids: Vec<RequestId> = sagas.keys().copied().collect();
    let mut all = Vec::new();
    for page in ids.chunks(SAGAS_PAGE) {
        for (id, request) in requests::some(master, page).await? {
            let Ok(request) = request else { continue };
            let sides = request.settles.and_then(|settles| {
                let debtor = request.broker_of(settles.debtor)?;
                Some((debtor, request.broker_of(settles.debtor.other())?))
            });
            if let (Some((debtor, creditor)), Some(saga_id)) = (sides, sagas.get(&id)) {
                all.push(InFlight {
                    saga_id: *saga_id,
                    debtor: creditor,
                    creditor: debtor,
                    currency_code: request.currency.to_string(),
                    amount: request.settled_amount().minor(),
                });
            }
        }
    }
    Ok(all)
}

/// Requests of running sagas that are read at once.
const SAGAS_PAGE: usize = 500;

/// An obligation that its settlements say something else of. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsettled {
    pub id: ObligationId,
    pub remaining: u64,
    pub reserved: u64,
    pub should_remain: i64,
    pub should_reserve: i64,
}

/// Of a page of obligations after an id those that are not what their settlements say, and the last
/// of the page; none where the page is the last.
///
/// # Errors
/// The master's.
pub async fn unsettled(
    master: &Pool,
    after: Option<ObligationId>,
    limit: u32,
) -> Result<(Vec<Unsettled>, Option<ObligationId>), StoreError> {
    let rows: Vec<(u64, u64, u64, String, i64, i64)> = sqlx::query_as(
        "SELECT o.obligation_id, o.remaining_amount, o.reserved_amount, o.status,
                CAST(o.amount AS SIGNED) - COALESCE(CAST(SUM(s.settled_amount) AS SIGNED), 0),
                COALESCE(CAST(SUM(IF(s.status = 'reserved', s.amount, 0)) AS SIGNED), 0)
         FROM (SELECT * FROM obligation WHERE obligation_id > ? ORDER BY obligation_id LIMIT ?) AS o
         LEFT JOIN obligation_settlement s ON s.obligation_id = o.obligation_id
         GROUP BY o.obligation_id, o.remaining_amount, o.reserved_amount, o.status, o.amount
         ORDER BY o.obligation_id",
    )
    .bind(after.map_or(0, ObligationId::bits))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let full = rows.len() == limit as usize;
    let last = rows.last().map(|row| ObligationId::from_bits(row.0));
    let found = rows.into_iter().filter_map(
        |(id, remaining, reserved, status, should_remain, should_reserve)| {
            let stands = status != "failed";
            let right = if stands {
                i64::try_from(remaining) == Ok(should_remain)
                    && i64::try_from(reserved) == Ok(should_reserve)
                    && (status == "settled") == (remaining == 0)
            } else {
                remaining == 0 && reserved == 0
            };
            (!right).then(|| Unsettled {
                id: ObligationId::from_bits(id),
                remaining,
                reserved,
                should_remain,
                should_reserve,
            })
        },
    );
    Ok((found.collect(), last.filter(|_| full)))
}
