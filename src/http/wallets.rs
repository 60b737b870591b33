//! `/v1/wallets`: what payments go out of and come into.

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
use super::params::QueryOf;
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ledger::{AccountName, account_id};
use crate::domain::money::{Amount, format_minor};
use crate::route;
use crate::services::payments::{NewWallet, WalletBalance};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(open))
        .with(route!(list))
        .with(route!(fund))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct OpenBody {
    #[schema(example = "THB")]
    currency_code: String,
    /// One of one's partners; without it the wallet is one's own.
    #[schema(example = "FO-0a5bb4c3d2e1")]
    partner_uid: Option<String>,
    /// What IPPS knows the sender by: 1 to 64 of letters, digits, '-', '_' and '.'.
    ipps_wallet_id: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct FundBody {
    #[schema(example = "merchant.7.THB")]
    wallet: String,
    currency_code: String,
    #[schema(example = "100000.00")]
    amount: String,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct WalletView {
    /// The name that its account in the ledger is known by.
    wallet: String,
    /// The account's id there, which anybody computes from the name.
    tb_account_id: String,
    user_id: String,
    currency_code: String,
    /// What is on it.
    balance: String,
    /// Of that, what is promised to payouts under way.
    held: String,
    /// What can be paid out.
    available: String,
    #[schema(required)]
    ipps_wallet_id: Option<String>,
    created_at: DateTime<Utc>,
}

/// Open a wallet, of one's own or of a partner's.
///
/// It is identified by its owner and currency, so a repeat gives the same wallet and needs no
/// Idempotency-Key; what a provider knows the sender by is set where it is said.
#[utoipa::path(post, path = "/v1/wallets", tag = "payments", operation_id = "wallet_open",
    request_body = OpenBody, responses((status = 201, body = WalletView)))]
async fn open(
    me: Allowed<actions::WalletOpen>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<OpenBody>,
) -> Result<(StatusCode, Json<WalletView>), Problem> {
    let currency = currency_named(&state, "currency_code", &body.currency_code).await?;
    let new = NewWallet {
        partner: body.partner_uid,
        currency,
        ipps_wallet_id: body.ipps_wallet_id,
    };
    let opened = state
        .app
        .payments
        .open_wallet(me.seat.broker_id, new)
        .await?;
    Ok((StatusCode::CREATED, Json(view(&state, opened).await?)))
}

/// List one's wallets and what is on them, by name.
#[utoipa::path(get, path = "/v1/wallets", tag = "payments", operation_id = "wallet_list",
    params(ListQuery), responses((status = 200, body = Page<WalletView>)))]
async fn list(
    me: Allowed<actions::WalletList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<WalletView>>, Problem> {
    let page = PageRequest::<String>::read("wallets", query.limit, query.cursor.as_deref())?;
    if page
        .after
        .as_ref()
        .is_some_and(|after| after.contains('\0'))
    {
        return Err(Problem::invalid("cursor", "not a cursor of this list"));
    }
    let payments = &state.app.payments;
    let found = payments
        .wallets(me.seat.broker_id, page.after.as_deref(), page.fetch())
        .await?;
    let place = |found: &WalletBalance| found.wallet.name.to_string();
    let page = page.page_asking(found, place, |found| view(&state, found));
    Ok(Json(page.await?))
}

/// Fund any broker's wallet from the network's own money, for a pilot.
///
/// A key is one funding, whoever of the platform's people sends it, and from the command line too.
#[utoipa::path(post, path = "/v1/admin/wallets/fund", tag = "admin", operation_id = "admin_wallet_fund",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = FundBody, responses((status = 200, body = WalletView)))]
async fn fund(
    me: Allowed<actions::AdminWalletFund>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<FundBody>,
) -> Result<Json<WalletView>, Problem> {
    let name = named_wallet(&body.wallet)?;
    let currency = currency_named(&state, "currency_code", &body.currency_code).await?;
    if currency.code != *name.currency() {
        return Err(Problem::invalid(
            "currency_code",
            format!("{name} is in {}", name.currency()),
        ));
    }
    let amount = Amount::parse(&body.amount, &currency)
        .map_err(|error| Problem::invalid("amount", error.to_string()))?;
    let funded = state
        .app
        .payments
        .fund(&name, amount, key.as_str(), me.principal.sub())
        .await?;
    Ok(Json(view(&state, funded).await?))
}

pub(super) fn named_wallet(text: &str) -> Result<AccountName, Problem> {
    text.parse::<AccountName>()
        .map_err(|error| Problem::invalid("wallet", error.to_string()))
}

async fn view(state: &AppState, found: WalletBalance) -> Result<WalletView, Problem> {
    let exponent = exponent_of(state, found.wallet.currency.as_str()).await?;
    let held = i128::try_from(found.balances.debits_pending).unwrap_or(i128::MAX);
    let available = found.available();
    Ok(WalletView {
        tb_account_id: account_id(&found.wallet.name).to_string(),
        wallet: found.wallet.name.to_string(),
        user_id: found.wallet.user,
        currency_code: found.wallet.currency.to_string(),
        balance: format_minor(found.balances.posted(), exponent),
        held: format_minor(held, exponent),
        available: format_minor(available, exponent),
        ipps_wallet_id: found.wallet.ipps_wallet_id,
        created_at: found.wallet.created_at,
    })
}
