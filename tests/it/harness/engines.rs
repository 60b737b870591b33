//! Sagas of a [`World`] taken in hand: recorded without being run, run by one process or by
//! another, step by step or whole.

use chrono::Duration;
use settlenet::app::App;
use settlenet::domain::book::{Job, JobOutcome, Work};
use settlenet::domain::ids::{BrokerId, RequestId};
use settlenet::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, TransferCode, transfer_id};
use settlenet::domain::money::Amount;
use settlenet::domain::plan::{Action, Debt, Plan};
use settlenet::domain::request::{Acceptance, Decision, Request};
use settlenet::domain::saga::{SagaKind, SagaStatus};
use settlenet::runtime::{Clock, Entropy};
use settlenet::stores::ledger::Hold;
use settlenet::stores::master::sagas::{self, Lease, SagaRecord};
use settlenet::stores::master::settlements::{self, Debts};
use settlenet::stores::master::{self, obligations, requests};
use uuid::Uuid;

use super::{World, until};

/// Bounds every wait of a test; nothing takes nearly as long.
pub const SOON: std::time::Duration = std::time::Duration::from_secs(30);

impl World {
    /// Another process of the same network, by a clock of its own.
    pub fn another(&self, ahead: Duration) -> App {
        let clock = Clock::manual(self.clock.now() + ahead);
        self.another_by(clock)
    }

    pub fn another_by(&self, clock: Clock) -> App {
        let ledger = self.app.systems.ledger.clone();
        let entropy = Entropy::seeded(rand::random());
        App::on_ledger(&self.config, ledger, clock, entropy).expect("assembles")
    }

    pub async fn request(&self, id: RequestId) -> Request {
        let request = requests::get(&self.app.systems.master, id).await;
        request.expect("reads").expect("is there")
    }

    pub async fn saga(&self, saga_id: Uuid) -> SagaRecord {
        let record = sagas::record(&self.app.systems.master, saga_id).await;
        record.expect("reads").expect("is there")
    }

    /// Records a confirmation and its saga as a process does that dies right afterwards: nobody
    /// runs it, and its lease ran out long ago.
    pub async fn record_confirm(&self, id: RequestId) -> Plan {
        self.record_confirm_of(id, None).await
    }

    pub async fn record_confirm_of(&self, id: RequestId, received: Option<Amount>) -> Plan {
        let request = self.request(id).await;
        let by = request.broker_of(request.sender().other()).expect("two");
        let currency = self.app.currencies.get(&self.currency).await;
        let currency = currency.expect("reads").expect("is there");
        let now = self.clock.now();
        let saga_id = self.app.systems.entropy.uuid(now);
        let decided = request.confirm(by, received, saga_id, &currency, now);
        self.record(&request, decided.expect("may be confirmed"))
            .await
    }

    /// As [`Self::record_confirm`], an acceptance that must reserve.
    pub async fn record_accept(&self, id: RequestId, by: BrokerId) -> Plan {
        let request = self.request(id).await;
        let currency = self.app.currencies.get(&self.currency).await;
        let currency = currency.expect("reads").expect("is there");
        let now = self.clock.now();
        let acceptance = Acceptance {
            by,
            account: None,
            saga_id: self.app.systems.entropy.uuid(now),
        };
        let decided = request.accept(acceptance, &currency, now);
        self.record(&request, decided.expect("may be accepted"))
            .await
    }

    /// As [`Self::record_confirm`], an expiry that must release.
    pub async fn record_expiry(&self, id: RequestId) -> Plan {
        let request = self.request(id).await;
        let now = self.clock.now();
        let decided = request.expire(self.app.systems.entropy.uuid(now), now);
        self.record(&request, decided.expect("may expire")).await
    }

    async fn record(&self, before: &Request, decided: Decision) -> Plan {
        let Decision::Apply(change) = decided else {
            panic!("something changes");
        };
        let now = self.clock.now();
        let plan = change.plan.clone().expect("there is a saga to record");
        let sealed = requests::seal(*change, "a process that died", now);
        let mut tx = master::begin(&self.app.systems.master).await.unwrap();
        let applied = requests::update(&mut tx, &sealed, before.saga_id).await;
        assert!(applied.unwrap());
        requests::insert_events(&mut tx, &[&sealed.event])
            .await
            .unwrap();
        obligations::insert_pending(&mut tx, &[&plan], now)
            .await
            .unwrap();
        if let (SagaKind::Accept, Some(settles)) = (plan.kind, sealed.request.settles) {
            let of = |party| sealed.request.broker_of(party).expect("two");
            let debts = Debts {
                debtor: of(settles.debtor),
                creditor: of(settles.debtor.other()),
                currency: self.currency.clone(),
            };
            let (subject, only) = (sealed.request.id.to_string(), settles.obligation);
            let amount = sealed.request.amount.minor();
            let reserved = settlements::reserve(&mut tx, &subject, &debts, only, amount, now).await;
            reserved.unwrap().expect("as much is owed");
        }
        let lease = Lease {
            by: "a process that died".to_owned(),
            token: Uuid::new_v4(),
            until: now - Duration::seconds(1),
        };
        sagas::insert(&mut tx, &[&plan], &lease, 5, now)
            .await
            .unwrap();
        master::commit(tx).await.unwrap();
        plan
    }

