//! Money out through a payment provider, and in.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::api::{Caller, text};
use super::network::{ADMIN, Network};
use super::providers::Providers;
use super::say;
use crate::app::App;
use crate::domain::ledger::{AccountName, AccountOwner, NamePart};
use crate::domain::money::{CurrencyCode, format_minor};
use crate::services::auditor::Auditor;

/// How long a payment may take.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) async fn run(
    app: &App,
    address: &str,
    network: &Network,
    providers: &Providers,
) -> anyhow::Result<()> {
    let alpha = network.brokers.first().context("there is a broker")?;
    let as_alpha = Caller::log_in(address, alpha.login, &network.password).await?;
    let as_admin = Caller::log_in(address, ADMIN, &network.password).await?;
    let key = || uuid::Uuid::new_v4().to_string();

    println!();
    let body = json!({ "currency_code": "THB", "ipps_wallet_id": "demo-alpha" });
    let wallet = as_alpha.post("/v1/wallets", &body, None).await?;
    let name = text(&wallet, "wallet");
    let body = json!({ "wallet": name, "currency_code": "THB", "amount": "10000.00" });
    let funded = as_admin
        .post("/v1/admin/wallets/fund", &body, Some(&key()))
        .await?;
    say(&format!(
        "the platform funds Alpha's wallet {name}: {} THB are on it",
        text(&funded, "balance")
    ));

    let body = json!({
        "wallet": name, "currency_code": "THB", "amount": "1500.00", "channel": "IPPS",
        "receiver": { "type": "prompt_pay", "proxy": "0801234567" },
    });
    let intent = as_alpha.post("/v1/intents", &body, Some(&key())).await?;
    let id = text(&intent, "id");
    say(&format!(
        "Alpha pays 1500.00 THB out to the PromptPay number 0801234567, for a fee of {}: {id}",
        text(&intent, "fee")
    ));
    let paid = completed(&as_alpha, &id).await?;
    show_way(&paid);
    say(&format!(
        "the provider says that it has paid it {} time(s)",
        providers.times_paid(&id).await?
    ));
    show_nostro(app, "ipps").await?;

    let body = json!({
        "wallet": name, "currency_code": "THB", "amount": "250.00", "channel": "QP",
        "receiver": { "type": "wallet" },
    });
    let intent = as_alpha.post("/v1/intents", &body, Some(&key())).await?;
    let id = text(&intent, "id");
    say(&format!(
        "Alpha asks for 250.00 THB by a QR code ({address}/v1/intents/{id}/qr.svg): {}",
        text(&intent, "qr_payload")
    ));
    pay(providers, &id).await?;
    let paid = completed(&as_alpha, &id).await?;
    say("somebody scans it and pays; the provider tells of it, signed");
    show_way(&paid);
    let wallets = as_alpha.get("/v1/wallets").await?;
    let items = wallets.get("items").and_then(Value::as_array);
    let of_name = |wallet: &&Value| text(wallet, "wallet") == name;
    let mut items = items.into_iter().flatten();
    let wallet = items.find(of_name).context("the wallet is there")?;
    say(&format!(
        "Alpha's wallet: {} THB, {} of it held",
        text(wallet, "balance"),
        text(wallet, "held")
    ));
    Ok(())
}

/// The code is there for payers once the provider knows it.
async fn pay(providers: &Providers, id: &str) -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        match providers.pay(id).await {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > until => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn completed(caller: &Caller, id: &str) -> anyhow::Result<Value> {
    let until = Instant::now() + PATIENCE;
    loop {
        let intent = caller.get(&format!("/v1/intents/{id}")).await?;
        match text(&intent, "status").as_str() {
            "completed" => return Ok(intent),
            "failed" | "manual_review" => bail!("{id}: {intent}"),
            status if Instant::now() > until => bail!("{id} is {status} yet"),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

fn show_way(intent: &Value) {
    let events = intent.get("events").and_then(Value::as_array);
    let way: Vec<String> = events
        .into_iter()
        .flatten()
        .map(|event| {
            let at_provider = event
                .pointer("/payload/psp/state_to")
                .and_then(Value::as_str);
            let status = text(event, "status_to");
            at_provider.map_or(status.clone(), |state| format!("{status} ({state})"))
        })
        .collect();
    println!("    {}", way.join(" > "));
}

/// What the ledger itself says, asked by nothing but the account's name.
async fn show_nostro(app: &App, provider: &str) -> anyhow::Result<()> {
    let code: CurrencyCode = "THB".parse()?;
    let baht = app.currencies.get(&code).await?;
    let baht = baht.context("the registry has baht")?;
    let owner = AccountOwner::Nostro(NamePart::new(provider)?);
    let name = AccountName::new(owner, code);
    let auditor = Auditor::new(app.systems.ledger.clone());
    let found = auditor.account(&name).await?;
    let found = found.context("money has left through it")?;
    let out = i128::try_from(found.account.balances.credits_posted)?;
    say(&format!(
        "the ledger: {} THB have left through {name}, in all",
        format_minor(out, baht.exponent)
    ));
    Ok(())
}
