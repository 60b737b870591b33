//! The side effects of steps in books and in the ledger.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;

use super::{Fault, Run, SagaEngine, Systems};
use crate::domain::book::{Job, JobOutcome, Work};
use crate::domain::ids::BrokerId;
use crate::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, TransferCode, transfer_id};
use crate::domain::plan::{Action, Debt, Step};
use crate::runtime::failpoint::{self, Ask};
use crate::services::lanes::Lanes;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::ledger::{BurnOutcome, Hold, HoldOutcome, SettleOutcome};
use crate::stores::router::Router;

/// What became of a job, or why its group failed.
pub(super) type AppendOutcome = Result<JobOutcome, Arc<StoreError>>;

/// Tries of a group on a book that is busy or moving, before its sagas hear of it.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// The lanes in which jobs for one book go together.
pub(super) fn append_lanes(
    systems: &Systems,
    group_max: usize,
) -> Lanes<BrokerId, Job, AppendOutcome> {
    let router = Arc::clone(&systems.router);
    let clock = systems.clock.clone();
    let work = move |broker, jobs: Vec<Job>| {
        let router = Arc::clone(&router);
        let clock = clock.clone();
        async move {
            metrics::histogram!("settlenet_book_group_jobs")
                .record(u32::try_from(jobs.len()).unwrap_or(u32::MAX));
            match append(&router, broker, &jobs, &clock).await {
                Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
                Err(error) if error.is_transient() || jobs.len() == 1 => share(error, jobs.len()),
                // One job may have spoilt it for the others: each alone, so that only that one fails.
                Err(_) => {
                    let mut outcomes = Vec::with_capacity(jobs.len());
                    for job in &jobs {
                        let alone =
                            append(&router, broker, std::slice::from_ref(job), &clock).await;
                        outcomes.push(match alone {
                            Ok(mut outcome) => outcome
                                .pop()
                                .map_or_else(|| Err(Arc::new(StoreError::NoBook { broker })), Ok),
                            Err(error) => Err(Arc::new(error)),
                        });
                    }
                    outcomes
                }
            }
        }
        .boxed()
    };
    Lanes::new(group_max, Arc::new(work))
}

async fn append(
    router: &Arc<Router>,
    broker: BrokerId,
    jobs: &[Job],
    clock: &crate::runtime::Clock,
) -> Result<Vec<JobOutcome>, StoreError> {
    let mut tried = 0;
    loop {
        let scope = router.book(broker).await?;
        tried += 1;
        match book::append(&scope, jobs, clock.now()).await {
            Err(StoreError::Busy { .. }) if tried < TRIES => {
                tokio::time::sleep(BETWEEN_TRIES * tried).await;
            }
            other => return other,
        }
    }
}

fn share(error: StoreError, count: usize) -> Vec<AppendOutcome> {
    let error = Arc::new(error);
    (0..count).map(|_| Err(Arc::clone(&error))).collect()
}

/// How a step before the pivot, or a credit, has gone.
#[derive(Clone, Debug)]
pub(super) enum StepOutcome {
    Done {
        booked: Vec<crate::domain::request::Booked>,
        diverted: bool,
    },
    Refused(serde_json::Value),
    /// Somebody has begun to go back.
    GoingBack,
}

impl SagaEngine {
    /// Does one step. Doing it again gives the same outcome.
    pub(super) async fn step(&self, run: &Run, step: &Step) -> Result<StepOutcome, Fault> {
        self.arrive(run, &step.action, "before")?;
        let outcome = match &step.action {
            Action::Hold(debt) => self.hold(run, debt).await?,
            Action::Book {
                book,
                entries,
                op_digest,
                consumes,
            } => {
                let work = Work::Book {
                    entries: entries.clone(),
                    op_digest: *op_digest,
                    consumes: *consumes,
                    private: None,
                };
                self.job(run, step.number, *book, work).await?
            }
            Action::Reserve { account, amount } => {
                let work = Work::Reserve {
                    account: account.clone(),
                    amount: *amount,
                };
                self.job(run, step.number, account.broker, work).await?
            }
            Action::Release { book, reserved_by } => {
                let work = Work::Release {
                    reserved_by: *reserved_by,
                };
                self.job(run, step.number, *book, work).await?
            }
            Action::Claim
            | Action::OpenObligation(_)
            | Action::Post(_)
            | Action::Decide
            | Action::Finish => {
                return Err(Fault::Integrity(format!(
                    "step {} ({}) is not done by itself",
                    step.number,
                    step.action.name()
                )));
            }
        };
        self.arrive(run, &step.action, "after")?;
        Ok(outcome)
    }

