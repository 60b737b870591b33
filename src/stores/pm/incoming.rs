//! `pm.psp_incoming` and `pm.psp_callback`: payments that have come in, each once, and every word of
//! a provider about them.

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{PmTx, failed, kept};
use crate::domain::ids::BrokerId;
use crate::domain::ledger::AccountName;
use crate::domain::money::CurrencyCode;
use crate::domain::payment::incoming::{CallbackVerdict, IncomingStatus};
use crate::domain::payment::{PspName, PspState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// A payment that has come in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    pub id: Uuid,
    pub psp: PspName,
    /// The provider's name for it.
    pub payment_id: String,
    /// What the payer was given to name: the top-up's uuid, where it is one of ours.
    pub reference: String,
    pub intent: Option<Uuid>,
    pub currency: CurrencyCode,
    /// The currency's ledger number.
    pub ledger: u32,
    /// Minor units.
    pub amount: u64,
    pub paid_at: DateTime<Utc>,
    pub status: IncomingStatus,
    /// Whom a person has given it to.
    pub wallet: Option<AccountName>,
    pub reason: Option<String>,
    pub resolved_by: Option<String>,
    /// Since when the provider's word of it is not what its top-up was credited: nobody moves it.
    pub disputed_at: Option<DateTime<Utc>>,
    /// What the last try to move it came to.
    pub last_error: Option<String>,
    /// How often it was told of.
    pub deliveries: u32,
    pub received_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "p.id, p.psp_name, p.payment_id, p.reference, p.intent_id, p.currency_code, p.ledger, \
         p.amount, p.paid_at, p.status, p.wallet, p.reason, p.resolved_by, p.disputed_at, \
         p.last_error, p.deliveries, p.received_at, p.updated_at"
    };
}

#[derive(FromRow)]
struct Row {
    id: Uuid,
    psp_name: String,
    payment_id: String,
    reference: String,
    intent_id: Option<Uuid>,
    currency_code: String,
    ledger: i32,
    amount: i64,
    paid_at: DateTime<Utc>,
    status: String,
    wallet: Option<String>,
    reason: Option<String>,
    resolved_by: Option<String>,
    disputed_at: Option<DateTime<Utc>>,
    last_error: Option<String>,
    deliveries: i32,
    received_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Incoming, StoreError> {
        let bad = |column: &str| corrupt("psp_incoming", format!("{}: {column}", self.id));
        let wallet = self.wallet.as_deref().map(str::parse);
        Ok(Incoming {
            id: self.id,
            psp: PspName::parse(&self.psp_name).ok_or_else(|| bad("psp_name"))?,
            intent: self.intent_id,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            ledger: self.ledger.try_into().map_err(|_| bad("ledger"))?,
            amount: self.amount.try_into().map_err(|_| bad("amount"))?,
            status: IncomingStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            wallet: wallet.transpose().map_err(|_| bad("wallet"))?,
            deliveries: self.deliveries.unsigned_abs(),
            payment_id: self.payment_id,
            reference: self.reference,
            paid_at: self.paid_at,
            reason: self.reason,
            resolved_by: self.resolved_by,
            disputed_at: self.disputed_at,
            last_error: self.last_error,
            received_at: self.received_at,
            updated_at: self.updated_at,
        })
    }
}

/// A provider's word, as it is kept.
#[derive(Clone, Debug)]
pub struct CallbackRow<'a> {
    pub id: Uuid,
    pub psp: PspName,
    pub verdict: CallbackVerdict,
    pub payment_id: Option<&'a str>,
    pub reference: Option<&'a str>,
    pub why: Option<&'a str>,
    pub body: &'a str,
}

