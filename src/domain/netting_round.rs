//! A round of netting over the network: what an admin proposes, and what the brokers that it
//! touches make of it.
//!
//! ```text
//! proposed ──the last touched broker approves──▶ approved ──▶ applied
//!    │  ▲                                           │
//!    │  └── recomputed, smaller ◀── recomputing ◀───┘ less is left of an obligation
//!    │ a broker declines → recomputing ──nothing is left──▶ failed
//!    │ an admin cancels → cancelled (from every open status)
//!    └ expiry → expired (from proposed and recomputing)
//! ```
//!
//! An approval is a cap for each obligation. A round is only ever recomputed to smaller
//! reductions, so that what was approved stays approved.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::canonical::Hash;
use super::ids::{BrokerId, NettingRoundId};
use super::money::CurrencyCode;
use super::netting::certificate::Line;
use super::words::words;

words!(
    /// The life of a round.
    RoundStatus {
        /// Some touched broker has yet to answer.
        Proposed = "proposed",
        /// A broker has declined, or less is left of an obligation: a smaller one is worked out.
        Recomputing = "recomputing",
        /// Every touched broker has approved: it is being applied.
        Approved = "approved",
        Applied = "applied",
        /// Refusals and settlements have left nothing to clear.
        Failed = "failed",
        Cancelled = "cancelled",
        Expired = "expired",
    }
);

words!(
    /// What a broker has to do with a round.
    PartyState {
        Asked = "asked",
        Approved = "approved",
        Declined = "declined",
        /// Once touched, and not any more: it has nothing to answer.
        Dropped = "dropped",
    }
);

/// A round as it stands, with its present reductions. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Round {
    pub id: NettingRoundId,
    pub currency: CurrencyCode,
    pub status: RoundStatus,
    /// How often it was worked out; each is kept, with its certificate.
    pub revision: u32,
    pub proposed_by: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: DateTime<Utc>,
    pub ended_by: Option<String>,
    pub ended_at: Option<DateTime<Utc>>,
    pub sums: Sums,
}

/// What one working out of a round came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sums {
    pub obligations: u64,
    pub total: u128,
    pub cleared: u128,
    /// See [`super::netting::measure::Measure`].
    pub bilateral: u128,
    pub bound: u128,
    /// Of the input, as the certificate has it.
    pub root: Hash,
}

/// A broker that a round touches, or has touched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub broker: BrokerId,
    pub state: PartyState,
    /// By how much its debts fall, and its claims, which is the same. What a broker has declined
    /// stays written here.
    pub fall: u128,
    /// It was approved by the broker's setting.
    pub auto: bool,
    pub answered_by: Option<String>,
    pub answered_at: Option<DateTime<Utc>>,
}

/// What a broker says to a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Approve,
    Decline,
}

impl Answer {
    #[must_use]
    pub const fn state(self) -> PartyState {
        match self {
            Self::Approve => PartyState::Approved,
            Self::Decline => PartyState::Declined,
        }
    }
}

/// What an answer comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Do,
    /// The broker has said so before.
    Already,
}

/// Why an answer is not possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the round is {status}")]
    Status { status: RoundStatus },
    #[error("the broker has {state} it")]
    Answered { state: PartyState },
    #[error("the round does not touch the broker any more")]
    Dropped,
}

impl RoundStatus {
    /// Whether it may still be applied.
    #[must_use]
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Proposed | Self::Recomputing | Self::Approved)
    }

    /// Whether brokers may answer, and the time may run out.
    #[must_use]
    pub const fn is_asking(self) -> bool {
        matches!(self, Self::Proposed | Self::Recomputing)
    }
}

impl Round {
    /// Decides on a party's answer. Who has approved may still decline while others are asked;
    /// what was declined stays so.
    ///
    /// # Errors
    /// See [`Refusal`].
    pub fn decide(
        &self,
        party: PartyState,
        answer: Answer,
        now: DateTime<Utc>,
    ) -> Result<Decision, Refusal> {
        match (party, answer) {
            (state, answer) if state == answer.state() => return Ok(Decision::Already),
            (PartyState::Dropped, _) => return Err(Refusal::Dropped),
            (state @ PartyState::Declined, _) => return Err(Refusal::Answered { state }),
            (PartyState::Asked | PartyState::Approved, _) => {}
        }
        if !self.status.is_asking() {
            let status = self.status;
            return Err(Refusal::Status { status });
        }
        if self.expires_at <= now {
            let status = RoundStatus::Expired;
            return Err(Refusal::Status { status });
        }
        Ok(Decision::Do)
    }
}

