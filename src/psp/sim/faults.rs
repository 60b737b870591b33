//! Faults on demand. Whether a request meets one follows from the seed, what is asked, the uid, and
//! how often that was asked before: not from the order in which others come, so that a run can be
//! made again.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

/// How often each fault happens: of a hundred requests, payments or callbacks so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Rates {
    /// An answer waits for up to `latency_ms`.
    pub latency: u8,
    /// 503, and nothing was done.
    pub error_before: u8,
    /// 502, and everything was done.
    pub error_after: u8,
    /// Everything was done, and the answer breaks off in the middle.
    pub torn_after: u8,
    /// A payment that was made is unknown when it is asked about, the first `unknown_asks` times.
    pub unknown: u8,
    /// WISE: the money comes back after it was sent.
    pub bounce: u8,
    /// QP: a callback comes twice.
    pub duplicate_callback: u8,
    /// QP: a callback comes after `late_ms`.
    pub late_callback: u8,
    pub latency_ms: u64,
    pub unknown_asks: u32,
    pub late_ms: u64,
}

/// Rates that are none.
#[derive(Debug, thiserror::Error)]
pub enum RatesError {
    #[error(
        "rates are NAME=NUMBER, separated by commas, as error_after=5,latency=20,latency_ms=300"
    )]
    Form,
    #[error("{0}")]
    Name(#[from] serde_json::Error),
    #[error("{name} is {found} of a hundred")]
    OverHundred { name: &'static str, found: u8 },
}

impl Default for Rates {
    fn default() -> Self {
        Self {
            latency: 0,
            error_before: 0,
            error_after: 0,
            torn_after: 0,
            unknown: 0,
            bounce: 0,
            duplicate_callback: 0,
            late_callback: 0,
            latency_ms: 300,
            unknown_asks: 2,
            late_ms: 2_000,
        }
    }
}

impl Rates {
    /// # Errors
    /// A rate of more than a hundred of a hundred.
    pub fn checked(self) -> Result<Self, RatesError> {
        for (name, found) in [
            ("latency", self.latency),
            ("error_before", self.error_before),
            ("error_after", self.error_after),
            ("torn_after", self.torn_after),
            ("unknown", self.unknown),
            ("bounce", self.bounce),
            ("duplicate_callback", self.duplicate_callback),
            ("late_callback", self.late_callback),
        ] {
            if found > 100 {
                return Err(RatesError::OverHundred { name, found });
            }
        }
        Ok(self)
    }
}

impl FromStr for Rates {
    type Err = RatesError;

    fn from_str(text: &str) -> Result<Self, RatesError> {
        let mut fields = Map::new();
        for part in text.split(',').filter(|part| !part.trim().is_empty()) {
            let (name, number) = part.split_once('=').ok_or(RatesError::Form)?;
            let number: u64 = number.trim().parse().map_err(|_| RatesError::Form)?;
            let before = fields.insert(name.trim().to_owned(), number.into());
            if before.is_some() {
                return Err(RatesError::Form);
            }
        }
        let rates: Self = serde_json::from_value(Value::Object(fields))?;
        rates.checked()
    }
}

/// What one request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Faults {
    pub(super) latency: Duration,
    pub(super) error_before: bool,
    pub(super) error_after: bool,
    pub(super) torn_after: bool,
}

/// The generator.
pub(super) struct Draws {
    seed: u64,
    rates: Mutex<Rates>,
    /// How often something was asked of a uid.
    asked: Mutex<HashMap<(&'static str, String), u64>>,
}

impl Draws {
    pub(super) fn new(seed: u64, rates: Rates) -> Self {
        Self {
            seed,
            rates: Mutex::new(rates),
            asked: Mutex::default(),
        }
    }

