//! `/v1/intents`: money that goes out and comes in through payment providers.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::{StrictJson, needed_object};
use super::money::{currency_named, exponent_of};
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::qr;
use super::routes::Routes;
use super::state::AppState;
use super::wallets::named_wallet;
use crate::domain::access::actions;
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::moment::Moment;
use crate::domain::money::{Amount, format_minor};
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{IntentKind, IntentStatus, PspName};
use crate::route;
use crate::services::payments::{
    Intent, IntentEventRow, IntentFilter, IntentHistory, NewIntent, PaymentError,
};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(create))
        .with(route!(list))
        .with(route!(read))
        .with(route!(qr_svg))
        .with(route!(qr_png))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// Of one of the wallets: `merchant.7.THB`.
    #[schema(example = "merchant.7.THB")]
    wallet: String,
    #[schema(example = "THB")]
    currency_code: String,
    #[schema(example = "1500.00")]
    amount: String,
    /// `IPPS`, `WISE` pay out; `QP` takes in.
    #[schema(value_type = String, example = "IPPS")]
    channel: PspName,
    #[schema(value_type = Value, example = json!({ "type": "prompt_pay", "proxy": "0801234567" }))]
    #[serde(deserialize_with = "needed_object")]
    receiver: Receiver,
    /// An account in one's own book that it is booked on as well: reserved at once, debited with
    /// amount and fee once it is paid, released where it is not.
    #[schema(value_type = Option<String>, example = "AC-0a5bb4c3d2e1")]
    book_account_id: Option<AccountId>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Only those of one wallet's owner: a partner as `7-FO-0a5bb4c3d2e1`, or one's own number.
    user_id: Option<String>,
    /// `created`, `held`, `processing`, `completed`, `failed`, `manual_review`, `returned`
    #[param(value_type = Option<String>)]
    status: Option<IntentStatus>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct IntentView {
    pub(super) id: Uuid,
    /// `payout`, `top_up`
    #[schema(value_type = String)]
    kind: IntentKind,
    user_id: String,
    wallet: String,
    currency_code: String,
    amount: String,
    fee: String,
    #[schema(value_type = String)]
    channel: PspName,
    #[schema(value_type = Value)]
    receiver: Receiver,
    #[schema(required, value_type = Option<String>)]
    book_account_id: Option<AccountId>,
    /// What the QR code says that a payer scans; of a top-up that nobody has paid yet.
    #[schema(required)]
    qr_payload: Option<String>,
    /// `created`, `held`, `processing`, `completed`, `failed`, `manual_review`, `returned`
    #[schema(value_type = String)]
    status: IntentStatus,
    /// Why it has failed, or is looked at by a person.
    #[schema(required)]
    reason: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct IntentEventView {
    #[schema(required)]
    status_from: Option<String>,
    status_to: String,
    #[schema(required)]
    reason: Option<String>,
    #[schema(value_type = Value)]
    payload: Value,
    at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct IntentHistoryView {
    #[serde(flatten)]
    intent: IntentView,
    events: Vec<IntentEventView>,
}

/// Pay somebody out of a wallet, or ask for money into it.
///
/// It is carried out by itself: `GET /v1/intents/{id}` says how far it is. What the wallet hasn't
/// got ends it as `failed`, with nothing moved.
#[utoipa::path(post, path = "/v1/intents", tag = "payments", operation_id = "intent_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = IntentHistoryView)))]
async fn create(
    me: Allowed<actions::IntentCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<IntentHistoryView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let currency = currency_named(&state, "currency_code", &body.currency_code).await?;
    let amount = Amount::parse(&body.amount, &currency)
        .map_err(|error| Problem::invalid("amount", error.to_string()))?;
    let new = NewIntent {
        wallet: named_wallet(&body.wallet)?,
        currency,
        amount,
        channel: body.channel,
        receiver: body.receiver,
        book_account: body.book_account_id,
    };
    let payments = &state.app.payments;
    let created = payments.create(me.seat.broker_id, &intention, new).await?;
    Ok((StatusCode::CREATED, Json(history(&state, created).await?)))
}

/// List one's intents, newest first.
#[utoipa::path(get, path = "/v1/intents", tag = "payments", operation_id = "intent_list",
    params(ListQuery), responses((status = 200, body = Page<IntentView>)))]
async fn list(
    me: Allowed<actions::IntentList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<IntentView>>, Problem> {
    let page =
        PageRequest::<(Moment, Uuid)>::read("intents", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let filter = IntentFilter {
        user: query.user_id,
        status: query.status,
    };
    let payments = &state.app.payments;
    let found = payments
        .list(me.seat.broker_id, &filter, after, page.fetch())
        .await?;
    let place = |intent: &Intent| (intent.created_at.into(), intent.id);
    let page = page.page_asking(found, place, |intent| view(&state, intent));
    Ok(Json(page.await?))
}

/// Read an intent with all that has happened to it.
#[utoipa::path(get, path = "/v1/intents/{id}", tag = "payments", operation_id = "intent_read",
    params(("id" = String, Path)), responses((status = 200, body = IntentHistoryView)))]
