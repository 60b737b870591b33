//! Whether the process lives, whether it can work, and what it measures.

use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;
use futures::future::{BoxFuture, FutureExt, join_all};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use serde::Serialize;

use super::guard::Public;
use super::problem::{Code, FieldError, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::route;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(alive))
        .with(route!(ready))
        .with(route!(measured))
}

type Probe = Arc<dyn Fn() -> BoxFuture<'static, bool> + Send + Sync>;

/// A part that the service can't work without, and how to find out whether it answers.
#[derive(Clone)]
pub struct ReadyCheck {
    name: String,
    probe: Probe,
}

impl ReadyCheck {
    /// `probe` answers whether the part is up. It says nothing else: the answer is public.
    pub fn new<F>(name: impl Into<String>, probe: impl Fn() -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = bool> + Send + 'static,
    {
        Self {
            name: name.into(),
            probe: Arc::new(move || probe().boxed()),
        }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
struct Health {
    /// `ok`
    status: &'static str,
}

/// The process lives.
#[utoipa::path(get, path = "/healthz", tag = "service", operation_id = "healthz",
    responses((status = 200, body = Health)))]
async fn alive(_: Public) -> Json<Health> {
    Json(Health { status: "ok" })
}

/// The process can work: all that it needs answers. A 503 names what doesn't.
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "readyz",
    responses((status = 200, body = Health)))]
async fn ready(_: Public, State(state): State<AppState>) -> Result<Json<Health>, Problem> {
    if state.lifecycle.stopping().is_cancelled() {
        return Err(Problem::new(Code::NotReady).detail("The process is stopping."));
    }
    let wait = state.config.ready_wait;
    let checks = state.ready.iter().map(|check| async move {
        let up = tokio::time::timeout(wait, (check.probe)()).await == Ok(true);
        (!up).then(|| FieldError::new(&check.name, "down", "It doesn't answer."))
    });
    let down: Vec<FieldError> = join_all(checks).await.into_iter().flatten().collect();
    if down.is_empty() {
        return Ok(Json(Health { status: "ok" }));
    }
    let names: Vec<&str> = down.iter().map(|error| error.field.as_str()).collect();
    let detail = format!("Down: {}.", names.join(", "));
    let problem = Problem::new(Code::NotReady).detail(detail).retry_after(1);
    Err(down.into_iter().fold(problem, Problem::field))
}

/// What the process measures, in Prometheus' text format.
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "metrics",
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn measured(_: Public) -> impl IntoResponse {
    let text = recorder().map_or_else(String::new, PrometheusHandle::render);
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
}

/// Seconds; from a fast read to the timeout.
const BUCKETS: [f64; 14] = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0,
];

/// Sets up the process's metrics, once; None where something else has done so.
pub fn recorder() -> Option<&'static PrometheusHandle> {
    static RECORDER: OnceLock<Option<PrometheusHandle>> = OnceLock::new();
    let recorder = RECORDER.get_or_init(|| {
        let recorder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".into()), &BUCKETS)
            .ok()?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder).ok()?;
        Some(handle)
    });
    recorder.as_ref()
}
