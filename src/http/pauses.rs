//! `/v1/admin/pauses`: what is paused, and what was.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::BrokerId;
use crate::domain::money::CurrencyCode;
use crate::domain::pause::{Hindrance, Pausable, Pause, PauseScope};
use crate::route;
use crate::services::pauses::{PauseError, Paused};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(create))
        .with(route!(lift))
}

#[derive(Serialize, utoipa::ToSchema)]
struct PauseView {
    id: u64,
    /// `network`, `broker`, `currency`
    #[schema(value_type = String)]
    scope: PauseScope,
    /// Of a broker's.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    /// Of a currency's.
    #[schema(required, value_type = Option<String>)]
    currency_code: Option<CurrencyCode>,
    reason: String,
    /// Who paused it: the subject of a token, or `cli` with a name.
    paused_by: String,
    paused_at: DateTime<Utc>,
    /// `open`, `lifted`
    state: &'static str,
    #[schema(required)]
    lifted_by: Option<String>,
    #[schema(required)]
    lifted_at: Option<DateTime<Utc>>,
    #[schema(required)]
    lift_reason: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// `network`, `broker`, `currency`
    #[schema(value_type = String, example = "currency")]
    scope: PauseScope,
    /// Where the scope is `broker`.
    broker_id: Option<BrokerId>,
    /// Where the scope is `currency`.
    #[schema(example = "USD")]
    currency_code: Option<String>,
    /// Told to whoever is kept from something by it: 1 to 500 characters.
    reason: String,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct LiftBody {
    /// 1 to 500 characters.
    reason: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Lifted ones too.
    all: Option<bool>,
}

/// List what is paused, newest first; with `all` what was, too.
#[utoipa::path(get, path = "/v1/admin/pauses", tag = "admin", operation_id = "admin_pause_list",
    params(ListQuery), responses((status = 200, body = Page<PauseView>)))]
async fn list(
    _me: Allowed<actions::AdminPauseList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<PauseView>>, Problem> {
    let page = PageRequest::<u64>::read("pauses", query.limit, query.cursor.as_deref())?;
    let open_only = !query.all.unwrap_or(false);
    let pauses = &state.app.pauses;
    let found = pauses.list(open_only, page.after, page.fetch()).await?;
    Ok(Json(page.page(found, |pause| pause.id, PauseView::from)))
}

/// Pause the network, a broker or a currency.
///
/// What runs is finished, and nothing new starts: once this has answered, no request that it
/// concerns is created or accepted any more. What is paused already is given as it is, with 200.
#[utoipa::path(post, path = "/v1/admin/pauses", tag = "admin", operation_id = "admin_pause_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody,
    responses((status = 201, body = PauseView), (status = 200, body = PauseView)))]
async fn create(
    me: Allowed<actions::AdminPauseCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<PauseView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let what = pausable(&body)?;
    let now = state.clock.now();
    let by = me.principal.sub();
    let service = &state.app.pauses;
    let asked = service.pause(what, &body.reason, by, Some(intention), now);
    let (status, pause) = match asked.await? {
        Paused::Now(pause) => (StatusCode::CREATED, pause),
        Paused::Before(pause) => (StatusCode::OK, pause),
    };
    Ok((status, Json(pause.into())))
}

/// Lift a pause. One that was lifted before stays as it is.
#[utoipa::path(post, path = "/v1/admin/pauses/{id}/lift", tag = "admin",
    operation_id = "admin_pause_lift", params(("id" = u64, Path)), request_body = LiftBody,
    responses((status = 200, body = PauseView)))]
async fn lift(
    me: Allowed<actions::AdminPauseLift>,
    State(state): State<AppState>,
    PathOf(id): PathOf<u64>,
    StrictJson(body): StrictJson<LiftBody>,
) -> Result<Json<PauseView>, Problem> {
    let now = state.clock.now();
    let pauses = &state.app.pauses;
    let lifted = pauses.lift(id, body.reason.as_deref(), me.principal.sub(), now);
    Ok(Json(lifted.await?.into()))
}

fn pausable(body: &CreateBody) -> Result<Pausable, Problem> {
    let only_with = |field: &str, scope: &str| {
        Problem::invalid(field, format!("is there where the scope is {scope}"))
    };
    if body.broker_id.is_some() != (body.scope == PauseScope::Broker) {
        return Err(only_with("broker_id", "broker, and only there"));
    }
    if body.currency_code.is_some() != (body.scope == PauseScope::Currency) {
        return Err(only_with("currency_code", "currency, and only there"));
    }
    match (body.broker_id, &body.currency_code) {
        (Some(id), _) => Ok(Pausable::Broker(id)),
        (None, None) => Ok(Pausable::Network),
        (None, Some(code)) => match code.parse() {
            Ok(code) => Ok(Pausable::Currency(code)),
            Err(_) => Err(Problem::invalid(
                "currency_code",
                "is no currency of the network",
            )),
        },
    }
}

impl From<Pause> for PauseView {
    fn from(pause: Pause) -> Self {
        let state = if pause.lifted.is_some() {
            "lifted"
        } else {
            "open"
        };
        let (lifted_by, lifted_at, lift_reason) = pause.lifted.map_or((None, None, None), |end| {
            (Some(end.by), Some(end.at), end.reason)
        });
        Self {
            id: pause.id,
            scope: pause.what.scope(),
            broker_id: pause.what.broker(),
            currency_code: pause.what.currency().cloned(),
            reason: pause.reason,
            paused_by: pause.by,
            paused_at: pause.at,
            state,
            lifted_by,
            lifted_at,
            lift_reason,
        }
    }
}

impl From<PauseError> for Problem {
    fn from(error: PauseError) -> Self {
        let detail = error.to_string();
        match error {
            PauseError::Reason(_) => Self::invalid("reason", detail),
            PauseError::NoSuchCurrency { .. } => {
                Self::invalid("currency_code", "is no currency of the network")
            }
            PauseError::NoSuchBroker { .. } | PauseError::NoSuchPause { .. } => {
                Self::new(Code::NotFound).detail(detail)
            }
            PauseError::BrokerState { .. } => Self::new(Code::Conflict).detail(detail),
            PauseError::KeyReused => Self::new(Code::KeyReused),
            PauseError::Store(error) => error.into(),
            PauseError::BrokenOff => Self::internal(&error),
        }
    }
}

impl From<Hindrance> for Problem {
    fn from(hindrance: Hindrance) -> Self {
        let detail = hindrance.to_string();
        match hindrance {
            Hindrance::Paused { what, because } => {
                let mut paused = json!({ "scope": what.scope() });
                if let Some(id) = what.broker() {
                    paused["broker_id"] = json!(id);
                }
                if let Some(code) = what.currency() {
                    paused["currency_code"] = json!(code);
                }
                if let Some(because) = because {
                    paused["reason"] = json!(because.reason);
                    paused["since"] = json!(because.since);
                }
                Self::new(Code::Paused)
                    .detail(detail)
                    .with("paused", paused)
            }
            Hindrance::NotActive { .. } => Self::new(Code::BrokerNotActive).detail(detail),
            Hindrance::NoBroker { .. } => Self::new(Code::NotFound).detail(detail),
        }
    }
}
