//! `/v1/disputes`: what a side says and does in a dispute; and `/v1/arbiter`: what an arbiter sees of
//! one, and decides.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::guard::Allowed;
use super::json::{StrictJson, objects};
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::Problem;
use super::requests::{actor, bounded};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::money::format_minor;
use crate::domain::proof::Proof;
use crate::domain::request::{CaseStatus, Verdict};
use crate::route;
use crate::services::network::{Dispute, DisputeFilter, Evidence, Judgment, Said};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list_own))
        .with(route!(state_it))
        .with(route!(appeal))
        .with(route!(withdraw))
        .with(route!(list))
        .with(route!(evidence))
        .with(route!(assign))
        .with(route!(ask))
        .with(route!(decide))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `open`, `heard`, `decided`, `over`
    #[param(value_type = Option<String>)]
    status: Option<CaseStatus>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct DisputeView {
    /// The request or order that is disputed.
    #[schema(value_type = String, example = "NR-0a5bb4c3d2e1")]
    id: RequestId,
    /// `open`, `heard` by an arbiter, `decided` and not final or not done, `over`
    #[schema(value_type = String)]
    status: CaseStatus,
    opened_by_broker_id: BrokerId,
    against_broker_id: BrokerId,
    /// Who hears it.
    #[schema(required)]
    arbiter: Option<String>,
    /// When silence decides it against whoever has to answer; once it is decided, when that is final.
    #[schema(required)]
    due_at: Option<DateTime<Utc>>,
    opened_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl From<Dispute> for DisputeView {
    fn from(dispute: Dispute) -> Self {
        Self {
            id: dispute.request,
            status: dispute.status,
            opened_by_broker_id: dispute.opened_by,
            against_broker_id: dispute.against,
            arbiter: dispute.arbiter,
            due_at: dispute.due_at,
            opened_at: dispute.opened_at,
            updated_at: dispute.updated_at,
        }
    }
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct StatementBody {
    /// 1 to 4000 characters.
    text: String,
    /// At most 10 proofs, as of a `sent`.
    #[schema(value_type = Vec<serde_json::Value>)]
    #[serde(default, deserialize_with = "objects")]
    proof: Vec<Proof>,
}

impl StatementBody {
    fn said(self) -> Result<Said, Problem> {
        bounded("text", &self.text, 4_000)?;
        Ok(Said {
            text: self.text,
            proofs: self.proof,
        })
    }
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct AskBody {
    /// Who is asked.
    broker_id: BrokerId,
    /// 1 to 4000 characters.
    text: String,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct DecideBody {
    /// `complete`: as it was agreed; `cancel`: nothing of it counts; `adjust`: the `amount` counts.
    #[schema(value_type = String)]
    verdict: Verdict,
    /// Of an adjustment: a decimal string in major units, less than what was agreed.
    amount: Option<String>,
    /// 1 to 4000 characters.
    reason: String,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct EvidenceView {
    dispute: DisputeView,
    author_broker_id: BrokerId,
    #[schema(required)]
    counterparty_broker_id: Option<BrokerId>,
    currency_code: String,
    amount: String,
    /// What was agreed, in words.
    terms: Vec<String>,
    /// All of the request's hash-chained events, with what stands beside them.
    #[schema(value_type = Vec<Value>)]
    events: Vec<Value>,
    /// What both books have booked of it, in the form of an exported chain; `entries` is null where a
    /// book can't be read now.
    #[schema(value_type = Vec<Value>)]
    books: Vec<Value>,
}

/// List the disputes that one is a side of, those opened last first.
#[utoipa::path(get, path = "/v1/disputes", tag = "disputes", operation_id = "dispute_list",
    params(ListQuery), responses((status = 200, body = Page<DisputeView>)))]
async fn list_own(
    me: Allowed<actions::DisputeList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<DisputeView>>, Problem> {
    page(&state, query, Some(me.seat.broker_id)).await
}

/// Say something in a dispute, with or without proof. It is one's answer, where one owes it.
#[utoipa::path(post, path = "/v1/disputes/{id}/statements", tag = "disputes",
    operation_id = "dispute_state", params(("id" = String, Path)), request_body = StatementBody,
    responses((status = 200, body = DisputeView)))]
async fn state_it(
    me: Allowed<actions::DisputeAct>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
    StrictJson(body): StrictJson<StatementBody>,
) -> Result<Json<DisputeView>, Problem> {
    let said = body.said()?;
    let me_as = actor(&me.principal, me.seat);
    state.app.network.state(&me_as, id, said).await?;
    view(&state, id).await
}

/// Appeal a decision that is not final: another arbiter hears the dispute. There is no second appeal.
#[utoipa::path(post, path = "/v1/disputes/{id}/appeal", tag = "disputes",
    operation_id = "dispute_appeal", params(("id" = String, Path)), request_body = StatementBody,
    responses((status = 200, body = DisputeView)))]
async fn appeal(
    me: Allowed<actions::DisputeAct>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
    StrictJson(body): StrictJson<StatementBody>,
) -> Result<Json<DisputeView>, Problem> {
    let said = body.said()?;
    let me_as = actor(&me.principal, me.seat);
    state.app.network.appeal(&me_as, id, said).await?;
    view(&state, id).await
}

/// Withdraw a dispute of one's own before it is decided: all is as it was before.
#[utoipa::path(post, path = "/v1/disputes/{id}/withdraw", tag = "disputes",
    operation_id = "dispute_withdraw", params(("id" = String, Path)),
    responses((status = 200, body = DisputeView)))]
async fn withdraw(
    me: Allowed<actions::DisputeAct>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
) -> Result<Json<DisputeView>, Problem> {
    let me_as = actor(&me.principal, me.seat);
    state.app.network.withdraw_dispute(&me_as, id).await?;
    view(&state, id).await
}

