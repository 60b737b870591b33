//! The names of ledger accounts, as the ids are derived from them.

use std::fmt;
use std::str::FromStr;

use crate::domain::ids::BrokerId;
use crate::domain::money::{CurrencyCode, CurrencyCodeError};

/// Longest part of an account's name, in characters.
pub const NAME_PART_MAX: usize = 64;

/// The name of a ledger account: whose it is, and in which currency.
///
/// Printed and parsed as the dotted text that the id is derived from; parsing accepts exactly
/// what printing gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AccountName {
    owner: AccountOwner,
    currency: CurrencyCode,
}

/// Whose account it is, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AccountOwner {
    /// `broker.{id}.position`: what a broker is owed less what it owes in the network.
    /// Obligations debit the debtor's and credit the creditor's.
    Position(NamePart),
    /// `user.{id}`: a user's wallet.
    User(NamePart),
    /// `merchant.{id}`: a merchant's wallet; a broker's own wallet for payouts is one.
    Merchant(NamePart),
    /// `merchant.{id}.settlement`: a merchant's account for payouts.
    MerchantSettlement(NamePart),
    /// `agent.{id}`: an agent's wallet.
    Agent(NamePart),
    /// `agent.{id}.settlement`: an agent's account for payouts.
    AgentSettlement(NamePart),
    /// `service.{id}`: partners' fees, technical balances.
    Service(NamePart),
    /// `system.transit.{channel}`: money on its way out through a channel.
    Transit(NamePart),
    /// `system.revenue`: fees earned.
    Revenue,
    /// `system.nostro.{provider}`: the network's money at a provider.
    Nostro(NamePart),
    /// `system.equity`: the network's own funds.
    Equity,
    /// `system.suspense`: late or doubled incoming money, until somebody knows whose it is.
    Suspense,
}

/// One part of an account's name: 1 to [`NAME_PART_MAX`] characters of `[A-Za-z0-9_-]`.
/// Case counts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamePart(String);

/// Why a text is no account's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// The dotted text follows none of the patterns.
    #[error("{0:?} is no account name, as broker.1.position.USD or system.revenue.THB is one")]
    Pattern(String),
    /// A part is empty, too long or has other characters.
    #[error("{0:?} is no part of an account name: 1 to 64 characters of [A-Za-z0-9_-]")]
    Part(String),
    /// The last part is no currency code.
    #[error(transparent)]
    Currency(#[from] CurrencyCodeError),
}

impl NamePart {
    /// # Errors
    /// [`NameError::Part`] for a text that is empty, too long or has other characters.
    pub fn new(text: &str) -> Result<Self, NameError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        if (1..=NAME_PART_MAX).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(NameError::Part(text.to_owned()))
        }
    }

    /// The part as it stands in the name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<u64> for NamePart {
    /// A broker's number, or another issued one, in decimal.
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl fmt::Display for NamePart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AccountName {
    #[must_use]
    pub const fn new(owner: AccountOwner, currency: CurrencyCode) -> Self {
        Self { owner, currency }
    }

    /// The position of a broker in a currency.
    #[must_use]
    pub fn position(broker: BrokerId, currency: &CurrencyCode) -> Self {
        Self::new(AccountOwner::Position(broker.into()), currency.clone())
    }

    /// Whose account it is.
    #[must_use]
    pub fn owner(&self) -> &AccountOwner {
        &self.owner
    }

    #[must_use]
    pub fn currency(&self) -> &CurrencyCode {
        &self.currency
    }
}

impl fmt::Display for AccountName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.owner {
            AccountOwner::Position(id) => write!(f, "broker.{id}.position")?,
            AccountOwner::User(id) => write!(f, "user.{id}")?,
            AccountOwner::Merchant(id) => write!(f, "merchant.{id}")?,
            AccountOwner::MerchantSettlement(id) => write!(f, "merchant.{id}.settlement")?,
            AccountOwner::Agent(id) => write!(f, "agent.{id}")?,
            AccountOwner::AgentSettlement(id) => write!(f, "agent.{id}.settlement")?,
            AccountOwner::Service(id) => write!(f, "service.{id}")?,
            AccountOwner::Transit(channel) => write!(f, "system.transit.{channel}")?,
            AccountOwner::Revenue => f.write_str("system.revenue")?,
            AccountOwner::Nostro(provider) => write!(f, "system.nostro.{provider}")?,
            AccountOwner::Equity => f.write_str("system.equity")?,
            AccountOwner::Suspense => f.write_str("system.suspense")?,
        }
        write!(f, ".{}", self.currency)
    }
}

