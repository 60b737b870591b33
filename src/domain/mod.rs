//! The rules: pure functions and types. No I/O, no clock, no randomness: they are parameters.

pub mod access;
pub mod canonical;
pub mod idempotency;
pub mod ids;
pub mod throttle;
