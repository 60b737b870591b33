//! What may start in the network: pauses of the whole of it, of a broker or of a currency, and
//! how the brokers themselves stand. What runs always goes on to its end.

use std::collections::BTreeMap;
use std::fmt;

use chrono::{DateTime, Utc};

use super::broker::BrokerState;
use super::ids::BrokerId;
use super::money::CurrencyCode;
use super::words::words;

words! {
    PauseScope {
        Network = "network",
        Broker = "broker",
        Currency = "currency",
    }
}

/// What can be paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pausable {
    Network,
    Broker(BrokerId),
    Currency(CurrencyCode),
}

impl Pausable {
    #[must_use]
    pub const fn scope(&self) -> PauseScope {
        match self {
            Self::Network => PauseScope::Network,
            Self::Broker(_) => PauseScope::Broker,
            Self::Currency(_) => PauseScope::Currency,
        }
    }

    #[must_use]
    pub const fn broker(&self) -> Option<BrokerId> {
        match self {
            Self::Broker(id) => Some(*id),
            Self::Network | Self::Currency(_) => None,
        }
    }

    #[must_use]
    pub const fn currency(&self) -> Option<&CurrencyCode> {
        match self {
            Self::Currency(code) => Some(code),
            Self::Network | Self::Broker(_) => None,
        }
    }
}

impl fmt::Display for Pausable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network => f.write_str("the network"),
            Self::Broker(id) => write!(f, "broker {id}"),
            Self::Currency(code) => write!(f, "the currency {code}"),
        }
    }
}

/// A pause as it is kept: for ever, lifted or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub id: u64,
    pub what: Pausable,
    pub reason: String,
    pub by: String,
    pub at: DateTime<Utc>,
    pub lifted: Option<Lifted>,
}

/// How a pause ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lifted {
    pub by: String,
    pub at: DateTime<Utc>,
    pub reason: Option<String>,
}

/// Why and since when something is paused, as far as that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Because {
    pub reason: String,
    pub since: DateTime<Utc>,
}

/// How one broker stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerStanding {
    pub state: BrokerState,
    pub paused: Option<Because>,
}

/// What decides whether something new may start, as of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    pub network: Option<Because>,
    /// The currency that was asked for, where it is paused.
    pub currency: Option<(CurrencyCode, Because)>,
    /// Those that were asked for and that there are.
    pub brokers: BTreeMap<BrokerId, BrokerStanding>,
}

/// What stands in the way of something new.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Hindrance {
    #[error("{what} is paused{}: what runs is finished, and nothing new starts", told(because.as_ref()))]
    Paused {
        what: Pausable,
        /// Not told of another broker's pause.
        because: Option<Because>,
    },
    #[error("broker {broker} is {state}: it starts nothing new")]
    NotActive {
        broker: BrokerId,
        state: BrokerState,
    },
    #[error("there is no broker {broker}")]
    NoBroker { broker: BrokerId },
}

fn told(because: Option<&Because>) -> String {
    because.map_or_else(String::new, |because| format!(" ({})", because.reason))
}

impl Standing {
    /// Whether anything new may start that no broker is asked about.
    ///
    /// # Errors
    /// What stands in the way: a pause of the network, or of the currency.
    pub fn network_is_open(&self) -> Result<(), Hindrance> {
        let network = self.network.clone().map(|why| (Pausable::Network, why));
        let currency = self
            .currency
            .clone()
            .map(|(code, why)| (Pausable::Currency(code), why));
        match network.or(currency) {
            None => Ok(()),
            Some((what, because)) => Err(Hindrance::Paused {
                what,
                because: Some(because),
            }),
        }
    }

    /// Whether a broker may begin something, the network left aside. `asking` is who is told:
    /// why another broker is paused is nobody else's business.
    ///
    /// # Errors
    /// What stands in the way.
    pub fn broker_is_open(&self, broker: BrokerId, asking: BrokerId) -> Result<(), Hindrance> {
        let Some(standing) = self.brokers.get(&broker) else {
            return Err(Hindrance::NoBroker { broker });
        };
        match standing.state {
            BrokerState::Active => Ok(()),
            BrokerState::Suspended => Err(Hindrance::Paused {
                what: Pausable::Broker(broker),
                because: standing.paused.clone().filter(|_| broker == asking),
            }),
            state @ (BrokerState::Provisioning | BrokerState::Leaving | BrokerState::Archived) => {
                Err(Hindrance::NotActive { broker, state })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn because(reason: &str) -> Because {
        Because {
            reason: reason.to_owned(),
            since: DateTime::UNIX_EPOCH,
        }
    }

    fn standing(state: BrokerState) -> Standing {
        let paused = (state == BrokerState::Suspended).then(|| because("an audit"));
        Standing {
            brokers: [(7, BrokerStanding { state, paused })].into(),
            ..Standing::default()
        }
    }

    #[test]
    fn only_an_active_broker_begins_anything() {
        for state in BrokerState::ALL {
            let open = standing(*state).broker_is_open(7, 7);
            assert_eq!(open.is_ok(), *state == BrokerState::Active, "{state}");
        }
        let none = Standing::default().broker_is_open(7, 7);
        assert_eq!(none, Err(Hindrance::NoBroker { broker: 7 }));
    }

    #[test]
    fn why_a_broker_is_paused_is_told_to_itself_alone() {
        let suspended = standing(BrokerState::Suspended);
        let own = suspended.broker_is_open(7, 7).unwrap_err().to_string();
        let others = suspended.broker_is_open(7, 8).unwrap_err().to_string();
        assert!(own.contains("an audit"), "{own}");
        assert!(others.starts_with("broker 7 is paused:"), "{others}");
    }

    #[test]
    fn the_network_comes_before_a_currency() {
        let usd: CurrencyCode = "USD".parse().unwrap();
        let mut all = Standing {
            network: Some(because("a fire")),
            currency: Some((usd.clone(), because("a rate"))),
            ..Standing::default()
        };
        let what = |standing: &Standing| match standing.network_is_open() {
            Err(Hindrance::Paused { what, because }) => (what, because.unwrap().reason),
            other => panic!("{other:?}"),
        };
        assert_eq!(what(&all), (Pausable::Network, "a fire".to_owned()));
        all.network = None;
        assert_eq!(what(&all), (Pausable::Currency(usd), "a rate".to_owned()));
        all.currency = None;
        assert_eq!(all.network_is_open(), Ok(()));
    }
}
