//! The databases and the ledger. Each store owns its tables; its types don't leak upwards.

pub mod access;
mod error;
pub mod idempotency;

pub use error::StoreError;
