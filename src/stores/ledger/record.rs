//! What is read back from the ledger.

use chrono::{DateTime, Utc};
use tigerbeetle_unofficial::transfer::Flags;
use tigerbeetle_unofficial::{Account, Transfer};
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
    let account = |id: u128| LedgerAccountId::try_from(id).map_err(|error| broken(&error));
    Ok(TransferRecord {
        id: TransferId::try_from(found.id()).map_err(|error| broken(&error))?,
        kind,
        debit: account(found.debit_account_id())?,
        credit: account(found.credit_account_id())?,
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
    Ok(Balances {
        debits_pending: found.debits_pending(),
        debits_posted: found.debits_posted(),
        credits_pending: found.credits_pending(),
        credits_posted: found.credits_posted(),
    })
}
