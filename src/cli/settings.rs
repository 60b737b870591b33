//! What the services are told of the configuration.

use std::path::PathBuf;

use chrono::Duration;

use crate::config::{Auth, Http, Seconds};
use crate::http::HttpConfig;
use crate::services::auth::{AuthConfig, OutsideConfig};

/// How tokens are made and checked.
pub fn auth(auth: &Auth) -> AuthConfig {
    AuthConfig {
        issuer: auth.issuer.clone(),
        audience: auth.audience.clone(),
        signing_keys: auth
            .signing_key_file
            .clone()
            .unwrap_or_else(|| PathBuf::from("keys")),
        access_ttl: span(auth.access_ttl_s),
        refresh_ttl: span(auth.refresh_ttl_s),
        login_ttl: span(auth.login_ttl_s),
        leeway: span(auth.leeway_s),
        key_lead: span(auth.key_lead_s),
        login_attempts: auth.login_attempts,
        address_attempts: auth.address_attempts,
        parallel_hashes: auth.parallel_hashes,
        hash_wait: auth.hash_wait_ms.duration(),
        outside: auth.outside.as_ref().map(|outside| OutsideConfig {
            issuer: outside.issuer.clone(),
            jwks: outside.jwks.expose().to_owned(),
            roles: outside.roles.clone(),
            max_ttl: span(outside.max_ttl_s),
            refresh: span(outside.refresh_s),
        }),
    }
}

/// The bounds of the HTTP server.
pub fn http(http: &Http) -> HttpConfig {
    HttpConfig {
        body_limit: http.body_limit_bytes,
        upload_limit: http.upload_limit_bytes,
        timeout: http.timeout_ms.duration(),
        idle_timeout: http.idle_timeout_ms.duration(),
        max_connections: http.max_connections,
        drain: http.shutdown_grace_ms.duration(),
        cors_origins: http.cors_origins.clone(),
        trusted_proxies: http.trusted_proxies,
        token_rate_per_minute: http.token_rate_per_minute,
        token_rate_burst: http.token_rate_burst,
        ready_wait: http.ready_wait_ms.duration(),
    }
}

/// The configuration's bounds keep every span far below what can be held.
fn span(seconds: Seconds) -> Duration {
    let seconds = i64::try_from(seconds.0).unwrap_or(i64::MAX);
    Duration::try_seconds(seconds).unwrap_or(Duration::MAX)
}
