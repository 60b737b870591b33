//! WISE: international transfers, by its public API.
//!
//! A payment is a transfer that is made under the confirmation's uid and then funded. Making it
//! moves nothing and a repeat makes no second one; funding moves the money. So a transfer is funded
//! only in a turn that found its id in the queue's row: one that is found without it there was never
//! asked to be funded.

use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::{CallError, Client, Endpoint, EndpointError, Reply, Request, text_at};
use super::turn::{self, Codes, Said};
use super::{CallRecord, Driver, Made, PspTask, SentBack, Turn, Word};
use crate::domain::money::CurrencyCode;
use crate::domain::payment::outcome::{ErrorClass, Facts, PspOutcome};
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{PspName, PspState};

/// What WISE may answer instead of what it was asked for. A funding that is refused fails nothing:
/// the transfer is there, and only its state says what becomes of it.
const CODES: Codes = Codes(&[
    ("NOT_VALID", ErrorClass::Terminal, "receiver_refused"),
    (
        "CurrencyCode",
        ErrorClass::Terminal,
        "currency_not_supported",
    ),
    (
        "CurrencyDeprecated",
        ErrorClass::Terminal,
        "currency_not_supported",
    ),
    ("NotNull", ErrorClass::Review, "message_not_understood"),
    ("ERROR", ErrorClass::Review, "message_not_understood"),
    (
        "NOT_UNIQUE",
        ErrorClass::Review,
        "uid_used_for_another_payment",
    ),
    (
        "transfer.not-found",
        ErrorClass::Review,
        "transfer_not_found",
    ),
    (
        "balance.payment-option-unavailable",
        ErrorClass::Retry,
        "balance_at_provider_too_small",
    ),
    ("invalid_token", ErrorClass::Retry, "token_refused"),
    ("unauthorized", ErrorClass::Retry, "token_refused"),
    ("http_401", ErrorClass::Retry, "token_refused"),
    ("http_403", ErrorClass::Retry, "token_refused"),
    ("http_404", ErrorClass::Retry, "not_where_it_is_configured"),
    ("http_408", ErrorClass::Retry, "provider_busy"),
    ("http_429", ErrorClass::Retry, "provider_busy"),
]);
/// WISE has no such transfer, or none yet.
const UNKNOWN_TRANSFER: &str = "transfer.not-found";
/// Where an error's code stands.
const CODE_AT: [&str; 2] = ["/errors/0/code", "/error"];
/// Of the newest transfers these pages of so many are looked through for one whose id was not heard.
const LISTED: usize = 100;
const PAGES: usize = 10;
/// How long a transfer may be on its way, and one that came back may take to be cancelled.
const ON_ITS_WAY: Duration = Duration::from_hours(72);
const COMING_BACK: Duration = Duration::from_hours(14 * 24);
/// A transfer that waits for money which may be under way is asked about this often before a person
/// is.
const ASKS_FOR_FUNDING: u32 = 10;

/// How WISE is reached, and what it promises.
#[derive(Clone, Debug)]
pub struct WiseConfig {
    pub endpoint: Endpoint,
    /// The profile that pays, from its balance in the payment's currency.
    pub profile: u64,
    pub currencies: Vec<CurrencyCode>,
    /// Whether it makes one transfer of one uid, and funds it once, however often it is asked to.
    pub deduplicates: bool,
    /// How long after a transfer was sent it is asked whether it has come back.
    pub watched_for: Duration,
}

pub struct Wise {
    client: Client,
    profile: u64,
    currencies: Vec<CurrencyCode>,
    deduplicates: bool,
    watched_for: Duration,
}

/// What a transfer's state means for the payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferState {
    /// It waits to be funded.
    Waiting,
    /// The money is at the provider, on its way out or back.
    UnderWay,
    /// It has left.
    Sent,
    /// It left and came back, and is on its way to us.
    Bounced,
    /// It will not leave. What was funded comes back to us.
    Cancelled,
    /// It is ours again.
    Refunded,
}

/// What was heard of a transfer that was confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bounce {
    In(TransferState),
    /// WISE says that there is none, or none among the newest.
    NotFound,
    /// A state that says nothing to us.
    NotUnderstood(String),
    /// It has the uid or the amount of another payment.
    Anothers(String),
    /// There was no answer, or an error's.
    Silent(String),
}

impl TransferState {
    /// Reads a state of the API; `None` for one that says nothing to us.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "incoming_payment_waiting" => Self::Waiting,
            "incoming_payment_initiated" | "processing" | "funds_converted" => Self::UnderWay,
            "outgoing_payment_sent" => Self::Sent,
            "bounced_back" | "charged_back" => Self::Bounced,
            "cancelled" => Self::Cancelled,
            "funds_refunded" => Self::Refunded,
            _ => return None,
        })
    }

    /// Of a payment that had been confirmed: whether the money has come back, for good.
    #[must_use]
    pub const fn is_returned(self) -> bool {
        match self {
            Self::Refunded => true,
            Self::Waiting | Self::UnderWay | Self::Sent | Self::Bounced | Self::Cancelled => false,
        }
    }
}

