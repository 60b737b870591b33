//! `/v1/network/requests`: a request from its creation to its end.

pub(super) mod views;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};

use self::views::{CommissionBody, EventView, RequestView, event_view, view};
use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::{StrictJson, object, objects};
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, PlainRequest, QueryOf};
use super::problem::{Code, FieldError, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{BrokerSeat, Principal, actions};
use crate::domain::ids::{AccountId, BrokerId, ObligationId, RequestId};
use crate::domain::moment::Moment;
use crate::domain::money::{Currency, format_minor};
use crate::domain::proof::Proof;
use crate::domain::request::{Refusal, Request, RequestKind, RequestStatus};
use crate::domain::terms::{ObligationTerm, Party};
use crate::domain::text;
use crate::domain::words::words;
use crate::route;
use crate::services::auth::password::HashError;
use crate::services::network::{
    Actor, After, Answer, CommissionInput, CreateRequest, Filter, NetworkError, Said, Shortage,
};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(create))
        .with(route!(list))
        .with(route!(read))
        .with(route!(accept))
        .with(route!(reject))
        .with(route!(cancel))
        .with(route!(sent))
        .with(route!(confirm))
        .with(route!(dispute))
        .with(route!(events))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// The broker that is asked; without it a broadcast, which the first to accept gets.
    target_broker_id: Option<BrokerId>,
    /// `send`: the author sends the money; `receive`: the other side does; `settlement`: whoever
    /// owes repays, the oldest debt first or `obligation_id`.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "send")]
    kind: RequestType,
    #[schema(example = "USD")]
    currency_code: String,
    /// Decimal string in major units.
    #[schema(example = "10000.00")]
    amount: String,
    /// How the money moves: `cash`, `bank`, `crypto` or another word, 1 to 32 characters.
    #[schema(example = "cash")]
    method: String,
    city_code: Option<String>,
    /// A client of the other side (`FO-` and 12 hex digits), whose account is credited or debited there.
    counterpart_uid: Option<String>,
    /// Shown to the parties only, at most 500 characters.
    contact: Option<String>,
    /// Shown to the parties only, at most 1000 characters.
    note: Option<String>,
    #[serde(default, deserialize_with = "object")]
    terms: Option<TermsBody>,
    /// The author's own account (`AC-…`); its main house account where there is none.
    #[schema(value_type = Option<String>)]
    account_id: Option<AccountId>,
    /// Nothing sent until then: the request expires. At most 5 years ahead; what is finer than a
    /// microsecond is cut off.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-12-31T12:00:00Z")]
    deadline_at: Option<Moment>,
    /// Of a settlement: the obligation that it repays; without it the oldest are repaid first.
    // What only some kinds have is left out of the fingerprint of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    obligation_id: Option<ObligationId>,
    /// Of a settlement: the side that owes, `author` (the default) or `counterparty`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    debtor: Option<Party>,
}

words!(
    /// The requests that are no orders.
    RequestType {
        Send = "send",
        Receive = "receive",
        Settlement = "settlement",
    }
);

