//! `witness`: the keys of those who cosign checkpoints.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::domain::ids::BrokerId;
use crate::domain::note::NoteKey;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::failed;
use crate::stores::pool::Pool;

/// Somebody who cosigns checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    pub id: u64,
    /// Whose it is; `None` for one from outside.
    pub broker_id: Option<BrokerId>,
    pub key: NoteKey,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    /// Set once its signatures are not taken any more.
    pub withdrawn_at: Option<DateTime<Utc>>,
}

#[derive(FromRow)]
struct Row {
    witness_id: u64,
    broker_id: Option<u64>,
    vkey: String,
    created_by: String,
    created_at: DateTime<Utc>,
    withdrawn_at: Option<DateTime<Utc>>,
}

impl Row {
    fn read(self) -> Result<Witness, StoreError> {
        let key = self.vkey.parse();
        Ok(Witness {
            id: self.witness_id,
            broker_id: self.broker_id,
            key: key.map_err(|_| corrupt("witness", format!("{}: vkey", self.witness_id)))?,
            created_by: self.created_by,
            created_at: self.created_at,
            withdrawn_at: self.withdrawn_at,
        })
    }
}

macro_rules! columns {
    () => {
        "SELECT witness_id, broker_id, vkey, created_by, created_at, withdrawn_at FROM witness"
    };
}

/// The witness of that name whose signatures are taken.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn named(master: &Pool, name: &str) -> Result<Option<Witness>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(columns!(), " WHERE name = ? AND is_active = 1"))
        .bind(name)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// A broker's own.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn of_broker(master: &Pool, broker: BrokerId) -> Result<Option<Witness>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        columns!(),
        " WHERE broker_id = ? AND is_active = 1"
    ))
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: u64) -> Result<Option<Witness>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(columns!(), " WHERE witness_id = ?"))
        .bind(id)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Witnesses, newest first, withdrawn ones too; `before` is the last of the page before.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    before: Option<u64>,
    limit: u32,
) -> Result<Vec<Witness>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        columns!(),
        " WHERE witness_id < ? ORDER BY witness_id DESC LIMIT ?"
    ))
    .bind(before.unwrap_or(u64::MAX))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// # Errors
/// The master's; a duplicate where the name is taken, or the broker has one.
pub async fn insert(
    master: &Pool,
    broker: Option<BrokerId>,
    key: &NoteKey,
    by: &str,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "INSERT INTO witness (broker_id, name, vkey, is_active, created_by, created_at)
         VALUES (?, ?, ?, 1, ?, ?)",
    )
    .bind(broker)
    .bind(key.name())
    .bind(key.to_string())
    .bind(by)
    .bind(now)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.last_insert_id())
}

/// Takes no more signatures of a witness; what it has signed stays.
///
/// # Errors
/// The master's.
pub async fn withdraw(master: &Pool, id: u64, now: DateTime<Utc>) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE witness SET is_active = NULL, withdrawn_at = ?
         WHERE witness_id = ? AND is_active = 1",
    )
    .bind(now)
    .bind(id)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}