    /// A lease by this process's clock, as a claim gives it.
    pub fn lease_of(app: &App) -> Lease {
        app.engine.lease(app.systems.clock.now())
    }

    /// One try at a saga, by a process that holds no lease of it: what a stale worker does.
    pub async fn run(&self, app: &App, saga_id: Uuid) {
        let tried = app.engine.take_on(saga_id, Self::lease_of(app));
        tried.await.expect("does not panic");
    }

    /// Claims and runs what is due by this process's clock, until nothing is.
    pub async fn run_due(&self, app: &App) {
        loop {
            let lease = Self::lease_of(app);
            let now = app.systems.clock.now();
            let claimed = sagas::claim(&app.systems.master, &lease, now, 100).await;
            let claimed = claimed.expect("claims");
            if claimed.is_empty() {
                return;
            }
            let tries: Vec<_> = claimed
                .into_iter()
                .map(|saga_id| app.engine.take_on(saga_id, lease.clone()))
                .collect();
            for tried in tries {
                tried.await.expect("does not panic");
            }
        }
    }

    /// Waits until a saga has ended, whoever runs it.
    pub async fn ended(&self, saga_id: Uuid) -> SagaStatus {
        until("the saga has ended", SOON, async || {
            self.saga(saga_id).await.status.is_terminal()
        })
        .await;
        self.saga(saga_id).await.status
    }

    /// Does a step of a plan past the engine, as a worker would that dies right afterwards.
    pub async fn do_step(&self, plan: &Plan, number: u16) {
        let step = plan.steps.iter().find(|step| step.number == number);
        let action = &step.expect("a step of the plan").action;
        let ledger = &self.app.systems.ledger;
        let [hold, settle] = [HOLD_INDEX, SETTLE_INDEX].map(|i| transfer_id(plan.saga_id, i));
        let direction = settlenet::domain::saga::Direction::Forward;
        match action {
            Action::Hold(debt) => drop(ledger.hold(&hold_of(plan, debt)).await.expect("holds")),
            Action::Post(_) => drop(ledger.post(hold, settle).await.expect("posts")),
            Action::Decide => {
                let master = &self.app.systems.master;
                let now = self.clock.now();
                let decided = sagas::decide(master, plan.saga_id, direction, None, now).await;
                assert_eq!(decided.expect("decides"), direction);
            }
            Action::Book { .. } | Action::Reserve { .. } | Action::Release { .. } => {
                drop(self.do_in_book(plan, number).await);
            }
            Action::Claim | Action::OpenObligation(_) | Action::Finish => {}
        }
    }

    /// Does a step that is one book's.
    pub async fn do_in_book(&self, plan: &Plan, number: u16) -> JobOutcome {
        let (book, job) = job_of(plan, number).expect("a step in a book");
        self.append(book, &[job]).await.remove(0)
    }

    /// Undoes a step that is one book's, whether it was done or not.
    pub async fn undo_in_book(&self, plan: &Plan, number: u16) -> JobOutcome {
        let (book, mut job) = job_of(plan, number).expect("a step in a book");
        job.work = match job.work {
            Work::Book { consumes, .. } => Work::UndoBook { consumes },
            Work::Reserve { .. } => Work::UndoReserve,
            other => panic!("{other:?} has no undoing"),
        };
        self.append(book, &[job]).await.remove(0)
    }
}

/// The first step of a plan with this name.
pub fn step_named(plan: &Plan, name: &str) -> u16 {
    let step = plan.steps.iter().find(|step| step.action.name() == name);
    step.unwrap_or_else(|| panic!("the plan has a {name}"))
        .number
}

pub fn hold_of(plan: &Plan, debt: &Debt) -> Hold {
    Hold {
        id: transfer_id(plan.saga_id, HOLD_INDEX),
        debit: AccountName::position(debt.debtor, &debt.currency),
        credit: AccountName::position(debt.creditor, &debt.currency),
        amount: debt.amount,
        ledger: debt.ledger,
        code: TransferCode::Obligation,
        operation: plan.saga_id,
    }
}

fn job_of(plan: &Plan, number: u16) -> Option<(BrokerId, Job)> {
    let step = plan.steps.iter().find(|step| step.number == number)?;
    let (book, work) = match &step.action {
        Action::Book {
            book,
            entries,
            op_digest,
            consumes,
        } => (
            *book,
            Work::Book {
                entries: entries.clone(),
                op_digest: *op_digest,
                consumes: *consumes,
                private: None,
            },
        ),
        Action::Reserve { account, amount } => (
            account.broker,
            Work::Reserve {
                account: account.clone(),
                amount: *amount,
            },
        ),
        Action::Release { book, reserved_by } => (
            *book,
            Work::Release {
                reserved_by: *reserved_by,
            },
        ),
        Action::Claim
        | Action::OpenObligation(_)
        | Action::Hold(_)
        | Action::Post(_)
        | Action::Decide
        | Action::Finish => return None,
    };
    let job = Job {
        saga_id: plan.saga_id,
        step: number,
        subject: plan.subject.to_string(),
        work,
    };
    Some((book, job))
}
