//! The operations: load, decide by a pure function of the domain, persist in one local
//! transaction.

pub mod announce;
pub mod auth;
pub mod books;
pub mod lanes;
pub mod migration;
pub mod network;
pub mod onboarding;
pub mod provisioning;
pub mod reconcile;
pub mod saga;
pub mod team;
pub mod uploads;

pub use crate::stores::StoreError;
pub use crate::stores::master::idempotency::Intention;
