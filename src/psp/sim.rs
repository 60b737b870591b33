//! `settlenet psp-sim`: the providers' side, for tests and for trying things by hand. It plays IPPS,
//! WISE and QP over HTTP, keeps a durable record of what it has paid, and fails on demand.
//!
//! What it has paid is in its record before the answer leaves, whatever becomes of the answer. A
//! request whose client has gone is carried out all the same, as providers do.

mod admin;
mod book;
mod callbacks;
mod faults;
mod ipps;
mod qp;
mod record;
mod wise;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::runtime::Clock;
use book::{Book, Entry};
use callbacks::Callbacks;
pub use callbacks::Target;
use faults::Draws;
pub use faults::{Rates, RatesError};
use record::Record;
pub use record::RecordError;

/// The largest request that is read.
const MAX_REQUEST: usize = 64 * 1024;
/// What is under way has this long when the simulator ends.
const GRACE: Duration = Duration::from_secs(5);

/// How the simulator behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it writes down what it has paid; made if there is none.
    pub record: PathBuf,
    /// The faults follow from it, and from what is asked, in whatever order.
    pub seed: u64,
    pub rates: Rates,
    /// Whether one uid is paid once, however often that is asked for.
    pub deduplicates: bool,
    /// What clients must show, where anything.
    pub token: Option<SecretString>,
    /// Whom QP tells of payments, where anybody.
    pub callback: Option<Target>,
    pub clock: Clock,
}

