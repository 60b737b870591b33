//! The event chain of one request: every transition, hashed over the one before.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::canonical::{self, Hash};
use super::chain::Head;
use super::ids::{BrokerId, RequestId};
use super::words::words;

/// The version of the event's format that this program writes.
pub const FORMAT: u16 = 1;

words!(
    /// What happened to a request.
    EventKind {
        Created = "created",
        /// One broker has won the right to accept; reservations are being made.
        Accepting = "accepting",
        Accepted = "accepted",
        /// A reservation was refused: pending again.
        AcceptFailed = "accept_failed",
        Rejected = "rejected",
        /// One side asks the other to cancel.
        CancelProposed = "cancel_proposed",
        Cancelled = "cancelled",
        /// One side asks the other to go back from sent to accepted.
        ResendProposed = "resend_proposed",
        ResendAgreed = "resend_agreed",
        Sent = "sent",
        /// The receiver says that less has arrived than was agreed.
        ReceivedClaimed = "received_claimed",
        /// Confirmed: the saga runs.
        Confirmed = "confirmed",
        Completed = "completed",
        /// The saga went back: sent again.
        ConfirmFailed = "confirm_failed",
        Expired = "expired",
        Disputed = "disputed",
        /// An arbiter has taken the dispute.
        DisputeAssigned = "dispute_assigned",
        /// One side has said something in it.
        DisputeStatement = "dispute_statement",
        /// The arbiter asks one side for evidence.
        EvidenceAsked = "evidence_asked",
        /// Whoever opened the dispute has taken it back.
        DisputeWithdrawn = "dispute_withdrawn",
        Decided = "decided",
        Appealed = "appealed",
        /// The decision is final: the saga runs that does what it says.
        Enforced = "enforced",
        /// The decision leaves what was booked as it is.
        DisputeDismissed = "dispute_dismissed",
        /// New entries have been booked, down to what the arbiter found.
        Corrected = "corrected",
        /// The saga that enforces a decision went back.
        EnforcementFailed = "enforcement_failed",
        /// The code that was shown at the counter of a payout is another.
        PickupRefused = "pickup_refused",
        /// The author of a payout has made a new code; the one before opens nothing any more.
        PickupRenewed = "pickup_renewed",
    }
);

/// An event as a decision makes it, before it has its place in the chain.
#[derive(Clone, Debug, PartialEq)]
pub struct EventDraft {
    pub kind: EventKind,
    /// The broker whose act it is; `None`: the network's own.
    pub actor_broker: Option<BrokerId>,
    /// Facts, hashed. Amounts are strings of minor units.
    pub payload: Map<String, Value>,
    /// Free text and personal data: beside the chain, their digest in it.
    pub private: Option<Value>,
}

impl EventDraft {
    /// Puts a salt beside the free text, if there is any: without one, a short text could be
    /// guessed from its digest after it has been erased.
    #[must_use]
    pub fn salted(mut self, salt: Uuid) -> Self {
        if let Some(Value::Object(private)) = &mut self.private {
            private.insert("salt".to_owned(), Value::String(salt.simple().to_string()));
        }
        self
    }
}

/// An event in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    pub request: RequestId,
    /// From 1, without gaps.
    pub seq: u32,
    pub kind: EventKind,
    pub actor_broker: Option<BrokerId>,
    /// The subject of the token that asked for it, or the worker's name.
    pub actor: String,
    pub at: DateTime<Utc>,
    pub payload: Value,
    pub private: Option<Value>,
    pub prev_hash: Hash,
}

impl Event {
    /// Gives a draft its place after the event with hash `prev_hash`.
    #[must_use]
    pub fn seal(
        draft: EventDraft,
        request: RequestId,
        seq: u32,
        prev_hash: Hash,
        actor: &str,
        at: DateTime<Utc>,
    ) -> Self {
        let mut payload = draft.payload;
        if let Some(private) = &draft.private {
            let digest = Hash::of_json(private).to_hex();
            payload.insert("private_digest".to_owned(), Value::String(digest));
        }
        Self {
            request,
            seq,
            kind: draft.kind,
            actor_broker: draft.actor_broker,
            actor: actor.to_owned(),
            at,
            payload: Value::Object(payload),
            private: draft.private,
            prev_hash,
        }
    }

