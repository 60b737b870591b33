//! Access tokens: what they carry, and when they are taken. Signatures are the library's work;
//! times are checked here, because the library would ask the system for the time.

use std::collections::BTreeSet;

use chrono::{DateTime, Duration, Utc};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation, decode, decode_header};
use serde::{Deserialize, Serialize};

use super::error::TokenError;
use crate::domain::access::{Principal, Role, Scope};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;

/// RFC 9068: so that no other kind of token signed by the same key passes for one of these.
pub(super) const TYPE: &str = "at+jwt";

/// Longest token that is looked at, in bytes.
const LENGTH_MAX: usize = 8 * 1024;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Claims {
    pub iss: String,
    pub sub: String,
    pub role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub broker_id: Option<BrokerId>,
    /// Names, because another version or issuer may know more of them than we do.
    pub scopes: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_digest: Option<Hash>,
    pub iat: i64,
    pub exp: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
}

/// Claims as they are signed: a token that we make has one audience and an id.
#[derive(Serialize)]
pub(super) struct Signed<'a> {
    #[serde(flatten)]
    pub claims: Claims,
    pub aud: &'a str,
    pub jti: String,
}

/// What an issuer's tokens must be.
pub(super) struct Rule<'a> {
    pub issuer: &'a str,
    pub audience: &'a str,
    pub algorithm: Algorithm,
    pub max_ttl: Duration,
    pub leeway: Duration,
}

/// The header, where it is one that can be taken at all.
pub(super) fn header(token: &str) -> Result<Header, TokenError> {
    if token.len() > LENGTH_MAX {
        return Err(TokenError::Malformed);
    }
    let header = decode_header(token).map_err(|error| match error.kind() {
        // `none` and whatever else isn't an algorithm of signatures.
        ErrorKind::Json(_) | ErrorKind::InvalidAlgorithmName | ErrorKind::UnsupportedAlgorithm => {
            TokenError::Algorithm
        }
        _ => TokenError::Malformed,
    })?;
    // RFC 7515, 4.1.11: what we don't understand and must, we refuse.
    if header.crit.is_some() {
        return Err(TokenError::Malformed);
    }
    Ok(header)
}

/// Verifies a token whose key has been found.
pub(super) fn verify(
    token: &str,
    key: &DecodingKey,
    rule: &Rule<'_>,
    now: DateTime<Utc>,
) -> Result<Claims, TokenError> {
    let mut validation = Validation::new(rule.algorithm);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.set_issuer(&[rule.issuer]);
    validation.set_audience(&[rule.audience]);
    validation.set_required_spec_claims(&["iss", "aud", "sub"]);
    let claims = decode::<Claims>(token, key, &validation)
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => TokenError::Signature,
            ErrorKind::InvalidIssuer => TokenError::Issuer,
            ErrorKind::InvalidAudience => TokenError::Audience,
            ErrorKind::InvalidAlgorithm | ErrorKind::InvalidAlgorithmName => TokenError::Algorithm,
            ErrorKind::MissingRequiredClaim(_)
            | ErrorKind::InvalidClaimFormat(_)
            | ErrorKind::Json(_) => TokenError::Claims,
            _ => TokenError::Malformed,
        })?
        .claims;
    check_times(&claims, rule, now)?;
    Ok(claims)
}

/// `iat` only bounds a token's life: the clock that wrote it may be ahead of ours.
fn check_times(claims: &Claims, rule: &Rule<'_>, now: DateTime<Utc>) -> Result<(), TokenError> {
    let life = claims
        .exp
        .checked_sub(claims.iat)
        .ok_or(TokenError::Claims)?;
    if life <= 0 || life > rule.max_ttl.num_seconds() {
        return Err(TokenError::Claims);
    }
    let (now, leeway) = (now.timestamp(), rule.leeway.num_seconds());
    if claims.exp.saturating_add(leeway) <= now {
        return Err(TokenError::Expired);
    }
    if claims
        .nbf
        .is_some_and(|from| from.saturating_sub(leeway) > now)
    {
        return Err(TokenError::Claims);
    }
    Ok(())
}

/// Who the claims say is calling. Scopes that nobody here knows grant nothing.
pub(super) fn principal(claims: &Claims, sub: String) -> Result<Principal, TokenError> {
    let scopes = claims
        .scopes
        .iter()
        .filter_map(|scope| Scope::parse(scope))
        .collect();
    Principal::new(
        sub,
        claims.role,
        claims.broker_id,
        scopes,
        claims.limit_digest,
    )
    .map_err(|_| TokenError::Claims)
}
