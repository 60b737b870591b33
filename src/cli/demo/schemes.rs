//! Clients of one broker served by another: cash taken, cash paid, money to a client by uid; and debts
//! repaid and netted.

use anyhow::Context as _;
use serde_json::{Value, json};

use super::api::{Caller, text};
use super::network::{Member, Network};
use super::say;

/// Where Beta's cashier is.
const CITY: &str = "IST";
const CASHIER: &str = "ahmed";

pub(super) async fn run(address: &str, network: &Network) -> anyhow::Result<()> {
    let [alpha, beta, ..] = network.brokers.as_slice() else {
        anyhow::bail!("the demonstration has two brokers at least");
    };
    let desks = Desks {
        alpha: Caller::log_in(address, alpha.login, &network.password).await?,
        beta: Caller::log_in(address, beta.login, &network.password).await?,
        beta_id: beta.id,
    };
    println!();
    let vasya = partner(&desks.alpha, "Vasya", "a client of Alpha's").await?;
    desks.collect(&vasya).await?;
    desks.payout(&vasya).await?;
    desks.by_uid().await?;
    desks.repay(alpha, beta).await?;
    desks.net(alpha).await
}

/// The two desks, each logged in.
struct Desks {
    alpha: Caller,
    beta: Caller,
    beta_id: u64,
}

impl Desks {
    /// Vasya hands 47,500 roubles to Beta's cashier in Istanbul.
    async fn collect(&self, vasya: &str) -> anyhow::Result<()> {
        account(&self.alpha, "partner", vasya, "RUB-CASH").await?;
        let till = account(&self.beta, "cashier", CASHIER, "RUB-CASH").await?;
        let cities = json!({ "city_codes": [CITY] });
        self.beta.put("/v1/broker/cities", &cities).await?;
        let body = json!({
            "type": "collect", "counterpart_uid": vasya, "currency_code": "RUB-CASH",
            "amount": "47500.00", "city_code": CITY,
        });
        let order = self.alpha.create("/v1/orders", &body).await?;
        let path = format!("/v1/orders/{}", text(&order, "id"));
        say(&format!(
            "Alpha orders whoever serves {CITY} to take 47500.00 RUB-CASH of its client {vasya}: {} is {}",
            text(&order, "id"),
            text(&order, "status")
        ));
        let taken = json!({ "account_id": till });
        self.beta
            .post(&format!("{path}/accept"), &taken, None)
            .await?;
        let slip = proof("counted and signed for");
        self.beta
            .post(&format!("{path}/execute"), &slip, None)
            .await?;
        let order = self
            .alpha
            .post(&format!("{path}/confirm"), &json!({}), None)
            .await?;
        self.show(&order, vasya, "RUB-CASH").await
    }

    /// Vasya takes 500 dollars from Beta's cashier, against a code.
    async fn payout(&self, vasya: &str) -> anyhow::Result<()> {
        let purse = account(&self.alpha, "partner", vasya, "USD-CASH").await?;
        let till = account(&self.beta, "cashier", CASHIER, "USD-CASH").await?;
        for (caller, account) in [(&self.alpha, &purse), (&self.beta, &till)] {
            let opening = json!({
                "kind": "opening", "side": "credit", "amount": "600.00",
                "currency_code": "USD-CASH",
            });
            let path = format!("/v1/accounts/{account}/entries");
            caller.create(&path, &opening).await?;
        }
        let body = json!({
            "type": "payout", "executor_broker_id": self.beta_id, "counterpart_uid": vasya,
            "currency_code": "USD-CASH", "amount": "500.00",
        });
        let order = self.alpha.create("/v1/orders", &body).await?;
        let path = format!("/v1/orders/{}", text(&order, "id"));
        let code = text(&order, "pickup_code");
        say(&format!(
            "Alpha orders Beta to pay its client {vasya} 500.00 USD-CASH against the code {code}: {}",
            text(&order, "id")
        ));
        let till = json!({ "account_id": till });
        self.beta
            .post(&format!("{path}/accept"), &till, None)
            .await?;
        let mut slip = proof("paid over the counter");
        slip["pickup_code"] = json!(code);
        self.beta
            .post(&format!("{path}/execute"), &slip, None)
            .await?;
        let order = self
            .alpha
            .post(&format!("{path}/confirm"), &json!({}), None)
            .await?;
        self.show(&order, vasya, "USD-CASH").await
    }

    /// 5,000 USDT to a client of Beta's, whom Alpha names by uid.
    async fn by_uid(&self) -> anyhow::Result<()> {
        let client = partner(&self.beta, "Irina", "a client of Beta's").await?;
        account(&self.beta, "partner", &client, "USDT-TRC20").await?;
        let body = json!({
            "target_broker_id": self.beta_id, "type": "send", "counterpart_uid": client,
            "currency_code": "USDT-TRC20", "amount": "5000.00", "method": "crypto",
        });
        let request = self.alpha.create("/v1/network/requests", &body).await?;
        let path = format!("/v1/network/requests/{}", text(&request, "id"));
        say(&format!(
            "Alpha sends 5000.00 USDT-TRC20 to Beta's client {client}: {}",
            text(&request, "id")
        ));
        self.beta
            .post(&format!("{path}/accept"), &json!({}), None)
            .await?;
        let hash = json!({ "proof": [{ "type": "tx_hash", "value": "7c1e5f0a" }] });
        self.alpha
            .post(&format!("{path}/sent"), &hash, None)
            .await?;
        let request = self
            .beta
            .post(&format!("{path}/confirm"), &json!({}), None)
            .await?;
        words(&request);
        let balance = balance(&self.beta, &client, "USDT-TRC20").await?;
        say(&format!(
            "{}: the client {client} has {balance} USDT-TRC20 at Beta",
            text(&request, "status")
        ));
        Ok(())
    }

