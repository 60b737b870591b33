//! IPPS, as `docs/psp.md` has its messages.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::post;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};

use super::book::{Book, Entry, Magic, Payment, id_of};
use super::faults::number;
use super::{Asked, Reply, Simulator, refusal};
use crate::domain::payment::PspName;
use crate::domain::payment::receiver::thai_bank;

const FEE: &str = "2.50";
/// Whom IPPS has no wallet of.
const NO_WALLET: &str = "unknown";
/// How often it says that it is working on a payment to a slow receiver.
const SLOW_ASKS: u32 = 2;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Order {
    rq_uid: String,
    reference: String,
    sender_wallet: String,
    receiver: To,
    amount: String,
    currency: String,
    lookup_ref: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum To {
    #[serde(rename_all = "camelCase")]
    Account {
        bank_code: String,
        account_no: String,
    },
    Proxy {
        proxy: String,
    },
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Inquiry {
    confirm_rq_uid: String,
}

pub(super) fn routes() -> Router<Simulator> {
    Router::new()
        .route("/ipps/v1/lookup", post(look_up))
        .route("/ipps/v1/confirm", post(confirm))
        .route("/ipps/v1/inquiry", post(inquire))
}

async fn look_up(
    State(simulator): State<Simulator>,
    order: Result<Json<Order>, JsonRejection>,
) -> Response {
    let order = match order {
        Ok(Json(order)) => order,
        Err(error) => return not_understood(&error),
    };
    let asked = Asked {
        operation: "lookup",
        uid: order.rq_uid.clone(),
    };
    let decide = move |_: &Simulator, _: &mut Book| (looked_up(&order), Vec::new());
    simulator.answer(asked, decide).await
}

async fn confirm(
    State(simulator): State<Simulator>,
    order: Result<Json<Order>, JsonRejection>,
) -> Response {
    let order = match order {
        Ok(Json(order)) => order,
        Err(error) => return not_understood(&error),
    };
    let asked = Asked {
        operation: "confirm",
        uid: order.rq_uid.clone(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| confirmed(simulator, book, &order);
    simulator.answer(asked, decide).await
}

async fn inquire(
    State(simulator): State<Simulator>,
    inquiry: Result<Json<Inquiry>, JsonRejection>,
) -> Response {
    let uid = match inquiry {
        Ok(Json(inquiry)) => inquiry.confirm_rq_uid,
        Err(error) => return not_understood(&error),
    };
    let asked = Asked {
        operation: "inquiry",
        uid: uid.clone(),
    };
    let decide = move |_: &Simulator, book: &mut Book| (answered(book, &uid), Vec::new());
    simulator.answer(asked, decide).await
}

fn looked_up(order: &Order) -> Reply {
    let code = match order.receiver.magic() {
        _ if order.sender_wallet.starts_with(NO_WALLET) => "2001",
        Some(Magic::NotFound) => "1001",
        Some(Magic::Closed) => "1002",
        Some(_) | None => {
            let bank = order.receiver.bank();
            return Reply::ok(json!({
                "code": "0000",
                "rqUid": order.rq_uid,
                "lookupRef": order.lookup_ref(),
                "receiver": {
                    "nameEn": "Somchai Jaidee",
                    "displayName": "สมชาย จ.",
                    "bankCode": bank,
                    "bankName": thai_bank(bank),
                },
            }));
        }
    };
    refused(code)
}

fn confirmed(simulator: &Simulator, book: &Book, order: &Order) -> (Reply, Vec<Entry>) {
    let uid = &order.rq_uid;
    let paid = book.paid(PspName::Ipps, uid);
    if simulator.0.deduplicates {
        if let Some(first) = paid.first() {
            let same = first.intent == order.reference
                && first.amount == order.amount
                && first.currency == order.currency;
            let reply = if same {
                told(first, book.asks("ipps", uid))
            } else {
                refused("2003")
            };
            return (reply, Vec::new());
        }
        if let Some(refusal) = book.refusal(PspName::Ipps, uid) {
            let reply = if refusal.pending_asks > book.asks("ipps", uid) {
                pending()
            } else {
                refused(&refusal.code)
            };
            return (reply, Vec::new());
        }
    }
    let magic = order.receiver.magic();
    let code = match magic {
        _ if order.lookup_ref.as_ref() != Some(&order.lookup_ref()) => "1006",
        _ if order.sender_wallet.starts_with(NO_WALLET) => "2001",
        Some(Magic::NotFound) => "1001",
        Some(Magic::Closed | Magic::ClosedSince) => "1002",
        Some(Magic::OverLimit) => "1003",
        Some(Magic::SlowlyRefused) => "1005",
        Some(Magic::Compliance) => "2002",
        Some(Magic::Slow | Magic::Bounces | Magic::BalanceTooSmall) | None => {
            let rates = simulator.0.draws.rates();
            let unknown = simulator.0.draws.happens("unknown", uid, rates.unknown);
            let nth = paid.len();
            let payment = Payment {
                provider: PspName::Ipps,
                uid: uid.clone(),
                intent: order.reference.clone(),
                response_id: format!("IPPS{}", id_of("ipps", uid, nth)),
                currency: order.currency.clone(),
                amount: order.amount.clone(),
                fee: FEE.to_owned(),
                paid_at: simulator.0.clock.now(),
                unknown_asks: if unknown { rates.unknown_asks } else { 0 },
                pending_asks: if magic == Some(Magic::Slow) {
                    SLOW_ASKS
                } else {
                    0
                },
            };
            let reply = told(&payment, payment.unknown_asks);
            return (reply, vec![Entry::Paid(payment)]);
        }
    };
    let slowly = magic == Some(Magic::SlowlyRefused);
    let reply = if slowly { pending() } else { refused(code) };
    let entry = Entry::Refused {
        provider: PspName::Ipps,
        uid: uid.clone(),
        code: code.to_owned(),
        pending_asks: if slowly { SLOW_ASKS } else { 0 },
    };
    (reply, vec![entry])
}

fn answered(book: &mut Book, uid: &str) -> Reply {
    let asks = book.asked("ipps", uid);
    if let Some(payment) = book.paid(PspName::Ipps, uid).first() {
        if asks < payment.unknown_asks {
            return unknown();
        }
        return told(payment, asks);
    }
    match book.refusal(PspName::Ipps, uid) {
        Some(refusal) if asks < refusal.pending_asks => pending(),
        Some(refusal) => Reply::ok(json!({
            "code": "0000",
            "status": "REJECTED",
            "reasonCode": refusal.code,
        })),
        None => unknown(),
    }
}

/// What is said of a payment to who asks after so many others.
fn told(payment: &Payment, asks: u32) -> Reply {
    if asks < payment.unknown_asks + payment.pending_asks {
        return pending();
    }
    Reply::ok(json!({
        "code": "0000",
        "status": "PAID",
        "rqUid": payment.uid,
        "responseId": payment.response_id,
        "amount": payment.amount,
        "currency": payment.currency,
        "fee": payment.fee,
        "settlementDate": payment.paid_at.format("%Y%m%d").to_string(),
    }))
}

fn pending() -> Reply {
    Reply::ok(json!({ "code": "0000", "status": "PENDING" }))
}

fn unknown() -> Reply {
    Reply::of(StatusCode::NOT_FOUND, json!({ "code": "9001" }))
}

fn refused(code: &str) -> Reply {
    Reply::of(StatusCode::UNPROCESSABLE_ENTITY, json!({ "code": code }))
}

fn not_understood(error: &JsonRejection) -> Response {
    refusal(StatusCode::BAD_REQUEST, "2004", &error.body_text())
}

impl Order {
    /// Follows from what was looked up, so that it needs no keeping.
    fn lookup_ref(&self) -> String {
        let what: Value = json!([self.receiver.number(), self.amount, self.currency]);
        format!("L{:016X}", number(&what.to_string()))
    }
}

impl To {
    fn number(&self) -> &str {
        match self {
            Self::Account { account_no, .. } => account_no,
            Self::Proxy { proxy } => proxy,
        }
    }

    /// That of an account, or the one that a proxy is registered with.
    fn bank(&self) -> &str {
        match self {
            Self::Account { bank_code, .. } => bank_code,
            Self::Proxy { .. } => "014",
        }
    }

    fn magic(&self) -> Option<Magic> {
        Magic::of(self.number())
    }
}
