//! Sagas: whoever dies, whoever comes twice, whoever says no.

mod claims;
mod compensation;
pub mod killed;
mod kinds;
mod outages;
mod races;
pub mod served;
pub mod shapes;
mod simulation;
mod stopped;
mod stuck;
mod twice;

pub use killed::told;
pub use shapes::Shape;