    /// Alpha repays 300 of what it owes for the payout.
    async fn repay(&self, alpha: &Member, beta: &Member) -> anyhow::Result<()> {
        let body = json!({
            "target_broker_id": beta.id, "type": "settlement", "currency_code": "USD-CASH",
            "amount": "300.00", "method": "cash",
        });
        let request = self.alpha.create("/v1/network/requests", &body).await?;
        let path = format!("/v1/network/requests/{}", text(&request, "id"));
        self.beta
            .post(&format!("{path}/accept"), &json!({}), None)
            .await?;
        let receipt = proof("by courier");
        self.alpha
            .post(&format!("{path}/sent"), &receipt, None)
            .await?;
        let request = self
            .beta
            .post(&format!("{path}/confirm"), &json!({}), None)
            .await?;
        let position = self.position("USD-CASH").await?;
        say(&format!(
            "{} repays {} 300.00 USD-CASH of it, the oldest debt first ({} is {}): {} are owed",
            alpha.name,
            beta.name,
            text(&request, "id"),
            text(&request, "status"),
            text(&position, "owing")
        ));
        Ok(())
    }

    /// Beta comes to owe Alpha 7,000 dollars, and they net it against what Alpha owes.
    async fn net(&self, alpha: &Member) -> anyhow::Result<()> {
        let body = json!({
            "target_broker_id": alpha.id, "type": "send", "currency_code": "USD",
            "amount": "7000.00", "method": "cash",
        });
        let request = self.beta.create("/v1/network/requests", &body).await?;
        let path = format!("/v1/network/requests/{}", text(&request, "id"));
        self.alpha
            .post(&format!("{path}/accept"), &json!({}), None)
            .await?;
        let receipt = proof("by courier");
        self.beta
            .post(&format!("{path}/sent"), &receipt, None)
            .await?;
        self.alpha
            .post(&format!("{path}/confirm"), &json!({}), None)
            .await?;
        let before = self.position("USD").await?;
        let body = json!({
            "counterparty_broker_id": self.beta_id, "currency_code": "USD", "amount": "7000.00",
        });
        let proposal = self.alpha.create("/v1/netting/proposals", &body).await?;
        let id = text(&proposal, "id");
        say(&format!(
            "Alpha owes Beta {} USD and is owed {}; it proposes netting: {id}",
            text(&before, "owing"),
            text(&before, "owed")
        ));
        println!("    {}", text(&proposal, "effect"));
        let approve = format!("/v1/netting/proposals/{id}/approve");
        let proposal = self.beta.post(&approve, &json!({}), None).await?;
        let after = self.position("USD").await?;
        say(&format!(
            "Beta approves, {} USD are netted ({}): Alpha owes {} and is owed {}; net {} as before",
            text(&proposal, "netted_amount"),
            text(&proposal, "status"),
            text(&after, "owing"),
            text(&after, "owed"),
            text(&after, "net")
        ));
        Ok(())
    }

    /// How Alpha stands to Beta.
    async fn position(&self, code: &str) -> anyhow::Result<Value> {
        let positions = self.alpha.get("/v1/positions").await?;
        let items = positions.get("items").and_then(Value::as_array);
        let beta = self.beta_id.to_string();
        let mut items = items.into_iter().flatten().filter(|one| {
            text(one, "currency_code") == code && text(one, "counterparty_broker_id") == beta
        });
        let found = items.next().context("Alpha and Beta owe each other")?;
        Ok(found.clone())
    }

    async fn show(&self, order: &Value, client: &str, code: &str) -> anyhow::Result<()> {
        words(order);
        let client_has = balance(&self.alpha, client, code).await?;
        let till_has = balance(&self.beta, CASHIER, code).await?;
        say(&format!(
            "{}: the client has {client_has} {code} at Alpha, Beta's cashier has {till_has}",
            text(order, "status")
        ));
        Ok(())
    }
}

/// What has been agreed, in words.
fn words(thing: &Value) {
    let words = thing.pointer("/terms/words").and_then(Value::as_array);
    for line in words.into_iter().flatten().filter_map(Value::as_str) {
        println!("    terms: {line}");
    }
}

async fn partner(caller: &Caller, name: &str, what: &str) -> anyhow::Result<String> {
    let body = json!({ "kind": "offline", "display_name": name });
    let made = caller.create("/v1/partners", &body).await?;
    let uid = text(&made, "id");
    say(&format!("{name} is {what}: {uid}"));
    Ok(uid)
}

async fn account(caller: &Caller, kind: &str, owner: &str, code: &str) -> anyhow::Result<String> {
    let body = json!({ "owner_kind": kind, "owner_ref": owner, "currency_code": code });
    let opened = caller.create("/v1/accounts", &body).await?;
    Ok(text(&opened, "id"))
}

async fn balance(caller: &Caller, owner: &str, code: &str) -> anyhow::Result<String> {
    let accounts = caller
        .get(&format!("/v1/accounts?owner_ref={owner}"))
        .await?;
    let items = accounts.get("items").and_then(Value::as_array);
    let mut items = items.into_iter().flatten();
    let account = items.find(|account| text(account, "currency_code") == code);
    Ok(text(account.context("the account is there")?, "balance"))
}

fn proof(note: &str) -> Value {
    json!({ "proof": [{ "type": "transfer_ref", "value": "slip 7741", "note": note }] })
}
