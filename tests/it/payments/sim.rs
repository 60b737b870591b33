//! The providers' simulator in this process, and real workers that pay through it: it is they that
//! die.

use std::collections::BTreeMap;

use reqwest::RequestBuilder;
use secrecy::SecretString;
use serde_json::Value;
use settlenet::psp::sim::{Options, Rates, Simulator, Target};
use settlenet::runtime::Clock;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Till;
use crate::harness::{Child, MovedClock};

const TOKEN: &str = "sim-token";

/// How the simulator behaves, and what workers are told of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Behaviour {
    pub seed: u64,
    pub deduplicates: bool,
    /// Rates of its faults.
    pub faults: &'static str,
}

pub struct Sim {
    pub url: String,
    behaviour: Behaviour,
    stop: CancellationToken,
    record: std::path::PathBuf,
}

impl Sim {
    pub async fn start(behaviour: Behaviour) -> Self {
        Self::telling(behaviour, None).await
    }

    /// One that tells somebody of what comes in.
    pub async fn telling(behaviour: Behaviour, callback: Option<Target>) -> Self {
        let record = std::env::temp_dir().join(format!("settlenet-sim-{}", Uuid::new_v4()));
        let rates: Rates = behaviour.faults.parse().unwrap();
        let simulator = Simulator::open(Options {
            record: record.clone(),
            seed: behaviour.seed,
            rates,
            deduplicates: behaviour.deduplicates,
            token: Some(SecretString::from(TOKEN)),
            callback,
            clock: Clock::System,
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let stop = CancellationToken::new();
        let serving = simulator.unwrap().serve(listener, stop.clone());
        tokio::spawn(async move { drop(serving.await) });
        Self {
            url,
            behaviour,
            stop,
            record,
        }
    }

    /// By uid: the amount in minor units, and how often it was paid.
    pub async fn paid(&self) -> BTreeMap<String, (u64, u64)> {
        let listed = self.get("/sim/payments").send().await.unwrap();
        let listed: Value = listed.json().await.unwrap();
        let listed = listed["payments"].as_array().unwrap();
        let read = |one: &Value| {
            let amount = one["amount"].as_str().unwrap();
            let (whole, part) = amount.split_once('.').unwrap_or((amount, ""));
            let amount = format!("{whole}{part:0<2}").parse().unwrap();
            let times = one["times"].as_u64().unwrap() - one["returned"].as_u64().unwrap();
            (one["uid"].as_str().unwrap().to_owned(), (amount, times))
        };
        listed.iter().map(read).collect()
    }

    /// Its statement.
    pub async fn statement(&self) -> String {
        let answer = self.get("/sim/report.csv").send().await.unwrap();
        answer.text().await.unwrap()
    }

    /// Somebody scans a code and pays; gives whether there was one.
    pub async fn pay(&self, code: &str) -> bool {
        let request = reqwest::Client::new().post(format!("{}/sim/qp/{code}/pay", self.url));
        let answer = request.bearer_auth(TOKEN).send().await.unwrap();
        answer.status().is_success()
    }

    /// The receiver's bank sends a transfer back.
    pub async fn bounce(&self, transfer: &str) -> bool {
        let url = format!("{}/sim/wise/{transfer}/bounce", self.url);
        let answer = reqwest::Client::new().post(url).bearer_auth(TOKEN);
        answer.send().await.unwrap().status().is_success()
    }

    fn get(&self, path: &str) -> RequestBuilder {
        let url = format!("{}{path}", self.url);
        reqwest::Client::new().get(url).bearer_auth(TOKEN)
    }

    /// A real worker that pays through it.
    pub fn worker(&self, till: &Till, clock: &MovedClock, failpoints: &str) -> Child {
        let env = self.settings(till);
        let env: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        Child::worker_with(&till.world, clock, &env, failpoints)
    }

    /// What a program that pays through it is told.
    pub fn settings(&self, till: &Till) -> Vec<(String, String)> {
        let deduplicates = self.behaviour.deduplicates.to_string();
        let mut settings = Vec::new();
        let mut set = |key: &str, value: &str| {
            settings.push((format!("SETTLENET_PAYMENTS__{key}"), value.to_owned()));
        };
        for provider in ["IPPS", "WISE"] {
            set(&format!("{provider}__URL"), &self.url);
            set(&format!("{provider}__TOKEN"), TOKEN);
            set(
                &format!("{provider}__CURRENCIES"),
                till.currency.code.as_str(),
            );
            set(&format!("{provider}__DEDUPLICATES"), &deduplicates);
            set(&format!("{provider}__TIMEOUT_MS"), "300");
        }
        set("WISE__PROFILE", "1");
        set("LEASE_MS", "3000");
        set("RETRY_LEASE_MS", "3000");
        set("BACKOFF_MS", "50");
        set("BACKOFF_MAX_MS", "500");
        set("OUTBOX_LEASE_MS", "1500");
        set("POLL_MS", "100");
        settings
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.stop.cancel();
        drop(std::fs::remove_file(&self.record));
    }
}
