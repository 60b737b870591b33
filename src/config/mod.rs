//! The configuration: one typed structure, filled from defaults, then
//! `settlenet.toml`, then `SETTLENET_…` environment variables.
//!
//! Any key can come from the environment: `http.listen` is
//! `SETTLENET_HTTP__LISTEN` (two underscores between levels). A secret can also
//! come from a file: `master.url_file` instead of `master.url`. Unknown keys are
//! errors, and so is a value out of bounds; the message names the key, what was
//! found, where, and what is allowed.

mod check;
mod error;
mod payments;
mod print;
mod source;
#[cfg(test)]
mod tests;
mod values;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::domain::access::Role;
use crate::domain::invite::SignupMode;
use crate::domain::terms::DefaultTerms;

pub use error::ConfigError;
pub use payments::{Payments, Provider};
pub use values::{ClusterId, Millis, Seconds, SecretText, SecretUrl};

/// The file that is read when no other is named, if it is there.
pub const DEFAULT_FILE: &str = "settlenet.toml";

/// Everything that can be configured.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    #[serde(default)]
    pub http: Http,
    pub master: Master,
    /// `MySQL`-family servers by the name that the master's registry uses.
    pub servers: BTreeMap<String, Server>,
    #[serde(default)]
    pub pools: Pools,
    #[serde(default)]
    pub books: Books,
    #[serde(default)]
    pub moves: Moves,
    pub postgres: Postgres,
    #[serde(default)]
    pub tigerbeetle: Tigerbeetle,
    #[serde(default)]
    pub auth: Auth,
    #[serde(default)]
    pub saga: Saga,
    #[serde(default)]
    pub network: Network,
    #[serde(default)]
    pub netting: Netting,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    #[serde(default)]
    pub audit: Audit,
    #[serde(default)]
    pub payments: Payments,
    #[serde(default)]
    pub log: Log,
}

/// The HTTP server.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Http {
    pub listen: SocketAddr,
    /// Bytes; a larger body is a 413.
    pub body_limit_bytes: usize,
    /// Bytes; the same for uploads.
    pub upload_limit_bytes: usize,
    /// How long a confirm waits for its saga before it answers 202.
    pub confirm_wait_ms: Millis,
    /// How long running work may take to finish at a shutdown.
    pub shutdown_grace_ms: Millis,
    /// How long an answer may take to begin.
    pub timeout_ms: Millis,
    /// How long a connection may sit there between two requests, or on half the head of one.
    pub idle_timeout_ms: Millis,
    /// Connections at once; more wait in the system's queue.
    pub max_connections: usize,
    /// Origins of browsers that may call; none by default.
    pub cors_origins: Vec<String>,
    /// Proxies of ours in front, each of which adds to `x-forwarded-for`; with 0 that header is
    /// ignored.
    pub trusted_proxies: usize,
    /// Calls of the token endpoints per minute and address, in the long run.
    pub token_rate_per_minute: u32,
    /// How many of them may come at once.
    pub token_rate_burst: u32,
    /// How long a readiness check may take.
    pub ready_wait_ms: Millis,
}

/// The network's own database.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Master {
    /// `mysql://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: SecretUrl,
    /// Connections of this process to the master.
    #[serde(default = "master_connections")]
    pub max_connections: u32,
}

fn master_connections() -> u32 {
    32
}

/// A server that holds shared shards or tenant databases.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// `mysql://USER:PASSWORD@HOST:PORT`, without a database.
    pub url: SecretUrl,
    /// Connections of this process to the server, all its databases together.
    #[serde(default = "server_connections")]
    pub max_connections: u32,
}

fn server_connections() -> u32 {
    100
}

/// Connection pools of books, opened when first needed.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Pools {
    /// Databases with an open pool at a time; the least recently used closes.
    pub max_pools: usize,
    pub per_pool_connections: u32,
    /// Short, so that a dead server fails its own brokers quickly.
    pub acquire_timeout_ms: Millis,
    /// A statement without an answer for so long, the master's too, means that its server is
    /// away: well beyond a wait for a lock, which is 3 s.
    pub statement_timeout_ms: Millis,
    /// Connections that were idle for so long are closed.
    pub idle_timeout_ms: Millis,
}

