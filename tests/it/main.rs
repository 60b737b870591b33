//! All integration tests in one binary, on real servers.

mod harness;
mod migrate;
mod stack;
