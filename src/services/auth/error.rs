use chrono::Duration;

use super::password::HashError;
use crate::stores::StoreError;

/// Why nobody was logged in.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    /// Unknown, wrong, disabled, revoked, expired: which of them is not for the caller to know.
    #[error("the credentials are not valid")]
    Credentials,
    #[error("too many attempts")]
    Throttled { wait: Duration },
    /// A scope was asked for that the caller can't have.
    #[error("the scope {0} is not one of the caller's")]
    Scope(crate::domain::access::Scope),
    /// More log-ins than passwords can be hashed.
    #[error("too many log-ins at the same time")]
    Busy,
    #[error("there is no key to sign with")]
    NoSigningKey,
    #[error("a token could not be made")]
    Token(#[source] jsonwebtoken::errors::Error),
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error("a password could not be hashed")]
    Hash,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<HashError> for AuthError {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Busy => Self::Busy,
            HashError::Randomness => Self::Randomness,
            HashError::Failed => Self::Hash,
        }
    }
}

/// Why an access token isn't taken.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("the token can't be read")]
    Malformed,
    #[error("the token is not signed as we sign")]
    Algorithm,
    #[error("the token's key is not known")]
    UnknownKey,
    #[error("the token's signature is wrong")]
    Signature,
    #[error("the token is from another issuer")]
    Issuer,
    #[error("the token is for somebody else")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token's claims don't go together")]
    Claims,
}
