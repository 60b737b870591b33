use axum::Router;
use axum::routing::get;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::Duration;
use ed25519_dalek::SigningKey;
use jsonwebtoken::{Algorithm, encode};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use settlenet::domain::access::Role;
use settlenet::http::HttpConfig;
use settlenet::runtime::Entropy;
use settlenet::services::auth::{AuthConfig, AuthService, OutsideConfig, keys as signing};

use super::tokens::{claims, ed, header};
use super::{Access, PASSWORD, folder, start};

async fn another_process(access: &Access, keys: &std::path::Path) -> AuthService {
    let config = AuthConfig {
        signing_keys: keys.to_owned(),
        ..AuthConfig::default()
    };
    let (pool, clock) = (access.pool.clone(), access.clock.clone());
    AuthService::open(config, pool, clock, Entropy::seeded(8))
        .await
        .unwrap()
}

async fn token_of(auth: &AuthService) -> String {
    let address = "192.0.2.1".parse().unwrap();
    let granted = auth
        .log_in("anna", PASSWORD.into(), None, address)
        .await
        .unwrap();
    granted.access_token.expose_secret().to_owned()
}

fn kid_of(token: &str) -> String {
    jsonwebtoken::decode_header(token).unwrap().kid.unwrap()
}

#[tokio::test]
async fn keys_are_rotated_without_a_token_being_lost() {
    let access = Access::new().await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let before = token_of(&access.state.auth).await;
    let old = kid_of(&before);

    // A further key beside the old one: published at once, signing after its lead.
    let new = signing::generate(&access.keys).unwrap();
    let restarted = another_process(&access, &access.keys).await;
    assert_eq!(kid_of(&token_of(&restarted).await), old);
    let published = |auth: &AuthService| -> Vec<String> {
        auth.public_keys().into_iter().map(|key| key.kid).collect()
    };
    assert!(published(&restarted).contains(&new));
    access.clock.advance(Duration::minutes(5));
    let after = token_of(&restarted).await;
    assert_eq!(kid_of(&after), new);
    // The process that hasn't restarted knows it when it meets it.
    assert!(!published(&access.state.auth).contains(&new));
    assert!(access.state.auth.authenticate(&after).await.is_ok());
    assert!(restarted.authenticate(&before).await.is_ok());

    assert!(restarted.retire_key(&old, false).await.unwrap());
    assert!(restarted.authenticate(&before).await.is_ok());
    access.clock.advance(Duration::minutes(16));
    assert!(!published(&restarted).contains(&old));
    // The one with the old key alone can't sign any more.
    access.state.auth.reload_keys().await.unwrap();
    let address = "192.0.2.1".parse().unwrap();
    assert!(
        access
            .state
            .auth
            .log_in("anna", PASSWORD.into(), None, address)
            .await
            .is_err()
    );
    assert!(!restarted.retire_key("unknown", false).await.unwrap());
}

#[tokio::test]
async fn a_leaked_key_ends_at_once() {
    let access = Access::new().await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let other = folder();
    let kid = signing::generate(&other).unwrap();
    let second = another_process(&access, &other).await;
    // Its only key isn't due yet, which is better than none.
    let token = token_of(&second).await;
    assert_eq!(kid_of(&token), kid);
    assert!(access.state.auth.authenticate(&token).await.is_ok());
    access.state.auth.retire_key(&kid, true).await.unwrap();
    assert!(access.state.auth.authenticate(&token).await.is_err());
    second.reload_keys().await.unwrap();
    assert!(second.authenticate(&token).await.is_err());
}

#[tokio::test]
async fn the_key_set_is_published_and_verifies() {
    let access = Access::new().await;
    let answer = access.get("/.well-known/jwks.json", None).await;
    assert_eq!(answer.status, 200);
    let key = &answer.body["keys"][0];
    for (name, value) in [
        ("kty", "OKP"),
        ("crv", "Ed25519"),
        ("alg", "EdDSA"),
        ("use", "sig"),
    ] {
        assert_eq!(key[name], value);
    }
    assert!(key.get("d").is_none());
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let token = access.token("anna").await;
    let jwk = serde_json::from_value(key.clone()).unwrap();
    let mut validation = jsonwebtoken::Validation::new(Algorithm::EdDSA);
    validation.validate_exp = false;
    validation.set_audience(&["settlenet"]);
    let decoding = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
    let claims = jsonwebtoken::decode::<Value>(&token, &decoding, &validation)
        .unwrap()
        .claims;
    let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(
        (claims["iat"].as_i64().unwrap(), life),
        (start().timestamp(), 900)
    );
    assert!(claims["jti"].is_string());
    // The same key may come as one file.
    let file = access.keys.join(format!("{}.pem", kid_of(&token)));
    let one = another_process(&access, &file).await;
    assert!(one.authenticate(&token).await.is_ok());
}

