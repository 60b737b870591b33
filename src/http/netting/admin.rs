//! `/v1/admin/netting`: rounds as the network's admins see them.

use axum::Json;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Money;
use super::rounds::ListQuery;
use crate::domain::access::actions;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, NettingRoundId};
use crate::domain::moment::Moment;
use crate::domain::netting_round::{Party, PartyState, Round, RoundStatus, Sums};
use crate::http::chain::NDJSON;
use crate::http::guard::Allowed;
use crate::http::idempotency::IdempotencyKey;
use crate::http::json::StrictJson;
use crate::http::paging::{Page, PageRequest, Place};
use crate::http::params::{PathOf, QueryOf};
use crate::http::problem::Problem;
use crate::http::routes::Routes;
use crate::http::state::AppState;
use crate::route;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(propose))
        .with(route!(list))
        .with(route!(read))
        .with(route!(parties))
        .with(route!(cancel))
        .with(route!(certificate))
        .with(route!(preview))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct ProposeRoundBody {
    #[schema(example = "USD")]
    currency_code: String,
    /// At most 90 days ahead; three days where it is left out and the configuration has no other
    /// time.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-12-31T12:00:00Z")]
    expires_at: Option<Moment>,
}

/// What clearing comes to, beside what there is to compare it with.
#[derive(Serialize, utoipa::ToSchema)]
struct ClearingView {
    obligations: u64,
    /// All that is free of them.
    total: String,
    cleared: String,
    /// What netting between each two brokers alone would clear.
    bilateral: String,
    /// What no clearing can exceed: the total less half of all net positions without their signs.
    bound: String,
    /// Over the obligations, as the certificate has it.
    #[schema(value_type = String)]
    root: Hash,
}

/// How many brokers are in which state.
#[derive(Default, Serialize, utoipa::ToSchema)]
struct AnswersView {
    asked: u64,
    approved: u64,
    declined: u64,
    /// Not touched any more.
    dropped: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
struct AdminRoundView {
    #[schema(value_type = String, example = "MN-0a5bb4c3d2e1")]
    id: NettingRoundId,
    currency_code: String,
    /// `proposed`, `recomputing`, `approved`, `applied`, `failed`, `cancelled`, `expired`
    #[schema(value_type = String)]
    status: RoundStatus,
    /// How often it was worked out.
    revision: u32,
    clearing: ClearingView,
    /// In lists, none.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<AnswersView>,
    proposed_by: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    #[schema(required)]
    ended_by: Option<String>,
    #[schema(required)]
    ended_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PartyView {
    broker_id: BrokerId,
    /// `asked`, `approved`, `declined`, `dropped`
    #[schema(value_type = String)]
    state: PartyState,
    /// Approved by the broker's setting.
    auto: bool,
    /// By how much its debts fall, and its claims.
    fall: String,
    #[schema(required)]
    answered_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct CertificateQuery {
    /// An earlier one than the present.
    revision: Option<u32>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct PreviewQuery {
    /// As `USD`.
    currency_code: String,
    /// A broker: how much less would be cleared without it.
    without: Option<BrokerId>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct AdminPreviewView {
    currency_code: String,
    /// Whether enough brokers are active for a round to be proposed.
    offered: bool,
    active_brokers: u64,
    needed_brokers: u64,
    /// Brokers that a round would touch.
    touched_brokers: u64,
    clearing: ClearingView,
    #[serde(skip_serializing_if = "Option::is_none")]
    without: Option<WithoutView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct WithoutView {
    broker_id: BrokerId,
    cleared: String,
    /// What the broker's taking part adds.
    adds: String,
}

/// Propose a round in a currency: the largest that there can be.
///
/// Each broker that it touches is asked; whoever has auto-approve on has approved. It is offered
/// once enough brokers are active (`too_few_brokers`), one at a time in a currency (`round_open`).
#[utoipa::path(post, path = "/v1/admin/netting/rounds", tag = "admin",
    operation_id = "admin_netting_propose",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = ProposeRoundBody, responses((status = 201, body = AdminRoundView)))]
async fn propose(
    me: Allowed<actions::AdminNettingPropose>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<ProposeRoundBody>,
) -> Result<(StatusCode, Json<AdminRoundView>), Problem> {
    let by = me.principal.sub();
    let intention = key.intention(by, &body);
    let expires_at = body.expires_at.map(Moment::at);
    let netting = &state.app.netting;
    let round = netting
        .propose_round(Some(intention), &body.currency_code, expires_at, by)
        .await?;
    Ok((StatusCode::CREATED, counted(&state, round.id).await?))
}

/// List rounds, newest first.
#[utoipa::path(get, path = "/v1/admin/netting/rounds", tag = "admin",
    operation_id = "admin_netting_list", params(ListQuery),
    responses((status = 200, body = Page<AdminRoundView>)))]
async fn list(
    _me: Allowed<actions::AdminNettingList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<AdminRoundView>>, Problem> {
    let cursor = query.cursor.as_deref();
    let page = PageRequest::<Place>::read("admin_netting_rounds", query.limit, cursor)?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), NettingRoundId::from_bits(id)));
    let found = state.app.netting.rounds(after, page.fetch()).await?;
    let place = |round: &Round| (round.created_at.into(), round.id.bits());
    let page = page.page_asking(found, place, |round| view(&state, round, None));
    Ok(Json(page.await?))
}

