//! Our signing keys: private halves in files, public halves in the master.
//!
//! Rotation: put a further key file beside the old one (`settlenet admin` or [`generate`]) and
//! restart the processes one by one. The new key is published at once and signs after a lead,
//! so that whoever caches our key set has it by then; then retire the old one.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Duration, Utc};
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, KeypairBytes};
use jsonwebtoken::{DecodingKey, EncodingKey};
use serde::Serialize;
use sha2::{Digest, Sha256};

use super::secret::random_bytes;
use crate::stores::StoreError;
use crate::stores::master::access::signing_key;
use crate::stores::pool::Pool;

/// What is wrong with the key files.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("the signing key {path} can't be used")]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("{path} is not an Ed25519 private key in PKCS#8 PEM")]
    NotAKey { path: PathBuf },
    #[error("there is no signing key (*.pem) in {path}")]
    None { path: PathBuf },
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A public key as RFC 7517 writes it (RFC 8037 for Ed25519).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct PublicJwk {
    pub kty: &'static str,
    pub crv: &'static str,
    pub x: String,
    pub kid: String,
    pub alg: &'static str,
    #[serde(rename = "use")]
    pub usage: &'static str,
}

struct PrivateKey {
    kid: String,
    encoding: EncodingKey,
}

#[derive(Clone)]
struct Known {
    jwk: PublicJwk,
    decoding: DecodingKey,
    signs_from: DateTime<Utc>,
    verifies_until: Option<DateTime<Utc>>,
}

impl Known {
    /// The key, while tokens by it are taken.
    fn taken(self, now: DateTime<Utc>) -> Option<DecodingKey> {
        let taken = self.verifies_until.is_none_or(|until| now < until);
        taken.then_some(self.decoding)
    }
}

#[derive(Default)]
struct Ring {
    known: HashMap<String, Known>,
}

/// The keys that this process signs with and verifies by.
pub struct Keys {
    pool: Pool,
    private: Vec<PrivateKey>,
    ring: RwLock<Arc<Ring>>,
    /// When an unknown key last made us look.
    asked_at: tokio::sync::Mutex<Option<DateTime<Utc>>>,
}

/// An unknown key makes us look into the master, at most this often.
const ASK_AGAIN: Duration = Duration::seconds(1);

impl Keys {
    /// Reads the key files and makes their public halves known.
    ///
    /// # Errors
    /// No usable key file, or no database.
    pub async fn open(
        pool: Pool,
        files: &Path,
        lead: Duration,
        now: DateTime<Utc>,
    ) -> Result<Self, KeyError> {
        let files = read_files(files)?;
        let live = signing_key::verifying(&pool, now).await?;
        let first = live.iter().all(|key| key.verifies_until.is_some());
        let signs_from = if first { now } else { now + lead };
        let mut private = Vec::new();
        for key in &files {
            let public = key.verifying_key().to_bytes();
            let kid = thumbprint(&public);
            signing_key::register(&pool, &kid, &public, signs_from, now).await?;
            private.push(PrivateKey {
                kid,
                encoding: EncodingKey::from_ed_der(&pkcs8_v1(key)),
            });
        }
        let keys = Self {
            pool,
            private,
            ring: RwLock::default(),
            asked_at: tokio::sync::Mutex::new(None),
        };
        keys.reload(now).await?;
        Ok(keys)
    }

    /// Reads the public keys again: new ones of other processes, and which are retired.
    ///
    /// # Errors
    /// The database's.
    pub async fn reload(&self, now: DateTime<Utc>) -> Result<(), StoreError> {
        let known = signing_key::verifying(&self.pool, now)
            .await?
            .into_iter()
            .map(|key| {
                let x = URL_SAFE_NO_PAD.encode(key.public_key);
                let decoding =
                    DecodingKey::from_ed_components(&x).map_err(|_| StoreError::Corrupt {
                        table: "signing_key",
                        what: "a public key that is none".into(),
                    })?;
                let known = Known {
                    jwk: jwk(key.kid.clone(), x),
                    decoding,
                    signs_from: key.signs_from,
                    verifies_until: key.verifies_until,
                };
                Ok((key.kid, known))
            })
            .collect::<Result<_, StoreError>>()?;
        let ring = Ring { known };
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(ring);
        Ok(())
    }

    /// The newest key that may sign at `now`. One that this process alone has, and that is not
    /// due yet, is better than none.
    #[must_use]
    pub fn signer(&self, now: DateTime<Utc>) -> Option<(&str, &EncodingKey)> {
        let ring = self.ring();
        let usable = self.private.iter().filter_map(|key| {
            let known = ring.known.get(&key.kid)?;
            known
                .verifies_until
                .is_none()
                .then_some((key, known.signs_from))
        });
        let (due, early): (Vec<_>, Vec<_>) = usable.partition(|(_, from)| *from <= now);
        let newest = due.into_iter().max_by_key(|(key, from)| (*from, &key.kid));
        let earliest = early
            .into_iter()
            .min_by_key(|(key, from)| (*from, &key.kid));
        newest
            .or(earliest)
            .map(|(key, _)| (key.kid.as_str(), &key.encoding))
    }

