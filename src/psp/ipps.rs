//! IPPS: Thai interbank transfers. Three messages: the lookup Q-IPPS-13, the confirmation T-IPPS-04
//! and the inquiry by the confirmation's uid. IPPS has published no format; that of `docs/psp.md` is
//! our own.

use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{Client, Endpoint, EndpointError, Reply, Request};
use super::turn::{self, Codes, Said};
use super::{CallRecord, Driver, PspTask, Turn};
use crate::domain::money::CurrencyCode;
use crate::domain::payment::outcome::{ErrorClass, Facts, PspOutcome};
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{PspName, PspState};

/// Everything that IPPS may answer but `0000`, and [`UNKNOWN_UID`] to an inquiry.
const CODES: Codes = Codes(&[
    ("1001", ErrorClass::Terminal, "receiver_not_found"),
    ("1002", ErrorClass::Terminal, "receiver_account_closed"),
    ("1003", ErrorClass::Terminal, "over_receiver_limit"),
    ("1004", ErrorClass::Terminal, "amount_not_allowed"),
    ("1005", ErrorClass::Terminal, "receiver_bank_refused"),
    ("1006", ErrorClass::Terminal, "lookup_expired"),
    ("2001", ErrorClass::Review, "wallet_not_registered"),
    ("2002", ErrorClass::Review, "held_for_compliance"),
    ("2003", ErrorClass::Review, "uid_used_for_another_payment"),
    ("2004", ErrorClass::Review, "message_not_understood"),
    ("3001", ErrorClass::Retry, "provider_busy"),
    ("3002", ErrorClass::Retry, "provider_malfunction"),
    ("3003", ErrorClass::Retry, "receiver_bank_silent"),
    ("3004", ErrorClass::Retry, "token_refused"),
    ("http_401", ErrorClass::Retry, "token_refused"),
    ("http_403", ErrorClass::Retry, "token_refused"),
    ("http_404", ErrorClass::Retry, "not_where_it_is_configured"),
    ("http_408", ErrorClass::Retry, "provider_busy"),
    ("http_429", ErrorClass::Retry, "provider_busy"),
]);
/// IPPS has no confirmation under this uid.
const UNKNOWN_UID: &str = "9001";

/// How IPPS is reached, and what it promises.
#[derive(Clone, Debug)]
pub struct IppsConfig {
    pub endpoint: Endpoint,
    pub currencies: Vec<CurrencyCode>,
    /// Whether it pays one uid once, however often it is asked to.
    pub deduplicates: bool,
}

pub struct Ipps {
    client: Client,
    currencies: Vec<CurrencyCode>,
    deduplicates: bool,
}

impl Ipps {
    /// # Errors
    /// An endpoint that nothing can be sent to.
    pub fn new(config: IppsConfig) -> Result<Self, EndpointError> {
        Ok(Self {
            client: Client::new(&config.endpoint)?,
            currencies: config.currencies,
            deduplicates: config.deduplicates,
        })
    }

