//! settlenet: a server for a network of brokers that settle with each other.
//!
//! Imports run one way: `http, workers, cli → services → {domain, stores}`, `stores → domain`,
//! and `domain` imports nothing of ours. `runtime` (clock, entropy, failpoints) is what every
//! layer but the domain may be handed.
#![forbid(unsafe_code)]

pub mod app;
pub mod cli;
pub mod config;
pub mod domain;
pub mod http;
pub mod runtime;
pub mod services;
pub mod stack;
pub mod stores;
pub mod workers;

/// The one `TigerBeetle` release that the client library speaks.
pub const TIGERBEETLE_RELEASE: &str = "0.16.78";
