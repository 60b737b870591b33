//! The one way to a provider: HTTP with bounds on time and size, no redirects, no retries, and a
//! record of every call. What it says of a failure is what the caller may build on: the request
//! certainly did not arrive, or it may have.

use std::error::Error as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::body::{Bytes, Frame, SizeHint};
use reqwest::{Method, Url};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use super::breaker::{Breaker, Limits};
use super::{CallRecord, Lease};

/// The largest answer that is read.
const MAX_ANSWER: usize = 256 * 1024;
/// What of a lease must be left beside the time for the call itself: for writing down what came of
/// it.
pub const LEASE_MARGIN: Duration = Duration::from_secs(2);
/// What is kept of an answer that is no JSON, in characters.
const MAX_UNREADABLE: usize = 2_000;
/// What stands for a secret in a record.
const MASK: &str = "***";
/// Fields whose values are secrets, whoever sends them.
const SECRET_FIELDS: [&str; 8] = [
    "access_token",
    "api_key",
    "apikey",
    "authorization",
    "password",
    "secret",
    "signature",
    "token",
];

/// Where a provider is, and how long it is waited for.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Without the paths of its API, as `https://api.example.com`.
    pub url: String,
    pub token: SecretString,
    pub connect_timeout: Duration,
    /// Of a whole call, connecting included.
    pub timeout: Duration,
    pub breaker: Limits,
}

/// An endpoint that nothing can be sent to.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    #[error("{url:?} is no URL of a provider: it is http or https, a host, and no query")]
    Url { url: String },
    #[error("no HTTP client can be made")]
    Client(#[from] reqwest::Error),
}

/// What is sent.
pub(super) struct Request<'a> {
    /// As it is called in records.
    pub(super) operation: &'static str,
    pub(super) method: Method,
    /// Below the endpoint's URL, with a query where it has one.
    pub(super) path: String,
    pub(super) rq_uid: Option<&'a str>,
    pub(super) body: Option<Value>,
    /// Of what moves money: it is not sent where too little of the lease is left.
    pub(super) lease: Option<Lease>,
}

/// What a provider answered: a status below 500 and JSON.
#[derive(Clone, Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) body: Value,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum CallError {
    /// The provider has certainly not got it.
    #[error("not sent: {0}")]
    NotSent(String),
    /// Nor this, because we kept it back.
    #[error("not sent: too little of the lease is left")]
    TooLate,
    /// The provider may have got it, and may have done it.
    #[error("no answer: {0}")]
    InDoubt(String),
}

/// A provider's door.
pub(super) struct Client {
    http: reqwest::Client,
    base: String,
    token: SecretString,
    timeout: Duration,
    breaker: Mutex<Breaker>,
}

impl Client {
    pub(super) fn new(endpoint: &Endpoint) -> Result<Self, EndpointError> {
        let bad = || EndpointError::Url {
            url: endpoint.url.clone(),
        };
        let url: Url = endpoint.url.parse().map_err(|_| bad())?;
        let web = matches!(url.scheme(), "http" | "https") && url.has_host();
        if !web || url.query().is_some() || url.fragment().is_some() {
            return Err(bad());
        }
        let http = reqwest::Client::builder()
            .connect_timeout(endpoint.connect_timeout)
            .timeout(endpoint.timeout)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .build()?;
        Ok(Self {
            http,
            base: url.as_str().trim_end_matches('/').to_owned(),
            token: endpoint.token.clone(),
            timeout: endpoint.timeout,
            breaker: Mutex::new(Breaker::new(endpoint.breaker)),
        })
    }

    /// Makes a call and records it.
    pub(super) async fn call(
        &self,
        request: Request<'_>,
        calls: &mut Vec<CallRecord>,
    ) -> Result<Reply, CallError> {
        let enough = self.timeout + LEASE_MARGIN;
        if request.lease.is_some_and(|lease| !lease.has(enough)) {
            return Err(CallError::TooLate);
        }
        if !self.breaker().lets_through(Instant::now()) {
            let why = "the provider has failed again and again, and is left alone for a while";
            return Err(CallError::NotSent(why.to_owned()));
        }
        let mut record = CallRecord {
            operation: request.operation,
            rq_uid: request.rq_uid.map(str::to_owned),
            request: self.masked(request.body.as_ref().unwrap_or(&Value::Null)),
            http_status: None,
            response: None,
            error: None,
            took: Duration::ZERO,
        };
        let began = Instant::now();
        let result = self.exchange(request, &mut record).await;
        record.took = began.elapsed();
        if let Err(error) = &result {
            record.error = Some(self.masked_text(&error.to_string()));
        }
        calls.push(record);
        self.tell_breaker(&result);
        result
    }

