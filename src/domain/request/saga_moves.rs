//! The transitions that only a saga makes, on the request that it owns. None has a business
//! condition left to fail.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use super::change::{event, minor};
use super::{Change, Request, RequestStatus};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::domain::money::Amount;
use crate::domain::request_event::{self, EventKind};
use crate::domain::settlement::Part;

/// An entry that a saga has booked, as the completion records it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Booked {
    pub book: BrokerId,
    pub seq: u64,
    pub tx_hash: Hash,
}

impl Request {
    /// The confirm saga has done its work: both books' hashes go into the event, so that neither
    /// broker can drop its side; and of a settlement what it has settled.
    #[must_use]
    pub fn completed(&self, booked: &[Booked], settled: &[Part], now: DateTime<Utc>) -> Change {
        let mut facts = vec![
            ("saga", self.saga_fact()),
            ("entries", entries_fact(booked)),
        ];
        if self.settles.is_some() {
            let part = |part: &Part| json!({ "obligation": part.obligation, "amount": minor(part.amount) });
            facts.push(("settled", settled.iter().map(part).collect()));
        }
        let mut request = self.released_by_saga(RequestStatus::Completed, now);
        request.reservation_saga_id = None;
        request.booked_saga_id = self.saga_id;
        request.closed_at = Some(now);
        change(request, EventKind::Completed, &facts)
    }

    /// The confirm saga was refused and has undone what it did: sent again, to be confirmed again
    /// or disputed. Where it enforced a decision that is still to be done.
    #[must_use]
    pub fn confirm_failed(&self, reason: &Value, now: DateTime<Utc>) -> Change {
        if self.status == RequestStatus::Disputed {
            let mut request = self.released_by_saga(RequestStatus::Disputed, now);
            request.received_amount = None;
            return self.failed(request, EventKind::EnforcementFailed, reason);
        }
        let request = self.released_by_saga(RequestStatus::Sent, now);
        self.failed(request, EventKind::ConfirmFailed, reason)
    }

    /// The correction has been booked, by `less` minor units: completed with what is left, or, where
    /// nothing is, cancelled.
    #[must_use]
    pub fn corrected(&self, booked: &[Booked], less: u64, now: DateTime<Utc>) -> Change {
        let counts = self.settled_amount().minor().saturating_sub(less);
        let facts = [
            ("saga", self.saga_fact()),
            ("received_amount", minor(counts)),
            ("entries", entries_fact(booked)),
        ];
        let status = match counts {
            0 => RequestStatus::Cancelled,
            _ => RequestStatus::Completed,
        };
        let mut request = self.released_by_saga(status, now);
        request.received_amount = Amount::from_minor(counts).ok().or(self.received_amount);
        request.closed_at = Some(now);
        change(request, EventKind::Corrected, &facts)
    }

    /// The correction was refused: the decision is still to be done.
    #[must_use]
    pub fn correction_failed(&self, reason: &Value, now: DateTime<Utc>) -> Change {
        let request = self.released_by_saga(RequestStatus::Disputed, now);
        self.failed(request, EventKind::EnforcementFailed, reason)
    }

    /// The accept saga has reserved what will be debited.
    #[must_use]
    pub fn accept_settled(&self, now: DateTime<Utc>) -> Change {
        let facts = [("saga", self.saga_fact())];
        let mut request = self.released_by_saga(RequestStatus::Accepted, now);
        request.reservation_saga_id = self.saga_id;
        request.accepted_at = Some(now);
        change(request, EventKind::Accepted, &facts)
    }

    /// A reservation was refused: pending again, open to others where it was a broadcast.
    #[must_use]
    pub fn accept_failed(&self, reason: &Value, now: DateTime<Utc>) -> Change {
        let mut request = self.released_by_saga(RequestStatus::Pending, now);
        request.past.count_failed_accept(self.target);
        if request.broadcast {
            request.target = None;
        }
        request.counterparty_account = None;
        self.failed(request, EventKind::AcceptFailed, reason)
    }

    /// The event has which book refused and in one word why, for both sides. What the book told
    /// beyond that is its owner's alone, and stands beside the chain.
    fn failed(&self, request: Request, kind: EventKind, reason: &Value) -> Change {
        let shown = request_event::shown_reason(reason);
        let mut change = change(
            request,
            kind,
            &[("saga", self.saga_fact()), ("reason", shown.clone())],
        );
        if shown.get("book").is_some() && shown != *reason {
            change.event.private = Some(json!({ "reason": reason }));
        }
        change
    }

    fn released_by_saga(&self, status: RequestStatus, now: DateTime<Utc>) -> Request {
        Request {
            status,
            saga_id: None,
            proposal: None,
            version: self.version + 1,
            updated_at: now,
            ..self.clone()
        }
    }

    fn saga_fact(&self) -> Value {
        self.saga_id
            .map_or(Value::Null, |id| Value::String(id.to_string()))
    }
}

/// The entries that a saga has booked, as its event names them.
fn entries_fact(booked: &[Booked]) -> Value {
    let entry = |entry: &Booked| {
        json!({
            "book": entry.book.to_string(),
            "seq": entry.seq.to_string(),
            "tx_hash": entry.tx_hash,
        })
    };
    booked.iter().map(entry).collect()
}

fn change(request: Request, kind: EventKind, facts: &[(&str, Value)]) -> Change {
    Change {
        request,
        event: event(kind, None, facts),
        plan: None,
    }
}
