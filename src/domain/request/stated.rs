//! Whether a request's row says what its chained events say: the row can be changed by whoever
//! has the database, the events can't without breaking their chain.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::change::{minor, terms_fact};
use super::{Proposal, ProposalKind, Request, RequestStatus};
use crate::domain::canonical;
use crate::domain::request_event::{Event, EventKind};

/// What the events say that the row must have.
#[derive(Default)]
struct Stated {
    status: Option<RequestStatus>,
    target: Value,
    received_amount: Value,
    proof_digest: Value,
    proposal: Option<Proposal>,
    pickup: Value,
    /// `None` where the event that gave it doesn't name it.
    saga: Option<Value>,
    reservation: Value,
    booked: Value,
    accepted_at: Option<DateTime<Utc>>,
    sent_at: Option<DateTime<Utc>>,
    closed_at: Option<DateTime<Utc>>,
}

impl Request {
    /// The columns that are not what the events say. `events` are the request's own in order, up
    /// to the one that its row names as the last, their chain checked.
    #[must_use]
    pub fn unlike_events(&self, events: &[&Event]) -> Vec<&'static str> {
        let Some(created) = events
            .first()
            .filter(|event| event.kind == EventKind::Created)
        else {
            return vec!["created_at"];
        };
        let mut found = self.unlike_creation(created);
        let mut stated = Stated {
            status: Some(RequestStatus::Pending),
            target: fact(created, "target"),
            pickup: fact(created, "pickup_digest"),
            saga: Some(Value::Null),
            ..Stated::default()
        };
        for event in &events[1..] {
            stated.follow(self, event);
        }
        let last = events.last().map(|event| event.at);
        let id = |id: Option<uuid::Uuid>| json!(id.map(|id| id.to_string()));
        let target = json!(self.target.map(|id| id.to_string()));
        let received = self.received_amount.map(super::Amount::minor).map(minor);
        let same = [
            ("status", stated.status == Some(self.status)),
            ("target_broker_id", stated.target == target),
            (
                "received_amount",
                stated.received_amount == received.unwrap_or_default(),
            ),
            (
                "proof_digest",
                stated.proof_digest == json!(self.proof_digest),
            ),
            (
                "saga_id",
                stated.saga.is_none_or(|saga| saga == id(self.saga_id)),
            ),
            (
                "reservation_saga_id",
                stated.reservation == id(self.reservation_saga_id),
            ),
            ("booked_saga_id", stated.booked == id(self.booked_saga_id)),
            ("proposal", stated.proposal == self.proposal),
            ("pickup_hash", stated.pickup == json!(self.pickup_digest())),
            ("version", events.len() == self.version as usize),
            ("updated_at", last.is_some_and(|at| at == self.updated_at)),
            ("accepted_at", stated.accepted_at == self.accepted_at),
            ("sent_at", stated.sent_at == self.sent_at),
            ("closed_at", stated.closed_at == self.closed_at),
        ];
        found.extend(differing(&same));
        found
    }

    /// What is fixed for good when the request is made.
    fn unlike_creation(&self, created: &Event) -> Vec<&'static str> {
        let text = |field: &str| fact(created, field);
        let deadline = json!(self.deadline_at.map(canonical::time));
        let same = [
            ("author_broker_id", {
                let author = json!(self.author.to_string());
                text("author") == author && created.actor_broker == Some(self.author)
            }),
            ("broadcast", text("target").is_null() == self.broadcast),
            ("type", text("type") == json!(self.kind)),
            ("currency_code", text("currency") == json!(self.currency)),
            ("amount", text("amount") == minor(self.amount.minor())),
            ("method", text("method") == json!(self.method)),
            ("city_code", text("city_code") == json!(self.city_code)),
            ("deadline_at", text("deadline_at") == deadline),
            ("terms", text("terms") == terms_fact(&self.terms)),
            ("settles", text("settles") == json!(self.settles)),
            (
                "auto_confirm",
                text("auto_confirm") == json!(self.auto_confirm.then_some(true)),
            ),
            ("created_at", created.at == self.created_at),
        ];
        let mut found: Vec<_> = differing(&same).collect();
        let beside = match (&created.private, text("private_digest")) {
            // Erased: of what it was only the digest is left.
            (None, Value::String(_)) => return found,
            (private, _) => private.clone().unwrap_or_default(),
        };
        let texts = [
            ("counterpart_uid", &self.counterpart_uid),
            ("contact", &self.contact),
            ("note", &self.note),
        ];
        let same = texts.map(|(name, text)| {
            let stated = beside.get(name).cloned().unwrap_or_default();
            (name, stated == json!(text))
        });
        found.extend(differing(&same));
        found
    }
}

