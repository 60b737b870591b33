//! `settlenet psp-sim`, as somebody runs it by hand.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use settlenet::domain::payment::PspState;
use uuid::Uuid;

use super::{How, OwnFile, SLOW, Sim, TOKEN, drive, payout, thai_account};
use crate::harness::program;

/// The program, once it listens; killed when dropped.
struct Running {
    process: Child,
    url: String,
}

impl Running {
    fn start(record: &OwnFile, more: &[&str]) -> Self {
        let mut process = Command::new(program())
            .args(["psp-sim", "--listen", "127.0.0.1:0", "--record"])
            .arg(&record.0)
            .args(more)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let stdout = process.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut line).unwrap();
        let url = line.split([' ', ',']).find(|word| word.starts_with("http"));
        let url = url.unwrap().to_owned();
        Self { process, url }
    }

    fn signal(&mut self, signal: Signal) -> Option<i32> {
        let pid = i32::try_from(self.process.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        self.process.wait().unwrap().code()
    }

    async fn payments(&self) -> Value {
        let url = format!("{}/sim/payments", self.url);
        let answer = reqwest::Client::new().get(url).bearer_auth(TOKEN).send();
        answer.await.unwrap().json().await.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

fn confirm(uid: &str) -> Value {
    json!({
        "rqUid": uid, "reference": uid, "senderWallet": "W", "amount": "1.00", "currency": "THB",
        "receiver": { "bankCode": "004", "accountNo": "0123456789" },
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_said_it_paid_is_there_after_it_was_killed() {
    let record = OwnFile::new();
    let http = reqwest::Client::new();
    let mut told = Vec::new();
    for _ in 0..3 {
        let mut running = Running::start(&record, &["--token", TOKEN]);
        let url = running.url.clone();
        let post = async |path: &str, body: &Value| -> Option<Value> {
            let request = http
                .post(format!("{url}{path}"))
                .bearer_auth(TOKEN)
                .json(body);
            request.send().await.ok()?.json().await.ok()
        };
        let looked_up = post("/ipps/v1/lookup", &confirm("any")).await.unwrap();
        let payments = (0..50).map(|_| {
            let mut order = confirm(&Uuid::new_v4().to_string());
            order["lookupRef"] = looked_up["lookupRef"].clone();
            let post = &post;
            async move {
                let answer = post("/ipps/v1/confirm", &order).await?;
                (answer["status"] == "PAID").then(|| order["rqUid"].clone())
            }
        });
        let mut paid: FuturesUnordered<_> = payments.collect();
        // It dies while it pays.
        let mut heard = 0;
        while heard < 20 {
            let uid = paid.next().await.unwrap();
            told.push(uid.expect("it is alive"));
            heard += 1;
        }
        running.signal(Signal::KILL);
        while let Some(uid) = paid.next().await {
            told.extend(uid);
        }
    }
    assert!(told.len() >= 60);
    let running = Running::start(&record, &["--token", TOKEN]);
    let payments = running.payments().await;
    let payments = payments["payments"].as_array().unwrap();
    for uid in &told {
        let of_uid = payments.iter().find(|payment| &payment["uid"] == uid);
        assert_eq!(of_uid.unwrap()["times"], 1);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_ends_when_it_is_asked_to() {
    for signal in [Signal::TERM, Signal::INT] {
        let record = OwnFile::new();
        let mut running = Running::start(&record, &[]);
        assert_eq!(running.payments().await, json!({ "payments": [] }));
        assert_eq!(running.signal(signal), Some(0));
    }
}

#[test]
fn what_it_can_not_do_is_told() {
    let record = OwnFile::new();
    let _running = Running::start(&record, &[]);
    let file = record.0.to_str().unwrap();
    let absent = "/nowhere/at/all";
    for (args, code, word) in [
        (
            vec!["--listen", "127.0.0.1:0", "--record", file],
            3,
            "in use by another",
        ),
        (
            vec!["--listen", "0.0.0.0:0", "--record", file],
            2,
            "loopback",
        ),
        (vec!["--faults", "torn=5"], 2, "expected one of"),
        (vec!["--faults", "torn_after=500"], 2, "torn_after"),
        (
            vec!["--callback", "http://127.0.0.1:1"],
            2,
            "--callback-secret",
        ),
        (
            vec!["--listen", "127.0.0.1:0", "--record", absent],
            1,
            absent,
        ),
    ] {
        let mut command = Command::new(program());
        let output = command.arg("psp-sim").args(&args).output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?} {stderr}");
        assert!(stderr.contains(word), "{args:?} {stderr}");
    }
}

#[test]
fn help_says_what_there_is() {
    let output = Command::new(program()).args(["psp-sim", "--help"]).output();
    let help = String::from_utf8(output.unwrap().stdout).unwrap();
    for word in [
        "--listen",
        "--record",
        "--seed",
        "--faults",
        "--no-deduplication",
        "--token",
        "--callback",
        "/sim/payments",
        "/sim/report.csv",
        "/sim/faults",
        "/pay",
        "/bounce",
        "9990000",
        "unknown_asks",
    ] {
        assert!(help.contains(word), "{word}\n{help}");
    }
}

#[tokio::test]
async fn a_restart_forgets_nothing_that_was_paid() {
    let sim = Sim::start(How::default()).await;
    let task = payout(thai_account("0123456789"), "THB");
    let again = task.clone();
    let outcome = drive(&sim.ipps(true, SLOW), task).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    let before = sim.payments().await;
    let report = sim.get("/sim/report.csv").await.text().await.unwrap();
    let sim = sim.restarted(How::default()).await;
    assert_eq!(sim.payments().await, before);
    assert_eq!(
        sim.get("/sim/report.csv").await.text().await.unwrap(),
        report
    );
    // The same uid is the same payment yet.
    let outcome = drive(&sim.ipps(true, SLOW), again).await;
    assert_eq!(outcome.state(), PspState::Confirmed);
    assert_eq!(sim.payments().await, before);
}

#[tokio::test]
async fn faults_are_set_and_shown() {
    let sim = Sim::start(How::default()).await;
    let (status, rates) = sim.post("/sim/faults", &json!({ "torn_after": 7 })).await;
    assert_eq!((status, &rates["torn_after"]), (200, &json!(7)));
    let shown: Value = sim.get("/sim/faults").await.json().await.unwrap();
    assert_eq!(shown, rates);
    for bad in [
        json!({ "torn": 7 }),
        json!({ "torn_after": 101 }),
        json!({ "torn_after": -1 }),
    ] {
        let (status, body) = sim.post("/sim/faults", &bad).await;
        assert_eq!(status, 422, "{bad}");
        assert!(body["message"].as_str().unwrap().len() > 10, "{body}");
    }
    let shown: Value = sim.get("/sim/faults").await.json().await.unwrap();
    assert_eq!(shown, rates, "what is refused changes nothing");
    let (status, body) = sim.post("/ipps/v2/pay", &json!({})).await;
    assert_eq!((status, &body["code"]), (404, &json!("http_404")));
    let stranger = sim
        .http
        .get(format!("{}/sim/payments", sim.url))
        .send()
        .await;
    assert_eq!(stranger.unwrap().status().as_u16(), 401);
}
