//! `/v1/obligations` and `/v1/positions`: who owes whom.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::money::exponent_of;
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::format_minor;
use crate::domain::obligation::ObligationStatus;
use crate::route;
use crate::services::obligations::Obligation;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(read))
        .with(route!(positions))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `pending`, `active`, `settled`, `failed`
    #[param(value_type = Option<String>)]
    status: Option<ObligationStatus>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ObligationView {
    #[schema(value_type = String, example = "OB-0a5bb4c3d2e1")]
    id: ObligationId,
    /// What it comes from: `NR-…`.
    subject: String,
    debtor_broker_id: BrokerId,
    creditor_broker_id: BrokerId,
    currency_code: String,
    amount: String,
    remaining_amount: String,
    /// Promised to a settlement under way.
    reserved_amount: String,
    /// `pending` while its saga runs, `active`, `settled`, `failed`
    #[schema(value_type = String)]
    status: ObligationStatus,
    created_at: DateTime<Utc>,
    #[schema(required)]
    activated_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PositionView {
    counterparty_broker_id: BrokerId,
    currency_code: String,
    /// What the counterparty owes.
    owed: String,
    /// What is owed to it.
    owing: String,
    /// owed less owing.
    net: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PositionsView {
    items: Vec<PositionView>,
}

/// List one's obligations, as debtor and as creditor, newest first.
#[utoipa::path(get, path = "/v1/obligations", tag = "obligations", operation_id = "obligation_list",
    params(ListQuery), responses((status = 200, body = Page<ObligationView>)))]
async fn list(
    me: Allowed<actions::ObligationList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<ObligationView>>, Problem> {
    let page = PageRequest::<Place>::read("obligations", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at, ObligationId::from_bits(id)));
    let found = state
        .app
        .obligations
        .list(me.seat.broker_id, query.status, after, page.fetch())
        .await?;
    let place = |obligation: &Obligation| (obligation.created_at, obligation.id.bits());
    let page = page.page_asking(found, place, |obligation| view(&state, obligation));
    Ok(Json(page.await?))
}

/// Read an obligation that one is a party of.
#[utoipa::path(get, path = "/v1/obligations/{id}", tag = "obligations", operation_id = "obligation_read",
    params(("id" = String, Path)), responses((status = 200, body = ObligationView)))]
async fn read(
    me: Allowed<actions::ObligationRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<ObligationId>,
) -> Result<Json<ObligationView>, Problem> {
    let obligations = &state.app.obligations;
    let found = obligations.obligation(me.seat.broker_id, id).await?;
    let obligation = found.ok_or_else(|| Problem::new(Code::NotFound))?;
    Ok(Json(view(&state, obligation).await?))
}

/// What one owes and is owed, per counterparty and currency.
#[utoipa::path(get, path = "/v1/positions", tag = "obligations", operation_id = "positions",
    responses((status = 200, body = PositionsView)))]
async fn positions(
    me: Allowed<actions::PositionRead>,
    State(state): State<AppState>,
) -> Result<Json<PositionsView>, Problem> {
    let found = state.app.obligations.positions(me.seat.broker_id).await?;
    let mut items = Vec::with_capacity(found.len());
    for position in found {
        let exponent = exponent_of(&state, &position.currency_code).await?;
        let net = i128::from(position.owed) - i128::from(position.owing);
        items.push(PositionView {
            counterparty_broker_id: position.counterparty,
            owed: format_minor(position.owed.into(), exponent),
            owing: format_minor(position.owing.into(), exponent),
            net: format_minor(net, exponent),
            currency_code: position.currency_code,
        });
    }
    Ok(Json(PositionsView { items }))
}

async fn view(state: &AppState, obligation: Obligation) -> Result<ObligationView, Problem> {
    let exponent = exponent_of(state, &obligation.currency).await?;
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    Ok(ObligationView {
        id: obligation.id,
        subject: obligation.subject,
        debtor_broker_id: obligation.debtor,
        creditor_broker_id: obligation.creditor,
        currency_code: obligation.currency,
        amount: money(obligation.amount),
        remaining_amount: money(obligation.remaining_amount),
        reserved_amount: money(obligation.reserved_amount),
        status: obligation.status,
        created_at: obligation.created_at,
        activated_at: obligation.activated_at,
    })
}
