//! What the outside world gives: time, randomness, and in a debug build a death on demand.

mod clock;
mod entropy;
pub mod failpoint;
mod lifecycle;

pub use clock::Clock;
pub use entropy::Entropy;
pub use lifecycle::{BrokeOff, Lifecycle};
