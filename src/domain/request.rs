//! The life of a network request: which transition is possible when, and what it changes.
//!
//! ```text
//! pending ──accept──▶ accepted ──sent──▶ sent ──confirm──▶ (saga) ──▶ completed
//!    │ reject, cancel, deadline   │ cancel by both, deadline   │ dispute ──▶ disputed
//!    ▼                            ▼                            │ cancel by both ──▶ cancelled
//! rejected, cancelled, expired   cancelled, expired            └ resend by both ──▶ accepted
//! ```
//! The deadline is for the first sending: what was sent once never expires.
//!
//! Every method takes the request as it was loaded and gives a [`Decision`]; the store applies
//! it only where status, version and saga are still the same. While a saga owns the request
//! (`saga_id`) no transition but the saga's own applies.

mod change;
mod create;
mod past;
mod saga_moves;
mod stated;
#[cfg(test)]
pub(in crate::domain) mod tests;
mod transitions;
mod words;

pub use change::{Change, Decision, Refusal};
pub use create::NewRequest;
pub use past::{MAX_CLAIMS, MAX_FAILED_ACCEPTS, MAX_PROPOSALS, Past};
pub use saga_moves::Booked;
pub use transitions::Acceptance;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::account::AccountRef;
use super::canonical::Hash;
use super::ids::{BrokerId, RequestId};
use super::money::{Amount, CurrencyCode};
use super::terms::{Party, Scenario, Terms};
use super::words::words;

words!(
    /// Who moves the money.
    RequestKind {
        /// The author sends, the target confirms.
        Send = "send",
        /// The target sends, the author confirms.
        Receive = "receive",
    }
);

words!(
    RequestStatus {
        Pending = "pending",
        /// The winner is known; its reservations are being made.
        Accepting = "accepting",
        Accepted = "accepted",
        Sent = "sent",
        Completed = "completed",
        Rejected = "rejected",
        Cancelled = "cancelled",
        Expired = "expired",
        /// Frozen until an arbiter decides.
        Disputed = "disputed",
    }
);

words!(
    /// What one side has proposed and the other may agree to.
    ProposalKind {
        Cancel = "cancel",
        /// Back from sent to accepted.
        Resend = "resend",
    }
);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub kind: ProposalKind,
    pub by: BrokerId,
}

/// A network request as the master holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    pub id: RequestId,
    pub author: BrokerId,
    /// `None` until a broadcast is accepted.
    pub target: Option<BrokerId>,
    pub broadcast: bool,
    pub kind: RequestKind,
    pub status: RequestStatus,
    /// Rises by one with every change.
    pub version: u32,
    pub currency: CurrencyCode,
    pub amount: Amount,
    /// What the receiver says arrived, where that is less than `amount`, and what was booked.
    pub received_amount: Option<Amount>,
    pub method: String,
    pub city_code: Option<String>,
    pub counterpart_uid: Option<String>,
    pub contact: Option<String>,
    pub note: Option<String>,
    pub terms: Terms,
    pub author_account: Option<AccountRef>,
    pub counterparty_account: Option<AccountRef>,
    pub deadline_at: Option<DateTime<Utc>>,
    pub confirm_by: Option<DateTime<Utc>>,
    pub proposal: Option<Proposal>,
    pub saga_id: Option<Uuid>,
    pub reservation_saga_id: Option<Uuid>,
    pub proof_digest: Option<Hash>,
    pub event_seq: u32,
    pub event_hash: Hash,
    /// Empty until it is read from the events; see [`Request::has_past`].
    pub past: Box<Past>,
    pub created_at: DateTime<Utc>,
    pub accepted_at: Option<DateTime<Utc>>,
    /// When it was last sent; stays when both sides go back to accepted.
    pub sent_at: Option<DateTime<Utc>>,
    pub closed_at: Option<DateTime<Utc>>,
    pub updated_at: DateTime<Utc>,
}

impl Request {
    /// Which side a broker is on; `None` for everybody else.
    #[must_use]
    pub fn party(&self, broker: BrokerId) -> Option<Party> {
        if self.author == broker {
            Some(Party::Author)
        } else if self.target == Some(broker) {
            Some(Party::Counterparty)
        } else {
            None
        }
    }

    #[must_use]
    pub fn broker_of(&self, party: Party) -> Option<BrokerId> {
        match party {
            Party::Author => Some(self.author),
            Party::Counterparty => self.target,
        }
    }

    /// Whether a broker may see the request at all. A broadcast is everybody's until it has
    /// been accepted.
    #[must_use]
    pub fn visible_to(&self, broker: BrokerId) -> bool {
        self.party(broker).is_some() || (self.broadcast && self.status == RequestStatus::Pending)
    }

    /// Whether a broker may see the client's uid, the contact and the note, which may name either:
    /// on a broadcast only its parties.
    #[must_use]
    pub fn shows_contact_to(&self, broker: BrokerId) -> bool {
        self.party(broker).is_some()
    }

    /// The side that moves the money.
    #[must_use]
    pub const fn sender(&self) -> Party {
        match self.kind {
            RequestKind::Send => Party::Author,
            RequestKind::Receive => Party::Counterparty,
        }
    }

    #[must_use]
    pub const fn account_of(&self, party: Party) -> Option<&AccountRef> {
        match party {
            Party::Author => self.author_account.as_ref(),
            Party::Counterparty => self.counterparty_account.as_ref(),
        }
    }

    #[must_use]
    pub const fn scenario(kind: RequestKind, to_client: bool) -> Scenario {
        match (kind, to_client) {
            (RequestKind::Send, false) => Scenario::Send,
            (RequestKind::Send, true) => Scenario::SendToClient,
            (RequestKind::Receive, false) => Scenario::Receive,
            (RequestKind::Receive, true) => Scenario::ReceiveFromClient,
        }
    }

    /// What the completion will debit from the sender's account.
    #[must_use]
    pub fn debit_amount(&self) -> u64 {
        let commission = self
            .terms
            .commission
            .filter(|commission| commission.payer == self.sender())
            .map_or(0, |commission| commission.on(self.amount));
        self.amount.minor().saturating_add(commission)
    }

    /// What was booked or is to be booked: less than `amount` where both sides agreed on it.
    #[must_use]
    pub fn settled_amount(&self) -> Amount {
        self.received_amount.unwrap_or(self.amount)
    }
}
