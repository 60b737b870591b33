//! What a transition has to know of the transitions before it: enough to tell a repeat from
//! something new, and to keep anybody from going on without end.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::{Case, Request, RequestStatus};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::domain::request_event::{Event, EventKind};

/// The receiver may state as many amounts that differ.
pub const MAX_CLAIMS: u32 = 20;
/// A broker may propose as often to cancel or to send again.
pub const MAX_PROPOSALS: u32 = 20;
/// A broker's acceptances of a request that its books refuse, before it may not try any more.
pub const MAX_FAILED_ACCEPTS: u32 = 10;
/// The author of a payout may make as many new codes.
pub const MAX_RENEWALS: u32 = 20;
/// Wrong pickup codes before the author has to make a new one.
pub const MAX_PICKUPS: u32 = 5;

/// A request's past, as far as its transitions ask for it. It follows from the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Past {
    /// Who has rejected or disputed.
    pub(super) ended_by: Option<BrokerId>,
    /// The claim or reason that came with it; `None` also where it has been erased.
    pub(super) said: Option<String>,
    /// Digests of the proofs that were taken back when both sides agreed to send again.
    pub(super) withdrawn: Vec<Hash>,
    /// Amounts that the receiver has stated.
    pub(super) claims: u32,
    pub(super) proposals: BTreeMap<BrokerId, u32>,
    pub(super) failed_accepts: BTreeMap<BrokerId, u32>,
    /// Wrong pickup codes since the code was made.
    pub(super) pickups_refused: u32,
    /// The dispute that it is in.
    pub case: Option<Case>,
    /// A dispute of it was decided before.
    pub(super) decided: bool,
    /// Codes that were made anew.
    pub(super) pickups_renewed: u32,
}

impl Past {
    /// Reads it from a request's events, in order and from the first.
    #[must_use]
    pub fn of<'a>(events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut past = Self::default();
        let mut proof = None;
        let mut accepting = None;
        for event in events {
            let text = |name: &str| {
                let private = event.private.as_ref()?;
                private.get(name)?.as_str().map(str::to_owned)
            };
            if let Value::Object(facts) = &event.payload {
                past.follow_dispute(event.kind, event.actor_broker, facts);
            }
            match event.kind {
                EventKind::Accepting => accepting = event.actor_broker,
                EventKind::AcceptFailed => past.count_failed_accept(accepting),
                EventKind::Rejected => past.end(event.actor_broker, text("reason")),
                EventKind::Disputed => past.end(event.actor_broker, text("claim")),
                EventKind::CancelProposed | EventKind::ResendProposed => {
                    past.count_proposal(event.actor_broker);
                }
                EventKind::Sent => {
                    let digest = event.payload.get("proof_digest").and_then(Value::as_str);
                    proof = digest.and_then(Hash::from_hex);
                }
                EventKind::ResendAgreed => past.withdrawn.extend(proof.take()),
                EventKind::ReceivedClaimed => past.claims += 1,
                EventKind::PickupRefused => past.pickups_refused += 1,
                EventKind::PickupRenewed => past.renew_pickup(),
                EventKind::Created
                | EventKind::Accepted
                | EventKind::Cancelled
                | EventKind::Confirmed
                | EventKind::Completed
                | EventKind::ConfirmFailed
                | EventKind::Expired
                | EventKind::DisputeAssigned
                | EventKind::DisputeStatement
                | EventKind::EvidenceAsked
                | EventKind::DisputeWithdrawn
                | EventKind::Decided
                | EventKind::Appealed
                | EventKind::Enforced
                | EventKind::DisputeDismissed
                | EventKind::Corrected
                | EventKind::EnforcementFailed => {}
            }
        }
        past
    }

    pub(super) fn follow_dispute(
        &mut self,
        kind: EventKind,
        by: Option<BrokerId>,
        facts: &Map<String, Value>,
    ) {
        self.case = Case::follow(self.case.take(), kind, by, facts);
        self.decided |= kind == EventKind::Decided;
    }

    pub(super) fn renew_pickup(&mut self) {
        self.pickups_refused = 0;
        self.pickups_renewed += 1;
    }

    pub(super) fn end(&mut self, by: Option<BrokerId>, said: Option<String>) {
        self.ended_by = by;
        self.said = said;
    }

    pub(super) fn count_proposal(&mut self, by: Option<BrokerId>) {
        if let Some(by) = by {
            *self.proposals.entry(by).or_default() += 1;
        }
    }

    pub(super) fn count_failed_accept(&mut self, by: Option<BrokerId>) {
        if let Some(by) = by {
            *self.failed_accepts.entry(by).or_default() += 1;
        }
    }

    /// Whether a broker has ended it so before: with these words, or nothing is said now. Words
    /// that come after an end without any would be lost.
    pub(super) fn ended_so(&self, by: BrokerId, said: Option<&str>) -> bool {
        let same = said.is_none() || self.said.as_deref() == said;
        self.ended_by == Some(by) && same
    }
}

impl Request {
    /// Whether transitions ask for more of its past than is in it: not where it has come straight
    /// to its status, as nearly all do.
    #[must_use]
    pub const fn has_past(&self) -> bool {
        match self.status {
            RequestStatus::Pending => self.event_seq > 1,
            RequestStatus::Accepted => self.event_seq > 3,
            RequestStatus::Sent => self.event_seq > 4,
            RequestStatus::Rejected | RequestStatus::Disputed => true,
            RequestStatus::Accepting
            | RequestStatus::Completed
            | RequestStatus::Cancelled
            | RequestStatus::Expired => false,
        }
    }
}
