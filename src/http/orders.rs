//! `/v1/orders`: another broker's cashier takes cash from one's client, or pays it out. And
//! `/v1/broker/cities`: where one executes orders of others.

mod views;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use self::views::{OrderStatus, OrderView, view};
use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::{StrictJson, object, objects};
use super::paging::{Page, PageRequest, Place};
use super::params::{Order, PathOf, QueryOf};
use super::problem::Problem;
use super::requests::views::{EventView, event_view};
use super::requests::{
    AcceptBody, CancelBody, CancelTo, ConfirmBody, DisputeBody, EventsQuery, RejectBody, TermsBody,
    actor, bounded,
};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{BrokerSeat, actions};
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::moment::Moment;
use crate::domain::proof::Proof;
use crate::domain::request::{Refusal, Request, RequestKind};
use crate::domain::words::words;
use crate::route;
use crate::services::network::{After, Answer, CreateRequest, Filter, NetworkError};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(create))
        .with(route!(list))
        .with(route!(read))
        .with(route!(accept))
        .with(route!(reject))
        .with(route!(cancel))
        .with(route!(execute))
        .with(route!(confirm))
        .with(route!(dispute))
        .with(route!(pickup_code))
        .with(route!(events))
        .with(route!(cities))
        .with(route!(set_cities))
}

words!(
    /// What is to be done for the client.
    OrderType {
        Collect = "collect",
        Payout = "payout",
    }
);

impl From<OrderType> for RequestKind {
    fn from(kind: OrderType) -> Self {
        match kind {
            OrderType::Collect => Self::Collect,
            OrderType::Payout => Self::Payout,
        }
    }
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// `collect`: the executor's cashier takes the cash of one's client; `payout`: it pays the client.
    #[serde(rename = "type")]
    #[schema(value_type = String, example = "collect")]
    kind: OrderType,
    /// The broker that is asked; without it all who serve the city, and the first to accept gets it.
    executor_broker_id: Option<BrokerId>,
    /// One's own client (`FO-` and 12 hex digits), who has an open account in the currency.
    #[schema(example = "FO-7a3f8b2c4d1e")]
    counterpart_uid: String,
    #[schema(example = "RUB-CASH")]
    currency_code: String,
    /// Decimal string in major units.
    #[schema(example = "47500.00")]
    amount: String,
    /// Where; needed where no executor is named.
    city_code: Option<String>,
    /// Shown to the parties only, at most 500 characters.
    contact: Option<String>,
    /// Shown to the parties only, at most 1000 characters.
    note: Option<String>,
    #[serde(default, deserialize_with = "object")]
    terms: Option<TermsBody>,
    /// Executed is confirmed: the author does not look at the proof first.
    #[serde(default)]
    auto_confirm: bool,
    /// Not executed until then: the order expires.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-12-31T12:00:00Z")]
    deadline_at: Option<Moment>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `created`, `accepting`, `accepted`, `executed`, `completed`, `rejected`, `cancelled`,
    /// `expired`, `disputed`
    #[param(value_type = Option<String>)]
    status: Option<OrderStatus>,
    /// `collect`, `payout`
    #[serde(rename = "type")]
    #[param(value_type = Option<String>)]
    kind: Option<OrderType>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct ExecuteBody {
    /// 1 to 10 proofs: `{type: photo|tx_hash|transfer_ref|document, url?, value?, note?, sha256?}`.
    #[schema(value_type = Vec<serde_json::Value>)]
    #[serde(deserialize_with = "objects")]
    proof: Vec<Proof>,
    /// Of a payout: the code that the client shows. After 5 wrong ones the author has to make a new
    /// one.
    #[schema(value_type = Option<String>)]
    #[serde(default, skip_serializing)]
    pickup_code: Option<SecretString>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CitiesBody {
    /// At most 200, each 1 to 16 characters.
    #[schema(example = json!(["IST", "DXB"]))]
    city_codes: Vec<String>,
}

/// Order another broker to collect cash from one's client, or to pay it out.
///
/// A payout's answer has the `pickup_code` that the client shows to the cashier. It is shown this
/// once: the same Idempotency-Key gives the order again without it.
#[utoipa::path(post, path = "/v1/orders", tag = "orders", operation_id = "order_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = OrderView)))]
async fn create(
    me: Allowed<actions::OrderCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<OrderView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let (obligation, commission) = TermsBody::parts(body.terms);
    let input = CreateRequest {
        target_broker_id: body.executor_broker_id,
        kind: body.kind.into(),
        currency_code: body.currency_code,
        amount: body.amount,
        method: "cash".to_owned(),
        city_code: body.city_code,
        counterpart_uid: Some(body.counterpart_uid),
        contact: body.contact,
        note: body.note,
        obligation,
        commission,
        account_id: None,
        deadline_at: body.deadline_at.map(Moment::at),
        obligation_id: None,
        debtor: None,
        auto_confirm: body.auto_confirm,
    };
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let created = network.create_order(&me_as, intention, input).await;
    let created = created.map_err(of_order)?;
    let (order, code) = (created.answer.request, created.pickup_code);
    let view = view(&state, me.seat, order, code).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

/// List one's orders and the open ones for the cities that one serves, newest first.
#[utoipa::path(get, path = "/v1/orders", tag = "orders", operation_id = "order_list",
    params(ListQuery), responses((status = 200, body = Page<OrderView>)))]
async fn list(
    me: Allowed<actions::OrderList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<OrderView>>, Problem> {
    let page = PageRequest::<Place>::read("orders", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(created_at, id)| After {
        created_at: created_at.at(),
        id: RequestId::from_bits(id),
    });
    let filter = Filter {
        orders: true,
        status: query.status.map(Into::into),
        kind: query.kind.map(RequestKind::from),
    };
    let network = &state.app.network;
    let found = network.requests(me.seat.broker_id, filter, after, page.fetch());
    let place = |order: &Request| (order.created_at.into(), order.id.bits());
    let page = page.page_asking(found.await?, place, |order| {
        view(&state, me.seat, order, None)
    });
    Ok(Json(page.await?))
}

/// Read an order.
#[utoipa::path(get, path = "/v1/orders/{id}", tag = "orders", operation_id = "order_read",
    params(("id" = String, Path)), responses((status = 200, body = OrderView)))]
