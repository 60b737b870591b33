use std::path::PathBuf;

use chrono::Duration;

use crate::domain::access::Role;
use crate::domain::throttle::ThrottlePolicy;

/// Longest life of an access token: within it a revocation takes no effect on one that is out.
pub const ACCESS_TTL_MAX: Duration = Duration::minutes(15);

/// How tokens are made and checked.
#[derive(Clone, Debug)]
pub struct AuthConfig {
    /// `iss` of our tokens.
    pub issuer: String,
    /// `aud` of the tokens that we take, whoever made them.
    pub audience: String,
    /// The private signing key (Ed25519, PKCS#8 PEM), or a folder of them (`*.pem`).
    pub signing_keys: PathBuf,
    /// Life of an access token; never more than [`ACCESS_TTL_MAX`].
    pub access_ttl: Duration,
    /// Life of a refresh token that isn't used.
    pub refresh_ttl: Duration,
    /// How long a log-in can be refreshed at all.
    pub login_ttl: Duration,
    /// How far clocks of issuer and verifier may be apart.
    pub leeway: Duration,
    /// How long a further key is published before it signs.
    pub key_lead: Duration,
    /// Attempts per login and address that cost nothing, in 15 minutes; per login ten times as
    /// many.
    pub login_attempts: u32,
    /// Attempts per address that cost nothing, in 15 minutes.
    pub address_attempts: u32,
    /// Passwords hashed at the same time; each takes 19 MiB and a core for some 20 ms.
    pub parallel_hashes: u32,
    /// How long a log-in waits for its turn to be hashed.
    pub hash_wait: std::time::Duration,
    /// An issuer besides ourselves.
    pub outside: Option<OutsideConfig>,
}

/// An issuer elsewhere whose tokens are taken. It is trusted to say which broker and role a
/// caller has, within `roles`.
#[derive(Clone, Debug)]
pub struct OutsideConfig {
    /// `iss` of its tokens.
    pub issuer: String,
    /// Its key set (RFC 7517): an `http(s)://` address or a file.
    pub jwks: String,
    /// Roles that it may give.
    pub roles: Vec<Role>,
    /// Longest life of its tokens.
    pub max_ttl: Duration,
    /// How long a key set that was read is used without asking again.
    pub refresh: Duration,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            issuer: "settlenet".into(),
            audience: "settlenet".into(),
            signing_keys: "keys".into(),
            access_ttl: ACCESS_TTL_MAX,
            refresh_ttl: Duration::days(7),
            login_ttl: Duration::days(30),
            leeway: Duration::seconds(30),
            key_lead: Duration::minutes(5),
            login_attempts: 10,
            address_attempts: 100,
            parallel_hashes: 2,
            hash_wait: std::time::Duration::from_secs(5),
            outside: None,
        }
    }
}

impl AuthConfig {
    pub(super) fn login_policy(&self) -> ThrottlePolicy {
        ThrottlePolicy {
            free_attempts: self.login_attempts,
            window: Duration::minutes(15),
            first_wait: Duration::seconds(2),
            longest_wait: Duration::minutes(5),
        }
    }

    /// For a login wherever the attempts come from: ten times as many are free, and the waits stay
    /// short enough for its owner to sit out.
    pub(super) fn login_anywhere_policy(&self) -> ThrottlePolicy {
        ThrottlePolicy {
            free_attempts: self.login_attempts.saturating_mul(10),
            longest_wait: Duration::seconds(10),
            ..self.login_policy()
        }
    }

    pub(super) fn address_policy(&self) -> ThrottlePolicy {
        ThrottlePolicy {
            free_attempts: self.address_attempts,
            ..self.login_policy()
        }
    }
}
