//! `netting_round` and `netting_revision`: rounds, and what each was worked out to.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::lines::RevisionKey;
use super::{parties, wide};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::money::CurrencyCode;
use crate::domain::netting_round::{Party, Round, RoundStatus, Sums};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

#[derive(FromRow)]
struct Row {
    round_id: u64,
    currency_code: String,
    status: String,
    revision: u32,
    proposed_by: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    ended_by: Option<String>,
    ended_at: Option<DateTime<Utc>>,
    #[sqlx(flatten)]
    sums: SumsRow,
}

#[derive(FromRow)]
struct SumsRow {
    obligations: u64,
    total: String,
    cleared: String,
    bilateral: String,
    bound: String,
    root: Vec<u8>,
}

impl SumsRow {
    fn read(self) -> Result<Sums, StoreError> {
        let wide = |text: &str| wide("netting_revision", text);
        let root = self.root.try_into();
        Ok(Sums {
            obligations: self.obligations,
            total: wide(&self.total)?,
            cleared: wide(&self.cleared)?,
            bilateral: wide(&self.bilateral)?,
            bound: wide(&self.bound)?,
            root: Hash(root.map_err(|_| corrupt("netting_revision", "root"))?),
        })
    }
}

impl Row {
    fn read(self) -> Result<Round, StoreError> {
        let id = NettingRoundId::from_bits(self.round_id);
        let bad = |column: &str| corrupt("netting_round", format!("{id}: {column}"));
        let currency = self.currency_code.parse();
        Ok(Round {
            id,
            currency: currency.map_err(|_| bad("currency_code"))?,
            status: RoundStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            revision: self.revision,
            proposed_by: self.proposed_by,
            created_at: self.created_at,
            expires_at: self.expires_at,
            ended_by: self.ended_by,
            ended_at: self.ended_at,
            sums: self.sums.read()?,
        })
    }
}

macro_rules! sums {
    () => {
        "v.obligations, CAST(v.total AS CHAR) AS total, CAST(v.cleared AS CHAR) AS cleared, \
         CAST(v.bilateral AS CHAR) AS bilateral, CAST(v.bound AS CHAR) AS bound, v.root"
    };
}

macro_rules! columns {
    () => {
        concat!(
            "r.round_id, r.currency_code, r.status, r.revision, r.proposed_by, r.created_at, \
             r.expires_at, r.ended_by, r.ended_at, ",
            sums!()
        )
    };
}

/// Opens a round, in its first revision.
///
/// # Errors
/// The master's; a duplicate where one is open in the currency, or the id is taken.
pub async fn insert(tx: &mut MasterTx, round: &Round) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO netting_round
             (round_id, currency_code, open_currency, status, revision, proposed_by, created_at,
              expires_at, touched_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(round.id.bits())
    .bind(round.currency.as_str())
    .bind(round.currency.as_str())
    .bind(round.status.as_str())
    .bind(round.revision)
    .bind(&round.proposed_by)
    .bind(round.created_at)
    .bind(round.expires_at)
    .bind(round.created_at)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    insert_revision(
        tx,
        (round.id, round.revision),
        &round.sums,
        round.created_at,
    )
    .await
}

/// # Errors
/// The master's.
pub async fn insert_revision(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
    sums: &Sums,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO netting_revision
             (round_id, revision, obligations, total, cleared, bilateral, bound, root, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(round.bits())
    .bind(revision)
    .bind(sums.obligations)
    .bind(sums.total.to_string())
    .bind(sums.cleared.to_string())
    .bind(sums.bilateral.to_string())
    .bind(sums.bound.to_string())
    .bind(sums.root.0.to_vec())
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: NettingRoundId) -> Result<Option<Round>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_round r
          JOIN netting_revision v ON v.round_id = r.round_id AND v.revision = r.revision
          WHERE r.round_id = ?"
    ))
    .bind(id.bits())
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// The same, locked until the transaction ends.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn lock(tx: &mut MasterTx, id: NettingRoundId) -> Result<Option<Round>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_round r
          JOIN netting_revision v ON v.round_id = r.round_id AND v.revision = r.revision
          WHERE r.round_id = ? FOR UPDATE"
    ))
    .bind(id.bits())
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// What a revision of a round came to.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn sums(
    master: &Pool,
    (round, revision): RevisionKey,
) -> Result<Option<Sums>, StoreError> {
    let row: Option<SumsRow> = sqlx::query_as(concat!(
        "SELECT ",
        sums!(),
        " FROM netting_revision v WHERE v.round_id = ? AND v.revision = ?"
    ))
    .bind(round.bits())
    .bind(revision)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(SumsRow::read).transpose()
}

