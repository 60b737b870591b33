//! Proof that money was sent: one or several statements, at least one of substance.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::canonical::Hash;
use super::text;
use super::words::words;

/// At most this many proofs come with one `sent`.
pub const MAX_PROOFS: usize = 10;
pub const MAX_URL: usize = 500;
pub const MAX_VALUE: usize = 200;
pub const MAX_NOTE: usize = 1_000;
/// Where an upload is found; a proof names its file by this and the id.
pub const UPLOADS: &str = "/v1/uploads/";

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
    #[error("of proof {index} {rule}")]
    Field {
        index: usize,
        field: &'static str,
        rule: String,
    },
}

impl ProofError {
    /// The field as a problem names it.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::Count => "proof",
            Self::Field { field, .. } => field,
        }
    }
}

impl Proof {
    /// The upload that the url names, if it names one: an address of a server never does.
    #[must_use]
    pub fn upload(&self) -> Option<Uuid> {
        let id = self.url.as_deref()?.strip_prefix(UPLOADS)?;
        let upload = Uuid::try_parse(id).ok()?;
        (upload.hyphenated().to_string() == id).then_some(upload)
    }
}

type TextCheck = fn(&str, usize) -> Result<(), text::TextError>;

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
        let broken = |field, rule: String| Err(ProofError::Field { index, field, rule });
        match proof.kind {
            ProofType::Photo | ProofType::Document if proof.url.is_none() => {
                return broken(
                    "proof.url",
                    "is required for a photo or document".to_owned(),
                );
            }
            ProofType::TxHash | ProofType::TransferRef if proof.value.is_none() => {
                return broken(
                    "proof.value",
                    "is required for a tx_hash or transfer_ref".to_owned(),
                );
            }
            ProofType::Photo | ProofType::Document | ProofType::TxHash | ProofType::TransferRef => {
            }
        }
        let checks: [(_, _, TextCheck, _); 3] = [
            ("proof.url", &proof.url, text::line, MAX_URL),
            ("proof.value", &proof.value, text::line, MAX_VALUE),
            ("proof.note", &proof.note, text::prose, MAX_NOTE),
        ];
        for (field, text, check, most) in checks {
            if let Some(Err(error)) = text.as_deref().map(|text| check(text, most)) {
                return broken(field, error.to_string());
            }
        }
        let named = proof.upload().is_some();
        match &proof.url {
            Some(url) if !named && !is_web_address(url) => broken(
                "proof.url",
                format!("is an https: or http: address, or {UPLOADS} and an upload's id"),
            ),
            Some(_) | None => Ok(()),
        }
    })
}

/// An absolute address that a browser opens as a page and not as a program or a file: `https` or
/// `http`, a host, and no character that could be read in two ways.
fn is_web_address(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else {
        return false;
    };
    let web = ["https", "http"]
        .iter()
        .any(|name| scheme.eq_ignore_ascii_case(name));
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let plain = |c: char| !c.is_whitespace() && !r#"<>"\^`{|}"#.contains(c);
    web && host.contains(char::is_alphanumeric) && !host.contains('@') && rest.chars().all(plain)
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
            url: Some("https://example.com/1.jpg".to_owned()),
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
                field: "proof.note",
                ..
            })
        ));
    }

    #[test]
    fn a_url_is_of_the_web_or_an_upload() {
        let id = "0193a5b0-7c3e-7abc-8def-012345678901";
        let with = |url: &str| Proof {
            url: Some(url.to_owned()),
            ..proof(ProofType::Photo)
        };
        let upload = with(&format!("{UPLOADS}{id}"));
        assert_eq!(upload.upload().unwrap().to_string(), id);
        assert_eq!(check(&[upload]), Ok(()));
        for web in [
            "https://example.com/v1/uploads/x?y=1#z".to_owned(),
            "HTTP://example.com".to_owned(),
            format!("https://evil.example{UPLOADS}{id}"),
        ] {
            assert_eq!(check(&[with(&web)]), Ok(()), "{web}");
            assert_eq!(with(&web).upload(), None, "{web}");
        }
        for bad in [
            "javascript:alert(1)".to_owned(),
            "javascript://example.com/%0aalert(1)".to_owned(),
            "file:///etc/passwd".to_owned(),
            "data:text/html,x".to_owned(),
            "//example.com/x".to_owned(),
            "https://".to_owned(),
            "https:///x".to_owned(),
            "https://bank.example@evil.example/".to_owned(),
            "https://evil.example\\@bank.example/".to_owned(),
            "https://example.com/a b".to_owned(),
            "https://example.com/\u{202e}gpj".to_owned(),
            "receipt.jpg".to_owned(),
            UPLOADS.to_owned(),
            format!("{UPLOADS}1"),
            format!("{UPLOADS}{id}/"),
            format!("{UPLOADS}../{id}"),
            format!("{UPLOADS}{{{id}}}"),
            format!("{UPLOADS}{}", id.to_uppercase()),
            format!("{UPLOADS}{}", id.replace('-', "")),
        ] {
            let error = check(&[with(&bad)]).unwrap_err();
            assert_eq!(error.field(), "proof.url", "{bad}");
        }
    }
}