/// List disputes, those opened last first.
#[utoipa::path(get, path = "/v1/arbiter/disputes", tag = "arbiter", operation_id = "arbiter_dispute_list",
    params(ListQuery), responses((status = 200, body = Page<DisputeView>)))]
async fn list(
    _me: Allowed<actions::ArbiterDisputeList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<DisputeView>>, Problem> {
    page(&state, query, None).await
}

/// Read what there is of a disputed request: its terms, its events, and what both books have booked of
/// it. Nothing else of the books is shown.
#[utoipa::path(get, path = "/v1/arbiter/disputes/{id}", tag = "arbiter",
    operation_id = "arbiter_dispute_read", params(("id" = String, Path)),
    responses((status = 200, body = EvidenceView)))]
async fn evidence(
    me: Allowed<actions::ArbiterDisputeRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
) -> Result<Json<EvidenceView>, Problem> {
    evidence_of(&state, me.principal.sub(), id).await
}

/// What there is of a disputed request, for an arbiter who may see it.
pub(super) async fn evidence_of(
    state: &AppState,
    arbiter: &str,
    id: RequestId,
) -> Result<Json<EvidenceView>, Problem> {
    let found = state.app.network.evidence(arbiter, id).await?;
    let currency = state.app.currencies.get(&found.request.currency).await?;
    let exponent = currency.map_or(0, |currency| currency.exponent);
    Ok(Json(shown(found, exponent)))
}

/// Take a dispute. An appeal is heard by another arbiter than before.
#[utoipa::path(post, path = "/v1/arbiter/disputes/{id}/assign", tag = "arbiter",
    operation_id = "arbiter_dispute_assign", params(("id" = String, Path)),
    responses((status = 200, body = DisputeView)))]
async fn assign(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
) -> Result<Json<DisputeView>, Problem> {
    let network = &state.app.network;
    network.assign_dispute(me.principal.sub(), id).await?;
    view(&state, id).await
}

/// Ask one side for evidence. Three days without an answer, and the dispute is decided against it.
#[utoipa::path(post, path = "/v1/arbiter/disputes/{id}/ask", tag = "arbiter",
    operation_id = "arbiter_dispute_ask", params(("id" = String, Path)), request_body = AskBody,
    responses((status = 200, body = DisputeView)))]
async fn ask(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
    StrictJson(body): StrictJson<AskBody>,
) -> Result<Json<DisputeView>, Problem> {
    bounded("text", &body.text, 4_000)?;
    let network = &state.app.network;
    let arbiter = me.principal.sub();
    network.ask(arbiter, id, body.broker_id, &body.text).await?;
    view(&state, id).await
}

/// Decide a dispute that one hears. What follows from it is done once the decision is final.
#[utoipa::path(post, path = "/v1/arbiter/disputes/{id}/decide", tag = "arbiter",
    operation_id = "arbiter_dispute_decide", params(("id" = String, Path)), request_body = DecideBody,
    responses((status = 200, body = DisputeView)))]
async fn decide(
    me: Allowed<actions::ArbiterDisputeHear>,
    State(state): State<AppState>,
    PathOf(id): PathOf<RequestId>,
    StrictJson(body): StrictJson<DecideBody>,
) -> Result<Json<DisputeView>, Problem> {
    bounded("reason", &body.reason, 4_000)?;
    let judgment = Judgment {
        verdict: body.verdict,
        amount: body.amount,
        reason: body.reason,
    };
    let network = &state.app.network;
    network.decide(me.principal.sub(), id, &judgment).await?;
    view(&state, id).await
}

async fn page(
    state: &AppState,
    query: ListQuery,
    broker: Option<BrokerId>,
) -> Result<Json<Page<DisputeView>>, Problem> {
    let page = PageRequest::<Place>::read("disputes", query.limit, query.cursor.as_deref())?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), RequestId::from_bits(id)));
    let filter = DisputeFilter {
        status: query.status,
        broker,
    };
    let network = &state.app.network;
    let found = network.disputes(filter, after, page.fetch()).await?;
    let place = |dispute: &Dispute| (dispute.opened_at.into(), dispute.request.bits());
    Ok(Json(page.page(found, place, DisputeView::from)))
}

async fn view(state: &AppState, id: RequestId) -> Result<Json<DisputeView>, Problem> {
    Ok(Json(state.app.network.dispute(id).await?.into()))
}

fn shown(found: Evidence, exponent: u8) -> EvidenceView {
    let request = &found.request;
    let events = found.events.iter().map(|(event, hash): &(_, Hash)| {
        json!({
            "seq": event.seq, "kind": event.kind, "actor_broker_id": event.actor_broker,
            "actor": event.actor, "at": event.at, "payload": event.payload,
            "private": event.private, "prev_hash": event.prev_hash, "event_hash": hash,
        })
    });
    let books = found.entries.iter().map(|(broker, entries)| {
        let entries = entries.as_ref().map(|entries| {
            let entry = |stored: &crate::services::books::StoredEntry| {
                json!({
                    "entry": stored.entry.canonical(), "tx_hash": stored.tx_hash,
                })
            };
            entries.iter().map(entry).collect::<Vec<_>>()
        });
        json!({ "broker_id": broker, "entries": entries })
    });
    EvidenceView {
        author_broker_id: request.author,
        counterparty_broker_id: request.target,
        currency_code: request.currency.to_string(),
        amount: format_minor(request.amount.minor().into(), exponent),
        terms: request.terms_in_words(exponent),
        events: events.collect(),
        books: books.collect(),
        dispute: found.dispute.into(),
    }
}