/// Keeps a provider's word.
///
/// # Errors
/// The database's.
pub async fn keep_word(
    tx: &mut PmTx,
    word: &CallbackRow<'_>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.psp_callback (id, psp_name, verdict, payment_id, reference, why, body,
             received_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8)",
    )
    .bind(word.id)
    .bind(word.psp.as_str())
    .bind(word.verdict.as_str())
    .bind(word.payment_id)
    .bind(word.reference)
    .bind(word.why)
    .bind(word.body)
    .bind(now)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Writes a payment down, or counts that it was told of once more; gives what is written down.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn put(tx: &mut PmTx, incoming: &Incoming) -> Result<Incoming, StoreError> {
    let row: Row = sqlx::query_as(concat!(
        "INSERT INTO pm.psp_incoming AS p (id, psp_name, payment_id, reference, intent_id,
             currency_code, ledger, amount, paid_at, status, received_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $11)
         ON CONFLICT (psp_name, payment_id) DO UPDATE SET deliveries = p.deliveries + 1
         RETURNING ",
        columns!()
    ))
    .bind(incoming.id)
    .bind(incoming.psp.as_str())
    .bind(&incoming.payment_id)
    .bind(&incoming.reference)
    .bind(incoming.intent)
    .bind(incoming.currency.as_str())
    .bind(i32::try_from(incoming.ledger).unwrap_or(i32::MAX))
    .bind(kept(incoming.amount))
    .bind(incoming.paid_at)
    .bind(incoming.status.as_str())
    .bind(incoming.received_at)
    .fetch_one(&mut **tx)
    .await
    .map_err(failed)?;
    row.read()
}

/// What a top-up's row at the provider says beside a payment for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    pub incoming: Incoming,
    pub state: PspState,
    /// The payment that the row was confirmed by.
    pub by: Option<String>,
    /// The top-up's amount, in minor units.
    pub wanted: u64,
}

/// Payments that wait for nothing but us: their row has ended, the longest untouched first.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn ended(pm: &PgPool, limit: u32) -> Result<Vec<Ended>, StoreError> {
    #[derive(FromRow)]
    struct EndedRow {
        #[sqlx(flatten)]
        row: Row,
        state: String,
        response_id: Option<String>,
        wanted: i64,
    }
    let rows: Vec<EndedRow> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        ", t.state, t.response_id, i.amount AS wanted
         FROM pm.psp_incoming p
         JOIN pm.psp_tx_map t ON t.intent_id = p.intent_id
         JOIN pm.intent i ON i.id = p.intent_id
         WHERE p.status = 'waiting' AND p.disputed_at IS NULL
           AND t.state IN ('CONFIRMED', 'FAILED')
         ORDER BY p.updated_at, p.id LIMIT $1"
    ))
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let read = |found: EndedRow| {
        let bad = || corrupt("psp_tx_map", format!("{:?}: state", found.row.intent_id));
        Ok(Ended {
            state: PspState::parse(&found.state).ok_or_else(bad)?,
            wanted: found.wanted.unsigned_abs(),
            by: found.response_id,
            incoming: found.row.read()?,
        })
    };
    rows.into_iter().map(read).collect()
}

/// Payments that a person has given to somebody who hasn't got them yet, the longest untouched
/// first.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn given(pm: &PgPool, limit: u32) -> Result<Vec<Incoming>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p
         WHERE p.status IN ('waiting', 'suspense', 'unknown') AND p.wallet IS NOT NULL
         ORDER BY p.updated_at, p.id LIMIT $1"
    ))
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Has the provider asked at once about what it says was paid; gives how many rows that are. What
/// was told of long ago is asked about in its turn.
///
/// # Errors
/// The database's.
pub async fn hasten(
    pm: &PgPool,
    every: TimeDelta,
    at_most: TimeDelta,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.psp_tx_map t SET retry_count = 0
         FROM pm.psp_incoming p
         WHERE p.status = 'waiting' AND p.received_at > $1 AND t.intent_id = p.intent_id
           AND t.state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')
           AND t.leased_at IS NULL AND t.retry_count > 0 AND t.updated_at <= $2",
    )
    .bind(now - at_most)
    .bind(now - every)
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}

/// Says by which payment a row was confirmed, where nobody has said yet and no other was; gives by
/// which it was.
///
/// # Errors
/// The database's.
pub async fn claim(pm: &PgPool, incoming: &Incoming) -> Result<Option<String>, StoreError> {
    sqlx::query_scalar(
        "UPDATE pm.psp_tx_map t SET response_id = COALESCE(t.response_id, $1)
         WHERE t.intent_id = $2 AND t.state = 'CONFIRMED' AND NOT EXISTS (
             SELECT 1 FROM pm.psp_tx_map o
             WHERE o.psp_name = $3 AND o.response_id = $1 AND o.intent_id <> $2)
         RETURNING t.response_id",
    )
    .bind(&incoming.payment_id)
    .bind(incoming.intent)
    .bind(incoming.psp.as_str())
    .fetch_optional(pm)
    .await
    .map(Option::flatten)
    .map_err(failed)
}

