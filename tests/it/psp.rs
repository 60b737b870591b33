//! The payment providers' drivers against the simulator, over HTTP: what they make of each answer
//! and each fault, and that nothing is ever paid twice.

mod command;
mod faults;
mod ipps;
mod qp;
mod wise;

use std::path::PathBuf;
use std::time::Duration;

use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde_json::Value;
use settlenet::domain::payment::PspState;
use settlenet::domain::payment::outcome::{Facts, PspOutcome};
use settlenet::domain::payment::receiver::Receiver;
use settlenet::psp::breaker::Limits;
use settlenet::psp::client::Endpoint;
use settlenet::psp::ipps::{Ipps, IppsConfig};
use settlenet::psp::qp::{Qp, QpConfig};
use settlenet::psp::sim::{Options, Rates, RecordError, SimError, Simulator, Target};
use settlenet::psp::wise::{Wise, WiseConfig};
use settlenet::psp::{CallRecord, Driver, Lease, PspTask};
use settlenet::runtime::Clock;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use uuid::Uuid;

const TOKEN: &str = "sim-token";
const CALLBACK_SECRET: &str = "callback-secret";
const BILLER: &str = "0000000000001";

/// A simulator in this process, with a record of its own.
struct Sim {
    url: String,
    record: OwnFile,
    clock: Clock,
    stop: DropGuard,
    serving: JoinHandle<()>,
    http: reqwest::Client,
}

/// How a simulator is started.
#[derive(Clone, Default)]
struct How {
    seed: u64,
    rates: &'static str,
    pays_again: bool,
    callback: Option<String>,
}

impl Sim {
    async fn start(how: How) -> Self {
        Self::on(OwnFile::new(), Clock::manual(start_of_time()), how).await
    }

    async fn on(record: OwnFile, clock: Clock, how: How) -> Self {
        let rates: Rates = how.rates.parse().unwrap();
        let target = how.callback.map(|url| Target {
            url,
            secret: SecretString::from(CALLBACK_SECRET),
        });
        let options = || Options {
            record: record.0.clone(),
            seed: how.seed,
            rates,
            deduplicates: !how.pays_again,
            token: Some(SecretString::from(TOKEN)),
            callback: target.clone(),
            clock: clock.clone(),
        };
        // One that has just ended lets go of its record when its writer has.
        let opened = async {
            loop {
                match Simulator::open(options()) {
                    Err(SimError::Record(RecordError::InUse { .. })) => {
                        tokio::task::yield_now().await;
                    }
                    opened => return opened.unwrap(),
                }
            }
        };
        let patience = std::time::Duration::from_secs(10);
        let simulator = tokio::time::timeout(patience, opened).await.unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let serving = simulator.serve(listener, stop.clone());
        let serving = tokio::spawn(async move { serving.await.unwrap() });
        let http = reqwest::Client::new();
        Self {
            url,
            record,
            clock,
            stop: stop.drop_guard(),
            serving,
            http,
        }
    }

    /// Ends it as a signal does, and starts another on its record.
    async fn restarted(self, how: How) -> Self {
        drop(self.stop);
        self.serving.await.unwrap();
        Self::on(self.record, self.clock, how).await
    }

    async fn get(&self, path: &str) -> reqwest::Response {
        let request = self.http.get(format!("{}{path}", self.url));
        request.bearer_auth(TOKEN).send().await.unwrap()
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        let request = self.http.post(format!("{}{path}", self.url));
        let answer = request.bearer_auth(TOKEN).json(body).send().await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or_default())
    }

    async fn payments(&self) -> Vec<Value> {
        let payments: Value = self.get("/sim/payments").await.json().await.unwrap();
        payments["payments"].as_array().unwrap().clone()
    }

    /// How often an intent was paid.
    async fn times(&self, intent: Uuid) -> u64 {
        times(&self.payments().await, intent)
    }

    fn ipps(&self, deduplicates: bool, timeout: Duration) -> Ipps {
        let config = IppsConfig {
            endpoint: endpoint(&self.url, timeout),
            currencies: vec!["THB".parse().unwrap()],
            deduplicates,
        };
        Ipps::new(config).unwrap()
    }

    fn wise(&self, deduplicates: bool, timeout: Duration) -> Wise {
        let config = WiseConfig {
            endpoint: endpoint(&self.url, timeout),
            profile: 16,
            currencies: vec!["EUR".parse().unwrap()],
            deduplicates,
            watched_for: std::time::Duration::from_hours(24),
        };
        Wise::new(config).unwrap()
    }

    fn qp(&self, deduplicates: bool) -> Qp {
        let config = QpConfig {
            endpoint: endpoint(&self.url, SLOW),
            biller: BILLER.to_owned(),
            currencies: vec!["THB".parse().unwrap()],
            deduplicates,
            valid_for: Duration::from_mins(15),
            callback_secrets: vec![SecretString::from(CALLBACK_SECRET)],
        };
        Qp::new(config).unwrap()
    }
}