    /// What stands beside the chain, for a party of the request: of a book's refusal only the
    /// book's own broker reads it.
    #[must_use]
    pub fn private_for(&self, broker: BrokerId) -> Option<&Value> {
        let private = self.private.as_ref();
        match self.kind {
            EventKind::AcceptFailed | EventKind::ConfirmFailed | EventKind::EnforcementFailed => {
                let book = self
                    .payload
                    .get("reason")
                    .and_then(|reason| reason.get("book"));
                private.filter(|_| book.and_then(Value::as_str) == Some(&broker.to_string()))
            }
            EventKind::Created
            | EventKind::Accepting
            | EventKind::Accepted
            | EventKind::Rejected
            | EventKind::CancelProposed
            | EventKind::Cancelled
            | EventKind::ResendProposed
            | EventKind::ResendAgreed
            | EventKind::Sent
            | EventKind::ReceivedClaimed
            | EventKind::Confirmed
            | EventKind::Completed
            | EventKind::Expired
            | EventKind::Disputed
            | EventKind::PickupRefused
            | EventKind::PickupRenewed
            | EventKind::DisputeAssigned
            | EventKind::DisputeStatement
            | EventKind::EvidenceAsked
            | EventKind::DisputeWithdrawn
            | EventKind::Decided
            | EventKind::Appealed
            | EventKind::Enforced
            | EventKind::DisputeDismissed
            | EventKind::Corrected => private,
        }
    }

    /// Why a saga went back, for a party: with all that the book told where it is its own.
    #[must_use]
    pub fn reason_for(&self, broker: BrokerId) -> Value {
        let own = self.private_for(broker);
        let told = own.and_then(|private| private.get("reason"));
        let shown = told.or_else(|| self.payload.get("reason"));
        shown.cloned().unwrap_or(Value::Null)
    }

    /// The form that is hashed and given out.
    #[must_use]
    pub fn canonical(&self) -> CanonicalEvent {
        CanonicalEvent {
            actor: self.actor.clone(),
            actor_broker: self.actor_broker.map(|id| id.to_string()),
            at: canonical::time(self.at),
            kind: self.kind.as_str().to_owned(),
            payload: self.payload.clone(),
            prev_hash: self.prev_hash,
            request: self.request.to_string(),
            seq: self.seq.to_string(),
            v: FORMAT,
        }
    }

    #[must_use]
    pub fn hash(&self) -> Hash {
        Hash::of_json(&self.canonical())
    }
}

/// An event as its hash covers it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanonicalEvent {
    pub actor: String,
    pub actor_broker: Option<String>,
    pub at: String,
    pub kind: String,
    pub payload: Value,
    pub prev_hash: Hash,
    pub request: String,
    pub seq: String,
    pub v: u16,
}

/// Of the reason why a saga went back, what both sides of its request may know: the code, and
/// which book it was. Balances and accounts are of one book only.
#[must_use]
pub fn shown_reason(reason: &Value) -> Value {
    let Value::Object(all) = reason else {
        return Value::Null;
    };
    let shown = ["book", "code"].into_iter();
    let shown = shown.filter_map(|name| Some((name.to_owned(), all.get(name)?.clone())));
    Value::Object(shown.collect())
}

/// The entries that a completion or a correction names; `None` where it names none as it should.
#[must_use]
pub fn named_entries(payload: &Value) -> Option<Vec<(BrokerId, Head)>> {
    let text =
        |entry: &Value, field: &str| entry.get(field).and_then(Value::as_str).map(str::to_owned);
    let number = |entry: &Value, field: &str| {
        let text = text(entry, field)?;
        let number: u64 = text.parse().ok()?;
        (number.to_string() == text).then_some(number)
    };
    let named = |entry: &Value| {
        let seq = number(entry, "seq")?;
        let hash = Hash::from_hex(&text(entry, "tx_hash")?)?;
        Some((number(entry, "book")?, Head { seq, hash }))
    };
    payload
        .get("entries")?
        .as_array()?
        .iter()
        .map(named)
        .collect()
}

/// What the first event of a request has as its previous hash.
#[must_use]
pub fn genesis(request: RequestId) -> Hash {
    Hash::of_bytes(format!("settlenet:request:v1:{request}").as_bytes())
}
