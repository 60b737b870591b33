//! `checkpoint_log`, `log_leaf`, `log_node`: the logs of chain heads. Only the last is appended to,
//! under the lock of its row, so that leaves have no gaps and stand once.

pub mod checkpoints;
pub mod requests;
pub mod sources;
pub mod witnesses;

use std::collections::{BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::{MasterTx, failed};
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::{Leaf, LeafKind};
use crate::domain::merkle::Growing;
use crate::domain::merkle::proof::{NodeAt, full_parts};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::{Connection, Pool};
use crate::stores::sql::chunks;

/// A log.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Log {
    #[sqlx(rename = "log_number")]
    pub number: u32,
    pub origin: String,
    /// Leaves.
    pub size: u64,
    pub begun_at: DateTime<Utc>,
    /// Who began it in the place of another, and why.
    pub begun_by: Option<String>,
    pub reason: Option<String>,
    /// That it was begun, as a signed note.
    pub statement: Option<String>,
}

macro_rules! columns {
    () => {
        "SELECT log_number, origin, size, begun_at, begun_by, reason, statement FROM checkpoint_log"
    };
}

/// The log that is appended to, if there is any yet.
///
/// # Errors
/// The master's.
pub async fn last(master: &Pool) -> Result<Option<Log>, StoreError> {
    sqlx::query_as(concat!(columns!(), " ORDER BY log_number DESC LIMIT 1"))
        .fetch_optional(master)
        .await
        .map_err(failed)
}

/// # Errors
/// The master's.
pub async fn get(master: &Pool, number: u32) -> Result<Option<Log>, StoreError> {
    sqlx::query_as(concat!(columns!(), " WHERE log_number = ?"))
        .bind(number)
        .fetch_optional(master)
        .await
        .map_err(failed)
}

/// All logs, the last first, at most `limit`.
///
/// # Errors
/// The master's.
pub async fn list(master: &Pool, limit: u32) -> Result<Vec<Log>, StoreError> {
    sqlx::query_as(concat!(columns!(), " ORDER BY log_number DESC LIMIT ?"))
        .bind(limit)
        .fetch_all(master)
        .await
        .map_err(failed)
}

/// The last log, with its row locked: nobody else appends or begins another until the transaction
/// ends.
///
/// # Errors
/// The master's.
pub async fn lock_last(tx: &mut MasterTx) -> Result<Option<Log>, StoreError> {
    sqlx::query_as(concat!(
        columns!(),
        " ORDER BY log_number DESC LIMIT 1 FOR UPDATE"
    ))
    .fetch_optional(tx)
    .await
    .map_err(failed)
}

/// Begins a log without leaves; one of that number that is there stays as it is.
///
/// # Errors
/// The master's.
pub async fn begin(tx: &mut MasterTx, log: &Log) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "INSERT IGNORE INTO checkpoint_log
             (log_number, origin, size, pass_at, begun_at, begun_by, reason, statement)
         VALUES (?, ?, 0, ?, ?, ?, ?, ?)",
    )
    .bind(log.number)
    .bind(&log.origin)
    .bind(log.begun_at)
    .bind(log.begun_at)
    .bind(&log.begun_by)
    .bind(&log.reason)
    .bind(&log.statement)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Takes on the next look for heads, which is due; the one after it is due at `next`. Whoever dies
