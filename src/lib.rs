//! settlenet: a server for a network of brokers that settle with each other.
#![forbid(unsafe_code)]

pub mod cli;
pub mod config;
pub mod stack;
pub mod stores;

/// The one `TigerBeetle` release that the client library speaks.
pub const TIGERBEETLE_RELEASE: &str = "0.16.78";
