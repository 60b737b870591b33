//! `/v1/netting/rounds`, `/v1/netting/settings` and `/v1/netting/preview`: what rounds over the
//! network mean to one broker. Nothing here tells of any other.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Money;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, NettingRoundId, ObligationId};
use crate::domain::netting::certificate::Line;
use crate::domain::netting_round::{Answer, Party, PartyState, Round, RoundStatus, in_words};
use crate::http::guard::Allowed;
use crate::http::json::StrictJson;
use crate::http::paging::{Page, PageRequest, Place};
use crate::http::params::{PathOf, QueryOf};
use crate::http::problem::Problem;
use crate::http::requests::actor;
use crate::http::routes::Routes;
use crate::http::state::AppState;
use crate::route;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(read))
        .with(route!(lines))
        .with(route!(approve))
        .with(route!(decline))
        .with(route!(preview))
        .with(route!(settings))
        .with(route!(set))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct ListQuery {
    pub(super) limit: Option<u32>,
    pub(super) cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct NettingRoundView {
    #[schema(value_type = String, example = "MN-0a5bb4c3d2e1")]
    id: NettingRoundId,
    currency_code: String,
    /// `proposed`, `recomputing`, `approved`, `applied`, `failed`, `cancelled`, `expired`
    #[schema(value_type = String)]
    status: RoundStatus,
    /// One's own answer: `asked`, `approved`, `declined`; `dropped` where the round does not touch
    /// one any more.
    #[schema(value_type = String)]
    answer: PartyState,
    /// Approved by one's setting.
    auto: bool,
    /// By how much one's debts fall.
    debts_fall: String,
    /// By how much one's claims fall: as much.
    claims_fall: String,
    /// What one is owed less what one owes, now. The round leaves it as it is.
    net_position: String,
    /// What it means, in words.
    effect: String,
    created_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
    #[schema(required)]
    ended_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct NettingLineView {
    #[schema(value_type = String, example = "OB-0a5bb4c3d2e1")]
    obligation_id: ObligationId,
    debtor_broker_id: BrokerId,
    creditor_broker_id: BrokerId,
    /// What might be cleared of it.
    amount: String,
    /// What is.
    reduction: String,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct PreviewQuery {
    /// As `USD`.
    currency_code: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct NettingPreviewView {
    currency_code: String,
    /// Whether enough brokers are active for a round to be made.
    offered: bool,
    active_brokers: u64,
    needed_brokers: u64,
    debts_fall: String,
    claims_fall: String,
    /// What it means, in words.
    effect: String,
}

#[derive(Serialize, Deserialize, utoipa::ToSchema)]
struct NettingSettings {
    /// Rounds that touch one are approved without one being asked.
    auto_approve: bool,
}

/// List rounds that touch one, or have touched one, newest first.
#[utoipa::path(get, path = "/v1/netting/rounds", tag = "netting",
    operation_id = "netting_round_list", params(ListQuery),
    responses((status = 200, body = Page<NettingRoundView>)))]
async fn list(
    me: Allowed<actions::NettingList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<NettingRoundView>>, Problem> {
    let cursor = query.cursor.as_deref();
    let page = PageRequest::<Place>::read("netting_rounds", query.limit, cursor)?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), NettingRoundId::from_bits(id)));
    let broker = me.seat.broker_id;
    let netting = &state.app.netting;
    let found = netting.rounds_of(broker, after, page.fetch()).await?;
    let place = |(round, _): &(Round, Party)| (round.created_at.into(), round.id.bits());
    let page = page.page_asking(found, place, |found| view(&state, found));
    Ok(Json(page.await?))
}

/// Read a round that touches one.
#[utoipa::path(get, path = "/v1/netting/rounds/{id}", tag = "netting",
    operation_id = "netting_round_read", params(("id" = String, Path)),
    responses((status = 200, body = NettingRoundView)))]
async fn read(
    me: Allowed<actions::NettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
) -> Result<Json<NettingRoundView>, Problem> {
    let found = state.app.netting.round_of(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, found).await?))
}

/// List what a round takes off one's own obligations, by obligation.
#[utoipa::path(get, path = "/v1/netting/rounds/{id}/lines", tag = "netting",
    operation_id = "netting_round_lines", params(("id" = String, Path), ListQuery),
    responses((status = 200, body = Page<NettingLineView>)))]