/// Read a round, with how many have answered what.
#[utoipa::path(get, path = "/v1/admin/netting/rounds/{id}", tag = "admin",
    operation_id = "admin_netting_read", params(("id" = String, Path)),
    responses((status = 200, body = AdminRoundView)))]
async fn read(
    _me: Allowed<actions::AdminNettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
) -> Result<Json<AdminRoundView>, Problem> {
    counted(&state, id).await
}

/// List the brokers that a round touches or has touched, by number.
#[utoipa::path(get, path = "/v1/admin/netting/rounds/{id}/parties", tag = "admin",
    operation_id = "admin_netting_parties", params(("id" = String, Path), ListQuery),
    responses((status = 200, body = Page<PartyView>)))]
async fn parties(
    _me: Allowed<actions::AdminNettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<PartyView>>, Problem> {
    let cursor = query.cursor.as_deref();
    let page = PageRequest::<BrokerId>::read("netting_parties", query.limit, cursor)?;
    let netting = &state.app.netting;
    let found = netting.parties(id, page.after, page.fetch()).await?;
    let round = netting.round(id).await?;
    let money = Money::of(&state, &round.currency).await?;
    let show = |party: Party| PartyView {
        broker_id: party.broker,
        state: party.state,
        auto: party.auto,
        fall: money.amount(party.fall),
        answered_at: party.answered_at,
    };
    Ok(Json(page.page(found, |party| party.broker, show)))
}

/// End a round that has not been applied.
#[utoipa::path(post, path = "/v1/admin/netting/rounds/{id}/cancel", tag = "admin",
    operation_id = "admin_netting_cancel", params(("id" = String, Path)),
    responses((status = 200, body = AdminRoundView)))]
async fn cancel(
    me: Allowed<actions::AdminNettingCancel>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
) -> Result<Json<AdminRoundView>, Problem> {
    let netting = &state.app.netting;
    netting.cancel_round(id, me.principal.sub()).await?;
    counted(&state, id).await
}

/// Download the certificate of a round, for `settlenet verify netting`.
#[utoipa::path(get, path = "/v1/admin/netting/rounds/{id}/certificate", tag = "admin",
    operation_id = "admin_netting_certificate", params(("id" = String, Path), CertificateQuery),
    responses((status = 200, body = String, content_type = "application/x-ndjson")))]
async fn certificate(
    _me: Allowed<actions::AdminNettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
    QueryOf(query): QueryOf<CertificateQuery>,
) -> Result<Response, Problem> {
    let bytes = state.app.netting.certificate(id, query.revision).await?;
    let mut response = bytes.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, NDJSON);
    if let Ok(named) = HeaderValue::from_str(&format!("attachment; filename=\"{id}.netting\"")) {
        headers.insert(CONTENT_DISPOSITION, named);
    }
    Ok(response)
}

/// What a round would clear, if one were made now.
#[utoipa::path(get, path = "/v1/admin/netting/preview", tag = "admin",
    operation_id = "admin_netting_preview", params(PreviewQuery),
    responses((status = 200, body = AdminPreviewView)))]
async fn preview(
    _me: Allowed<actions::AdminNettingRead>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<PreviewQuery>,
) -> Result<Json<AdminPreviewView>, Problem> {
    let netting = &state.app.netting;
    let asked = netting.preview(&query.currency_code, query.without);
    let (found, joining) = asked.await?;
    let money = Money::of(&state, &found.currency.code).await?;
    Ok(Json(AdminPreviewView {
        currency_code: found.currency.code.to_string(),
        offered: found.active >= found.needed,
        active_brokers: found.active,
        needed_brokers: found.needed,
        touched_brokers: found.falls.len() as u64,
        clearing: ClearingView::of(&found.sums, &money),
        without: joining.map(|joining| WithoutView {
            broker_id: joining.broker,
            cleared: money.amount(joining.cleared_without),
            adds: money.amount(joining.adds),
        }),
    }))
}

async fn counted(state: &AppState, id: NettingRoundId) -> Result<Json<AdminRoundView>, Problem> {
    let (round, counts) = state.app.netting.round_counted(id).await?;
    let mut answers = AnswersView::default();
    for (state, count) in counts {
        match state {
            PartyState::Asked => answers.asked = count,
            PartyState::Approved => answers.approved = count,
            PartyState::Declined => answers.declined = count,
            PartyState::Dropped => answers.dropped = count,
        }
    }
    Ok(Json(view(state, round, Some(answers)).await?))
}

async fn view(
    state: &AppState,
    round: Round,
    answers: Option<AnswersView>,
) -> Result<AdminRoundView, Problem> {
    let money = Money::of(state, &round.currency).await?;
    Ok(AdminRoundView {
        id: round.id,
        currency_code: round.currency.to_string(),
        status: round.status,
        revision: round.revision,
        clearing: ClearingView::of(&round.sums, &money),
        answers,
        proposed_by: round.proposed_by,
        created_at: round.created_at,
        expires_at: round.expires_at,
        ended_by: round.ended_by,
        ended_at: round.ended_at,
    })
}

impl ClearingView {
    fn of(sums: &Sums, money: &Money) -> Self {
        Self {
            obligations: sums.obligations,
            total: money.amount(sums.total),
            cleared: money.amount(sums.cleared),
            bilateral: money.amount(sums.bilateral),
            bound: money.amount(sums.bound),
            root: sums.root,
        }
    }
}
