//! All integration tests in one binary, on real servers.

mod access;
mod harness;
mod migrate;
mod stack;