    pub(super) fn rates(&self) -> Rates {
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set(&self, rates: Rates) {
        *self.rates.lock().unwrap_or_else(PoisonError::into_inner) = rates;
    }

    /// The faults of the next request for that.
    pub(super) fn draw(&self, operation: &'static str, uid: &str) -> Faults {
        let nth = {
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            let nth = asked.entry((operation, uid.to_owned())).or_default();
            *nth += 1;
            *nth
        };
        let rates = self.rates();
        let of = |fault: &str| self.number(&format!("{operation} {uid} {nth} {fault}"));
        let hit = |fault: &str, rate: u8| of(fault) % 100 < u64::from(rate);
        let latency_ms = if hit("latency", rates.latency) {
            of("latency_ms") % rates.latency_ms.saturating_add(1)
        } else {
            0
        };
        Faults {
            latency: Duration::from_millis(latency_ms),
            error_before: hit("error_before", rates.error_before),
            error_after: hit("error_after", rates.error_after),
            torn_after: hit("torn_after", rates.torn_after),
        }
    }

    /// Whether something that happens to a payment once happens to this one.
    pub(super) fn happens(&self, fault: &str, uid: &str, rate: u8) -> bool {
        self.number(&format!("{fault} {uid}")) % 100 < u64::from(rate)
    }

    fn number(&self, text: &str) -> u64 {
        number(&format!("{} {text}", self.seed))
    }
}

/// A number that follows from a text.
pub(super) fn number(text: &str) -> u64 {
    let hash = Sha256::digest(text.as_bytes());
    hash.iter()
        .take(8)
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_read() {
        let rates: Rates = "error_after=5, latency=20,latency_ms=50".parse().unwrap();
        let expected = Rates {
            error_after: 5,
            latency: 20,
            latency_ms: 50,
            ..Rates::default()
        };
        assert_eq!(rates, expected);
        assert_eq!("".parse::<Rates>().unwrap(), Rates::default());
    }

    #[test]
    fn what_is_no_rate_is_told_why() {
        for (text, word) in [
            ("error_after", "NAME=NUMBER"),
            ("error_after=x", "NAME=NUMBER"),
            ("error_after=-1", "NAME=NUMBER"),
            ("error_after=1,error_after=2", "NAME=NUMBER"),
            ("error_afer=1", "expected one of"),
            ("error_after=101", "of a hundred"),
            ("error_after=1000", "u8"),
        ] {
            let error = text.parse::<Rates>().unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }

    #[test]
    fn a_seed_draws_the_same_in_whatever_order() {
        let rates: Rates = "latency=50,error_before=30,error_after=30,torn_after=30"
            .parse()
            .unwrap();
        let draws = |seed| Draws::new(seed, rates);
        let uids: Vec<_> = (0..200).map(|n| format!("uid-{n}")).collect();
        let (first, second, other) = (draws(1), draws(1), draws(2));
        let forward: Vec<_> = uids.iter().map(|uid| first.draw("pay", uid)).collect();
        let mut backward: Vec<_> = uids
            .iter()
            .rev()
            .map(|uid| second.draw("pay", uid))
            .collect();
        backward.reverse();
        assert_eq!(forward, backward);
        let others: Vec<_> = uids.iter().map(|uid| other.draw("pay", uid)).collect();
        assert_ne!(forward, others);
        // The next time is another draw.
        let again: Vec<_> = uids.iter().map(|uid| first.draw("pay", uid)).collect();
        assert_ne!(forward, again);
    }

    #[test]
    fn faults_come_as_often_as_they_are_to() {
        let draws = Draws::new(7, "error_after=10".parse().unwrap());
        let hits = (0..5_000).filter(|n| draws.draw("pay", &format!("{n}")).error_after);
        let hits = hits.count();
        assert!((400..600).contains(&hits), "{hits}");
        draws.set(Rates::default());
        assert!((0..500).all(|n| !draws.draw("pay", &format!("{n}")).error_after));
        draws.set("error_after=100".parse().unwrap());
        assert!((0..500).all(|n| draws.draw("pay", &format!("{n}")).error_after));
    }
}
