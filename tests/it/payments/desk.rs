//! A provider that does what a test tells it, behind the drivers' contract, with a record of what
//! it has paid.

use std::collections::VecDeque;
use std::sync::{Mutex, OnceLock};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use settlenet::domain::money::CurrencyCode;
use settlenet::domain::payment::outcome::{Facts, Progress, PspOutcome};
use settlenet::domain::payment::{PspName, PspState};
use settlenet::psp::{Driver, PspTask, Turn};

/// What happens to one request to pay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Paid,
    /// Paid, and the answer is lost.
    PaidUnheard,
    /// Lost before it was heard of.
    Unheard,
    Refused,
}

#[derive(Default)]
pub struct Desk {
    currencies: OnceLock<Vec<CurrencyCode>>,
    /// Of requests to pay, in order; then all are paid.
    fates: Mutex<VecDeque<Fate>>,
    /// By confirm uid, with amounts.
    paid: Mutex<Vec<(String, u64)>>,
    refused: Mutex<Vec<String>>,
    /// Requests to pay, with what became of none of them.
    pub asked: Mutex<Vec<String>>,
    /// Whether the same uid is never paid twice.
    pub deduplicates: bool,
}

impl Desk {
    pub fn with_fates(fates: impl IntoIterator<Item = Fate>, deduplicates: bool) -> Self {
        let fates = Mutex::new(fates.into_iter().collect());
        Self {
            fates,
            deduplicates,
            ..Self::default()
        }
    }

    pub fn taking(self, currency: &CurrencyCode) -> Self {
        self.currencies.set(vec![currency.clone()]).unwrap();
        self
    }

    pub fn paid(&self) -> Vec<(String, u64)> {
        self.paid.lock().unwrap().clone()
    }

    pub fn times_asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    fn look_up(task: &PspTask) -> PspOutcome {
        let facts = Facts {
            lookup_ref: Some(format!("L-{}", task.query_rq_uid)),
            receiver_name_en: Some("Somchai J.".to_owned()),
            ..Facts::default()
        };
        PspOutcome::InProgress {
            progress: Progress::LookedUp,
            why: None,
            facts,
        }
    }

    fn pay(&self, task: &PspTask) -> PspOutcome {
        if !task.lease.has(std::time::Duration::from_millis(50)) {
            let why = Some("lease".to_owned());
            let (progress, facts) = (Progress::MayAsk, Facts::default());
            return PspOutcome::InProgress {
                progress,
                why,
                facts,
            };
        }
        let uid = task.confirm_rq_uid.clone();
        self.asked.lock().unwrap().push(uid.clone());
        let known = self.paid().iter().any(|(paid, _)| *paid == uid);
        if known && self.deduplicates {
            return confirmed(&uid);
        }
        let fate = self.fates.lock().unwrap().pop_front().unwrap_or(Fate::Paid);
        match fate {
            Fate::Paid | Fate::PaidUnheard => {
                self.paid.lock().unwrap().push((uid.clone(), task.amount));
            }
            Fate::Refused => self.refused.lock().unwrap().push(uid.clone()),
            Fate::Unheard => {}
        }
        match fate {
            Fate::Paid => confirmed(&uid),
            Fate::Refused => refused(),
            Fate::PaidUnheard | Fate::Unheard => in_doubt(),
        }
    }

    fn inquire(&self, task: &PspTask) -> PspOutcome {
        let uid = &task.confirm_rq_uid;
        if self.paid().iter().any(|(paid, _)| paid == uid) {
            return confirmed(uid);
        }
        if self.refused.lock().unwrap().contains(uid) {
            return refused();
        }
        if self.deduplicates {
            let why = Some("unknown".to_owned());
            let (progress, facts) = (Progress::MayAsk, Facts::default());
            return PspOutcome::InProgress {
                progress,
                why,
                facts,
            };
        }
        let reason = "unknown_to_provider".to_owned();
        PspOutcome::ManualReview {
            reason,
            facts: Facts::default(),
        }
    }
}

impl Driver for Desk {
    fn name(&self) -> PspName {
        PspName::Ipps
    }

    fn currencies(&self) -> &[CurrencyCode] {
        self.currencies.get().map_or(&[], Vec::as_slice)
    }

    fn process<'a>(&'a self, task: &'a PspTask) -> BoxFuture<'a, Turn> {
        async move {
            let outcome = match task.state {
                PspState::QueryPending => Self::look_up(task),
                PspState::ConfirmPending => self.pay(task),
                PspState::Inquiring => self.inquire(task),
                other => panic!("nobody's turn: {other}"),
            };
            Turn {
                outcome,
                calls: Vec::new(),
            }
        }
        .boxed()
    }
}

fn confirmed(uid: &str) -> PspOutcome {
    let facts = Facts {
        response_id: Some(format!("R-{uid}")),
        ..Facts::default()
    };
    PspOutcome::Confirmed { facts }
}

fn refused() -> PspOutcome {
    PspOutcome::Failed {
        reason: "account_closed".to_owned(),
        facts: Facts::default(),
    }
}

fn in_doubt() -> PspOutcome {
    let (progress, facts) = (Progress::InDoubt, Facts::default());
    PspOutcome::InProgress {
        progress,
        why: Some("timeout".to_owned()),
        facts,
    }
}
