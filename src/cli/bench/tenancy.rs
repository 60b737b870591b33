//! What brokers cost that do nothing: a server's start, memory, connections and the latency of a
//! request, beside those with ten brokers.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use secrecy::SecretString;
use serde_json::{Value, json};
use sqlx::{Connection as _, MySqlConnection};

use super::load;
use super::network::{Bench, intention};
use super::report::Figure;
use crate::cli::settings;
use crate::config::Config;
use crate::domain::access::{Role, TeamSeat};
use crate::domain::broker::BrokerPlan;
use crate::domain::ids::BrokerId;
use crate::services::auth::AuthService;
use crate::services::team::{By, NewUser, TeamService};

/// SOLO brokers and FULL ones, in the order in which they are measured.
const STAGES: [(usize, usize); 3] = [(10, 0), (1_000, 20), (10_000, 200)];
const STAGES_QUICK: [(usize, usize); 2] = [(10, 0), (200, 5)];
const SHARDS: usize = 10;
/// Brokers that work, whatever the number of the others.
const ACTIVE: usize = 8;
const REQUESTS: usize = 2_000;
const AT_ONCE: usize = 8;
/// Brokers that are made at the same time.
const MAKERS: usize = 8;
const PASSWORD: &str = "a bench of good length";
const START: Duration = Duration::from_mins(1);

pub(super) async fn measure(
    config: &Config,
    file: &Path,
    quick: bool,
) -> anyhow::Result<Vec<Figure>> {
    let bench = Bench::set(config).await?;
    let now = bench.app.systems.clock.now();
    let places = &bench.app.provisioning;
    places.register_server("a", 0, None, now).await?;
    places.register_server("b", 1_000, None, now).await?;
    for shard in 0..SHARDS {
        let database = bench.database(&format!("shard_{shard}"));
        let server = ["a", "b"][shard % 2];
        places
            .create_shard(server, &database, 2_000, None, now)
            .await?;
    }
    let stages: &[(usize, usize)] = if quick { &STAGES_QUICK } else { &STAGES };
    let mut figures: Vec<Figure> = Vec::new();
    let mut active = Vec::new();
    let (mut solo, mut full) = (0, 0);
    for (want_solo, want_full) in stages {
        eprintln!("making {want_solo} SOLO and {want_full} FULL brokers");
        let begun = Instant::now();
        let made = make(&bench, BrokerPlan::Starter, solo, *want_solo).await?;
        let count = u32::try_from(made.len().max(1))?;
        let per_broker = begun.elapsed().as_secs_f64() * 1_000.0 / f64::from(count);
        make(&bench, BrokerPlan::Pro, full, *want_full).await?;
        (solo, full) = (*want_solo, *want_full);
        if active.is_empty() {
            active = made[..ACTIVE].to_vec();
            people(&bench, &active).await?;
        }
        eprintln!("measuring");
        let measured = measured(&bench, file, &active).await?;
        report(&mut figures, solo, full, per_broker, &measured);
    }
    Ok(figures)
}

pub(super) async fn make(
    bench: &Bench,
    plan: BrokerPlan,
    from: usize,
    to: usize,
) -> anyhow::Result<Vec<BrokerId>> {
    let places = &bench.app.provisioning;
    let now = bench.app.systems.clock.now();
    let brokers = stream::iter(from..to).map(|number| async move {
        let name = format!("{plan} {number}");
        let made = places.create_broker(&name, plan, None, None, now).await?;
        anyhow::Ok(made.id)
    });
    brokers.buffered(MAKERS).try_collect().await
}

/// One person of each broker that works.
async fn people(bench: &Bench, brokers: &[BrokerId]) -> anyhow::Result<()> {
    let systems = &bench.app.systems;
    let auth = settings::auth(&bench.config.auth);
    let (clock, entropy) = (systems.clock.clone(), systems.entropy.clone());
    let auth = AuthService::open(auth, systems.master.clone(), clock.clone(), entropy).await?;
    let team = TeamService::new(systems.master.clone(), clock, auth.passwords());
    for broker in brokers {
        let seat = TeamSeat {
            broker_id: Some(*broker),
        };
        let user = NewUser {
            login: format!("bench-{broker}"),
            password: SecretString::from(PASSWORD),
            role: Role::BrokerAdmin,
        };
        team.create_user(seat, user, By::Operator, &intention())
            .await?;
    }
    Ok(())
}