    /// Undoes one step, or sees to it that it never happens.
    pub(super) async fn undo(&self, run: &Run, step: &Step) -> Result<(), Fault> {
        let (book, work) = match &step.action {
            Action::Book { book, consumes, .. } => (
                *book,
                Work::UndoBook {
                    consumes: *consumes,
                },
            ),
            Action::Reserve { account, .. } => (account.broker, Work::UndoReserve),
            // The ledger was asked first; the rest has no undoing of its own.
            Action::Hold(_)
            | Action::Claim
            | Action::OpenObligation(_)
            | Action::Release { .. }
            | Action::Post(_)
            | Action::Decide
            | Action::Finish => return Ok(()),
        };
        self.arrive(run, &step.action, "undo.before")?;
        self.job(run, step.number, book, work).await?;
        self.arrive(run, &step.action, "undo.after")
    }

    async fn hold(&self, run: &Run, debt: &Debt) -> Result<StepOutcome, Fault> {
        match self.0.systems.ledger.hold(&hold_of(run, debt)).await? {
            HoldOutcome::Held => Ok(StepOutcome::Done {
                booked: Vec::new(),
                diverted: false,
            }),
            HoldOutcome::NeverLands => Ok(StepOutcome::GoingBack),
            HoldOutcome::InsufficientFunds => Err(Fault::Integrity(
                "the ledger refused to hold a debt for want of funds, which positions have no rule for".to_owned(),
            )),
        }
    }

    /// Posts the hold: whether the saga is past its pivot.
    pub(super) async fn post(&self, run: &Run, action: &Action) -> Result<bool, Fault> {
        self.arrive(run, action, "before")?;
        let (hold, settle) = transfers(run);
        let outcome = self.0.systems.ledger.post(hold, settle).await?;
        self.arrive(run, action, "after")?;
        match outcome {
            SettleOutcome::Posted => Ok(true),
            SettleOutcome::Voided => Ok(false),
            SettleOutcome::HoldMissing => Err(Fault::Integrity(format!(
                "the hold {hold} that the ledger had acknowledged is not there"
            ))),
        }
    }

    /// Sees to it that the hold can't be posted any more: whether that was still possible.
    pub(super) async fn unhold(&self, run: &Run, debt: &Debt) -> Result<bool, Fault> {
        self.arrive_at(run, "void", "before")?;
        let (hold, settle) = transfers(run);
        let gone = match self.0.systems.ledger.burn(&hold_of(run, debt)).await? {
            BurnOutcome::Burned => true,
            BurnOutcome::Landed => match self.0.systems.ledger.void(hold, settle).await? {
                SettleOutcome::Voided => true,
                SettleOutcome::Posted => false,
                SettleOutcome::HoldMissing => {
                    return Err(Fault::Integrity(format!(
                        "the hold {hold} has landed and is not there"
                    )));
                }
            },
        };
        self.arrive_at(run, "void", "after")?;
        Ok(gone)
    }

    async fn job(
        &self,
        run: &Run,
        step: u16,
        book: BrokerId,
        work: Work,
    ) -> Result<StepOutcome, Fault> {
        let job = Job {
            saga_id: run.plan.saga_id,
            step,
            subject: run.plan.subject.to_string(),
            work,
        };
        match self.0.appends.submit(book, job).await?? {
            JobOutcome::Done { booked, diverted } => Ok(StepOutcome::Done { booked, diverted }),
            JobOutcome::Refused(mut reason) => {
                if let Some(facts) = reason.as_object_mut() {
                    facts.insert("book".to_owned(), book.to_string().into());
                }
                Ok(StepOutcome::Refused(reason))
            }
            JobOutcome::Tombstone => Ok(StepOutcome::GoingBack),
        }
    }

    fn arrive(&self, run: &Run, action: &Action, when: &str) -> Result<(), Fault> {
        self.arrive_at(run, action.name(), when)
    }

    /// A place between two side effects.
    #[expect(
        clippy::unused_self,
        reason = "reads as what the engine does; the state is the process's"
    )]
    pub(super) fn arrive_at(&self, run: &Run, step: &str, when: &str) -> Result<(), Fault> {
        match failpoint::at_step(run.plan.kind.as_str(), step, when) {
            Ask::GoOn => Ok(()),
            Ask::Fail => Err(Fault::Transient(format!("a failpoint at {step}.{when}"))),
        }
    }
}

fn transfers(
    run: &Run,
) -> (
    crate::domain::ledger::TransferId,
    crate::domain::ledger::TransferId,
) {
    let saga = run.plan.saga_id;
    (
        transfer_id(saga, HOLD_INDEX),
        transfer_id(saga, SETTLE_INDEX),
    )
}

fn hold_of(run: &Run, debt: &Debt) -> Hold {
    Hold {
        id: transfers(run).0,
        debit: AccountName::position(debt.debtor, &debt.currency),
        credit: AccountName::position(debt.creditor, &debt.currency),
        amount: debt.amount,
        ledger: debt.ledger,
        code: TransferCode::Obligation,
        operation: run.plan.saga_id,
    }
}
