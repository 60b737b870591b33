//! The operations: load, decide by a pure function of the domain, persist in one local
//! transaction. REST, the command line and the workers all come in here; a plain record of a store
//! goes up under the name of the service that gives it.

pub mod alerts;
pub mod announce;
pub mod arbiters;
pub mod audit;
pub mod auditor;
pub mod auth;
pub mod book_files;
pub mod books;
pub mod bundles;
pub mod checkpoints;
pub mod credit_lines;
pub mod domains;
pub mod feeds;
pub mod invites;
pub mod lanes;
pub mod migration;
pub mod moves;
pub mod netting;
pub mod network;
pub mod obligations;
pub mod offboarding;
pub mod onboarding;
pub mod partners;
pub mod pauses;
pub mod payments;
pub mod plans;
pub mod provisioning;
pub mod reconcile;
pub mod saga;
pub mod signup;
pub mod team;
pub mod uploads;

pub use crate::stores::StoreError;
pub use crate::stores::master::idempotency::Intention;
