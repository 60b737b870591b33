//! What a tester asks of the simulator itself.

use std::collections::BTreeMap;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};

use super::book::{Book, Entry, Payment};
use super::{Rates, SimError, Simulator, qp, refusal};
use crate::domain::payment::PspName;

/// The columns of a provider's statement. They stay as they are; new ones come after them.
const COLUMNS: [&str; 10] = [
    "provider",
    "uid",
    "intent",
    "response_id",
    "currency",
    "amount",
    "fee",
    "settlement_date",
    "paid_at",
    "status",
];

pub(super) fn routes() -> Router<Simulator> {
    Router::new()
        .route("/sim/payments", get(payments))
        .route("/sim/report.csv", get(report))
        .route("/sim/faults", get(faults).post(set_faults))
        .route("/sim/qp/{code}/pay", post(pay))
        .route("/sim/wise/{transfer}/bounce", post(bounce))
}

/// What was paid, by provider and uid.
async fn payments(State(simulator): State<Simulator>) -> Response {
    let listed = simulator.decide(|book| (listed(book), Vec::new())).await;
    listed.map_or_else(|error| failed(&error), |list| Json(list).into_response())
}

fn listed(book: &Book) -> Value {
    let mut by_uid: BTreeMap<(PspName, &str), Vec<&Payment>> = BTreeMap::new();
    for payment in &book.payments {
        let key = (payment.provider, payment.uid.as_str());
        by_uid.entry(key).or_default().push(payment);
    }
    let list: Vec<_> = by_uid
        .into_iter()
        .map(|((provider, uid), payments)| {
            let first = payments[0];
            let ids: Vec<_> = payments
                .iter()
                .map(|payment| &payment.response_id)
                .collect();
            let returned = payments.iter().filter(|payment| is_returned(book, payment));
            json!({
                "provider": provider,
                "uid": uid,
                "intent": first.intent,
                "currency": first.currency,
                "amount": first.amount,
                "times": payments.len(),
                "returned": returned.count(),
                "response_ids": ids,
            })
        })
        .collect();
    json!({ "payments": list })
}

/// The statement: one line per payment, in their order.
async fn report(State(simulator): State<Simulator>) -> Response {
    let report = simulator.decide(|book| (statement(book), Vec::new())).await;
    match report {
        Ok(report) => ([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], report).into_response(),
        Err(error) => failed(&error),
    }
}

fn statement(book: &Book) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for payment in &book.payments {
        let status = if is_returned(book, payment) {
            "returned"
        } else {
            "paid"
        };
        let fields = [
            payment.provider.as_str(),
            &payment.uid,
            &payment.intent,
            &payment.response_id,
            &payment.currency,
            &payment.amount,
            &payment.fee,
            &payment.paid_at.format("%Y%m%d").to_string(),
            &payment.paid_at.to_rfc3339(),
            status,
        ];
        text += &fields.map(field).join(",");
        text.push('\n');
    }
    text
}

/// By RFC 4180.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// Whether WISE has the money back.
fn is_returned(book: &Book, payment: &Payment) -> bool {
    let transfer = payment.response_id.parse();
    payment.provider == PspName::Wise && transfer.is_ok_and(|id| book.has_bounced(id))
}

async fn faults(State(simulator): State<Simulator>) -> Json<Rates> {
    Json(simulator.0.draws.rates())
}

async fn set_faults(
    State(simulator): State<Simulator>,
    rates: Result<Json<Rates>, JsonRejection>,
) -> Response {
    let rates = match rates {
        Ok(Json(rates)) => rates.checked().map_err(|error| error.to_string()),
        Err(error) => Err(error.body_text()),
    };
    match rates {
        Ok(rates) => {
            simulator.0.draws.set(rates);
            Json(rates).into_response()
        }
        Err(why) => refusal(StatusCode::UNPROCESSABLE_ENTITY, "rates", &why),
    }
}

/// A payer scans the code.
async fn pay(State(simulator): State<Simulator>, Path(name): Path<String>) -> Response {
    let paid = simulator.decide(|book| {
        let Some(code) = book.code(&name).cloned() else {
            return (None, Vec::new());
        };
        let payment = qp::pay(&simulator, book, &code);
        (Some((code, payment.clone())), vec![Entry::Paid(payment)])
    });
    let (code, payment) = match paid.await {
        Ok(Some(paid)) => paid,
        Ok(None) => {
            let why = "a code is known by its rqUid, its qrRef and its reference";
            return refusal(StatusCode::NOT_FOUND, "9001", why);
        }
        Err(error) => return failed(&error),
    };
    let body = json!({
        "qrRef": code.qr_ref,
        "reference": payment.intent,
        "paymentId": payment.response_id,
        "amount": payment.amount,
        "currency": payment.currency,
    });
    if let Some(callbacks) = simulator.0.callbacks.clone() {
        let shared = simulator.0.clone();
        let tell = async move {
            callbacks
                .tell(&code, &payment, &shared.draws, &shared.clock)
                .await;
        };
        simulator.0.tasks.spawn(tell);
    }
    Json(body).into_response()
}

/// The receiver's bank sends the money back.
async fn bounce(State(simulator): State<Simulator>, Path(transfer): Path<u64>) -> Response {
    let bounced = simulator.decide(|book| {
        let known = book.transfer(transfer).map(|transfer| transfer.uid.clone());
        let paid = known.is_some_and(|uid| !book.paid(PspName::Wise, &uid).is_empty());
        if paid && !book.has_bounced(transfer) {
            (true, vec![Entry::Bounced { transfer }])
        } else {
            (paid, Vec::new())
        }
    });
    match bounced.await {
        Ok(true) => Json(json!({ "transfer": transfer, "status": "bounced_back" })).into_response(),
        Ok(false) => {
            let why = "there is no funded transfer with that id";
            refusal(StatusCode::NOT_FOUND, "transfer.not-found", why)
        }
        Err(error) => failed(&error),
    }
}

fn failed(error: &SimError) -> Response {
    refusal(
        StatusCode::INTERNAL_SERVER_ERROR,
        "3002",
        &error.to_string(),
    )
}
