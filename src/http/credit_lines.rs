//! `/v1/credit-lines`: what one lets others owe, and is let owe by them.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::json::StrictJson;
use super::money::{currency_named, exponent_of};
use super::params::PathOf;
use super::problem::Problem;
use super::requests::actor;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::BrokerId;
use crate::domain::money::{format_minor, limit_of};
use crate::route;
use crate::services::credit_lines::{CreditLine, CreditLineError};

pub fn routes() -> Routes {
    Routes::new().with(route!(list)).with(route!(set))
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreditLineView {
    creditor_broker_id: BrokerId,
    debtor_broker_id: BrokerId,
    currency_code: String,
    /// Decimal string in major units.
    limit: String,
    /// What remains of the debtor's obligations, and what requests and orders under way will add.
    used: String,
    /// Zero where more is used than the limit.
    free: String,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreditLinesView {
    items: Vec<CreditLineView>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct SetBody {
    /// Decimal string in major units; `"0"`: nothing new may be owed; null: no bound.
    #[schema(required, example = "50000.00")]
    // Not left out: a bound is lifted by saying so.
    #[serde(deserialize_with = "Option::deserialize")]
    limit: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SetView {
    /// Null where there is no bound.
    #[schema(required)]
    line: Option<CreditLineView>,
}

/// The lines that one gives and is given, with what is used of each.
#[utoipa::path(get, path = "/v1/credit-lines", tag = "obligations", operation_id = "credit_line_list",
    responses((status = 200, body = CreditLinesView)))]
async fn list(
    me: Allowed<actions::CreditLineList>,
    State(state): State<AppState>,
) -> Result<Json<CreditLinesView>, Problem> {
    let found = state.app.credit_lines.of_broker(me.seat.broker_id).await?;
    let mut items = Vec::with_capacity(found.len());
    for line in found {
        items.push(view(&state, line).await?);
    }
    Ok(Json(CreditLinesView { items }))
}

/// Let another broker owe one no more than a limit. What it owes already stays.
///
/// From then on whatever would leave it owing more is not accepted: 409 `credit_short`.
#[utoipa::path(put, path = "/v1/credit-lines/{debtor_broker_id}/{currency_code}", tag = "obligations",
    operation_id = "credit_line_set",
    params(("debtor_broker_id" = u64, Path), ("currency_code" = String, Path)),
    request_body = SetBody, responses((status = 200, body = SetView)))]
async fn set(
    me: Allowed<actions::CreditLineSet>,
    State(state): State<AppState>,
    PathOf((debtor, code)): PathOf<(BrokerId, String)>,
    StrictJson(body): StrictJson<SetBody>,
) -> Result<Json<SetView>, Problem> {
    let currency = currency_named(&state, "currency_code", &code).await?;
    let limit = body
        .limit
        .map(|text| limit_of(&text, &currency))
        .transpose()
        .map_err(|error| Problem::invalid("limit", error.to_string()))?;
    let me_as = actor(&me.principal, me.seat);
    let lines = &state.app.credit_lines;
    let line = match lines.set(&me_as, debtor, &currency, limit).await? {
        Some(line) => Some(view(&state, line).await?),
        None => None,
    };
    Ok(Json(SetView { line }))
}

async fn view(state: &AppState, line: CreditLine) -> Result<CreditLineView, Problem> {
    let exponent = exponent_of(state, &line.currency_code).await?;
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    Ok(CreditLineView {
        creditor_broker_id: line.creditor,
        debtor_broker_id: line.debtor,
        limit: money(line.limit_amount),
        used: money(line.used_amount),
        free: money(line.free_amount()),
        currency_code: line.currency_code,
        updated_at: line.updated_at,
    })
}

impl From<CreditLineError> for Problem {
    fn from(error: CreditLineError) -> Self {
        match error {
            CreditLineError::Field(field) => Self::invalid(field.field, field.rule),
            CreditLineError::Store(error) => error.into(),
            CreditLineError::BrokeOff(error) => error.into(),
        }
    }
}
