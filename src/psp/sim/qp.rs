//! QP, as `docs/psp.md` has its messages.

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use axum::{Json, Router};
use chrono::{DateTime, TimeDelta, Utc};
use serde::Deserialize;
use serde_json::json;

use super::book::{Book, Code, Entry, Payment, id_of};
use super::{Asked, Reply, Simulator, refusal};
use crate::domain::money::format_minor;
use crate::domain::payment::PspName;
use crate::domain::payment::promptpay::Payload;

const FEE: &str = "1.00";
/// The longest that a code may be good for.
const MAX_VALID_S: i64 = 30 * 24 * 3_600;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct NewCode {
    rq_uid: String,
    reference: String,
    payload: String,
    amount: String,
    currency: String,
    valid_for_seconds: i64,
}

pub(super) fn routes() -> Router<Simulator> {
    Router::new()
        .route("/qp/v1/codes", post(register))
        .route("/qp/v1/codes/{uid}", get(show))
}

async fn register(
    State(simulator): State<Simulator>,
    new: Result<Json<NewCode>, JsonRejection>,
) -> Response {
    let new = match new {
        Ok(Json(new)) => new,
        Err(error) => return refusal(StatusCode::BAD_REQUEST, "4001", &error.body_text()),
    };
    let asked = Asked {
        operation: "code",
        uid: new.rq_uid.clone(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let now = simulator.0.clock.now();
        if let (Some(known), true) = (book.code(&new.rq_uid), simulator.0.deduplicates) {
            let reply = if known.payload == new.payload && known.intent == new.reference {
                told(book, known, 0, now)
            } else {
                refused("4003")
            };
            return (reply, Vec::new());
        }
        let asks_for = Payload::decode(&new.payload)
            .ok()
            .and_then(|payload| payload.amount);
        let stated = asks_for.map(|satang| format_minor(satang.into(), 2));
        let valid = (1..=MAX_VALID_S).contains(&new.valid_for_seconds);
        if stated.as_ref() != Some(&new.amount) || !valid {
            return (refused("4001"), Vec::new());
        }
        let code = Code {
            qr_ref: format!("QR{}", id_of("code", &new.rq_uid, 0)),
            uid: new.rq_uid,
            intent: new.reference,
            payload: new.payload,
            currency: new.currency,
            amount: new.amount,
            expires_at: now + TimeDelta::seconds(new.valid_for_seconds),
        };
        (told(book, &code, 0, now), vec![Entry::Code(code)])
    };
    simulator.answer(asked, decide).await
}

async fn show(State(simulator): State<Simulator>, Path(uid): Path<String>) -> Response {
    let asked = Asked {
        operation: "inquiry",
        uid: uid.clone(),
    };
    let decide = move |simulator: &Simulator, book: &mut Book| {
        let now = simulator.0.clock.now();
        let paid = !book.paid(PspName::Qp, &uid).is_empty();
        let asks = if paid { book.asked("qp", &uid) } else { 0 };
        let reply = match book.code(&uid).filter(|code| code.uid == uid) {
            Some(code) => told(book, code, asks, now),
            None => Reply::of(StatusCode::NOT_FOUND, json!({ "code": "9001" })),
        };
        (reply, Vec::new())
    };
    simulator.answer(asked, decide).await
}

/// Somebody scans the code and pays: also one that has expired or was paid before, since nobody can
/// keep them from it.
pub(super) fn pay(simulator: &Simulator, book: &Book, code: &Code) -> Payment {
    let nth = book.paid(PspName::Qp, &code.uid).len();
    let rates = simulator.0.draws.rates();
    let unknown = simulator
        .0
        .draws
        .happens("unknown", &code.uid, rates.unknown);
    Payment {
        provider: PspName::Qp,
        uid: code.uid.clone(),
        intent: code.intent.clone(),
        response_id: format!("QP{}", id_of("qp", &code.uid, nth)),
        currency: code.currency.clone(),
        amount: code.amount.clone(),
        fee: FEE.to_owned(),
        paid_at: simulator.0.clock.now(),
        unknown_asks: if unknown { rates.unknown_asks } else { 0 },
        pending_asks: 0,
    }
}

/// What is said of a code to who asks after so many others had since it was paid.
fn told(book: &Book, code: &Code, asks: u32, now: DateTime<Utc>) -> Reply {
    let mut body = json!({
        "code": "0000",
        "rqUid": code.uid,
        "qrRef": code.qr_ref,
        "reference": code.intent,
        "expiresAt": code.expires_at,
    });
    let paid = book.paid(PspName::Qp, &code.uid);
    match paid.first().filter(|payment| asks >= payment.unknown_asks) {
        Some(payment) => {
            body["status"] = json!("PAID");
            body["paymentId"] = json!(payment.response_id);
            body["amount"] = json!(payment.amount);
            body["currency"] = json!(payment.currency);
            body["fee"] = json!(payment.fee);
            body["settlementDate"] = json!(payment.paid_at.format("%Y%m%d").to_string());
        }
        // Paid in time, and not told of yet.
        None if paid
            .first()
            .is_some_and(|payment| payment.paid_at < code.expires_at) =>
        {
            body["status"] = json!("WAITING");
        }
        None if now < code.expires_at => body["status"] = json!("WAITING"),
        None => body["status"] = json!("EXPIRED"),
    }
    Reply::ok(body)
}

fn refused(code: &str) -> Reply {
    Reply::of(StatusCode::UNPROCESSABLE_ENTITY, json!({ "code": code }))
}