/// The books of new brokers.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Books {
    /// Begins the names of databases that are made for FULL brokers. Networks that share a
    /// server need one each; what is made already keeps its name.
    pub database_prefix: String,
    /// How long a caller waits for a book that is between two databases, before a 503.
    pub move_wait_ms: Millis,
}

/// Moves of books from one database to another.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Moves {
    /// How long what a move has left behind is kept before it is verified again and deleted.
    pub retention_s: Seconds,
    /// How often workers look for moves that nobody works on: whoever finds a book closed by a
    /// process that stands still opens it again.
    pub poll_ms: Millis,
    /// Moves that one process works on at a time.
    pub concurrency: usize,
    /// How long a claim holds without a sign of life, while the book is open.
    pub lease_ms: Millis,
    /// And while it is closed: less than callers wait.
    pub fence_lease_ms: Millis,
    /// A book that has been closed for so long without having been copied is opened again.
    pub tail_bound_ms: Millis,
    /// Rows of a table that are copied at once.
    pub batch_rows: usize,
    /// The book is closed once at most so many rows are left to copy.
    pub tail_rows: u64,
    /// Of the time that a batch took, how much to leave to others after it, in percent.
    pub yield_percent: u32,
    /// Failed tries before a move is stuck.
    pub max_tries: u32,
}

/// The payment manager's database.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Postgres {
    /// `postgres://USER:PASSWORD@HOST:PORT/DATABASE`.
    pub url: SecretUrl,
    #[serde(default = "postgres_connections")]
    pub max_connections: u32,
}

fn postgres_connections() -> u32 {
    16
}

/// The ledger.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tigerbeetle {
    pub cluster_id: ClusterId,
    /// `IP:PORT` of every replica, in the cluster's order.
    pub addresses: Vec<SocketAddr>,
    /// After that long without an answer a call's outcome is unknown.
    pub timeout_ms: Millis,
}

/// Tokens.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Auth {
    pub issuer: String,
    pub audience: String,
    /// At most 900.
    pub access_ttl_s: Seconds,
    pub refresh_ttl_s: Seconds,
    /// How long a log-in can be refreshed at all.
    pub login_ttl_s: Seconds,
    /// How far the clocks of issuer and verifier may be apart.
    pub leeway_s: Seconds,
    /// How long a further signing key is published before it signs.
    pub key_lead_s: Seconds,
    /// Attempts per login in 15 minutes before each costs a wait.
    pub login_attempts: u32,
    /// The same per address.
    pub address_attempts: u32,
    /// Passwords hashed at the same time; each takes 19 MiB and a core.
    pub parallel_hashes: u32,
    /// How long a log-in waits for its turn to be hashed.
    pub hash_wait_ms: Millis,
    /// Ed25519 private key, PKCS#8 PEM; or a folder of such files (`*.pem`) while keys are
    /// rotated. Relative to the file that names it.
    pub signing_key_file: Option<PathBuf>,
    /// An issuer whose tokens are accepted besides our own.
    pub outside: Option<OutsideIssuer>,
}

/// An outside issuer of tokens. It is trusted to say which broker a caller acts for.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct OutsideIssuer {
    /// `iss` of its tokens.
    pub issuer: String,
    /// Its key set: an `http(s)://` address or an absolute path.
    pub jwks: SecretUrl,
    /// Roles that it may give.
    #[serde(default = "outside_roles")]
    pub roles: Vec<Role>,
    /// Longest life of its tokens.
    #[serde(default = "outside_max_ttl")]
    pub max_ttl_s: Seconds,
    /// How long its key set is used without asking again.
    #[serde(default = "outside_refresh")]
    pub refresh_s: Seconds,
}

