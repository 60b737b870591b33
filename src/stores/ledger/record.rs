//! What is read back from the ledger.

use chrono::{DateTime, Utc};
use tigerbeetle_unofficial::transfer::Flags;
use tigerbeetle_unofficial::{Account, Transfer, account};
use uuid::Uuid;

use super::LedgerError;
use crate::domain::ledger::{Balances, LedgerAccountId, TransferId};

/// A transfer as it stands in the ledger. Nothing there ever changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRecord {
    pub id: TransferId,
    pub kind: TransferKind,
    pub debit: LedgerAccountId,
    pub credit: LedgerAccountId,
    /// Minor units; a void's is what it gave back.
    pub amount: u128,
    /// The currency's ledger number.
    pub ledger: u32,
    /// See [`crate::domain::ledger::TransferCode`].
    pub code: u16,
    /// The saga or intent.
    pub operation: Uuid,
    /// By the ledger's own clock.
    pub at: DateTime<Utc>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferKind {
    /// Moved at once.
    Single,
    Hold,
    /// Of this hold.
    Post(TransferId),
    /// Of this hold.
    Void(TransferId),
}

/// An account as it stands in the ledger, whatever it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountRecord {
    pub id: LedgerAccountId,
    /// The currency's ledger number.
    pub ledger: u32,
    /// See [`crate::domain::ledger::AccountOwner::code`].
    pub code: u16,
    /// The ledger refuses what would take it below zero.
    pub never_negative: bool,
    /// Its balances of before are kept.
    pub history: bool,
    pub balances: Balances,
    /// When it was created, by the ledger's own clock.
    pub at: DateTime<Utc>,
}

pub(super) fn account(found: &Account) -> Result<AccountRecord, LedgerError> {
    let id = LedgerAccountId::try_from(found.id()).map_err(|error| LedgerError::Integrity {
        id: found.id(),
        found: error.to_string(),
    })?;
    let flags = found.flags();
    Ok(AccountRecord {
        id,
        ledger: found.ledger(),
        code: found.code(),
        never_negative: flags.contains(account::Flags::DEBITS_MUST_NOT_EXCEED_CREDITS),
        history: flags.contains(account::Flags::HISTORY),
        balances: sums(found),
        at: found.timestamp().into(),
    })
}

fn sums(found: &Account) -> Balances {
    Balances {
        debits_pending: found.debits_pending(),
        debits_posted: found.debits_posted(),
        credits_pending: found.credits_pending(),
        credits_posted: found.credits_posted(),
    }
}

pub(super) fn transfer(found: &Transfer) -> Result<TransferRecord, LedgerError> {
    let broken = |what: &dyn std::fmt::Display| LedgerError::Integrity {
        id: found.id(),
        found: what.to_string(),
    };
    let of = || TransferId::try_from(found.pending_id()).map_err(|error| broken(&error));
    let flags = found.flags();
    let kind = if flags.contains(Flags::PENDING) {
        TransferKind::Hold
    } else if flags.contains(Flags::POST_PENDING_TRANSFER) {
        TransferKind::Post(of()?)
    } else if flags.contains(Flags::VOID_PENDING_TRANSFER) {
        TransferKind::Void(of()?)
    } else {
        TransferKind::Single
    };
    let side = |id: u128| LedgerAccountId::try_from(id).map_err(|error| broken(&error));
    Ok(TransferRecord {
        id: TransferId::try_from(found.id()).map_err(|error| broken(&error))?,
        kind,
        debit: side(found.debit_account_id())?,
        credit: side(found.credit_account_id())?,
        amount: found.amount(),
        ledger: found.ledger(),
        code: found.code(),
        operation: Uuid::from_u128(found.user_data_128()),
        at: found.timestamp().into(),
    })
}

/// The balances of an account that has the ledger, code and flags that it must have.
pub(super) fn balances(found: &Account, expected: &Account) -> Result<Balances, LedgerError> {
    let fixed = |account: &Account| (account.ledger(), account.code(), account.flags());
    if fixed(found) != fixed(expected) {
        return Err(LedgerError::Integrity {
            id: found.id(),
            found: format!(
                "ledger, code, flags are {:?}, not {:?}",
                fixed(found),
                fixed(expected)
            ),
        });
    }
    Ok(sums(found))
}
