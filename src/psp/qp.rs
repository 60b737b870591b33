//! QP: money that comes in by `PromptPay`. Each top-up has a QR code of its own, which the provider
//! watches for us.
//!
//! Nothing is ever sent out here: the lookup registers the code under the lookup's uid, and the
//! turns after it ask whether somebody has paid. The code itself is `PromptPay`'s and can be made
//! without the provider; the provider's messages, which have no public form, are those of
//! `docs/psp.md`.

pub mod callback;

use std::time::Duration;

use chrono::TimeDelta;
use futures::future::BoxFuture;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::json;
use uuid::Uuid;

use super::client::{CallError, Client, Endpoint, EndpointError, Reply, Request};
use super::turn::{self, Codes, Said};
use super::{CallRecord, Delivery, Driver, PspTask, Turn};
use crate::domain::money::CurrencyCode;
use crate::domain::payment::outcome::{ErrorClass, Facts, PspOutcome};
use crate::domain::payment::promptpay::{Payee, Payload, PromptPayError};
use crate::domain::payment::{PspName, PspState};
use callback::{Callback, CallbackError};

/// Everything that QP may answer but `0000`, and [`UNKNOWN_UID`] to a question.
const CODES: Codes = Codes(&[
    ("4001", ErrorClass::Review, "message_not_understood"),
    ("4002", ErrorClass::Terminal, "amount_not_allowed"),
    ("4003", ErrorClass::Review, "uid_used_for_another_payment"),
    ("4004", ErrorClass::Review, "biller_not_registered"),
    ("3001", ErrorClass::Retry, "provider_busy"),
    ("3002", ErrorClass::Retry, "provider_malfunction"),
    ("3004", ErrorClass::Retry, "token_refused"),
    ("http_401", ErrorClass::Retry, "token_refused"),
    ("http_403", ErrorClass::Retry, "token_refused"),
    ("http_404", ErrorClass::Retry, "not_where_it_is_configured"),
    ("http_408", ErrorClass::Retry, "provider_busy"),
    ("http_429", ErrorClass::Retry, "provider_busy"),
]);
/// QP has no code under this uid.
const UNKNOWN_UID: &str = "9001";
/// How far a callback's time may be from ours: an old one can't be sent again by somebody else.
const CALLBACK_TOLERANCE: TimeDelta = TimeDelta::minutes(5);

/// How QP is reached, and what it promises.
#[derive(Clone, Debug)]
pub struct QpConfig {
    pub endpoint: Endpoint,
    /// Whom the payer pays: our number with `PromptPay`, 1 to 15 digits.
    pub biller: String,
    /// `PromptPay` has baht alone.
    pub currencies: Vec<CurrencyCode>,
    /// Whether it takes one uid for one code, however often it is registered.
    pub deduplicates: bool,
    /// How long a payer has, in whole seconds.
    pub valid_for: Duration,
    /// What callbacks are signed with: the one in use, and others while it is changed.
    pub callback_secrets: Vec<SecretString>,
}

pub struct Qp {
    client: Client,
    config: QpConfig,
}

impl Qp {
    /// # Errors
    /// An endpoint that nothing can be sent to.
    pub fn new(config: QpConfig) -> Result<Self, EndpointError> {
        Ok(Self {
            client: Client::new(&config.endpoint)?,
            config,
        })
    }

