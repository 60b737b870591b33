//! Sagas: whoever dies, whoever comes twice, whoever says no.

mod claims;
mod compensation;
mod kinds;
mod races;
mod shapes;
mod stuck;
mod twice;
