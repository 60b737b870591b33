//! `/v1/swaps`: a client's exchange of one currency for another, in one's own book.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::money::{currency_named, exponent_of};
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{AccountId, SwapId};
use crate::domain::money::{Amount, format_minor};
use crate::domain::swap::Rate;
use crate::route;
use crate::services::books::{StoredEntry, Swap, SwapInput};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(create))
        .with(route!(list))
        .with(route!(read))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// The account that is debited.
    #[schema(value_type = String, example = "AC-b14b29cff4e8")]
    sold_account_id: AccountId,
    /// The account of the same owner that is credited.
    #[schema(value_type = String, example = "AC-0a5bb4c3d2e1")]
    bought_account_id: AccountId,
    /// What is sold: a decimal string in major units.
    #[schema(example = "100.00")]
    amount: String,
    /// That of the sold account.
    #[schema(example = "USD-CASH")]
    currency_code: String,
    /// That of the bought account.
    #[schema(example = "RUB-CASH")]
    bought_currency_code: String,
    /// Units bought for one unit sold, both in major units: at most 18 digits, 12 of them
    /// decimals. What it comes to is rounded down to the bought currency's smallest unit.
    #[schema(example = "92.35")]
    rate: String,
    /// At most 1000 characters. It stands beside the chain, which has its digest only.
    note: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SideView {
    #[schema(value_type = String)]
    account_id: AccountId,
    currency_code: String,
    amount: String,
    /// The entry's place in the chain.
    seq: u64,
    /// The account's balance after it.
    balance: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SwapView {
    #[schema(value_type = String, example = "SW-5f1de2a90c44")]
    id: SwapId,
    sold: SideView,
    bought: SideView,
    /// As it was stated; null where it was erased.
    #[schema(required)]
    rate: Option<String>,
    #[schema(required)]
    note: Option<String>,
    booked_at: DateTime<Utc>,
}

/// Exchange what is on one account of a client for another currency on another account of it.
///
/// Both entries are booked together or not at all. What the account hasn't got is a 409
/// `books_refused`, and stays one for its Idempotency-Key.
#[utoipa::path(post, path = "/v1/swaps", tag = "book", operation_id = "swap_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = SwapView)))]
async fn create(
    me: Allowed<actions::SwapCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<SwapView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let from = currency_named(&state, "currency_code", &body.currency_code).await?;
    let to = currency_named(&state, "bought_currency_code", &body.bought_currency_code).await?;
    let sold = Amount::parse(&body.amount, &from)
        .map_err(|error| Problem::invalid("amount", error.to_string()))?;
    let rate: Rate = body
        .rate
        .parse()
        .map_err(|error: crate::domain::swap::RateError| {
            Problem::invalid("rate", error.to_string())
        })?;
    let exponent = from.exponent;
    let input = SwapInput {
        sold_account: body.sold_account_id,
        bought_account: body.bought_account_id,
        sold,
        from,
        to,
        rate,
        note: body.note,
    };
    let (now, broker) = (state.clock.now(), me.seat.broker_id);
    let swap = state.app.books.swap(broker, &intention, input, now).await;
    let swap = swap.map_err(|error| error.in_major(exponent))?;
    Ok((StatusCode::CREATED, Json(view(&state, swap).await?)))
}

/// List the exchanges of one's book, newest first.
#[utoipa::path(get, path = "/v1/swaps", tag = "book", operation_id = "swap_list",
    params(ListQuery), responses((status = 200, body = Page<SwapView>)))]
async fn list(
    me: Allowed<actions::SwapList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<SwapView>>, Problem> {
    let page = PageRequest::<u64>::read("swaps", query.limit, query.cursor.as_deref())?;
    let books = &state.app.books;
    let found = books
        .swaps(me.seat.broker_id, page.after, page.fetch())
        .await?;
    let place = |swap: &Swap| swap.sold.entry.seq;
    let page = page.page_asking(found, place, |swap| view(&state, swap));
    Ok(Json(page.await?))
}

/// Read an exchange.
#[utoipa::path(get, path = "/v1/swaps/{id}", tag = "book", operation_id = "swap_read",
    params(("id" = String, Path)), responses((status = 200, body = SwapView)))]
async fn read(
    me: Allowed<actions::SwapRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<SwapId>,
) -> Result<Json<SwapView>, Problem> {
    let swap = state.app.books.swap_of(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, swap).await?))
}

async fn view(state: &AppState, swap: Swap) -> Result<SwapView, Problem> {
    Ok(SwapView {
        id: swap.id,
        rate: swap.rate().map(str::to_owned),
        note: swap.note().map(str::to_owned),
        booked_at: swap.sold.entry.booked_at,
        sold: side(state, swap.sold).await?,
        bought: side(state, swap.bought).await?,
    })
}

async fn side(state: &AppState, stored: StoredEntry) -> Result<SideView, Problem> {
    let entry = stored.entry;
    let exponent = exponent_of(state, entry.currency.as_str()).await?;
    Ok(SideView {
        account_id: entry.account,
        amount: format_minor(i128::from(entry.amount), exponent),
        balance: format_minor(i128::from(entry.balance), exponent),
        currency_code: entry.currency.into(),
        seq: entry.seq,
    })
}