    async fn register(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let mut facts = task.facts.clone();
        let payload = match payload(&self.config.biller, task.intent, task.amount) {
            Ok(payload) => payload,
            Err(error) => return turn::review(format!("no_code: {error}"), facts),
        };
        let request = Request {
            operation: "code",
            method: Method::POST,
            path: "/qp/v1/codes".to_owned(),
            rq_uid: Some(&task.query_rq_uid),
            body: Some(json!({
                "rqUid": task.query_rq_uid,
                "reference": task.intent.to_string(),
                "payload": payload,
                "amount": turn::amount_of(task),
                "currency": task.currency,
                "validForSeconds": self.config.valid_for.as_secs(),
            })),
            lease: None,
        };
        let reply = match self.client.call(request, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match code(&reply).as_str() {
            "0000" => {
                let Some(reference) = reply.text("/qrRef") else {
                    return turn::review("code_without_reference", facts);
                };
                facts.lookup_ref = Some(reference);
                if task.state == PspState::QueryPending {
                    turn::looked_up(facts)
                } else {
                    turn::in_doubt("registered_again", facts)
                }
            }
            code => turn::refused(CODES, task.state, code, facts),
        }
    }

    async fn ask(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let facts = task.facts.clone();
        let reply = match self.code(task, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match (code(&reply).as_str(), task.state) {
            ("0000", _) => told(task, &reply, facts),
            // It may be registered again, which is what there is to ask for here.
            (UNKNOWN_UID, PspState::ConfirmPending) if self.config.deduplicates => {
                self.register(task, calls).await
            }
            (UNKNOWN_UID, _) => turn::unknown(self.config.deduplicates, facts),
            (code, _) => turn::unanswerable(CODES, code, facts),
        }
    }

    async fn code(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> Result<Reply, CallError> {
        let request = Request {
            operation: "inquiry",
            method: Method::GET,
            path: format!("/qp/v1/codes/{}", task.query_rq_uid),
            rq_uid: Some(&task.query_rq_uid),
            body: None,
            lease: None,
        };
        self.client.call(request, calls).await
    }
}

impl Driver for Qp {
    fn name(&self) -> PspName {
        PspName::Qp
    }

    fn currencies(&self) -> &[CurrencyCode] {
        &self.config.currencies
    }

    fn process<'a>(&'a self, task: &'a PspTask) -> BoxFuture<'a, Turn> {
        Box::pin(async move {
            let mut calls = Vec::new();
            let outcome = match task.state {
                PspState::QueryPending => self.register(task, &mut calls).await,
                PspState::ConfirmPending | PspState::Inquiring => self.ask(task, &mut calls).await,
                PspState::New
                | PspState::Queried
                | PspState::Confirmed
                | PspState::Failed
                | PspState::ManualReview => turn::no_turn(task.state, task.facts.clone()),
            };
            Turn { outcome, calls }
        })
    }

    fn works_on_it(&self) -> Vec<(&'static str, Duration)> {
        // It may be paid until the code expires.
        let valid_for = self.config.valid_for;
        vec![("not_paid_yet", valid_for), ("registered_again", valid_for)]
    }

    fn payload(&self, intent: Uuid, amount: u64) -> Option<Result<String, PromptPayError>> {
        Some(payload(&self.config.biller, intent, amount))
    }

    fn read_callback(&self, delivery: &Delivery<'_>) -> Option<Result<Callback, CallbackError>> {
        let header = |name: &str| {
            let mut all = delivery.headers.get_all(name).iter();
            let one = all.next().filter(|_| all.next().is_none());
            one.and_then(|value| value.to_str().ok())
                .unwrap_or_default()
        };
        Some(callback::verify(
            &self.config.callback_secrets,
            header(callback::TIMESTAMP_HEADER),
            header(callback::SIGNATURE_HEADER),
            delivery.body,
            delivery.now,
            CALLBACK_TOLERANCE,
        ))
    }
}

/// What the QR code of a top-up says. It is the same whenever it is made, and the payer's bank sends
/// both references back: together they are the intent's uuid.
///
/// # Errors
/// A biller that is none.
pub fn payload(biller: &str, intent: Uuid, satang: u64) -> Result<String, PromptPayError> {
    let reference = intent.simple().to_string().to_ascii_uppercase();
    let (first, second) = reference.split_at(16);
    let payee = Payee::Bill {
        biller: biller.to_owned(),
        reference_1: first.to_owned(),
        reference_2: Some(second.to_owned()),
    };
    let payload = Payload {
        payee,
        amount: Some(satang),
        dynamic: true,
    };
    payload.encode()
}

/// What QP says of a code that it knows.
fn told(task: &PspTask, reply: &Reply, mut facts: Facts) -> PspOutcome {
    match reply.text("/status").as_deref() {
        Some("PAID") => {
            if let Some(id) = reply.text("/paymentId") {
                facts.response_id = Some(id);
            }
            facts.settlement_date = turn::date(reply.text("/settlementDate"));
            facts.psp_fee_satang = reply.text("/fee").as_deref().and_then(turn::hundredths);
            let said = Said {
                amount: reply.text("/amount"),
                currency: reply.text("/currency"),
            };
            turn::paid(task, &said, facts)
        }
        Some("WAITING") => turn::in_doubt("not_paid_yet", facts),
        Some("EXPIRED") => turn::failed("expired", facts),
        Some(_) | None => turn::in_doubt("status_not_understood", facts),
    }
}

/// `0000` only of an answer that is a success by its status too.
fn code(reply: &Reply) -> String {
    turn::code_or_success(reply, "/code")
}

#[cfg(test)]
mod tests;
