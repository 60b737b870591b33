//! Tokens of an issuer elsewhere, verified by its published key set.

use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Duration, Utc};
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, JwkSet};
use jsonwebtoken::{Algorithm, DecodingKey};

use super::config::OutsideConfig;
use super::error::TokenError;
use super::token::{self, Rule};
use crate::domain::access::Principal;

/// Begins the subject of whoever an outside issuer vouches for.
pub(super) const PREFIX: &str = "ext:";

/// The key set as it was last read.
#[derive(Default)]
struct Cached {
    keys: JwkSet,
    tried_at: Option<DateTime<Utc>>,
}

/// An outside issuer.
pub(super) struct Outside {
    config: OutsideConfig,
    http: reqwest::Client,
    cached: RwLock<Arc<Cached>>,
    reading: tokio::sync::Mutex<()>,
}

/// Why a key set could not be read; the last one stays in use.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("the key set's file can't be read")]
    File(#[from] std::io::Error),
    #[error("the key set can't be fetched")]
    Http(#[from] reqwest::Error),
    #[error("the key set is larger than {SIZE_MAX} bytes")]
    Size,
    #[error("the key set is not one")]
    Form(#[from] serde_json::Error),
}

const SIZE_MAX: usize = 256 * 1024;
const FETCH_WAIT: std::time::Duration = std::time::Duration::from_secs(3);
/// An unknown key makes us ask again, at most this often.
const ASK_AGAIN: Duration = Duration::seconds(30);

impl Outside {
    pub(super) fn new(config: OutsideConfig) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(FETCH_WAIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            config,
            http,
            cached: RwLock::default(),
            reading: tokio::sync::Mutex::new(()),
        })
    }

    /// Who is calling, in a subject that none of our own users or clients can have.
    pub(super) async fn verify(
        &self,
        token: &str,
        kid: &str,
        audience: &str,
        leeway: Duration,
        now: DateTime<Utc>,
    ) -> Result<Principal, TokenError> {
        let jwk = self.key(kid, now).await.ok_or(TokenError::UnknownKey)?;
        // The algorithm is the key's, never the token's say, and never a shared secret's.
        let algorithm = algorithm(&jwk).ok_or(TokenError::Algorithm)?;
        let key = DecodingKey::from_jwk(&jwk).map_err(|_| TokenError::UnknownKey)?;
        let rule = Rule {
            issuer: &self.config.issuer,
            audience,
            algorithm,
            max_ttl: self.config.max_ttl,
            leeway,
        };
        let claims = token::verify(token, &key, &rule, now)?;
        if !self.config.roles.contains(&claims.role) {
            return Err(TokenError::Claims);
        }
        let sub = format!("{PREFIX}{}", claims.sub);
        token::principal(&claims, sub)
    }

    async fn key(&self, kid: &str, now: DateTime<Utc>) -> Option<Jwk> {
        let cached = self.cached();
        let found = cached.keys.find(kid).cloned();
        let age = cached.tried_at.map(|at| now - at);
        let fresh_for = match found {
            Some(_) => self.config.refresh,
            None => ASK_AGAIN,
        };
        if age.is_some_and(|age| age >= Duration::zero() && age < fresh_for) {
            return found;
        }
        let _reading = self.reading.lock().await;
        // Whoever waited for another's reading takes what that found.
        if self.cached().tried_at == cached.tried_at {
            self.read_again(now).await;
        }
        self.cached().keys.find(kid).cloned()
    }

    async fn read_again(&self, now: DateTime<Utc>) {
        let keys = match self.read().await {
            Ok(keys) => keys,
            Err(error) => {
                tracing::warn!(%error, "the outside issuer's keys stay as they were");
                self.cached().keys.clone()
            }
        };
        let cached = Cached {
            keys,
            tried_at: Some(now),
        };
        *self.cached.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(cached);
    }

    async fn read(&self) -> Result<JwkSet, ReadError> {
        let source = &self.config.jwks;
        let is_url = source.starts_with("https://") || source.starts_with("http://");
        let bytes = if is_url {
            let mut answer = self.http.get(source).send().await?.error_for_status()?;
            let mut bytes = Vec::new();
            while let Some(chunk) = answer.chunk().await? {
                if bytes.len() + chunk.len() > SIZE_MAX {
                    return Err(ReadError::Size);
                }
                bytes.extend_from_slice(&chunk);
            }
            bytes
        } else {
            tokio::fs::read(source).await?
        };
        Ok(serde_json::from_slice(&bytes)?)
    }

    fn cached(&self) -> Arc<Cached> {
        self.cached
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn algorithm(jwk: &Jwk) -> Option<Algorithm> {
    match &jwk.algorithm {
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            Some(Algorithm::EdDSA)
        }
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => {
            Some(Algorithm::ES256)
        }
        AlgorithmParameters::RSA(_) => Some(Algorithm::RS256),
        _ => None,
    }
}