    /// The key of that name, if tokens by it are still taken.
    pub async fn verifier(&self, kid: &str, now: DateTime<Utc>) -> Option<DecodingKey> {
        if let Some(found) = self.find(kid) {
            return found.taken(now);
        }
        let mut asked_at = self.asked_at.lock().await;
        let due = asked_at.is_none_or(|at| now - at >= ASK_AGAIN || now < at);
        if due {
            *asked_at = Some(now);
            if let Err(error) = self.reload(now).await {
                tracing::warn!(%error, "signing keys could not be read again");
            }
        }
        self.find(kid)?.taken(now)
    }

    fn find(&self, kid: &str) -> Option<Known> {
        self.ring().known.get(kid).cloned()
    }

    /// What `/.well-known/jwks.json` shows.
    #[must_use]
    pub fn published(&self, now: DateTime<Utc>) -> Vec<PublicJwk> {
        let ring = self.ring();
        let mut keys: Vec<_> = ring
            .known
            .values()
            .filter(|key| key.verifies_until.is_none_or(|until| now < until))
            .map(|key| key.jwk.clone())
            .collect();
        keys.sort_by(|a, b| a.kid.cmp(&b.kid));
        keys
    }

    /// Retires a key: it signs nothing more, and its tokens are taken until `verifies_until`
    /// (now, where the private half has leaked). Other processes follow when they reload.
    ///
    /// # Errors
    /// The database's.
    pub async fn retire(
        &self,
        kid: &str,
        verifies_until: DateTime<Utc>,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let found = signing_key::retire(&self.pool, kid, verifies_until).await?;
        self.reload(now).await?;
        Ok(found)
    }

    fn ring(&self) -> Arc<Ring> {
        self.ring
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Makes a key file that only its owner can read; its name is the key's.
///
/// # Errors
/// The folder can't be written, or there is no randomness.
pub fn generate(folder: &Path) -> Result<String, KeyError> {
    let failed = |source| unusable(folder, source);
    let seed = random_bytes::<32>().map_err(|_| KeyError::Randomness)?;
    let key = SigningKey::from_bytes(&seed);
    let kid = thumbprint(&key.verifying_key().to_bytes());
    let pem = key
        .to_pkcs8_pem(LineEnding::LF)
        .map_err(|error| failed(std::io::Error::other(error)))?;
    fs::create_dir_all(folder).map_err(failed)?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(folder.join(format!("{kid}.pem")))
        .and_then(|mut file| {
            file.write_all(pem.as_bytes())?;
            file.sync_all()
        })
        .map_err(failed)?;
    Ok(kid)
}

/// The key of a file, or those of a folder.
///
/// # Errors
/// Where there is none, or one can't be used.
pub(in crate::services) fn read_files(path: &Path) -> Result<Vec<SigningKey>, KeyError> {
    if !path.is_dir() {
        return Ok(vec![read_file(path)?]);
    }
    let mut keys = Vec::new();
    let failed = |source| unusable(path, source);
    for entry in fs::read_dir(path).map_err(failed)? {
        let file = entry.map_err(failed)?.path();
        if file.extension().is_some_and(|extension| extension == "pem") {
            keys.push(read_file(&file)?);
        }
    }
    if keys.is_empty() {
        let path = path.to_owned();
        return Err(KeyError::None { path });
    }
    Ok(keys)
}

fn read_file(path: &Path) -> Result<SigningKey, KeyError> {
    let pem = fs::read_to_string(path).map_err(|source| unusable(path, source))?;
    SigningKey::from_pkcs8_pem(&pem).map_err(|_| KeyError::NotAKey {
        path: path.to_owned(),
    })
}

fn unusable(path: &Path, source: std::io::Error) -> KeyError {
    KeyError::File {
        path: path.to_owned(),
        source,
    }
}

/// PKCS#8 version 1, without the public half: the form that the token library takes.
fn pkcs8_v1(key: &SigningKey) -> Vec<u8> {
    let bytes = KeypairBytes {
        secret_key: key.to_bytes(),
        public_key: None,
    };
    bytes
        .to_pkcs8_der()
        .map(|der| der.as_bytes().to_vec())
        .unwrap_or_default()
}

/// RFC 7638: SHA-256 of the key's required members in their canonical form (RFC 8037, 2).
fn thumbprint(public: &[u8; 32]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public);
    let canonical = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    URL_SAFE_NO_PAD.encode(Sha256::digest(canonical.as_bytes()))
}

fn jwk(kid: String, x: String) -> PublicJwk {
    PublicJwk {
        kty: "OKP",
        crv: "Ed25519",
        x,
        kid,
        alg: "EdDSA",
        usage: "sig",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thumbprint_of_rfc_8037_a3() {
        let x = URL_SAFE_NO_PAD
            .decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
            .unwrap();
        assert_eq!(
            thumbprint(&x.try_into().unwrap()),
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"
        );
    }
}
