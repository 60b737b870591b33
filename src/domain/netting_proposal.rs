//! A proposal of one broker to another to net what they owe each other in a currency.
//!
//! ```text
//! proposed ──approve (counterparty)──▶ applied
//!    │ decline (counterparty) → declined
//!    │ cancel (proposer) → cancelled
//!    └ expiry → expired
//! ```

use chrono::{DateTime, Utc};

use super::ids::{BrokerId, NettingProposalId};
use super::money::CurrencyCode;
use super::words::words;

words!(
    /// The life of a proposal.
    ProposalStatus {
        Proposed = "proposed",
        /// Both sides' debts have fallen.
        Applied = "applied",
        Declined = "declined",
        Cancelled = "cancelled",
        Expired = "expired",
    }
);

/// A proposal as it stands. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    pub id: NettingProposalId,
    pub proposer: BrokerId,
    pub counterparty: BrokerId,
    pub currency: CurrencyCode,
    /// No more than this is netted, where it is set.
    pub most: Option<u64>,
    pub status: ProposalStatus,
    /// By how much each side's debts have fallen, once it is applied.
    pub netted: Option<u64>,
    pub proposed_by: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    /// Who ended it: the subject of a token, or the worker.
    pub ended_by: Option<String>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// What a party does with a proposal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Approve,
    Decline,
    Cancel,
}

impl Act {
    /// What the proposal is afterwards.
    #[must_use]
    pub const fn end(self) -> ProposalStatus {
        match self {
            Self::Approve => ProposalStatus::Applied,
            Self::Decline => ProposalStatus::Declined,
            Self::Cancel => ProposalStatus::Cancelled,
        }
    }

    const fn is_of_proposer(self) -> bool {
        matches!(self, Self::Cancel)
    }
}

/// What an act comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Do,
    /// The same party did it before.
    Already,
}

/// Why an act is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("there is no such proposal")]
    NoParty,
    #[error("the counterparty approves or declines, and the proposer cancels")]
    NotYourMove,
    #[error("the proposal is {status}")]
    Status { status: ProposalStatus },
}

impl Proposal {
    #[must_use]
    pub const fn is_of(&self, broker: BrokerId) -> bool {
        self.proposer == broker || self.counterparty == broker
    }

    /// Decides on an act of a broker. One that has expired counts as such before it is marked.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decide(
        &self,
        broker: BrokerId,
        act: Act,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        if !self.is_of(broker) {
            return Err(Refusal::NoParty);
        }
        if act.is_of_proposer() != (self.proposer == broker) {
            return Err(Refusal::NotYourMove);
        }
        if self.status == act.end() {
            return Ok(Decision::Already);
        }
        match self.status {
            ProposalStatus::Proposed if self.expires_at <= now => Err(Refusal::Status {
                status: ProposalStatus::Expired,
            }),
            ProposalStatus::Proposed => Ok(Decision::Do),
            status => Err(Refusal::Status { status }),
        }
    }

    /// What it means to both, in words. `amount` writes minor units with the currency; `both` is
    /// what both owe each other now and nothing has reserved, where that is known.
    #[must_use]
    pub fn in_words(&self, amount: impl Fn(u64) -> String, both: Option<u64>) -> String {
        let (one, other) = (self.proposer, self.counterparty);
        let upto = match (both, self.most) {
            (Some(both), Some(most)) => amount(both.min(most)),
            (Some(known), None) | (None, Some(known)) => amount(known),
            (None, None) => "what both owe".to_owned(),
        };
        match (self.status, self.netted) {
            (ProposalStatus::Proposed, _) => format!(
                "What broker {one} owes broker {other} falls by up to {upto}, what broker {other} \
                 owes broker {one} falls by the same; your net position stays."
            ),
            (ProposalStatus::Applied, netted) => {
                let by = amount(netted.unwrap_or(0));
                format!(
                    "What broker {one} owes broker {other} has fallen by {by}, what broker \
                     {other} owes broker {one} by the same; your net position has stayed."
                )
            }
            (status, _) => format!("The proposal is {status}: nothing has changed."),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(status: ProposalStatus) -> Proposal {
        Proposal {
            id: NettingProposalId::from_bits(1),
            proposer: 1,
            counterparty: 2,
            currency: "USD".parse().unwrap(),
            most: None,
            status,
            netted: (status == ProposalStatus::Applied).then_some(7),
            proposed_by: "US-1".to_owned(),
            created_at: DateTime::UNIX_EPOCH,
            expires_at: DateTime::UNIX_EPOCH + chrono::Duration::days(7),
            ended_by: None,
            ended_at: None,
        }
    }

    #[test]
    fn each_side_has_its_acts_once() {
        let now = DateTime::UNIX_EPOCH;
        for status in ProposalStatus::ALL {
            let proposal = proposal(*status);
            for (broker, act) in [(2, Act::Approve), (2, Act::Decline), (1, Act::Cancel)] {
                let decided = proposal.decide(broker, act, now);
                let expected = match status {
                    ProposalStatus::Proposed => Ok(Decision::Do),
                    status if *status == act.end() => Ok(Decision::Already),
                    status => Err(Refusal::Status { status: *status }),
                };
                assert_eq!(decided, expected, "{status} {act:?}");
                let other = proposal.decide(3 - broker, act, now);
                assert_eq!(other, Err(Refusal::NotYourMove));
                assert_eq!(proposal.decide(3, act, now), Err(Refusal::NoParty));
            }
        }
    }

    #[test]
    fn one_that_has_expired_is_expired_before_it_is_marked() {
        let proposal = proposal(ProposalStatus::Proposed);
        let late = proposal.decide(2, Act::Approve, proposal.expires_at);
        let status = ProposalStatus::Expired;
        assert_eq!(late, Err(Refusal::Status { status }));
    }

    #[test]
    fn words() {
        let usd = |minor: u64| format!("{minor}.00 USD");
        let mut proposal = proposal(ProposalStatus::Proposed);
        assert_eq!(
            proposal.in_words(usd, Some(7)),
            "What broker 1 owes broker 2 falls by up to 7.00 USD, what broker 2 owes broker 1 \
             falls by the same; your net position stays."
        );
        proposal.most = Some(5);
        assert!(proposal.in_words(usd, Some(7)).contains("up to 5.00 USD,"));
        assert!(proposal.in_words(usd, None).contains("up to 5.00 USD,"));
        proposal.status = ProposalStatus::Applied;
        proposal.netted = Some(4);
        assert!(proposal.in_words(usd, None).contains("fallen by 4.00 USD,"));
        proposal.status = ProposalStatus::Declined;
        let words = proposal.in_words(usd, None);
        assert_eq!(words, "The proposal is declined: nothing has changed.");
    }
}
