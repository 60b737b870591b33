//! All integration tests in one binary, on real servers.
#![expect(
    clippy::unwrap_used,
    reason = "a test that panics has failed, which is what it is for"
)]

mod access;
mod api;
mod book_files;
mod books;
mod checkpoints;
mod cli;
mod debts;
mod disputes;
mod evidence;
mod expand;
mod feed;
mod harness;
mod ids;
mod isolation;
mod ledger;
mod migrate;
mod moves;
mod netting;
mod netting_certificate;
mod netting_solver;
mod network;
mod offboarding;
mod pauses;
mod payments;
mod plans;
mod pool;
mod provisioning;
mod psp;
mod reconcile;
mod saga;
mod servers;
mod stack;
mod verify;
