//! `/v1/admin/psp/incoming`: money that came in for nobody.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::guard::Allowed;
use super::json::StrictJson;
use super::money::exponent_of;
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use super::wallets::named_wallet;
use crate::domain::access::actions;
use crate::domain::moment::Moment;
use crate::domain::money::format_minor;
use crate::domain::payment::PspName;
use crate::domain::payment::incoming::IncomingStatus;
use crate::route;
use crate::services::payments::Incoming;

pub fn routes() -> Routes {
    Routes::new().with(route!(list)).with(route!(assign))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct AssignBody {
    #[schema(example = "merchant.7.THB")]
    wallet: String,
    /// How it was found out whose it is: 1 to 500 characters.
    reason: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct IncomingView {
    id: Uuid,
    #[schema(value_type = String)]
    psp_name: PspName,
    /// The provider's name for it.
    payment_id: String,
    /// What the payer was given to name.
    reference: String,
    /// The top-up that it was for.
    #[schema(required)]
    intent_id: Option<Uuid>,
    currency_code: String,
    amount: String,
    paid_at: DateTime<Utc>,
    /// `waiting`, `credited`, `suspense`, `unknown`, `assigned`
    #[schema(value_type = String)]
    status: IncomingStatus,
    /// Whom it was given to.
    #[schema(required)]
    wallet: Option<String>,
    #[schema(required)]
    reason: Option<String>,
    #[schema(required)]
    resolved_by: Option<String>,
    /// Since when what the provider says of it is not what its top-up was credited: nobody moves it.
    #[schema(required)]
    disputed_at: Option<DateTime<Utc>>,
    /// What the last try to move it came to.
    #[schema(required)]
    last_error: Option<String>,
    /// How often the provider has told of it.
    deliveries: u32,
    received_at: DateTime<Utc>,
}

/// List the payments that came in and that nobody has yet, the oldest first.
#[utoipa::path(get, path = "/v1/admin/psp/incoming", tag = "admin",
    operation_id = "admin_incoming_list", params(ListQuery),
    responses((status = 200, body = Page<IncomingView>)))]
async fn list(
    _me: Allowed<actions::AdminIncomingList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<IncomingView>>, Problem> {
    let page =
        PageRequest::<(Moment, Uuid)>::read("incoming", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let found = state.app.payments.incoming(after, page.fetch()).await?;
    let place = |incoming: &Incoming| (incoming.received_at.into(), incoming.id);
    let page = page.page_asking(found, place, |incoming| view(&state, incoming));
    Ok(Json(page.await?))
}

/// Give a payment that came in for nobody to a wallet.
///
/// The same again changes nothing.
#[utoipa::path(post, path = "/v1/admin/psp/incoming/{id}/assign", tag = "admin",
    operation_id = "admin_incoming_assign", params(("id" = String, Path)),
    request_body = AssignBody, responses((status = 200, body = IncomingView)))]
async fn assign(
    me: Allowed<actions::AdminIncomingAssign>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
    StrictJson(body): StrictJson<AssignBody>,
) -> Result<Json<IncomingView>, Problem> {
    let wallet = named_wallet(&body.wallet)?;
    let payments = &state.app.payments;
    let by = me.principal.sub();
    let assigned = payments.assign(id, &wallet, &body.reason, by).await?;
    Ok(Json(view(&state, assigned).await?))
}

async fn view(state: &AppState, incoming: Incoming) -> Result<IncomingView, Problem> {
    let exponent = exponent_of(state, incoming.currency.as_str()).await?;
    Ok(IncomingView {
        id: incoming.id,
        psp_name: incoming.psp,
        payment_id: incoming.payment_id,
        reference: incoming.reference,
        intent_id: incoming.intent,
        currency_code: incoming.currency.to_string(),
        amount: format_minor(incoming.amount.into(), exponent),
        paid_at: incoming.paid_at,
        status: incoming.status,
        wallet: incoming.wallet.map(|wallet| wallet.to_string()),
        reason: incoming.reason,
        resolved_by: incoming.resolved_by,
        disputed_at: incoming.disputed_at,
        last_error: incoming.last_error,
        deliveries: incoming.deliveries,
        received_at: incoming.received_at,
    })
}
