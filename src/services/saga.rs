//! The saga engine: runs what `exchange_outbox` says, whoever dies.
//!
//! A saga is recorded with its cause in one master transaction and from then on it finishes. The
//! process that recorded it runs it at once; its lease keeps others away for a while, no more:
//! every step is idempotent, so two that work on one saga change nothing twice.
//!
//! ```text
//! running ──▶ before the pivot ──▶ pivot ──▶ after it ──▶ completed
//!                │ refused, tombstone  │ already voided
//!                ▼                     ▼
//!            compensating: hold burned or voided ──▶ steps undone ──▶ compensated
//!                │ already posted: forward again
//! ```
//!
//! | it dies | what is there | who goes on |
//! |---|---|---|
//! | before the recording commits | nothing | the client asks again |
//! | after it, before the pivot | holds, debits, reservations, each with its outcome | a worker, forward; a refusal is found again and compensated |
//! | after the pivot | the post (or the decision) cannot be taken back | a worker, forward only |
//! | while compensating | the void, or `back` in the saga's row | a worker, back only |
//! | after the last commit | the saga has ended | nobody needs to |

mod backoff;
mod claim;
mod drive;
mod ending;
mod explain;
mod fault;
mod records;
mod steps;
mod waiting;

pub use explain::{Explanation, StepView};
pub use fault::Fault;
pub use records::{SagaRecord, SagaRecords};
pub use waiting::Waited;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgPool;
use tokio_util::task::TaskTracker;
use tracing::Instrument;
use uuid::Uuid;

use super::lanes::Lanes;
use crate::domain::ids::BrokerId;
use crate::domain::plan::Plan;
use crate::domain::request::Request;
use crate::domain::saga::{Direction, SagaStatus};
use crate::runtime::{Clock, Entropy};
use crate::stores::StoreError;
use crate::stores::ledger::Ledger;
use crate::stores::master::sagas::{self, Lease};
use crate::stores::pool::Pool;
use crate::stores::router::Router;

/// Bounds of the engine.
#[derive(Clone, Copy, Debug)]
pub struct SagaLimits {
    /// How long a process has a saga to itself.
    pub lease: Duration,
    /// Tries that failed by themselves (not because a system was away) until a saga is stuck.
    pub max_retries: u32,
    pub backoff_base: Duration,
    pub backoff_max: Duration,
    /// Jobs for one book in one commit.
    pub append_group: usize,
    /// Sagas that end in one commit.
    pub finish_group: usize,
}

impl Default for SagaLimits {
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(10),
            max_retries: 5,
            backoff_base: Duration::from_millis(200),
            backoff_max: Duration::from_secs(10),
            append_group: 64,
            finish_group: 64,
        }
    }
}

/// What the engine works with.
#[derive(Clone)]
pub struct Systems {
    pub master: Pool,
    pub router: Arc<Router>,
    /// The payment manager's.
    pub pm: PgPool,
    pub ledger: Ledger,
    pub clock: Clock,
    pub entropy: Entropy,
}

/// Runs sagas. One per process; clones share it.
#[derive(Clone)]
pub struct SagaEngine(Arc<Inner>);

struct Inner {
    systems: Systems,
    limits: SagaLimits,
    /// Unique per start of the process.
    process: String,
    appends: Lanes<BrokerId, crate::domain::book::Job, steps::AppendOutcome>,
    endings: Lanes<(), ending::Ending, ending::EndingOutcome>,
    waiting: waiting::Waiting,
    tasks: TaskTracker,
}

/// One try at a saga.
struct Run {
    plan: Plan,
    lease: Lease,
    /// The request as the saga owns it; a release has none to change.
    request: Option<Request>,
    direction: Direction,
    /// An admin asks to go back.
    compensation_requested: bool,
    /// Tries that have failed before.
    retries: u32,
    max_retries: u32,
    created_at: DateTime<Utc>,
}

impl SagaEngine {
    #[must_use]
    pub fn new(systems: Systems, limits: SagaLimits, process: String) -> Self {
        let appends = steps::append_lanes(&systems, limits.append_group);
        let endings = ending::lanes(&systems, limits.finish_group);
        Self(Arc::new(Inner {
            systems,
            limits,
            process,
            appends,
            endings,
            waiting: waiting::Waiting::default(),
            tasks: TaskTracker::new(),
        }))
    }

    /// The lease that this process records a saga with.
    #[must_use]
    pub fn lease(&self, now: DateTime<Utc>) -> Lease {
        let length = chrono::Duration::from_std(self.0.limits.lease).unwrap_or_default();
        Lease {
            by: self.0.process.clone(),
            token: self.0.systems.entropy.uuid(now),
            until: now + length,
        }
    }

    #[must_use]
    pub fn max_retries(&self) -> u32 {
        self.0.limits.max_retries
    }

