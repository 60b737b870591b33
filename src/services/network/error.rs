use serde_json::Value;

use crate::domain::ids::BrokerId;
use crate::domain::money::Currency;
use crate::domain::pause::Hindrance;
use crate::domain::request::{Refusal, RequestStatus};
use crate::services::auth::password::HashError;
use crate::services::checkpoints::CheckpointError;
use crate::stores::StoreError;

/// A field of the input and what is allowed there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct FieldError {
    pub field: &'static str,
    pub rule: String,
}

impl FieldError {
    pub fn new(field: &'static str, rule: impl std::fmt::Display) -> Self {
        Self {
            field,
            rule: rule.to_string(),
        }
    }
}

/// There is too little of what an acceptance takes. Amounts are minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// Other settlements have reserved it, or less is owed by now.
    #[error("of what broker {debtor} owes broker {creditor} too little is left to settle")]
    Debts {
        debtor: BrokerId,
        creditor: BrokerId,
        available: u64,
        /// More is owed, in more obligations than one settlement may span.
        spans: bool,
    },
    #[error("broker {creditor} lets broker {debtor} owe no more than its credit line has room for")]
    Credit {
        debtor: BrokerId,
        creditor: BrokerId,
        limit: u64,
        free: u64,
    },
}

/// Why an operation on a request came to nothing. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Field(#[from] FieldError),
    /// A book refused what the saga asked of it; the request is as before.
    #[error("the books refused it: {reason}")]
    SagaRefused {
        status: RequestStatus,
        reason: Value,
    },
    #[error("{shortage}")]
    Short {
        shortage: Shortage,
        /// What the amounts are in.
        currency: Currency,
    },
    /// The code that the client showed is not the payout's.
    #[error("it is not the code of this payout; {left} wrong ones are left")]
    PickupRefused { left: u32 },
    /// Too many codes are being made or compared at the same time.
    #[error(transparent)]
    Code(#[from] HashError),
    /// Nothing new starts: something is paused, or a broker is not active.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    /// What may start has changed since it was looked at.
    #[error("what may start has just changed; try again")]
    GateTurned,
    /// The Idempotency-Key stood for another request.
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    /// Others were faster, again and again.
    #[error("the request is being changed by others; try again")]
    Contended,
    /// This process can't sign a decision, so it decides nothing.
    #[error("the decision can't be signed here: {0}")]
    Unsigned(CheckpointError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work ended without an answer: it may have been done.
    #[error("the work ended without an answer; ask for the request's state")]
    Lost,
}
