//! What a subject's events come to: what was agreed, what was booked of it, and how it stands. Read
//! from the events alone, as whoever gets a bundle reads them.

use serde_json::Value;
use uuid::Uuid;

use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::{Amount, CurrencyCode};
use crate::domain::request::{RequestKind, RequestStatus, Settles};
use crate::domain::request_event::{CanonicalEvent, EventKind, named_entries};
use crate::domain::terms::{Commission, CommissionSize, ObligationTerm, Party, Terms};

/// What the events say.
#[derive(Clone, Debug)]
pub(super) struct Story {
    pub(super) kind: RequestKind,
    pub(super) author: BrokerId,
    /// Whoever has accepted it.
    pub(super) other: Option<BrokerId>,
    pub(super) currency: CurrencyCode,
    pub(super) terms: Terms,
    pub(super) settles: Option<Settles>,
    pub(super) bookings: Vec<Booking>,
    pub(super) status: RequestStatus,
    amount: Amount,
    /// What has arrived, as far as it was said.
    received: Amount,
}

/// A completion or a correction.
#[derive(Clone, Debug)]
pub(super) struct Booking {
    /// The seq of its event.
    pub(super) event: u64,
    pub(super) saga: Uuid,
    /// What counted before it: `None` of the completion.
    pub(super) before: Option<Amount>,
    /// What counts since; `None`: nothing does.
    pub(super) counts: Option<Amount>,
    pub(super) entries: Vec<Named>,
    /// Of a settlement, what it took of each obligation.
    pub(super) settled: Vec<(ObligationId, u64)>,
}

/// An entry as the event names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    pub(super) book: BrokerId,
    pub(super) seq: u64,
    pub(super) tx_hash: Hash,
}

impl Story {
    /// Reads the events, whose chain holds.
    ///
    /// # Errors
    /// In words: what an event lacks or can't say at that place.
    pub(super) fn of(events: &[(u64, EventKind, &CanonicalEvent)]) -> Result<Self, String> {
        let Some(((_, EventKind::Created, first), rest)) = events.split_first() else {
            return Err("the first event is no created".to_owned());
        };
        let mut story = Self::created(&first.payload).ok_or("event 1 lacks what was agreed")?;
        for (seq, kind, event) in rest {
            story.follow(*seq, *kind, event).ok_or_else(|| {
                format!("event {seq} ({kind}) lacks what it has to say, or can't come here")
            })?;
        }
        Ok(story)
    }

    fn created(facts: &Value) -> Option<Self> {
        let amount = amount_of(facts, "amount")?;
        Some(Self {
            kind: read(facts, "type")?,
            author: number(facts, "author")?,
            other: None,
            currency: text(facts, "currency")?.parse().ok()?,
            terms: terms_of(facts.get("terms")?)?,
            settles: match facts.get("settles") {
                None => None,
                Some(_) => Some(read(facts, "settles")?),
            },
            bookings: Vec::new(),
            status: RequestStatus::Pending,
            amount,
            received: amount,
        })
    }

