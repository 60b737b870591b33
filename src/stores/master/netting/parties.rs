//! `netting_party`: the brokers that a round touches, and what each of them has said.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;

use super::lines::RevisionKey;
use super::wide;
use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::netting_round::{Party, PartyState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;

#[derive(FromRow)]
pub(super) struct Row {
    broker_id: u64,
    state: String,
    fall: String,
    auto: bool,
    answered_by: Option<String>,
    answered_at: Option<DateTime<Utc>>,
}

impl Row {
    pub(super) fn read(self) -> Result<Party, StoreError> {
        let state = PartyState::parse(&self.state);
        let state = state.ok_or_else(|| corrupt("netting_party", &self.state))?;
        Ok(Party {
            broker: self.broker_id,
            state,
            fall: wide("netting_party", &self.fall)?,
            auto: self.auto,
            answered_by: self.answered_by,
            answered_at: self.answered_at,
        })
    }
}

macro_rules! columns {
    () => {
        "p.broker_id, p.state, CAST(p.fall AS CHAR) AS fall, p.auto, p.answered_by, p.answered_at"
    };
}
pub(super) use columns;

/// Asks everybody whom a new round touches. Who has auto-approve on has approved by it.
///
/// # Errors
/// The master's.
pub async fn ask(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO netting_party
             (round_id, broker_id, state, fall, auto, answered_by, answered_at, created_at)
         SELECT l.round_id, l.debtor_broker_id, IF(s.auto_approve, 'approved', 'asked'),
                SUM(l.reduction), COALESCE(s.auto_approve, 0),
                IF(s.auto_approve, 'auto', NULL), IF(s.auto_approve, ?, NULL), ?
         FROM netting_line l
         LEFT JOIN netting_setting s ON s.broker_id = l.debtor_broker_id
         WHERE l.round_id = ? AND l.revision = ? AND l.reduction > 0
         GROUP BY l.round_id, l.debtor_broker_id, s.auto_approve",
    )
    .bind(now)
    .bind(now)
    .bind(round.bits())
    .bind(revision)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Takes over what a smaller revision comes to for each party; whom it does not touch any more
/// is dropped. Answers stay, and so does what was declined.
///
/// # Errors
/// The master's.
pub async fn lower(tx: &mut MasterTx, (round, revision): RevisionKey) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE netting_party p
         LEFT JOIN (
             SELECT debtor_broker_id, SUM(reduction) AS fall FROM netting_line
             WHERE round_id = ? AND revision = ? AND reduction > 0 GROUP BY debtor_broker_id
         ) l ON l.debtor_broker_id = p.broker_id
         SET p.state = IF(l.fall IS NULL, 'dropped', p.state), p.fall = COALESCE(l.fall, 0)
         WHERE p.round_id = ? AND p.state IN ('asked', 'approved')",
    )
    .bind(round.bits())
    .bind(revision)
    .bind(round.bits())
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// How many parties of a round are in a state. In the transaction that has locked the round this
/// can't change.
///
/// # Errors
/// The master's.
pub async fn count(
    tx: &mut MasterTx,
    round: NettingRoundId,
    state: PartyState,
) -> Result<u64, StoreError> {
    let count: i64 =
        sqlx::query_scalar("SELECT COUNT(*) FROM netting_party WHERE round_id = ? AND state = ?")
            .bind(round.bits())
            .bind(state.as_str())
            .fetch_one(tx)
            .await
            .map_err(failed)?;
    Ok(count.unsigned_abs())
}

/// How many parties a round has in each state.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn counts(
    master: &Pool,
    round: NettingRoundId,
) -> Result<Vec<(PartyState, u64)>, StoreError> {
    let rows: Vec<(String, i64)> = sqlx::query_as(
        "SELECT state, COUNT(*) FROM netting_party WHERE round_id = ? GROUP BY state ORDER BY state",
    )
    .bind(round.bits())
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let read = |(state, count): (String, i64)| {
        let known = PartyState::parse(&state);
        let known = known.ok_or_else(|| corrupt("netting_party", state))?;
        Ok((known, count.unsigned_abs()))
    };
    rows.into_iter().map(read).collect()
}

/// A party of a round that the transaction has locked.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn of(
    tx: &mut MasterTx,
    round: NettingRoundId,
    broker: BrokerId,
) -> Result<Option<Party>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_party p WHERE p.round_id = ? AND p.broker_id = ? FOR UPDATE"
    ))
    .bind(round.bits())
    .bind(broker)
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The parties of a round by broker, after one.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    round: NettingRoundId,
    after: Option<BrokerId>,
    limit: u32,
) -> Result<Vec<Party>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_party p WHERE p.round_id = ? AND p.broker_id > ?
          ORDER BY p.broker_id LIMIT ?"
    ))
    .bind(round.bits())
    .bind(after.unwrap_or(0))
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// # Errors
/// The master's.
pub async fn answer(
    tx: &mut MasterTx,
    round: NettingRoundId,
    broker: BrokerId,
    state: PartyState,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE netting_party SET state = ?, answered_by = ?, answered_at = ?
         WHERE round_id = ? AND broker_id = ?",
    )
    .bind(state.as_str())
    .bind(by)
    .bind(now)
    .bind(round.bits())
    .bind(broker)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Tells the feeds of all parties of a round.
///
/// # Errors
/// The master's.
pub async fn tell(
    tx: &mut MasterTx,
    round: NettingRoundId,
    kind: &str,
    payload: &Value,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO feed_event (broker_id, kind, subject, payload, created_at)
         SELECT broker_id, ?, ?, ?, ? FROM netting_party WHERE round_id = ?",
    )
    .bind(kind)
    .bind(round.to_string())
    .bind(payload)
    .bind(now)
    .bind(round.bits())
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}