impl From<RequestType> for RequestKind {
    fn from(kind: RequestType) -> Self {
        match kind {
            RequestType::Send => Self::Send,
            RequestType::Receive => Self::Receive,
            RequestType::Settlement => Self::Settlement,
        }
    }
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct TermsBody {
    /// `author_owes`, `counterparty_owes`, `none`; the network's default where there is none.
    #[schema(value_type = Option<String>)]
    pub(super) obligation: Option<ObligationTerm>,
    #[serde(default, deserialize_with = "object")]
    pub(super) commission: Option<CommissionBody>,
}

impl TermsBody {
    /// What was stated, as the service takes it.
    pub(super) fn parts(terms: Option<Self>) -> (Option<ObligationTerm>, Option<CommissionInput>) {
        let (obligation, commission) =
            terms.map_or((None, None), |terms| (terms.obligation, terms.commission));
        let commission = commission.map(|commission| CommissionInput {
            payer: commission.payer,
            amount: commission.amount,
            basis_points: commission.basis_points,
        });
        (obligation, commission)
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `pending`, `accepting`, `accepted`, `sent`, `completed`, `rejected`, `cancelled`,
    /// `expired`, `disputed`
    #[param(value_type = Option<String>)]
    status: Option<RequestStatus>,
    /// `send`, `receive`, `settlement`
    #[serde(rename = "type")]
    #[param(value_type = Option<String>)]
    kind: Option<RequestType>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EventsQuery {
    pub(super) limit: Option<u32>,
    pub(super) cursor: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct AcceptBody {
    /// The account of one's own book that is credited or debited; where the request names a client
    /// (`counterpart_uid`), that client's and no other.
    #[schema(value_type = Option<String>)]
    pub(super) account_id: Option<AccountId>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct RejectBody {
    /// At most 1000 characters.
    pub(super) reason: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct CancelBody {
    /// `cancelled` (the default), or `accepted`: back from sent, as after a wrong proof.
    #[schema(value_type = Option<String>)]
    pub(super) to: Option<CancelTo>,
}

words!(
    /// Where a cancelling leads.
    CancelTo {
        Cancelled = "cancelled",
        Accepted = "accepted",
    }
);

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct SentBody {
    /// 1 to 10 proofs: `{type: photo|tx_hash|transfer_ref|document, url?, value?, note?, sha256?}`. A
    /// url is an `https:` or `http:` address or the `url` of one's own upload.
    #[schema(value_type = Vec<serde_json::Value>)]
    #[serde(deserialize_with = "objects")]
    pub(super) proof: Vec<Proof>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct ConfirmBody {
    /// What has arrived, where it is less than the amount: the sender agrees by confirming the
    /// same, or disputes.
    #[schema(example = "9990.00")]
    pub(super) received_amount: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(super) struct DisputeBody {
    /// What is claimed, 1 to 4000 characters.
    claim: String,
    /// At most 10 proofs, as of a `sent`.
    #[schema(value_type = Vec<serde_json::Value>)]
    #[serde(default, deserialize_with = "objects")]
    proof: Vec<Proof>,
}

impl DisputeBody {
    /// What is claimed, as the service takes it.
    pub(super) fn said(self) -> Result<Said, Problem> {
        bounded("claim", &self.claim, 4_000)?;
        Ok(Said {
            text: self.claim,
            proofs: self.proof,
        })
    }
}

/// Propose a request to a broker, or to all.
#[utoipa::path(post, path = "/v1/network/requests", tag = "network", operation_id = "request_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = RequestView)))]
async fn create(
    me: Allowed<actions::RequestCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<RequestView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let (obligation, commission) = TermsBody::parts(body.terms);
    let input = CreateRequest {
        target_broker_id: body.target_broker_id,
        kind: body.kind.into(),
        currency_code: body.currency_code,
        amount: body.amount,
        method: body.method,
        city_code: body.city_code,
        counterpart_uid: body.counterpart_uid,
        contact: body.contact,
        note: body.note,
        obligation,
        commission,
        account_id: body.account_id,
        deadline_at: body.deadline_at.map(Moment::at),
        obligation_id: body.obligation_id,
        debtor: body.debtor,
        auto_confirm: false,
    };
    let me_as = actor(&me.principal, me.seat);
    let answer = state
        .app
        .network
        .create_request(&me_as, intention, input)
        .await?;
    let view = view(&state, me.seat, answer.request).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// List one's requests and the open broadcasts, newest first.
#[utoipa::path(get, path = "/v1/network/requests", tag = "network", operation_id = "request_list",
    params(ListQuery), responses((status = 200, body = Page<RequestView>)))]
async fn list(
    me: Allowed<actions::RequestList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<RequestView>>, Problem> {
    let page = PageRequest::<Place>::read("requests", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(created_at, id)| After {
        created_at: created_at.at(),
        id: RequestId::from_bits(id),
    });
    let filter = Filter {
        orders: false,
        status: query.status,
        kind: query.kind.map(RequestKind::from),
    };
    let found = state
        .app
        .network
        .requests(me.seat.broker_id, filter, after, page.fetch())
        .await?;
    let place = |request: &Request| (request.created_at.into(), request.id.bits());
    let page = page.page_asking(found, place, |request| view(&state, me.seat, request));
    Ok(Json(page.await?))
}

/// Read a request.
#[utoipa::path(get, path = "/v1/network/requests/{id}", tag = "network", operation_id = "request_read",
    params(("id" = String, Path)), responses((status = 200, body = RequestView)))]
async fn read(
    me: Allowed<actions::RequestRead>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
) -> Result<Json<RequestView>, Problem> {
    let request = state.app.network.request(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, me.seat, request).await?))
}

/// Accept a request; the first to accept a broadcast gets it.
///
/// Where the completion will debit an account that may not go below zero, the amount is reserved
/// first, and the request is `accepting` until it is.
#[utoipa::path(post, path = "/v1/network/requests/{id}/accept", tag = "network",
    operation_id = "request_accept", params(("id" = String, Path)), request_body = AcceptBody,
    responses((status = 200, body = RequestView), (status = 202, body = RequestView, description = "Under way")))]
async fn accept(
    me: Allowed<actions::RequestAccept>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<AcceptBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let answer = state
        .app
        .network
        .accept_request(&me_as, id, body.account_id)
        .await?;
    answered(&state, me.seat, answer).await
}

/// Decline a request that was made to one.
#[utoipa::path(post, path = "/v1/network/requests/{id}/reject", tag = "network",
    operation_id = "request_reject", params(("id" = String, Path)), request_body = RejectBody,
    responses((status = 200, body = RequestView)))]
