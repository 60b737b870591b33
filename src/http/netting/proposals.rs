//! `/v1/netting/proposals`: what two brokers propose to each other.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Money;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, NettingProposalId};
use crate::domain::moment::Moment;
use crate::domain::netting_proposal::{Act, Proposal, ProposalStatus};
use crate::http::guard::Allowed;
use crate::http::idempotency::IdempotencyKey;
use crate::http::json::StrictJson;
use crate::http::paging::{Page, PageRequest, Place};
use crate::http::params::{PathOf, QueryOf};
use crate::http::problem::Problem;
use crate::http::requests::actor;
use crate::http::routes::Routes;
use crate::http::state::AppState;
use crate::route;
use crate::services::netting::NewProposal;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(propose))
        .with(route!(list))
        .with(route!(read))
        .with(route!(approve))
        .with(route!(decline))
        .with(route!(cancel))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct ProposeBody {
    counterparty_broker_id: BrokerId,
    #[schema(example = "USD")]
    currency_code: String,
    /// No more than this is netted of each side's debts. As much as both owe where it is left out.
    #[schema(example = "7000.00")]
    amount: Option<String>,
    /// At most 90 days ahead; a week where it is left out and the network's operator has not set
    /// another time.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-12-31T12:00:00Z")]
    expires_at: Option<Moment>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `proposed`, `applied`, `declined`, `cancelled`, `expired`
    #[param(value_type = Option<String>)]
    status: Option<ProposalStatus>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct NettingProposalView {
    #[schema(value_type = String, example = "NP-0a5bb4c3d2e1")]
    id: NettingProposalId,
    proposer_broker_id: BrokerId,
    counterparty_broker_id: BrokerId,
    currency_code: String,
    /// The most that is netted, where the proposal says so.
    #[schema(required)]
    amount: Option<String>,
    /// `proposed`, `applied`, `declined`, `cancelled`, `expired`
    #[schema(value_type = String)]
    status: ProposalStatus,
    /// By how much each side's debts have fallen, once it is applied.
    #[schema(required)]
    netted_amount: Option<String>,
    /// What it means, in words.
    effect: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    #[schema(required)]
    ended_at: Option<DateTime<Utc>>,
}

/// Propose to another broker to net what both owe each other.
///
/// Nothing changes before the other approves. Of each side's obligations only what no settlement
/// under way has reserved is netted, oldest first; nobody's net position moves.
#[utoipa::path(post, path = "/v1/netting/proposals", tag = "netting",
    operation_id = "netting_propose",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = ProposeBody, responses((status = 201, body = NettingProposalView)))]
async fn propose(
    me: Allowed<actions::NettingPropose>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<ProposeBody>,
) -> Result<(StatusCode, Json<NettingProposalView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let new = NewProposal {
        counterparty: body.counterparty_broker_id,
        currency_code: body.currency_code,
        amount: body.amount,
        expires_at: body.expires_at.map(Moment::at),
    };
    let me_as = actor(&me.principal, me.seat);
    let made = state.app.netting.propose_to(&me_as, intention, new).await?;
    Ok((StatusCode::CREATED, Json(view(&state, made).await?)))
}

/// List what one has proposed and what was proposed to one, newest first.
#[utoipa::path(get, path = "/v1/netting/proposals", tag = "netting",
    operation_id = "netting_proposal_list", params(ListQuery),
    responses((status = 200, body = Page<NettingProposalView>)))]
async fn list(
    me: Allowed<actions::NettingList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<NettingProposalView>>, Problem> {
    let cursor = query.cursor.as_deref();
    let page = PageRequest::<Place>::read("netting_proposals", query.limit, cursor)?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), NettingProposalId::from_bits(id)));
    let netting = &state.app.netting;
    let found = netting
        .proposals(me.seat.broker_id, query.status, after, page.fetch())
        .await?;
    let place = |proposal: &Proposal| (proposal.created_at.into(), proposal.id.bits());
    // What both owe now is told of one proposal alone: it is a sum over their obligations.
    let page = page.page_asking(found, place, |proposal| shown(&state, proposal, None));
    Ok(Json(page.await?))
}

/// Read a proposal that one is a party of, with what both owe each other now.
#[utoipa::path(get, path = "/v1/netting/proposals/{id}", tag = "netting",
    operation_id = "netting_proposal_read", params(("id" = String, Path)),
    responses((status = 200, body = NettingProposalView)))]
async fn read(
    me: Allowed<actions::NettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingProposalId>,
) -> Result<Json<NettingProposalView>, Problem> {
    let found = state.app.netting.proposal(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, found).await?))
}

/// Approve a proposal: both sides' debts fall at once.
#[utoipa::path(post, path = "/v1/netting/proposals/{id}/approve", tag = "netting",
    operation_id = "netting_proposal_approve", params(("id" = String, Path)),
    responses((status = 200, body = NettingProposalView)))]
async fn approve(
    me: Allowed<actions::NettingDecide>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingProposalId>,
) -> Result<Json<NettingProposalView>, Problem> {
    act_on(&state, &me, id, Act::Approve).await
}

/// Decline a proposal.
#[utoipa::path(post, path = "/v1/netting/proposals/{id}/decline", tag = "netting",
    operation_id = "netting_proposal_decline", params(("id" = String, Path)),
    responses((status = 200, body = NettingProposalView)))]
async fn decline(
    me: Allowed<actions::NettingDecide>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingProposalId>,
) -> Result<Json<NettingProposalView>, Problem> {
    act_on(&state, &me, id, Act::Decline).await
}

/// Take back a proposal of one's own.
#[utoipa::path(post, path = "/v1/netting/proposals/{id}/cancel", tag = "netting",
    operation_id = "netting_proposal_cancel", params(("id" = String, Path)),
    responses((status = 200, body = NettingProposalView)))]
async fn cancel(
    me: Allowed<actions::NettingDecide>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingProposalId>,
) -> Result<Json<NettingProposalView>, Problem> {
    act_on(&state, &me, id, Act::Cancel).await
}

async fn act_on(
    state: &AppState,
    me: &Allowed<actions::NettingDecide>,
    id: NettingProposalId,
    act: Act,
) -> Result<Json<NettingProposalView>, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let done = state.app.netting.act_on(&me_as, id, act).await?;
    Ok(Json(view(state, done).await?))
}

async fn view(state: &AppState, proposal: Proposal) -> Result<NettingProposalView, Problem> {
    let both = state.app.netting.owed_both_ways(&proposal).await?;
    shown(state, proposal, both).await
}

async fn shown(
    state: &AppState,
    proposal: Proposal,
    both: Option<u64>,
) -> Result<NettingProposalView, Problem> {
    let money = Money::of(state, &proposal.currency).await?;
    let amount = |minor: u64| money.amount(minor.into());
    Ok(NettingProposalView {
        id: proposal.id,
        proposer_broker_id: proposal.proposer,
        counterparty_broker_id: proposal.counterparty,
        currency_code: proposal.currency.to_string(),
        amount: proposal.most.map(amount),
        status: proposal.status,
        netted_amount: proposal.netted.map(amount),
        effect: proposal.in_words(|minor| money.amount_words(minor.into()), both),
        created_at: proposal.created_at,
        expires_at: proposal.expires_at,
        ended_at: proposal.ended_at,
    })
}