fn outside_roles() -> Vec<Role> {
    vec![Role::BrokerAdmin, Role::BrokerOperator, Role::BrokerViewer]
}

fn outside_max_ttl() -> Seconds {
    Seconds(900)
}

fn outside_refresh() -> Seconds {
    Seconds(600)
}

/// The saga engine.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Saga {
    /// How long a claim holds without renewal.
    pub lease_ms: Millis,
    /// Failed tries of one step before the saga is stuck.
    pub max_retries: u32,
    /// The first wait after a failure; each further one doubles.
    pub backoff_base_ms: Millis,
    pub backoff_max_ms: Millis,
    /// Sagas that have not ended after so long, because a system is away, raise an alert.
    pub alert_after_ms: Millis,
    /// How often workers look for work that nothing announced.
    pub poll_ms: Millis,
    /// Sagas that one worker runs at a time.
    pub concurrency: usize,
    /// Sagas taken by one claim.
    pub claim_batch: u32,
    /// Jobs of one book that are appended in one commit.
    pub append_batch: usize,
    /// Sagas that end in one commit.
    pub finish_batch: usize,
}

/// Rules of the network that its operator may set.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// Who may become a broker by themselves.
    pub signup: SignupMode,
    /// How long after `sent` the target has to confirm before an arbiter may be
    /// asked.
    pub confirm_by_s: Seconds,
    /// How long after its completion a request may still be disputed.
    pub dispute_window_s: Seconds,
    /// How long the other side of a dispute has to answer, before it is decided against it.
    pub dispute_answer_s: Seconds,
    /// How long a decision may be appealed; 0: it is final.
    pub appeal_window_s: Seconds,
    /// Who owes whom when a request states no terms of its own, by scenario.
    pub terms: DefaultTerms,
}

/// Netting: of two brokers, and in rounds over the network.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Netting {
    /// Rounds are offered once so many brokers are active.
    pub min_brokers: u64,
    /// How long a proposal to another broker waits, where it doesn't say.
    pub proposal_expiry_s: Seconds,
    /// How long a round waits for its answers, where it doesn't say.
    pub round_expiry_s: Seconds,
}

/// The log of chain heads and its signed checkpoints.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Checkpoints {
    /// The log's name in its checkpoints: unique in the world, and the same for ever.
    pub name: String,
    /// Ed25519 private key, PKCS#8 PEM; or a folder of such files (`*.pem`) while keys are
    /// rotated. Relative to the file that names it. A process without one keeps no log.
    pub signing_key_file: Option<PathBuf>,
    /// Between two looks for heads that have changed.
    pub interval_s: Seconds,
    /// Heads that are taken of one database in one look.
    pub batch: u32,
    /// Databases that are looked at at the same time.
    pub readers: u32,
}

/// The continuous audit of books.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Audit {
    /// Between two audits of all of one book: whoever has changed an entry is named within it.
    pub round_s: Seconds,
    /// A book that has grown is audited again, from where it was known to hold, so long after its
    /// last audit.
    pub growth_s: Seconds,
}

/// Logging, to standard error.
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Log {
    pub format: LogFormat,
    /// A level, or directives such as `info,sqlx=warn`.
    pub level: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    Text,
    Json,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            body_limit_bytes: 1024 * 1024,
            upload_limit_bytes: 10 * 1024 * 1024,
            confirm_wait_ms: Millis(2_000),
            shutdown_grace_ms: Millis(10_000),
            timeout_ms: Millis(30_000),
            idle_timeout_ms: Millis(60_000),
            max_connections: 10_000,
            cors_origins: Vec::new(),
            trusted_proxies: 0,
            token_rate_per_minute: 120,
            token_rate_burst: 60,
            ready_wait_ms: Millis(2_000),
        }
    }
}

impl Default for Pools {
    fn default() -> Self {
        Self {
            max_pools: 64,
            per_pool_connections: 8,
            acquire_timeout_ms: Millis(2_000),
            statement_timeout_ms: Millis(10_000),
            idle_timeout_ms: Millis(300_000),
        }
    }
}