/// A file of a test's own, gone when the test is.
struct OwnFile(PathBuf);

impl OwnFile {
    fn new() -> Self {
        let name = format!("settlenet-psp-sim-{}", Uuid::new_v4());
        Self(std::env::temp_dir().join(name))
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.0));
    }
}

/// A timeout that no test runs into.
const SLOW: Duration = Duration::from_secs(20);

fn start_of_time() -> DateTime<Utc> {
    "2026-03-01T10:00:00Z".parse().unwrap()
}

fn endpoint(url: &str, timeout: Duration) -> Endpoint {
    Endpoint {
        url: url.to_owned(),
        token: SecretString::from(TOKEN),
        connect_timeout: timeout,
        timeout,
        breaker: Limits {
            failures: u32::MAX,
            cool_down: Duration::from_secs(1),
        },
    }
}

/// A payout that nobody has picked up.
fn payout(receiver: Receiver, currency: &str) -> PspTask {
    PspTask {
        intent: Uuid::new_v4(),
        state: PspState::New,
        query_rq_uid: Uuid::new_v4().to_string(),
        confirm_rq_uid: Uuid::new_v4().to_string(),
        facts: Facts::default(),
        currency: currency.parse().unwrap(),
        exponent: 2,
        amount: 123_450,
        receiver,
        sender: Some("W-1".to_owned()),
        tries: 0,
        lease: Lease::lasting(Duration::from_hours(1)),
    }
}

fn thai_account(account_no: &str) -> Receiver {
    Receiver::ThaiAccount {
        bank_code: "004".to_owned(),
        account_no: account_no.to_owned(),
    }
}

fn iban(iban: &str) -> Receiver {
    Receiver::Iban {
        holder_name: "Jo Do".to_owned(),
        iban: iban.to_owned(),
    }
}

/// How often the payments say that an intent was paid.
fn times(payments: &[Value], intent: Uuid) -> u64 {
    let intent = intent.to_string();
    let of_intent = payments.iter().filter(|paid| paid["intent"] == intent);
    of_intent.map(|paid| paid["times"].as_u64().unwrap()).sum()
}

/// One turn, as the queue makes it.
async fn turn(driver: &dyn Driver, task: &mut PspTask) -> (PspOutcome, Vec<CallRecord>) {
    task.state = task.state.picked_up().unwrap();
    let turn = driver.process(task).await;
    let next = turn.outcome.state_after(task.state).unwrap();
    task.tries = if next == task.state {
        task.tries + 1
    } else {
        0
    };
    task.state = next;
    task.facts = turn.outcome.facts().clone();
    (turn.outcome, turn.calls)
}

/// What the queue makes of a payout in the end.
struct Driven {
    task: PspTask,
    reason: Option<String>,
    calls: Vec<CallRecord>,
}

/// Makes turns until there is nothing more to do.
async fn drive(driver: &dyn Driver, mut task: PspTask) -> Driven {
    let mut calls = Vec::new();
    for _ in 0..200 {
        let (outcome, made) = turn(driver, &mut task).await;
        calls.extend(made);
        if task.state.is_absorbing() {
            let reason = outcome.reason().map(str::to_owned);
            return Driven {
                task,
                reason,
                calls,
            };
        }
    }
    panic!("it comes to no end: {task:?}");
}

impl Driven {
    fn state(&self) -> PspState {
        self.task.state
    }

    /// How often an operation was called.
    fn called(&self, operation: &str) -> usize {
        let of_it = self.calls.iter().filter(|call| call.operation == operation);
        of_it.count()
    }
}
