//! `broker_move`: moves of books, each a row that one process at a time works on.
//!
//! A claim has a number that only rises; whatever a process writes here is conditional on its own,
//! so that one which stood still finds that another has gone on. `due_at` is when somebody must
//! look at the move: the end of a lease, a retry, the end of retention.

mod row;
mod step;
mod wanted;

pub use step::{Step, step};
pub use wanted::{WANTING, want_mode, wanting};

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{FromRow, MySql, QueryBuilder};
use uuid::Uuid;

use super::feed::{self, NewEvent};
use super::{MasterTx, failed};
use crate::domain::broker_move::{
    BookPlace, BrokerMove, MoveCause, MoveEvent, MoveProof, MoveState,
};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Pool;
use crate::stores::router::DatabaseKey;
use crate::stores::sql::push_after;

use row::{MoveRow, move_columns};
use step::following;

/// The kind of the alert of a plan that finds no room for its book; its subject is the broker.
pub const NO_ROOM_ALERT: &str = "no_room";
/// The kind of the alert of a move that needs an admin; its subject is the move's id.
pub const ALERT: &str = "move_stuck";

/// A move that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMove {
    pub id: Uuid,
    pub broker: BrokerId,
    pub cause: MoveCause,
    pub from: BookPlace,
    pub to: BookPlace,
    pub retention_s: u32,
}

/// A process's right to work on a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    pub move_id: Uuid,
    pub number: u64,
}

/// # Errors
/// The master's; a duplicate where a move of the broker is open.
pub async fn insert(
    tx: &mut MasterTx,
    new: &NewMove,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO broker_move (move_id, broker_id, open_broker_id, state, cause, from_shard_id,
             from_server, from_database, to_shard_id, to_server, to_database, retention_s, due_at,
             created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(new.id)
    .bind(new.broker)
    .bind(new.broker)
    .bind(MoveState::Preparing.as_str())
    .bind(new.cause.as_str())
    .bind(new.from.shard_id)
    .bind(&new.from.server)
    .bind(&new.from.database)
    .bind(new.to.shard_id)
    .bind(&new.to.server)
    .bind(&new.to.database)
    .bind(new.retention_s)
    .bind(now)
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    let facts = json!({ "broker_id": new.broker, "cause": new.cause, "from": new.from.to_string(),
                        "to": new.to.to_string() });
    let event = NewEvent {
        broker: feed::PLATFORM,
        kind: "move.started".to_owned(),
        subject: new.id.to_string(),
        payload: facts,
    };
    feed::insert(tx, &[event], now).await
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: Uuid) -> Result<Option<BrokerMove>, StoreError> {
    let row: Option<MoveRow> = sqlx::query_as(concat!(
        "SELECT ",
        move_columns!(),
        " FROM broker_move WHERE move_id = ?"
    ))
    .bind(id)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(MoveRow::read).transpose()
}

/// The open move of a broker.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn open_of(master: &Pool, broker: BrokerId) -> Result<Option<BrokerMove>, StoreError> {
    let row: Option<MoveRow> = sqlx::query_as(concat!(
        "SELECT ",
        move_columns!(),
        " FROM broker_move WHERE open_broker_id = ?"
    ))
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(MoveRow::read).transpose()
}

/// Moves, newest first, of one broker or of all; `after` is the last of the page before.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    broker: Option<BrokerId>,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Vec<BrokerMove>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        move_columns!(),
        " FROM broker_move WHERE TRUE"
    ));
    if let Some(broker) = broker {
        builder.push(" AND broker_id = ").push_bind(broker);
    }
    if let Some(after) = after {
        push_after(&mut builder, ("created_at", "move_id"), after);
    }
    builder
        .push(" ORDER BY created_at DESC, move_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<MoveRow> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(MoveRow::read).collect()
}

