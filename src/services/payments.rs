//! Payments through providers: intents, wallets, and the work that moves the money.
//!
//! Three systems change for a payout: this database, the ledger, and the provider; a fourth where
//! it is booked in a broker's book. Each effect has an identity that is computed from the
//! intent's, so each is simply made again after a crash:
//!
//! | step | what | it died after it |
//! |---|---|---|
//! | create | intent and `hold_pending`, in one transaction | a worker holds |
//! | hold | reserved in the book; amount and fee pending on the wallet, as one chain | both again: they are there |
//! | held | status, `hold_pending` done and the provider's row, in one transaction | the provider's worker picks it up |
//! | picked up | lease and uids, in one statement | its lease runs out; what may have been sent is asked about |
//! | a turn at the provider | see [`crate::psp`] | the same |
//! | outcome | state, history and `post_pending` or `void_pending`, in one transaction | a worker posts or voids |
//! | post, void | the ledger's chain, then the book | both again: they are there |
//! | told | status and the action done, in one transaction | it is over |

mod create;
mod cursor;
mod incoming;
mod leaving;
mod outbox;
mod reminders;
mod review;
mod system;
mod turns;
mod wake;
mod wallets;
mod watch;

pub use create::NewIntent;
pub use incoming::WordError;
pub use leaving::Unsettled;
pub use outbox::PaymentOutbox;
pub use review::{Evidence, Finding, Verdict};
pub use turns::{PickedUp, PspEngine};
pub use wake::Wake;
pub use wallets::{NewWallet, WalletBalance, wallet_name};

pub use crate::domain::payment::statement::Line as StatementLine;
pub use crate::psp::qp::callback::CallbackError;
pub use crate::stores::pm::calls::PspCallRow;
pub use crate::stores::pm::events::IntentEventRow;
pub use crate::stores::pm::incoming::Incoming;
pub use crate::stores::pm::intents::{Filter as IntentFilter, Intent};
pub use crate::stores::pm::outbox::Stuck;
pub use crate::stores::pm::queue::PspTx;
pub use crate::stores::pm::wallets::Wallet;

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use sqlx::PgPool;
use uuid::Uuid;

use cursor::Cursor;

use crate::domain::ids::BrokerId;
use crate::domain::pause::Hindrance;
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::receiver::ReceiverError;
use crate::domain::payment::{IntentKind, IntentStatus, PspName};
use crate::domain::reason::NotAReason;
use crate::psp::Registry;
use crate::runtime::{Clock, Entropy};
use crate::services::books::{BooksError, BooksService};
use crate::stores::StoreError;
use crate::stores::ledger::{Ledger, LedgerError};
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::currencies::CurrencyRegistry;
use crate::stores::pm::outbox::OutboxLeases;
use crate::stores::pm::queue::Leases;
use crate::stores::pm::{events, intents, queue};
use crate::stores::pool::Pool;

/// Why a payment was not begun or changed. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum PaymentError {
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("{field} {rule}")]
    Invalid { field: &'static str, rule: String },
    #[error("no such intent")]
    NoSuchIntent,
    #[error("no such wallet")]
    NoSuchWallet,
    #[error("no such payment has come in")]
    NoSuchIncoming,
    #[error("the payment is {status}: only what nobody has is given to somebody, and once")]
    Incoming { status: IncomingStatus },
    /// A provider's payment is one intent's.
    #[error("intent {intent} has this payment")]
    PaymentTaken { intent: Uuid },
    #[error("ipps_wallet_id {id} is taken: another broker's wallet has it")]
    SenderTaken { id: String },
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error(transparent)]
    Reason(#[from] NotAReason),
    #[error("the intent is {status}: {why}")]
    State {
        status: IntentStatus,
        why: &'static str,
    },
    #[error("broker {broker} has left the network: its book is archived")]
    HasLeft { broker: BrokerId },
    #[error("system.equity hasn't got that much to give, or the wallet is closed")]
    FundingRefused,
    #[error(transparent)]
    Book(#[from] BooksError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work has panicked: a repeat finds what it did.
    #[error("the work was broken off")]
    BrokenOff,
}

impl From<ReceiverError> for PaymentError {
    fn from(error: ReceiverError) -> Self {
        let (field, rule) = (error.field, error.why);
        Self::Invalid { field, rule }
    }
}

/// What a channel charges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FeeRule {
    /// Minor units.
    pub fixed: u64,
    pub basis_points: u32,
}

impl FeeRule {
    /// Of an amount in minor units, rounded up.
    #[must_use]
    pub fn fee(self, amount: u64) -> u64 {
        let share = u128::from(amount) * u128::from(self.basis_points);
        let share = u64::try_from(share.div_ceil(10_000)).unwrap_or(u64::MAX);
        self.fixed.saturating_add(share)
    }
}

/// Bounds and prices.
#[derive(Clone, Debug)]
pub struct PaymentRules {
    pub fees: BTreeMap<PspName, FeeRule>,
    pub queue: Leases,
    pub outbox: OutboxLeases,
    /// Rows that are picked up at once.
    pub batch: u32,
    /// How long a payment may go on before admins are told.
    pub patience: TimeDelta,
    /// How long calls of payments that are over are kept.
    pub calls_kept: TimeDelta,
}

impl Default for PaymentRules {
    fn default() -> Self {
        Self {
            fees: BTreeMap::new(),
            queue: Leases {
                lease: TimeDelta::seconds(30),
                retry_lease: TimeDelta::minutes(5),
                backoff: TimeDelta::seconds(1),
                most_backoff: TimeDelta::minutes(5),
            },
            outbox: OutboxLeases {
                lease: TimeDelta::seconds(30),
                backoff: TimeDelta::milliseconds(250),
                most_backoff: TimeDelta::minutes(1),
            },
            batch: 10,
            patience: reminders::PATIENCE,
            calls_kept: TimeDelta::days(400),
        }
    }
}

