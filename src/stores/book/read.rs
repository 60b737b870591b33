use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::rows::{
    AccountColumns, EntryRow, ReservationColumns, StepRow, StoredEntry, account_columns,
    entry_columns, hash, reservation_columns,
};
use crate::domain::account::Side;
use crate::domain::book::{AccountState, Reservation};
use crate::domain::chain::{EntryKind, Head};
use crate::domain::ids::AccountId;
use crate::domain::saga::{Outcome, StepDirection};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::router::{BookRead, BookSql};

/// An account with its id.
pub type AccountRow = (AccountId, AccountState);

/// A reservation with the saga and leg that made it.
pub type ReservationRow = ((Uuid, u16), Reservation);

const HEAD: BookSql =
    BookSql::new("SELECT seq, tx_hash, feed_position FROM chain_head WHERE broker_id = ?");
const AFTER: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND seq > ? ORDER BY seq LIMIT ?"
));
const NEWEST: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
));
const NEWEST_OF_ACCOUNT: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND account_id = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
));
/// Those of one kind, which only lists of such kinds ask for as are rare.
pub const OF_KIND: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND kind = ? AND seq < ? ORDER BY seq DESC LIMIT ?"
));
const WITHIN: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND account_id = ? AND booked_at >= ? AND booked_at < ? \
      ORDER BY seq LIMIT ?"
));
const BEFORE: BookSql = BookSql::new(
    "SELECT side, CAST(SUM(amount) AS CHAR) AS amount FROM transaction
     WHERE broker_id = ? AND account_id = ? AND booked_at < ? GROUP BY side",
);
const OF_SUBJECTS: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND subject IN ({}) ORDER BY seq"
));
const ACCOUNTS: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND account_id > ? ORDER BY account_id LIMIT ?"
));
const ACCOUNTS_NEWEST: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND (? IS NULL OR owner_ref = ?) \
      AND (? IS NULL OR created_at < ? OR (created_at = ? AND account_id < ?)) \
      ORDER BY created_at DESC, account_id DESC LIMIT ?"
));
const ACCOUNT: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND account_id = ?"
));
const HELD: BookSql = BookSql::new(concat!(
    "SELECT ",
    reservation_columns!(),
    " FROM reservation WHERE broker_id = ? AND state = 'held' ORDER BY saga_id, leg"
));

const OUTCOMES: BookSql = BookSql::new(
    "SELECT direction, outcome, reason, created_at FROM saga_step
     WHERE broker_id = ? AND saga_id = ? AND step = ? ORDER BY direction",
);

const OUTCOMES_OF_SAGAS: BookSql = BookSql::new(
    "SELECT saga_id, step, direction, outcome, reason FROM saga_step
     WHERE broker_id = ? AND saga_id IN ({})",
);
const ORIGINS: BookSql = BookSql::new(
    "SELECT seq, saga_id, kind, subject FROM transaction
     WHERE broker_id = ? AND seq > ? ORDER BY seq LIMIT ?",
);

/// What an entry comes of.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Origin {
    pub seq: u64,
    pub saga_id: Uuid,
    kind: String,
    pub subject: String,
}

impl Origin {
    /// Whether it is of the book's own making or a payment's, not a request's.
    #[must_use]
    pub fn is_of_book(&self) -> bool {
        match EntryKind::parse(&self.kind) {
            Some(
                EntryKind::Opening
                | EntryKind::Correction
                | EntryKind::PaymentAmount
                | EntryKind::PaymentFee
                | EntryKind::SwapSold
                | EntryKind::SwapBought,
            ) => true,
            Some(
                EntryKind::RequestPrincipal
                | EntryKind::RequestCommission
                | EntryKind::Settlement
                | EntryKind::OrderPrincipal
                | EntryKind::OrderCommission
                | EntryKind::DisputeCorrection,
            )
            | None => false,
        }
    }
}

/// The key of a step's outcome in a book, and the outcome.
pub type StepOutcome = ((Uuid, u16, StepDirection), Outcome);