/// By how much each touched broker's debts fall. Its claims fall by the same, as in every
/// clearing.
#[must_use]
pub fn falls(lines: &[Line]) -> BTreeMap<BrokerId, u128> {
    let mut falls = BTreeMap::new();
    for line in lines.iter().filter(|line| line.reduction > 0) {
        *falls.entry(line.debtor).or_default() += u128::from(line.reduction);
    }
    falls
}

/// What a round means to a broker, in words. Amounts come written with their currency.
#[must_use]
pub fn in_words(status: RoundStatus, state: PartyState, fall: &str, net: &str) -> String {
    match (status, state) {
        (_, PartyState::Declined) => {
            "You have declined: nothing of yours changes by this round.".to_owned()
        }
        (_, PartyState::Dropped) => "This round does not touch you any more.".to_owned(),
        (RoundStatus::Applied, _) => format!(
            "Your debts have fallen by {fall}, your claims have fallen by {fall}; your net \
             position has stayed, and is {net} now."
        ),
        (status, _) if status.is_open() => format!(
            "Your debts fall by {fall}, your claims fall by {fall}; your net position stays {net}."
        ),
        (status, _) => format!("The round is {status}: nothing has changed."),
    }
}

#[cfg(test)]
mod tests {
    use super::super::netting::clear;
    use super::super::netting::sample::{Shape, graph};
    use super::*;

    fn round(status: RoundStatus) -> Round {
        Round {
            id: NettingRoundId::from_bits(1),
            currency: "USD".parse().unwrap(),
            status,
            revision: 1,
            proposed_by: "US-1".to_owned(),
            created_at: DateTime::UNIX_EPOCH,
            expires_at: DateTime::UNIX_EPOCH + chrono::Duration::days(7),
            ended_by: None,
            ended_at: None,
            sums: Sums {
                obligations: 2,
                total: 20,
                cleared: 14,
                bilateral: 14,
                bound: 14,
                root: Hash([0; 32]),
            },
        }
    }

    #[test]
    fn answers() {
        let now = DateTime::UNIX_EPOCH;
        for status in RoundStatus::ALL {
            let round = round(*status);
            for answer in [Answer::Approve, Answer::Decline] {
                let said = |state| round.decide(state, answer, now);
                assert_eq!(said(answer.state()), Ok(Decision::Already));
                assert_eq!(said(PartyState::Dropped), Err(Refusal::Dropped));
                let asked = said(PartyState::Asked);
                if status.is_asking() {
                    assert_eq!(asked, Ok(Decision::Do));
                    let late = round.decide(PartyState::Asked, answer, round.expires_at);
                    let status = RoundStatus::Expired;
                    assert_eq!(late, Err(Refusal::Status { status }));
                } else {
                    assert_eq!(asked, Err(Refusal::Status { status: *status }));
                }
            }
            let again = round.decide(PartyState::Approved, Answer::Decline, now);
            assert_eq!(again.is_ok(), status.is_asking());
            let back = round.decide(PartyState::Declined, Answer::Approve, now);
            assert!(matches!(back, Err(Refusal::Answered { .. })));
        }
    }

    /// What the words say of both sides is one number because of this.
    #[test]
    fn debts_and_claims_fall_by_the_same() {
        let lines = clear(&graph(30, 500, Shape::Core, 3)).lines;
        let turned: Vec<Line> = lines
            .iter()
            .map(|line| Line {
                debtor: line.creditor,
                creditor: line.debtor,
                ..*line
            })
            .collect();
        assert!(!falls(&lines).is_empty());
        assert_eq!(falls(&lines), falls(&turned));
    }

    #[test]
    fn words() {
        let said = in_words(RoundStatus::Proposed, PartyState::Asked, "3 USD", "-1 USD");
        assert_eq!(
            said,
            "Your debts fall by 3 USD, your claims fall by 3 USD; your net position stays -1 USD."
        );
        let gone = in_words(RoundStatus::Expired, PartyState::Asked, "3", "4");
        assert_eq!(gone, "The round is expired: nothing has changed.");
    }
}
