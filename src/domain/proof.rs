//! Proof that money was sent: one or several statements, at least one of substance.

use serde::{Deserialize, Serialize};

use super::canonical::Hash;
use super::words::words;

/// At most this many proofs come with one `sent`.
pub const MAX_PROOFS: usize = 10;
pub const MAX_URL: usize = 500;
pub const MAX_VALUE: usize = 200;
pub const MAX_NOTE: usize = 1_000;

words!(
    /// What a proof is.
    ProofType {
        Photo = "photo",
        TxHash = "tx_hash",
        TransferRef = "transfer_ref",
        Document = "document",
    }
);

/// One proof. A photo or document is an upload (or an address elsewhere) with its SHA-256, so
/// that a swapped file shows; a hash or reference is its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    #[serde(rename = "type")]
    pub kind: ProofType,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Hash>,
}

/// Why proofs are not accepted: the index of the proof, its field, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    #[error("1 to {MAX_PROOFS} proofs are needed")]
    Count,
    #[error("proof {index}: {field} {rule}")]
    Field {
        index: usize,
        field: &'static str,
        rule: &'static str,
    },
}

/// Checks the proofs of one `sent`.
///
/// # Errors
/// None or more than [`MAX_PROOFS`], a proof without the field that its type lives by, or a
/// field that is empty or over its length.
pub fn check(proofs: &[Proof]) -> Result<(), ProofError> {
    if proofs.is_empty() || proofs.len() > MAX_PROOFS {
        return Err(ProofError::Count);
    }
    proofs.iter().enumerate().try_for_each(|(index, proof)| {
        let broken = |field, rule| Err(ProofError::Field { index, field, rule });
        match proof.kind {
            ProofType::Photo | ProofType::Document if proof.url.is_none() => {
                return broken("url", "is required for a photo or document");
            }
            ProofType::TxHash | ProofType::TransferRef if proof.value.is_none() => {
                return broken("value", "is required for a tx_hash or transfer_ref");
            }
            ProofType::Photo | ProofType::Document | ProofType::TxHash | ProofType::TransferRef => {
            }
        }
        let fits = |text: &Option<String>, most: usize| {
            text.as_ref()
                .is_none_or(|text| !text.trim().is_empty() && text.chars().count() <= most)
        };
        if !fits(&proof.url, MAX_URL) {
            return broken("url", "is 1 to 500 characters");
        }
        if !fits(&proof.value, MAX_VALUE) {
            return broken("value", "is 1 to 200 characters");
        }
        if !fits(&proof.note, MAX_NOTE) {
            return broken("note", "is 1 to 1000 characters");
        }
        Ok(())
    })
}

/// The digest that goes into the request's event chain for a set of proofs.
#[must_use]
pub fn digest(proofs: &[Proof]) -> Hash {
    Hash::of_json(&proofs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proof(kind: ProofType) -> Proof {
        Proof {
            kind,
            url: None,
            value: None,
            note: None,
            sha256: None,
        }
    }

    #[test]
    fn a_proof_needs_what_its_type_lives_by() {
        assert_eq!(check(&[]), Err(ProofError::Count));
        assert!(check(&[proof(ProofType::Photo)]).is_err());
        assert!(check(&[proof(ProofType::TxHash)]).is_err());
        let photo = Proof {
            url: Some("/v1/uploads/1".to_owned()),
            ..proof(ProofType::Photo)
        };
        assert_eq!(check(std::slice::from_ref(&photo)), Ok(()));
        let long = Proof {
            note: Some("x".repeat(1_001)),
            ..photo.clone()
        };
        assert!(matches!(
            check(&[photo, long]),
            Err(ProofError::Field {
                index: 1,
                field: "note",
                ..
            })
        ));
    }
}
