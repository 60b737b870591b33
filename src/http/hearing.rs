//! `/v1/arbiter/requests` and `/v1/arbiter/brokers`: what whoever hears a dispute may look at besides:
//! the files that sides have handed in, and whether a side's book holds.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::disputes::{EvidenceView, evidence_of};
use super::guard::Allowed;
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use super::uploads::file;
use crate::domain::access::actions;
use crate::domain::chain::Head;
use crate::domain::ids::{BrokerId, RequestId};
use crate::route;
use crate::services::audit::{AuditError, Audited};
use crate::services::books::BooksError;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(evidence))
        .with(route!(proof))
        .with(route!(chain))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ChainQuery {
    /// The disputed request or order that one hears, and the broker is a side of.
    #[param(value_type = String)]
    request: RequestId,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ChainView {
    broker_id: BrokerId,
    /// Whether the chain holds, and is the one that the log has.
    holds: bool,
    /// The last entry that holds, as `SEQ:HASH`.
    holds_to: String,
    /// The last one that the log has of it.
    #[schema(required)]
    logged: Option<String>,
    /// When all of it was last verified from its first entry on; what it has grown by since was
    /// verified just now. Null where it does not hold.
    #[schema(required)]
    whole_at: Option<DateTime<Utc>>,
    /// Of a chain that does not hold.
    #[schema(required)]
    first_bad_seq: Option<String>,
    #[schema(required)]
    problem: Option<String>,
}

/// The evidence of a dispute, as under `/v1/arbiter/disputes/{id}`, for whoever hears it.
#[utoipa::path(get, path = "/v1/arbiter/requests/{id}/evidence", tag = "arbiter",
    operation_id = "arbiter_request_evidence", params(("id" = String, Path)),
    responses((status = 200, body = EvidenceView)))]
async fn evidence(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
) -> Result<Json<EvidenceView>, Problem> {
    let arbiter = me.principal.sub();
    state.app.network.hears(arbiter, id).await?;
    evidence_of(&state, arbiter, id).await
}

/// A file that proves something for the disputed request, for whoever hears the dispute.
#[utoipa::path(get, path = "/v1/arbiter/requests/{id}/files/{upload}", tag = "arbiter",
    operation_id = "arbiter_request_file",
    params(("id" = String, Path), ("upload" = String, Path)),
    responses((status = 200, content_type = "application/octet-stream", body = Vec<u8>)))]
async fn proof(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf((id, upload)): PathOf<(RequestId, Uuid)>,
) -> Result<Response, Problem> {
    state.app.network.hears(me.principal.sub(), id).await?;
    let (upload, content) = state.app.uploads.of_request(id, upload).await?;
    Ok(file(&upload, content))
}

/// Whether the book of a side holds, and is the one that the log has. Nothing of its entries is shown.
#[utoipa::path(get, path = "/v1/arbiter/brokers/{id}/chain", tag = "arbiter",
    operation_id = "arbiter_broker_chain", params(("id" = u64, Path), ChainQuery),
    responses((status = 200, body = ChainView)))]
async fn chain(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(broker): PathOf<BrokerId>,
    QueryOf(query): QueryOf<ChainQuery>,
) -> Result<Json<ChainView>, Problem> {
    let dispute = state
        .app
        .network
        .hears(me.principal.sub(), query.request)
        .await?;
    if ![dispute.opened_by, dispute.against].contains(&broker) {
        return Err(Problem::new(Code::NotFound));
    }
    Ok(Json(state.app.audit.look(broker).await?.into()))
}

impl From<Audited> for ChainView {
    fn from(audited: Audited) -> Self {
        let fault = audited.fault.as_ref();
        Self {
            broker_id: audited.broker,
            holds: fault.is_none(),
            holds_to: audited.holds_to.to_string(),
            logged: audited.known.map(|known: Head| known.to_string()),
            whole_at: audited.whole_at,
            first_bad_seq: fault.map(|fault| fault.seq.to_string()),
            problem: fault.map(|fault| fault.problem.to_string()),
        }
    }
}

impl From<AuditError> for Problem {
    fn from(error: AuditError) -> Self {
        match error {
            AuditError::Books(BooksError::Store(error)) | AuditError::Store(error) => error.into(),
            AuditError::Books(error) => error.into(),
            AuditError::Checkpoint(error) => error.into(),
        }
    }
}
