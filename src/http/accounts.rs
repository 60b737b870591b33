//! `/v1/accounts`: the accounts of one's own book, and entries that a broker makes by itself.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::chain::{EntriesQuery, TransactionView, transaction_page, transaction_view};
use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::money::{currency_named, exponent_of};
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::account::{OwnerKind, Side};
use crate::domain::book::AccountState;
use crate::domain::ids::AccountId;
use crate::domain::money::{Amount, format_minor};
use crate::route;
use crate::services::StoreError;
use crate::services::books::{BooksError, EntryInput, NewAccount, OwnEntryKind};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(open))
        .with(route!(read))
        .with(route!(close))
        .with(route!(transactions))
        .with(route!(book_entry))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Those of one owner only.
    owner_ref: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct AccountView {
    #[schema(value_type = String, example = "AC-b14b29cff4e8")]
    id: AccountId,
    /// `house`, `cashier`, `partner`
    #[schema(value_type = String)]
    owner_kind: OwnerKind,
    owner_ref: String,
    pub(super) currency_code: String,
    /// `open`, `closed`
    state: &'static str,
    #[schema(example = "10000.00")]
    balance: String,
    /// Promised and not yet booked.
    reserved: String,
    /// The floor; null where there is none.
    #[schema(required)]
    min_balance: Option<String>,
    /// balance less reserved less min_balance: what a debit may take; null without a floor.
    #[schema(required)]
    available: Option<String>,
    created_at: DateTime<Utc>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct OpenBody {
    /// `cashier`, `partner`; `house` for one of the broker's own, which open by themselves when
    /// they are first booked on.
    #[schema(value_type = String, example = "partner")]
    owner_kind: OwnerKind,
    /// 1 to 64 of letters, digits, `_`, `-` and `.`; for the house `main`, `commission` or
    /// `suspense`. A partner's accounts are those of its uid.
    #[schema(example = "FO-0a5bb4c3d2e1")]
    owner_ref: String,
    #[schema(example = "USD")]
    currency_code: String,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct EntryBody {
    /// `opening`: what was there before the book began; `correction`
    #[schema(value_type = String, example = "opening")]
    kind: OwnEntryKind,
    /// `debit` (the balance falls), `credit` (it rises)
    #[schema(value_type = String, example = "credit")]
    side: Side,
    /// Decimal string in major units.
    #[schema(example = "250.00")]
    amount: String,
    /// The account's.
    #[schema(example = "USD")]
    currency_code: String,
    /// At most 1000 characters. It stands beside the chain, which has its digest only.
    note: Option<String>,
}

/// List the accounts of one's book, newest first.
#[utoipa::path(get, path = "/v1/accounts", tag = "book", operation_id = "account_list",
    params(ListQuery), responses((status = 200, body = Page<AccountView>)))]
async fn list(
    me: Allowed<actions::AccountList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<AccountView>>, Problem> {
    let page = PageRequest::<Place>::read("accounts", query.limit, query.cursor.as_deref())?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), AccountId::from_bits(id)));
    let found = state
        .app
        .books
        .accounts(me.seat.broker_id, query.owner_ref, after, page.fetch())
        .await?;
    let place = |(id, account): &(AccountId, AccountState)| (account.created_at.into(), id.bits());
    let page = page.page_asking(found, place, |(_, account)| view(&state, account));
    Ok(Json(page.await?))
}

/// Open an account for a cashier or a partner.
///
/// One that was closed is opened again; one that is open is given as it is.
#[utoipa::path(post, path = "/v1/accounts", tag = "book", operation_id = "account_open",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = OpenBody, responses((status = 201, body = AccountView)))]
async fn open(
    me: Allowed<actions::AccountOpen>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<OpenBody>,
) -> Result<(StatusCode, Json<AccountView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let currency = currency_named(&state, "currency_code", &body.currency_code).await?;
    let new = NewAccount {
        owner_kind: body.owner_kind,
        owner_ref: body.owner_ref,
        currency: currency.code,
    };
    let now = state.clock.now();
    let books = &state.app.books;
    let account = books
        .open_account(me.seat.broker_id, &intention, new, now)
        .await?;
    Ok((StatusCode::CREATED, Json(view(&state, account).await?)))
}

/// Read an account.
#[utoipa::path(get, path = "/v1/accounts/{id}", tag = "book", operation_id = "account_read",
    params(("id" = String, Path)), responses((status = 200, body = AccountView)))]
async fn read(
    me: Allowed<actions::AccountRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<AccountId>,
) -> Result<Json<AccountView>, Problem> {
    let account = state.app.books.account(me.seat.broker_id, id).await?;
    Ok(Json(view(&state, account).await?))
}

