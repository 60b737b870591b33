use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{ConnectInfo, FromRequestParts};
use axum::http::HeaderMap;
use axum::http::request::Parts;

use super::health::ReadyCheck;
use super::rate::TokenRate;
use crate::app::App;
use crate::runtime::{Clock, Entropy, Lifecycle};
use crate::services::auth::AuthService;
use crate::services::team::TeamService;

/// Bounds of the HTTP server.
#[derive(Clone, Debug)]
pub struct HttpConfig {
    /// Largest body, in bytes; uploads have their own.
    pub body_limit: usize,
    /// Largest uploaded file, in bytes.
    pub upload_limit: usize,
    /// How long an answer may take to begin.
    pub timeout: Duration,
    /// How long a connection may sit there between two requests, or on half the head of one.
    pub idle_timeout: Duration,
    /// Connections at once.
    pub max_connections: usize,
    /// How long stopping waits for what is running.
    pub drain: Duration,
    /// Origins of browsers that may call; none by default.
    pub cors_origins: Vec<String>,
    /// Proxies of ours in front, each of which adds to `x-forwarded-for`: with 0 the header is
    /// ignored, since anybody can write it.
    pub trusted_proxies: usize,
    /// Calls of the token endpoints per minute and address, in the long run.
    pub token_rate_per_minute: u32,
    /// How many of them may come at once.
    pub token_rate_burst: u32,
    /// How long a readiness check may take.
    pub ready_wait: Duration,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            body_limit: 1024 * 1024,
            upload_limit: 10 * 1024 * 1024,
            timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_mins(1),
            max_connections: 10_000,
            drain: Duration::from_secs(10),
            cors_origins: Vec::new(),
            trusted_proxies: 0,
            token_rate_per_minute: 120,
            token_rate_burst: 60,
            ready_wait: Duration::from_secs(2),
        }
    }
}

/// What handlers work with. Cheap to clone.
#[derive(Clone)]
pub struct AppState(Arc<Services>);

/// The parts of [`AppState`]: one field per service.
pub struct Services {
    pub config: HttpConfig,
    pub clock: Clock,
    pub entropy: Entropy,
    pub lifecycle: Lifecycle,
    pub ready: Vec<ReadyCheck>,
    pub token_rate: TokenRate,
    /// Of callbacks that are not the provider's: whoever sends them keeps nobody from logging in.
    pub callback_rate: TokenRate,
    /// The services that every process has.
    pub app: App,
    pub auth: AuthService,
    pub team: TeamService,
}

impl AppState {
    #[must_use]
    pub fn new(services: Services) -> Self {
        Self(Arc::new(services))
    }
}

impl Deref for AppState {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

/// The caller's address; behind proxies of ours, what the outermost of them saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientAddr(pub IpAddr);

impl FromRequestParts<AppState> for ClientAddr {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        state: &AppState,
    ) -> Result<Self, Self::Rejection> {
        // Without a connection (a test that calls the router) all callers count as one.
        let peer = parts
            .extensions
            .get::<ConnectInfo<SocketAddr>>()
            .map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |info| info.0.ip());
        Ok(Self(
            forwarded(&parts.headers, state.config.trusted_proxies).unwrap_or(peer),
        ))
    }
}

/// The address that the outermost of `proxies` wrote: the `proxies`-th from the end, because
/// whatever stands before it came from the caller.
fn forwarded(headers: &HeaderMap, proxies: usize) -> Option<IpAddr> {
    let values: Vec<&str> = headers
        .get_all("x-forwarded-for")
        .iter()
        .flat_map(|value| value.to_str().unwrap_or_default().split(','))
        .collect();
    let place = values.len().checked_sub(proxies)?;
    values.get(place)?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn only_what_our_proxies_wrote_counts() {
        let mut headers = HeaderMap::new();
        headers.append(
            "x-forwarded-for",
            HeaderValue::from_static("6.6.6.6, 192.0.2.1"),
        );
        headers.append("x-forwarded-for", HeaderValue::from_static("192.0.2.2"));
        let of = |proxies| forwarded(&headers, proxies).map(|address| address.to_string());
        assert_eq!(of(0), None);
        assert_eq!(of(1).as_deref(), Some("192.0.2.2"));
        assert_eq!(of(2).as_deref(), Some("192.0.2.1"));
        assert_eq!(of(4), None);
        assert_eq!(forwarded(&HeaderMap::new(), 1), None);
    }
}
