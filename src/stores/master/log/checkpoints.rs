//! `checkpoint`, `checkpoint_signature`, `log_key`: signed states of the logs, and by whom.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use crate::domain::canonical::Hash;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;

/// A signed state of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signed {
    pub log: u32,
    pub size: u64,
    pub root: Hash,
    /// The text with our own signatures.
    pub note: String,
    pub signed_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct Row {
    log_number: u32,
    size: u64,
    root: Vec<u8>,
    note: String,
    signed_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Signed, StoreError> {
        let root = super::hash(&self.root).ok_or_else(|| corrupt("checkpoint", "root"))?;
        Ok(Signed {
            log: self.log_number,
            size: self.size,
            root,
            note: self.note,
            signed_at: self.signed_at,
        })
    }
}

macro_rules! columns {
    () => {
        "SELECT log_number, size, root, note, signed_at FROM checkpoint WHERE log_number = ?"
    };
}

/// The last checkpoint of a log, or that of a size.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, log: u32, size: Option<u64>) -> Result<Option<Signed>, StoreError> {
    let sql = match size {
        None => concat!(columns!(), " ORDER BY size DESC LIMIT 1"),
        Some(_) => concat!(columns!(), " AND size = ?"),
    };
    let query = sqlx::query_as(sql).bind(log);
    let query = match size {
        None => query,
        Some(size) => query.bind(size),
    };
    let row: Option<Row> = query.fetch_optional(master).await.map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Keeps a checkpoint; one of that size that is there stays as it is.
///
/// # Errors
/// The master's.
pub async fn insert(tx: &mut MasterTx, signed: &Signed) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT IGNORE INTO checkpoint (log_number, size, root, note, signed_at)
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(signed.log)
    .bind(signed.size)
    .bind(signed.root.0.to_vec())
    .bind(&signed.note)
    .bind(signed.signed_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// The lines of those who have cosigned a checkpoint, in the order in which they came; at most
/// `limit`.
///
/// # Errors
/// The master's.
pub async fn cosignatures(
    master: &Pool,
    log: u32,
    size: u64,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT line FROM checkpoint_signature WHERE log_number = ? AND size = ?
         ORDER BY created_at, witness_id LIMIT ?",
    )
    .bind(log)
    .bind(size)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// Keeps a cosignature; false where the witness has cosigned this checkpoint before.
///
/// # Errors
/// The master's.
pub async fn cosign(
    master: &Pool,
    (log, size): (u32, u64),
    witness: u64,
    line: &str,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT IGNORE INTO checkpoint_signature (log_number, size, witness_id, line, created_at)
         VALUES (?, ?, ?, ?, ?)",
    )
    .bind(log)
    .bind(size)
    .bind(witness)
    .bind(line)
    .bind(now)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Makes the public half of a key known that signs checkpoints.
///
/// # Errors
/// The master's.
pub async fn register_key(
    tx: &mut MasterTx,
    public_key: &[u8; 32],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("INSERT IGNORE INTO log_key (public_key, created_at) VALUES (?, ?)")
        .bind(public_key.as_slice())
        .bind(now)
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}

/// The public halves of all keys that have ever signed, oldest first, each with when it first did.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn keys(master: &Pool) -> Result<Vec<([u8; 32], DateTime<Utc>)>, StoreError> {
    let rows: Vec<(Vec<u8>, DateTime<Utc>)> = sqlx::query_as(
        "SELECT public_key, created_at FROM log_key ORDER BY created_at, public_key",
    )
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter()
        .map(|(bytes, at)| {
            let key = bytes.try_into();
            Ok((key.map_err(|_| corrupt("log_key", "public_key"))?, at))
        })
        .collect()
}
