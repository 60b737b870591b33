use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Duration;
use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, EncodePrivateKey, EncodePublicKey, KeypairBytes};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use super::{Access, start};

/// The server's own key, as a thief or a test would have it.
pub fn stolen(access: &Access) -> (String, SigningKey) {
    let file = std::fs::read_dir(&access.keys)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let kid = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let pem = std::fs::read_to_string(file).unwrap();
    (kid, SigningKey::from_pkcs8_pem(&pem).unwrap())
}

pub fn ed(key: &SigningKey) -> EncodingKey {
    let bytes = KeypairBytes {
        secret_key: key.to_bytes(),
        public_key: None,
    };
    EncodingKey::from_ed_der(bytes.to_pkcs8_der().unwrap().as_bytes())
}

pub fn header(algorithm: Algorithm, kid: &str) -> Header {
    let mut header = Header::new(algorithm);
    header.kid = Some(kid.into());
    header.typ = Some("at+jwt".into());
    header
}

pub fn claims() -> Value {
    let now = start().timestamp();
    json!({
        "iss": "settlenet", "aud": "settlenet", "sub": "US-000000000001",
        "role": "broker_admin", "broker_id": 1, "scopes": ["team:read"],
        "iat": now, "exp": now + 900, "jti": "x",
    })
}

fn changed(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn raw(header: &Value, claims: &Value, signature: &[u8]) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!(
        "{}.{}.{}",
        part(header),
        part(claims),
        URL_SAFE_NO_PAD.encode(signature)
    )
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a list of cases")]
async fn only_our_own_tokens_are_taken() {
    let access = Access::new().await;
    let (kid, key) = stolen(&access);
    let other = SigningKey::from_bytes(&[7; 32]);
    let now = start().timestamp();
    let good = header(Algorithm::EdDSA, &kid);
    let sign = |claims: &Value| encode(&good, claims, &ed(&key)).unwrap();
    let public = key.verifying_key().to_bytes();
    let public_pem = key
        .verifying_key()
        .to_public_key_pem(LineEnding::LF)
        .unwrap();
    let hmac = |secret: &[u8]| {
        let header = header(Algorithm::HS256, &kid);
        encode(
            &header,
            &claims(),
            &EncodingKey::from_secret(secret).unwrap(),
        )
        .unwrap()
    };
    let valid = sign(&claims());
    let status = async |token: &str| {
        let answer = access.get("/v1/team/users", Some(token)).await;
        (answer.status, answer.code().to_owned())
    };
    assert_eq!(status(&valid).await.0, 200);

    let (head, rest) = valid.split_once('.').unwrap();
    let (_, signature) = rest.split_once('.').unwrap();
    let forged_claims = URL_SAFE_NO_PAD.encode(changed("broker_id", json!(2)).to_string());
    let mut no_type = good.clone();
    no_type.typ = Some("JWT".into());
    let mut critical = good.clone();
    critical.crit = Some(vec!["b64".into()]);
    let mut no_kid = good.clone();
    no_kid.kid = None;
    let mut own_key = header(Algorithm::EdDSA, "mine");
    own_key.jwk = None;
    let none = json!({"alg": "none", "kid": kid, "typ": "at+jwt"});
    let without = |name: &str| {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(name);
        claims
    };
    let cases = [
        (
            "other claims under the signature",
            format!("{head}.{forged_claims}.{signature}"),
        ),
        (
            "another key's signature",
            encode(&good, &claims(), &ed(&other)).unwrap(),
        ),
        (
            "unknown kid",
            encode(&own_key, &claims(), &ed(&other)).unwrap(),
        ),
        ("no kid", encode(&no_kid, &claims(), &ed(&key)).unwrap()),
        ("none", raw(&none, &claims(), b"")),
        (
            "None",
            raw(&json!({"alg": "None", "kid": kid}), &claims(), b""),
        ),
        (
            "no signature",
            format!("{head}.{}.", rest.split('.').next().unwrap()),
        ),
        ("HS256 with the public key", hmac(&public)),
        (
            "HS256 with the public key's PEM",
            hmac(public_pem.as_bytes()),
        ),
        (
            "HS256 with the public key in base64",
            hmac(URL_SAFE_NO_PAD.encode(public).as_bytes()),
        ),
        (
            "another type",
            encode(&no_type, &claims(), &ed(&key)).unwrap(),
        ),
        (
            "what must be understood",
            encode(&critical, &claims(), &ed(&key)).unwrap(),
        ),
        ("wrong audience", sign(&changed("aud", json!("other")))),
        ("wrong issuer", sign(&changed("iss", json!("other")))),
        ("no audience", sign(&without("aud"))),
        ("no issuer", sign(&without("iss"))),
        ("no subject", sign(&without("sub"))),
        ("no expiry", sign(&without("exp"))),
        ("no issue time", sign(&without("iat"))),
        ("no role", sign(&without("role"))),
        ("lives too long", sign(&changed("exp", json!(now + 901)))),
        (
            "ends before it begins",
            sign(&changed("exp", json!(now - 901))),
        ),
        ("not yet", sign(&changed("nbf", json!(now + 600)))),
        ("unknown role", sign(&changed("role", json!("root")))),
        (
            "a broker's role without a broker",
            sign(&changed("broker_id", Value::Null)),
        ),
        (
            "the platform's role with a broker",
            sign(&changed("role", json!("platform_admin"))),
        ),
        (
            "an agent without a limit",
            sign(&changed("role", json!("agent"))),
        ),
        ("garbage", "garbage".into()),
        ("dots", "..".into()),
        ("empty", String::new()),
        ("long", "x".repeat(20_000)),
    ];
    for (what, token) in cases {
        assert_eq!(
            status(&token).await,
            (401, "token_invalid".into()),
            "{what}"
        );
    }

    let expired = {
        let mut claims = changed("iat", json!(now - 1000));
        claims["exp"] = json!(now - 100);
        sign(&claims)
    };
    assert_eq!(status(&expired).await, (401, "token_expired".into()));
    access.clock.advance(Duration::seconds(900 + 29));
    assert_eq!(status(&valid).await.0, 200, "within the leeway");
    access.clock.advance(Duration::seconds(1));
    assert_eq!(status(&valid).await, (401, "token_expired".into()));
}

#[tokio::test]
async fn how_a_token_is_presented() {
    let access = Access::new().await;
    let answer = access.get("/v1/team/users", None).await;
    assert_eq!((answer.status, answer.code()), (401, "token_missing"));
    assert_eq!(
        answer.headers["www-authenticate"],
        "Bearer realm=\"settlenet\""
    );
    let (kid, key) = stolen(&access);
    let token = encode(&header(Algorithm::EdDSA, &kid), &claims(), &ed(&key)).unwrap();
    let send = async |values: &[String]| {
        let mut request = axum::http::Request::get("/v1/team/users");
        for value in values {
            request = request.header("authorization", value);
        }
        let answer = access
            .send(request.body(axum::body::Body::empty()).unwrap())
            .await;
        (
            answer.status,
            answer.headers.get("www-authenticate").cloned(),
        )
    };
    assert_eq!(send(&[format!("bearer {token}")]).await.0, 200);
    for values in [
        vec![token.clone()],
        vec![format!("Basic {token}")],
        vec![format!("Bearer {token}"), format!("Bearer {token}")],
    ] {
        let (status, challenge) = send(&values).await;
        assert_eq!(status, 401);
        let challenge = challenge.unwrap();
        assert!(
            challenge.to_str().unwrap().contains("invalid_token"),
            "{challenge:?}"
        );
    }
}
