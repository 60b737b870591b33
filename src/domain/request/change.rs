use serde_json::{Map, Value, json};

use super::{Request, RequestStatus};
use crate::domain::account::{AccountRef, HousePurpose};
use crate::domain::ids::BrokerId;
use crate::domain::money::Currency;
use crate::domain::plan::Plan;
use crate::domain::request_event::{EventDraft, EventKind};
use crate::domain::terms::{CommissionSize, Terms};

/// What a transition comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// It has happened before, by the same party: answer with the present state.
    Already,
    Apply(Box<Change>),
}

/// A new state with its event, and the saga that it starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub request: Request,
    pub event: EventDraft,
    pub plan: Option<Plan>,
}

/// Why a transition is not possible.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The broker is no party: for it the request does not exist.
    #[error("no such request")]
    NotFound,
    /// The other side's move.
    #[error("only the {whose} may {what}")]
    NotYourMove {
        whose: &'static str,
        what: &'static str,
    },
    #[error("the request is {status}")]
    WrongStatus { status: RequestStatus },
    /// A saga owns the request.
    #[error("the request is {status} and being settled")]
    InSaga { status: RequestStatus },
    #[error("the deadline has passed")]
    DeadlinePassed,
    /// A broadcast that is not open any more, to a broker that is no party of it: what has become
    /// of it is not said.
    #[error("the broadcast is not open any more")]
    Taken,
    /// A late repeat of a `sent` that both sides have taken back.
    #[error("both sides have taken this proof back: send again with one that tells of it")]
    ProofWithdrawn { status: RequestStatus },
    /// The dispute was decided; only an appeal goes on from there.
    #[error("the dispute is decided")]
    Decided,
    /// A bound on what one broker may do again and again.
    #[error("{what} at most {most} times")]
    TooOften { what: &'static str, most: u32 },
    #[error("{field} {rule}")]
    Invalid { field: &'static str, rule: String },
}

pub(super) fn event(kind: EventKind, by: Option<BrokerId>, facts: &[(&str, Value)]) -> EventDraft {
    EventDraft {
        kind,
        actor_broker: by,
        payload: facts
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect::<Map<_, _>>(),
        private: None,
    }
}

pub(super) fn minor(amount: u64) -> Value {
    Value::String(amount.to_string())
}

pub(super) fn apply(mut request: Request, event: EventDraft, plan: Option<Plan>) -> Decision {
    let (kind, by) = (event.kind, event.actor_broker);
    request.past.follow_dispute(kind, by, &event.payload);
    Decision::Apply(Box::new(Change {
        request,
        event,
        plan,
    }))
}

pub(super) fn own_account(
    account: Option<AccountRef>,
    broker: BrokerId,
    currency: &Currency,
) -> Result<AccountRef, Refusal> {
    let account =
        account.unwrap_or_else(|| AccountRef::house(broker, HousePurpose::Main, &currency.code));
    if account.broker != broker {
        return Err(invalid("account_id", "is an account of your own book"));
    }
    if account.currency != currency.code {
        return Err(invalid(
            "account_id",
            "is an account in the currency of the request",
        ));
    }
    Ok(account)
}

pub(super) fn terms_fact(terms: &Terms) -> Value {
    let commission = terms.commission.map(|commission| match commission.size {
        CommissionSize::Amount(amount) => {
            json!({ "payer": commission.payer, "amount": minor(amount.minor()) })
        }
        CommissionSize::BasisPoints(points) => {
            json!({ "payer": commission.payer, "basis_points": points.to_string() })
        }
    });
    json!({ "obligation": terms.obligation, "commission": commission })
}

pub(super) fn private(texts: &[(&str, Option<&str>)]) -> Option<Value> {
    let given: serde_json::Map<String, Value> = texts
        .iter()
        .filter_map(|(name, text)| text.map(|text| ((*name).to_owned(), json!(text))))
        .collect();
    (!given.is_empty()).then_some(Value::Object(given))
}

pub(super) fn invalid(field: &'static str, rule: &str) -> Refusal {
    Refusal::Invalid {
        field,
        rule: rule.to_owned(),
    }
}
