//! `/v1/admin/arbiter-ties`: which arbiters hear no dispute of which brokers.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::json::StrictJson;
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, UserId};
use crate::route;
use crate::services::arbiters::{Tie, TieError};

/// Ties that are shown, the last first.
const TIES_MAX: u32 = 1_000;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(tie))
        .with(route!(end))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct TiesQuery {
    /// Those that have ended, too.
    #[serde(default)]
    all: bool,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct TieBody {
    /// The arbiter.
    #[schema(value_type = String, example = "US-0a5bb4c3d2e1")]
    user_id: UserId,
    broker_id: BrokerId,
    /// Why, in 1 to 500 characters.
    reason: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct TieView {
    id: u64,
    #[schema(value_type = String, example = "US-0a5bb4c3d2e1")]
    user_id: UserId,
    broker_id: BrokerId,
    reason: String,
    created_by: String,
    created_at: DateTime<Utc>,
    #[schema(required)]
    ended_by: Option<String>,
    #[schema(required)]
    ended_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct TiesView {
    items: Vec<TieView>,
}

/// List arbiters' ties, the last first.
#[utoipa::path(get, path = "/v1/admin/arbiter-ties", tag = "admin",
    operation_id = "admin_arbiter_ties", params(TiesQuery),
    responses((status = 200, body = TiesView)))]
async fn list(
    _me: Allowed<actions::AdminArbiterTieRead>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<TiesQuery>,
) -> Result<Json<TiesView>, Problem> {
    let found = state.app.arbiters.ties(query.all, TIES_MAX).await?;
    let items = found.into_iter().map(TieView::from).collect();
    Ok(Json(TiesView { items }))
}

/// Tie an arbiter to a broker: from now on they hear no dispute of it. The same again changes nothing.
#[utoipa::path(post, path = "/v1/admin/arbiter-ties", tag = "admin",
    operation_id = "admin_arbiter_tie", request_body = TieBody,
    responses((status = 200, body = TieView)))]
async fn tie(
    me: Allowed<actions::AdminArbiterTieWrite>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<TieBody>,
) -> Result<Json<TieView>, Problem> {
    let arbiters = &state.app.arbiters;
    let by = me.principal.sub();
    let tied = arbiters.tie(body.user_id, body.broker_id, &body.reason, by);
    Ok(Json(tied.await?.into()))
}

/// End a tie. One that has ended stays as it is.
#[utoipa::path(post, path = "/v1/admin/arbiter-ties/{id}/end", tag = "admin",
    operation_id = "admin_arbiter_tie_end", params(("id" = u64, Path)),
    responses((status = 200, body = TieView)))]
async fn end(
    me: Allowed<actions::AdminArbiterTieWrite>,
    State(state): State<AppState>,
    PathOf(id): PathOf<u64>,
) -> Result<Json<TieView>, Problem> {
    let ended = state.app.arbiters.untie(id, me.principal.sub()).await?;
    Ok(Json(ended.into()))
}

impl From<Tie> for TieView {
    fn from(tie: Tie) -> Self {
        let (ended_by, ended_at) = tie.ended.unzip();
        Self {
            id: tie.id,
            user_id: tie.user,
            broker_id: tie.broker,
            reason: tie.reason,
            created_by: tie.created_by,
            created_at: tie.created_at,
            ended_by,
            ended_at,
        }
    }
}

impl From<TieError> for Problem {
    fn from(error: TieError) -> Self {
        let text = error.to_string();
        match error {
            TieError::Reason(_) => Self::invalid("reason", text),
            TieError::NoSuchArbiter { .. } => Self::invalid("user_id", text),
            TieError::NoSuchBroker { .. } => Self::invalid("broker_id", text),
            TieError::NoSuchTie { .. } => Self::new(Code::NotFound).detail(text),
            TieError::Store(error) => error.into(),
        }
    }
}