/// An outcome as it is shown.
#[derive(Clone, Debug, PartialEq, FromRow, serde::Serialize)]
pub struct StepOutcomeRow {
    pub direction: String,
    pub outcome: String,
    pub reason: Option<serde_json::Value>,
    pub created_at: DateTime<Utc>,
}

/// The chain's last seq and hash; seq 0 and the genesis hash for an empty chain.
///
/// # Errors
/// The database's.
pub async fn head(book: &mut BookRead) -> Result<Head, StoreError> {
    #[derive(FromRow)]
    struct Row {
        seq: u64,
        tx_hash: Vec<u8>,
    }
    let query = book.sql(HEAD);
    let broker = book.broker();
    let row: Row = book
        .fetch_optional(query)
        .await?
        .ok_or(StoreError::NoBook { broker })?;
    let hash = hash(&row.tx_hash).ok_or_else(|| corrupt("chain_head", "tx_hash"))?;
    Ok(Head { seq: row.seq, hash })
}

/// Entries after a seq, in order: for whoever walks the chain.
///
/// # Errors
/// The database's, or an entry that can't be read.
pub async fn entries_after(
    book: &mut BookRead,
    seq: u64,
    limit: u32,
) -> Result<Vec<StoredEntry>, StoreError> {
    let query = book.sql(AFTER).bind(seq).bind(limit);
    read_entries(book.fetch_all(query).await?)
}

/// Entries before a seq, newest first, of one account or of all.
///
/// # Errors
/// The database's, or an entry that can't be read.
pub async fn transactions(
    book: &mut BookRead,
    account: Option<AccountId>,
    before: u64,
    limit: u32,
) -> Result<Vec<StoredEntry>, StoreError> {
    let query = match account {
        Some(account) => book.sql(NEWEST_OF_ACCOUNT).bind(account.bits()),
        None => book.sql(NEWEST),
    };
    read_entries(book.fetch_all(query.bind(before).bind(limit)).await?)
}

/// Entries of one kind before a seq, newest first.
///
/// # Errors
/// The database's, or an entry that can't be read.
pub async fn entries_of_kind(
    book: &mut BookRead,
    kind: EntryKind,
    before: u64,
    limit: u32,
) -> Result<Vec<StoredEntry>, StoreError> {
    let query = book.sql(OF_KIND).bind(kind.as_str()).bind(before);
    read_entries(book.fetch_all(query.bind(limit)).await?)
}

/// Entries of an account that were booked from a time on and before another, in order.
///
/// # Errors
/// The database's, or an entry that can't be read.
pub async fn entries_within(
    book: &mut BookRead,
    account: AccountId,
    (from, to): (DateTime<Utc>, DateTime<Utc>),
    limit: u32,
) -> Result<Vec<StoredEntry>, StoreError> {
    let query = book.sql(WITHIN).bind(account.bits()).bind(from).bind(to);
    read_entries(book.fetch_all(query.bind(limit)).await?)
}

/// What was booked on an account before a time: credits less debits, in minor units.
///
/// # Errors
/// The database's.
pub async fn booked_before(
    book: &mut BookRead,
    account: AccountId,
    before: DateTime<Utc>,
) -> Result<i128, StoreError> {
    let query = book.sql(BEFORE).bind(account.bits()).bind(before);
    let sums: Vec<(String, String)> = book.fetch_all(query).await?;
    let mut all = 0;
    for (side, amount) in sums {
        let sum = amount.parse::<i128>().ok();
        let sum = sum.ok_or_else(|| corrupt("transaction", "sum of amounts"))?;
        match Side::parse(&side).ok_or_else(|| corrupt("transaction", "side"))? {
            Side::Debit => all -= sum,
            Side::Credit => all += sum,
        }
    }
    Ok(all)
}

/// All entries of some subjects, in order.
///
/// # Errors
/// The database's, or an entry that can't be read.
pub async fn entries_of(
    book: &mut BookRead,
    subjects: &[String],
) -> Result<Vec<StoredEntry>, StoreError> {
    if subjects.is_empty() {
        return Ok(Vec::new());
    }
    let query = book.sql_list(OF_SUBJECTS, subjects);
    read_entries(book.fetch_all(query).await?)
}

