use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;
use uuid::Uuid;

use crate::domain::broker_move::{BookPlace, BrokerMove, MoveCause, MoveProof, MoveState};
use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

macro_rules! move_columns {
    () => {
        "move_id, broker_id, state, cause, from_shard_id, from_server, from_database, to_shard_id, \
         to_server, to_database, retention_s, cancel_wanted, source_epoch, fencings, claim_no, \
         due_at, tries, fault, rows_total, rows_copied, head_seq, head_hash, root_before, \
         root_after, table_rows, layout, pause_us, created_at, flipped_at, ended_at, \
         abandoned_because"
    };
}
pub(super) use move_columns;

#[derive(FromRow)]
pub(super) struct MoveRow {
    move_id: Uuid,
    broker_id: u64,
    state: String,
    cause: String,
    from_shard_id: Option<u32>,
    from_server: String,
    from_database: String,
    to_shard_id: Option<u32>,
    to_server: String,
    to_database: String,
    retention_s: u32,
    cancel_wanted: bool,
    source_epoch: Option<u64>,
    fencings: u32,
    claim_no: u64,
    due_at: Option<DateTime<Utc>>,
    tries: u32,
    fault: Option<String>,
    rows_total: u64,
    rows_copied: u64,
    head_seq: Option<u64>,
    head_hash: Option<Vec<u8>>,
    root_before: Option<Vec<u8>>,
    root_after: Option<Vec<u8>>,
    table_rows: Option<Value>,
    layout: Option<Vec<u8>>,
    pause_us: Option<u64>,
    created_at: DateTime<Utc>,
    flipped_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    abandoned_because: Option<String>,
}

impl MoveRow {
    pub(super) fn read(self) -> Result<BrokerMove, StoreError> {
        let bad = |column: &str| corrupt("broker_move", format!("{}: {column}", self.move_id));
        let state = MoveState::parse(&self.state).ok_or_else(|| bad("state"))?;
        let cause = MoveCause::parse(&self.cause).ok_or_else(|| bad("cause"))?;
        let proof = match (self.head_seq, self.table_rows) {
            (Some(seq), Some(rows)) => {
                let hash = |bytes: Option<Vec<u8>>, column| {
                    let bytes = bytes.and_then(|bytes| bytes.try_into().ok());
                    bytes.map(Hash).ok_or_else(|| bad(column))
                };
                Some(MoveProof {
                    head: Head {
                        seq,
                        hash: hash(self.head_hash, "head_hash")?,
                    },
                    root_before: hash(self.root_before, "root_before")?,
                    root_after: hash(self.root_after, "root_after")?,
                    rows,
                    layout: hash(self.layout, "layout")?,
                })
            }
            (Some(_), None) | (None, _) => None,
        };
        Ok(BrokerMove {
            id: self.move_id,
            broker: self.broker_id,
            state,
            cause,
            from: BookPlace {
                shard_id: self.from_shard_id,
                server: self.from_server,
                database: self.from_database,
            },
            to: BookPlace {
                shard_id: self.to_shard_id,
                server: self.to_server,
                database: self.to_database,
            },
            retention_s: self.retention_s,
            cancel_wanted: self.cancel_wanted,
            source_epoch: self.source_epoch,
            fencings: self.fencings,
            claim: self.claim_no,
            due_at: self.due_at,
            tries: self.tries,
            fault: self.fault,
            rows_total: self.rows_total,
            rows_copied: self.rows_copied,
            proof,
            pause_us: self.pause_us,
            created_at: self.created_at,
            flipped_at: self.flipped_at,
            ended_at: self.ended_at,
            abandoned_because: self.abandoned_because,
        })
    }
}