    async fn look_up(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let mut facts = task.facts.clone();
        let body = match body(task, &task.query_rq_uid) {
            Ok(body) => body,
            Err(reason) => return turn::review(reason, facts),
        };
        let request = Request {
            operation: "Q-IPPS-13",
            method: Method::POST,
            path: "/ipps/v1/lookup".to_owned(),
            rq_uid: Some(&task.query_rq_uid),
            body: Some(body),
            lease: None,
        };
        let reply = match self.client.call(request, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match code(&reply).as_str() {
            "0000" => {
                let Some(lookup_ref) = reply.text("/lookupRef") else {
                    return turn::review("lookup_without_reference", facts);
                };
                facts.lookup_ref = Some(lookup_ref);
                facts.receiver_name_en = reply.text("/receiver/nameEn");
                facts.receiver_display_name = reply.text("/receiver/displayName");
                facts.receiver_bank = reply.text("/receiver/bankCode");
                turn::looked_up(facts)
            }
            code => turn::refused(CODES, task.state, code, facts),
        }
    }

    async fn confirm(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let facts = task.facts.clone();
        let mut body = match body(task, &task.confirm_rq_uid) {
            Ok(body) => body,
            Err(reason) => return turn::review(reason, facts),
        };
        let Some(lookup_ref) = &facts.lookup_ref else {
            return turn::review("not_looked_up", facts);
        };
        body["lookupRef"] = json!(lookup_ref);
        let request = Request {
            operation: "T-IPPS-04",
            method: Method::POST,
            path: "/ipps/v1/confirm".to_owned(),
            rq_uid: Some(&task.confirm_rq_uid),
            body: Some(body),
            lease: Some(task.lease),
        };
        let reply = match self.client.call(request, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match code(&reply).as_str() {
            "0000" => told(task, &reply, facts),
            code => turn::refused(CODES, task.state, code, facts),
        }
    }

    async fn inquire(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let facts = task.facts.clone();
        let request = Request {
            operation: "inquiry",
            method: Method::POST,
            path: "/ipps/v1/inquiry".to_owned(),
            rq_uid: Some(&task.confirm_rq_uid),
            body: Some(json!({ "confirmRqUid": task.confirm_rq_uid })),
            lease: None,
        };
        let reply = match self.client.call(request, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match code(&reply).as_str() {
            "0000" => told(task, &reply, facts),
            UNKNOWN_UID => turn::unknown(self.deduplicates, facts),
            code => turn::unanswerable(CODES, code, facts),
        }
    }
}

impl Driver for Ipps {
    fn name(&self) -> PspName {
        PspName::Ipps
    }

    fn currencies(&self) -> &[CurrencyCode] {
        &self.currencies
    }

    fn process<'a>(&'a self, task: &'a PspTask) -> BoxFuture<'a, Turn> {
        Box::pin(async move {
            let mut calls = Vec::new();
            let outcome = match task.state {
                PspState::QueryPending => self.look_up(task, &mut calls).await,
                PspState::ConfirmPending => self.confirm(task, &mut calls).await,
                PspState::Inquiring => self.inquire(task, &mut calls).await,
                PspState::New
                | PspState::Queried
                | PspState::Confirmed
                | PspState::Failed
                | PspState::ManualReview => turn::no_turn(task.state, task.facts.clone()),
            };
            Turn { outcome, calls }
        })
    }
}

/// What lookup and confirmation share; both say whom the money is from and to, and how much.
fn body(task: &PspTask, rq_uid: &str) -> Result<Value, &'static str> {
    let receiver = match &task.receiver {
        Receiver::ThaiAccount {
            bank_code,
            account_no,
        } => json!({ "bankCode": bank_code, "accountNo": account_no }),
        Receiver::PromptPay { proxy } => json!({ "proxy": proxy }),
        Receiver::Iban { .. } | Receiver::Wallet => return Err("receiver_of_another_channel"),
    };
    let sender = task.sender.as_ref().ok_or("wallet_not_registered")?;
    Ok(json!({
        "rqUid": rq_uid,
        "reference": task.intent.to_string(),
        "senderWallet": sender,
        "receiver": receiver,
        "amount": turn::amount_of(task),
        "currency": task.currency,
    }))
}

/// What IPPS says of a payment that it knows.
fn told(task: &PspTask, reply: &Reply, mut facts: Facts) -> PspOutcome {
    if let Some(id) = reply.text("/responseId") {
        facts.response_id = Some(id);
    }
    match reply.text("/status").as_deref() {
        Some("PAID") => {
            facts.settlement_date = turn::date(reply.text("/settlementDate"));
            facts.psp_fee_satang = reply.text("/fee").as_deref().and_then(turn::hundredths);
            let said = Said {
                amount: reply.text("/amount"),
                currency: reply.text("/currency"),
            };
            turn::paid(task, &said, facts)
        }
        Some("PENDING") => turn::in_doubt("provider_still_working", facts),
        Some("REJECTED") => {
            let code = reply.text("/reasonCode").unwrap_or_default();
            turn::refused(CODES, task.state, &code, facts)
        }
        Some(_) | None => turn::in_doubt("status_not_understood", facts),
    }
}

/// `0000` only of an answer that is a success by its status too.
fn code(reply: &Reply) -> String {
    turn::code_or_success(reply, "/code")
}

#[cfg(test)]
mod tests;