/// Brings a payment from one status to the next; gives whether it was in the first.
///
/// # Errors
/// The database's.
pub async fn set_status(
    pm: &PgPool,
    id: Uuid,
    from: IncomingStatus,
    to: IncomingStatus,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.psp_incoming SET status = $1, last_error = NULL, updated_at = $2
         WHERE id = $3 AND status = $4",
    )
    .bind(to.as_str())
    .bind(now)
    .bind(id)
    .bind(from.as_str())
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Has a payment come after all others that wait, and keeps what the try came to.
///
/// # Errors
/// The database's.
pub async fn put_off(
    pm: &PgPool,
    id: Uuid,
    error: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE pm.psp_incoming SET last_error = $1, updated_at = $2 WHERE id = $3")
        .bind(error)
        .bind(now)
        .bind(id)
        .execute(pm)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Leaves a payment to a person; gives whether nobody had.
///
/// # Errors
/// The database's.
pub async fn dispute(
    pm: &PgPool,
    id: Uuid,
    why: &str,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.psp_incoming SET disputed_at = $1, last_error = $2, updated_at = $1
         WHERE id = $3 AND status = 'waiting' AND disputed_at IS NULL",
    )
    .bind(now)
    .bind(why)
    .bind(id)
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Payments that were left to a person, the oldest first.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn disputed(pm: &PgPool, limit: u32) -> Result<Vec<Incoming>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p
         WHERE p.status = 'waiting' AND p.disputed_at IS NOT NULL
         ORDER BY p.received_at, p.id LIMIT $1"
    ))
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// The intent that was confirmed by a payment that came in, another than it came in for.
///
/// # Errors
/// The database's.
pub async fn confirmed_another(
    pm: &PgPool,
    incoming: &Incoming,
) -> Result<Option<Uuid>, StoreError> {
    sqlx::query_scalar(
        "SELECT intent_id FROM pm.psp_tx_map
         WHERE psp_name = $1 AND response_id = $2 AND state = 'CONFIRMED'
           AND intent_id IS DISTINCT FROM $3",
    )
    .bind(incoming.psp.as_str())
    .bind(&incoming.payment_id)
    .bind(incoming.intent)
    .fetch_optional(pm)
    .await
    .map_err(failed)
}

/// Payments that came in for an intent, at most 100, and the one of a name, whoever's it is.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn evidence(
    tx: &mut PmTx,
    psp: PspName,
    intent: Uuid,
    payment: Option<&str>,
) -> Result<Vec<Incoming>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p
         WHERE p.intent_id = $1 OR (p.psp_name = $2 AND p.payment_id = $3)
         ORDER BY p.received_at, p.id LIMIT 100"
    ))
    .bind(intent)
    .bind(psp.as_str())
    .bind(payment)
    .fetch_all(&mut **tx)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Payments of which nobody knows yet whose they are, the oldest first.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn of_nobody(pm: &PgPool, limit: u32) -> Result<Vec<Incoming>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p
         WHERE p.status IN ('suspense', 'unknown') AND p.wallet IS NULL
         ORDER BY p.received_at, p.id LIMIT $1"
    ))
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Writes down whom a person gives a payment to, before it moves; gives whether it is so. One that
/// an intent was confirmed by is nobody else's.
///
/// # Errors
/// The database's.
pub async fn give(
    pm: &PgPool,
    id: Uuid,
    wallet: &AccountName,
    reason: &str,
    by: &str,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.psp_incoming p
         SET wallet = $1, reason = COALESCE(reason, $2), resolved_by = COALESCE(resolved_by, $3),
             given_at = COALESCE(given_at, $4), updated_at = $4
         WHERE id = $5 AND status IN ('suspense', 'unknown') AND (wallet IS NULL OR wallet = $1)
           AND NOT EXISTS (
               SELECT 1 FROM pm.psp_tx_map t
               WHERE t.psp_name = p.psp_name AND t.response_id = p.payment_id
                 AND t.state = 'CONFIRMED')",
    )
    .bind(wallet.to_string())
    .bind(reason)
    .bind(by)
    .bind(now)
    .bind(id)
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// # Errors
/// The database's, or a row that can't be read.
pub async fn get(pm: &PgPool, id: Uuid) -> Result<Option<Incoming>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p WHERE p.id = $1"
    ))
    .bind(id)
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// A payment beside what is known of the top-up that it was for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Beside {
    pub incoming: Incoming,
    /// The provider's row of the top-up, and the payment that it was confirmed by.
    pub state: Option<PspState>,
    pub by: Option<String>,
    /// The top-up's amount, in minor units.
    pub wanted: Option<u64>,
}

