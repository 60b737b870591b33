//! What the ledger's answers mean.

use tigerbeetle_unofficial::error::{CreateAccountErrorKind, CreateTransferErrorKind};

/// What became of a hold that was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldOutcome {
    /// It has landed, now or in an earlier try; it may have been posted or voided since.
    Held,
    /// The account hasn't got the amount. The id is spent: later tries answer `NeverLands`.
    InsufficientFunds,
    /// The id was refused or burned before: this hold can never land. A new try of the operation
    /// is a new operation with a new uuid.
    NeverLands,
}

/// What became of a hold that somebody wanted to post or to void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleOutcome {
    /// The amount has moved.
    Posted,
    /// The amount has been given back.
    Voided,
    /// There is no such hold.
    HoldMissing,
}

/// What became of a hold whose id was to be burned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BurnOutcome {
    /// It isn't there and can never land.
    Burned,
    /// It had landed before: post it or void it.
    Landed,
}

/// Why the ledger gave no outcome.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// No answer in time, or the session ended: what was asked may have happened, may still
    /// happen, or not. The same call again is always safe.
    #[error("the ledger's answer to {call} is unknown: {reason}")]
    Unknown { call: &'static str, reason: String },
    /// What stands in the ledger is not what its id promises. Nothing mends this by itself.
    #[error("the ledger has {id} otherwise than it must be: {found}")]
    Integrity { id: u128, found: String },
    /// The ledger takes no such request, now or ever; the caller is wrong.
    #[error("the ledger refuses {id}: {found}")]
    Invalid { id: u128, found: String },
    /// The client didn't start: too many addresses, or no memory.
    #[error("the ledger's client did not start: {0}")]
    Client(String),
}

impl LedgerError {
    /// Whether the same call may succeed later.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        match self {
            Self::Unknown { .. } | Self::Client(_) => true,
            Self::Integrity { .. } | Self::Invalid { .. } => false,
        }
    }
}

/// Which of the two ways a hold is settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Settle {
    Post,
    Void,
}

/// An answer to a post or void, as far as it can be told without a look at the ledger.
#[derive(Debug)]
pub(super) enum SettleAnswer {
    Known(SettleOutcome),
    /// A transfer of another kind has the id; normally the other of post and void.
    OtherKind,
    /// The hold was settled under another id.
    Elsewhere(SettleOutcome),
    /// The id was spent before the hold landed.
    Spent,
}

pub(super) fn hold_outcome(
    id: u128,
    answer: Option<CreateTransferErrorKind>,
) -> Result<HoldOutcome, LedgerError> {
    use CreateTransferErrorKind as K;
    match answer {
        None | Some(K::Exists) => Ok(HoldOutcome::Held),
        Some(K::ExceedsCredits | K::ExceedsDebits) => Ok(HoldOutcome::InsufficientFunds),
        Some(
            K::IdAlreadyFailed
            | K::DebitAccountNotFound
            | K::CreditAccountNotFound
            | K::DebitAccountAlreadyClosed
            | K::CreditAccountAlreadyClosed,
        ) => Ok(HoldOutcome::NeverLands),
        Some(other) => Err(transfer_error(id, other)),
    }
}

pub(super) fn burn_outcome(
    id: u128,
    answer: Option<CreateTransferErrorKind>,
) -> Result<BurnOutcome, LedgerError> {
    use CreateTransferErrorKind as K;
    match answer {
        Some(K::DebitAccountNotFound | K::IdAlreadyFailed) => Ok(BurnOutcome::Burned),
        Some(K::ExistsWithDifferentDebitAccountId) => Ok(BurnOutcome::Landed),
        Some(other) => Err(transfer_error(id, other)),
        None => Err(LedgerError::Integrity {
            id,
            found: "the account that nobody may have exists".to_owned(),
        }),
    }
}

pub(super) fn settle_answer(
    id: u128,
    settle: Settle,
    answer: Option<CreateTransferErrorKind>,
) -> Result<SettleAnswer, LedgerError> {
    use CreateTransferErrorKind as K;
    let done = match settle {
        Settle::Post => SettleOutcome::Posted,
        Settle::Void => SettleOutcome::Voided,
    };
    match answer {
        None | Some(K::Exists) => Ok(SettleAnswer::Known(done)),
        Some(K::ExistsWithDifferentFlags) => Ok(SettleAnswer::OtherKind),
        Some(K::PendingTransferNotFound) => Ok(SettleAnswer::Known(SettleOutcome::HoldMissing)),
        Some(K::PendingTransferAlreadyPosted) => Ok(SettleAnswer::Elsewhere(SettleOutcome::Posted)),
        Some(K::PendingTransferAlreadyVoided) => Ok(SettleAnswer::Elsewhere(SettleOutcome::Voided)),
        Some(K::IdAlreadyFailed) => Ok(SettleAnswer::Spent),
        Some(other) => Err(transfer_error(id, other)),
    }
}

pub(super) fn account_error(id: u128, kind: CreateAccountErrorKind) -> LedgerError {
    use CreateAccountErrorKind as K;
    let found = format!("{kind:?}");
    match kind {
        K::ExistsWithDifferentFlags
        | K::ExistsWithDifferentUserData128
        | K::ExistsWithDifferentUserData64
        | K::ExistsWithDifferentUserData32
        | K::ExistsWithDifferentLedger
        | K::ExistsWithDifferentCode => LedgerError::Integrity { id, found },
        // The client's enum may grow; whatever it says, the account isn't there.
        _ => LedgerError::Invalid { id, found },
    }
}

pub(super) fn transfer_error(id: u128, kind: CreateTransferErrorKind) -> LedgerError {
    use CreateTransferErrorKind as K;
    let found = format!("{kind:?}");
    match kind {
        K::Exists
        | K::ExistsWithDifferentFlags
        | K::ExistsWithDifferentPendingId
        | K::ExistsWithDifferentTimeout
        | K::ExistsWithDifferentDebitAccountId
        | K::ExistsWithDifferentCreditAccountId
        | K::ExistsWithDifferentAmount
        | K::ExistsWithDifferentUserData128
        | K::ExistsWithDifferentUserData64
        | K::ExistsWithDifferentUserData32
        | K::ExistsWithDifferentLedger
        | K::ExistsWithDifferentCode
        | K::PendingTransferNotPending
        | K::PendingTransferExpired => LedgerError::Integrity { id, found },
        // The client's enum may grow; whatever it says, the transfer isn't there.
        _ => LedgerError::Invalid { id, found },
    }
}
