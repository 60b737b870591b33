//! Signed notes (C2SP signed-note): a text and, below it, lines of signatures by named Ed25519
//! keys. Signatures by keys that a reader doesn't know are ignored, so several may stand side by
//! side: two of ours while a key is rotated, and those of witnesses.
//!
//! A witness signs in one of two ways: the text as it is (algorithm 1), or the text with the time
//! at which it was seen (algorithm 4, C2SP tlog-cosignature).

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use sha2::{Digest as _, Sha256};

use super::words::words;

/// Longest note that is read, in bytes.
pub const NOTE_MAX: usize = 64 * 1024;
/// Most signatures that are read of one.
pub const SIGNATURES_MAX: usize = 100;
/// Longest name of a key, in bytes.
pub const NAME_MAX: usize = 200;
/// Longest line of one signature, in bytes: the name, and 4 + 8 + 64 bytes as base64.
pub const LINE_MAX: usize = NAME_MAX + 120;

const DASH: &str = "\u{2014} ";

words!(
    /// How a key signs.
    Algorithm {
        /// The text.
        Ed25519 = "ed25519",
        /// The text and when it was seen.
        Cosignature = "cosignature",
    }
);

impl Algorithm {
    const fn byte(self) -> u8 {
        match self {
            Self::Ed25519 => 1,
            Self::Cosignature => 4,
        }
    }

    fn of_byte(byte: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|algorithm| algorithm.byte() == byte)
    }
}

/// What is wrong with a note, a line or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoteError {
    #[error("a note has at most {NOTE_MAX} bytes")]
    TooLong,
    #[error("a note is UTF-8 without control characters but line feeds")]
    Text,
    #[error("a note is a text, an empty line, and lines of signatures")]
    Form,
    #[error("a note has at most {SIGNATURES_MAX} signatures")]
    TooMany,
    #[error(
        "a line of a signature is an em dash, a key's name, and base64 of its id and signature"
    )]
    Line,
    #[error("a key's name is 1 to {NAME_MAX} characters without spaces, control characters and +")]
    Name,
    #[error("a public key is NAME+ID+KEY: 8 hex digits, and base64 of an algorithm and 32 bytes")]
    Key,
    #[error("no signature is by a key that is known")]
    Unknown,
    #[error("the signature by {0:08x} does not verify")]
    Wrong(u32),
}

/// The public half of a key, with the name that it signs under. Written as `NAME+ID+KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteKey {
    name: String,
    id: u32,
    algorithm: Algorithm,
    public: VerifyingKey,
}

impl NoteKey {
    /// # Errors
    /// A name that can't be one, or bytes that are no public key.
    pub fn new(name: &str, algorithm: Algorithm, public: &[u8; 32]) -> Result<Self, NoteError> {
        check_name(name)?;
        let public = VerifyingKey::from_bytes(public).map_err(|_| NoteError::Key)?;
        if public.is_weak() {
            return Err(NoteError::Key);
        }
        let digest = Sha256::new()
            .chain_update(name.as_bytes())
            .chain_update([b'\n', algorithm.byte()])
            .chain_update(public.as_bytes())
            .finalize();
        let mut id = [0; 4];
        id.copy_from_slice(&digest[..4]);
        Ok(Self {
            name: name.to_owned(),
            id: u32::from_be_bytes(id),
            algorithm,
            public,
        })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[must_use]
    pub const fn id(&self) -> u32 {
        self.id
    }

    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    #[must_use]
    pub fn public(&self) -> [u8; 32] {
        self.public.to_bytes()
    }

    fn is_of(&self, signature: &NoteSignature) -> bool {
        self.id == signature.id && self.name == signature.name
    }

    /// Whether a signature is this key's, and of that text.
    #[must_use]
    pub fn verifies(&self, text: &str, signature: &NoteSignature) -> bool {
        if !self.is_of(signature) {
            return false;
        }
        let verified = |message: &[u8], bytes: &[u8]| {
            Signature::from_slice(bytes)
                .is_ok_and(|signature| self.public.verify_strict(message, &signature).is_ok())
        };
        match self.algorithm {
            Algorithm::Ed25519 => verified(text.as_bytes(), &signature.bytes),
            Algorithm::Cosignature => {
                signature
                    .bytes
                    .split_first_chunk()
                    .is_some_and(|(time, bytes)| {
                        let message = seen(text, u64::from_be_bytes(*time));
                        verified(message.as_bytes(), bytes)
                    })
            }
        }
    }

    /// Signs a text with the private half; `at` is the second at which it was seen, which only a
    /// [`Algorithm::Cosignature`] has.
    #[must_use]
    pub fn sign(&self, key: &SigningKey, text: &str, at: u64) -> NoteSignature {
        let bytes = match self.algorithm {
            Algorithm::Ed25519 => key.sign(text.as_bytes()).to_vec(),
            Algorithm::Cosignature => {
                let signature = key.sign(seen(text, at).as_bytes());
                [&at.to_be_bytes()[..], &signature.to_bytes()].concat()
            }
        };
        NoteSignature {
            name: self.name.clone(),
            id: self.id,
            bytes,
        }
    }
}

/// What a cosignature signs (C2SP tlog-cosignature).
fn seen(text: &str, at: u64) -> String {
    format!("cosignature/v1\ntime {at}\n{text}")
}

fn check_name(name: &str) -> Result<(), NoteError> {
    let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '+';
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) {
        Ok(())
    } else {
        Err(NoteError::Name)
    }
}