fn key_set(kid: &str, key: &SigningKey) -> Value {
    let x = URL_SAFE_NO_PAD.encode(key.verifying_key().to_bytes());
    json!({"keys": [
        {"kty": "EC", "crv": "P-999", "x": "AA", "y": "AA", "kid": "strange"},
        {"kty": "oct", "k": "c2VjcmV0", "kid": "shared", "alg": "HS256"},
        {"kty": "OKP", "crv": "Ed25519", "kid": kid, "x": x},
    ]})
}

async fn with_outside(jwks: String) -> Access {
    let outside = OutsideConfig {
        issuer: "https://login.example".into(),
        jwks,
        roles: vec![Role::BrokerAdmin, Role::BrokerViewer],
        max_ttl: Duration::minutes(60),
        refresh: Duration::minutes(10),
    };
    Access::with(
        |auth| auth.outside = Some(outside),
        HttpConfig::default(),
        Vec::new(),
    )
    .await
}

type Change<'a> = &'a dyn Fn(&mut Value);

fn outside_token(kid: &str, key: &SigningKey, change: impl Fn(&mut Value)) -> String {
    let mut claims = claims();
    claims["iss"] = json!("https://login.example");
    claims["sub"] = json!("anna");
    claims["exp"] = json!(start().timestamp() + 3600);
    change(&mut claims);
    let mut header = header(Algorithm::EdDSA, kid);
    header.typ = None;
    encode(&header, &claims, &ed(key)).unwrap()
}

#[tokio::test]
async fn an_outside_issuers_tokens_are_taken_within_bounds() {
    let key = SigningKey::from_bytes(&[9; 32]);
    let file = folder().join("jwks.json");
    std::fs::write(&file, key_set("k1", &key).to_string()).unwrap();
    let access = with_outside(file.to_string_lossy().into_owned()).await;
    let principal = access
        .state
        .auth
        .authenticate(&outside_token("k1", &key, |_| {}))
        .await
        .unwrap();
    assert_eq!(
        (principal.sub(), principal.broker_id()),
        ("ext:anna", Some(1))
    );
    let now = start().timestamp();
    let cases: [(&str, Change); 6] = [
        ("a role beyond its own", &|claims| {
            claims["role"] = json!("platform_admin");
            claims["broker_id"] = Value::Null;
        }),
        ("our issuer", &|claims| claims["iss"] = json!("settlenet")),
        ("another audience", &|claims| claims["aud"] = json!("other")),
        ("too long", &|claims| claims["exp"] = json!(now + 3601)),
        ("a subject that can't be stored", &|claims| {
            claims["sub"] = json!("x".repeat(80));
        }),
        ("no scopes", &|claims| {
            claims.as_object_mut().unwrap().remove("scopes");
        }),
    ];
    for (what, change) in cases {
        let token = outside_token("k1", &key, change);
        assert!(
            access.state.auth.authenticate(&token).await.is_err(),
            "{what}"
        );
    }
    let secret = jsonwebtoken::EncodingKey::from_secret(b"secret").unwrap();
    let shared = encode(&header(Algorithm::HS256, "shared"), &claims(), &secret).unwrap();
    assert!(access.state.auth.authenticate(&shared).await.is_err());

    // The issuer rotates: an unknown key is asked for, but not with every request.
    let next = SigningKey::from_bytes(&[10; 32]);
    std::fs::write(&file, key_set("k2", &next).to_string()).unwrap();
    let token = outside_token("k2", &next, |_| {});
    assert!(access.state.auth.authenticate(&token).await.is_err());
    access.clock.advance(Duration::seconds(30));
    assert!(access.state.auth.authenticate(&token).await.is_ok());
    // A key set that can't be read leaves the last one in use.
    std::fs::write(&file, "{").unwrap();
    access.clock.advance(Duration::minutes(11));
    assert!(access.state.auth.authenticate(&token).await.is_ok());
}

#[tokio::test]
async fn an_outside_key_set_is_fetched() {
    let key = SigningKey::from_bytes(&[9; 32]);
    let set = key_set("k1", &key).to_string();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/jwks", listener.local_addr().unwrap());
    let site = Router::new().route("/jwks", get(move || async move { set }));
    let server = tokio::spawn(async move { axum::serve(listener, site).await });
    let access = with_outside(url).await;
    let token = outside_token("k1", &key, |_| {});
    assert!(access.state.auth.authenticate(&token).await.is_ok());
    server.abort();
    access.clock.advance(Duration::minutes(11));
    assert!(
        access.state.auth.authenticate(&token).await.is_ok(),
        "the last one stays in use"
    );
}
