//! Accounts of a book: whose they are, what they may be debited.

use serde::{Deserialize, Serialize};

use super::ids::{AccountId, BrokerId};
use super::money::CurrencyCode;
use super::words::words;

words!(
    /// Whose balance an account is.
    OwnerKind {
        /// The broker's own; has no floor unless one is set.
        House = "house",
        /// Cash in a cashier's hands; never below zero.
        Cashier = "cashier",
        /// A client's or counterpart's; never below zero.
        Partner = "partner",
    }
);

impl OwnerKind {
    /// The floor that an account is opened with; `None`: it may go negative without end.
    #[must_use]
    pub const fn default_floor(self) -> Option<i64> {
        match self {
            Self::House => None,
            Self::Cashier | Self::Partner => Some(0),
        }
    }
}

/// Names one account of a book; its id derives from the rest. House accounts are opened when
/// they are first booked on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct AccountRef {
    pub broker: BrokerId,
    pub owner_kind: OwnerKind,
    /// `main`, `commission` or `suspense` for the house, else a cashier's or partner's name.
    pub owner_ref: String,
    pub currency: CurrencyCode,
}

/// The longest name of an owner, in bytes.
pub const MAX_OWNER_REF: usize = 64;

impl AccountRef {
    /// Whether a text can name an owner: 1 to 64 of letters, digits, `_`, `-` and `.`, so that it
    /// reads the same wherever it is shown, and in every hash.
    #[must_use]
    pub fn is_owner_ref(text: &str) -> bool {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        (1..=MAX_OWNER_REF).contains(&text.len()) && text.bytes().all(allowed)
    }

    #[must_use]
    pub fn id(&self) -> AccountId {
        AccountId::derive(&[
            &self.broker.to_string(),
            self.owner_kind.as_str(),
            &self.owner_ref,
            self.currency.as_str(),
        ])
    }

    #[must_use]
    pub fn house(broker: BrokerId, purpose: HousePurpose, currency: &CurrencyCode) -> Self {
        Self {
            broker,
            owner_kind: OwnerKind::House,
            owner_ref: purpose.as_str().to_owned(),
            currency: currency.clone(),
        }
    }

    /// Whether a debit can be refused here, so that it must be reserved before money moves.
    #[must_use]
    pub const fn has_floor(&self) -> bool {
        self.owner_kind.default_floor().is_some()
    }
}

words!(
    /// What a house account is for.
    HousePurpose {
        Main = "main",
        /// Commissions earned and paid.
        Commission = "commission",
        /// Credits whose account was closed, waiting for a person.
        Suspense = "suspense",
    }
);

words!(
    /// Which way an entry moves its account.
    Side {
        /// The balance falls.
        Debit = "debit",
        /// The balance rises.
        Credit = "credit",
    }
);

impl Side {
    #[must_use]
    pub const fn opposite(self) -> Self {
        match self {
            Self::Debit => Self::Credit,
            Self::Credit => Self::Debit,
        }
    }
}

/// What an account holds, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    pub balance: i64,
    /// Promised and not yet booked.
    pub reserved: i64,
    /// `None`: no floor.
    pub min_balance: Option<i64>,
}

impl Balance {
    /// What an account holds when it is opened.
    #[must_use]
    pub const fn empty(owner_kind: OwnerKind) -> Self {
        Self {
            balance: 0,
            reserved: 0,
            min_balance: owner_kind.default_floor(),
        }
    }

    /// balance − reserved − min_balance; `None` where nothing bounds it.
    #[must_use]
    pub fn available(&self) -> Option<i64> {
        self.min_balance.map(|floor| {
            self.balance
                .saturating_sub(self.reserved)
                .saturating_sub(floor)
        })
    }

    /// Whether a debit of `amount` may be booked, `own` of it being reserved for this very debit.
    #[must_use]
    pub fn covers(&self, amount: u64, own: u64) -> bool {
        let fits = |available: i64| i128::from(available) + i128::from(own) >= i128::from(amount);
        self.available().is_none_or(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_bounds_a_debit_and_a_reservation_counts() {
        let client = Balance {
            balance: 1_000,
            reserved: 400,
            min_balance: Some(0),
        };
        assert_eq!(client.available(), Some(600));
        assert!(client.covers(600, 0) && !client.covers(601, 0));
        assert!(
            client.covers(1_000, 400),
            "its own reservation is there for it"
        );
        let house = Balance {
            min_balance: None,
            ..client
        };
        assert!(house.covers(u64::MAX, 0));
    }
}
