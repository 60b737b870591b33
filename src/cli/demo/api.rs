//! A client of the API, as a broker's program would be one.

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

/// Somebody who is logged in.
pub(super) struct Caller {
    client: reqwest::Client,
    address: String,
    token: String,
}

impl Caller {
    pub(super) async fn log_in(address: &str, login: &str, password: &str) -> anyhow::Result<Self> {
        let client = reqwest::Client::new();
        let body = json!({ "grant_type": "password", "login": login, "password": password });
        let answer = client
            .post(format!("{address}/v1/auth/token"))
            .json(&body)
            .send()
            .await?;
        let answer = read(answer)
            .await
            .with_context(|| format!("logging in as {login}"))?;
        Ok(Self {
            client,
            address: address.to_owned(),
            token: text(&answer, "access_token"),
        })
    }

    pub(super) async fn get(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.client.get(format!("{}{path}", self.address));
        let answer = request.bearer_auth(&self.token).send().await?;
        read(answer).await.with_context(|| path.to_owned())
    }

    /// A POST; what creates something has a key, so that a retry makes nothing twice.
    pub(super) async fn post(
        &self,
        path: &str,
        body: &Value,
        key: Option<&str>,
    ) -> anyhow::Result<Value> {
        let mut request = self
            .client
            .post(format!("{}{path}", self.address))
            .json(body);
        if let Some(key) = key {
            request = request.header("Idempotency-Key", format!("\"{key}\""));
        }
        let answer = request.bearer_auth(&self.token).send().await?;
        read(answer).await.with_context(|| path.to_owned())
    }

    /// A POST that creates something, under a new key.
    pub(super) async fn create(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let key = uuid::Uuid::new_v4().to_string();
        self.post(path, body, Some(&key)).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> anyhow::Result<Value> {
        let request = self.client.put(format!("{}{path}", self.address));
        let answer = request.json(body).bearer_auth(&self.token).send().await?;
        read(answer).await.with_context(|| path.to_owned())
    }
}

/// A member of an answer as text; empty where it isn't there.
pub(super) fn text(answer: &Value, member: &str) -> String {
    match answer.get(member) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

async fn read(answer: reqwest::Response) -> anyhow::Result<Value> {
    let status = answer.status();
    let body: Value = answer.json().await?;
    if !status.is_success() {
        bail!("{status}: {body}");
    }
    Ok(body)
}