/// Why the simulator doesn't run.
#[derive(Debug, thiserror::Error)]
pub enum SimError {
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("no HTTP client can be made")]
    Client(#[from] reqwest::Error),
    #[error("it can't serve")]
    Serve(#[source] io::Error),
    #[error("the record can't be written any more, so nothing may be paid any more")]
    Broken,
}

/// The providers.
#[derive(Clone)]
pub struct Simulator(Arc<Shared>);

struct Shared {
    book: Mutex<Book>,
    record: Record,
    draws: Draws,
    deduplicates: bool,
    token: Option<SecretString>,
    callbacks: Option<Callbacks>,
    clock: Clock,
    tasks: TaskTracker,
}

/// An answer before faults.
struct Reply {
    status: StatusCode,
    body: Value,
}

/// What is asked, as faults are drawn for it.
struct Asked {
    operation: &'static str,
    uid: String,
}

impl Reply {
    const fn ok(body: Value) -> Self {
        let status = StatusCode::OK;
        Self { status, body }
    }

    const fn of(status: StatusCode, body: Value) -> Self {
        Self { status, body }
    }
}

impl Simulator {
    /// Reads the record and goes on from it.
    ///
    /// # Errors
    /// A record that can't be read or that another simulator has.
    pub fn open(options: Options) -> Result<Self, SimError> {
        let (record, entries) = Record::open(&options.record)?;
        let mut book = Book::default();
        for entry in entries {
            book.apply(entry);
        }
        let tasks = TaskTracker::new();
        let callbacks = options.callback.map(Callbacks::new).transpose()?;
        Ok(Self(Arc::new(Shared {
            book: Mutex::new(book),
            record,
            draws: Draws::new(options.seed, options.rates),
            deduplicates: options.deduplicates,
            token: options.token,
            callbacks,
            clock: options.clock,
            tasks,
        })))
    }

    /// Serves until it is to stop, and then finishes what is under way.
    ///
    /// # Errors
    /// A listener that fails, or a record that can't be written.
    pub async fn serve(
        self,
        listener: TcpListener,
        stop: CancellationToken,
    ) -> Result<(), SimError> {
        let shared = &self.0;
        let ending = stop.child_token();
        let app = self.router();
        let graceful = ending.clone().cancelled_owned();
        let served = axum::serve(listener, app).with_graceful_shutdown(graceful);
        let mut served = tokio::spawn(served.into_future());
        let broken = shared.record.broken().clone();
        let ended = tokio::select! {
            ended = &mut served => Some(ended),
            () = broken.cancelled() => None,
            () = stop.cancelled() => None,
        };
        ending.cancel();
        shared.tasks.close();
        let ended = match ended {
            Some(ended) => ended,
            None => tokio::time::timeout(GRACE, &mut served)
                .await
                .unwrap_or_else(|_| {
                    served.abort();
                    Ok(Ok(()))
                }),
        };
        if tokio::time::timeout(GRACE, shared.tasks.wait())
            .await
            .is_err()
        {
            tracing::warn!("some answers and callbacks were broken off");
        }
        if broken.is_cancelled() {
            return Err(SimError::Broken);
        }
        ended
            .unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(SimError::Serve)
    }

    fn router(&self) -> Router {
        Router::new()
            .merge(ipps::routes())
            .merge(wise::routes())
            .merge(qp::routes())
            .merge(admin::routes())
            .fallback(async || {
                let why = "there is no such thing here: settlenet psp-sim --help lists what is";
                refusal(StatusCode::NOT_FOUND, "http_404", why)
            })
            .layer(axum::extract::DefaultBodyLimit::max(MAX_REQUEST))
            .layer(axum::middleware::from_fn_with_state(self.clone(), admitted))
            .with_state(self.clone())
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        let book = self.0.book.lock();
        book.unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides on the book as it is, and gives the answer once all that it rests on is durable.
    async fn decide<T>(
        &self,
        decide: impl FnOnce(&mut Book) -> (T, Vec<Entry>),
    ) -> Result<T, SimError> {
        let (answer, written) = {
            let mut book = self.book();
            let (answer, entries) = decide(&mut book);
            let written = self.0.record.write(&entries)?;
            for entry in entries {
                book.apply(entry);
            }
            (answer, written)
        };
        written.await.map_err(|_| SimError::Broken)?;
        Ok(answer)
    }

    /// Answers a provider's client, with the faults that are drawn for it.
    async fn answer(
        self,
        asked: Asked,
        decide: impl FnOnce(&Self, &mut Book) -> (Reply, Vec<Entry>) + Send + 'static,
    ) -> Response {
        let tasks = self.0.tasks.clone();
        // Goes on when the client has gone.
        let work = async move {
            let faults = self.0.draws.draw(asked.operation, &asked.uid);
            tokio::time::sleep(faults.latency).await;
            if faults.error_before {
                let why = "a fault on demand, before the effect";
                return refusal(StatusCode::SERVICE_UNAVAILABLE, "3002", why);
            }
            let reply = match self.decide(|book| decide(&self, book)).await {
                Ok(reply) => reply,
                Err(error) => {
                    tracing::error!(%error, "nothing is paid any more");
                    return refusal(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        "3002",
                        "the record failed",
                    );
                }
            };
            if faults.error_after {
                let why = "a fault on demand, after the effect";
                return refusal(StatusCode::BAD_GATEWAY, "3002", why);
            }
            if faults.torn_after {
                return torn(&reply);
            }
            (reply.status, axum::Json(reply.body)).into_response()
        };
        match tasks.spawn(work).await {
            Ok(answer) => answer,
            Err(_) => refusal(
                StatusCode::INTERNAL_SERVER_ERROR,
                "3002",
                "the work broke off",
            ),
        }
    }
}

/// An error in the words of all three providers at once, as a gateway before them would give it.
fn refusal(status: StatusCode, code: &str, message: &str) -> Response {
    let body = json!({
        "code": code,
        "message": message,
        "errors": [{ "code": code, "message": message }],
    });
    (status, axum::Json(body)).into_response()
}

/// An answer that breaks off in the middle.
fn torn(reply: &Reply) -> Response {
    let whole = reply.body.to_string().into_bytes();
    let half = Bytes::copy_from_slice(&whole[..whole.len() / 2]);
    let parts = [Ok(half), Err(io::Error::other("torn on demand"))];
    let body = Body::from_stream(futures::stream::iter(parts));
    let headers = [
        (header::CONTENT_TYPE, "application/json".to_owned()),
        (header::CONTENT_LENGTH, whole.len().to_string()),
    ];
    (reply.status, headers, body).into_response()
}

/// Lets through who has the token, where one is asked for.
async fn admitted(State(simulator): State<Simulator>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.and_then(|value| value.to_str().ok());
    let shown = shown.and_then(|value| value.strip_prefix("Bearer "));
    let token = &simulator.0.token;
    let wanted = token.as_ref().map(SecretString::expose_secret);
    if wanted.is_some() && wanted != shown {
        let why = "the bearer token is that of --token";
        return refusal(StatusCode::UNAUTHORIZED, "3004", why);
    }
    next.run(request).await
}
