use serde_json::Value;

use crate::domain::pause::Hindrance;
use crate::domain::request::{Refusal, RequestStatus};
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
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work ended without an answer: it may have been done.
    #[error("the work ended without an answer; ask for the request's state")]
    Lost,
}