impl Stated {
    fn follow(&mut self, request: &Request, event: &Event) {
        let nobody = Some(Value::Null);
        let proposed = |kind| event.actor_broker.map(|by| Proposal { kind, by });
        // It lapses with whatever happens next.
        self.proposal = None;
        match event.kind {
            EventKind::Created
            | EventKind::PickupRefused
            | EventKind::DisputeAssigned
            | EventKind::DisputeStatement
            | EventKind::EvidenceAsked
            | EventKind::Decided
            | EventKind::Appealed => {}
            EventKind::Accepting => {
                self.status = Some(RequestStatus::Accepting);
                self.target = fact(event, "broker");
                self.saga = None;
            }
            EventKind::Accepted => {
                self.status = Some(RequestStatus::Accepted);
                self.accepted_at = Some(event.at);
                // Accepted at once it names the broker; by a saga, the saga.
                if let broker @ Value::String(_) = fact(event, "broker") {
                    self.target = broker;
                }
                self.reservation = fact(event, "saga");
                self.saga = nobody;
            }
            EventKind::AcceptFailed => {
                self.status = Some(RequestStatus::Pending);
                if request.broadcast {
                    self.target = Value::Null;
                }
                self.saga = nobody;
            }
            EventKind::Rejected => self.close(RequestStatus::Rejected, event),
            EventKind::Cancelled => self.close(RequestStatus::Cancelled, event),
            EventKind::Expired => self.close(RequestStatus::Expired, event),
            EventKind::CancelProposed => self.proposal = proposed(ProposalKind::Cancel),
            EventKind::ResendProposed => self.proposal = proposed(ProposalKind::Resend),
            EventKind::ResendAgreed => {
                self.status = Some(RequestStatus::Accepted);
                self.proof_digest = Value::Null;
                self.received_amount = Value::Null;
            }
            EventKind::Sent => {
                self.status = Some(RequestStatus::Sent);
                self.sent_at = Some(event.at);
                self.proof_digest = fact(event, "proof_digest");
                // An order may be confirmed by being executed.
                self.saga = Some(fact(event, "saga"));
            }
            EventKind::PickupRenewed => self.pickup = fact(event, "pickup_digest"),
            EventKind::ReceivedClaimed => self.received_amount = fact(event, "received_amount"),
            EventKind::Confirmed => {
                self.receive(request, event);
                self.saga = Some(fact(event, "saga"));
            }
            EventKind::Completed => {
                self.close(RequestStatus::Completed, event);
                self.booked = fact(event, "saga");
                self.saga = nobody;
            }
            EventKind::ConfirmFailed => {
                self.status = Some(RequestStatus::Sent);
                self.saga = nobody;
            }
            EventKind::Disputed => {
                self.status = Some(RequestStatus::Disputed);
                self.closed_at = None;
            }
            EventKind::DisputeWithdrawn if self.booked.is_null() => {
                self.status = Some(RequestStatus::Sent);
            }
            EventKind::DisputeWithdrawn | EventKind::DisputeDismissed => {
                self.close(RequestStatus::Completed, event);
            }
            EventKind::Enforced => {
                if self.booked.is_null() {
                    self.receive(request, event);
                }
                self.saga = Some(fact(event, "saga"));
            }
            EventKind::EnforcementFailed => {
                if self.booked.is_null() {
                    self.received_amount = Value::Null;
                }
                self.saga = nobody;
            }
            EventKind::Corrected => {
                let counts = fact(event, "received_amount");
                if counts == minor(0) {
                    self.close(RequestStatus::Cancelled, event);
                } else {
                    self.close(RequestStatus::Completed, event);
                    self.received_amount = counts;
                }
                self.saga = nobody;
            }
        }
    }

    fn receive(&mut self, request: &Request, event: &Event) {
        let received = fact(event, "received_amount");
        let whole = received == minor(request.amount.minor());
        self.received_amount = if whole { Value::Null } else { received };
    }

    fn close(&mut self, status: RequestStatus, event: &Event) {
        self.status = Some(status);
        self.closed_at = Some(event.at);
        self.reservation = Value::Null;
    }
}

fn fact(event: &Event, name: &str) -> Value {
    event.payload.get(name).cloned().unwrap_or_default()
}

fn differing<'a>(same: &'a [(&'static str, bool)]) -> impl Iterator<Item = &'static str> + 'a {
    same.iter()
        .filter(|(_, same)| !same)
        .map(|(column, _)| *column)
}
