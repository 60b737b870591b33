//! QP's word that somebody has paid. Whoever knows the address can send one, so it counts only with
//! a signature that the provider alone can make, over a time that has not long passed: `HMAC-SHA256`
//! of `timestamp.body` under a shared secret. The time is that of the delivery, so a payment may be
//! told of late, and of one twice.

use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use crate::domain::money::CurrencyCode;

/// When it was sent, in whole seconds since 1970.
pub const TIMESTAMP_HEADER: &str = "x-qp-timestamp";
/// `v1=` and the signature in hexadecimal.
pub const SIGNATURE_HEADER: &str = "x-qp-signature";
const VERSION: &str = "v1=";

/// What was paid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Callback {
    /// The same of each delivery of one event.
    pub event_id: String,
    pub qr_ref: String,
    /// What we had called it: the intent.
    pub reference: String,
    /// The provider's name for the payment: two payments of one code have two.
    pub payment_id: String,
    /// In major units.
    pub amount: String,
    pub currency: CurrencyCode,
    pub paid_at: DateTime<Utc>,
}

/// Why a callback counts for nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallbackError {
    #[error("{TIMESTAMP_HEADER} is whole seconds since 1970")]
    Timestamp,
    #[error("{SIGNATURE_HEADER} is not the signature of this body at this time")]
    Signature,
    #[error("{TIMESTAMP_HEADER} is {apart_s} seconds off, and at most {allowed_s} are allowed")]
    Time { apart_s: i64, allowed_s: i64 },
    /// `at` is the field that is wrong, as far as one is.
    #[error("the body is no callback: {source}")]
    Body {
        at: String,
        source: serde_json::Error,
    },
}

/// Reads a callback that was signed with one of the secrets.
///
/// # Errors
/// See [`CallbackError`].
pub fn verify(
    secrets: &[SecretString],
    timestamp: &str,
    signature: &str,
    body: &[u8],
    now: DateTime<Utc>,
    tolerance: TimeDelta,
) -> Result<Callback, CallbackError> {
    let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: Option<i64> = timestamp.parse().ok().filter(|_| digits);
    let at = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let at = at.ok_or(CallbackError::Timestamp)?;
    let given = signature.strip_prefix(VERSION).map(hex::decode);
    let Some(Ok(given)) = given else {
        return Err(CallbackError::Signature);
    };
    // `verify_slice` takes the same time whatever differs.
    let is_of = |secret| mac(secret, timestamp, body).verify_slice(&given).is_ok();
    if !secrets.iter().any(is_of) {
        return Err(CallbackError::Signature);
    }
    let apart = (now - at).abs();
    if apart > tolerance {
        return Err(CallbackError::Time {
            apart_s: apart.num_seconds(),
            allowed_s: tolerance.num_seconds(),
        });
    }
    read(body)
}

fn read(body: &[u8]) -> Result<Callback, CallbackError> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let read =
        serde_path_to_error::deserialize(&mut json).map_err(|error| CallbackError::Body {
            at: error.path().to_string(),
            source: error.into_inner(),
        })?;
    let at = String::new();
    json.end()
        .map_err(|source| CallbackError::Body { at, source })?;
    Ok(read)
}

/// The signature that a provider sends along.
#[must_use]
pub fn sign(secret: &SecretString, timestamp: &str, body: &[u8]) -> String {
    let signature = mac(secret, timestamp, body).finalize().into_bytes();
    format!("{VERSION}{}", hex::encode(signature))
}

fn mac(secret: &SecretString, timestamp: &str, body: &[u8]) -> Hmac<Sha256> {
    let key = secret.expose_secret().as_bytes();
    let mac = Hmac::<Sha256>::new_from_slice(key).expect("any length is a key");
    mac.chain_update(timestamp)
        .chain_update(b".")
        .chain_update(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"eventId":"e1","qrRef":"QR1","reference":"r","paymentId":"p1",
        "amount":"4.22","currency":"THB","paidAt":"2026-03-01T10:00:00Z","new":true}"#;
    const AT: &str = "1772359200";

    fn secret(text: &str) -> SecretString {
        SecretString::from(text)
    }

    fn now(apart_s: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_772_359_200 + apart_s, 0).unwrap()
    }

    fn checked(
        timestamp: &str,
        signature: &str,
        body: &[u8],
        apart_s: i64,
    ) -> Result<Callback, CallbackError> {
        let secrets = [secret("new"), secret("old")];
        let tolerance = TimeDelta::seconds(300);
        verify(
            &secrets,
            timestamp,
            signature,
            body,
            now(apart_s),
            tolerance,
        )
    }

    /// Computed by another program: `printf '%s' 1772359200.{} | openssl dgst -sha256 -hmac key`.
    #[test]
    fn others_make_the_same_signature() {
        let signature = sign(&secret("key"), AT, b"{}");
        assert_eq!(
            signature,
            "v1=c28e0c36309aa9f4b27eee1f325826991e5e111bdb577ceaed76c950bd1d07cd"
        );
    }

    #[test]
    fn what_the_provider_signed_is_read_with_either_secret() {
        for key in ["new", "old"] {
            let signature = sign(&secret(key), AT, BODY);
            for apart_s in [-300, 0, 300] {
                let callback = checked(AT, &signature, BODY, apart_s).unwrap();
                assert_eq!(
                    (callback.payment_id.as_str(), callback.amount.as_str()),
                    ("p1", "4.22")
                );
            }
        }
    }

    #[test]
    fn what_anybody_else_says_is_not() {
        let signature = sign(&secret("new"), AT, BODY);
        let mut other_body = BODY.to_vec();
        other_body[12] = b'2';
        let foreign = sign(&secret("foreign"), AT, BODY);
        let upper = signature.to_uppercase();
        for (timestamp, signature, body) in [
            (AT, foreign.as_str(), BODY),
            (AT, signature.as_str(), other_body.as_slice()),
            ("1772359201", signature.as_str(), BODY),
            (AT, &signature[3..], BODY),
            (AT, &signature[..65], BODY),
            (AT, upper.as_str(), BODY),
            (AT, "v1=", BODY),
            (AT, "", BODY),
        ] {
            let refused = checked(timestamp, signature, body, 0);
            assert!(
                matches!(refused, Err(CallbackError::Signature)),
                "{signature}"
            );
        }
    }

    #[test]
    fn an_old_one_can_not_be_played_again() {
        let signature = sign(&secret("new"), AT, BODY);
        for apart_s in [-301, 301, 1_000_000] {
            let refused = checked(AT, &signature, BODY, apart_s);
            assert!(
                matches!(refused, Err(CallbackError::Time { .. })),
                "{apart_s}"
            );
        }
        for timestamp in [
            "",
            "+1772359200",
            "-1",
            "1772359200.0",
            "99999999999999999999",
            "now",
        ] {
            let refused = checked(timestamp, &signature, BODY, 0);
            assert!(
                matches!(refused, Err(CallbackError::Timestamp)),
                "{timestamp}"
            );
        }
    }

    #[test]
    fn a_signed_body_that_is_no_callback_is_none() {
        for body in [&b"{}"[..], b"", b"[]", br#"{"eventId":1}"#] {
            let refused = checked(AT, &sign(&secret("new"), AT, body), body, 0);
            assert!(matches!(refused, Err(CallbackError::Body { .. })));
        }
    }
}
