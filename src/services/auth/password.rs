//! Passwords: argon2id, a bounded number at a time.

use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Semaphore;

use super::secret::random_bytes;

/// Why a password was neither hashed nor compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HashError {
    #[error("too many passwords at the same time")]
    Busy,
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error("hashing failed")]
    Failed,
}

/// Hashes and compares passwords (argon2id v19, 19 MiB, 2 passes, 1 lane: OWASP's minimum). A
/// hash takes a core and memory, so their number is bounded, and so is the wait for a turn.
#[derive(Clone, Debug)]
pub struct Passwords {
    turns: Arc<Semaphore>,
    wait: Duration,
    /// A hash that no password has: compared with where the user doesn't exist, so that the
    /// answer takes as long.
    nobody: Arc<str>,
}

impl Passwords {
    /// # Errors
    /// No randomness for the hash that nobody has.
    pub fn new(parallel: u32, wait: Duration) -> Result<Self, HashError> {
        let password = random_bytes::<32>().map_err(|_| HashError::Randomness)?;
        Ok(Self {
            turns: Arc::new(Semaphore::new(parallel as usize)),
            wait,
            nobody: hash_now(&password)?.into(),
        })
    }

    /// The hash to keep, as a PHC string.
    ///
    /// # Errors
    /// [`HashError::Busy`] where no turn comes within the wait.
    pub async fn hash(&self, password: SecretString) -> Result<String, HashError> {
        self.in_turn(move || hash_now(password.expose_secret().as_bytes()))
            .await?
    }

    /// Whether the password is the one of `hash`; never where there is none, after the same work.
    ///
    /// # Errors
    /// [`HashError::Busy`] where no turn comes within the wait.
    pub async fn verify(
        &self,
        password: SecretString,
        hash: Option<String>,
    ) -> Result<bool, HashError> {
        let known = hash.is_some();
        let hash = hash.map_or_else(|| self.nobody.clone(), Into::into);
        let same = self
            .in_turn(move || {
                PasswordHash::new(&hash).is_ok_and(|parsed| {
                    Argon2::default()
                        .verify_password(password.expose_secret().as_bytes(), &parsed)
                        .is_ok()
                })
            })
            .await?;
        Ok(known && same)
    }

    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, HashError> {
        let turn = tokio::time::timeout(self.wait, self.turns.clone().acquire_owned())
            .await
            .map_err(|_| HashError::Busy)?
            .map_err(|_| HashError::Busy)?;
        // The turn goes with the work: a caller that gives up doesn't let a further one in.
        tokio::task::spawn_blocking(move || {
            let result = work();
            drop(turn);
            result
        })
        .await
        .map_err(|_| HashError::Failed)
    }
}

fn hash_now(password: &[u8]) -> Result<String, HashError> {
    let salt = random_bytes::<16>().map_err(|_| HashError::Randomness)?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| HashError::Failed)?;
    let hash = Argon2::default()
        .hash_password(password, &salt)
        .map_err(|_| HashError::Failed)?;
    Ok(hash.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn verifies_what_it_hashed_and_nothing_else() {
        let passwords = Passwords::new(1, Duration::from_secs(30)).unwrap();
        let hash = passwords.hash("correct horse".into()).await.unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
        let verify = async |password: &str, hash: Option<&str>| {
            passwords
                .verify(password.into(), hash.map(str::to_owned))
                .await
                .unwrap()
        };
        assert!(verify("correct horse", Some(&hash)).await);
        assert!(!verify("correct hors", Some(&hash)).await);
        assert!(!verify("correct horse", None).await);
        assert!(!verify("correct horse", Some("not a hash")).await);
    }

    #[tokio::test]
    async fn says_busy_instead_of_queueing_for_ever() {
        let passwords = Passwords::new(1, Duration::ZERO).unwrap();
        let turn = passwords.turns.clone().acquire_owned().await.unwrap();
        assert_eq!(passwords.hash("x".into()).await, Err(HashError::Busy));
        drop(turn);
        assert!(passwords.hash("x".into()).await.is_ok());
    }
}