    async fn exchange(
        &self,
        request: Request<'_>,
        record: &mut CallRecord,
    ) -> Result<Reply, CallError> {
        let fate = Arc::new(OnceLock::new());
        let has_body = request.body.is_some();
        let url = format!("{}{}", self.base, request.path);
        let mut builder = self
            .http
            .request(request.method, url)
            .bearer_auth(self.token.expose_secret())
            .header(reqwest::header::ACCEPT, "application/json");
        if let Some(body) = &request.body {
            let body = Guarded {
                bytes: Some(body.to_string().into()),
                lease: request.lease,
                fate: Arc::clone(&fate),
            };
            builder = builder
                .header(reqwest::header::CONTENT_TYPE, "application/json")
                .body(reqwest::Body::wrap(body));
        }
        let mut answer = builder.send().await.map_err(|error| {
            let why = causes(&error.without_url());
            if !has_body {
                return CallError::InDoubt(why);
            }
            // What has a body does nothing without it. It is taken back here, or was given: the
            // connection may outlive this wait for an answer.
            match fate.get_or_init(|| Fate::Withdrawn) {
                Fate::Given => CallError::InDoubt(why),
                Fate::Late => CallError::TooLate,
                Fate::Withdrawn => CallError::NotSent(why),
            }
        })?;
        let status = answer.status().as_u16();
        record.http_status = Some(status);
        let mut bytes = Vec::new();
        loop {
            match answer.chunk().await {
                Ok(Some(chunk)) if bytes.len() + chunk.len() > MAX_ANSWER => {
                    let why = format!("the answer is larger than {MAX_ANSWER} bytes");
                    return Err(CallError::InDoubt(why));
                }
                Ok(Some(chunk)) => bytes.extend_from_slice(&chunk),
                Ok(None) => break,
                Err(error) => return Err(CallError::InDoubt(causes(&error.without_url()))),
            }
        }
        let body: Result<Value, _> = serde_json::from_slice(&bytes);
        record.response = Some(body.as_ref().map_or_else(
            |_| {
                let text = String::from_utf8_lossy(&bytes);
                let start: String = text.chars().take(MAX_UNREADABLE).collect();
                Value::String(self.masked_text(&start))
            },
            |body| self.masked(body),
        ));
        match (status, body) {
            (500.., _) => Err(CallError::InDoubt(format!("status {status}"))),
            (300..400, _) => Err(CallError::InDoubt(format!("a redirect, status {status}"))),
            (_, Ok(body)) => Ok(Reply { status, body }),
            (_, Err(_)) => Err(CallError::InDoubt(format!("status {status}, and no JSON"))),
        }
    }

    fn tell_breaker(&self, result: &Result<Reply, CallError>) {
        match result {
            Ok(_) => self.breaker().answered(),
            // Nothing was learnt about the provider.
            Err(CallError::TooLate) => {}
            Err(CallError::NotSent(_) | CallError::InDoubt(_)) => {
                if self.breaker().failed(Instant::now()) {
                    tracing::warn!(url = self.base, "a provider is left alone for a while");
                }
            }
        }
    }

    fn breaker(&self) -> std::sync::MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A value as it may be kept.
    fn masked(&self, value: &Value) -> Value {
        match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
            Value::String(text) => Value::String(self.masked_text(text)),
            Value::Array(items) => items.iter().map(|item| self.masked(item)).collect(),
            Value::Object(fields) => {
                let masked = fields.iter().map(|(name, value)| {
                    let lower = name.to_ascii_lowercase();
                    let secret = SECRET_FIELDS.contains(&lower.as_str());
                    let value = if secret {
                        MASK.into()
                    } else {
                        self.masked(value)
                    };
                    (self.masked_text(name), value)
                });
                Value::Object(masked.collect())
            }
        }
    }

    /// Without the token, wherever it stands, and without NUL, which PostgreSQL does not keep.
    fn masked_text(&self, text: &str) -> String {
        let text = text.replace('\0', "\u{fffd}");
        match self.token.expose_secret() {
            "" => text,
            token => text.replace(token, MASK),
        }
    }
}

impl Reply {
    /// A text in the answer by its JSON pointer, as it may be kept: at most 140 characters, none of
    /// them for control. A number counts as its text.
    pub(super) fn text(&self, pointer: &str) -> Option<String> {
        text_at(&self.body, pointer)
    }

    pub(super) const fn is_success(&self) -> bool {
        200 <= self.status && self.status < 300
    }
}

/// See [`Reply::text`].
pub(super) fn text_at(value: &Value, pointer: &str) -> Option<String> {
    let text = match value.pointer(pointer)? {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => return None,
    };
    let clean = text.chars().filter(|c| !c.is_control());
    Some(clean.take(140).collect()).filter(|text: &String| !text.is_empty())
}

/// What the connection hears instead of a body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request was kept back")]
struct KeptBack;

/// A body that is given away at the last moment, once the connection is there, and only while the
/// lease lasts: a process that was stopped before it came to that sends nothing.
struct Guarded {
    bytes: Option<Bytes>,
    lease: Option<Lease>,
    fate: Arc<OnceLock<Fate>>,
}

/// What became of a body: whoever says so first has decided it.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Given,
    /// Too little of the lease was left.
    Late,
    /// Nobody waits for the answer any more.
    Withdrawn,
}

impl hyper::body::Body for Guarded {
    type Data = Bytes;
    type Error = KeptBack;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, KeptBack>>> {
        let Some(bytes) = self.bytes.take() else {
            return Poll::Ready(None);
        };
        let late = self.lease.is_some_and(|lease| !lease.has(LEASE_MARGIN));
        let fate = self
            .fate
            .get_or_init(|| if late { Fate::Late } else { Fate::Given });
        Poll::Ready(Some(match fate {
            Fate::Given => Ok(Frame::data(bytes)),
            Fate::Late | Fate::Withdrawn => Err(KeptBack),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.bytes.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let left = self.bytes.as_ref().map_or(0, Bytes::len);
        SizeHint::with_exact(left.try_into().unwrap_or(u64::MAX))
    }
}

/// An error with all its causes, in one line.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        text.push_str(": ");
        text.push_str(&deeper.to_string());
        cause = deeper.source();
    }
    text
}

#[cfg(test)]
mod tests;