/// over it has only put it off.
///
/// # Errors
/// The master's.
pub async fn take_pass(
    master: &Pool,
    number: u32,
    next: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE checkpoint_log SET pass_at = ? WHERE log_number = ? AND pass_at <= ?")
            .bind(next)
            .bind(number)
            .bind(now)
            .execute(master)
            .await
            .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

#[derive(FromRow)]
struct LeafRow {
    leaf_index: u64,
    v: u16,
    kind: String,
    id: String,
    seq: u64,
    hash: Vec<u8>,
    at: DateTime<Utc>,
}

// The index is named, since for a single row in order the servers prefer to walk the log itself.
macro_rules! leaf_columns {
    () => {
        leaf_columns!("PRIMARY")
    };
    ($index:literal) => {
        concat!(
            "SELECT leaf_index, v, kind, id, seq, hash, at FROM log_leaf FORCE INDEX (",
            $index,
            ") WHERE log_number = ?"
        )
    };
}

impl LeafRow {
    fn read(self) -> Result<(u64, Leaf), StoreError> {
        let bad = |column: &str| corrupt("log_leaf", format!("{}: {column}", self.leaf_index));
        let leaf = Leaf {
            v: self.v,
            kind: LeafKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            hash: hash(&self.hash).ok_or_else(|| bad("hash"))?,
            id: self.id,
            seq: self.seq,
            at: self.at,
        };
        Ok((self.leaf_index, leaf))
    }
}

/// One leaf, with its index.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn leaf(master: &Pool, log: u32, index: u64) -> Result<Option<(u64, Leaf)>, StoreError> {
    let row: Option<LeafRow> = sqlx::query_as(concat!(leaf_columns!(), " AND leaf_index = ?"))
        .bind(log)
        .bind(index)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(LeafRow::read).transpose()
}

/// The last leaf of a chain among the first `size`. One row of an index.
pub const LAST_OF: &str = concat!(
    leaf_columns!("log_leaf_of"),
    " AND kind = ? AND id = ? AND leaf_index < ? ORDER BY leaf_index DESC LIMIT 1"
);

/// See [`LAST_OF`].
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn last_leaf(
    master: &Pool,
    log: u32,
    (kind, id): (LeafKind, &str),
    size: u64,
) -> Result<Option<(u64, Leaf)>, StoreError> {
    let row: Option<LeafRow> = sqlx::query_as(LAST_OF)
        .bind(log)
        .bind(kind.as_str())
        .bind(id)
        .bind(size)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(LeafRow::read).transpose()
}

/// The first leaf of a chain at a seq among the first `size`. One row of an index.
pub const LEAF_AT: &str = concat!(
    leaf_columns!("log_leaf_at"),
    " AND kind = ? AND id = ? AND seq = ? AND leaf_index < ? ORDER BY leaf_index LIMIT 1"
);

/// See [`LEAF_AT`].
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn leaf_at(
    master: &Pool,
    log: u32,
    (kind, id): (LeafKind, &str),
    seq: u64,
    size: u64,
) -> Result<Option<(u64, Leaf)>, StoreError> {
    let row: Option<LeafRow> = sqlx::query_as(LEAF_AT)
        .bind(log)
        .bind(kind.as_str())
        .bind(id)
        .bind(seq)
        .bind(size)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    row.map(LeafRow::read).transpose()
}

/// The last leaves of several chains of one kind, by their ids: one row of an index for each.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn last_leaves(
    tx: &mut MasterTx,
    log: u32,
    kind: LeafKind,
    ids: &[String],
) -> Result<HashMap<String, Leaf>, StoreError> {
    let mut found = HashMap::new();
    let mut rest = ids;
    for size in chunks(ids.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new("");
        for (place, id) in chunk.iter().enumerate() {
            builder.push(if place == 0 { "(" } else { " UNION ALL (" });
            let mut parts = LAST_OF.split('?');
            builder
                .push(parts.next().unwrap_or_default())
                .push_bind(log);
            builder
                .push(parts.next().unwrap_or_default())
                .push_bind(kind.as_str());
            builder.push(parts.next().unwrap_or_default()).push_bind(id);
            builder
                .push(parts.next().unwrap_or_default())
                .push_bind(u64::MAX);
            builder.push(parts.next().unwrap_or_default()).push(")");
        }
        let rows: Vec<LeafRow> = builder
            .build_query_as()
            .fetch_all(&mut *tx)
            .await
            .map_err(failed)?;
        for row in rows {
            let (_, leaf) = row.read()?;
            found.insert(leaf.id.clone(), leaf);
        }
    }
    Ok(found)
}

