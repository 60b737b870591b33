//! All integration tests in one binary, on real servers.

mod harness;
mod ids;
mod ledger;
mod migrate;
mod stack;
