//! The terms of a request: who will owe whom when it completes, and the commission.
//!
//! Brokers see the direction of a debt differently (whoever holds the other's money owes it, or
//! whoever asked for the service does), so it is an agreed term with a default per scenario, and
//! [`DefaultTerms`] is the one place that holds the defaults.

use serde::{Deserialize, Serialize};

use super::money::Amount;
use super::words::words;

words!(
    /// The two sides of a request.
    Party {
        Author = "author",
        Counterparty = "counterparty",
    }
);

impl Party {
    #[must_use]
    pub const fn other(self) -> Self {
        match self {
            Self::Author => Self::Counterparty,
            Self::Counterparty => Self::Author,
        }
    }
}

words!(
    /// Who will owe whom.
    ObligationTerm {
        AuthorOwes = "author_owes",
        CounterpartyOwes = "counterparty_owes",
        /// Nobody: the sides are even by other means, and the ledger is not moved.
        None = "none",
    }
);

impl ObligationTerm {
    #[must_use]
    pub const fn debtor(self) -> Option<Party> {
        match self {
            Self::AuthorOwes => Some(Party::Author),
            Self::CounterpartyOwes => Some(Party::Counterparty),
            Self::None => None,
        }
    }
}

/// How large a commission is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommissionSize {
    /// Minor units.
    Amount(Amount),
    /// Hundredths of a percent of what was received, rounded half up to the minor unit.
    BasisPoints(u32),
}

/// The largest commission by rate: below the whole, since it comes out of the amount or the debt.
pub const MAX_BASIS_POINTS: u32 = 9_999;

/// What one side pays the other for the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Commission {
    pub payer: Party,
    pub size: CommissionSize,
}

impl Commission {
    /// The commission on `amount`, in minor units; may be 0 by rounding.
    #[must_use]
    pub fn on(&self, amount: Amount) -> u64 {
        match self.size {
            CommissionSize::Amount(fixed) => fixed.minor(),
            CommissionSize::BasisPoints(points) => {
                let scaled = u128::from(amount.minor()) * u128::from(points);
                let rounded = (scaled + 5_000) / 10_000;
                u64::try_from(rounded).unwrap_or(u64::MAX)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    pub obligation: ObligationTerm,
    pub commission: Option<Commission>,
}

/// Why terms can't stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermsError {
    #[error("a commission is at most {MAX_BASIS_POINTS} basis points")]
    RateTooHigh,
    #[error("a commission is greater than zero and smaller than the amount it is paid on")]
    CommissionOutOfRange,
}

impl Terms {
    /// Of what leaves nobody owing anybody: a settlement.
    pub const NONE: Self = Self {
        obligation: ObligationTerm::None,
        commission: None,
    };

    /// Checks the terms against the amount they are for. A fixed commission must leave something
    /// of a debt that it is paid out of.
    ///
    /// # Errors
    /// A rate over [`MAX_BASIS_POINTS`], or a commission of nothing or of the whole amount.
    pub fn check(&self, amount: Amount) -> Result<(), TermsError> {
        let Some(commission) = self.commission else {
            return Ok(());
        };
        if let CommissionSize::BasisPoints(points) = commission.size
            && points > MAX_BASIS_POINTS
        {
            return Err(TermsError::RateTooHigh);
        }
        let on = commission.on(amount);
        if on == 0 || on >= amount.minor() {
            return Err(TermsError::CommissionOutOfRange);
        }
        Ok(())
    }

    /// Who owes whom how much once `received` has arrived: the debtor and minor units. The
    /// commission adds to the debt of a payer who owes, and is taken from what a payer is owed.
    #[must_use]
    pub fn obligation_on(&self, received: Amount) -> Option<(Party, u64)> {
        let debtor = self.obligation.debtor()?;
        let principal = received.minor();
        let amount = match self.commission {
            None => principal,
            Some(commission) if commission.payer == debtor => {
                principal.saturating_add(commission.on(received))
            }
            Some(commission) => principal.saturating_sub(commission.on(received)),
        };
        Some((debtor, amount))
    }
}

/// What kind of request it is, as far as the default direction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    Send,
    /// A send to a client of the counterparty (`counterpart_uid`).
    SendToClient,
    Receive,
    /// A receive from a client of the counterparty.
    ReceiveFromClient,
    /// An order: the executor takes cash from the author's client.
    Collect,
    /// An order: the executor pays cash to the author's client.
    Payout,
}

/// The direction of the debt where a request states none. The operator of a network may set
/// others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DefaultTerms {
    pub send: ObligationTerm,
    pub send_to_client: ObligationTerm,
    pub receive: ObligationTerm,
    pub receive_from_client: ObligationTerm,
    pub collect: ObligationTerm,
    pub payout: ObligationTerm,
}

