//! The main job, through the API: a request from Alpha to Beta, until three books have changed.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::api::{Caller, text};
use super::network::{Member, Network};
use super::say;
use crate::app::App;
use crate::domain::chain::Verifier;
use crate::domain::ledger::AccountName;
use crate::domain::money::{CurrencyCode, format_minor};

pub(super) async fn run(app: &App, address: &str, network: &Network) -> anyhow::Result<()> {
    let [alpha, beta, ..] = network.brokers.as_slice() else {
        anyhow::bail!("the demonstration has two brokers at least");
    };
    let as_alpha = Caller::log_in(address, alpha.login, &network.password).await?;
    let as_beta = Caller::log_in(address, beta.login, &network.password).await?;

    println!();
    let id = settle(&as_alpha, &as_beta, beta).await?;
    show_debt(&as_alpha, &id, alpha, beta).await?;
    for (caller, broker) in [(&as_alpha, alpha), (&as_beta, beta)] {
        show_entry(caller, &id, broker).await?;
        verify_chain(caller, broker).await?;
    }
    show_positions(app, [alpha, beta]).await
}

/// The newest entry of a broker's book that is about the request.
async fn show_entry(caller: &Caller, id: &str, broker: &Member) -> anyhow::Result<()> {
    let page = caller.get("/v1/transactions?limit=20").await?;
    let items = page
        .get("items")
        .and_then(Value::as_array)
        .context("transactions")?;
    let entry = items
        .iter()
        .find(|entry| text(entry, "subject") == id)
        .context("the request's entry")?;
    say(&format!(
        "the book of {}: entry {}, {} {} {}, balance {}, hash {}",
        broker.name,
        text(entry, "seq"),
        text(entry, "side"),
        text(entry, "amount"),
        text(entry, "currency_code"),
        text(entry, "balance"),
        short(&text(entry, "tx_hash")),
    ));
    Ok(())
}

/// Reads a broker's whole chain and recomputes it here, as anybody could.
async fn verify_chain(caller: &Caller, broker: &Member) -> anyhow::Result<()> {
    let mut verifier = Verifier::from_genesis(broker.id);
    loop {
        let from = verifier.due();
        let page = caller
            .get(&format!("/v1/chain?from_seq={from}&limit=200"))
            .await?;
        let entries = page
            .get("entries")
            .and_then(Value::as_array)
            .context("entries")?;
        for entry in entries {
            verifier.exported(&serde_json::from_value(entry.clone())?)?;
        }
        if entries.is_empty() || page.get("next_seq").is_none_or(Value::is_null) {
            break;
        }
    }
    let whole = verifier.finish()?;
    say(&format!(
        "the chain of {} recomputed from genesis: {} entries hold",
        broker.name, whole.entries
    ));
    Ok(())
}

/// What the ledger itself says, asked by nothing but the accounts' names.
async fn show_positions(app: &App, brokers: [&Member; 2]) -> anyhow::Result<()> {
    let code: CurrencyCode = "USD".parse()?;
    let usd = app.currencies.get(&code).await?;
    let usd = usd.context("the registry has dollars")?;
    for broker in brokers {
        let position = app.obligations.position_in_ledger(broker.id, &usd).await?;
        say(&format!(
            "the ledger: {} is {} USD",
            AccountName::position(broker.id, &usd.code),
            format_minor(position, usd.exponent)
        ));
    }
    Ok(())
}

/// Create, accept, send with proof, confirm; gives the request's id.
async fn settle(as_alpha: &Caller, as_beta: &Caller, beta: &Member) -> anyhow::Result<String> {
    let key = uuid::Uuid::new_v4().to_string();
    let body = json!({
        "target_broker_id": beta.id, "type": "send", "currency_code": "USD",
        "amount": "10000.00", "method": "cash", "city_code": "DXB",
    });
    let request = as_alpha
        .post("/v1/network/requests", &body, Some(&key))
        .await?;
    let id = text(&request, "id");
    let path = format!("/v1/network/requests/{id}");
    say(&format!(
        "Alpha asks Beta to take 10000.00 USD in cash in DXB: {id} is {}",
        text(&request, "status")
    ));
    let words = request.pointer("/terms/words").and_then(Value::as_array);
    for line in words.into_iter().flatten().filter_map(Value::as_str) {
        println!("    terms: {line}");
    }

    let request = as_beta
        .post(&format!("{path}/accept"), &json!({}), None)
        .await?;
    say(&format!("Beta accepts: {}", text(&request, "status")));

    let proof = json!({ "proof": [{
        "type": "transfer_ref", "value": "receipt 7741", "note": "handed to Ahmed at 14:30",
    }] });
    let request = as_alpha.post(&format!("{path}/sent"), &proof, None).await?;
    say(&format!(
        "Alpha has sent it, with proof: {}",
        text(&request, "status")
    ));

    let request = as_beta
        .post(&format!("{path}/confirm"), &json!({}), None)
        .await?;
    say(&format!(
        "Beta confirms; three books and the ledger change exactly once: {}",
        text(&request, "status")
    ));
    let events = as_alpha.get(&format!("{path}/events")).await?;
    let events = events
        .get("items")
        .and_then(Value::as_array)
        .context("events")?;
    let last = events.last().context("a completed request has events")?;
    say(&format!(
        "the request's {} events are chained; the last is {} with hash {}",
        events.len(),
        text(last, "kind"),
        short(&text(last, "event_hash"))
    ));
    Ok(id)
}

async fn show_debt(
    as_alpha: &Caller,
    id: &str,
    alpha: &Member,
    beta: &Member,
) -> anyhow::Result<()> {
    let obligations = as_alpha.get("/v1/obligations?limit=50").await?;
    let items = obligations
        .get("items")
        .and_then(Value::as_array)
        .context("obligations")?;
    let obligation = items
        .iter()
        .find(|obligation| text(obligation, "subject") == id)
        .context("the request's obligation")?;
    let name = |member: &str| {
        let id = text(obligation, member);
        let known = [alpha, beta]
            .into_iter()
            .find(|broker| broker.id.to_string() == id);
        known.map_or(id, |broker| broker.name.to_owned())
    };
    say(&format!(
        "obligation {}: {} owes {} {} {} ({})",
        text(obligation, "id"),
        name("debtor_broker_id"),
        name("creditor_broker_id"),
        text(obligation, "remaining_amount"),
        text(obligation, "currency_code"),
        text(obligation, "status"),
    ));
    Ok(())
}

pub(super) fn short(hash: &str) -> String {
    hash.chars().take(12).chain("…".chars()).collect()
}
