//! The databases and the ledger. Each store owns its tables; rows and queries don't leak upwards.

pub mod book;
mod error;
pub mod ledger;
pub mod master;
pub mod migrate;
pub mod pm;
pub mod pool;
pub mod router;
mod sql;

pub use error::StoreError;