/// Close an account of a cashier or a partner on which nothing is promised.
///
/// What it holds stays in it; a credit that still comes goes to the house's suspense account.
#[utoipa::path(post, path = "/v1/accounts/{id}/close", tag = "book", operation_id = "account_close",
    params(("id" = String, Path)), responses((status = 200, body = AccountView)))]
async fn close(
    me: Allowed<actions::AccountClose>,
    State(state): State<AppState>,
    PathOf(id): PathOf<AccountId>,
) -> Result<Json<AccountView>, Problem> {
    let now = state.clock.now();
    let books = &state.app.books;
    let account = books.close_account(me.seat.broker_id, id, now).await?;
    Ok(Json(view(&state, account).await?))
}

/// List the entries of an account, newest first.
#[utoipa::path(get, path = "/v1/accounts/{id}/transactions", tag = "book",
    operation_id = "account_transactions", params(("id" = String, Path), EntriesQuery),
    responses((status = 200, body = Page<TransactionView>)))]
async fn transactions(
    me: Allowed<actions::TransactionList>,
    State(state): State<AppState>,
    PathOf(id): PathOf<AccountId>,
    QueryOf(query): QueryOf<EntriesQuery>,
) -> Result<Json<Page<TransactionView>>, Problem> {
    transaction_page(&state, me.seat, Some(id), &query).await
}

/// Book an opening balance or a correction.
///
/// It is an entry of the chain like any other, and never changed: a mistake is put right by a
/// further one. A debit that the account can't bear is a 409 `books_refused`, and stays one for
/// its Idempotency-Key.
#[utoipa::path(post, path = "/v1/accounts/{id}/entries", tag = "book", operation_id = "account_entry",
    params(("id" = String, Path), ("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = EntryBody, responses((status = 201, body = TransactionView)))]
async fn book_entry(
    me: Allowed<actions::AccountEntry>,
    State(state): State<AppState>,
    PathOf(id): PathOf<AccountId>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<EntryBody>,
) -> Result<(StatusCode, Json<TransactionView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let books = &state.app.books;
    let account = books.account(me.seat.broker_id, id).await?;
    let currency = currency_named(&state, "currency_code", &body.currency_code).await?;
    if currency.code != account.owner.currency {
        let detail = format!("the account is in {}", account.owner.currency);
        return Err(Problem::invalid("currency_code", detail));
    }
    let amount = Amount::parse(&body.amount, &currency)
        .map_err(|error| Problem::invalid("amount", error.to_string()))?;
    let input = EntryInput {
        account: id,
        kind: body.kind,
        side: body.side,
        amount,
        note: body.note,
    };
    let now = state.clock.now();
    let entry = books
        .book_entry(me.seat.broker_id, &intention, input, now)
        .await
        .map_err(|error| error.in_major(currency.exponent))?;
    let view = transaction_view(&state, entry).await?;
    Ok((StatusCode::CREATED, Json(view)))
}

pub(super) async fn view(state: &AppState, account: AccountState) -> Result<AccountView, Problem> {
    let exponent = exponent_of(state, account.owner.currency.as_str()).await?;
    let money = |minor: i64| format_minor(i128::from(minor), exponent);
    let balance = account.balance;
    Ok(AccountView {
        id: account.owner.id(),
        owner_kind: account.owner.owner_kind,
        owner_ref: account.owner.owner_ref,
        currency_code: account.owner.currency.into(),
        state: if account.open { "open" } else { "closed" },
        balance: money(balance.balance),
        reserved: money(balance.reserved),
        min_balance: balance.min_balance.map(money),
        available: balance.available().map(money),
        created_at: account.created_at,
    })
}

impl From<BooksError> for Problem {
    fn from(error: BooksError) -> Self {
        let detail = error.to_string();
        match error {
            BooksError::Invalid { field, rule } => Self::invalid(field, rule),
            BooksError::Unfit { field, rule } => Self::invalid(field, rule),
            BooksError::NoSuchAccount | BooksError::NoSuchSwap => Self::new(Code::NotFound),
            BooksError::Hindered(hindrance) => hindrance.into(),
            BooksError::HouseAccount | BooksError::Archived => {
                Self::new(Code::Conflict).detail(detail)
            }
            BooksError::Promised { .. } => {
                Self::new(Code::Conflict).detail("Something is promised on it: see reserved.")
            }
            BooksError::Refused { reason } => Self::new(Code::BooksRefused).with("reason", reason),
            BooksError::KeyReused => Self::new(Code::KeyReused),
            BooksError::Store(StoreError::NoBook { .. }) => {
                Self::new(Code::NotFound).detail("The broker has no book yet.")
            }
            BooksError::Store(error) => error.into(),
            BooksError::BrokenOff => Self::internal(&error),
        }
    }
}