async fn read(
    me: Allowed<actions::IntentRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<IntentHistoryView>, Problem> {
    let found = state.app.payments.get(me.seat.broker_id, id).await?;
    Ok(Json(history(&state, found).await?))
}

/// The QR code that pays a top-up, as SVG.
///
/// A 409 where it waits for nobody any more: what is paid then is credited to nobody by itself.
#[utoipa::path(get, path = "/v1/intents/{id}/qr.svg", tag = "payments", operation_id = "intent_qr_svg",
    params(("id" = String, Path)),
    responses((status = 200, content_type = "image/svg+xml", body = String)))]
async fn qr_svg(
    me: Allowed<actions::IntentRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Response, Problem> {
    let text = payload_of(&state, me.seat.broker_id, id).await?;
    Ok(picture("image/svg+xml", qr::as_svg(&text)?))
}

/// The QR code that pays a top-up, as PNG.
///
/// A 409 where it waits for nobody any more: what is paid then is credited to nobody by itself.
#[utoipa::path(get, path = "/v1/intents/{id}/qr.png", tag = "payments", operation_id = "intent_qr_png",
    params(("id" = String, Path)),
    responses((status = 200, content_type = "image/png", body = Vec<u8>)))]
async fn qr_png(
    me: Allowed<actions::IntentRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Response, Problem> {
    let text = payload_of(&state, me.seat.broker_id, id).await?;
    Ok(picture("image/png", qr::as_png(&text)?))
}

async fn payload_of(state: &AppState, broker: BrokerId, id: Uuid) -> Result<String, Problem> {
    let found = state.app.payments.get(broker, id).await?;
    state.app.payments.payload(&found.intent).ok_or_else(|| {
        let detail = "Only a top-up that waits to be paid has a QR code.";
        Problem::new(Code::Conflict).detail(detail)
    })
}

fn picture(of: &'static str, body: impl IntoResponse) -> Response {
    // Once it is paid it must not be shown again.
    let headers = [
        (CONTENT_TYPE, of),
        (CACHE_CONTROL, "no-store"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (headers, body.into_response().into_body()).into_response()
}

pub(super) async fn history(
    state: &AppState,
    found: IntentHistory,
) -> Result<IntentHistoryView, Problem> {
    Ok(IntentHistoryView {
        intent: view(state, found.intent).await?,
        events: found
            .events
            .into_iter()
            .map(IntentEventView::from)
            .collect(),
    })
}

pub(super) async fn view(state: &AppState, intent: Intent) -> Result<IntentView, Problem> {
    let exponent = exponent_of(state, intent.currency.as_str()).await?;
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    Ok(IntentView {
        qr_payload: state.app.payments.payload(&intent),
        id: intent.id,
        kind: intent.kind,
        user_id: intent.user,
        wallet: intent.wallet.to_string(),
        currency_code: intent.currency.to_string(),
        amount: money(intent.amount),
        fee: money(intent.fee),
        channel: intent.channel,
        receiver: intent.receiver,
        book_account_id: intent.book_account,
        status: intent.status,
        reason: intent.reason,
        created_at: intent.created_at,
        updated_at: intent.updated_at,
    })
}

impl From<IntentEventRow> for IntentEventView {
    fn from(event: IntentEventRow) -> Self {
        Self {
            status_from: event.status_from,
            status_to: event.status_to,
            reason: event.reason,
            payload: event.payload,
            at: event.created_at,
        }
    }
}

impl From<PaymentError> for Problem {
    fn from(error: PaymentError) -> Self {
        let detail = error.to_string();
        match error {
            PaymentError::Hindered(hindrance) => hindrance.into(),
            PaymentError::Invalid { field, rule } => Self::invalid(field, rule),
            PaymentError::NoSuchIntent | PaymentError::NoSuchIncoming => Self::new(Code::NotFound),
            PaymentError::NoSuchWallet => Self::invalid("wallet", "is none of this broker's"),
            PaymentError::KeyReused => Self::new(Code::KeyReused),
            PaymentError::Reason(_) => Self::invalid("reason", detail),
            PaymentError::State { .. }
            | PaymentError::Incoming { .. }
            | PaymentError::PaymentTaken { .. }
            | PaymentError::SenderTaken { .. }
            | PaymentError::HasLeft { .. }
            | PaymentError::FundingRefused => Self::new(Code::Conflict).detail(detail),
            PaymentError::Book(error) => error.into(),
            PaymentError::Ledger(error) if !error.is_transient() => {
                tracing::error!(%error, "the ledger has something else");
                Self::new(Code::Internal)
            }
            PaymentError::Ledger(error) => {
                tracing::warn!(%error, "the ledger can't be asked now");
                Self::new(Code::Unavailable).retry_after(1)
            }
            PaymentError::Store(error) => error.into(),
            PaymentError::BrokenOff => Self::new(Code::Internal),
        }
    }
}