impl Wise {
    /// # Errors
    /// An endpoint that nothing can be sent to.
    pub fn new(config: WiseConfig) -> Result<Self, EndpointError> {
        Ok(Self {
            client: Client::new(&config.endpoint)?,
            profile: config.profile,
            currencies: config.currencies,
            deduplicates: config.deduplicates,
            watched_for: config.watched_for,
        })
    }

    /// The state of a transfer that was confirmed, which may bounce weeks later. It is known by the
    /// confirmed facts' `response_id`, and where a person has confirmed it without one, by the uid
    /// that it was asked for under. A transfer counts only where it has the payment's uid and
    /// amount: a person may have named another's.
    pub async fn bounce(&self, made: &Made<'_>) -> (Bounce, Vec<CallRecord>) {
        let mut calls = Vec::new();
        let state = self.bounced(made, &mut calls).await;
        (state, calls)
    }

    async fn bounced(&self, made: &Made<'_>, calls: &mut Vec<CallRecord>) -> Bounce {
        let transfer = match &made.facts.response_id {
            Some(transfer) => transfer.clone(),
            None => match self.listed(made.uid, calls).await {
                Ok(Some(listed)) => match id_of(&listed) {
                    Some(transfer) => transfer,
                    None => return Bounce::NotFound,
                },
                Ok(None) => return Bounce::NotFound,
                Err(NotListed::Call(error)) => return Bounce::Silent(error.to_string()),
                Err(NotListed::Code(code)) => return Bounce::Silent(CODES.of(&code).1),
            },
        };
        let reply = match self.transfer(&transfer, Some(made.uid), calls).await {
            Ok(reply) => reply,
            Err(error) => return Bounce::Silent(error.to_string()),
        };
        if !reply.is_success() {
            return match turn::code_of(&reply, &CODE_AT).as_str() {
                UNKNOWN_TRANSFER => Bounce::NotFound,
                code => Bounce::Silent(CODES.of(code).1),
            };
        }
        if reply.text("/customerTransactionId").as_deref() != Some(made.uid) {
            return Bounce::Anothers(format!("transfer {transfer} is of another payment"));
        }
        if !turn::is_sum(
            made.amount,
            made.exponent,
            made.currency,
            &said(&reply.body),
        ) {
            return Bounce::Anothers(format!("transfer {transfer} is of another amount"));
        }
        let status = reply.text("/status").unwrap_or_default();
        TransferState::parse(&status).map_or(Bounce::NotUnderstood(status), Bounce::In)
    }

