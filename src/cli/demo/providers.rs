//! The payment providers of the demonstration: the simulator, in a process of its own.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::Context as _;
use serde_json::Value;

/// The simulator takes it from anybody on this machine: it pays nobody.
const TOKEN: &str = "demo";
/// What its callbacks are signed with.
const SECRET: &str = "demo-callbacks";
const CURRENCY: &str = "THB";

/// The simulator that runs.
pub(super) struct Providers {
    pub(super) address: String,
}

impl Providers {
    /// Starts it in the background; it tells the API server at `server` of what comes in.
    pub(super) fn start(program: &Path, dir: &Path, server: &str) -> anyhow::Result<Self> {
        let log = dir.join("psp-sim.log");
        let output = File::create(&log).with_context(|| log.display().to_string())?;
        let mut command = Command::new(program);
        command
            .args(["psp-sim", "--listen", "127.0.0.1:0", "--record"])
            .arg(dir.join("psp-sim.jsonl"))
            .args(["--token", TOKEN, "--callback-secret", SECRET, "--callback"])
            .arg(format!("{server}/v1/psp/qp/callbacks"))
            .arg("--stack")
            .arg(dir)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(output);
        // A Ctrl-C in this terminal is not for it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut child = command.spawn()?;
        let told = child.stdout.take().context("its output is ours")?;
        let mut line = String::new();
        BufReader::new(told).read_line(&mut line)?;
        let address = line
            .split_whitespace()
            .find(|word| word.starts_with("http://"));
        let address = address.map(|word| word.trim_end_matches(',').to_owned());
        let address =
            address.with_context(|| format!("the simulator ended; see {}", log.display()))?;
        Ok(Self { address })
    }

    /// What a server needs to work with it.
    pub(super) fn settings(&self) -> Vec<(String, String)> {
        let mut settings = Vec::new();
        let mut set = |provider: &str, key: &str, value: &str| {
            let name = format!("SETTLENET_PAYMENTS__{provider}__{key}");
            settings.push((name, value.to_owned()));
        };
        for provider in ["IPPS", "QP"] {
            set(provider, "URL", &self.address);
            set(provider, "TOKEN", TOKEN);
            set(provider, "CURRENCIES", CURRENCY);
            set(provider, "DEDUPLICATES", "true");
        }
        set("IPPS", "FEE_FIXED", "500");
        set("QP", "BILLER", "011000000000000");
        set("QP", "CALLBACK_SECRETS", SECRET);
        settings
    }

    /// Has somebody scan the QR code of a top-up and pay.
    pub(super) async fn pay(&self, intent: &str) -> anyhow::Result<()> {
        let url = format!("{}/sim/qp/{intent}/pay", self.address);
        let request = reqwest::Client::new().post(url).bearer_auth(TOKEN);
        request.send().await?.error_for_status()?;
        Ok(())
    }

    /// How often the simulator has paid an intent.
    pub(super) async fn times_paid(&self, intent: &str) -> anyhow::Result<u64> {
        let url = format!("{}/sim/payments", self.address);
        let request = reqwest::Client::new().get(url).bearer_auth(TOKEN);
        let answer: Value = request.send().await?.error_for_status()?.json().await?;
        let payments = answer.get("payments").and_then(Value::as_array);
        let of_intent =
            |payment: &&Value| payment.get("intent").and_then(Value::as_str) == Some(intent);
        let found = payments.into_iter().flatten().filter(of_intent);
        Ok(found
            .filter_map(|payment| payment.get("times")?.as_u64())
            .sum())
    }
}
