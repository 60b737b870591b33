//! The rules: pure functions and types. No I/O, no clock, no randomness: they are parameters.

pub mod access;
pub mod account;
pub mod book;
pub mod book_check;
pub mod book_file;
pub mod book_table;
pub mod book_tree;
pub mod broker;
pub mod broker_move;
pub mod canonical;
pub mod chain;
pub mod effects;
pub mod fence;
pub mod host;
pub mod ids;
pub mod invite;
pub mod ledger;
pub mod merkle;
pub mod moment;
pub mod money;
pub mod obligation;
pub mod partner;
pub mod pause;
pub mod payment;
pub mod plan;
pub mod plan_limits;
pub mod proof;
pub mod reason;
pub mod request;
pub mod request_event;
pub mod saga;
pub mod terms;
pub mod text;
pub mod throttle;

pub(crate) mod words;