/// Appends leaves to a log whose row is locked.
///
/// # Errors
/// The master's, or nodes that are missing.
pub async fn append(tx: &mut MasterTx, log: &mut Log, leaves: &[Leaf]) -> Result<(), StoreError> {
    if leaves.is_empty() {
        return Ok(());
    }
    let parts = full_parts(0, log.size);
    let known = nodes(tx, log.number, parts.iter().copied()).await?;
    let full: Option<Vec<Hash>> = parts.iter().map(|part| known.get(part).copied()).collect();
    let tree = full.and_then(|full| Growing::from_full(log.size, full));
    let mut tree = tree.ok_or_else(|| corrupt("log_node", "a full subtree is missing"))?;
    let mut made = Vec::new();
    for leaf in leaves {
        tree.push_noting(leaf.hash_in_tree(), |at, hash| made.push((at, hash)));
    }
    insert_leaves(tx, log, leaves).await?;
    insert_nodes(tx, log.number, &made).await?;
    sqlx::query("UPDATE checkpoint_log SET size = ? WHERE log_number = ?")
        .bind(tree.size())
        .bind(log.number)
        .execute(tx)
        .await
        .map_err(failed)?;
    log.size = tree.size();
    Ok(())
}

async fn insert_leaves(tx: &mut MasterTx, log: &Log, leaves: &[Leaf]) -> Result<(), StoreError> {
    let mut index = log.size;
    let mut rest = leaves;
    for size in chunks(leaves.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO log_leaf (log_number, leaf_index, v, kind, id, seq, hash, at) ",
        );
        builder.push_values(chunk, |mut row, leaf| {
            row.push_bind(log.number)
                .push_bind(index)
                .push_bind(leaf.v)
                .push_bind(leaf.kind.as_str())
                .push_bind(leaf.id.clone())
                .push_bind(leaf.seq)
                .push_bind(leaf.hash.0.to_vec())
                .push_bind(leaf.at);
            index += 1;
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

async fn insert_nodes(
    tx: &mut MasterTx,
    log: u32,
    nodes: &[(NodeAt, Hash)],
) -> Result<(), StoreError> {
    let mut rest = nodes;
    for size in chunks(nodes.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO log_node (log_number, level, node_index, hash) ",
        );
        builder.push_values(chunk, |mut row, (at, hash)| {
            row.push_bind(log)
                .push_bind(at.level)
                .push_bind(at.index)
                .push_bind(hash.0.to_vec());
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

/// Roots of full subtrees: one row of the key for each.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn nodes(
    connection: &mut Connection,
    log: u32,
    wanted: impl Iterator<Item = NodeAt>,
) -> Result<HashMap<NodeAt, Hash>, StoreError> {
    let wanted: BTreeSet<NodeAt> = wanted.collect();
    if wanted.is_empty() {
        return Ok(HashMap::new());
    }
    let mut builder = QueryBuilder::<MySql>::new(
        "SELECT level, node_index, hash FROM log_node WHERE log_number = ",
    );
    builder.push_bind(log).push(" AND (");
    for (place, at) in wanted.into_iter().enumerate() {
        builder.push(if place == 0 {
            "(level = "
        } else {
            " OR (level = "
        });
        builder.push_bind(at.level).push(" AND node_index = ");
        builder.push_bind(at.index).push(")");
    }
    builder.push(")");
    let rows: Vec<(u8, u64, Vec<u8>)> = builder
        .build_query_as()
        .fetch_all(connection)
        .await
        .map_err(failed)?;
    rows.into_iter()
        .map(|(level, index, bytes)| {
            let hash = hash(&bytes).ok_or_else(|| corrupt("log_node", "hash"))?;
            Ok((NodeAt { level, index }, hash))
        })
        .collect()
}

fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}
