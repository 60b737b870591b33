//! `pm.tb_account_map`: wallets, whose they are, and what providers know them by.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool};

use super::{PmTx, failed, kept};
use crate::domain::ids::BrokerId;
use crate::domain::ledger::{AccountName, account_uuid};
use crate::domain::money::CurrencyCode;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// A wallet of a broker, or of one of its clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wallet {
    pub name: AccountName,
    pub ledger: u32,
    pub broker: BrokerId,
    pub user: String,
    pub currency: CurrencyCode,
    /// What IPPS knows the sender by.
    pub ipps_wallet_id: Option<String>,
    pub created_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct Row {
    account_name: String,
    ledger: i32,
    broker_id: Option<i64>,
    user_id: Option<String>,
    currency_code: String,
    ipps_wallet_id: Option<String>,
    created_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "account_name, ledger, broker_id, user_id, currency_code, ipps_wallet_id, created_at"
    };
}

impl Row {
    fn read(self) -> Result<Wallet, StoreError> {
        let bad =
            |column: &str| corrupt("tb_account_map", format!("{}: {column}", self.account_name));
        let broker = self.broker_id.and_then(|broker| broker.try_into().ok());
        Ok(Wallet {
            name: self.account_name.parse().map_err(|_| bad("account_name"))?,
            ledger: self.ledger.try_into().map_err(|_| bad("ledger"))?,
            broker: broker.ok_or_else(|| bad("broker_id"))?,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            user: self.user_id.clone().ok_or_else(|| bad("user_id"))?,
            ipps_wallet_id: self.ipps_wallet_id,
            created_at: self.created_at,
        })
    }
}

/// Writes a wallet down, or leaves it as it is; what a provider knows it by is set where it is
/// said.
///
/// # Errors
/// The database's.
pub async fn put(tx: &mut PmTx, wallet: &Wallet) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO pm.tb_account_map (account_name, tb_account_id, ledger, code, broker_id, user_id,
             currency_code, ipps_wallet_id, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (account_name) DO UPDATE
             SET ipps_wallet_id = COALESCE(EXCLUDED.ipps_wallet_id, pm.tb_account_map.ipps_wallet_id)",
    )
    .bind(wallet.name.to_string())
    .bind(account_uuid(&wallet.name))
    .bind(i32::try_from(wallet.ledger).unwrap_or(i32::MAX))
    .bind(i32::from(wallet.name.owner().code()))
    .bind(kept(wallet.broker))
    .bind(&wallet.user)
    .bind(wallet.currency.as_str())
    .bind(&wallet.ipps_wallet_id)
    .bind(wallet.created_at)
    .execute(&mut **tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Whether another broker's wallet has what IPPS knows a sender by; until the end of the transaction
/// nobody else registers it.
///
/// # Errors
/// The database's.
pub async fn is_anothers(
    tx: &mut PmTx,
    broker: BrokerId,
    ipps_wallet_id: &str,
) -> Result<bool, StoreError> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('ipps_wallet_id:' || $1, 0))")
        .bind(ipps_wallet_id)
        .execute(&mut **tx)
        .await
        .map_err(failed)?;
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pm.tb_account_map
                        WHERE ipps_wallet_id = $1 AND broker_id <> $2)",
    )
    .bind(ipps_wallet_id)
    .bind(kept(broker))
    .fetch_one(&mut **tx)
    .await
    .map_err(failed)
}

/// # Errors
/// The database's, or a row that can't be read.
pub async fn get(pm: &PgPool, name: &AccountName) -> Result<Option<Wallet>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.tb_account_map WHERE account_name = $1 AND broker_id IS NOT NULL"
    ))
    .bind(name.to_string())
    .fetch_optional(pm)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// A broker's wallets, by name, after one.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn list(
    pm: &PgPool,
    broker: BrokerId,
    after: Option<&str>,
    limit: u32,
) -> Result<Vec<Wallet>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.tb_account_map WHERE broker_id = $1 AND account_name > $2
          ORDER BY account_name LIMIT $3"
    ))
    .bind(kept(broker))
    .bind(after.unwrap_or(""))
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}