async fn read(
    me: Allowed<actions::OrderRead>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
) -> Result<Json<OrderView>, Problem> {
    let order = state.app.network.request(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, me.seat, order, None).await?))
}

/// Accept an order with an account of a cashier of one's own; the first to accept an order to all
/// gets it.
///
/// A payout reserves the client's balance and the cashier's float first, and is `accepting` until
/// both are.
#[utoipa::path(post, path = "/v1/orders/{id}/accept", tag = "orders", operation_id = "order_accept",
    params(("id" = String, Path)), request_body = AcceptBody,
    responses((status = 200, body = OrderView), (status = 202, body = OrderView, description = "Under way")))]
async fn accept(
    me: Allowed<actions::OrderAccept>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<AcceptBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = network.accept_request(&me_as, id, body.account_id).await;
    answered(&state, me.seat, answer).await
}

/// Decline an order that was made to one.
#[utoipa::path(post, path = "/v1/orders/{id}/reject", tag = "orders", operation_id = "order_reject",
    params(("id" = String, Path)), request_body = RejectBody,
    responses((status = 200, body = OrderView)))]
async fn reject(
    me: Allowed<actions::OrderReject>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<RejectBody>,
) -> Result<Response, Problem> {
    if let Some(reason) = &body.reason {
        bounded("reason", reason, 1_000)?;
    }
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = network.reject_request(&me_as, id, body.reason).await;
    answered(&state, me.seat, answer).await
}

/// Cancel an order of one's own that nobody has accepted; later propose to cancel, or agree to it.
#[utoipa::path(post, path = "/v1/orders/{id}/cancel", tag = "orders", operation_id = "order_cancel",
    params(("id" = String, Path)), request_body = CancelBody,
    responses((status = 200, body = OrderView)))]
async fn cancel(
    me: Allowed<actions::OrderCancel>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<CancelBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = match body.to.unwrap_or(CancelTo::Cancelled) {
        CancelTo::Cancelled => network.cancel_request(&me_as, id).await,
        CancelTo::Accepted => network.resend_request(&me_as, id).await,
    };
    answered(&state, me.seat, answer).await
}

/// Say that one's cashier has taken or paid the cash, with proof; of a payout with the code that the
/// client shows.
#[utoipa::path(post, path = "/v1/orders/{id}/execute", tag = "orders", operation_id = "order_execute",
    params(("id" = String, Path)), request_body = ExecuteBody,
    responses((status = 200, body = OrderView), (status = 202, body = OrderView, description = "Confirmed by it, and under way")))]
async fn execute(
    me: Allowed<actions::OrderExecute>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<ExecuteBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = network.execute_order(&me_as, id, body.proof, body.pickup_code);
    answered(&state, me.seat, answer.await).await
}

/// Confirm what the executor has done: three books change, exactly once.
///
/// Answers 200 with the order completed, or 202 where the saga has not ended within the bound; it
/// goes on by itself, and asking again waits for it.
#[utoipa::path(post, path = "/v1/orders/{id}/confirm", tag = "orders", operation_id = "order_confirm",
    params(("id" = String, Path)), request_body = ConfirmBody,
    responses((status = 200, body = OrderView), (status = 202, body = OrderView, description = "Under way")))]
async fn confirm(
    me: Allowed<actions::OrderConfirm>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<ConfirmBody>,
) -> Result<Response, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let received = body.received_amount.as_deref();
    let network = &state.app.network;
    let answer = network.confirm_received(&me_as, id, received).await;
    answered(&state, me.seat, answer).await
}

/// Take an executed order to an arbiter: it stands still until a decision.
#[utoipa::path(post, path = "/v1/orders/{id}/dispute", tag = "orders", operation_id = "order_dispute",
    params(("id" = String, Path)), request_body = DisputeBody,
    responses((status = 200, body = OrderView)))]
