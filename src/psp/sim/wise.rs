//! WISE, as far as the driver uses its public API.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::TimeDelta;
use serde::Deserialize;
use serde_json::{Number, Value, json};

use super::book::{Account, Book, Entry, Magic, Payment, Quote, Transfer, id_of};
use super::{Asked, Reply, Simulator, refusal};
use crate::domain::payment::PspName;

const FEE: &str = "0.60";
/// How long an offer stands.
const QUOTE_LIVES: TimeDelta = TimeDelta::minutes(30);
/// How often the funding of a transfer to such a receiver is refused before it is taken.
const REFUSED_FUNDINGS: u32 = 2;
/// What a transfer is seen in, one state per question: once it is funded, and once it has bounced.
const FUNDED: [&str; 3] = ["processing", "funds_converted", "outgoing_payment_sent"];
const BOUNCED: [&str; 4] = ["bounced_back", "processing", "cancelled", "funds_refunded"];
/// How many transfers a page of the list holds where the client doesn't say.
const PAGE: usize = 10;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewAccount {
    profile: u64,
    account_holder_name: String,
    currency: String,
    r#type: String,
    details: Details,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Details {
    legal_type: String,
    #[serde(rename = "IBAN")]
    iban: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewQuote {
    source_currency: String,
    target_currency: String,
    target_amount: Number,
    target_account: u64,
    pay_out: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewTransfer {
    target_account: u64,
    quote_uuid: String,
    customer_transaction_id: uuid::Uuid,
    details: Reference,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Reference {
    reference: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Funding {
    r#type: String,
}

#[derive(Deserialize)]
struct Listed {
    limit: Option<usize>,
    offset: Option<usize>,
}

pub(super) fn routes() -> Router<Simulator> {
    Router::new()
        .route("/v1/accounts", post(new_account))
        .route("/v3/profiles/{profile}/quotes", post(new_quote))
        .route("/v1/transfers", post(new_transfer).get(list))
        .route("/v1/transfers/{transfer}", get(show))
        .route(
            "/v3/profiles/{profile}/transfers/{transfer}/payments",
            post(fund),
        )
}

async fn new_account(
    State(simulator): State<Simulator>,
    new: Result<Json<NewAccount>, JsonRejection>,
) -> Response {
    let new = match new {
        Ok(Json(new)) => new,
        Err(error) => return not_understood(&error),
    };
    let asked = Asked {
        operation: "account",
        uid: new.details.iban.clone(),
    };
    let decide = move |_: &Simulator, book: &mut Book| {
        let iban = &new.details.iban;
        let magic = Magic::of(iban);
        if matches!(magic, Some(Magic::NotFound | Magic::Closed)) || new.r#type != "iban" {
            return (refused("NOT_VALID", "IBAN"), Vec::new());
        }
        let id = id_of("account", iban, book.accounts.len());
        let account = Account {
            id,
            holder: new.account_holder_name,
            iban: iban.clone(),
            currency: new.currency,
        };
        let reply = Reply::ok(json!({
            "id": id,
            "profile": new.profile,
            "accountHolderName": account.holder,
            "currency": account.currency,
            "type": "iban",
            "active": true,
            "details": { "legalType": new.details.legal_type, "IBAN": iban },
        }));
        (reply, vec![Entry::Account(account)])
    };
    simulator.answer(asked, decide).await
}

async fn new_quote(
    State(simulator): State<Simulator>,
    Path(profile): Path<u64>,
    new: Result<Json<NewQuote>, JsonRejection>,
) -> Response {
    let new = match new {
        Ok(Json(new)) => new,
        Err(error) => return not_understood(&error),
    };
    let asked = Asked {
        operation: "quote",
        uid: new.target_account.to_string(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let known = book.accounts.contains_key(&new.target_account);
        if !known || new.source_currency != new.target_currency {
            return (refused("NOT_VALID", "targetAccount"), Vec::new());
        }
        let nth = book.quotes.len();
        let at = u128::from(id_of("quote", &new.target_account.to_string(), nth));
        let quote = Quote {
            id: uuid::Builder::from_u128(at << 64 | at)
                .into_uuid()
                .to_string(),
            currency: new.target_currency,
            amount: new.target_amount.to_string(),
            expires_at: simulator.0.clock.now() + QUOTE_LIVES,
        };
        let reply = Reply::ok(json!({
            "id": quote.id,
            "profile": profile,
            "sourceCurrency": quote.currency,
            "targetCurrency": quote.currency,
            "targetAmount": new.target_amount,
            "targetAccount": new.target_account,
            "payOut": new.pay_out,
            "rate": 1,
            "status": "PENDING",
            "expirationTime": quote.expires_at,
        }));
        (reply, vec![Entry::Quote(quote)])
    };
    simulator.answer(asked, decide).await
}

async fn new_transfer(
    State(simulator): State<Simulator>,
    new: Result<Json<NewTransfer>, JsonRejection>,
) -> Response {
    let new = match new {
        Ok(Json(new)) => new,
        Err(error) => return not_understood(&error),
    };
    let uid = new.customer_transaction_id.to_string();
    let asked = Asked {
        operation: "transfer",
        uid: uid.clone(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let mut of_uid = book.transfers().filter(|transfer| transfer.uid == uid);
        let first = of_uid.next();
        if let (Some(first), true) = (first, simulator.0.deduplicates) {
            if first.account != new.target_account || first.intent != new.details.reference {
                return (refused("NOT_UNIQUE", "customerTransactionId"), Vec::new());
            }
            return (Reply::ok(shown(first, state(book, first))), Vec::new());
        }
        let nth = of_uid.count() + usize::from(first.is_some());
        let now = simulator.0.clock.now();
        let account = book.accounts.get(&new.target_account);
        let quote = book.quotes.get(&new.quote_uuid);
        let quote = quote.filter(|quote| quote.expires_at > now);
        let (Some(account), Some(quote)) = (account, quote) else {
            return (refused("NOT_VALID", "quoteUuid"), Vec::new());
        };
        if book.transfers().any(|transfer| transfer.quote == quote.id) {
            return (refused("NOT_VALID", "quoteUuid"), Vec::new());
        }
        match Magic::of(&account.iban) {
            Some(Magic::OverLimit | Magic::ClosedSince) => {
                return (refused("NOT_VALID", "targetAccount"), Vec::new());
            }
            Some(Magic::Compliance) => return (refused("ERROR", "targetAccount"), Vec::new()),
            Some(_) | None => {}
        }
        let rates = simulator.0.draws.rates();
        let unknown = simulator.0.draws.happens("unknown", &uid, rates.unknown);
        let transfer = Transfer {
            id: id_of("transfer", &uid, nth),
            uid,
            intent: new.details.reference,
            account: account.id,
            quote: quote.id.clone(),
            currency: quote.currency.clone(),
            amount: quote.amount.clone(),
            created_at: now,
            unknown_asks: if unknown { rates.unknown_asks } else { 0 },
        };
        let reply = Reply::ok(shown(&transfer, "incoming_payment_waiting"));
        (reply, vec![Entry::Transfer(transfer)])
    };
    simulator.answer(asked, decide).await
}

async fn list(State(simulator): State<Simulator>, Query(listed): Query<Listed>) -> Response {
    let asked = Asked {
        operation: "list",
        uid: String::new(),
    };
    let decide = move |_: &Simulator, book: &mut Book| {
        let page: Vec<Transfer> = book
            .transfers()
            .skip(listed.offset.unwrap_or(0))
            .take(listed.limit.unwrap_or(PAGE))
            .cloned()
            .collect();
        let known =
            |transfer: &&Transfer| book.asked("wise list", &transfer.uid) >= transfer.unknown_asks;
        let page: Vec<_> = page.iter().filter(known).cloned().collect();
        let page: Vec<_> = page
            .iter()
            .map(|transfer| shown(transfer, state(book, transfer)))
            .collect();
        (Reply::ok(json!(page)), Vec::new())
    };
    simulator.answer(asked, decide).await
}

async fn show(State(simulator): State<Simulator>, Path(id): Path<u64>) -> Response {
    let asked = Asked {
        operation: "show",
        uid: id.to_string(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let asks = book.asked("wise show", &id.to_string());
        let Some(transfer) = book.transfer(id).cloned() else {
            return (unknown(), Vec::new());
        };
        if asks < transfer.unknown_asks {
            return (unknown(), Vec::new());
        }
        let before = state(book, &transfer);
        let mut entries = Vec::new();
        if before != "incoming_payment_waiting" {
            let what = if book.has_bounced(id) {
                "wise bounced"
            } else {
                "wise funded"
            };
            book.asked(what, &id.to_string());
            if !book.has_bounced(id) && comes_back(simulator, book, &transfer, before) {
                entries.push(Entry::Bounced { transfer: id });
            }
        }
        (Reply::ok(shown(&transfer, before)), entries)
    };
    simulator.answer(asked, decide).await
}

/// Whether the money comes back now that the client has seen the transfer in that state.
fn comes_back(simulator: &Simulator, book: &Book, transfer: &Transfer, seen: &str) -> bool {
    let iban = book
        .accounts
        .get(&transfer.account)
        .map(|account| account.iban.as_str());
    let rate = simulator.0.draws.rates().bounce;
    match (iban.and_then(Magic::of), seen) {
        (Some(Magic::Bounces | Magic::SlowlyRefused), "funds_converted") => true,
        (_, "outgoing_payment_sent") => simulator.0.draws.happens("bounce", &transfer.uid, rate),
        _ => false,
    }
}

async fn fund(
    State(simulator): State<Simulator>,
    Path((_profile, id)): Path<(u64, u64)>,
    funding: Result<Json<Funding>, JsonRejection>,
) -> Response {
    match funding {
        Ok(Json(funding)) if funding.r#type == "BALANCE" => {}
        Ok(_) => return refusal(StatusCode::BAD_REQUEST, "NOT_VALID", "type is BALANCE here"),
        Err(error) => return not_understood(&error),
    }
    let asked = Asked {
        operation: "payment",
        uid: id.to_string(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let fundings = book.asked("wise fund", &id.to_string());
        let Some(transfer) = book.transfer(id) else {
            return (unknown(), Vec::new());
        };
        let iban = book
            .accounts
            .get(&transfer.account)
            .map(|account| account.iban.as_str());
        let short = iban.and_then(Magic::of) == Some(Magic::BalanceTooSmall);
        if short && fundings < REFUSED_FUNDINGS {
            let reply = json!({
                "type": "BALANCE",
                "status": "REJECTED",
                "errorCode": "balance.payment-option-unavailable",
            });
            return (Reply::of(StatusCode::CREATED, reply), Vec::new());
        }
        let done = json!({ "type": "BALANCE", "status": "COMPLETED", "errorCode": null });
        let done = Reply::of(StatusCode::CREATED, done);
        let nth = funded(book, transfer);
        if nth > 0 && simulator.0.deduplicates {
            return (done, Vec::new());
        }
        let payment = Payment {
            provider: PspName::Wise,
            uid: transfer.uid.clone(),
            intent: transfer.intent.clone(),
            response_id: id.to_string(),
            currency: transfer.currency.clone(),
            amount: transfer.amount.clone(),
            fee: FEE.to_owned(),
            paid_at: simulator.0.clock.now(),
            unknown_asks: 0,
            pending_asks: 0,
        };
        (done, vec![Entry::Paid(payment)])
    };
    simulator.answer(asked, decide).await
}

/// How often a transfer was funded.
fn funded(book: &Book, transfer: &Transfer) -> usize {
    let id = transfer.id.to_string();
    let paid = book.paid(PspName::Wise, &transfer.uid);
    paid.iter()
        .filter(|payment| payment.response_id == id)
        .count()
}

fn state(book: &Book, transfer: &Transfer) -> &'static str {
    let id = transfer.id.to_string();
    let at = |what, states: &[&'static str]| {
        let asks = usize::try_from(book.asks(what, &id)).unwrap_or(usize::MAX);
        states[asks.min(states.len() - 1)]
    };
    if book.has_bounced(transfer.id) {
        at("wise bounced", &BOUNCED)
    } else if funded(book, transfer) > 0 {
        at("wise funded", &FUNDED)
    } else {
        "incoming_payment_waiting"
    }
}

fn shown(transfer: &Transfer, status: &str) -> Value {
    // It came as a number.
    let amount: Option<Number> = transfer.amount.parse().ok();
    json!({
        "id": transfer.id,
        "targetAccount": transfer.account,
        "quoteUuid": transfer.quote,
        "status": status,
        "rate": 1,
        "created": transfer.created_at,
        "sourceCurrency": transfer.currency,
        "sourceValue": amount,
        "targetCurrency": transfer.currency,
        "targetValue": amount,
        "customerTransactionId": transfer.uid,
        "details": { "reference": transfer.intent },
    })
}

fn unknown() -> Reply {
    let body =
        json!({ "errors": [{ "code": "transfer.not-found", "message": "no such transfer" }] });
    Reply::of(StatusCode::NOT_FOUND, body)
}

fn refused(code: &str, path: &str) -> Reply {
    let error = json!({ "code": code, "message": "refused", "path": path, "arguments": [] });
    let body = json!({ "errors": [error] });
    Reply::of(StatusCode::UNPROCESSABLE_ENTITY, body)
}

fn not_understood(error: &JsonRejection) -> Response {
    refusal(StatusCode::BAD_REQUEST, "NotNull", &error.body_text())
}
