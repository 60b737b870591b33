use std::path::PathBuf;

use chrono::Duration;
use serde::Deserialize;

use crate::domain::access::Role;
use crate::domain::throttle::ThrottlePolicy;

/// Longest life of an access token: within it a revocation takes no effect on one that is out.
pub const ACCESS_TTL_MAX: Duration = Duration::minutes(15);

/// How tokens are made and checked.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuthConfig {
    /// `iss` of our tokens.
    pub issuer: String,
    /// `aud` of the tokens that we take, whoever made them.
    pub audience: String,
    /// Folder of the private signing keys: Ed25519, PKCS#8, one `*.pem` each.
    pub keys_dir: PathBuf,
    /// Life of an access token, 60 to 900.
    pub access_ttl_seconds: u32,
    /// Life of a refresh token that isn't used.
    pub refresh_ttl_seconds: u32,
    /// How long a log-in can be refreshed at all.
    pub login_ttl_seconds: u32,
    /// How far clocks of issuer and verifier may be apart.
    pub leeway_seconds: u32,
    /// How long a further key is published before it signs.
    pub key_lead_seconds: u32,
    /// Attempts per login that cost nothing, in 15 minutes.
    pub login_attempts: u32,
    /// Attempts per address that cost nothing, in 15 minutes.
    pub address_attempts: u32,
    /// Passwords hashed at the same time; each takes 19 MiB and a core for some 20 ms.
    pub parallel_hashes: u32,
    /// How long a log-in waits for its turn to be hashed.
    pub hash_wait_ms: u32,
    /// An issuer besides ourselves.
    pub outside: Option<OutsideConfig>,
}

/// An issuer elsewhere whose tokens are taken. It is trusted to say which broker and role a
/// caller has, within `roles`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideConfig {
    /// `iss` of its tokens; not our own.
    pub issuer: String,
    /// Its key set (RFC 7517): an `http(s)://` address or a file.
    pub jwks: String,
    /// Roles that it may give.
    #[serde(default = "outside_roles")]
    pub roles: Vec<Role>,
    /// Longest life of its tokens.
    #[serde(default = "outside_ttl")]
    pub max_ttl_seconds: u32,
    /// How long a fetched key set is used without asking again.
    #[serde(default = "outside_refresh")]
    pub refresh_seconds: u32,
}

impl Default for AuthConfig {
    fn default() -> Self {
        Self {
            issuer: "settlenet".into(),
            audience: "settlenet".into(),
            keys_dir: "keys".into(),
            access_ttl_seconds: 900,
            refresh_ttl_seconds: 7 * 86_400,
            login_ttl_seconds: 30 * 86_400,
            leeway_seconds: 30,
            key_lead_seconds: 300,
            login_attempts: 10,
            address_attempts: 100,
            parallel_hashes: 2,
            hash_wait_ms: 5_000,
            outside: None,
        }
    }
}

fn outside_roles() -> Vec<Role> {
    vec![Role::BrokerAdmin, Role::BrokerOperator, Role::BrokerViewer]
}

const fn outside_ttl() -> u32 {
    900
}

const fn outside_refresh() -> u32 {
    600
}

impl AuthConfig {
    /// What is wrong with the values, if anything: the key and what is allowed.
    #[must_use]
    pub fn fault(&self) -> Option<(&'static str, &'static str)> {
        if self.issuer.is_empty() {
            return Some(("issuer", "a name"));
        }
        if self.audience.is_empty() {
            return Some(("audience", "a name"));
        }
        if !(60..=900).contains(&self.access_ttl_seconds) {
            return Some(("access_ttl_seconds", "60 to 900"));
        }
        if self.leeway_seconds > 120 {
            return Some(("leeway_seconds", "0 to 120"));
        }
        if self.parallel_hashes == 0 {
            return Some(("parallel_hashes", "1 or more"));
        }
        if self
            .outside
            .as_ref()
            .is_some_and(|outside| outside.issuer == self.issuer)
        {
            return Some(("outside.issuer", "another issuer than our own"));
        }
        None
    }

    pub(super) fn access_ttl(&self) -> Duration {
        seconds(self.access_ttl_seconds).min(ACCESS_TTL_MAX)
    }

    pub(super) fn login_policy(&self) -> ThrottlePolicy {
        ThrottlePolicy {
            free_attempts: self.login_attempts,
            window: Duration::minutes(15),
            first_wait: Duration::seconds(2),
            longest_wait: Duration::minutes(5),
        }
    }

    pub(super) fn address_policy(&self) -> ThrottlePolicy {
        ThrottlePolicy {
            free_attempts: self.address_attempts,
            ..self.login_policy()
        }
    }
}

pub(super) fn seconds(count: u32) -> Duration {
    Duration::seconds(i64::from(count))
}
