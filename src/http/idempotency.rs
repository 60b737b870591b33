//! The `Idempotency-Key` header: a structured-field string (RFC 8941), or the same bare.

use axum::extract::{FromRequestParts, OptionalFromRequestParts};
use axum::http::{HeaderMap, request::Parts};
use serde::Serialize;

use super::problem::{Code, Problem};
use crate::domain::canonical::Hash;
use crate::domain::idempotency::{KEY_MAX, is_key};
use crate::services::Intention;

const HEADER: &str = "idempotency-key";

/// The key of a request that makes or moves something: a 400 where it is missing. As an
/// `Option` it may be missing, and still has to be one.
#[derive(Clone, Debug)]
pub struct IdempotencyKey {
    key: String,
    method: String,
    path: String,
}

impl IdempotencyKey {
    /// The key itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.key
    }

    /// What `sub` intends: its key, and a fingerprint over method, path and body.
    /// A body leaves out what must not be guessed from a digest (`skip_serializing`).
    #[must_use]
    pub fn intention<T: Serialize>(&self, sub: &str, body: &T) -> Intention {
        #[derive(Serialize)]
        struct Fingerprint<'a, T> {
            method: &'a str,
            path: &'a str,
            body: &'a T,
        }
        let fingerprint = Hash::of_json(&Fingerprint {
            method: &self.method,
            path: &self.path,
            body,
        });
        Intention {
            client: sub.to_owned(),
            key: self.key.clone(),
            fingerprint,
        }
    }
}

fn from_parts(parts: &Parts) -> Result<Option<IdempotencyKey>, Problem> {
    let key = read(&parts.headers)?;
    Ok(key.map(|key| IdempotencyKey {
        key,
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
    }))
}

impl<S: Send + Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        from_parts(parts)?.ok_or_else(|| {
            Problem::new(Code::KeyMissing)
                .detail("Send an Idempotency-Key: one per intended operation, kept on retries.")
        })
    }
}

impl<S: Send + Sync> OptionalFromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Problem> {
        from_parts(parts)
    }
}

fn read(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let mut values = headers.get_all(HEADER).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let invalid = |detail: String| Problem::new(Code::KeyInvalid).detail(detail);
    if values.next().is_some() {
        return Err(invalid("There is more than one.".into()));
    }
    let text = value
        .to_str()
        .map_err(|_| invalid("Printable ASCII only.".into()))?;
    let text = text.trim_matches([' ', '\t']);
    let key = if text.starts_with('"') {
        quoted(text)
    } else {
        bare(text)
    };
    let key = key.ok_or_else(|| {
        invalid("A string in quotes, or letters, digits and -._~:/+= without.".into())
    })?;
    if !is_key(&key) {
        return Err(invalid(format!("1 to {KEY_MAX} characters.")));
    }
    Ok(Some(key))
}

/// RFC 8941, 4.2.5, less the space: visible ASCII, with `\` before `"` and `\` only, and nothing
/// after it. A database takes texts for equal that differ by spaces at their end, so two such
/// keys would be one.
fn quoted(text: &str) -> Option<String> {
    let mut rest = text.strip_prefix('"')?.chars();
    let mut key = String::new();
    loop {
        match rest.next()? {
            '"' => return rest.next().is_none().then_some(key),
            '\\' => key.push(rest.next().filter(|next| matches!(next, '"' | '\\'))?),
            next @ '!'..='~' => key.push(next),
            _ => return None,
        }
    }
}

fn bare(text: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/+=".contains(&byte);
    text.bytes().all(plain).then(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn key(value: &str) -> Result<Option<String>, Code> {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        read(&headers).map_err(|problem| problem.code())
    }

    #[test]
    fn quoted_and_bare_are_the_same_key() {
        let same = Ok(Some("8e03978e-40d5".to_owned()));
        assert_eq!(key("\"8e03978e-40d5\""), same);
        assert_eq!(key("8e03978e-40d5"), same);
        assert_eq!(key("  8e03978e-40d5 "), same);
        assert_eq!(key(r#""a\"b\"\\c""#), Ok(Some(r#"a"b"\c"#.to_owned())));
        assert_eq!(read(&HeaderMap::new()).unwrap(), None);
    }

    #[test]
    fn others_are_refused() {
        let long = "x".repeat(KEY_MAX + 1);
        let cases = [
            "",
            "\"\"",
            "\"",
            "\"a",
            "\"a\"b",
            "\"a\";p=1",
            r#""\a""#,
            "a b",
            "a,b",
            "é",
            "\"é\"",
            "\"a \"",
            "\" a\"",
            "\"a b\"",
            &long,
        ];
        for value in cases {
            assert_eq!(key(value), Err(Code::KeyInvalid), "{value}");
        }
        assert!(key(&"x".repeat(KEY_MAX)).is_ok());
        let mut headers = HeaderMap::new();
        headers.append(HEADER, HeaderValue::from_static("a"));
        headers.append(HEADER, HeaderValue::from_static("a"));
        assert!(read(&headers).is_err());
    }

    #[test]
    fn the_fingerprint_covers_method_path_and_body() {
        let of = |method: &str, path: &str, body: &str| {
            let key = IdempotencyKey {
                key: "k".into(),
                method: method.into(),
                path: path.into(),
            };
            key.intention("US-1", &body).fingerprint
        };
        let one = of("POST", "/a", "x");
        assert_eq!(one, of("POST", "/a", "x"));
        for other in [
            of("PUT", "/a", "x"),
            of("POST", "/b", "x"),
            of("POST", "/a", "y"),
        ] {
            assert_ne!(one, other);
        }
    }
}
