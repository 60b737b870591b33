//! `/v1/broker/plan` and `/v1/admin/brokers/{id}/plan`: what a broker pays for.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::json;

use super::brokers::{AdminBrokerView, BrokerView};
use super::guard::Allowed;
use super::json::StrictJson;
use super::params::PathOf;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::broker::{Broker, BrokerPlan};
use crate::domain::ids::BrokerId;
use crate::domain::plan_limits::{Excess, LimitReached};
use crate::route;
use crate::services::plans::{AskedBy, PlanError};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(change_own))
        .with(route!(admin_change))
}

#[derive(Deserialize, utoipa::ToSchema)]
struct PlanBody {
    /// `starter`, `growth`, `pro`
    #[schema(value_type = String, example = "growth")]
    plan: BrokerPlan,
}

/// Change one's plan.
///
/// It is another at once. To or from `pro` the book moves to a database of its own or back,
/// beside the daily work; `broker_mode` changes when it has. What the new plan has no room for is
/// a 409 `plan_too_small`, whose `remove` says what has to go first. Asking again is harmless.
#[utoipa::path(post, path = "/v1/broker/plan", tag = "book", operation_id = "broker_plan",
    request_body = PlanBody, responses((status = 200, body = BrokerView)))]
async fn change_own(
    me: Allowed<actions::BrokerPlan>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<PlanBody>,
) -> Result<Json<BrokerView>, Problem> {
    let broker = change(&state, me.seat.broker_id, body.plan, AskedBy::Broker).await?;
    Ok(Json(broker.into()))
}

/// Put a broker on a plan, as it could itself; a suspended one too.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/plan", tag = "admin",
    operation_id = "admin_broker_plan", params(("id" = u64, Path)), request_body = PlanBody,
    responses((status = 200, body = AdminBrokerView)))]
async fn admin_change(
    _me: Allowed<actions::AdminBrokerPlan>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
    StrictJson(body): StrictJson<PlanBody>,
) -> Result<Json<AdminBrokerView>, Problem> {
    let broker = change(&state, id, body.plan, AskedBy::Platform).await?;
    Ok(Json(broker.into()))
}

async fn change(
    state: &AppState,
    id: BrokerId,
    plan: BrokerPlan,
    by: AskedBy,
) -> Result<Broker, Problem> {
    let (plans, now) = (state.app.plans.clone(), state.clock.now());
    let work = async move { plans.change(id, plan, by, now).await };
    Ok(state.lifecycle.detached(work).await??)
}

impl From<LimitReached> for Problem {
    fn from(reached: LimitReached) -> Self {
        Self::new(Code::PlanLimit)
            .detail(reached.to_string())
            .with("plan", reached.plan.as_str())
            .with("limit", reached.limit.as_str())
            .with("most", reached.most)
            .with("there", reached.there)
            .with("lifted_by", reached.lifted_by().map(BrokerPlan::as_str))
    }
}

impl From<PlanError> for Problem {
    fn from(error: PlanError) -> Self {
        let detail = error.to_string();
        match error {
            PlanError::NoSuchBroker { .. } => Self::new(Code::NotFound),
            PlanError::BeingMade => Self::new(Code::Conflict).detail(detail),
            PlanError::Hindered(hindrance) => hindrance.into(),
            PlanError::DoesNotFit { plan, excess } => {
                let remove: Vec<_> = excess.iter().map(removal).collect();
                Self::new(Code::PlanTooSmall)
                    .detail(detail)
                    .with("plan", plan.as_str())
                    .with("remove", remove)
            }
            PlanError::Overtaken => Self::new(Code::Contended).detail(detail).retry_after(1),
            PlanError::Book(error) => error.into(),
            PlanError::Store(error) => error.into(),
        }
    }
}

fn removal(excess: &Excess) -> serde_json::Value {
    json!({
        "limit": excess.limit,
        "there": excess.there,
        "most": excess.most,
        "how": excess.remove,
    })
}
