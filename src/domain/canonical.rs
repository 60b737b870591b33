//! Canonical JSON (RFC 8785) and its SHA-256: the one way in which anything here is hashed.

use serde::Serialize;
use sha2::{Digest, Sha256};

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// SHA-256 of bytes as they are.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// SHA-256 of a value's canonical JSON.
    ///
    /// # Panics
    /// Where a value can't be JSON at all (a map with keys that are no strings): a mistake in
    /// the type, found by its first test.
    #[must_use]
    pub fn of_json<T: Serialize>(value: &T) -> Self {
        let text =
            serde_json_canonicalizer::to_vec(value).expect("hashed types are plain JSON objects");
        Self::of_bytes(&text)
    }

    #[must_use]
    pub fn to_hex(self) -> String {
        hex::encode(self.0)
    }

    /// Reads 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return None;
        }
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("a hash is 64 lower-case hex digits"))
    }
}

/// RFC 3339 UTC with exactly six decimals: how every time that is hashed is written.
#[must_use]
pub fn time(at: chrono::DateTime<chrono::Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads a time that is written so, and in no other way.
#[must_use]
pub fn read_time(text: &str) -> Option<chrono::DateTime<chrono::Utc>> {
    let at = chrono::DateTime::parse_from_rfc3339(text).ok()?.to_utc();
    (time(at) == text).then_some(at)
}