impl fmt::Display for NoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = [&[self.algorithm.byte()], self.public.as_bytes().as_slice()].concat();
        write!(f, "{}+{:08x}+{}", self.name, self.id, STANDARD.encode(key))
    }
}

impl FromStr for NoteKey {
    type Err = NoteError;

    fn from_str(text: &str) -> Result<Self, NoteError> {
        let mut parts = text.splitn(3, '+');
        let (Some(name), Some(id), Some(key)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(NoteError::Key);
        };
        if key.len() > 48 {
            return Err(NoteError::Key);
        }
        let key = STANDARD.decode(key).map_err(|_| NoteError::Key)?;
        let (algorithm, public) = key.split_first().ok_or(NoteError::Key)?;
        let algorithm = Algorithm::of_byte(*algorithm).ok_or(NoteError::Key)?;
        let public = public.try_into().map_err(|_| NoteError::Key)?;
        let key = Self::new(name, algorithm, public)?;
        if format!("{:08x}", key.id) == id {
            Ok(key)
        } else {
            Err(NoteError::Key)
        }
    }
}

/// One line below a note's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoteSignature {
    pub name: String,
    pub id: u32,
    pub bytes: Vec<u8>,
}

impl fmt::Display for NoteSignature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.id.to_be_bytes()[..], &self.bytes].concat();
        write!(f, "{DASH}{} {}", self.name, STANDARD.encode(bytes))
    }
}

impl FromStr for NoteSignature {
    type Err = NoteError;

    /// Without the line feed.
    fn from_str(line: &str) -> Result<Self, NoteError> {
        if line.len() > LINE_MAX {
            return Err(NoteError::Line);
        }
        let rest = line.strip_prefix(DASH).ok_or(NoteError::Line)?;
        let (name, bytes) = rest.split_once(' ').ok_or(NoteError::Line)?;
        check_name(name)?;
        let bytes = STANDARD.decode(bytes).map_err(|_| NoteError::Line)?;
        let (id, bytes) = bytes.split_first_chunk().ok_or(NoteError::Line)?;
        if bytes.is_empty() {
            return Err(NoteError::Line);
        }
        Ok(Self {
            name: name.to_owned(),
            id: u32::from_be_bytes(*id),
            bytes: bytes.to_vec(),
        })
    }
}

/// A text with its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// With its last line feed, which the signatures cover.
    pub text: String,
    pub signatures: Vec<NoteSignature>,
}

impl Note {
    /// Reads a note, whoever has signed it. Takes memory for a copy of what is read, whose length
    /// is bounded first.
    ///
    /// # Errors
    /// Of its form.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteError> {
        if bytes.len() > NOTE_MAX {
            return Err(NoteError::TooLong);
        }
        let whole = std::str::from_utf8(bytes).map_err(|_| NoteError::Text)?;
        if whole.chars().any(|c| c.is_control() && c != '\n') {
            return Err(NoteError::Text);
        }
        // The last empty line: a text may have some of its own.
        let end = whole.rfind("\n\n").ok_or(NoteError::Form)?;
        let (text, lines) = (&whole[..=end], &whole[end + 2..]);
        let lines = lines.strip_suffix('\n').ok_or(NoteError::Form)?;
        if text.trim().is_empty() {
            return Err(NoteError::Form);
        }
        let mut signatures = Vec::new();
        for line in lines.split('\n') {
            if signatures.len() == SIGNATURES_MAX {
                return Err(NoteError::TooMany);
            }
            signatures.push(line.parse()?);
        }
        Ok(Self {
            text: text.to_owned(),
            signatures,
        })
    }

    /// The keys, of those that are known, by which it is signed.
    ///
    /// # Errors
    /// A signature that says it is by a known key and does not verify; none by a known key.
    pub fn signed_by<'k>(&self, known: &'k [NoteKey]) -> Result<Vec<&'k NoteKey>, NoteError> {
        let mut by = Vec::new();
        for key in known {
            for signature in self.signatures.iter().filter(|one| key.is_of(one)) {
                if !key.verifies(&self.text, signature) {
                    return Err(NoteError::Wrong(key.id));
                }
                if !by.contains(&key) {
                    by.push(key);
                }
            }
        }
        if by.is_empty() {
            return Err(NoteError::Unknown);
        }
        Ok(by)
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        for signature in &self.signatures {
            writeln!(f, "{signature}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