/// The first move that has left something of a broker's book in a database.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn left_in(
    master: &Pool,
    broker: BrokerId,
    place: &BookPlace,
) -> Result<Option<BrokerMove>, StoreError> {
    let row: Option<MoveRow> = sqlx::query_as(concat!(
        "SELECT ",
        move_columns!(),
        " FROM broker_move WHERE broker_id = ? AND from_server = ? AND from_database = ?
             AND (state IN ('retained', 'purging', 'kept')
                  OR state = 'abandoned' AND flipped_at IS NOT NULL)
         UNION ALL SELECT ",
        move_columns!(),
        " FROM broker_move WHERE broker_id = ? AND to_server = ? AND to_database = ?
             AND state = 'abandoned' AND flipped_at IS NULL
         ORDER BY created_at LIMIT 1"
    ))
    .bind(broker)
    .bind(&place.server)
    .bind(&place.database)
    .bind(broker)
    .bind(&place.server)
    .bind(&place.database)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(MoveRow::read).transpose()
}

/// Where else than at its place rows of a broker's book may be: copies that moves are making, and
/// what they have left.
///
/// # Errors
/// The master's.
pub async fn traces(master: &Pool) -> Result<BTreeSet<(BrokerId, DatabaseKey)>, StoreError> {
    let rows: Vec<(u64, String, String)> = sqlx::query_as(
        "SELECT broker_id, to_server, to_database FROM broker_move
             WHERE open_broker_id IS NOT NULL OR state = 'abandoned' AND flipped_at IS NULL
         UNION SELECT broker_id, from_server, from_database FROM broker_move
             WHERE state IN ('flipped', 'retained', 'purging', 'kept')
                OR state = 'abandoned' AND flipped_at IS NOT NULL",
    )
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let place = |(broker, server, database)| (broker, DatabaseKey { server, database });
    Ok(rows.into_iter().map(place).collect())
}

/// Moves that somebody must look at, the longest due first. Those whose book is closed are
/// [`claim_closed`]'s: they wait behind no other.
pub const DUE: &str = "SELECT move_id, claim_no FROM broker_move
     WHERE due_at <= ? AND state NOT IN ('fencing', 'rolling_back', 'flipped')
     ORDER BY due_at LIMIT ? FOR UPDATE SKIP LOCKED";