async fn lines(
    me: Allowed<actions::NettingRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<NettingLineView>>, Problem> {
    let cursor = query.cursor.as_deref();
    let page = PageRequest::<u64>::read("netting_lines", query.limit, cursor)?;
    let after = page.after.map(ObligationId::from_bits);
    let (netting, broker) = (&state.app.netting, me.seat.broker_id);
    let (round, _) = netting.round_of(broker, id).await?;
    let found = netting.lines_of(broker, id, after, page.fetch()).await?;
    let money = Money::of(&state, &round.currency).await?;
    let show = |line: Line| NettingLineView {
        obligation_id: line.id,
        debtor_broker_id: line.debtor,
        creditor_broker_id: line.creditor,
        amount: money.amount(line.amount.into()),
        reduction: money.amount(line.reduction.into()),
    };
    Ok(Json(page.page(found, |line| line.id.bits(), show)))
}

/// Approve a round.
///
/// The approval is a bound for each obligation: where others decline, a smaller round stays
/// approved. The last approval applies the round.
#[utoipa::path(post, path = "/v1/netting/rounds/{id}/approve", tag = "netting",
    operation_id = "netting_round_approve", params(("id" = String, Path)),
    responses((status = 200, body = NettingRoundView)))]
async fn approve(
    me: Allowed<actions::NettingDecide>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
) -> Result<Json<NettingRoundView>, Problem> {
    answer(&state, &me, id, Answer::Approve).await
}

/// Decline a round: it is made smaller, so that it does not touch one.
///
/// Also after an approval, as long as others are asked.
#[utoipa::path(post, path = "/v1/netting/rounds/{id}/decline", tag = "netting",
    operation_id = "netting_round_decline", params(("id" = String, Path)),
    responses((status = 200, body = NettingRoundView)))]
async fn decline(
    me: Allowed<actions::NettingDecide>,
    State(state): State<AppState>,
    PathOf(id): PathOf<NettingRoundId>,
) -> Result<Json<NettingRoundView>, Problem> {
    answer(&state, &me, id, Answer::Decline).await
}

/// What a round would clear for oneself, if one were made now.
#[utoipa::path(get, path = "/v1/netting/preview", tag = "netting",
    operation_id = "netting_preview", params(PreviewQuery),
    responses((status = 200, body = NettingPreviewView)))]
async fn preview(
    me: Allowed<actions::NettingPreview>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<PreviewQuery>,
) -> Result<Json<NettingPreviewView>, Problem> {
    let (found, _) = state
        .app
        .netting
        .preview(&query.currency_code, None)
        .await?;
    let money = Money::of(&state, &found.currency.code).await?;
    let fall = found.falls.get(&me.seat.broker_id).copied();
    let fall = fall.unwrap_or_default();
    let words = money.amount_words(fall);
    Ok(Json(NettingPreviewView {
        currency_code: found.currency.code.to_string(),
        offered: found.active >= found.needed,
        active_brokers: found.active,
        needed_brokers: found.needed,
        debts_fall: money.amount(fall),
        claims_fall: money.amount(fall),
        effect: if fall == 0 {
            "A round made now would not touch you.".to_owned()
        } else {
            format!(
                "A round made now would lower your debts by {words} and your claims by {words}; \
                 your net position would stay."
            )
        },
    }))
}

/// What one has set for rounds.
#[utoipa::path(get, path = "/v1/netting/settings", tag = "netting",
    operation_id = "netting_settings", responses((status = 200, body = NettingSettings)))]
async fn settings(
    me: Allowed<actions::NettingRead>,
    State(state): State<AppState>,
) -> Result<Json<NettingSettings>, Problem> {
    let auto_approve = state.app.netting.auto_approve(me.seat.broker_id).await?;
    Ok(Json(NettingSettings { auto_approve }))
}

/// Set it, for rounds that are proposed from now on.
#[utoipa::path(put, path = "/v1/netting/settings", tag = "netting",
    operation_id = "netting_settings_set", request_body = NettingSettings,
    responses((status = 200, body = NettingSettings)))]
async fn set(
    me: Allowed<actions::NettingSet>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<NettingSettings>,
) -> Result<Json<NettingSettings>, Problem> {
    let (netting, by) = (&state.app.netting, me.principal.sub());
    netting
        .set_auto_approve(me.seat.broker_id, body.auto_approve, by)
        .await?;
    Ok(Json(body))
}

async fn answer(
    state: &AppState,
    me: &Allowed<actions::NettingDecide>,
    id: NettingRoundId,
    answer: Answer,
) -> Result<Json<NettingRoundView>, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let found = state.app.netting.answer(&me_as, id, answer).await?;
    Ok(Json(view(state, found).await?))
}

async fn view(
    state: &AppState,
    (round, party): (Round, Party),
) -> Result<NettingRoundView, Problem> {
    let money = Money::of(state, &round.currency).await?;
    let net = state.app.netting.net_position(party.broker, &round).await?;
    let (fall_words, net_words) = (money.amount_words(party.fall), money.words(net));
    Ok(NettingRoundView {
        id: round.id,
        currency_code: round.currency.to_string(),
        status: round.status,
        answer: party.state,
        auto: party.auto,
        debts_fall: money.amount(party.fall),
        claims_fall: money.amount(party.fall),
        net_position: money.signed(net),
        effect: in_words(round.status, party.state, &fall_words, &net_words),
        created_at: round.created_at,
        expires_at: round.expires_at,
        ended_at: round.ended_at,
    })
}
