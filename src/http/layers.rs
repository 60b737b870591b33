//! What surrounds every handler: ids, logs, measurements, bounds, and problems for whatever
//! goes wrong outside of one.

use std::any::Any;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{DefaultBodyLimit, MatchedPath, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use tower::ServiceBuilder;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{Any as AnyHeader, CorsLayer};
use tower_http::request_id::{
    MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer,
};
use tower_http::sensitive_headers::SetSensitiveRequestHeadersLayer;
use tower_http::timeout::TimeoutLayer;
use tower_http::trace::TraceLayer;
use tracing::{Span, field};

use super::problem::{Code, PROBLEM_JSON, Problem};
use super::state::HttpConfig;
use crate::runtime::{Clock, Entropy};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Longest request id that is taken from a caller.
const REQUEST_ID_MAX: usize = 64;

/// Ids of requests that come without one.
#[derive(Clone)]
struct Ids {
    clock: Clock,
    entropy: Entropy,
}

impl MakeRequestId for Ids {
    fn make_request_id<B>(&mut self, _: &axum::http::Request<B>) -> Option<RequestId> {
        let id = self.entropy.uuid(self.clock.now()).to_string();
        HeaderValue::from_str(&id).ok().map(RequestId::new)
    }
}

/// Puts the layers around all routes. The first is the outermost.
pub(super) fn around<S: Clone + Send + Sync + 'static>(
    router: Router<S>,
    config: &HttpConfig,
    clock: Clock,
    entropy: Entropy,
) -> Router<S> {
    let ids = Ids { clock, entropy };
    let layers = ServiceBuilder::new()
        .layer(SetSensitiveRequestHeadersLayer::new([AUTHORIZATION]))
        .layer(from_fn(drop_odd_request_ids))
        .layer(SetRequestIdLayer::new(REQUEST_ID, ids))
        .layer(
            TraceLayer::new_for_http()
                .make_span_with(span)
                .on_response(answered),
        )
        .layer(PropagateRequestIdLayer::new(REQUEST_ID))
        .layer(from_fn(measure))
        .option_layer(cors(config))
        .layer(from_fn(problems))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::GATEWAY_TIMEOUT,
            config.timeout,
        ))
        .layer(DefaultBodyLimit::max(config.body_limit))
        .map_response(IntoResponse::into_response);
    router.layer(layers)
}

/// An id from a caller goes into logs and answers, so only a plain one is kept.
async fn drop_odd_request_ids(mut request: Request, next: Next) -> Response {
    let plain = |value: &HeaderValue| {
        let bytes = value.as_bytes();
        (1..=REQUEST_ID_MAX).contains(&bytes.len())
            && bytes
                .iter()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
    };
    if request
        .headers()
        .get(REQUEST_ID)
        .is_some_and(|value| !plain(value))
    {
        request.headers_mut().remove(REQUEST_ID);
    }
    next.run(request).await
}

/// The query isn't logged: it may carry what a person searched for.
fn span<B>(request: &axum::http::Request<B>) -> Span {
    let id = request
        .headers()
        .get(REQUEST_ID)
        .and_then(|id| id.to_str().ok());
    tracing::info_span!(
        "request",
        request_id = id,
        method = %request.method(),
        path = request.uri().path(),
        sub = field::Empty,
        broker_id = field::Empty,
    )
}

fn answered<B>(response: &axum::http::Response<B>, latency: Duration, _: &Span) {
    let ms = u64::try_from(latency.as_millis()).unwrap_or(u64::MAX);
    tracing::info!(status = response.status().as_u16(), ms, "answered");
}

/// Latency by route, not by path: ids would make a series each.
async fn measure(request: Request, next: Next) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or_else(|| "none".to_owned(), |path| path.as_str().to_owned());
    let method = known(request.method()).to_owned();
    let start = Instant::now();
    let response = next.run(request).await;
    let class = match response.status().as_u16() / 100 {
        1 => "1xx",
        2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    let labels = [
        ("route", route),
        ("method", method),
        ("status", class.to_owned()),
    ];
    metrics::histogram!("http_request_duration_seconds", &labels).record(start.elapsed());
    response
}

/// A client may make up as many methods as it likes.
fn known(method: &Method) -> &'static str {
    let methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"];
    let named = methods.into_iter().find(|name| *name == method.as_str());
    named.unwrap_or("other")
}

/// Turns an error that isn't a problem yet into one: what a layer or the router itself answers.
async fn problems(request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    let status = response.status();
    let error = status.is_client_error() || status.is_server_error();
    if !error || response.headers().get(CONTENT_TYPE) == Some(&PROBLEM_JSON) {
        return response;
    }
    let mut problem = Problem::new(Code::of_status(status)).into_response();
    // What the answer said besides its body (such as Allow) stays.
    for (name, value) in response.headers() {
        if name != CONTENT_TYPE && name != axum::http::header::CONTENT_LENGTH {
            problem.headers_mut().insert(name.clone(), value.clone());
        }
    }
    problem
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "the signature that the layer calls"
)]
fn panicked(panic: Box<dyn Any + Send>) -> Response {
    let what = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("something that isn't text");
    tracing::error!(what, "a handler panicked");
    Problem::new(Code::Internal).into_response()
}

fn cors(config: &HttpConfig) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = config
        .cors_origins
        .iter()
        .filter_map(|origin| origin.parse().ok())
        .collect();
    if origins.is_empty() {
        return None;
    }
    // The headers are named one by one, because `*` doesn't cover Authorization.
    let layer = CorsLayer::new()
        .allow_origin(origins)
        .allow_methods(AnyHeader)
        .allow_headers([
            AUTHORIZATION,
            CONTENT_TYPE,
            HeaderName::from_static("idempotency-key"),
        ])
        .expose_headers([REQUEST_ID, axum::http::header::RETRY_AFTER]);
    Some(layer)
}

#[cfg(test)]
mod tests {
    use axum::body::{Body, to_bytes};
    use axum::routing::get;
    use tower::ServiceExt;

    use super::*;

    async fn answer(path: &str) -> (StatusCode, serde_json::Value) {
        let routes = Router::<()>::new()
            .route("/panic", get(async || -> () { panic!("a secret") }))
            .route("/slow", get(std::future::pending::<()>))
            .route("/bare", get(async || (StatusCode::CONFLICT, "plain text")));
        let config = HttpConfig {
            timeout: Duration::from_millis(20),
            ..HttpConfig::default()
        };
        let app = around(routes, &config, Clock::System, Entropy::seeded(1));
        let request = Request::get(path).body(Body::empty()).unwrap();
        let response = app.oneshot(request).await.unwrap();
        assert!(response.headers().contains_key(REQUEST_ID), "{path}");
        assert_eq!(response.headers()[CONTENT_TYPE], PROBLEM_JSON, "{path}");
        let status = response.status();
        let body = to_bytes(response.into_body(), 4096).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    #[tokio::test]
    async fn what_happens_outside_of_handlers_is_a_problem_too() {
        let (status, body) = answer("/panic").await;
        assert_eq!((status.as_u16(), &body["code"]), (500, &"internal".into()));
        assert!(!body.to_string().contains("secret"));
        let (status, body) = answer("/slow").await;
        assert_eq!((status.as_u16(), &body["code"]), (504, &"timed_out".into()));
        let (status, body) = answer("/bare").await;
        assert_eq!((status.as_u16(), &body["code"]), (409, &"conflict".into()));
    }
}
