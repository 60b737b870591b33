use serde_json::{Map, Value};

use super::{Request, RequestStatus};
use crate::domain::ids::BrokerId;
use crate::domain::plan::Plan;
use crate::domain::request_event::{EventDraft, EventKind};

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

pub(super) fn apply(request: Request, event: EventDraft, plan: Option<Plan>) -> Decision {
    Decision::Apply(Box::new(Change {
        request,
        event,
        plan,
    }))
}
