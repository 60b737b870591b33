//! Payments through providers: what an intent is, and where it can go.
//!
//! | status | what is true | what comes next |
//! |---|---|---|
//! | `created` | it is written down; nothing is held | the hold: `held`, or `failed` where the money is not there |
//! | `held` | amount and fee are held on the wallet; the provider's row is queued | somebody picks it up: `processing` |
//! | `processing` | the provider is being asked, or has answered and the ledger is told | `completed`, `failed`, `manual_review` |
//! | `manual_review` | nobody but a person can tell whether it was paid; the money stays held | resolved: `completed` or `failed` |
//! | `completed` | paid, posted, booked | `returned`, where the provider sends the money back |
//! | `failed` | not paid: what was held is given back | – |
//! | `returned` | paid and sent back: the amount is on the wallet again, by new transfers | – |
//!
//! A top-up holds nothing: it waits for money to come in (`processing`) and is credited once it
//! has (`completed`), or is not paid in time (`failed`).

pub mod evidence;
pub mod incoming;
pub mod outcome;
pub mod promptpay;
pub mod receiver;
pub mod statement;
pub mod transfers;

use chrono::{DateTime, Datelike as _, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::words::words;

/// Whether something can have been paid at a time: years of four digits from 1970 on.
#[must_use]
pub fn is_a_time(at: DateTime<Utc>) -> bool {
    (1970..=9999).contains(&at.year())
}

words!(
    /// Which way the money goes.
    IntentKind {
        /// From a wallet to somebody outside.
        Payout = "payout",
        /// From outside to a wallet.
        TopUp = "top_up",
    }
);

words!(
    IntentStatus {
        Created = "created",
        Held = "held",
        Processing = "processing",
        Completed = "completed",
        Failed = "failed",
        ManualReview = "manual_review",
        Returned = "returned",
    }
);

words!(
    /// A payment provider, which is a channel too: `system.transit.{name}`.
    PspName {
        /// Thai interbank transfers.
        Ipps = "IPPS",
        /// `PromptPay` QR codes, for money that comes in.
        Qp = "QP",
        /// International transfers.
        Wise = "WISE",
    }
);

words!(
    /// The provider's side of an intent: a row of the queue `psp_tx_map`.
    PspState {
        New = "NEW",
        /// The receiver is being looked up.
        QueryPending = "QUERY_PENDING",
        /// It was found. Nothing was asked to be paid yet.
        Queried = "QUERIED",
        /// The provider is being asked to pay, or has been by somebody who did not come back.
        ConfirmPending = "CONFIRM_PENDING",
        /// It may have been asked to pay; what became of that is being asked.
        Inquiring = "INQUIRING",
        Confirmed = "CONFIRMED",
        Failed = "FAILED",
        ManualReview = "MANUAL_REVIEW",
    }
);

words!(
    /// What the ledger and a book are told of an intent, each at most once.
    OutboxAction {
        Hold = "hold_pending",
        Post = "post_pending",
        Void = "void_pending",
        /// The provider sent the money back after it had paid.
        Return = "return_pending",
    }
);

/// Steps of an intent in a broker's book.
pub mod book_step {
    /// Amount and fee are reserved; undone where it is not paid.
    pub const RESERVE: u16 = 1;
    /// They are booked.
    pub const BOOK: u16 = 2;
    /// The amount is booked back.
    pub const RETURN: u16 = 3;
}

/// What happens to an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum IntentEvent {
    /// Amount and fee are held.
    Held,
    /// They are not: the wallet or the account in the book hasn't got them, or may not pay.
    HoldRefused,
    PickedUp,
    /// The ledger and the book have it.
    Posted,
    /// What was held is given back.
    Voided,
    Unclear,
    Returned,
}

