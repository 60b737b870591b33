//! `pause`: what is paused and what was, with who and why.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{MasterTx, failed};
use crate::domain::ids::BrokerId;
use crate::domain::money::CurrencyCode;
use crate::domain::pause::{Lifted, Pausable, Pause, PauseScope};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;

#[derive(FromRow)]
struct Row {
    pause_id: u64,
    scope: String,
    broker_id: u64,
    currency_code: String,
    reason: String,
    paused_by: String,
    paused_at: DateTime<Utc>,
    lifted_by: Option<String>,
    lifted_at: Option<DateTime<Utc>>,
    lift_reason: Option<String>,
}

macro_rules! columns {
    () => {
        "pause_id, scope, broker_id, currency_code, reason, paused_by, paused_at, lifted_by, \
         lifted_at, lift_reason"
    };
}

impl Row {
    fn read(self) -> Result<Pause, StoreError> {
        let bad = |column: &str| corrupt("pause", format!("{}: {column}", self.pause_id));
        let what = match PauseScope::parse(&self.scope).ok_or_else(|| bad("scope"))? {
            PauseScope::Network => Pausable::Network,
            PauseScope::Broker => Pausable::Broker(self.broker_id),
            PauseScope::Currency => {
                let code = self.currency_code.parse();
                Pausable::Currency(code.map_err(|_| bad("currency_code"))?)
            }
        };
        Ok(Pause {
            id: self.pause_id,
            what,
            reason: self.reason,
            by: self.paused_by,
            at: self.paused_at,
            lifted: self.lifted_by.zip(self.lifted_at).map(|(by, at)| Lifted {
                by,
                at,
                reason: self.lift_reason,
            }),
        })
    }
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: u64) -> Result<Option<Pause>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pause WHERE pause_id = ?"
    ))
    .bind(id)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The open pause of a thing, if it is paused.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn open_of(tx: &mut MasterTx, what: &Pausable) -> Result<Option<Pause>, StoreError> {
    let (broker, currency) = keys(what);
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pause WHERE scope = ? AND broker_id = ? AND currency_code = ? AND is_open = 1"
    ))
    .bind(what.scope().as_str())
    .bind(broker)
    .bind(currency)
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Pauses, newest first; `before` is the last of the page before.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    open_only: bool,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<Pause>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pause WHERE pause_id < ? AND (? = 0 OR is_open = 1)
          ORDER BY pause_id DESC LIMIT ?"
    ))
    .bind(before.unwrap_or(u64::MAX))
    .bind(open_only)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Inserts an open pause, and gives its number.
///
/// # Errors
/// The master's; a duplicate where the thing is paused already.
pub async fn insert(
    tx: &mut MasterTx,
    what: &Pausable,
    reason: &str,
    by: &str,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let (broker, currency) = keys(what);
    let done = sqlx::query(
        "INSERT INTO pause
             (scope, broker_id, currency_code, is_open, reason, paused_by, paused_at)
         VALUES (?, ?, ?, 1, ?, ?, ?)",
    )
    .bind(what.scope().as_str())
    .bind(broker)
    .bind(currency)
    .bind(reason)
    .bind(by)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.last_insert_id())
}

/// Lifts a pause that is open.
///
/// # Errors
/// The master's.
pub async fn lift(
    tx: &mut MasterTx,
    id: u64,
    reason: Option<&str>,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE pause SET is_open = NULL, lifted_by = ?, lifted_at = ?, lift_reason = ?
         WHERE pause_id = ? AND is_open = 1",
    )
    .bind(by)
    .bind(now)
    .bind(reason)
    .bind(id)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

fn keys(what: &Pausable) -> (BrokerId, &str) {
    let currency = what.currency().map_or("", CurrencyCode::as_str);
    (what.broker().unwrap_or(0), currency)
}
