//! What tests stand on: real servers, databases of their own, and numbers that
//! no other test draws.

#![allow(
    dead_code,
    unused_imports,
    reason = "a harness offers more than the tests of one day use"
)]

mod accounts;
mod children;
mod databases;
mod draw;
mod engines;
mod invariants;
mod servers;
mod world;

pub use children::{Child, MovedClock};
pub use databases::Databases;
pub use draw::{broker_ids, ledger};
pub use engines::{SOON, hold_of, step_named};
pub use invariants::{assert_invariants, breaks};
pub use servers::{PrivateStack, Stack, own_folder, private_stack, program, stack, until};
pub use world::{World, proof, start};
