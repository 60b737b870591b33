//! The tables of netting: what two brokers propose to each other (`netting_proposal`), and rounds
//! over the whole network (`netting_round` and what belongs to it).

pub mod due;
pub mod lines;
pub mod parties;
pub mod proposals;
pub mod rounds;
pub mod settings;

use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// A sum that may not fit 64 bits: such columns are read as text.
fn wide(table: &'static str, text: &str) -> Result<u128, StoreError> {
    text.parse()
        .map_err(|_| corrupt(table, format!("{text:?} is no sum")))
}
