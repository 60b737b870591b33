//! `arbiter_tie`: which arbiters are tied to which brokers.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::{BrokerId, UserId};
use crate::stores::StoreError;
use crate::stores::pool::Pool;
use crate::stores::sql::list_of;

/// An arbiter who hears no dispute of a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tie {
    pub id: u64,
    pub user: UserId,
    pub broker: BrokerId,
    pub reason: String,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    /// Who has ended it, and when.
    pub ended: Option<(String, DateTime<Utc>)>,
}

#[derive(FromRow)]
struct Row {
    tie_id: u64,
    user_id: u64,
    broker_id: u64,
    reason: String,
    created_by: String,
    created_at: DateTime<Utc>,
    ended_by: Option<String>,
    ended_at: Option<DateTime<Utc>>,
}

impl From<Row> for Tie {
    fn from(row: Row) -> Self {
        Self {
            id: row.tie_id,
            user: UserId::from_bits(row.user_id),
            broker: row.broker_id,
            reason: row.reason,
            created_by: row.created_by,
            created_at: row.created_at,
            ended: row.ended_by.zip(row.ended_at),
        }
    }
}

macro_rules! columns {
    () => {
        "SELECT tie_id, user_id, broker_id, reason, created_by, created_at, ended_by, ended_at
         FROM arbiter_tie"
    };
}

/// How an arbiter stands to a dispute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Free,
    /// Tied to one of its sides.
    Tied,
    /// Its log-in was disabled.
    Gone,
}

/// How a person stands to some brokers. Whom the network doesn't know, since another issuer vouches
/// for them, has no ties here.
///
/// # Errors
/// The master's.
pub async fn standing(
    master: &Pool,
    user: UserId,
    brokers: &[BrokerId],
) -> Result<Standing, StoreError> {
    let known: Option<(Option<u64>, String)> =
        sqlx::query_as("SELECT broker_id, state FROM user WHERE user_id = ?")
            .bind(user.bits())
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    match known {
        Some((Some(broker), _)) if brokers.contains(&broker) => return Ok(Standing::Tied),
        Some((_, state)) if state != "active" => return Ok(Standing::Gone),
        Some(_) | None => {}
    }
    let mut builder = QueryBuilder::<MySql>::new(
        "SELECT COUNT(*) FROM arbiter_tie WHERE is_active = 1 AND user_id = ",
    );
    builder.push_bind(user.bits()).push(" AND broker_id IN (");
    let mut list = builder.separated(", ");
    for broker in list_of(brokers) {
        list.push_bind(*broker);
    }
    builder.push(")");
    let ties: i64 = builder
        .build_query_scalar()
        .fetch_one(master)
        .await
        .map_err(failed)?;
    Ok(if ties > 0 {
        Standing::Tied
    } else {
        Standing::Free
    })
}

/// Ties, the last first, ended ones too where `all`; `before` is the last of the page before.
///
/// # Errors
/// The master's.
pub async fn list(
    master: &Pool,
    all: bool,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<Tie>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        columns!(),
        " WHERE tie_id < ? AND (? OR is_active = 1) ORDER BY tie_id DESC LIMIT ?"
    ))
    .bind(before.unwrap_or(u64::MAX))
    .bind(all)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(rows.into_iter().map(Tie::from).collect())
}

/// # Errors
/// The master's.
pub async fn get(master: &Pool, id: u64) -> Result<Option<Tie>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(columns!(), " WHERE tie_id = ?"))
        .bind(id)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    Ok(row.map(Tie::from))
}

/// The tie of an arbiter to a broker that has not ended.
///
/// # Errors
/// The master's.
pub async fn active(
    master: &Pool,
    user: UserId,
    broker: BrokerId,
) -> Result<Option<Tie>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        columns!(),
        " WHERE user_id = ? AND broker_id = ? AND is_active = 1"
    ))
    .bind(user.bits())
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(row.map(Tie::from))
}

/// Writes a tie down; one that is there stays as it is.
///
/// # Errors
/// The master's.
pub async fn insert(
    master: &Pool,
    (user, broker): (UserId, BrokerId),
    reason: &str,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT IGNORE INTO arbiter_tie
             (user_id, broker_id, reason, is_active, created_by, created_at)
         VALUES (?, ?, ?, 1, ?, ?)",
    )
    .bind(user.bits())
    .bind(broker)
    .bind(reason)
    .bind(by)
    .bind(now)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Ends a tie; one that has ended stays as it is.
///
/// # Errors
/// The master's.
pub async fn end(master: &Pool, id: u64, by: &str, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE arbiter_tie SET is_active = NULL, ended_by = ?, ended_at = ?
         WHERE tie_id = ? AND is_active = 1",
    )
    .bind(by)
    .bind(now)
    .bind(id)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(())
}
