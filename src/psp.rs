//! Payment providers: one contract, one driver each.
//!
//! A driver makes one turn at a time: it looks a receiver up, asks for a payment, or asks what
//! became of one, and says how far the payment is then. It keeps nothing between two turns and
//! decides nothing twice: what was sent under which uid is in the queue's row before it is sent.
//!
//! | picked up in | the turn | what it may come to |
//! |---|---|---|
//! | `QUERY_PENDING` | looks the receiver up: harmless, and made again after any doubt | looked up; again; refused; review |
//! | `CONFIRM_PENDING` | asks for the payment, where enough of the lease is left | paid; refused; in doubt; not sent |
//! | `INQUIRING` | asks what became of it | paid; refused; still in doubt; may be asked again, where the provider takes the same uid for the same payment |
//!
//! "I don't know it" from a provider is no refusal: what was sent may be on its way. Only a
//! provider that declares to take a uid once is asked to pay again, under the same uid; any other
//! leaves it to a person.

pub mod breaker;
pub mod client;
pub mod ipps;
pub mod qp;
pub mod sim;
#[cfg(test)]
mod testing;
mod turn;
pub mod wise;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use reqwest::header::HeaderMap;
use uuid::Uuid;

use crate::domain::money::CurrencyCode;
use crate::domain::payment::outcome::{Facts, PspOutcome};
use crate::domain::payment::promptpay::PromptPayError;
use crate::domain::payment::receiver::Receiver;
use crate::domain::payment::{PspName, PspState};
use qp::callback::{Callback, CallbackError};

/// What a driver is told of a payment.
#[derive(Clone, Debug)]
pub struct PspTask {
    pub intent: Uuid,
    /// As it was picked up.
    pub state: PspState,
    pub query_rq_uid: String,
    pub confirm_rq_uid: String,
    /// What earlier turns have brought.
    pub facts: Facts,
    pub currency: CurrencyCode,
    /// The currency's decimal places.
    pub exponent: u8,
    /// Minor units.
    pub amount: u64,
    pub receiver: Receiver,
    /// What the provider knows the sender by, where it needs to.
    pub sender: Option<String>,
    /// Turns that came to nothing since it last came on.
    pub tries: u32,
    pub lease: Lease,
}

/// How long what was picked up is still its worker's: by a clock that goes on while the machine is
/// suspended.
#[derive(Clone, Copy, Debug)]
pub struct Lease {
    until: rustix::time::Timespec,
}

/// A call to a provider as it is kept, with what is secret in it masked.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub operation: &'static str,
    pub rq_uid: Option<String>,
    pub request: serde_json::Value,
    pub http_status: Option<u16>,
    pub response: Option<serde_json::Value>,
    pub error: Option<String>,
    pub took: Duration,
}

/// What a turn came to, and the calls that were made for it.
#[derive(Clone, Debug)]
pub struct Turn {
    pub outcome: PspOutcome,
    pub calls: Vec<CallRecord>,
}

/// A payment that was made, as it is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Made<'a> {
    /// What it was asked to be paid under.
    pub uid: &'a str,
    pub facts: &'a Facts,
    /// Minor units.
    pub amount: u64,
    /// The currency's decimal places.
    pub exponent: u8,
    pub currency: &'a CurrencyCode,
}

/// What a provider says of a payment that it had made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Word {
    /// It has come back, for good.
    SentBack,
    /// It has not, or not yet.
    AsItWas,
    /// The provider answers, and says nothing of it. Why.
    Nothing(String),
    /// What is written down as its name is another payment's. Which.
    Anothers(String),
    /// The provider was not heard. Why.
    Silent(String),
}

/// What a question about a payment that was made has come to.
#[derive(Clone, Debug)]
pub struct SentBack {
    pub word: Word,
    pub calls: Vec<CallRecord>,
}

/// What a provider has sent of itself.
#[derive(Clone, Copy, Debug)]
pub struct Delivery<'a> {
    pub headers: &'a HeaderMap,
    pub body: &'a [u8],
    pub now: DateTime<Utc>,
}

/// A provider.
pub trait Driver: Send + Sync {
    fn name(&self) -> PspName;

    /// Currencies that it takes.
    fn currencies(&self) -> &[CurrencyCode];

    /// Makes the turn that the task's state asks for. It ends within the driver's own bounds, well
    /// within the lease.
    fn process<'a>(&'a self, task: &'a PspTask) -> BoxFuture<'a, Turn>;

    /// How long after a payment was made it may be sent back; `None` of a provider that sends
    /// nothing back.
    fn sends_back_within(&self) -> Option<Duration> {
        None
    }

    /// Whether a payment that was made has been sent back, for good; asked for as long as it may
    /// be.
    fn sent_back<'a>(&'a self, _: &'a Made<'a>) -> BoxFuture<'a, SentBack> {
        Box::pin(async {
            SentBack {
                word: Word::AsItWas,
                calls: Vec::new(),
            }
        })
    }

    /// For how long a payment may be in doubt for a reason, where that is nothing wrong: the
    /// provider has it and works on it, or waits as we do.
    fn works_on_it(&self) -> Vec<(&'static str, Duration)> {
        Vec::new()
    }

    /// What the QR code says that a payer scans; `None` of a provider that shows none.
    fn payload(&self, _intent: Uuid, _amount: u64) -> Option<Result<String, PromptPayError>> {
        None
    }

    /// Reads the provider's own word of a payment that came in; `None` of one that sends none.
    fn read_callback(&self, _: &Delivery<'_>) -> Option<Result<Callback, CallbackError>> {
        None
    }
}

/// The providers that are configured, by name. Clones share them.
#[derive(Clone, Default)]
pub struct Registry(Arc<BTreeMap<PspName, Arc<dyn Driver>>>);

impl Registry {
    #[must_use]
    pub fn new(drivers: impl IntoIterator<Item = Arc<dyn Driver>>) -> Self {
        let by_name = drivers.into_iter().map(|driver| (driver.name(), driver));
        Self(Arc::new(by_name.collect()))
    }

    #[must_use]
    pub fn get(&self, name: PspName) -> Option<&Arc<dyn Driver>> {
        self.0.get(&name)
    }

    pub fn names(&self) -> impl Iterator<Item = PspName> {
        self.0.keys().copied()
    }
}

impl Lease {
    /// From now.
    #[must_use]
    pub fn lasting(length: Duration) -> Self {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let length = rustix::time::Timespec {
            tv_sec: i64::try_from(length.as_secs()).unwrap_or(i64::MAX / 4),
            tv_nsec: length.subsec_nanos().into(),
        };
        Self {
            until: now + length,
        }
    }

    /// Whether it lasts for so long yet.
    #[must_use]
    pub fn has(&self, enough: Duration) -> bool {
        Self::lasting(enough).until <= self.until
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_runs_out() {
        let lease = Lease::lasting(Duration::from_millis(40));
        assert!(lease.has(Duration::from_millis(1)));
        assert!(!lease.has(Duration::from_millis(41)));
        std::thread::sleep(Duration::from_millis(45));
        assert!(!lease.has(Duration::ZERO));
    }
}
