//! Opening and closing accounts, under the chain head's lock like everything that is written in a
//! book.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::intention::{Claimed, claim};
use super::rows::{AccountColumns, account_columns};
use super::{feed, partners};
use crate::domain::account::{AccountRef, Balance, OwnerKind};
use crate::domain::book::AccountState;
use crate::domain::ids::AccountId;
use crate::stores::StoreError;
use crate::stores::master::idempotency::Intention;
use crate::stores::router::{BookScope, BookSql, BookTx};

const ACCOUNT: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND account_id = ?"
));
const INSERT: BookSql = BookSql::new(
    "INSERT INTO account (broker_id, account_id, owner_kind, owner_ref, currency_code, state, \
     balance, reserved, min_balance, created_at, change_seq) \
     VALUES (?, ?, ?, ?, ?, 'open', 0, 0, ?, ?, ?)",
);
/// The new number is the head's next, whose row is locked.
const REOPEN: BookSql = BookSql::new(
    "UPDATE account a JOIN chain_head h ON h.broker_id = a.broker_id \
     SET a.state = 'open', a.change_seq = h.change_seq + 1 \
     WHERE a.broker_id = ? AND a.account_id = ?",
);
const CLOSE: BookSql = BookSql::new(
    "UPDATE account a JOIN chain_head h ON h.broker_id = a.broker_id \
     SET a.state = 'closed', a.change_seq = h.change_seq + 1 \
     WHERE a.broker_id = ? AND a.account_id = ?",
);

/// What became of an opening.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opened {
    /// There was none, or it was closed.
    Now(AccountState),
    Before(AccountState),
    /// The owner is a partner that was archived.
    Archived,
    /// The client's key stood for something else.
    OtherRequest,
}

/// What became of a closing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// Now or before.
    Done(AccountState),
    NoAccount,
    /// The house's accounts stay open: entries fall back on them.
    House,
    /// Something is promised on it (minor units).
    Promised {
        reserved: i64,
    },
}

/// Opens an account, or opens one again that was closed. The client's intention is recorded in
/// the same transaction: repeating it changes nothing, whatever has happened to the account since.
///
/// # Errors
/// The book's database being away, busy or moving.
pub async fn open_account(
    scope: &BookScope,
    intention: &Intention,
    owner: &AccountRef,
    now: DateTime<Utc>,
) -> Result<Opened, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let claimed = claim(
        &mut tx,
        intention,
        owner.id().to_string(),
        head.change(),
        now,
    )
    .await?;
    if claimed == Claimed::Other {
        tx.commit().await?;
        return Ok(Opened::OtherRequest);
    }
    let found = find(&mut tx, owner.id()).await?;
    let opens = claimed == Claimed::Now && !found.as_ref().is_some_and(|state| state.open);
    if opens && partners::is_archived(&mut tx, owner).await? {
        tx.rollback().await?;
        return Ok(Opened::Archived);
    }
    let state = match found {
        Some(state) if state.open || claimed == Claimed::Before => {
            if claimed == Claimed::Now {
                feed::changed(&mut tx).await?;
            }
            tx.commit().await?;
            return Ok(Opened::Before(state));
        }
        Some(closed) => {
            let query = tx.sql(REOPEN).bind(owner.id().bits());
            tx.execute(query).await?;
            AccountState {
                open: true,
                ..closed
            }
        }
        None => insert(&mut tx, owner, head.change(), now).await?,
    };
    let event = json!({ "owner": owner });
    let subject = owner.id().to_string();
    feed::tell(&mut tx, &head, "account.opened", subject, event, now).await?;
    tx.commit().await?;
    Ok(Opened::Now(state))
}

/// Closes an account of a cashier or partner on which nothing is promised. What it holds stays
/// in it; credits that still come go to the house's suspense account.
///
/// # Errors
/// The book's database being away, busy or moving.
pub async fn close_account(
    scope: &BookScope,
    id: AccountId,
    now: DateTime<Utc>,
) -> Result<Closed, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let outcome = match find(&mut tx, id).await? {
        None => Closed::NoAccount,
        Some(state) if state.owner.owner_kind == OwnerKind::House => Closed::House,
        Some(state) if state.open && state.balance.reserved != 0 => Closed::Promised {
            reserved: state.balance.reserved,
        },
        Some(state) if state.open => {
            let query = tx.sql(CLOSE).bind(id.bits());
            tx.execute(query).await?;
            let balance = state.balance.balance.to_string();
            let event = json!({ "owner": state.owner, "balance": balance });
            feed::tell(&mut tx, &head, "account.closed", id.to_string(), event, now).await?;
            Closed::Done(AccountState {
                open: false,
                ..state
            })
        }
        Some(closed) => Closed::Done(closed),
    };
    tx.commit().await?;
    Ok(outcome)
}

async fn find(tx: &mut BookTx, id: AccountId) -> Result<Option<AccountState>, StoreError> {
    let broker = tx.broker();
    let query = tx.sql(ACCOUNT).bind(id.bits());
    let row: Option<AccountColumns> = tx.fetch_optional(query).await?;
    row.map(|row| row.read(broker).map(|(_, state)| state))
        .transpose()
}

async fn insert(
    tx: &mut BookTx,
    owner: &AccountRef,
    change: u64,
    now: DateTime<Utc>,
) -> Result<AccountState, StoreError> {
    let state = AccountState {
        owner: owner.clone(),
        open: true,
        balance: Balance::empty(owner.owner_kind),
        created_at: now,
    };
    let query = tx
        .sql(INSERT)
        .bind(owner.id().bits())
        .bind(owner.owner_kind.as_str())
        .bind(owner.owner_ref.clone())
        .bind(owner.currency.to_string())
        .bind(state.balance.min_balance)
        .bind(now)
        .bind(change);
    tx.execute(query).await?;
    Ok(state)
}
