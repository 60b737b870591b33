//! `pm.intent`: instructions to move a user's money through a provider.

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use sqlx::{FromRow, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PmTx, failed, kept};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::ledger::AccountName;
use crate::domain::money::CurrencyCode;
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{IntentKind, IntentStatus, PspName};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// An instruction, with amounts in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Intent {
    pub id: Uuid,
    pub kind: IntentKind,
    pub broker: BrokerId,
    /// Whose wallet it is: a broker's client, or the broker itself.
    pub user: String,
    pub wallet: AccountName,
    pub currency: CurrencyCode,
    /// The currency's ledger number.
    pub ledger: u32,
    pub amount: u64,
    pub fee: u64,
    pub channel: PspName,
    pub receiver: Receiver,
    /// The account in the broker's book that it is booked on.
    pub book_account: Option<AccountId>,
    pub status: IntentStatus,
    /// Why it has failed, or is looked at by a person.
    pub reason: Option<String>,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "id, kind, broker_id, user_id, wallet, currency_code, ledger, amount, fee_amount, channel, \
         receiver, book_account_id, status, reason, created_by, created_at, updated_at"
    };
}

#[derive(FromRow)]
struct Row {
    id: Uuid,
    kind: String,
    broker_id: i64,
    user_id: String,
    wallet: String,
    currency_code: String,
    ledger: i32,
    amount: i64,
    fee_amount: i64,
    channel: String,
    receiver: Json<Receiver>,
    book_account_id: Option<String>,
    status: String,
    reason: Option<String>,
    created_by: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Intent, StoreError> {
        let bad = |column: &str| corrupt("intent", format!("{}: {column}", self.id));
        let account = self.book_account_id.as_deref().map(str::parse);
        Ok(Intent {
            id: self.id,
            kind: IntentKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            broker: self.broker_id.try_into().map_err(|_| bad("broker_id"))?,
            wallet: self.wallet.parse().map_err(|_| bad("wallet"))?,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            ledger: self.ledger.try_into().map_err(|_| bad("ledger"))?,
            amount: self.amount.try_into().map_err(|_| bad("amount"))?,
            fee: self.fee_amount.try_into().map_err(|_| bad("fee_amount"))?,
            channel: PspName::parse(&self.channel).ok_or_else(|| bad("channel"))?,
            book_account: account.transpose().map_err(|_| bad("book_account_id"))?,
            status: IntentStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            user: self.user_id,
            receiver: self.receiver.0,
            reason: self.reason,
            created_by: self.created_by,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// # Errors
/// The database's.
pub async fn insert(tx: &mut PmTx, intent: &Intent) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.intent (id, kind, broker_id, user_id, wallet, currency_code, ledger, amount,
             fee_amount, channel, receiver, book_account_id, status, created_by, created_at, updated_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $15)",
    )
    .bind(intent.id)
    .bind(intent.kind.as_str())
    .bind(kept(intent.broker))
    .bind(&intent.user)
    .bind(intent.wallet.to_string())
    .bind(intent.currency.as_str())
    .bind(i32::try_from(intent.ledger).unwrap_or(i32::MAX))
    .bind(kept(intent.amount))
    .bind(kept(intent.fee))
    .bind(intent.channel.as_str())
    .bind(Json(&intent.receiver))
    .bind(intent.book_account.map(|account| account.to_string()))
    .bind(intent.status.as_str())
    .bind(&intent.created_by)
    .bind(intent.created_at)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's, or a row that can't be read.
pub async fn get(pm: &PgPool, id: Uuid) -> Result<Option<Intent>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.intent WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// An intent as it is, which nobody changes before the end of the transaction.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn lock(tx: &mut PmTx, id: Uuid) -> Result<Option<Intent>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.intent WHERE id = $1 FOR UPDATE"
    ))
    .bind(id)
    .fetch_optional(&mut **tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// An intent, and what the provider knows its sender by.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn with_sender(
    pm: &PgPool,
    id: Uuid,
) -> Result<Option<(Intent, Option<String>)>, StoreError> {
    #[derive(FromRow)]
    struct Both {
        #[sqlx(flatten)]
        row: Row,
        ipps_wallet_id: Option<String>,
    }
    let found: Option<Both> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        ", (SELECT a.ipps_wallet_id FROM pm.tb_account_map a WHERE a.account_name = i.wallet)
             AS ipps_wallet_id
         FROM pm.intent i WHERE id = $1"
    ))
    .bind(id)
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    let read = |both: Both| Ok((both.row.read()?, both.ipps_wallet_id));
    found.map(read).transpose()
}

/// Many intents, in no order.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn many(pm: &PgPool, ids: &[Uuid]) -> Result<Vec<Intent>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.intent WHERE id = ANY($1)"
    ))
    .bind(ids)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Which intents of a broker are wanted.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub user: Option<String>,
    pub status: Option<IntentStatus>,
}

/// A broker's intents, newest first; `after` is the last of the page before.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn list(
    pm: &PgPool,
    broker: BrokerId,
    filter: &Filter,
    after: Option<(DateTime<Utc>, Uuid)>,
    limit: u32,
) -> Result<Vec<Intent>, StoreError> {
    let mut builder = QueryBuilder::<Postgres>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.intent WHERE broker_id = "
    ));
    builder.push_bind(kept(broker));
    if let Some(user) = &filter.user {
        builder.push(" AND user_id = ").push_bind(user);
    }
    if let Some(status) = filter.status {
        builder.push(" AND status = ").push_bind(status.as_str());
    }
    if let Some((at, id)) = after {
        builder.push(" AND (created_at, id) < (").push_bind(at);
        builder.push(", ").push_bind(id).push(")");
    }
    builder
        .push(" ORDER BY created_at DESC, id DESC LIMIT ")
        .push_bind(i64::from(limit));
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(pm)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// How many of a broker's intents are not over, and the oldest of them.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn open(
    pm: &PgPool,
    broker: BrokerId,
    named: u32,
) -> Result<(u64, Vec<Intent>), StoreError> {
    let is_open: Vec<&str> = IntentStatus::ALL
        .iter()
        .filter(|status| !status.is_over())
        .map(|status| status.as_str())
        .collect();
    let count: i64 = sqlx::query_scalar(
        "SELECT COUNT(*) FROM pm.intent WHERE broker_id = $1 AND status = ANY($2)",
    )
    .bind(kept(broker))
    .bind(&is_open)
    .fetch_one(pm)
    .await
    .map_err(failed)?;
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.intent WHERE broker_id = $1 AND status = ANY($2)
          ORDER BY created_at, id LIMIT $3"
    ))
    .bind(kept(broker))
    .bind(&is_open)
    .bind(i64::from(named))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let rows: Result<_, _> = rows.into_iter().map(Row::read).collect();
    Ok((count.unsigned_abs(), rows?))
}

/// Brings an intent from one status to the next; gives whether it was in the first.
///
/// # Errors
/// The database's.
pub async fn set_status(
    tx: &mut PmTx,
    id: Uuid,
    from: IntentStatus,
    to: IntentStatus,
    reason: Option<&str>,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE pm.intent SET status = $1, reason = $2, updated_at = $3
         WHERE id = $4 AND status = $5",
    )
    .bind(to.as_str())
    .bind(reason)
    .bind(now)
    .bind(id)
    .bind(from.as_str())
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}
