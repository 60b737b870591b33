//! The life of a network request: which transition is possible when, and what it changes.
//!
//! ```text
//! pending ──accept──▶ accepted ──sent──▶ sent ──confirm──▶ (saga) ──▶ completed
//!    │ reject, cancel, deadline   │ cancel by both, deadline   │ dispute ──▶ disputed
//!    ▼                            ▼                            │ cancel by both ──▶ cancelled
//! rejected, cancelled, expired   cancelled, expired            └ resend by both ──▶ accepted
//! ```
//! The deadline is for the first sending: what was sent once never expires. What has completed may
//! be disputed for a while, too: see [`dispute`].
//!
//! A settlement is a request that repays obligations: its debtor sends, its creditor confirms, and
//! accepting it promises as much of the debt to it. An order is a request that the other side
//! executes for the author's client: the executor is the one who sends, and the author confirms.
//! To people its `pending` is `created` and its `sent` is `executed`.
//!
//! Every method takes the request as it was loaded and gives a [`Decision`]; the store applies
//! it only where status, version and saga are still the same. While a saga owns the request
//! (`saga_id`) no transition but the saga's own applies.

mod change;
mod create;
mod dispute;
mod order;
mod past;
mod saga_moves;
mod stated;
#[cfg(test)]
pub(in crate::domain) mod tests;
mod transitions;
mod words;

pub use change::{Change, Decision, Refusal};
pub use create::NewRequest;
pub use dispute::{Case, CaseStatus, DisputeRules, Ruling, Statement, Verdict};
pub use order::{Execution, Pickup};
pub use past::{MAX_CLAIMS, MAX_FAILED_ACCEPTS, MAX_PICKUPS, MAX_PROPOSALS, Past};
pub use saga_moves::Booked;
pub use transitions::Acceptance;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::AccountRef;
use super::canonical::Hash;
use super::ids::{BrokerId, ObligationId, RequestId};
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
        /// The debtor sends, the creditor confirms, and the debt falls.
        Settlement = "settlement",
        /// An order: the executor's cashier takes cash from the author's client.
        Collect = "collect",
        /// An order: the executor's cashier pays cash to the author's client.
        Payout = "payout",
    }
);

impl RequestKind {
    /// Whether the other side executes it for the author's client.
    #[must_use]
    pub const fn is_order(self) -> bool {
        match self {
            Self::Collect | Self::Payout => true,
            Self::Send | Self::Receive | Self::Settlement => false,
        }
    }
}

/// What a settlement repays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settles {
    /// The side that owes, and sends.
    pub debtor: Party,
    /// The one obligation that it repays; `None`: the oldest first.
    pub obligation: Option<ObligationId>,
}

/// Who will owe whom how much once a request completes, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owing {
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub amount: u64,
}

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
    /// Of a settlement and of nothing else.
    pub settles: Option<Settles>,
    /// Of an order: it is confirmed by being executed.
    pub auto_confirm: bool,
    /// Of a payout: the code that the client shows, as a password is kept.
    pub pickup_hash: Option<String>,
    pub author_account: Option<AccountRef>,
    pub counterparty_account: Option<AccountRef>,
    pub deadline_at: Option<DateTime<Utc>>,
    pub confirm_by: Option<DateTime<Utc>>,
    pub proposal: Option<Proposal>,
    pub saga_id: Option<Uuid>,
    pub reservation_saga_id: Option<Uuid>,
    /// The saga that has booked it; stays when what it has booked is disputed.
    pub booked_saga_id: Option<Uuid>,
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
    /// been accepted; of an order everybody's who serves its city.
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

    /// The side that moves the money, or executes the order, and says so; the other confirms.
    #[must_use]
    pub const fn sender(&self) -> Party {
        match self.kind {
            RequestKind::Send => Party::Author,
            RequestKind::Receive | RequestKind::Collect | RequestKind::Payout => {
                Party::Counterparty
            }
            RequestKind::Settlement => match self.settles {
                Some(settles) => settles.debtor,
                None => Party::Author,
            },
        }
    }

    #[must_use]
    pub const fn account_of(&self, party: Party) -> Option<&AccountRef> {
        match party {
            Party::Author => self.author_account.as_ref(),
            Party::Counterparty => self.counterparty_account.as_ref(),
        }
    }

    /// What the direction of the debt depends on; a settlement leaves none.
    #[must_use]
    pub const fn scenario(kind: RequestKind, to_client: bool) -> Option<Scenario> {
        match (kind, to_client) {
            (RequestKind::Send, false) => Some(Scenario::Send),
            (RequestKind::Send, true) => Some(Scenario::SendToClient),
            (RequestKind::Receive, false) => Some(Scenario::Receive),
            (RequestKind::Receive, true) => Some(Scenario::ReceiveFromClient),
            (RequestKind::Collect, _) => Some(Scenario::Collect),
            (RequestKind::Payout, _) => Some(Scenario::Payout),
            (RequestKind::Settlement, _) => None,
        }
    }

    /// What the completion will debit from each side's account, at most.
    #[must_use]
    pub fn debits(&self) -> Vec<(Party, u64)> {
        let amount = self.amount.minor();
        match self.kind {
            RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => {
                let sender = self.sender();
                let commission = self.terms.commission;
                let commission = commission
                    .filter(|commission| commission.payer == sender)
                    .map_or(0, |commission| commission.on(self.amount));
                vec![(sender, amount.saturating_add(commission))]
            }
            RequestKind::Collect => Vec::new(),
            RequestKind::Payout => vec![(Party::Author, amount), (Party::Counterparty, amount)],
        }
    }

    /// What an acceptance reserves: the debits of accounts that have a floor.
    #[must_use]
    pub fn promises(&self) -> Vec<(AccountRef, u64)> {
        let of = |(party, amount)| {
            let account = self.account_of(party)?.clone();
            account.has_floor().then_some((account, amount))
        };
        self.debits().into_iter().filter_map(of).collect()
    }

    /// What was booked or is to be booked: less than `amount` where both sides agreed on it.
    #[must_use]
    pub fn settled_amount(&self) -> Amount {
        self.received_amount.unwrap_or(self.amount)
    }

    /// Who will owe whom at most, with `counterparty` on the other side.
    #[must_use]
    pub fn owing_with(&self, counterparty: BrokerId) -> Option<Owing> {
        let (debtor, amount) = self.terms.obligation_on(self.amount)?;
        let broker_of = |party| match party {
            Party::Author => self.author,
            Party::Counterparty => counterparty,
        };
        Some(Owing {
            debtor: broker_of(debtor),
            creditor: broker_of(debtor.other()),
            amount,
        })
    }

    /// What the request takes of its creditor's credit line: from its acceptance until the debt
    /// stands, or won't ever.
    #[must_use]
    pub fn credit_hold(&self) -> Option<Owing> {
        let counterparty = self.target.filter(|_| self.is_under_way())?;
        self.owing_with(counterparty)
    }

    /// Whether it stands between its acceptance and its end, with nothing booked.
    #[must_use]
    pub const fn is_under_way(&self) -> bool {
        match self.status {
            RequestStatus::Accepting | RequestStatus::Accepted | RequestStatus::Sent => true,
            RequestStatus::Disputed => self.booked_saga_id.is_none(),
            RequestStatus::Pending
            | RequestStatus::Completed
            | RequestStatus::Rejected
            | RequestStatus::Cancelled
            | RequestStatus::Expired => false,
        }
    }
}