impl FromStr for AccountName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parts: Vec<&str> = text.split('.').collect();
        let (owner, currency) = match parts[..] {
            ["broker", id, "position", currency] => {
                (AccountOwner::Position(NamePart::new(id)?), currency)
            }
            ["user", id, currency] => (AccountOwner::User(NamePart::new(id)?), currency),
            ["merchant", id, currency] => (AccountOwner::Merchant(NamePart::new(id)?), currency),
            ["merchant", id, "settlement", currency] => (
                AccountOwner::MerchantSettlement(NamePart::new(id)?),
                currency,
            ),
            ["agent", id, currency] => (AccountOwner::Agent(NamePart::new(id)?), currency),
            ["agent", id, "settlement", currency] => {
                (AccountOwner::AgentSettlement(NamePart::new(id)?), currency)
            }
            ["service", id, currency] => (AccountOwner::Service(NamePart::new(id)?), currency),
            ["system", "transit", channel, currency] => {
                (AccountOwner::Transit(NamePart::new(channel)?), currency)
            }
            ["system", "nostro", provider, currency] => {
                (AccountOwner::Nostro(NamePart::new(provider)?), currency)
            }
            ["system", "revenue", currency] => (AccountOwner::Revenue, currency),
            ["system", "equity", currency] => (AccountOwner::Equity, currency),
            ["system", "suspense", currency] => (AccountOwner::Suspense, currency),
            _ => return Err(NameError::Pattern(text.to_owned())),
        };
        Ok(Self::new(owner, currency.parse()?))
    }
}

/// What the ledger itself is told to hold an account to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountRule {
    /// Any balance is allowed; its history is kept.
    Free,
    /// Never below zero (`debits_must_not_exceed_credits`); its history is kept.
    NeverNegative,
}

impl AccountOwner {
    /// The account's kind: `TigerBeetle`'s `code`. Fixed for ever.
    #[must_use]
    pub const fn code(&self) -> u16 {
        match self {
            Self::Position(_) => 1,
            Self::User(_) => 10,
            Self::Merchant(_) => 11,
            Self::MerchantSettlement(_) => 12,
            Self::Agent(_) => 13,
            Self::AgentSettlement(_) => 14,
            Self::Service(_) => 15,
            Self::Transit(_) => 20,
            Self::Revenue => 21,
            Self::Nostro(_) => 22,
            Self::Equity => 23,
            Self::Suspense => 24,
        }
    }

    /// What the ledger holds it to: wallets never go negative, positions and the network's own
    /// accounts may. Fixed for ever, as the flags of an account can't change.
    #[must_use]
    pub const fn rule(&self) -> AccountRule {
        match self {
            Self::User(_)
            | Self::Merchant(_)
            | Self::MerchantSettlement(_)
            | Self::Agent(_)
            | Self::AgentSettlement(_)
            | Self::Service(_) => AccountRule::NeverNegative,
            Self::Position(_)
            | Self::Transit(_)
            | Self::Revenue
            | Self::Nostro(_)
            | Self::Equity
            | Self::Suspense => AccountRule::Free,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for text in [
            "broker.1.position.USDT-TRC20",
            "user.1042.THB",
            "merchant.7.THB",
            "merchant.7.settlement.THB",
            "agent.42.THB",
            "agent.42.settlement.THB",
            "service.99.THB",
            "system.transit.IPPS.THB",
            "system.revenue.THB",
            "system.nostro.ipps.THB",
            "system.equity.THB",
            "system.suspense.RUB-CASH",
            "user.a_B-9.USD",
        ] {
            let name: AccountName = text.parse().unwrap();
            assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        let long = format!("user.{}.USD", "x".repeat(NAME_PART_MAX + 1));
        for text in [
            "",
            "user",
            "user.1",
            "user..USD",
            "user.1.usd",
            "user.1.USD.",
            ".user.1.USD",
            "User.1.USD",
            "user.1.2.USD",
            "user.1 .USD",
            "user.é.USD",
            "user.1.",
            "broker.1.USD",
            "broker.1.Position.USD",
            "merchant.7.payout.THB",
            "system.THB",
            "system.transit.THB",
            "system.revenue.x.THB",
            "nobody",
            "v2:user.1042.THB",
            "user.1.USD\n",
            &long,
        ] {
            assert!(text.parse::<AccountName>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_part_with_a_dot_can_not_make_another_name() {
        assert!(NamePart::new("7.settlement").is_err());
    }

    #[test]
    fn wallets_never_go_negative_and_positions_may() {
        for (text, code, rule) in [
            ("broker.1.position.USD", 1, AccountRule::Free),
            ("user.1.USD", 10, AccountRule::NeverNegative),
            ("merchant.1.USD", 11, AccountRule::NeverNegative),
            ("merchant.1.settlement.USD", 12, AccountRule::NeverNegative),
            ("agent.1.USD", 13, AccountRule::NeverNegative),
            ("agent.1.settlement.USD", 14, AccountRule::NeverNegative),
            ("service.1.USD", 15, AccountRule::NeverNegative),
            ("system.transit.IPPS.USD", 20, AccountRule::Free),
            ("system.revenue.USD", 21, AccountRule::Free),
            ("system.nostro.ipps.USD", 22, AccountRule::Free),
            ("system.equity.USD", 23, AccountRule::Free),
            ("system.suspense.USD", 24, AccountRule::Free),
        ] {
            let name: AccountName = text.parse().unwrap();
            assert_eq!(
                (name.owner().code(), name.owner().rule()),
                (code, rule),
                "{text}"
            );
        }
    }
}