    /// Runs a saga that this process has just recorded, in a task that outlives whoever asked.
    pub fn start(&self, plan: Plan, request: Request, lease: Lease, now: DateTime<Utc>) {
        let run = Run {
            max_retries: self.0.limits.max_retries,
            direction: plan.kind.first_direction(),
            plan,
            lease,
            request: Some(request),
            compensation_requested: false,
            retries: 0,
            created_at: now,
        };
        let trying = self.0.waiting.begin(run.plan.saga_id);
        let engine = self.clone();
        self.0.tasks.spawn(async move {
            engine.run(run, trying).await;
        });
    }

    /// Takes on a saga that this process holds a lease of, in a task of its own.
    pub fn take_on(&self, saga_id: Uuid, lease: Lease) -> tokio::task::JoinHandle<()> {
        let engine = self.clone();
        let trying = self.0.waiting.begin(saga_id);
        self.0.tasks.spawn(async move {
            match engine.load(saga_id, lease).await {
                Ok(Some(run)) => engine.run(run, trying).await,
                Ok(None) => {}
                // Its lease runs out, and somebody takes it up again.
                Err(error) => {
                    tracing::warn!(saga = %saga_id, %error, "a saga could not be loaded");
                }
            }
        })
    }

    /// Waits until a saga has ended, here or in another process, at most `bound`.
    ///
    /// # Errors
    /// The master's.
    pub async fn wait(&self, saga_id: Uuid, bound: Duration) -> Result<Waited, StoreError> {
        self.0
            .waiting
            .wait(&self.0.systems.master, saga_id, bound)
            .await
    }

    /// Takes no more work and waits until what runs here has ended, at most `bound`; what has
    /// not is taken up elsewhere when its lease runs out. Gives whether all has.
    pub async fn drain(&self, bound: Duration) -> bool {
        self.0.tasks.close();
        tokio::time::timeout(bound, self.0.tasks.wait())
            .await
            .is_ok()
    }

    /// What a saga has done so far, system by system, and what `retry` and `compensate` would do.
    ///
    /// # Errors
    /// The master's.
    pub async fn explain(&self, saga_id: Uuid) -> Result<Option<Explanation>, StoreError> {
        explain::explain(&self.0.systems, saga_id).await
    }

    /// Puts a stuck saga back before the workers.
    ///
    /// # Errors
    /// The master's. Gives whether it was stuck.
    pub async fn retry(&self, saga_id: Uuid) -> Result<bool, StoreError> {
        let now = self.0.systems.clock.now();
        sagas::release_to_workers(&self.0.systems.master, saga_id, now).await
    }

    /// Asks a saga to go back: it does if the ledger (or the saga's own row) hasn't decided
    /// otherwise. Gives whether it was still open.
    ///
    /// # Errors
    /// The master's.
    pub async fn compensate(&self, saga_id: Uuid) -> Result<bool, StoreError> {
        let now = self.0.systems.clock.now();
        let open = sagas::request_compensation(&self.0.systems.master, saga_id, now).await?;
        if open {
            sagas::release_to_workers(&self.0.systems.master, saga_id, now).await?;
        }
        Ok(open)
    }

    async fn load(&self, saga_id: Uuid, lease: Lease) -> Result<Option<Run>, StoreError> {
        let master = &self.0.systems.master;
        let Some(loaded) = sagas::load(master, saga_id).await? else {
            return Ok(None);
        };
        if loaded.record.status.is_terminal() {
            return Ok(None);
        }
        let request = crate::stores::master::requests::get(master, loaded.plan.subject).await?;
        Ok(Some(Run {
            plan: loaded.plan,
            lease,
            request,
            direction: loaded.record.direction,
            compensation_requested: loaded.record.compensation_requested,
            retries: loaded.retries,
            max_retries: loaded.max_retries,
            created_at: loaded.record.created_at,
        }))
    }

    async fn run(&self, run: Run, trying: waiting::Trying) {
        let saga_id = run.plan.saga_id;
        let span = tracing::info_span!("saga", saga = %saga_id, kind = %run.plan.kind, subject = %run.plan.subject);
        async {
            match self.drive(&run).await {
                Ok(end) => {
                    self.ended(&run, end.status);
                    if let (SagaStatus::Completed, Some(request)) = (end.status, end.request) {
                        trying.forward(*request);
                    }
                }
                Err(fault) => self.failed(&run, &fault).await,
            }
        }
        .instrument(span)
        .await;
    }

    fn ended(&self, run: &Run, status: SagaStatus) {
        let now = self.0.systems.clock.now();
        let took = (now - run.created_at).to_std().unwrap_or_default();
        metrics::histogram!(
            "settlenet_saga_seconds",
            "kind" => run.plan.kind.as_str(),
            "status" => status.as_str()
        )
        .record(took.as_secs_f64());
        tracing::debug!(%status, "a saga has ended");
    }
}
