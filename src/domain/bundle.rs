//! The evidence bundle: all that a third party needs to judge one request or order by itself, in one
//! file, and [`verify`], which judges it without a server, a database, a network or a clock.
//!
//! A bundle has the subject's events from the first to the last, what stands beside them, the entries
//! that they say were booked, each with the part of its book's chain up to a place that the log of
//! chain heads has, what is owed by it and the ledger's transfers; and one signed checkpoint of that
//! log, in which all of it can be found. It is one JSON object in canonical form, so that no byte of
//! it can be another one; `sha256` is a checksum over the rest, and no signature. The form is a
//! promise to verifiers in other languages: `docs/formats.md` tells them all of it.

mod effects;
mod story;
#[cfg(test)]
mod tests;
pub mod verify;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::canonical::Hash;
use super::chain::ExportedEntry;
use super::checkpoint::CanonicalLeaf;
use super::request_event::CanonicalEvent;

/// What a bundle calls itself.
pub const FORMAT: &str = "settlenet.bundle";
/// The version that this program writes and reads.
pub const VERSION: u16 = 1;
/// Largest bundle that is read, in bytes. An event has a few kilobytes, and a request few events.
pub const BUNDLE_MAX: usize = 16 << 20;

/// Everything about one request or order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// By broker.
    pub books: Vec<BundledBook>,
    /// The signed note of the log's state that all of it is shown against.
    pub checkpoint: String,
    /// From the first on.
    pub events: Vec<BundledEvent>,
    pub format: String,
    /// Where the log has the last event.
    pub logged: Logged,
    pub made_at: String,
    /// One for each completion or correction by which something is owed.
    pub obligations: Vec<BundledObligation>,
    /// Over the canonical JSON of all other fields.
    pub sha256: Hash,
    /// `NR-…` or `OR-…`
    pub subject: String,
    /// One for each completion or correction that moved positions.
    pub transfers: Vec<BundledTransfer>,
    pub v: u16,
}

/// An event with what stands beside it, where that may be shown and was not erased.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledEvent {
    pub event: CanonicalEvent,
    pub hash: Hash,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<Value>,
}

/// What the subject has in one book.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledBook {
    pub broker: String,
    /// By seq.
    pub segments: Vec<Segment>,
}

/// Entries that follow each other, the last of which the log has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Segment {
    pub entries: Vec<ExportedEntry>,
    pub logged: Logged,
}

/// A leaf of the log, and the proof that the checkpoint has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Logged {
    pub index: String,
    pub leaf: CanonicalLeaf,
    pub proof: Vec<Hash>,
}

/// Who owes whom by it. How much of it was repaid meanwhile is no matter of the bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledObligation {
    /// Minor units.
    pub amount: String,
    pub creditor: String,
    pub currency: String,
    pub debtor: String,
    /// `OB-…`
    pub id: String,
    pub saga: String,
}

/// A transfer between two positions, as the ledger has it once it is posted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledTransfer {
    /// Minor units.
    pub amount: String,
    /// The name of the account that is credited.
    pub credit: String,
    pub debit: String,
    /// The ledger's id of the hold, a decimal number.
    pub hold: String,
    /// That of the post.
    pub post: String,
    pub saga: String,
}

/// What is no bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    #[error("it has more than {BUNDLE_MAX} bytes")]
    TooLong,
    #[error("it is no bundle: {0}")]
    Unreadable(String),
    #[error("it is of format {format} {v}, and this program knows {FORMAT} {VERSION} only")]
    Unknown { format: String, v: u16 },
    #[error("it is not in canonical form")]
    NotCanonical,
    #[error("it is not as it was written: its sha256 is {computed}, not {stated}")]
    Checksum { computed: Hash, stated: Hash },
}

impl Bundle {
    /// With its checksum.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.sha256 = self.checksum();
        self
    }

    fn checksum(&self) -> Hash {
        let mut all = serde_json::to_value(self).unwrap_or_default();
        if let Value::Object(fields) = &mut all {
            fields.remove("sha256");
        }
        Hash::of_json(&all)
    }

    /// The file.
    ///
    /// # Errors
    /// None that a bundle could cause; serialization as such can fail.
    pub fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json_canonicalizer::to_vec(self)
    }

    /// Reads a file, in memory for a few times its bytes. A line feed at its end is allowed.
    ///
    /// # Errors
    /// See [`FormError`]; of what it says nothing is checked yet.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, FormError> {
        if bytes.len() > BUNDLE_MAX {
            return Err(FormError::TooLong);
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
        let unreadable = |error: serde_json::Error| FormError::Unreadable(error.to_string());
        let bundle: Self = serde_json::from_slice(bytes).map_err(unreadable)?;
        if (bundle.format.as_str(), bundle.v) != (FORMAT, VERSION) {
            let (format, v) = (bundle.format, bundle.v);
            return Err(FormError::Unknown { format, v });
        }
        if bundle.to_bytes().map_err(unreadable)? != bytes {
            return Err(FormError::NotCanonical);
        }
        let (computed, stated) = (bundle.checksum(), bundle.sha256);
        if computed != stated {
            return Err(FormError::Checksum { computed, stated });
        }
        Ok(bundle)
    }
}