    fn follow(&mut self, seq: u64, kind: EventKind, event: &CanonicalEvent) -> Option<()> {
        let facts = &event.payload;
        self.status = match kind {
            // A request begins once.
            EventKind::Created => return None,
            EventKind::Accepting => {
                self.other = Some(number(facts, "broker")?);
                RequestStatus::Accepting
            }
            EventKind::Accepted => {
                // By a saga it was accepting before, which has named the broker.
                if self.status != RequestStatus::Accepting {
                    self.other = Some(number(facts, "broker")?);
                }
                RequestStatus::Accepted
            }
            EventKind::AcceptFailed => RequestStatus::Pending,
            EventKind::Rejected => RequestStatus::Rejected,
            EventKind::Cancelled => RequestStatus::Cancelled,
            EventKind::Expired => RequestStatus::Expired,
            EventKind::ResendAgreed => {
                self.received = self.amount;
                RequestStatus::Accepted
            }
            EventKind::Sent | EventKind::ConfirmFailed => RequestStatus::Sent,
            EventKind::Confirmed => {
                self.received = amount_of(facts, "received_amount")?;
                self.status
            }
            EventKind::Enforced => {
                if self.bookings.is_empty() {
                    self.received = amount_of(facts, "received_amount")?;
                }
                self.status
            }
            EventKind::EnforcementFailed => {
                if self.bookings.is_empty() {
                    self.received = self.amount;
                }
                self.status
            }
            EventKind::Completed => {
                if !self.bookings.is_empty() {
                    return None;
                }
                let settled = facts.get("settled").map_or(Some(Vec::new()), parts_of)?;
                let received = Some(self.received);
                self.book(seq, facts, None, received, settled)?;
                RequestStatus::Completed
            }
            EventKind::Corrected => {
                let before = self.bookings.last()?.counts?;
                let counts: u64 = number(facts, "received_amount")?;
                let counts = match counts {
                    0 => None,
                    some => Some(Amount::from_minor(some).ok()?),
                };
                self.book(seq, facts, Some(before), counts, Vec::new())?;
                match counts {
                    None => RequestStatus::Cancelled,
                    Some(_) => RequestStatus::Completed,
                }
            }
            EventKind::Disputed => RequestStatus::Disputed,
            EventKind::DisputeWithdrawn if self.bookings.is_empty() => RequestStatus::Sent,
            EventKind::DisputeWithdrawn | EventKind::DisputeDismissed => RequestStatus::Completed,
            EventKind::CancelProposed
            | EventKind::ResendProposed
            | EventKind::ReceivedClaimed
            | EventKind::DisputeAssigned
            | EventKind::DisputeStatement
            | EventKind::EvidenceAsked
            | EventKind::Decided
            | EventKind::Appealed
            | EventKind::PickupRefused
            | EventKind::PickupRenewed => self.status,
        };
        Some(())
    }

    fn book(
        &mut self,
        event: u64,
        facts: &Value,
        before: Option<Amount>,
        counts: Option<Amount>,
        settled: Vec<(ObligationId, u64)>,
    ) -> Option<()> {
        self.bookings.push(Booking {
            event,
            saga: text(facts, "saga")?.parse().ok()?,
            before,
            counts,
            entries: named_entries(facts)?.into_iter().map(Named::from).collect(),
            settled,
        });
        Some(())
    }

    /// The broker of a side.
    pub(super) fn broker_of(&self, party: Party) -> Option<BrokerId> {
        match party {
            Party::Author => Some(self.author),
            Party::Counterparty => self.other,
        }
    }
}

impl From<(BrokerId, Head)> for Named {
    fn from((book, head): (BrokerId, Head)) -> Self {
        Self {
            book,
            seq: head.seq,
            tx_hash: head.hash,
        }
    }
}

fn text<'a>(facts: &'a Value, name: &str) -> Option<&'a str> {
    facts.get(name)?.as_str()
}

/// A whole number as a string, written in the one way.
fn number(facts: &Value, name: &str) -> Option<u64> {
    whole(text(facts, name)?)
}

/// A whole number, written in the one way.
pub(super) fn whole(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

fn amount_of(facts: &Value, name: &str) -> Option<Amount> {
    Amount::from_minor(number(facts, name)?).ok()
}

fn read<T: serde::de::DeserializeOwned>(facts: &Value, name: &str) -> Option<T> {
    serde_json::from_value(facts.get(name)?.clone()).ok()
}

fn terms_of(facts: &Value) -> Option<Terms> {
    let obligation: ObligationTerm = read(facts, "obligation")?;
    let commission = match facts.get("commission")? {
        Value::Null => None,
        agreed => {
            let size = match agreed.get("amount") {
                Some(_) => CommissionSize::Amount(amount_of(agreed, "amount")?),
                None => {
                    CommissionSize::BasisPoints(number(agreed, "basis_points")?.try_into().ok()?)
                }
            };
            let payer = read(agreed, "payer")?;
            Some(Commission { payer, size })
        }
    };
    Some(Terms {
        obligation,
        commission,
    })
}

fn parts_of(settled: &Value) -> Option<Vec<(ObligationId, u64)>> {
    let part = |part: &Value| {
        let obligation = text(part, "obligation")?.parse().ok()?;
        Some((obligation, number(part, "amount")?))
    };
    settled.as_array()?.iter().map(part).collect()
}