async fn reject(
    me: Allowed<actions::RequestReject>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<RejectBody>,
) -> Result<Response, Problem> {
    if let Some(reason) = &body.reason {
        bounded("reason", reason, 1_000)?;
    }
    let me_as = actor(&me.principal, me.seat);
    let answer = state
        .app
        .network
        .reject_request(&me_as, id, body.reason)
        .await?;
    answered(&state, me.seat, answer).await
}

/// Cancel a pending request of one's own; later propose to cancel, or agree to it.
#[utoipa::path(post, path = "/v1/network/requests/{id}/cancel", tag = "network",
    operation_id = "request_cancel", params(("id" = String, Path)), request_body = CancelBody,
    responses((status = 200, body = RequestView)))]
async fn cancel(
    me: Allowed<actions::RequestCancel>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<CancelBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let answer = match body.to.unwrap_or(CancelTo::Cancelled) {
        CancelTo::Cancelled => state.app.network.cancel_request(&me_as, id).await?,
        CancelTo::Accepted => state.app.network.resend_request(&me_as, id).await?,
    };
    answered(&state, me.seat, answer).await
}

/// Say that the money was sent, with proof.
#[utoipa::path(post, path = "/v1/network/requests/{id}/sent", tag = "network",
    operation_id = "request_sent", params(("id" = String, Path)), request_body = SentBody,
    responses((status = 200, body = RequestView)))]
async fn sent(
    me: Allowed<actions::RequestSent>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<SentBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let answer = state.app.network.mark_sent(&me_as, id, body.proof).await?;
    answered(&state, me.seat, answer).await
}

/// Confirm what has arrived: three books change, exactly once.
///
/// Answers 200 with the request completed, or 202 where the saga has not ended within the bound;
/// it goes on by itself, and asking again waits for it.
#[utoipa::path(post, path = "/v1/network/requests/{id}/confirm", tag = "network",
    operation_id = "request_confirm", params(("id" = String, Path)), request_body = ConfirmBody,
    responses((status = 200, body = RequestView), (status = 202, body = RequestView, description = "Under way")))]
async fn confirm(
    me: Allowed<actions::RequestConfirm>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<ConfirmBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let received = body.received_amount.as_deref();
    let answer = state
        .app
        .network
        .confirm_received(&me_as, id, received)
        .await?;
    answered(&state, me.seat, answer).await
}

/// Take what was sent, or has completed not long ago, to an arbiter: it stands still until a decision.
#[utoipa::path(post, path = "/v1/network/requests/{id}/dispute", tag = "network",
    operation_id = "request_dispute", params(("id" = String, Path)), request_body = DisputeBody,
    responses((status = 200, body = RequestView)))]
async fn dispute(
    me: Allowed<actions::RequestDispute>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    StrictJson(body): StrictJson<DisputeBody>,
) -> Result<Response, Problem> {
    let said = body.said()?;
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = network.dispute_request(&me_as, id, said).await?;
    answered(&state, me.seat, answer).await
}

/// Read a request's hash-chained events, oldest first, as the chain is checked.
#[utoipa::path(get, path = "/v1/network/requests/{id}/events", tag = "network",
    operation_id = "request_events", params(("id" = String, Path), EventsQuery),
    responses((status = 200, body = Page<EventView>)))]