/// Accounts after an id, in the order of ids.
///
/// # Errors
/// The database's, or an account that can't be read.
pub async fn accounts(
    book: &mut BookRead,
    after: Option<AccountId>,
    limit: u32,
) -> Result<Vec<AccountRow>, StoreError> {
    let broker = book.broker();
    let after = after.map_or(0, AccountId::bits);
    let query = book.sql(ACCOUNTS).bind(after).bind(limit);
    let rows: Vec<AccountColumns> = book.fetch_all(query).await?;
    rows.into_iter().map(|row| row.read(broker)).collect()
}

/// Accounts, newest first, of one owner's name or of all; `after` is the last of the page before.
///
/// # Errors
/// The database's, or an account that can't be read.
pub async fn accounts_newest(
    book: &mut BookRead,
    owner_ref: Option<String>,
    after: Option<(DateTime<Utc>, AccountId)>,
    limit: u32,
) -> Result<Vec<AccountRow>, StoreError> {
    let broker = book.broker();
    let at = after.map(|(at, _)| at);
    let query = book
        .sql(ACCOUNTS_NEWEST)
        .bind(owner_ref.clone())
        .bind(owner_ref)
        .bind(at)
        .bind(at)
        .bind(at)
        .bind(after.map(|(_, id)| id.bits()))
        .bind(limit);
    let rows: Vec<AccountColumns> = book.fetch_all(query).await?;
    rows.into_iter().map(|row| row.read(broker)).collect()
}

/// # Errors
/// The database's, or an account that can't be read.
pub async fn account(book: &mut BookRead, id: AccountId) -> Result<Option<AccountRow>, StoreError> {
    let broker = book.broker();
    let query = book.sql(ACCOUNT).bind(id.bits());
    let row: Option<AccountColumns> = book.fetch_optional(query).await?;
    row.map(|row| row.read(broker)).transpose()
}

/// All reservations that are held.
///
/// # Errors
/// The database's, or a reservation that can't be read.
pub async fn reservations_held(book: &mut BookRead) -> Result<Vec<ReservationRow>, StoreError> {
    let query = book.sql(HELD);
    let rows: Vec<ReservationColumns> = book.fetch_all(query).await?;
    rows.into_iter().map(ReservationColumns::read).collect()
}

/// What a saga's step has left in the book: an outcome for the step, another for its undoing.
///
/// # Errors
/// The database's.
pub async fn step_outcomes(
    book: &mut BookRead,
    saga_id: Uuid,
    step: u16,
) -> Result<Vec<StepOutcomeRow>, StoreError> {
    let query = book.sql(OUTCOMES).bind(saga_id).bind(step);
    book.fetch_all(query).await
}

/// What some sagas have left in the book, of every step.
///
/// # Errors
/// The database's, or an outcome that can't be read.
pub async fn outcomes_of(
    book: &mut BookRead,
    saga_ids: &[Uuid],
) -> Result<Vec<StepOutcome>, StoreError> {
    if saga_ids.is_empty() {
        return Ok(Vec::new());
    }
    let query = book.sql_list(OUTCOMES_OF_SAGAS, saga_ids);
    let rows: Vec<StepRow> = book.fetch_all(query).await?;
    rows.into_iter()
        .map(|row| row.read().map(|(key, record)| (key, record.outcome)))
        .collect()
}

/// What entries come of, after a seq, in order.
///
/// # Errors
/// The database's.
pub async fn origins(book: &mut BookRead, seq: u64, limit: u32) -> Result<Vec<Origin>, StoreError> {
    let query = book.sql(ORIGINS).bind(seq).bind(limit);
    book.fetch_all(query).await
}

fn read_entries(rows: Vec<EntryRow>) -> Result<Vec<StoredEntry>, StoreError> {
    rows.into_iter().map(EntryRow::read).collect()
}
