//! Reconciliation: whether the books, the master and the ledger say the same.
//!
//! | invariant | checks |
//! |---|---|
//! | 1 | a completed request has exactly the effects of its terms, once; any other has none that count; its row is what its events say; nothing stands without its request |
//! | 2 | every chain verifies from genesis to head; balances are their entries; reservations are the open promises |
//! | 3 | claims less debts of active obligations are the broker's position in the ledger, sagas in flight counted in |
//! | 5 | an intent, its row at the provider and its transfers in the ledger say the same, to the amount and both accounts; so do payments that came in, and the sums of the network's own accounts; nothing stands without its intent; what providers' statements say that were taken in is what we say |
//! | 7 | no database holds a row of a book that is not placed there |
//!
//! It runs beside the working product. What is read of several systems is not of one moment, so
//! whatever seems wrong is looked at again; only what stays wrong is a break.

mod books;
mod came_in;
mod evidence;
mod isolation;
mod netting;
mod passed;
mod payments;
mod positions;
mod requests;
mod settlements;
mod statements;
mod strays;

pub use statements::StatementError;

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::saga::Systems;
use crate::stores::StoreError;
use crate::stores::ledger::LedgerError;
use crate::stores::master::audit;
use crate::stores::master::currencies::CurrencyRegistry;

/// The invariants that are checked here, by their numbers.
pub const INVARIANTS: [u8; 5] = [1, 2, 3, 5, 7];

/// Findings that are kept of one invariant; beyond them they are only counted.
pub const FINDINGS_MAX: usize = 1_000;

/// Brokers and accounts that are read at once.
const PAGE: u32 = 200;
/// Requests that are looked at together: what is held in memory is theirs.
const REQUESTS_PAGE: u32 = 500;
/// Entries whose origins are looked for together.
const ENTRIES_PAGE: u32 = 1_000;
/// Books that are read at the same time.
const BOOKS_AT_ONCE: usize = 8;
/// Looks at what seems wrong, before it is a break, and the pause between two.
const LOOKS: u32 = 4;
const BETWEEN_LOOKS: Duration = Duration::from_millis(100);

/// Something that is wrong, or could not be checked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
pub struct Finding {
    /// What it is about: `broker 1`, `NR-…`, a database.
    pub subject: String,
    pub what: String,
}

/// What came of checking one invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct InvariantReport {
    pub invariant: u8,
    pub name: &'static str,
    /// Things that were checked: requests, books, positions, databases.
    pub checked: u64,
    /// At most [`FINDINGS_MAX`] of them.
    pub breaks: Vec<Finding>,
    pub breaks_count: u64,
    /// What could not be checked now; at most [`FINDINGS_MAX`] of them.
    pub unchecked: Vec<Finding>,
    pub unchecked_count: u64,
}

/// What came of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    pub invariants: Vec<InvariantReport>,
}

/// Why reconciliation came to nothing: without the master or the ledger there is nothing to
/// compare with. A book that is away is a finding, not an error.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// How far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub invariant: u8,
    pub checked: u64,
}

/// Checks the invariants. Reads only.
#[derive(Clone)]
pub struct Reconcile {
    systems: Systems,
    currencies: Arc<CurrencyRegistry>,
    turn: Arc<Semaphore>,
}

impl Reconcile {
    #[must_use]
    pub fn new(systems: Systems, currencies: Arc<CurrencyRegistry>) -> Self {
        // It reads whole tables.
        let systems = Systems {
            master: systems.master.patient(),
            ..systems
        };
        Self {
            systems,
            currencies,
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// Checks all invariants one after the other, or one of [`INVARIANTS`].
    ///
    /// # Errors
    /// See [`ReconcileError`].
    pub async fn run(
        &self,
        only: Option<u8>,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<Report, ReconcileError> {
        let mut invariants = Vec::with_capacity(INVARIANTS.len());
        for number in INVARIANTS {
            if only.is_some_and(|only| only != number) {
                continue;
            }
            invariants.push(match number {
                1 => self.requests(progress).await?,
                2 => self.books(progress).await?,
                3 => self.positions(progress).await?,
                5 => self.paid(progress).await?,
                _ => self.isolation(progress).await?,
            });
        }
        Ok(Report { invariants })
    }

    /// Everything of payments.
    async fn paid(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = self.payments(progress).await?;
        self.payment_strays(&mut report).await?;
        self.passed(&mut report).await?;
        let came_in = self.came_in(progress).await?;
        report.checked += came_in.checked;
        report.absorb(came_in);
        let statements = self.statements(progress).await?;
        report.checked += statements.checked;
        report.absorb(statements);
        Ok(report)
    }

    /// Whether the network has at most so many requests and brokers: for callers that have not all
    /// the time that it may take.
    ///
    /// # Errors
    /// The master's.
    pub async fn is_within(&self, requests: u32, brokers: u32) -> Result<bool, ReconcileError> {
        Ok(audit::is_within(&self.systems.master, requests, brokers).await?)
    }

    /// The one turn that this process has, for callers that must not run beside each other;
    /// `None` while somebody has it.
    #[must_use]
    pub fn turn(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.turn).try_acquire_owned().ok()
    }
}

impl Report {
    /// Whether everything was checked and nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.invariants
            .iter()
            .all(|report| report.breaks_count == 0 && report.unchecked_count == 0)
    }
}

impl InvariantReport {
    const fn new(invariant: u8, name: &'static str) -> Self {
        Self {
            invariant,
            name,
            checked: 0,
            breaks: Vec::new(),
            breaks_count: 0,
            unchecked: Vec::new(),
            unchecked_count: 0,
        }
    }

    fn broken(&mut self, finding: Finding) {
        self.breaks_count += 1;
        if self.breaks.len() < FINDINGS_MAX {
            self.breaks.push(finding);
        }
    }

    /// Takes what was found of a part.
    fn absorb(&mut self, part: Self) {
        let room = |kept: usize| FINDINGS_MAX - kept.min(FINDINGS_MAX);
        let breaks = part.breaks.into_iter().take(room(self.breaks.len()));
        self.breaks.extend(breaks);
        self.breaks_count += part.breaks_count;
        let unchecked = part.unchecked.into_iter();
        self.unchecked
            .extend(unchecked.take(room(self.unchecked.len())));
        self.unchecked_count += part.unchecked_count;
    }

    fn unchecked(&mut self, finding: Finding) {
        self.unchecked_count += 1;
        if self.unchecked.len() < FINDINGS_MAX {
            self.unchecked.push(finding);
        }
    }

    fn count(&mut self, progress: &(dyn Fn(Progress) + Sync)) {
        self.checked += 1;
        progress(Progress {
            invariant: self.invariant,
            checked: self.checked,
        });
    }
}

impl Finding {
    fn new(subject: impl std::fmt::Display, what: impl std::fmt::Display) -> Self {
        Self {
            subject: subject.to_string(),
            what: what.to_string(),
        }
    }
}