/// Payments. Clones share everything.
#[derive(Clone)]
pub struct PaymentService(Arc<Inner>);

pub(in crate::services) struct Inner {
    pm: PgPool,
    master: Pool,
    ledger: Ledger,
    currencies: Arc<CurrencyRegistry>,
    books: BooksService,
    providers: Registry,
    rules: PaymentRules,
    wake: Wake,
    /// Where the queues are looked at.
    queues: BTreeMap<PspName, Cursor>,
    actions: Cursor,
    clock: Clock,
    entropy: Entropy,
    /// This process, unique per start.
    process: String,
}

/// An intent with what has happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct IntentHistory {
    pub intent: Intent,
    pub events: Vec<IntentEventRow>,
}

/// What is under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Rows by provider and state, of those states that are not over; none where there are none.
    pub queue: Vec<(String, String, i64)>,
    /// What the ledger and books are yet to be told.
    pub actions: i64,
    pub oldest_action: Option<DateTime<Utc>>,
}

/// What payments need.
pub struct PaymentParts {
    pub pm: PgPool,
    pub master: Pool,
    pub ledger: Ledger,
    pub currencies: Arc<CurrencyRegistry>,
    pub books: BooksService,
    pub providers: Registry,
    pub rules: PaymentRules,
    pub clock: Clock,
    pub entropy: Entropy,
    pub process: String,
}

impl Inner {
    async fn raise(&self, alert: &NewAlert) -> Result<(), StoreError> {
        let mut tx = master::begin(&self.master).await?;
        alerts::raise(&mut tx, alert, self.clock.now()).await?;
        master::commit(tx).await
    }

    fn cursor_of(&self, psp: PspName) -> &Cursor {
        &self.queues[&psp]
    }
}

impl PaymentService {
    #[must_use]
    pub fn new(parts: PaymentParts) -> Self {
        let wake = Wake::new(parts.pm.clone());
        let queues = PspName::ALL.iter().map(|psp| (*psp, Cursor::default()));
        Self(Arc::new(Inner {
            pm: parts.pm,
            master: parts.master,
            ledger: parts.ledger,
            currencies: parts.currencies,
            books: parts.books,
            providers: parts.providers,
            rules: parts.rules,
            wake,
            queues: queues.collect(),
            actions: Cursor::default(),
            clock: parts.clock,
            entropy: parts.entropy,
            process: parts.process,
        }))
    }

    /// What does the work at the ledger and in books.
    #[must_use]
    pub fn outbox(&self) -> PaymentOutbox {
        PaymentOutbox(Arc::clone(&self.0))
    }

    /// What does the work at providers.
    #[must_use]
    pub fn engine(&self) -> PspEngine {
        PspEngine(Arc::clone(&self.0))
    }

    /// What wakes the workers.
    #[must_use]
    pub fn wake(&self) -> &Wake {
        &self.0.wake
    }

    /// What the QR code of a top-up says; of one that waits to be paid alone.
    #[must_use]
    pub fn payload(&self, intent: &Intent) -> Option<String> {
        if intent.kind != IntentKind::TopUp || intent.status != IntentStatus::Processing {
            return None;
        }
        let driver = self.0.providers.get(intent.channel)?;
        let payload = driver.payload(intent.id, intent.amount)?;
        payload
            .inspect_err(|error| tracing::error!(%error, "no QR code for {}", intent.id))
            .ok()
    }

    /// A broker's intent with its history.
    ///
    /// # Errors
    /// [`PaymentError::NoSuchIntent`], also for another broker's; the database's.
    pub async fn get(&self, broker: BrokerId, id: Uuid) -> Result<IntentHistory, PaymentError> {
        let intent = intents::get(&self.0.pm, id).await?;
        let intent = intent.filter(|intent| intent.broker == broker);
        let intent = intent.ok_or(PaymentError::NoSuchIntent)?;
        let events = events::of(&self.0.pm, id).await?;
        Ok(IntentHistory { intent, events })
    }

    /// What is under way, for who watches it.
    ///
    /// # Errors
    /// The database's.
    pub async fn backlog(&self) -> Result<Backlog, PaymentError> {
        let (actions, oldest_action) = crate::stores::pm::outbox::backlog(&self.0.pm).await?;
        Ok(Backlog {
            queue: queue::counts(&self.0.pm).await?,
            actions,
            oldest_action,
        })
    }

    /// A broker's intents, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The database's.
    pub async fn list(
        &self,
        broker: BrokerId,
        filter: &IntentFilter,
        after: Option<(DateTime<Utc>, Uuid)>,
        limit: u32,
    ) -> Result<Vec<Intent>, PaymentError> {
        Ok(intents::list(&self.0.pm, broker, filter, after, limit).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fees_are_rounded_up_and_never_wrap() {
        let rule = FeeRule {
            fixed: 500,
            basis_points: 25,
        };
        for (amount, fee) in [(1, 501), (400, 501), (401, 502), (1_000_000, 3_000)] {
            assert_eq!(rule.fee(amount), fee, "{amount}");
        }
        assert_eq!(FeeRule::default().fee(u64::MAX), 0);
        let all = FeeRule {
            fixed: u64::MAX,
            basis_points: u32::MAX,
        };
        assert_eq!(all.fee(u64::MAX), u64::MAX);
    }
}
