//! `…/bundle`: the evidence of one request or order, for whoever verifies it elsewhere.

use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use super::guard::Allowed;
use super::params::{Order, PathOf, PlainRequest};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::RequestId;
use crate::route;
use crate::services::bundles::{BundleError, Viewer};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(of_request))
        .with(route!(of_order))
        .with(route!(of_dispute))
}

/// The evidence bundle of a request that one is a side of: all that a third party needs to check it
/// with `settlenet verify bundle`. What happened within the last seconds is in no checkpoint yet: a
/// 409 `not_logged`.
#[utoipa::path(get, path = "/v1/network/requests/{id}/bundle", tag = "network",
    operation_id = "request_bundle", params(("id" = String, Path)),
    responses((status = 200, body = String, content_type = "application/json")))]
async fn of_request(
    me: Allowed<actions::RequestBundle>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
) -> Result<Response, Problem> {
    file(&state, id, Viewer::Party(me.seat.broker_id)).await
}

/// The same of an order.
#[utoipa::path(get, path = "/v1/orders/{id}/bundle", tag = "orders",
    operation_id = "order_bundle", params(("id" = String, Path)),
    responses((status = 200, body = String, content_type = "application/json")))]
async fn of_order(
    me: Allowed<actions::RequestBundle>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
) -> Result<Response, Problem> {
    file(&state, id, Viewer::Party(me.seat.broker_id)).await
}

/// The same of a dispute that one hears, as an arbiter.
#[utoipa::path(get, path = "/v1/arbiter/requests/{id}/bundle", tag = "arbiter",
    operation_id = "arbiter_request_bundle", params(("id" = String, Path)),
    responses((status = 200, body = String, content_type = "application/json")))]
async fn of_dispute(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
) -> Result<Response, Problem> {
    state.app.network.hears(me.principal.sub(), id).await?;
    file(&state, id, Viewer::Arbiter).await
}

async fn file(state: &AppState, id: RequestId, viewer: Viewer) -> Result<Response, Problem> {
    let bundle = state.app.bundles.bundle(id, viewer).await?;
    let bytes = bundle
        .to_bytes()
        .map_err(|error| Problem::internal(&error))?;
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Ok(named) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.bundle.json\""))
    {
        headers.insert(CONTENT_DISPOSITION, named);
    }
    Ok(response)
}

impl From<BundleError> for Problem {
    fn from(error: BundleError) -> Self {
        match error {
            BundleError::NotFound => Self::new(Code::NotFound),
            BundleError::NotLogged => Self::new(Code::NotLogged).retry_after(5),
            BundleError::Store(error) => error.into(),
            BundleError::Checkpoint(error) => error.into(),
            BundleError::Ledger(error) => {
                tracing::warn!(%error, "the ledger can't be read");
                Self::new(Code::Unavailable).retry_after(1)
            }
        }
    }
}
