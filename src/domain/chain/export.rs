//! An exported chain: one entry a line, as `docs/formats.md` tells it to verifiers in other
//! languages.
//!
//! A line is the canonical JSON of [`ExportedEntry`] and a line feed. The entry in it is the very
//! text that its hash covers, so that a verifier needs no JSON library to recompute the hash.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::CanonicalEntry;
use crate::domain::canonical::Hash;

/// Longest line, in bytes with its line feed: several times what an entry and the free text
/// beside it can take.
pub const LINE_MAX: usize = 1 << 20;

/// An entry with what stands beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedEntry {
    pub entry: CanonicalEntry,
    /// Free text, where the exporter may see it and nobody has had it erased. The chain has its
    /// digest only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private: Option<Value>,
    pub tx_hash: Hash,
}

/// Why a line is no exported entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    #[error("the line is no exported entry: {0}")]
    Unreadable(String),
    /// It says the same in other bytes: other spacing, order, escapes or line ends.
    #[error("the line is not in canonical form")]
    NotCanonical,
    #[error("the line is longer than {LINE_MAX} bytes")]
    TooLong,
}

impl ExportedEntry {
    /// The line, with its line feed.
    ///
    /// # Errors
    /// None that an entry could cause; serialization as such can fail.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let mut line = serde_json_canonicalizer::to_string(self)?;
        line.push('\n');
        Ok(line)
    }

    /// Reads a line; the line feed may be missing, as at the end of a file.
    ///
    /// # Errors
    /// A line with anything else in it, in any byte, than [`ExportedEntry::to_line`] gives.
    pub fn from_line(line: &[u8]) -> Result<Self, LineError> {
        if line.len() > LINE_MAX {
            return Err(LineError::TooLong);
        }
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        let read: Self = serde_json::from_slice(text)
            .map_err(|error| LineError::Unreadable(error.to_string()))?;
        let written = read
            .to_line()
            .map_err(|error| LineError::Unreadable(error.to_string()))?;
        if written.strip_suffix('\n').map(str::as_bytes) == Some(text) {
            Ok(read)
        } else {
            Err(LineError::NotCanonical)
        }
    }
}
