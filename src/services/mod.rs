//! The operations. Each loads, lets the domain decide, and persists in one local transaction.

pub mod auth;
pub mod team;
