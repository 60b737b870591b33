//! A schema that changes while processes run: what a next release may add, beside this one's
//! processes; and this release on databases that are behind it.
//!
//! There is no binary of another release to run here. So the folders `expand/master` and
//! `expand/tenant` stand for the next one's first half (a column that may be null, one with a
//! default, an index, a table), and this release is the old one: its processes were started
//! before it and after it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use chrono::Duration;
use futures::future::join_all;
use serde_json::{Value, json};
use settlenet::config::SecretUrl;
use settlenet::stores::migrate::{Kind, migrate};
use sqlx::Connection as _;
use sqlx::migrate::Migrator;
use sqlx::mysql::MySqlConnection;

use crate::api::Api;
use crate::cli;
use crate::harness::{Child, MovedClock, SOON, World, assert_invariants, program, until};

const PASSWORD: &str = "correct horse battery";

async fn expand(url: &SecretUrl, folder: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/expand")
        .join(folder);
    let mut migrator = Migrator::new(path).await.unwrap();
    // What is there is this release's.
    migrator.set_ignore_missing(true).set_locking(false);
    let mut connection = MySqlConnection::connect(url.expose()).await.unwrap();
    migrator.run(&mut connection).await.unwrap();
}

/// Somebody of a broker, at whatever server.
struct Person {
    http: reqwest::Client,
    token: String,
}

impl Person {
    async fn new(world: &World, address: &str, broker: u64) -> Self {
        let (login, id) = (format!("p{broker}"), broker.to_string());
        let user = [
            "admin",
            "user",
            "create",
            &login,
            "--role",
            "broker_admin",
            "--broker",
            &id,
        ];
        let made = cli::run_with(&world.databases, &user, PASSWORD).await;
        assert!(made.status.success(), "{}", cli::stderr(&made));
        let http = reqwest::Client::new();
        let body = json!({ "grant_type": "password", "login": login, "password": PASSWORD });
        let answer = http
            .post(format!("{address}/v1/auth/token"))
            .json(&body)
            .send()
            .await;
        let answer: Value = answer.unwrap().json().await.unwrap();
        let token = answer["access_token"].as_str().unwrap().to_owned();
        Self { http, token }
    }