/// Payments after one, in the order of their ids; or those of some ids alone.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn audited(
    pm: &PgPool,
    after: Uuid,
    only: Option<&[Uuid]>,
    limit: u32,
) -> Result<Vec<Beside>, StoreError> {
    #[derive(FromRow)]
    struct BesideRow {
        #[sqlx(flatten)]
        row: Row,
        state: Option<String>,
        response_id: Option<String>,
        wanted: Option<i64>,
    }
    let rows: Vec<BesideRow> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        ", t.state, t.response_id, i.amount AS wanted
         FROM pm.psp_incoming p
         LEFT JOIN pm.psp_tx_map t ON t.intent_id = p.intent_id
         LEFT JOIN pm.intent i ON i.id = p.intent_id
         WHERE p.id > $1 AND ($2::uuid[] IS NULL OR p.id = ANY($2))
         ORDER BY p.id LIMIT $3"
    ))
    .bind(after)
    .bind(only)
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let read = |found: BesideRow| {
        let bad = || corrupt("psp_tx_map", format!("{:?}: state", found.row.intent_id));
        let state = found.state.as_deref();
        let state = state.map(|state| PspState::parse(state).ok_or_else(bad));
        Ok(Beside {
            state: state.transpose()?,
            by: found.response_id,
            wanted: found.wanted.map(i64::unsigned_abs),
            incoming: found.row.read()?,
        })
    };
    rows.into_iter().map(read).collect()
}

/// How many payments for a broker's top-ups nobody has yet, and the oldest of them.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn open_of(
    pm: &PgPool,
    broker: BrokerId,
    named: u32,
) -> Result<(u64, Vec<Incoming>), StoreError> {
    let count: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM pm.psp_incoming p JOIN pm.intent i ON i.id = p.intent_id
         WHERE p.status IN ('waiting', 'suspense', 'unknown') AND p.disputed_at IS NULL
           AND i.broker_id = $1",
    )
    .bind(kept(broker))
    .fetch_one(pm)
    .await
    .map_err(failed)?;
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p JOIN pm.intent i ON i.id = p.intent_id
         WHERE p.status IN ('waiting', 'suspense', 'unknown') AND p.disputed_at IS NULL
           AND i.broker_id = $1
         ORDER BY p.received_at, p.id LIMIT $2"
    ))
    .bind(kept(broker))
    .bind(i64::from(named))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let rows: Result<_, _> = rows.into_iter().map(Row::read).collect();
    Ok((count.unsigned_abs(), rows?))
}

/// Payments that nobody has yet, the oldest first; `after` is the last of the page before.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn open(
    pm: &PgPool,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Vec<Incoming>, StoreError> {
    let (at, id) = after.unwrap_or((DateTime::UNIX_EPOCH, Uuid::nil()));
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_incoming p
         WHERE p.status IN ('waiting', 'suspense', 'unknown') AND (p.received_at, p.id) > ($1, $2)
         ORDER BY p.received_at, p.id LIMIT $3"
    ))
    .bind(at)
    .bind(id)
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Deletes words of before a time about payments that somebody has, or about none; gives how many
/// those were. The payments stay.
///
/// # Errors
/// The database's.
pub async fn forget_words(
    pm: &PgPool,
    before: DateTime<Utc>,
    limit: u32,
) -> Result<u64, StoreError> {
    let done = sqlx::query(
        "DELETE FROM pm.psp_callback WHERE id IN (
             SELECT c.id FROM pm.psp_callback c
             WHERE c.received_at < $1 AND NOT EXISTS (
                 SELECT 1 FROM pm.psp_incoming p
                 WHERE p.psp_name = c.psp_name AND p.payment_id = c.payment_id
                   AND p.status NOT IN ('credited', 'assigned'))
             ORDER BY c.received_at LIMIT $2)",
    )
    .bind(before)
    .bind(i64::from(limit))
    .execute(pm)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected())
}
