//! `/v1/auth`: logging in, refreshing, logging out; and the keys that verify our tokens.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::guard::Public;
use super::json::StrictJson;
use super::problem::{Code, FieldError, Problem};
use super::rate::RateLimited;
use super::routes::Routes;
use super::state::{AppState, ClientAddr};
use crate::domain::access::{Role, Scope};
use crate::domain::ids::BrokerId;
use crate::domain::words::words;
use crate::route;
use crate::services::auth::keys::PublicJwk;
use crate::services::auth::{AuthError, Granted};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(token))
        .with(route!(refresh))
        .with(route!(revoke))
        .with(route!(jwks))
}

words!(
    /// How a token is asked for.
    GrantType {
        Password = "password",
        ClientCredentials = "client_credentials",
    }
);

/// With `password`: `login` and `password`. With `client_credentials`: `client_id` and
/// `client_secret`.
#[derive(Deserialize, utoipa::ToSchema)]
struct TokenRequest {
    /// `password`, `client_credentials`
    #[schema(value_type = String)]
    grant_type: GrantType,
    login: Option<String>,
    #[schema(value_type = Option<String>, format = Password)]
    password: Option<SecretString>,
    client_id: Option<String>,
    #[schema(value_type = Option<String>, format = Password)]
    client_secret: Option<SecretString>,
    /// A part of the caller's scopes; all of them where it isn't there.
    #[schema(value_type = Option<Vec<String>>, example = json!(["network:read"]))]
    scopes: Option<BTreeSet<Scope>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct TokenResponse {
    /// A JWT (EdDSA), for `Authorization: Bearer`.
    access_token: String,
    /// `Bearer`
    token_type: &'static str,
    /// Seconds that the access token lives; at most 900.
    expires_in: i64,
    /// For `/v1/auth/refresh`, once; programs have none and log in again.
    #[serde(skip_serializing_if = "Option::is_none")]
    refresh_token: Option<String>,
    /// `US-…` or `CL-…`
    sub: String,
    #[schema(value_type = String, example = "broker_admin")]
    role: Role,
    /// None for the platform's own.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    #[schema(value_type = Vec<String>)]
    scopes: BTreeSet<Scope>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct RefreshRequest {
    #[schema(value_type = String, format = Password)]
    refresh_token: SecretString,
}

#[derive(Serialize, utoipa::ToSchema)]
struct KeySet {
    keys: Vec<PublicJwk>,
}

/// Log in.
///
/// Wrong, unknown and disabled are one answer. Too many attempts for a login or from an address
/// are a 429 with Retry-After.
#[utoipa::path(post, path = "/v1/auth/token", tag = "auth", operation_id = "auth_token",
    request_body = TokenRequest, responses((status = 200, body = TokenResponse)))]
async fn token(
    _: Public,
    _: RateLimited,
    State(state): State<AppState>,
    ClientAddr(address): ClientAddr,
    StrictJson(body): StrictJson<TokenRequest>,
) -> Result<Response, Problem> {
    let auth = state.auth.clone();
    let scopes = body.scopes;
    let granted = match body.grant_type {
        GrantType::Password => {
            absent("client_id", body.client_id.is_some())?;
            absent("client_secret", body.client_secret.is_some())?;
            let login = present("login", body.login)?;
            let password = present("password", body.password)?;
            let work = async move {
                auth.log_in(&login, password, scopes.as_ref(), address)
                    .await
            };
            state.lifecycle.detached(work).await??
        }
        GrantType::ClientCredentials => {
            absent("login", body.login.is_some())?;
            absent("password", body.password.is_some())?;
            let client_id = present("client_id", body.client_id)?.parse().ok();
            let secret = present("client_secret", body.client_secret)?;
            let work = async move {
                auth.log_in_client(client_id, &secret, scopes.as_ref(), address)
                    .await
            };
            state.lifecycle.detached(work).await??
        }
    };
    Ok(answer(granted))
}

/// Exchange a refresh token.
///
/// It is used up by that. One that is used again has leaked, so its whole log-in ends.
#[utoipa::path(post, path = "/v1/auth/refresh", tag = "auth", operation_id = "auth_refresh",
    request_body = RefreshRequest, responses((status = 200, body = TokenResponse)))]
async fn refresh(
    _: Public,
    _: RateLimited,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<RefreshRequest>,
) -> Result<Response, Problem> {
    let auth = state.auth.clone();
    let work = async move { auth.refresh(&body.refresh_token).await };
    Ok(answer(state.lifecycle.detached(work).await??))
}

/// Log out.
///
/// The log-in that the refresh token belongs to ends; unknown tokens are as good as revoked.
#[utoipa::path(post, path = "/v1/auth/revoke", tag = "auth", operation_id = "auth_revoke",
    request_body = RefreshRequest, responses((status = 204)))]
async fn revoke(
    _: Public,
    _: RateLimited,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<RefreshRequest>,
) -> Result<StatusCode, Problem> {
    let token = body.refresh_token;
    // Taking it silently would let the caller believe that it is revoked.
    if token.expose_secret().split('.').count() == 3 {
        let detail = "This is an access token, which ends by itself; send the refresh token.";
        return Err(Problem::invalid("refresh_token", detail));
    }
    let auth = state.auth.clone();
    state
        .lifecycle
        .detached(async move { auth.revoke(&token).await })
        .await??;
    Ok(StatusCode::NO_CONTENT)
}

/// The public keys that verify our access tokens (RFC 7517).
#[utoipa::path(get, path = "/.well-known/jwks.json", tag = "auth", operation_id = "jwks",
    responses((status = 200, body = KeySet)))]
async fn jwks(_: Public, State(state): State<AppState>) -> Response {
    let keys = state.auth.public_keys();
    (
        [(CACHE_CONTROL, "public, max-age=60")],
        Json(KeySet { keys }),
    )
        .into_response()
}

fn present<T>(name: &str, value: Option<T>) -> Result<T, Problem> {
    value.ok_or_else(|| {
        let detail = "The field is needed with this grant_type.";
        Problem::fields(vec![FieldError::new(name, "missing", detail)])
    })
}

fn absent(name: &str, there: bool) -> Result<(), Problem> {
    if there {
        return Err(Problem::invalid(
            name,
            "The field has no place with this grant_type.",
        ));
    }
    Ok(())
}

fn answer(granted: Granted) -> Response {
    let body = TokenResponse {
        access_token: granted.access_token.expose_secret().to_owned(),
        token_type: "Bearer",
        expires_in: granted.expires_in.num_seconds(),
        refresh_token: granted
            .refresh_token
            .map(|token| token.expose_secret().to_owned()),
        sub: granted.sub,
        role: granted.role,
        broker_id: granted.broker_id,
        scopes: granted.scopes,
    };
    ([(CACHE_CONTROL, "no-store")], Json(body)).into_response()
}

impl From<AuthError> for Problem {
    fn from(error: AuthError) -> Self {
        match error {
            AuthError::Credentials => Self::new(Code::CredentialsInvalid),
            AuthError::Throttled { wait } => {
                let seconds = u64::try_from(wait.num_seconds()).unwrap_or(0);
                Self::new(Code::TooManyAttempts).retry_after(seconds + 1)
            }
            AuthError::Scope(_) => Self::invalid("scopes", error.to_string()),
            AuthError::Busy => Self::new(Code::Unavailable).retry_after(1),
            AuthError::Store(error) => error.into(),
            AuthError::NoSigningKey
            | AuthError::Token(_)
            | AuthError::Randomness
            | AuthError::Hash => Self::internal(&error),
        }
    }
}