/// Takes on moves that are due, each under a new claim and until `until`.
///
/// # Errors
/// The master's.
pub async fn claim(
    master: &Pool,
    by: &str,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<Claim>, StoreError> {
    let mut tx = super::begin(master).await?;
    let due: Vec<(Uuid, u64)> = sqlx::query_as(DUE)
        .bind(now)
        .bind(limit)
        .fetch_all(&mut tx)
        .await
        .map_err(failed)?;
    for (move_id, _) in &due {
        sqlx::query(
            "UPDATE broker_move SET claim_no = claim_no + 1, leased_by = ?, due_at = ?
             WHERE move_id = ?",
        )
        .bind(by)
        .bind(until)
        .bind(move_id)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    }
    super::commit(tx).await?;
    let claims = due.into_iter().map(|(move_id, number)| Claim {
        move_id,
        number: number + 1,
    });
    Ok(claims.collect())
}

/// A move whose book is closed, as somebody who looks at it sees it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, FromRow)]
pub struct ClosedMove {
    pub move_id: Uuid,
    pub claim_no: u64,
    pub state: String,
}

/// Moves whose books are closed, with whether their leases have run out.
///
/// # Errors
/// The master's.
pub async fn closed(
    master: &Pool,
    now: DateTime<Utc>,
) -> Result<Vec<(ClosedMove, bool)>, StoreError> {
    // Few moves are open, and fewer of them closed.
    let rows: Vec<(Uuid, u64, String, bool)> = sqlx::query_as(
        "SELECT move_id, claim_no, state, due_at <= ? FROM broker_move
         WHERE open_broker_id IS NOT NULL AND state IN ('fencing', 'rolling_back', 'flipped')",
    )
    .bind(now)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let read = |(move_id, claim_no, state, due)| {
        let closed = ClosedMove {
            move_id,
            claim_no,
            state,
        };
        (closed, due)
    };
    Ok(rows.into_iter().map(read).collect())
}

/// Takes on one closed move, where it is still as it was seen.
///
/// # Errors
/// The master's.
pub async fn claim_closed(
    master: &Pool,
    seen: &ClosedMove,
    by: &str,
    until: DateTime<Utc>,
) -> Result<Option<Claim>, StoreError> {
    let done = sqlx::query(
        "UPDATE broker_move SET claim_no = claim_no + 1, leased_by = ?, due_at = ?
         WHERE move_id = ? AND claim_no = ? AND state = ?",
    )
    .bind(by)
    .bind(until)
    .bind(seen.move_id)
    .bind(seen.claim_no)
    .bind(&seen.state)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok((done.rows_affected() == 1).then_some(Claim {
        move_id: seen.move_id,
        number: seen.claim_no + 1,
    }))
}

/// Tells how far the copy has come and keeps the lease; gives whether the claim still holds.
///
/// # Errors
/// The master's.
pub async fn progress(
    master: &Pool,
    claim: &Claim,
    until: DateTime<Utc>,
    (copied, total): (u64, u64),
) -> Result<bool, StoreError> {
    // The number is written back, so that a row which is as it was counts as found.
    let done = sqlx::query(
        "UPDATE broker_move SET due_at = ?, rows_copied = ?, rows_total = GREATEST(?, ?)
         WHERE move_id = ? AND claim_no = ?",
    )
    .bind(until)
    .bind(copied)
    .bind(total)
    .bind(copied)
    .bind(claim.move_id)
    .bind(claim.number)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Whether a claim is still the last one, on a move that goes on.
///
/// # Errors
/// The master's.
pub async fn holds(master: &Pool, claim: &Claim) -> Result<bool, StoreError> {
    let holds: Option<bool> = sqlx::query_scalar(
        "SELECT open_broker_id IS NOT NULL FROM broker_move WHERE move_id = ? AND claim_no = ?",
    )
    .bind(claim.move_id)
    .bind(claim.number)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(holds.unwrap_or(false))
}

/// Says that the source is about to be closed, under a lease of its own; gives whether the claim
/// still holds. In one statement, as all that is said while a book is closed: whoever stands still
/// before or after it holds no lock.
///
/// # Errors
/// The master's.
pub async fn fence(
    master: &Pool,
    claim: &Claim,
    epoch: u64,
    until: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE broker_move SET state = 'fencing', source_epoch = ?, fencings = fencings + 1,
             due_at = ?
         WHERE move_id = ? AND claim_no = ? AND state = 'copying'",
    )
    .bind(epoch)
    .bind(until)
    .bind(claim.move_id)
    .bind(claim.number)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// What a try of a move comes to.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The book goes to its new place, with so many rows.
    Flip { proof: MoveProof, rows: u64 },
    /// It stays.
    Back,
}

/// Decides a try, once and for all, and with it where the broker's book is and under which epoch;
/// gives whether this claim has decided. One statement over both rows. What somebody wants cancelled
/// does not flip.
///
/// # Errors
/// The master's: whether it has decided is unknown where the connection broke.
pub async fn decide(
    master: &Pool,
    this: &BrokerMove,
    claim: &Claim,
    outcome: &Outcome,
    until: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let (place, event) = match outcome {
        Outcome::Flip { .. } => (&this.to, MoveEvent::Flip),
        Outcome::Back => (&this.from, MoveEvent::RollBack),
    };
    let next = following(this, event)?;
    let own = place.shard_id.is_none();
    let mut builder = QueryBuilder::<MySql>::new(
        "UPDATE broker_move m JOIN broker b ON b.broker_id = m.broker_id SET m.state = ",
    );
    builder.push_bind(next.as_str());
    builder.push(", m.due_at = ").push_bind(until);
    if let Outcome::Flip { proof, rows } = outcome {
        builder.push(", m.rows_copied = ").push_bind(*rows);
        builder.push(", m.head_seq = ").push_bind(proof.head.seq);
        builder
            .push(", m.head_hash = ")
            .push_bind(proof.head.hash.0.to_vec());
        builder
            .push(", m.root_before = ")
            .push_bind(proof.root_before.0.to_vec());
        builder
            .push(", m.root_after = ")
            .push_bind(proof.root_after.0.to_vec());
        builder
            .push(", m.layout = ")
            .push_bind(proof.layout.0.to_vec());
        builder
            .push(", m.table_rows = ")
            .push_bind(proof.rows.clone());
        builder.push(", m.flipped_at = ").push_bind(now);
        builder.push(", m.fault = NULL, m.tries = 0, b.mode_wanted = NULLIF(b.mode_wanted, ");
        builder.push_bind(place.mode().as_str()).push(")");
    }
    builder
        .push(", b.broker_mode = ")
        .push_bind(place.mode().as_str());
    builder
        .push(", b.shared_shard_id = ")
        .push_bind(place.shard_id);
    builder
        .push(", b.server_name = ")
        .push_bind(own.then_some(&place.server));
    builder
        .push(", b.database_name = ")
        .push_bind(own.then_some(&place.database));
    builder.push(", b.route_epoch = b.route_epoch + 2 WHERE m.move_id = ");
    builder.push_bind(claim.move_id);
    builder.push(" AND m.claim_no = ").push_bind(claim.number);
    builder.push(" AND m.state = 'fencing' AND b.route_epoch = m.source_epoch");
    if let Outcome::Flip { .. } = outcome {
        builder.push(" AND NOT m.cancel_wanted");
    }
    let done = builder.build().execute(master).await.map_err(failed)?;
    Ok(done.rows_affected() > 0)
}

/// Leaves a move for a later try; gives whether the claim still held.
///
/// # Errors
/// The master's.
pub async fn retry_at(
    master: &Pool,
    claim: &Claim,
    fault: Option<&str>,
    counts: bool,
    at: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE broker_move SET due_at = ?, fault = ?, tries = tries + ?, leased_by = NULL
         WHERE move_id = ? AND claim_no = ?",
    )
    .bind(at)
    .bind(fault.map(shortened))
    .bind(u32::from(counts))
    .bind(claim.move_id)
    .bind(claim.number)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Notes that an admin wants a move cancelled, and makes it due where it does not close the book;
/// gives whether it can still be.
///
/// # Errors
/// The master's.
pub async fn want_cancelled(
    master: &Pool,
    id: Uuid,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    // What a plan wants is given up with it.
    let done = sqlx::query(
        "UPDATE broker_move m JOIN broker b ON b.broker_id = m.broker_id
         SET m.cancel_wanted = TRUE,
             m.due_at = IF(m.state = 'stuck' OR (m.leased_by IS NULL AND m.due_at IS NOT NULL), ?,
                 m.due_at),
             b.mode_wanted = IF(m.open_broker_id IS NOT NULL
                 AND b.mode_wanted = IF(m.to_shard_id IS NULL, 'FULL', 'SOLO'), NULL, b.mode_wanted)
         WHERE m.move_id = ? AND m.state IN ('preparing', 'copying', 'fencing', 'rolling_back',
             'stuck', 'cancelling', 'cancelled')",
    )
    .bind(now)
    .bind(id)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() > 0)
}

/// Makes a move that is at rest, or waits for its retention to end, due now; gives whether it was
/// in that state.
///
/// # Errors
/// The master's.
pub async fn make_due(
    master: &Pool,
    id: Uuid,
    state: MoveState,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done =
        sqlx::query("UPDATE broker_move SET due_at = ?, tries = 0 WHERE move_id = ? AND state = ?")
            .bind(now)
            .bind(id)
            .bind(state.as_str())
            .execute(master)
            .await
            .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// How many moves are in each state that is not at rest.
///
/// # Errors
/// The master's.
pub async fn counts(master: &Pool) -> Result<Vec<(String, i64)>, StoreError> {
    sqlx::query_as(
        "SELECT state, COUNT(*) FROM broker_move WHERE open_broker_id IS NOT NULL GROUP BY state",
    )
    .fetch_all(master)
    .await
    .map_err(failed)
}

/// As much of a fault as its column takes.
fn shortened(fault: &str) -> String {
    fault.chars().take(1000).collect()
}