async fn dispute(
    me: Allowed<actions::OrderDispute>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    StrictJson(body): StrictJson<DisputeBody>,
) -> Result<Response, Problem> {
    let said = body.said()?;
    let me_as = actor(&me.principal, me.seat);
    let network = &state.app.network;
    let answer = network.dispute_request(&me_as, id, said).await;
    answered(&state, me.seat, answer).await
}

/// Make a new code for a payout of one's own that has not been executed; the one before opens
/// nothing any more.
#[utoipa::path(post, path = "/v1/orders/{id}/pickup-code", tag = "orders", operation_id = "order_pickup",
    params(("id" = String, Path)), responses((status = 200, body = OrderView)))]
async fn pickup_code(
    me: Allowed<actions::OrderPickup>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
) -> Result<Json<OrderView>, Problem> {
    let me_as = actor(&me.principal, me.seat);
    let renewed = state.app.network.renew_pickup(&me_as, id).await;
    let (answer, code) = renewed.map_err(of_order)?;
    let view = view(&state, me.seat, answer.request, Some(code));
    Ok(Json(view.await?))
}

/// Read an order's hash-chained events, oldest first, as the chain is checked. They have the words
/// of requests: `sent` is executed.
#[utoipa::path(get, path = "/v1/orders/{id}/events", tag = "orders", operation_id = "order_events",
    params(("id" = String, Path), EventsQuery), responses((status = 200, body = Page<EventView>)))]
async fn events(
    me: Allowed<actions::OrderEvents>,
    State(state): State<AppState>,
    PathOf(Order(id)): PathOf<Order>,
    QueryOf(query): QueryOf<EventsQuery>,
) -> Result<Json<Page<EventView>>, Problem> {
    let page = PageRequest::<u32>::read("order.events", query.limit, query.cursor.as_deref())?;
    let after = page.after.unwrap_or(0);
    let network = &state.app.network;
    let events = network.events(me.seat.broker_id, id, after, page.fetch());
    Ok(Json(page.page(
        events.await?,
        |(event, _)| event.seq,
        |event| event_view(me.seat, event),
    )))
}

/// The cities in which one executes orders of others.
#[utoipa::path(get, path = "/v1/broker/cities", tag = "orders", operation_id = "city_read",
    responses((status = 200, body = CitiesBody)))]
async fn cities(
    me: Allowed<actions::CityRead>,
    State(state): State<AppState>,
) -> Result<Json<CitiesBody>, Problem> {
    let city_codes = state.app.network.cities(me.seat.broker_id).await?;
    Ok(Json(CitiesBody { city_codes }))
}

/// Serve these cities and no others from now on: orders to all in them are shown to one.
#[utoipa::path(put, path = "/v1/broker/cities", tag = "orders", operation_id = "city_manage",
    request_body = CitiesBody, responses((status = 200, body = CitiesBody)))]
async fn set_cities(
    me: Allowed<actions::CityManage>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<CitiesBody>,
) -> Result<Json<CitiesBody>, Problem> {
    let network = &state.app.network;
    let city_codes = network
        .set_cities(me.seat.broker_id, body.city_codes)
        .await?;
    Ok(Json(CitiesBody { city_codes }))
}

async fn answered(
    state: &AppState,
    seat: BrokerSeat,
    answer: Result<Answer, NetworkError>,
) -> Result<Response, Problem> {
    let answer = answer.map_err(of_order)?;
    let status = match answer.running {
        Some(_) => StatusCode::ACCEPTED,
        None => StatusCode::OK,
    };
    let view = view(state, seat, answer.request, None).await?;
    Ok((status, Json(view)).into_response())
}

/// The problem in an order's words.
fn of_order(error: NetworkError) -> Problem {
    let (status, detail) = match &error {
        NetworkError::SagaRefused { status, .. }
        | NetworkError::Refused(Refusal::ProofWithdrawn { status }) => (Some(*status), None),
        NetworkError::Refused(Refusal::WrongStatus { status }) => {
            let now = OrderStatus::from(*status);
            (Some(*status), Some(format!("the order is {now}")))
        }
        NetworkError::Refused(Refusal::InSaga { status }) => {
            let now = OrderStatus::from(*status);
            let detail = format!("the order is {now} and being settled");
            (Some(*status), Some(detail))
        }
        NetworkError::Refused(Refusal::NotYourMove { whose, what }) => {
            let whose = match *whose {
                "counterparty" => "executor",
                "receiver" => "author",
                whose => whose,
            };
            let what = what.replace("mark this request sent", "execute the order");
            let what = what.replace("request", "order");
            (None, Some(format!("only the {whose} may {what}")))
        }
        _ => (None, None),
    };
    let mut problem = Problem::from(error);
    if let Some(status) = status {
        problem = problem.with("request_status", OrderStatus::from(status).as_str());
    }
    if let Some(detail) = detail {
        problem = problem.detail(detail);
    }
    problem.renamed("target_broker_id", "executor_broker_id")
}
