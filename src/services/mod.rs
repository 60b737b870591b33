//! The operations: load, decide by a pure function of the domain, persist in one local
//! transaction.

pub mod announce;
pub mod lanes;
pub mod network;
pub mod saga;
