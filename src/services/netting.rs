//! Netting: two brokers clear what they owe each other ([`proposals`]), or the whole network what
//! goes round in it ([`rounds`]). Nobody's net position moves, so neither books nor ledger have a
//! part in it: each application is one transaction of the master, however large.
//!
//! A proposal is applied by the call that approves it. A round is applied by the call that
//! approves it last; whoever dies before that is done, a worker goes on ([`NettingService::go_on`]).

mod applying;
mod error;
mod preview;
mod proposals;
mod reading;
mod recomputing;
mod rounds;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use tokio::sync::Semaphore;

use crate::domain::ids::BrokerId;
use crate::domain::money::{Currency, CurrencyCode};
use crate::runtime::{Clock, Entropy};
use crate::services::network::FieldError;
use crate::stores::StoreError;
use crate::stores::master::currencies::CurrencyRegistry;
use crate::stores::master::{self, MasterTx, netting, standing};
use crate::stores::pool::Pool;

pub use error::NettingError;
pub use preview::{Joining, Preview};
pub use proposals::NewProposal;
pub use reading::Counted;

/// Tries of what others are in the way of. A try waits for locks by itself, for seconds.
const TRIES: u32 = 8;
/// Before the second try; a little longer before each further one.
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Ids are 48 bits: when one is taken by another intention, the next of this one is tried.
const IDS: u32 = 8;

/// The longest that a proposal or a round may wait for its answers.
const EXPIRY_MAX: chrono::Duration = chrono::Duration::days(90);

/// What the operator sets.
#[derive(Clone, Copy, Debug)]
pub struct NettingRules {
    /// Rounds are offered once so many brokers are active.
    pub min_brokers: u64,
    /// How long a proposal waits where it doesn't say.
    pub proposal_expiry: Duration,
    /// How long a round waits where it doesn't say.
    pub round_expiry: Duration,
    /// How long a call waits for a round to be recomputed or applied.
    pub wait: Duration,
}

/// Netting. Cheap to clone.
#[derive(Clone)]
pub struct NettingService {
    master: Pool,
    currencies: Arc<CurrencyRegistry>,
    clock: Clock,
    entropy: Entropy,
    rules: NettingRules,
    /// Previews are worked out one at a time.
    preview_turn: Arc<Semaphore>,
}

impl NettingService {
    #[must_use]
    pub fn new(
        master: Pool,
        currencies: Arc<CurrencyRegistry>,
        clock: Clock,
        entropy: Entropy,
        rules: NettingRules,
    ) -> Self {
        Self {
            master,
            currencies,
            clock,
            entropy,
            rules,
            preview_turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Whether rounds that touch a broker are approved without it being asked.
    ///
    /// # Errors
    /// The master's.
    pub async fn auto_approve(&self, broker: BrokerId) -> Result<bool, StoreError> {
        netting::settings::auto_approve(&self.master, broker).await
    }

    /// Sets that, for rounds that are proposed from now on. `by` is the subject of who asks.
    ///
    /// # Errors
    /// The master's.
    pub async fn set_auto_approve(
        &self,
        broker: BrokerId,
        on: bool,
        by: &str,
    ) -> Result<(), StoreError> {
        let now = self.clock.now();
        netting::settings::set_auto_approve(&self.master, broker, on, by, now).await
    }

    /// The currency of a code.
    ///
    /// # Errors
    /// [`NettingError::Field`] where the network has none of that code.
    pub async fn currency(&self, code: &str) -> Result<Currency, NettingError> {
        let unknown = || FieldError::new("currency_code", "is no currency of the network");
        let code: CurrencyCode = code.parse().map_err(|_| unknown())?;
        let found = self.currencies.get(&code).await?;
        Ok(found.ok_or_else(unknown)?)
    }

    /// When something ends that begins now.
    fn expiry(
        asked: Option<DateTime<Utc>>,
        default: Duration,
        now: DateTime<Utc>,
    ) -> Result<DateTime<Utc>, FieldError> {
        let Some(at) = asked else {
            return Ok(now + chrono::Duration::from_std(default).unwrap_or(EXPIRY_MAX));
        };
        if at <= now || at > now + EXPIRY_MAX {
            let days = EXPIRY_MAX.num_days();
            let rule = format!("is in the future, and at most {days} days ahead");
            return Err(FieldError::new("expires_at", rule));
        }
        Ok(at)
    }

    /// Begins a transaction in which something new may start that concerns these brokers: nothing
    /// is paused then, and nothing is until the commit. `asking` is who is told.
    async fn begin_open(
        &self,
        brokers: [Option<BrokerId>; 2],
        currency: &CurrencyCode,
        asking: BrokerId,
    ) -> Result<MasterTx, NettingError> {
        let (standing, gate) = standing::look(&self.master, brokers, Some(currency)).await?;
        standing.network_is_open()?;
        for broker in brokers.into_iter().flatten() {
            standing.broker_is_open(broker, asking)?;
        }
        let (mut tx, found) = standing::begin(&self.master).await?;
        if found == gate {
            return Ok(tx);
        }
        tx.rollback().await.map_err(master::failed)?;
        Err(NettingError::Overtaken)
    }
}

/// Tries again what others were in the way of, a bounded number of times.
async fn retried<T, F>(mut once: impl FnMut() -> F) -> Result<T, NettingError>
where
    F: Future<Output = Result<T, NettingError>>,
{
    let mut tried = 1;
    loop {
        match once().await {
            Err(error) if error.passes() && tried < TRIES => {
                tokio::time::sleep(BETWEEN_TRIES * tried).await;
                tried += 1;
            }
            other => return other,
        }
    }
}

/// Whether something that had to be ended has been. One that can't be, for whatever reason, holds up
/// no other.
///
/// # Errors
/// The master's, where it can't be reached.
fn ended(
    outcome: Result<(), NettingError>,
    what: impl std::fmt::Display,
) -> Result<bool, NettingError> {
    match outcome {
        Ok(()) => Ok(true),
        Err(NettingError::Store(error)) if error.is_unavailable() => Err(error.into()),
        Err(error) => {
            tracing::error!(%error, %what, "can't be expired");
            Ok(false)
        }
    }
}

/// Runs work to its end in a task of its own, whether or not the caller stays.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, NettingError>> + Send + 'static,
) -> Result<T, NettingError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(NettingError::Lost))
}

/// Lines of a round that this program can't have written.
fn corrupt(what: impl std::fmt::Display) -> StoreError {
    StoreError::Corrupt {
        table: "netting_line",
        what: what.to_string(),
    }
}
