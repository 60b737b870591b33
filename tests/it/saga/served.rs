//! The real server killed behind a client's confirmation, between any two side effects, while
//! another serves on.

use chrono::Duration;
use serde_json::{Value, json};
use settlenet::domain::ids::RequestId;

use super::killed::{CONFIRM, PAST_THE_LEASE, told};
use crate::cli;
use crate::harness::{Child, MovedClock, SOON, World, assert_invariants, until};

const PASSWORD: &str = "correct horse battery";

/// A person at Beta, who confirms.
pub struct Client {
    http: reqwest::Client,
    token: String,
}

impl Client {
    pub async fn log_in(address: &str, world: &World) -> Self {
        let broker = world.beta.to_string();
        let user = [
            "admin",
            "user",
            "create",
            "beta",
            "--role",
            "broker_admin",
            "--broker",
            &broker,
        ];
        let made = cli::run_with(&world.databases, &user, PASSWORD).await;
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let http = reqwest::Client::new();
        let body = json!({ "grant_type": "password", "login": "beta", "password": PASSWORD });
        let answer = http
            .post(format!("{address}/v1/auth/token"))
            .json(&body)
            .send()
            .await;
        let answer: Value = answer.expect("answers").json().await.expect("JSON");
        let token = answer["access_token"].as_str().expect("a token").to_owned();
        Self { http, token }
    }

    /// Creates something under a key: the HTTP status, and what was answered.
    pub async fn create(
        &self,
        url: &str,
        key: &str,
        body: &Value,
    ) -> reqwest::Result<(u16, Value)> {
        let request = self.http.post(url).header("idempotency-key", key);
        let answer = request.bearer_auth(&self.token).json(body).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    }

    /// What the server says of the confirmation: the HTTP status and the request's.
    async fn confirm(&self, address: &str, id: RequestId) -> reqwest::Result<(u16, String)> {
        let request = self
            .http
            .post(format!("{address}/v1/network/requests/{id}/confirm"));
        let answer = request
            .bearer_auth(&self.token)
            .json(&json!({}))
            .send()
            .await?;
        let code = answer.status().as_u16();
        let body: Value = answer.json().await?;
        Ok((code, body["status"].as_str().unwrap_or_default().to_owned()))
    }

    /// Confirms at the server that serves on until it says `completed`, past lease after lease.
    async fn confirms_elsewhere(
        &self,
        address: &str,
        id: RequestId,
        clock: &MovedClock,
        place: &str,
    ) {
        until(place, SOON, async || {
            clock.advance(PAST_THE_LEASE);
            let answer = self.confirm(address, id).await;
            answer.expect("the other serves on") == (200, "completed".to_owned())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_over_http_is_completed_whoever_dies() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(Duration::zero())).await;
    let (_survivor, address) = Child::serve(&world, &clock, &[], "").await;
    let client = Client::log_in(&address, &world).await;
    for place in CONFIRM {
        let id = world.sent(world.alpha, world.beta).await;
        let (mut server, dying) =
            Child::serve(&world, &clock, &["--no-workers"], &told(place, "kill")).await;
        let answer = client.confirm(&dying, id).await;
        assert!(answer.is_err(), "{place}: it answered {answer:?}");
        server.killed(place).await;
        client.confirms_elsewhere(&address, id, &clock, place).await;
    }
    assert_invariants(&world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_over_http_is_completed_whoever_stands_still() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(Duration::zero())).await;
    let (_survivor, address) = Child::serve(&world, &clock, &[], "").await;
    let client = Client::log_in(&address, &world).await;
    for place in CONFIRM {
        let id = world.sent(world.alpha, world.beta).await;
        let (mut server, stopping) =
            Child::serve(&world, &clock, &["--no-workers"], &told(place, "stop")).await;
        let asked = client.confirm(&stopping, id);
        let meanwhile = async {
            server.stopped(place).await;
            client.confirms_elsewhere(&address, id, &clock, place).await;
            server.go_on();
        };
        let (answer, ()) = futures::future::join(asked, meanwhile).await;
        // What it says late is true: completed, or that it doesn't know.
        let (code, status) = answer.expect("it lives, and answers");
        let completed = (code, status.as_str()) == (200, "completed");
        assert!(
            completed || [202, 503].contains(&code),
            "{place}: {code} {status}"
        );
    }
    assert_invariants(&world).await;
}