/// A server of ours, ended when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

struct Measured {
    start_ms: f64,
    memory_mib: f64,
    connections: f64,
    reads: load::Timed,
    writes: load::Timed,
}

async fn measured(bench: &Bench, file: &Path, brokers: &[BrokerId]) -> anyhow::Result<Measured> {
    let log = file.with_file_name("bench-serve.log");
    let begun = Instant::now();
    let (serving, address) = serve(bench, file, &log).await?;
    let start_ms = begun.elapsed().as_secs_f64() * 1_000.0;
    let http = reqwest::Client::new();
    let mut tokens = Vec::new();
    for broker in brokers {
        let body = json!({ "grant_type": "password", "login": format!("bench-{broker}"),
                           "password": PASSWORD });
        let answer = http
            .post(format!("{address}/v1/auth/token"))
            .json(&body)
            .send()
            .await?;
        let answer: Value = answer.error_for_status()?.json().await?;
        let token = answer["access_token"].as_str().context("a token")?;
        let opened = http
            .post(format!("{address}/v1/accounts"))
            .bearer_auth(token)
            .header("idempotency-key", format!("till-{broker}"))
            .json(&json!({ "owner_kind": "cashier", "owner_ref": "till", "currency_code": "USD" }))
            .send()
            .await?
            .error_for_status()?;
        let opened: Value = opened.json().await?;
        let account = opened["id"].as_str().context("an account")?.to_owned();
        tokens.push((token.to_owned(), account));
    }
    let tokens = Arc::new(tokens);
    let read = ask(&address, &http, &tokens, |request, _| request);
    // Caches and connections first.
    load::run(REQUESTS / 4, AT_ONCE, read.clone()).await?;
    let reads = load::run(REQUESTS, AT_ONCE, read).await?;
    let write = write(&address, &http, &tokens);
    load::run(REQUESTS / 4, AT_ONCE, write.clone()).await?;
    let writes = load::run(REQUESTS, AT_ONCE, write).await?;
    let memory_mib = memory_mib(serving.0.id())?;
    let connections = connections(bench, &serving).await?;
    Ok(Measured {
        start_ms,
        memory_mib,
        connections,
        reads,
        writes,
    })
}

type Tokens = Arc<Vec<(String, String)>>;
type Asked = futures::future::BoxFuture<'static, anyhow::Result<()>>;

fn ask(
    address: &str,
    http: &reqwest::Client,
    tokens: &Tokens,
    with: fn(reqwest::RequestBuilder, usize) -> reqwest::RequestBuilder,
) -> impl Fn(usize) -> Asked + Clone + Send + Sync + 'static {
    let (url, http, tokens) = (
        format!("{address}/v1/accounts"),
        http.clone(),
        Arc::clone(tokens),
    );
    move |number| {
        let (token, _) = &tokens[number % tokens.len()];
        let request = with(http.get(&url).bearer_auth(token), number);
        Box::pin(async move {
            request.send().await?.error_for_status()?.bytes().await?;
            Ok(())
        })
    }
}

fn write(
    address: &str,
    http: &reqwest::Client,
    tokens: &Tokens,
) -> impl Fn(usize) -> Asked + Clone + Send + Sync + 'static {
    let (address, http, tokens) = (address.to_owned(), http.clone(), Arc::clone(tokens));
    move |number| {
        let (token, account) = &tokens[number % tokens.len()];
        let request = http
            .post(format!("{address}/v1/accounts/{account}/entries"))
            .bearer_auth(token)
            .header("idempotency-key", uuid::Uuid::now_v7().to_string())
            .json(&json!({ "kind": "correction", "side": "credit", "amount": "1.00", "currency_code": "USD" }));
        Box::pin(async move {
            request.send().await?.error_for_status()?.bytes().await?;
            Ok(())
        })
    }
}

