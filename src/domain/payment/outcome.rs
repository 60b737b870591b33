//! What a driver says of one turn at a provider, and what the queue makes of it.

use serde::{Deserialize, Serialize};

use super::PspState;

/// Why a payment is under review whose provider says that another amount was paid.
pub const PAID_ANOTHER_AMOUNT: &str = "paid_another_amount";

/// What a provider has told of a payment, as far as it has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Of the lookup: the provider's name for what it found.
    pub lookup_ref: Option<String>,
    pub receiver_name_en: Option<String>,
    pub receiver_display_name: Option<String>,
    pub receiver_bank: Option<String>,
    /// Of the payment: the provider's name for it.
    pub response_id: Option<String>,
    /// `YYYYMMDD`.
    pub settlement_date: Option<String>,
    /// What the provider charges, in hundredths of the currency's unit.
    pub psp_fee_satang: Option<i32>,
}

/// How far a payment is that has not come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The lookup gave no answer: it changes nothing and is made again.
    LookUpAgain,
    LookedUp,
    /// The driver knows that the provider was not asked to pay, or is sure to take the same uid
    /// for the same payment: it may be asked.
    MayAsk,
    /// It may have been asked: what became of it is to be asked.
    InDoubt,
}

/// What one turn at a provider came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PspOutcome {
    InProgress {
        progress: Progress,
        why: Option<String>,
        facts: Facts,
    },
    /// The provider says that it has paid.
    Confirmed { facts: Facts },
    /// The provider says that it has not and will not.
    Failed { reason: String, facts: Facts },
    /// Neither can be known without a person.
    ManualReview { reason: String, facts: Facts },
}

/// An outcome that can't be of a turn in that state: the driver is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no turn in {state} can come to that")]
pub struct Impossible {
    pub state: PspState,
}

impl PspOutcome {
    /// The state after a turn in one that was picked up.
    ///
    /// # Errors
    /// [`Impossible`] for a state that is nobody's turn, and for an outcome that would send a
    /// payment which may have been sent.
    pub const fn state_after(&self, state: PspState) -> Result<PspState, Impossible> {
        use PspState as S;
        let impossible = Err(Impossible { state });
        match (self, state) {
            // Nobody's turn; and where somebody is only looked up nobody was asked to pay.
            (_, S::New | S::Queried | S::Confirmed | S::Failed | S::ManualReview)
            | (Self::Confirmed { .. }, S::QueryPending) => impossible,
            (Self::Confirmed { .. }, S::ConfirmPending | S::Inquiring) => Ok(S::Confirmed),
            (Self::Failed { .. }, S::QueryPending | S::ConfirmPending | S::Inquiring) => {
                Ok(S::Failed)
            }
            (Self::ManualReview { .. }, S::QueryPending | S::ConfirmPending | S::Inquiring) => {
                Ok(S::ManualReview)
            }
            (Self::InProgress { progress, .. }, S::QueryPending) => match progress {
                Progress::LookUpAgain => Ok(S::QueryPending),
                Progress::LookedUp => Ok(S::Queried),
                Progress::MayAsk | Progress::InDoubt => impossible,
            },
            (Self::InProgress { progress, .. }, S::ConfirmPending | S::Inquiring) => match progress
            {
                Progress::MayAsk => Ok(S::Queried),
                Progress::InDoubt => Ok(S::Inquiring),
                Progress::LookUpAgain | Progress::LookedUp => impossible,
            },
        }
    }

    #[must_use]
    pub const fn facts(&self) -> &Facts {
        match self {
            Self::InProgress { facts, .. }
            | Self::Confirmed { facts }
            | Self::Failed { facts, .. }
            | Self::ManualReview { facts, .. } => facts,
        }
    }

    /// Why it is not paid, or not yet.
    #[must_use]
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::InProgress { why, .. } => why.as_deref(),
            Self::Confirmed { .. } => None,
            Self::Failed { reason, .. } | Self::ManualReview { reason, .. } => Some(reason),
        }
    }
}

/// What an error of a provider means for the payment. Each driver has one table of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorClass {
    /// It may go better later; whether the payment was made is to be asked.
    Retry,
    /// The provider refuses this payment for good.
    Terminal,
    /// A person must look.
    Review,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_progress(progress: Progress) -> PspOutcome {
        PspOutcome::InProgress {
            progress,
            why: None,
            facts: Facts::default(),
        }
    }

    #[test]
    fn a_turn_leads_where_it_may() {
        use PspState as S;
        let confirmed = PspOutcome::Confirmed {
            facts: Facts::default(),
        };
        for (state, outcome, next) in [
            (
                S::QueryPending,
                in_progress(Progress::LookUpAgain),
                Some(S::QueryPending),
            ),
            (
                S::QueryPending,
                in_progress(Progress::LookedUp),
                Some(S::Queried),
            ),
            (S::QueryPending, in_progress(Progress::InDoubt), None),
            (S::QueryPending, confirmed.clone(), None),
            (
                S::ConfirmPending,
                in_progress(Progress::InDoubt),
                Some(S::Inquiring),
            ),
            (
                S::ConfirmPending,
                in_progress(Progress::MayAsk),
                Some(S::Queried),
            ),
            (S::ConfirmPending, in_progress(Progress::LookUpAgain), None),
            (S::ConfirmPending, confirmed.clone(), Some(S::Confirmed)),
            (
                S::Inquiring,
                in_progress(Progress::InDoubt),
                Some(S::Inquiring),
            ),
            (
                S::Inquiring,
                in_progress(Progress::MayAsk),
                Some(S::Queried),
            ),
            (S::Inquiring, in_progress(Progress::LookedUp), None),
            (S::Inquiring, confirmed.clone(), Some(S::Confirmed)),
            (S::New, confirmed.clone(), None),
            (S::Failed, confirmed.clone(), None),
            (S::ManualReview, confirmed, None),
        ] {
            assert_eq!(outcome.state_after(state).ok(), next, "{state} {outcome:?}");
        }
    }
}
