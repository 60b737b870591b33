//! Secrets: always from the operating system, never from the replayable entropy of a test.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use rand::TryRng;
use rand::rngs::SysRng;
use secrecy::SecretString;

/// The operating system gave no randomness.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the operating system gives no randomness")]
pub struct NoRandomness;

/// # Errors
/// [`NoRandomness`].
pub fn random_bytes<const N: usize>() -> Result<[u8; N], NoRandomness> {
    let mut bytes = [0; N];
    SysRng
        .try_fill_bytes(&mut bytes)
        .map_err(|_| NoRandomness)?;
    Ok(bytes)
}

/// A token of 256 bits behind a prefix that says what it is, so that a scanner finds a leaked one.
///
/// # Errors
/// [`NoRandomness`].
pub fn random_token(prefix: &str) -> Result<SecretString, NoRandomness> {
    let bytes = random_bytes::<32>()?;
    Ok(format!("{prefix}{}", URL_SAFE_NO_PAD.encode(bytes)).into())
}

/// Digits of a code that a person reads out.
pub const CODE_DIGITS: usize = 8;

/// A code of [`CODE_DIGITS`] digits, for what a person reads out; only where tries are limited.
///
/// # Errors
/// [`NoRandomness`].
pub fn random_code() -> Result<SecretString, NoRandomness> {
    let bits = u64::from_le_bytes(random_bytes::<8>()?);
    Ok(format!("{:0CODE_DIGITS$}", bits % 10_u64.pow(8)).into())
}
