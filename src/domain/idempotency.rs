//! The identity of one intended operation over HTTP.

use super::canonical::Hash;

/// A caller's key for something it wants made once, with the digest of what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationKey {
    /// Subject of the caller's token.
    pub client: String,
    /// The `Idempotency-Key`, 1 to 128 characters.
    pub key: String,
    /// Over method, path and canonical body: the same key with another one is a mistake.
    pub fingerprint: Hash,
}