impl Default for Books {
    fn default() -> Self {
        Self {
            database_prefix: "settlenet_".into(),
            move_wait_ms: Millis(5_000),
        }
    }
}

impl Default for Moves {
    fn default() -> Self {
        Self {
            retention_s: Seconds(7 * 24 * 3600),
            poll_ms: Millis(500),
            concurrency: 1,
            lease_ms: Millis(10_000),
            fence_lease_ms: Millis(2_000),
            tail_bound_ms: Millis(800),
            batch_rows: 500,
            tail_rows: 200,
            yield_percent: 100,
            max_tries: 5,
        }
    }
}

impl Default for Tigerbeetle {
    fn default() -> Self {
        Self {
            cluster_id: ClusterId(0),
            addresses: vec![SocketAddr::from(([127, 0, 0, 1], 3000))],
            timeout_ms: Millis(5_000),
        }
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            issuer: "settlenet".into(),
            audience: "settlenet".into(),
            access_ttl_s: Seconds(900),
            refresh_ttl_s: Seconds(7 * 24 * 3600),
            login_ttl_s: Seconds(30 * 24 * 3600),
            leeway_s: Seconds(30),
            key_lead_s: Seconds(300),
            login_attempts: 10,
            address_attempts: 100,
            parallel_hashes: 2,
            hash_wait_ms: Millis(5_000),
            signing_key_file: None,
            outside: None,
        }
    }
}

impl Default for Audit {
    fn default() -> Self {
        Self {
            round_s: Seconds(3600),
            growth_s: Seconds(60),
        }
    }
}

impl Default for Checkpoints {
    fn default() -> Self {
        Self {
            name: "settlenet".into(),
            signing_key_file: None,
            interval_s: Seconds(10),
            batch: 1_000,
            readers: 8,
        }
    }
}

impl Default for Saga {
    fn default() -> Self {
        Self {
            lease_ms: Millis(10_000),
            max_retries: 5,
            backoff_base_ms: Millis(200),
            backoff_max_ms: Millis(10_000),
            alert_after_ms: Millis(60_000),
            poll_ms: Millis(500),
            concurrency: 64,
            claim_batch: 32,
            append_batch: 64,
            finish_batch: 64,
        }
    }
}

impl Default for Network {
    fn default() -> Self {
        Self {
            signup: SignupMode::Invite,
            confirm_by_s: Seconds(3 * 24 * 3600),
            dispute_window_s: Seconds(7 * 24 * 3600),
            dispute_answer_s: Seconds(3 * 24 * 3600),
            appeal_window_s: Seconds(0),
            terms: DefaultTerms::default(),
        }
    }
}

impl Default for Netting {
    fn default() -> Self {
        Self {
            min_brokers: 10,
            proposal_expiry_s: Seconds(7 * 24 * 3600),
            round_expiry_s: Seconds(3 * 24 * 3600),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            format: LogFormat::Text,
            level: "info".into(),
        }
    }
}

impl Config {
    /// Reads the configuration of this process: `file`, or else
    /// [`DEFAULT_FILE`] in the current folder if it is there, and the environment.
    ///
    /// # Errors
    /// When something cannot be read, is unknown, missing or out of bounds.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigError> {
        let default = Path::new(DEFAULT_FILE);
        let file = file.or_else(|| default.exists().then_some(default));
        Self::from_sources(file, std::env::vars_os())
    }

    /// As [`Config::load`], from sources that are all named.
    ///
    /// # Errors
    /// As [`Config::load`].
    pub fn from_sources(
        file: Option<&Path>,
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self, ConfigError> {
        let mut tree = match file {
            Some(path) => source::Tree::from_file(path)?,
            None => source::Tree::default(),
        };
        tree.overlay(environment)?;
        tree.resolve_secret_files()?;
        tree.resolve_paths();
        tree.add_required_sections();
        let config: Self = tree.deserialize()?;
        config.check()?;
        Ok(config)
    }
}