impl IntentStatus {
    /// The next status; `None` where the event can't happen in this one.
    #[must_use]
    pub const fn after(self, event: IntentEvent) -> Option<Self> {
        use IntentEvent as E;
        Some(match (self, event) {
            (Self::Created, E::Held) => Self::Held,
            (Self::Created | Self::Held, E::PickedUp) => Self::Processing,
            (Self::Processing, E::Unclear) => Self::ManualReview,
            (Self::Processing | Self::ManualReview, E::Posted) => Self::Completed,
            (Self::Created, E::HoldRefused)
            | (Self::Processing | Self::ManualReview, E::Voided) => Self::Failed,
            (Self::Completed, E::Returned) => Self::Returned,
            (
                Self::Created
                | Self::Held
                | Self::Processing
                | Self::Completed
                | Self::Failed
                | Self::ManualReview
                | Self::Returned,
                _,
            ) => return None,
        })
    }

    /// Whether no work is under way and none is waited for.
    #[must_use]
    pub const fn is_over(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Returned => true,
            Self::Created | Self::Held | Self::Processing | Self::ManualReview => false,
        }
    }
}

impl PspState {
    /// Whether nothing changes it any more, a person's resolution of a review aside.
    #[must_use]
    pub const fn is_absorbing(self) -> bool {
        match self {
            Self::Confirmed | Self::Failed | Self::ManualReview => true,
            Self::New
            | Self::QueryPending
            | Self::Queried
            | Self::ConfirmPending
            | Self::Inquiring => false,
        }
    }

    /// What a row becomes when it is picked up; `None` for one that is not work. Whoever finds
    /// `CONFIRM_PENDING` does not know whether the one before has sent it, so it asks.
    #[must_use]
    pub const fn picked_up(self) -> Option<Self> {
        match self {
            Self::New | Self::QueryPending => Some(Self::QueryPending),
            Self::Queried => Some(Self::ConfirmPending),
            Self::ConfirmPending | Self::Inquiring => Some(Self::Inquiring),
            Self::Confirmed | Self::Failed | Self::ManualReview => None,
        }
    }
}

impl PspName {
    /// The provider's part of `system.nostro.{provider}`.
    #[must_use]
    pub const fn nostro(self) -> &'static str {
        match self {
            Self::Ipps => "ipps",
            Self::Qp => "qp",
            Self::Wise => "wise",
        }
    }

    /// How long after a payment was made it may be sent back, where nothing else is configured;
    /// `None` of a provider that sends nothing back.
    #[must_use]
    pub const fn sends_back_within(self) -> Option<TimeDelta> {
        match self {
            Self::Wise => Some(TimeDelta::days(60)),
            Self::Ipps | Self::Qp => None,
        }
    }

    /// What the channel is for.
    #[must_use]
    pub const fn kind(self) -> IntentKind {
        match self {
            Self::Ipps | Self::Wise => IntentKind::Payout,
            Self::Qp => IntentKind::TopUp,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [IntentEvent; 7] = [
        IntentEvent::Held,
        IntentEvent::HoldRefused,
        IntentEvent::PickedUp,
        IntentEvent::Posted,
        IntentEvent::Voided,
        IntentEvent::Unclear,
        IntentEvent::Returned,
    ];

    #[test]
    fn every_intent_can_come_to_an_end_and_an_end_is_one() {
        for status in IntentStatus::ALL {
            let next: Vec<_> = EVENTS.iter().filter_map(|e| status.after(*e)).collect();
            let final_ = matches!(status, IntentStatus::Failed | IntentStatus::Returned);
            assert_eq!(next.is_empty(), final_, "{status}");
            if status.is_over() {
                assert!(next.iter().all(|next| *next == IntentStatus::Returned));
            }
        }
    }

    #[test]
    fn what_was_perhaps_sent_is_asked_about_and_never_sent_by_a_pickup() {
        for state in PspState::ALL {
            let now = state.picked_up();
            assert_eq!(now.is_none(), state.is_absorbing(), "{state}");
            assert_eq!(
                now == Some(PspState::ConfirmPending),
                *state == PspState::Queried
            );
            // To be picked up again before an outcome leads no closer to a second payment.
            if let Some(now) = now {
                assert_ne!(now.picked_up(), Some(PspState::ConfirmPending), "{state}");
            }
        }
    }
}
