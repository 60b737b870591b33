use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::runtime::Clock;
use crate::services::provisioning::Provisioning;
use crate::stores::StoreError;
use crate::stores::master::moves::{self, Claim, ClosedMove};
use crate::stores::pool::Pool;
use crate::stores::router::Router;

/// Bounds of the work on moves.
#[derive(Clone, Copy, Debug)]
pub struct MoveLimits {
    /// How long a claim holds without a sign of life, while the book is open.
    pub lease: Duration,
    /// And while it is closed: after that anybody may open it again.
    pub fence_lease: Duration,
    /// A tail that takes longer is given up, and the book opened again.
    pub tail_bound: Duration,
    /// Rows of a table that are copied at once.
    pub batch_rows: usize,
    /// A tail of at most so many rows is worth closing the book for.
    pub tail_rows: u64,
    /// Of the time that a batch took, how much to leave to others after it, in percent.
    pub yield_percent: u32,
    /// Failed tries before a move is stuck.
    pub max_tries: u32,
    /// How often the source may be closed in one try.
    pub max_fencings: u32,
    /// The first wait after a failure; each further one doubles.
    pub backoff: Duration,
}

impl Default for MoveLimits {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            fence_lease: Duration::from_secs(2),
            tail_bound: Duration::from_millis(800),
            batch_rows: 500,
            tail_rows: 200,
            yield_percent: 100,
            max_tries: 5,
            max_fencings: 20,
            backoff: Duration::from_secs(1),
        }
    }
}

/// Does the work of moves. Clones share everything.
#[derive(Clone)]
pub struct MoveEngine(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub(super) master: Pool,
    pub(super) router: Arc<Router>,
    pub(super) places: Provisioning,
    pub(super) clock: Clock,
    pub(super) limits: MoveLimits,
    /// This process, unique per start.
    process: String,
    /// Closed books as they were first seen, and when.
    watched: Mutex<HashMap<ClosedMove, Instant>>,
}

impl MoveEngine {
    #[must_use]
    pub fn new(
        master: Pool,
        router: Arc<Router>,
        places: Provisioning,
        clock: Clock,
        limits: MoveLimits,
        process: String,
    ) -> Self {
        Self(Arc::new(Inner {
            master,
            router,
            places,
            clock,
            limits,
            process,
            watched: Mutex::default(),
        }))
    }

    /// Takes on moves that are due, at most `limit`; [`Self::run`] works on each.
    ///
    /// # Errors
    /// The master's.
    pub async fn claim(&self, limit: u32) -> Result<Vec<Claim>, StoreError> {
        let now = self.now();
        let until = now + self.0.limits.lease;
        moves::claim(&self.0.master, &self.0.process, until, now, limit).await
    }

    /// Opens the books that nobody opens: those whose lease has run out by this process's clock,
    /// and those that have stood as they are for as long by its own watch, whatever the clock of
    /// whoever closed them. Gives how many there were.
    ///
    /// # Errors
    /// The master's.
    pub async fn open_books(&self) -> Result<usize, StoreError> {
        let inner = &self.0;
        let found = moves::closed(&inner.master, self.now()).await?;
        let mut taken = Vec::new();
        {
            let mut watched = inner.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|seen, _| found.iter().any(|(now, _)| now == seen));
            for (seen, due) in found {
                let since = watched.entry(seen.clone()).or_insert_with(Instant::now);
                if due || since.elapsed() >= inner.limits.fence_lease {
                    taken.push(seen);
                }
            }
        }
        // All at once: one that can't be taken or opened keeps nobody else's book closed.
        let opening = taken.iter().map(|seen| self.take_closed(seen));
        let taken = futures::future::join_all(opening).await;
        let opened: Result<Vec<bool>, StoreError> = taken.into_iter().collect();
        Ok(opened?.into_iter().filter(|opened| *opened).count())
    }

    /// Takes on a closed book where it is as it was seen, and opens it.
    async fn take_closed(&self, seen: &ClosedMove) -> Result<bool, StoreError> {
        let until = self.fence_lease_end();
        let claim = moves::claim_closed(&self.0.master, seen, &self.0.process, until).await?;
        let Some(claim) = claim else {
            return Ok(false);
        };
        let span = tracing::info_span!("open", id = %claim.move_id, claim = claim.number);
        // For as long as its lease lasts: others may have been closed meanwhile.
        let open = self.open(&claim).instrument(span);
        drop(tokio::time::timeout(self.0.limits.fence_lease, open).await);
        Ok(true)
    }

    /// Works on a move until it rests, waits, or is another's. It never leaves a book closed that
    /// it can open.
    /// Once `stopping` is cancelled, it goes on to where nobody waits for it, and leaves the
    /// rest to another process.
    pub async fn run(&self, claim: Claim, stopping: &CancellationToken) {
        let span = tracing::info_span!("move", id = %claim.move_id, claim = claim.number);
        self.drive(&claim, stopping).instrument(span).await;
    }

    pub(super) fn now(&self) -> DateTime<Utc> {
        self.0.clock.now()
    }

    pub(super) fn lease_end(&self) -> DateTime<Utc> {
        self.now() + self.0.limits.lease
    }

    pub(super) fn fence_lease_end(&self) -> DateTime<Utc> {
        self.now() + self.0.limits.fence_lease
    }
}