async fn serve(bench: &Bench, file: &Path, log: &PathBuf) -> anyhow::Result<(Serving, String)> {
    let output = std::fs::File::create(log)?;
    let child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .env("SETTLENET_CONFIG", file)
        .env("SETTLENET_MASTER__URL", bench.config.master.url.expose())
        .env("SETTLENET_HTTP__LISTEN", "127.0.0.1:0")
        .env("SETTLENET_HTTP__TOKEN_RATE_PER_MINUTE", "10000")
        .env("SETTLENET_LOG__LEVEL", "warn")
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()?;
    let mut serving = Serving(child);
    let until = Instant::now() + START;
    loop {
        let text = std::fs::read_to_string(log)?;
        if let Some(address) = text
            .lines()
            .find_map(|line| line.strip_prefix("listening on "))
        {
            return Ok((serving, address.to_owned()));
        }
        if let Some(status) = serving.0.try_wait()? {
            anyhow::bail!("the server ended ({status}): {text}");
        }
        anyhow::ensure!(Instant::now() < until, "the server does not listen: {text}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What a process has in memory.
fn memory_mib(pid: u32) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// Connections to this run's databases that are not this process's own.
async fn connections(bench: &Bench, serving: &Serving) -> anyhow::Result<f64> {
    let sockets = std::fs::read_dir(format!("/proc/{}/fd", serving.0.id()))?;
    let mut open = 0.0;
    for entry in sockets.flatten() {
        let is_socket = std::fs::read_link(entry.path())
            .is_ok_and(|to| to.to_string_lossy().starts_with("socket:"));
        open += f64::from(u8::from(is_socket));
    }
    // The servers see what they were asked for by name.
    let mut seen = 0.0;
    for server in bench.config.servers.values() {
        let mut connection = MySqlConnection::connect(server.url.expose()).await?;
        let count: i64 = sqlx::query_scalar(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db LIKE ?",
        )
        .bind(format!(
            "{}%",
            bench.config.books.database_prefix.replace('_', "\\_")
        ))
        .fetch_one(&mut connection)
        .await?;
        #[expect(clippy::cast_precision_loss, reason = "a count of connections")]
        let count = count as f64;
        seen += count;
        connection.close().await?;
    }
    let (of_this, _) = bench.app.systems.master.in_use();
    let of_books: usize = bench
        .app
        .systems
        .router
        .pool_use()
        .iter()
        .map(|pool| pool.open)
        .sum();
    #[expect(clippy::cast_precision_loss, reason = "a count of connections")]
    let own = (of_this + of_books) as f64;
    Ok((seen - own).clamp(0.0, open))
}

fn report(
    figures: &mut Vec<Figure>,
    solo: usize,
    full: usize,
    per_broker: f64,
    measured: &Measured,
) {
    let name = |what: &str| format!("{what}, {solo} SOLO + {full} FULL");
    let first: Vec<Figure> = figures.iter().take(7).cloned().collect();
    let all = [
        ("making a SOLO broker", per_broker, "ms"),
        ("start of a server", measured.start_ms, "ms"),
        ("memory", measured.memory_mib, "MiB"),
        ("connections", measured.connections, ""),
    ];
    let mut now: Vec<Figure> = all
        .into_iter()
        .map(|(what, value, unit)| Figure::floor(name(what), value, unit).of("tenancy"))
        .collect();
    for (what, timed) in [("read", &measured.reads), ("write", &measured.writes)] {
        let p50 = timed.latency(what, AT_ONCE, 50);
        now.push(Figure::floor(name(&format!("{what} p50")), p50.value, "ms").of("tenancy"));
    }
    let p99 = measured.reads.latency("read", AT_ONCE, 99);
    now.push(Figure::floor(name("read p99"), p99.value, "ms").of("tenancy"));
    for (at, figure) in now.into_iter().enumerate() {
        figures.push(match first.get(at) {
            Some(floor) => figure.beside(floor, "about 1"),
            None => figure,
        });
    }
}