async fn events(
    me: Allowed<actions::RequestEvents>,
    State(state): State<AppState>,
    PathOf(PlainRequest(id)): PathOf<PlainRequest>,
    QueryOf(query): QueryOf<EventsQuery>,
) -> Result<Json<Page<EventView>>, Problem> {
    let page = PageRequest::<u32>::read("request.events", query.limit, query.cursor.as_deref())?;
    let after = page.after.unwrap_or(0);
    let network = &state.app.network;
    let events = network
        .events(me.seat.broker_id, id, after, page.fetch())
        .await?;
    Ok(Json(page.page(
        events,
        |(event, _)| event.seq,
        |event| event_view(me.seat, event),
    )))
}

pub(super) fn actor(principal: &Principal, seat: BrokerSeat) -> Actor {
    Actor {
        broker: seat.broker_id,
        subject: principal.sub().to_owned(),
    }
}

async fn answered(state: &AppState, seat: BrokerSeat, answer: Answer) -> Result<Response, Problem> {
    let status = match answer.running {
        Some(_) => StatusCode::ACCEPTED,
        None => StatusCode::OK,
    };
    let view = view(state, seat, answer.request).await?;
    Ok((status, Json(view)).into_response())
}

pub(super) fn bounded(field: &'static str, text: &str, most: usize) -> Result<(), Problem> {
    text::prose(text, most).map_err(|error| Problem::invalid(field, error.to_string()))
}

impl From<NetworkError> for Problem {
    fn from(error: NetworkError) -> Self {
        let detail = error.to_string();
        match error {
            NetworkError::Refused(refusal) => Self::from(refusal),
            NetworkError::Field(field) => Self::invalid(field.field, field.rule),
            NetworkError::SagaRefused { status, reason } => Self::new(Code::BooksRefused)
                .detail(detail)
                .with("request_status", status.as_str())
                .with("reason", reason),
            NetworkError::Short { shortage, currency } => Self::short(shortage, &currency),
            NetworkError::PickupRefused { left } => Self::new(Code::PickupRefused)
                .detail(detail)
                .field(FieldError::value(
                    "pickup_code",
                    "is the code that the client shows",
                ))
                .with("tries_left", left),
            NetworkError::Code(HashError::Busy) => {
                Self::new(Code::Unavailable).detail(detail).retry_after(1)
            }
            NetworkError::Hindered(hindrance) => hindrance.into(),
            NetworkError::KeyReused => Self::new(Code::KeyReused),
            NetworkError::Contended | NetworkError::GateTurned => {
                Self::new(Code::Contended).retry_after(1)
            }
            NetworkError::Unsigned(error) => error.into(),
            NetworkError::Store(error) => error.into(),
            NetworkError::Lost | NetworkError::Code(HashError::Randomness | HashError::Failed) => {
                Self::internal(&error)
            }
        }
    }
}

impl Problem {
    /// There is too little: how much there is.
    fn short(shortage: Shortage, currency: &Currency) -> Self {
        let money = |minor: u64| format_minor(i128::from(minor), currency.exponent);
        let code = &currency.code;
        let (problem, available, more) = match shortage {
            Shortage::Debts {
                available, spans, ..
            } => (
                Code::DebtShort,
                available,
                if spans {
                    let most = crate::domain::settlement::MAX_PARTS;
                    let free = money(available);
                    format!("one settlement spans {most} obligations, of which {free} {code} are.")
                } else {
                    format!("{} {code} are.", money(available))
                },
            ),
            Shortage::Credit { limit, free, .. } => (
                Code::CreditShort,
                free,
                format!("{} {code} of {} are free.", money(free), money(limit)),
            ),
        };
        Self::new(problem)
            .detail(format!("{shortage}: {more}"))
            .with("available", money(available))
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let detail = refusal.to_string();
        match refusal {
            Refusal::NotFound => Self::new(Code::NotFound),
            Refusal::NotYourMove { .. } => Self::new(Code::NotYourMove).detail(detail),
            Refusal::WrongStatus { status } | Refusal::InSaga { status } => {
                Self::new(Code::WrongStatus)
                    .detail(detail)
                    .with("request_status", status.as_str())
            }
            Refusal::Taken => Self::new(Code::AlreadyTaken).detail(detail),
            Refusal::ProofWithdrawn { status } => Self::new(Code::ProofWithdrawn)
                .detail(detail)
                .with("request_status", status.as_str()),
            Refusal::Decided => Self::new(Code::DisputeDecided).detail(detail),
            Refusal::TooOften { .. } => Self::new(Code::TooOften).detail(detail),
            Refusal::DeadlinePassed => Self::new(Code::DeadlinePassed).detail(detail),
            Refusal::Invalid { field, rule } => Self::invalid(field, rule),
        }
    }
}