    async fn post(&self, address: &str, path: &str, body: Value) -> Value {
        let request = self
            .http
            .post(format!("{address}/v1/network/requests{path}"));
        let key = uuid::Uuid::new_v4().to_string();
        let request = request
            .bearer_auth(&self.token)
            .header("idempotency-key", key);
        let answer = request.json(&body).send().await.unwrap();
        let status = answer.status();
        let body: Value = answer.json().await.unwrap();
        assert!(status.is_success(), "{path}: {status} {body}");
        body
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_next_release_adds_disturbs_no_process_of_this_one() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(Duration::zero())).await;
    let (_old, before) = Child::serve(&world, &clock, &[], "").await;
    let alpha = Person::new(&world, &before, world.alpha).await;
    let gamma = Person::new(&world, &before, world.gamma).await;
    let (settled, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let settle = async |at: [&str; 2]| {
        let new = json!({"target_broker_id": world.gamma, "type": "send", "amount": "5.00",
            "currency_code": world.currency, "method": "cash"});
        let made = alpha.post(at[0], "", new).await;
        let id = made["id"].as_str().unwrap();
        gamma.post(at[1], &format!("/{id}/accept"), json!({})).await;
        let proof = json!({"proof": [{"type": "transfer_ref", "value": "x"}]});
        alpha.post(at[1], &format!("/{id}/sent"), proof).await;
        let done = gamma
            .post(at[0], &format!("/{id}/confirm"), json!({}))
            .await;
        assert_eq!(done["status"], "completed");
        settled.fetch_add(1, Ordering::Relaxed);
    };
    let load = |at: [String; 2]| {
        let (settle, over) = (&settle, &over);
        async move {
            while !over.load(Ordering::Relaxed) {
                settle([&at[0], &at[1]]).await;
            }
        }
    };
    let goes_on = async |what: &str| {
        let goal = settled.load(Ordering::Relaxed) + 6;
        until(what, SOON, async || settled.load(Ordering::Relaxed) >= goal).await;
    };
    let only_old = join_all((0..3).map(|_| load([before.clone(), before.clone()])));
    let change = async {
        goes_on("before it").await;
        expand(world.databases.master_url(), "master").await;
        expand(&world.databases.shard_url(), "tenant").await;
        for tenant in &world.databases.tenants {
            expand(&world.databases.url("b", tenant), "tenant").await;
        }
        goes_on("after it").await;
        over.store(true, Ordering::Relaxed);
    };
    futures::future::join(only_old, change).await;

    // A process that is started now finds more than it knows, and works beside the old one.
    let (_new, after) = Child::serve(&world, &clock, &[], "").await;
    over.store(false, Ordering::Relaxed);
    let mixed = [
        [before.clone(), after.clone()],
        [after.clone(), before.clone()],
        [after.clone(), after],
    ];
    let both = join_all(mixed.into_iter().map(load));
    let watch = async {
        goes_on("side by side").await;
        over.store(true, Ordering::Relaxed);
    };
    futures::future::join(both, watch).await;
    assert_invariants(&world).await;

    // What the next release has added is there, and as it is to be.
    let url = world.databases.shard_url();
    let mut shard = MySqlConnection::connect(url.expose()).await.unwrap();
    let shades: Vec<i32> = sqlx::query_scalar("SELECT DISTINCT shade FROM account")
        .fetch_all(&mut shard)
        .await
        .unwrap();
    assert_eq!(shades, [7]);
}

async fn forget_last(url: &SecretUrl) -> String {
    let mut connection = MySqlConnection::connect(url.expose()).await.unwrap();
    let (version, name): (i64, String) = sqlx::query_as(
        "SELECT version, description FROM _sqlx_migrations ORDER BY version DESC LIMIT 1",
    )
    .fetch_one(&mut connection)
    .await
    .unwrap();
    sqlx::query("DELETE FROM _sqlx_migrations WHERE version = ?")
        .bind(version)
        .execute(&mut connection)
        .await
        .unwrap();
    format!("{version:04} {name}")
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_works_on_a_master_that_is_behind_it() {
    let world = World::new().await;
    let missing = forget_last(world.databases.master_url()).await;
    for what in ["serve", "worker"] {
        let mut command = Command::new(program());
        command
            .arg(what)
            .env("SETTLENET_CONFIG", world.databases.config_file())
            .env(
                "SETTLENET_MASTER__URL",
                world.databases.master_url().expose(),
            )
            .env("SETTLENET_HTTP__LISTEN", "127.0.0.1:0")
            .stdin(Stdio::null());
        let ended = tokio::task::spawn_blocking(move || command.output())
            .await
            .unwrap()
            .unwrap();
        let said = cli::stderr(&ended);
        assert_eq!(ended.status.code(), Some(1), "{what}: {said}");
        let whole = format!("lacks migration {missing}: run settlenet migrate");
        assert!(said.contains(&whole), "{what}: {said}");
    }
}

/// Its brokers wait for it, and nobody else does.
#[tokio::test(flavor = "multi_thread")]
async fn a_book_whose_database_is_behind_is_not_touched() {
    let api = Api::new().await;
    let world = &api.world;
    let url = world.databases.url("b", &world.databases.tenants[0]);
    let missing = forget_last(&url).await;
    let (hers, theirs) = (
        api.admin_of(world.alpha).await,
        api.admin_of(world.beta).await,
    );
    let router = settlenet::app::Stores::open(&world.config).unwrap().router;
    let scope = router.book(world.alpha).await.unwrap();
    let Err(refused) = scope.read().await else {
        panic!("it is read")
    };
    assert!(refused.is_unavailable() && refused.is_transient());
    let said = refused.to_string();
    assert!(
        said.contains(&format!("lacks migration {missing}")),
        "{said}"
    );
    let other = router.book(world.beta).await.unwrap();
    other.read().await.unwrap().end().await.unwrap();
    let refused = api.get("/v1/accounts", &hers).await;
    assert_eq!(refused.problem(), (503, "unavailable"));
    assert_eq!(api.get("/v1/accounts", &theirs).await.status, 200);
    migrate(&url, Kind::Tenant).await.unwrap();
    scope.read().await.unwrap().end().await.unwrap();
    assert_eq!(api.get("/v1/accounts", &hers).await.status, 200);
}