impl Default for DefaultTerms {
    fn default() -> Self {
        Self {
            send: ObligationTerm::AuthorOwes,
            send_to_client: ObligationTerm::CounterpartyOwes,
            receive: ObligationTerm::CounterpartyOwes,
            receive_from_client: ObligationTerm::AuthorOwes,
            collect: ObligationTerm::AuthorOwes,
            payout: ObligationTerm::AuthorOwes,
        }
    }
}

impl DefaultTerms {
    #[must_use]
    pub const fn of(&self, scenario: Scenario) -> ObligationTerm {
        match scenario {
            Scenario::Send => self.send,
            Scenario::SendToClient => self.send_to_client,
            Scenario::Receive => self.receive,
            Scenario::ReceiveFromClient => self.receive_from_client,
            Scenario::Collect => self.collect,
            Scenario::Payout => self.payout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amount(minor: u64) -> Amount {
        Amount::from_minor(minor).unwrap()
    }

    fn rate(payer: Party, points: u32) -> Commission {
        Commission {
            payer,
            size: CommissionSize::BasisPoints(points),
        }
    }

    #[test]
    fn a_rate_is_rounded_half_up() {
        let commission = rate(Party::Author, 50);
        assert_eq!(commission.on(amount(1_000_000)), 5_000);
        assert_eq!(commission.on(amount(99)), 0, "0.495");
        assert_eq!(commission.on(amount(100)), 1, "0.5");
        assert_eq!(commission.on(amount(299)), 1, "1.495");
    }

    #[test]
    fn a_commission_adds_to_the_payers_debt_and_lessens_the_payers_claim() {
        let terms = |payer| Terms {
            obligation: ObligationTerm::AuthorOwes,
            commission: Some(rate(payer, 100)),
        };
        let received = amount(1_000_000);
        assert_eq!(
            terms(Party::Author).obligation_on(received),
            Some((Party::Author, 1_010_000))
        );
        assert_eq!(
            terms(Party::Counterparty).obligation_on(received),
            Some((Party::Author, 990_000))
        );
        let none = Terms {
            obligation: ObligationTerm::None,
            commission: Some(rate(Party::Author, 100)),
        };
        assert_eq!(none.obligation_on(received), None);
    }

    #[test]
    fn terms_that_cannot_stand() {
        let terms = |size| Terms {
            obligation: ObligationTerm::AuthorOwes,
            commission: Some(Commission {
                payer: Party::Author,
                size,
            }),
        };
        let check = |size| terms(size).check(amount(100));
        assert_eq!(check(CommissionSize::BasisPoints(100)), Ok(()));
        assert_eq!(
            check(CommissionSize::BasisPoints(10_001)),
            Err(TermsError::RateTooHigh)
        );
        assert_eq!(
            check(CommissionSize::BasisPoints(49)),
            Err(TermsError::CommissionOutOfRange)
        );
        assert_eq!(
            check(CommissionSize::Amount(amount(100))),
            Err(TermsError::CommissionOutOfRange)
        );
        assert_eq!(check(CommissionSize::Amount(amount(99))), Ok(()));
    }
}
