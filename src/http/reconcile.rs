//! `/v1/admin/reconcile`: whether the books, the master and the ledger say the same.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::params::QueryOf;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::route;
use crate::services::reconcile::{INVARIANTS, InvariantReport, ReconcileError};

/// Findings of each invariant that are shown where the caller doesn't say, and at most.
const FINDINGS_DEFAULT: usize = 100;
const FINDINGS_MAX: usize = 1_000;
/// The largest network that is checked over REST: what is sure to be done within an answer's time.
const REQUESTS_MAX: u32 = 20_000;
const BROKERS_MAX: u32 = 500;

pub fn routes() -> Routes {
    Routes::new().with(route!(reconcile))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ReconcileQuery {
    /// Only this one: 1, 2, 3 or 7.
    invariant: Option<u8>,
    /// Findings of each that are shown, 0 to 1000; 100 where it isn't there. All are counted.
    findings: Option<usize>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ReportView {
    /// Everything was checked and nothing is wrong.
    clean: bool,
    invariants: Vec<InvariantReport>,
}

/// Check the invariants now.
///
/// It reads everything there is, so one runs at a time in a process, and only in a network of at
/// most 20000 requests and 500 brokers: beyond that the answer is a 409 `too_much` at once, and
/// `settlenet reconcile` on the command line has all the time it needs. One that doesn't end
/// within the time that an answer may take all the same (books of very many entries) is given up
/// with a 504; a single `invariant` takes less.
#[utoipa::path(get, path = "/v1/admin/reconcile", tag = "admin", operation_id = "reconcile",
    params(ReconcileQuery), responses((status = 200, body = ReportView)))]
async fn reconcile(
    _me: Allowed<actions::Reconcile>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ReconcileQuery>,
) -> Result<Json<ReportView>, Problem> {
    if query
        .invariant
        .is_some_and(|one| !INVARIANTS.contains(&one))
    {
        return Err(Problem::invalid("invariant", "1, 2, 3 or 7"));
    }
    let findings = query.findings.unwrap_or(FINDINGS_DEFAULT);
    if findings > FINDINGS_MAX {
        return Err(Problem::invalid("findings", format!("0 to {FINDINGS_MAX}")));
    }
    let reconcile = &state.app.reconcile;
    let _turn = reconcile.turn().ok_or_else(|| {
        Problem::new(Code::Contended)
            .detail("A reconciliation is under way.")
            .retry_after(5)
    })?;
    if !reconcile.is_within(REQUESTS_MAX, BROKERS_MAX).await? {
        return Err(Problem::new(Code::TooMuch).detail(format!(
            "The network has more than {REQUESTS_MAX} requests or {BROKERS_MAX} brokers: \
             run `settlenet reconcile`."
        )));
    }
    // A little less than the whole, so that it is this that answers.
    let bound = state.config.timeout * 9 / 10;
    let run = reconcile.run(query.invariant, &|_| {});
    let report = tokio::time::timeout(bound, run).await.map_err(|_| {
        Problem::new(Code::TimedOut)
            .detail("There is too much for one answer: run `settlenet reconcile`.")
    })??;
    let clean = report.is_clean();
    let mut invariants = report.invariants;
    for one in &mut invariants {
        one.breaks.truncate(findings);
        one.unchecked.truncate(findings);
    }
    Ok(Json(ReportView { clean, invariants }))
}

impl From<ReconcileError> for Problem {
    fn from(error: ReconcileError) -> Self {
        match error {
            ReconcileError::Store(error) => error.into(),
            ReconcileError::Ledger(error) => {
                tracing::warn!(%error, "the ledger can't be asked now");
                Self::new(Code::Unavailable).retry_after(1)
            }
        }
    }
}