/// The open round of a currency.
///
/// # Errors
/// The master's.
pub async fn open_of(
    master: &Pool,
    currency: &CurrencyCode,
) -> Result<Option<NettingRoundId>, StoreError> {
    let id: Option<u64> =
        sqlx::query_scalar("SELECT round_id FROM netting_round WHERE open_currency = ?")
            .bind(currency.as_str())
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    Ok(id.map(NettingRoundId::from_bits))
}

/// How many brokers are active.
///
/// # Errors
/// The master's.
pub async fn active_brokers(master: &Pool) -> Result<u64, StoreError> {
    let count: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM broker WHERE state = 'active'")
        .fetch_one(master)
        .await
        .map_err(failed)?;
    Ok(count.unsigned_abs())
}

/// Where a page of a list ended: the next begins after it.
pub type After = (DateTime<Utc>, NettingRoundId);

/// Rounds, newest first.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<Round>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM netting_round r
          JOIN netting_revision v ON v.round_id = r.round_id AND v.revision = r.revision
          WHERE 1 = 1"
    ));
    if let Some((created_at, id)) = after {
        let last = (created_at, id.bits());
        push_after(&mut builder, ("r.created_at", "r.round_id"), last);
    }
    builder
        .push(" ORDER BY r.created_at DESC, r.round_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

#[derive(FromRow)]
struct OfBrokerRow {
    #[sqlx(flatten)]
    round: Row,
    #[sqlx(flatten)]
    party: parties::Row,
}

/// Rounds that touch a broker, or have touched it, newest first, each with what the broker has to
/// do with it; one alone, where it is named.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn of_broker(
    master: &Pool,
    broker: BrokerId,
    only: Option<NettingRoundId>,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<(Round, Party)>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        columns!(),
        ", ",
        parties::columns!(),
        " FROM netting_party p
          JOIN netting_round r ON r.round_id = p.round_id
          JOIN netting_revision v ON v.round_id = r.round_id AND v.revision = r.revision
          WHERE p.broker_id = "
    ));
    builder.push_bind(broker);
    if let Some(id) = only {
        builder.push(" AND p.round_id = ").push_bind(id.bits());
    }
    if let Some((created_at, id)) = after {
        let last = (created_at, id.bits());
        push_after(&mut builder, ("p.created_at", "p.round_id"), last);
    }
    builder
        .push(" ORDER BY p.created_at DESC, p.round_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<OfBrokerRow> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    let read = |row: OfBrokerRow| Ok((row.round.read()?, row.party.read()?));
    rows.into_iter().map(read).collect()
}

/// Takes a round that is locked to another status; one that is not open any more makes room for
/// the next of its currency.
///
/// # Errors
/// The master's.
pub async fn set_status(
    tx: &mut MasterTx,
    id: NettingRoundId,
    status: RoundStatus,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let ended = !status.is_open();
    sqlx::query(
        "UPDATE netting_round SET status = ?, touched_at = ?,
             open_currency = IF(?, NULL, open_currency), ended_by = ?, ended_at = ?
         WHERE round_id = ?",
    )
    .bind(status.as_str())
    .bind(now)
    .bind(ended)
    .bind(ended.then_some(by))
    .bind(ended.then_some(now))
    .bind(id.bits())
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Makes the next revision the present one of a round that is locked.
///
/// # Errors
/// The master's.
pub async fn set_revision(
    tx: &mut MasterTx,
    (round, revision): RevisionKey,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE netting_round SET revision = ? WHERE round_id = ?")
        .bind(revision)
        .bind(round.bits())
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}
