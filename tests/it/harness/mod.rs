//! What tests stand on: real servers, databases of their own, and numbers that
//! no other test draws.

// Each is for tests to come as well.
#![allow(dead_code, unused_imports)]

mod databases;
mod draw;
mod servers;

pub use databases::Databases;
pub use draw::{broker_ids, ledger};
pub use servers::{PrivateStack, Stack, own_folder, private_stack, program, stack, until};