    async fn look_up(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let mut facts = task.facts.clone();
        let Receiver::Iban { holder_name, iban } = &task.receiver else {
            return turn::review("receiver_of_another_channel", facts);
        };
        let body = json!({
            "profile": self.profile,
            "accountHolderName": holder_name,
            "currency": task.currency,
            "type": "iban",
            "details": { "legalType": "PRIVATE", "IBAN": iban },
        });
        let path = "/v1/accounts".to_owned();
        let uid = &task.query_rq_uid;
        let reply = match self.post("account", path, uid, body, None, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match made(&reply) {
            Ok(account) => {
                facts.lookup_ref = Some(account);
                facts.receiver_name_en = reply.text("/accountHolderName");
                turn::looked_up(facts)
            }
            Err(code) => turn::refused(CODES, task.state, &code, facts),
        }
    }

    async fn confirm(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        match &task.facts.response_id {
            None => self.make(task, calls).await,
            Some(transfer) => self.fund(task, transfer, calls).await,
        }
    }

    /// Makes the transfer, under a quote of its own: quotes live half an hour and bind nobody.
    async fn make(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let mut facts = task.facts.clone();
        let account = facts.lookup_ref.as_deref().map(str::parse::<u64>);
        let Some(Ok(account)) = account else {
            return turn::review("not_looked_up", facts);
        };
        let Some(amount) = turn::number_of(task) else {
            return turn::review("amount_can_not_be_stated", facts);
        };
        let uid = &task.confirm_rq_uid;
        let body = json!({
            "sourceCurrency": task.currency,
            "targetCurrency": task.currency,
            "targetAmount": amount,
            "targetAccount": account,
            "payOut": "BANK_TRANSFER",
        });
        let path = format!("/v3/profiles/{}/quotes", self.profile);
        let quote = match self.post("quote", path, uid, body, None, calls).await {
            Ok(reply) => made(&reply),
            // Nothing was asked to be paid, whatever became of the quote.
            Err(error) => return turn::may_ask(Some(error.to_string()), facts),
        };
        let quote = match quote.map_err(|code| CODES.of(&code)) {
            Ok(quote) => quote,
            Err((ErrorClass::Retry, reason)) => return turn::may_ask(Some(reason), facts),
            Err((ErrorClass::Terminal, reason)) => return turn::failed(reason, facts),
            Err((ErrorClass::Review, reason)) => return turn::review(reason, facts),
        };
        let body = json!({
            "targetAccount": account,
            "quoteUuid": quote,
            "customerTransactionId": uid,
            "details": { "reference": task.intent.to_string() },
        });
        let path = "/v1/transfers".to_owned();
        let lease = Some(task.lease);
        let reply = match self.post("transfer", path, uid, body, lease, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        match made(&reply) {
            Ok(transfer) => {
                facts.response_id = Some(transfer);
                turn::may_ask(None, facts)
            }
            Err(code) => turn::refused(CODES, task.state, &code, facts),
        }
    }

    async fn fund(
        &self,
        task: &PspTask,
        transfer: &str,
        calls: &mut Vec<CallRecord>,
    ) -> PspOutcome {
        let facts = task.facts.clone();
        let path = format!(
            "/v3/profiles/{}/transfers/{transfer}/payments",
            self.profile
        );
        let uid = &task.confirm_rq_uid;
        let body = json!({ "type": "BALANCE" });
        let lease = Some(task.lease);
        let reply = match self.post("payment", path, uid, body, lease, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        if reply.is_success() && reply.text("/status").as_deref() == Some("COMPLETED") {
            return turn::in_doubt("funded", facts);
        }
        let named = reply.text("/errorCode");
        let code = named.unwrap_or_else(|| turn::code_of(&reply, &CODE_AT));
        let (_, reason) = CODES.of(&code);
        turn::in_doubt(format!("funding_refused: {reason}"), facts)
    }

    async fn inquire(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let facts = task.facts.clone();
        let Some(transfer) = &facts.response_id else {
            return self.find(task, calls).await;
        };
        let uid = Some(task.confirm_rq_uid.as_str());
        let reply = match self.transfer(transfer, uid, calls).await {
            Ok(reply) => reply,
            Err(error) => return turn::unanswered(task.state, &error, facts),
        };
        if !reply.is_success() {
            return match turn::code_of(&reply, &CODE_AT).as_str() {
                UNKNOWN_TRANSFER => turn::unknown(self.deduplicates, facts),
                code => turn::unanswerable(CODES, code, facts),
            };
        }
        match told(task, &reply.body, facts.clone()) {
            Told::Outcome(outcome) => outcome,
            Told::Waiting if self.deduplicates => {
                turn::may_ask(Some("transfer_not_funded".to_owned()), facts)
            }
            Told::Waiting if task.tries < ASKS_FOR_FUNDING => {
                turn::in_doubt("transfer_not_funded", facts)
            }
            Told::Waiting => turn::review("transfer_not_funded", facts),
        }
    }

    /// Looks for the transfer of a uid whose id was not heard.
    async fn find(&self, task: &PspTask, calls: &mut Vec<CallRecord>) -> PspOutcome {
        let mut facts = task.facts.clone();
        let found = match self.listed(&task.confirm_rq_uid, calls).await {
            Ok(Some(found)) => found,
            Ok(None) => return turn::unknown(self.deduplicates, facts),
            Err(NotListed::Call(error)) => return turn::unanswered(task.state, &error, facts),
            Err(NotListed::Code(code)) => return turn::unanswerable(CODES, &code, facts),
        };
        facts.response_id = id_of(&found);
        match told(task, &found, facts.clone()) {
            Told::Outcome(outcome) => outcome,
            // Nobody has funded it: its id was not in the row.
            Told::Waiting => turn::may_ask(None, facts),
        }
    }

    /// The transfer of a uid, where it is among the newest.
    async fn listed(
        &self,
        uid: &str,
        calls: &mut Vec<CallRecord>,
    ) -> Result<Option<Value>, NotListed> {
        for page in 0..PAGES {
            let (profile, offset) = (self.profile, page * LISTED);
            let request = Request {
                operation: "transfers",
                method: Method::GET,
                path: format!("/v1/transfers?profile={profile}&limit={LISTED}&offset={offset}"),
                rq_uid: Some(uid),
                body: None,
                lease: None,
            };
            let reply = self.client.call(request, calls).await;
            if let Some(call) = calls.last_mut() {
                keep_own(call, uid);
            }
            let reply = reply.map_err(NotListed::Call)?;
            let list = reply.body.as_array().filter(|_| reply.is_success());
            let list = list.ok_or_else(|| NotListed::Code(turn::code_of(&reply, &CODE_AT)))?;
            let is_ours =
                |transfer: &&Value| transfer["customerTransactionId"].as_str() == Some(uid);
            if let Some(found) = list.iter().find(is_ours) {
                return Ok(Some(found.clone()));
            }
            if list.len() < LISTED {
                break;
            }
        }
        Ok(None)
    }

    async fn transfer(
        &self,
        transfer: &str,
        uid: Option<&str>,
        calls: &mut Vec<CallRecord>,
    ) -> Result<Reply, CallError> {
        let request = Request {
            operation: "transfer_state",
            method: Method::GET,
            path: format!("/v1/transfers/{transfer}"),
            rq_uid: uid,
            body: None,
            lease: None,
        };
        self.client.call(request, calls).await
    }

    async fn post(
        &self,
        operation: &'static str,
        path: String,
        rq_uid: &str,
        body: Value,
        lease: Option<super::Lease>,
        calls: &mut Vec<CallRecord>,
    ) -> Result<Reply, CallError> {
        let request = Request {
            operation,
            method: Method::POST,
            path,
            rq_uid: Some(rq_uid),
            body: Some(body),
            lease,
        };
        self.client.call(request, calls).await
    }
}

impl Driver for Wise {
    fn name(&self) -> PspName {
        PspName::Wise
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

    fn sends_back_within(&self) -> Option<Duration> {
        Some(self.watched_for)
    }

    fn works_on_it(&self) -> Vec<(&'static str, Duration)> {
        vec![
            ("funded", ON_ITS_WAY),
            ("on_its_way", ON_ITS_WAY),
            ("bounced", COMING_BACK),
        ]
    }

    fn sent_back<'a>(&'a self, made: &'a Made<'a>) -> BoxFuture<'a, SentBack> {
        Box::pin(async move {
            let (bounce, calls) = self.bounce(made).await;
            let word = match bounce {
                Bounce::In(state) if state.is_returned() => Word::SentBack,
                Bounce::In(_) => Word::AsItWas,
                Bounce::NotFound => Word::Nothing("transfer_not_found".to_owned()),
                Bounce::NotUnderstood(status) => {
                    Word::Nothing(format!("state_not_understood: {status}"))
                }
                Bounce::Anothers(why) => Word::Anothers(why),
                Bounce::Silent(why) => Word::Silent(why),
            };
            SentBack { word, calls }
        })
    }
}

/// Why a transfer could not be looked for.
enum NotListed {
    Call(CallError),
    /// The code of the provider's error.
    Code(String),
}

/// What a transfer says of the payment.
enum Told {
    Outcome(PspOutcome),
    /// It waits to be funded.
    Waiting,
}

fn told(task: &PspTask, transfer: &Value, facts: Facts) -> Told {
    let status = text_at(transfer, "/status").unwrap_or_default();
    Told::Outcome(match TransferState::parse(&status) {
        Some(TransferState::Waiting) => return Told::Waiting,
        Some(TransferState::UnderWay) => turn::in_doubt("on_its_way", facts),
        Some(TransferState::Sent) => turn::paid(task, &said(transfer), facts),
        // It may be sent out again before it is cancelled.
        Some(TransferState::Bounced) => turn::in_doubt("bounced", facts),
        Some(TransferState::Cancelled | TransferState::Refunded) => turn::failed(status, facts),
        None => turn::in_doubt(format!("state_not_understood: {status}"), facts),
    })
}

/// Of a list of transfers a call keeps the one that it was made for, and how many others there were.
fn keep_own(call: &mut CallRecord, uid: &str) {
    let Some(Value::Array(list)) = &mut call.response else {
        return;
    };
    let all = list.len();
    list.retain(|transfer| transfer["customerTransactionId"].as_str() == Some(uid));
    let others = all - list.len();
    call.response = Some(json!({ "transfers": std::mem::take(list), "others": others }));
}

/// What a transfer pays its receiver.
fn said(transfer: &Value) -> Said {
    Said {
        amount: text_at(transfer, "/targetValue"),
        currency: text_at(transfer, "/targetCurrency"),
    }
}

/// The id of what was made, or the code of the error.
fn made(reply: &Reply) -> Result<String, String> {
    let id = id_of(&reply.body).filter(|_| reply.is_success());
    id.ok_or_else(|| turn::code_of(reply, &CODE_AT))
}

/// Ids stand in paths, so they are of what can stand there.
fn id_of(thing: &Value) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    text_at(thing, "/id").filter(|id| id.bytes().all(plain))
}

#[cfg(test)]
mod tests;
