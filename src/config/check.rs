//! Bounds, each in one line.

use std::fmt::Display;
use std::ops::RangeInclusive;

use crate::domain::checkpoint::{ORIGIN_MAX, is_origin};

use super::{Config, ConfigError, OutsideIssuer, SecretUrl};

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;
const DAY: u64 = 24 * 3600;

impl Config {
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let http = &self.http;
        within(
            "http.body_limit_bytes",
            http.body_limit_bytes,
            KIB..=64 * MIB,
        )?;
        within(
            "http.upload_limit_bytes",
            http.upload_limit_bytes,
            KIB..=1024 * MIB,
        )?;
        within("http.confirm_wait_ms", http.confirm_wait_ms.0, 0..=60_000)?;
        within(
            "http.shutdown_grace_ms",
            http.shutdown_grace_ms.0,
            0..=600_000,
        )?;
        within("http.timeout_ms", http.timeout_ms.0, 100..=600_000)?;
        within(
            "http.idle_timeout_ms",
            http.idle_timeout_ms.0,
            100..=600_000,
        )?;
        within("http.max_connections", http.max_connections, 1..=1_000_000)?;
        for origin in &http.cors_origins {
            check_origin(origin)?;
        }
        within("http.trusted_proxies", http.trusted_proxies, 0..=16)?;
        within(
            "http.token_rate_per_minute",
            http.token_rate_per_minute,
            1..=1_000_000,
        )?;
        within(
            "http.token_rate_burst",
            http.token_rate_burst,
            1..=1_000_000,
        )?;
        within("http.ready_wait_ms", http.ready_wait_ms.0, 10..=60_000)?;

        database("master.url", &self.master.url, "mysql", true)?;
        within(
            "master.max_connections",
            self.master.max_connections,
            1..=10_000,
        )?;
        if self.servers.is_empty() {
            return Err(wrong(
                "servers",
                "none".into(),
                "at least one server, as [servers.NAME] with its url".into(),
            ));
        }
        for (name, server) in &self.servers {
            database(&format!("servers.{name}.url"), &server.url, "mysql", false)?;
            let key = format!("servers.{name}.max_connections");
            within(&key, server.max_connections, 1..=10_000)?;
        }
        self.check_pools_and_ledger()?;
        self.check_auth()?;
        self.check_saga()?;
        self.check_moves()?;
        self.payments.check()?;
        within(
            "network.confirm_by_s",
            self.network.confirm_by_s.0,
            60..=365 * DAY,
        )?;
        for (name, value, range) in [
            (
                "network.dispute_window_s",
                self.network.dispute_window_s,
                0..=365 * DAY,
            ),
            (
                "network.dispute_answer_s",
                self.network.dispute_answer_s,
                60..=90 * DAY,
            ),
            (
                "network.appeal_window_s",
                self.network.appeal_window_s,
                0..=90 * DAY,
            ),
        ] {
            within(name, value.0, range)?;
        }
        let netting = &self.netting;
        within("netting.min_brokers", netting.min_brokers, 2..=1_000_000)?;
        within(
            "netting.proposal_expiry_s",
            netting.proposal_expiry_s.0,
            60..=90 * DAY,
        )?;
        within(
            "netting.round_expiry_s",
            netting.round_expiry_s.0,
            60..=90 * DAY,
        )?;
        self.check_checkpoints()?;
        check_level(&self.log.level)
    }

    fn check_checkpoints(&self) -> Result<(), ConfigError> {
        let checkpoints = &self.checkpoints;
        if !is_origin(&checkpoints.name) {
            return Err(wrong(
                "checkpoints.name",
                format!("{:?}", checkpoints.name),
                format!("1 to {ORIGIN_MAX} visible ASCII characters without '+'"),
            ));
        }
        within("checkpoints.interval_s", checkpoints.interval_s.0, 1..=DAY)?;
        within("audit.round_s", self.audit.round_s.0, 60..=30 * DAY)?;
        within("audit.growth_s", self.audit.growth_s.0, 1..=DAY)?;
        within("checkpoints.batch", checkpoints.batch, 1..=10_000)?;
        within("checkpoints.readers", checkpoints.readers, 1..=256)
    }

    fn check_pools_and_ledger(&self) -> Result<(), ConfigError> {
        let prefix = &self.books.database_prefix;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if prefix.len() > 32 || !prefix.chars().all(plain) {
            return Err(wrong(
                "books.database_prefix",
                format!("{prefix:?}"),
                "at most 32 letters, digits and '_'".into(),
            ));
        }
        let pools = &self.pools;
        within("pools.max_pools", pools.max_pools, 1..=100_000)?;
        within(
            "pools.per_pool_connections",
            pools.per_pool_connections,
            1..=1_000,
        )?;
        within(
            "pools.acquire_timeout_ms",
            pools.acquire_timeout_ms.0,
            50..=60_000,
        )?;
        within(
            "pools.statement_timeout_ms",
            pools.statement_timeout_ms.0,
            100..=600_000,
        )?;
        within(
            "pools.idle_timeout_ms",
            pools.idle_timeout_ms.0,
            1_000..=86_400_000,
        )?;

        database("postgres.url", &self.postgres.url, "postgres", true)?;
        within(
            "postgres.max_connections",
            self.postgres.max_connections,
            1..=10_000,
        )?;

        let replicas = self.tigerbeetle.addresses.len();
        if !(1..=6).contains(&replicas) {
            return Err(wrong(
                "tigerbeetle.addresses",
                format!("{replicas} addresses"),
                "1 to 6, one per replica".into(),
            ));
        }
        within(
            "tigerbeetle.timeout_ms",
            self.tigerbeetle.timeout_ms.0,
            100..=120_000,
        )?;
        Ok(())
    }

    fn check_auth(&self) -> Result<(), ConfigError> {
        let auth = &self.auth;
        text("auth.issuer", &auth.issuer)?;
        text("auth.audience", &auth.audience)?;
        within("auth.access_ttl_s", auth.access_ttl_s.0, 10..=900)?;
        within("auth.refresh_ttl_s", auth.refresh_ttl_s.0, 60..=365 * DAY)?;
        within("auth.login_ttl_s", auth.login_ttl_s.0, 60..=365 * DAY)?;
        within("auth.leeway_s", auth.leeway_s.0, 0..=120)?;
        within("auth.key_lead_s", auth.key_lead_s.0, 0..=7 * DAY)?;
        within("auth.login_attempts", auth.login_attempts, 1..=1_000_000)?;
        within(
            "auth.address_attempts",
            auth.address_attempts,
            1..=1_000_000,
        )?;
        within("auth.parallel_hashes", auth.parallel_hashes, 1..=1_024)?;
        within("auth.hash_wait_ms", auth.hash_wait_ms.0, 0..=60_000)?;
        if let Some(outside) = &auth.outside {
            self.check_outside(outside)?;
        }
        Ok(())
    }

    fn check_saga(&self) -> Result<(), ConfigError> {
        let saga = &self.saga;
        within("saga.lease_ms", saga.lease_ms.0, 500..=600_000)?;
        within("saga.max_retries", saga.max_retries, 0..=1_000)?;
        within("saga.backoff_base_ms", saga.backoff_base_ms.0, 1..=60_000)?;
        within(
            "saga.backoff_max_ms",
            saga.backoff_max_ms.0,
            saga.backoff_base_ms.0..=3_600_000,
        )?;
        within(
            "saga.alert_after_ms",
            saga.alert_after_ms.0,
            100..=86_400_000,
        )?;
        within("saga.poll_ms", saga.poll_ms.0, 10..=60_000)?;
        within("saga.concurrency", saga.concurrency, 1..=10_000)?;
        within("saga.claim_batch", saga.claim_batch, 1..=10_000)?;
        within("saga.append_batch", saga.append_batch, 1..=10_000)?;
        within("saga.finish_batch", saga.finish_batch, 1..=10_000)?;

        Ok(())
    }

    fn check_moves(&self) -> Result<(), ConfigError> {
        let moves = &self.moves;
        let wait = self.books.move_wait_ms.0;
        within("books.move_wait_ms", wait, 0..=60_000)?;
        within("moves.retention_s", moves.retention_s.0, 0..=365 * DAY)?;
        within("moves.poll_ms", moves.poll_ms.0, 10..=60_000)?;
        within("moves.concurrency", moves.concurrency, 1..=100)?;
        within("moves.lease_ms", moves.lease_ms.0, 1_000..=600_000)?;
        within("moves.fence_lease_ms", moves.fence_lease_ms.0, 200..=60_000)?;
        let most = moves.fence_lease_ms.0;
        within("moves.tail_bound_ms", moves.tail_bound_ms.0, 10..=most)?;
        // A row has up to 21 values, and a statement takes 65,535.
        within("moves.batch_rows", moves.batch_rows, 10..=2_000)?;
        let most = moves.batch_rows as u64 - 1;
        within("moves.tail_rows", moves.tail_rows, 1..=most)?;
        within("moves.yield_percent", moves.yield_percent, 0..=10_000)?;
        within("moves.max_tries", moves.max_tries, 1..=1_000)
    }

    fn check_outside(&self, outside: &OutsideIssuer) -> Result<(), ConfigError> {
        text("auth.outside.issuer", &outside.issuer)?;
        if outside.issuer == self.auth.issuer {
            return Err(wrong(
                "auth.outside.issuer",
                outside.issuer.clone(),
                "another issuer than auth.issuer".into(),
            ));
        }
        let starts = ["https://", "http://", "/"];
        if !starts
            .iter()
            .any(|start| outside.jwks.expose().starts_with(start))
        {
            return Err(wrong(
                "auth.outside.jwks",
                outside.jwks.to_string(),
                "an http or https URL, or an absolute path".into(),
            ));
        }
        within("auth.outside.max_ttl_s", outside.max_ttl_s.0, 60..=DAY)?;
        within("auth.outside.refresh_s", outside.refresh_s.0, 10..=DAY)
    }
}

/// What a browser sends as `Origin`: a scheme, a host, perhaps a port, and nothing after.
fn check_origin(origin: &str) -> Result<(), ConfigError> {
    let host = ["https://", "http://"]
        .iter()
        .find_map(|scheme| origin.strip_prefix(scheme));
    let plain = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    if host.is_some_and(|host| !host.is_empty() && host.chars().all(plain)) {
        return Ok(());
    }
    Err(wrong(
        "http.cors_origins",
        format!("{origin:?}"),
        "origins such as https://desk.example or http://localhost:5173".into(),
    ))
}

/// A level, or directives such as `info,sqlx=warn`. A lone word that is no level would be taken
/// for a target, and nothing else be logged.
fn check_level(level: &str) -> Result<(), ConfigError> {
    let word = level.chars().all(|c| c.is_ascii_alphanumeric());
    let known = level
        .parse::<tracing_subscriber::filter::LevelFilter>()
        .is_ok();
    let directives = level.parse::<tracing_subscriber::EnvFilter>();
    match directives {
        Ok(_) if known || !word => Ok(()),
        Ok(_) | Err(_) => Err(wrong(
            "log.level",
            format!("{level:?}"),
            "off, error, warn, info, debug, trace, or directives such as info,sqlx=warn".into(),
        )),
    }
}

pub(super) fn wrong(key: &str, found: String, allowed: String) -> ConfigError {
    ConfigError::Wrong {
        key: key.to_owned(),
        found,
        place: None,
        allowed,
    }
}

pub(super) fn within<T: Copy + PartialOrd + Display>(
    key: &str,
    value: T,
    allowed: RangeInclusive<T>,
) -> Result<(), ConfigError> {
    if allowed.contains(&value) {
        return Ok(());
    }
    Err(wrong(
        key,
        value.to_string(),
        format!("{} to {}", allowed.start(), allowed.end()),
    ))
}

fn text(key: &str, value: &str) -> Result<(), ConfigError> {
    if value.is_empty() || value.len() > 255 {
        return Err(wrong(
            key,
            format!("{value:?}"),
            "1 to 255 characters".into(),
        ));
    }
    Ok(())
}

fn database(
    key: &str,
    url: &SecretUrl,
    scheme: &str,
    with_database: bool,
) -> Result<(), ConfigError> {
    let allowed = match (scheme, with_database) {
        ("mysql", true) => "mysql://USER:PASSWORD@HOST:PORT/DATABASE",
        ("mysql", false) => "mysql://USER:PASSWORD@HOST:PORT, without a database",
        _ => "postgres://USER:PASSWORD@HOST:PORT/DATABASE",
    };
    let parsed = match scheme {
        "mysql" => url
            .expose()
            .parse::<sqlx::mysql::MySqlConnectOptions>()
            .is_ok(),
        _ => url
            .expose()
            .parse::<sqlx::postgres::PgConnectOptions>()
            .is_ok(),
    };
    let schemed = url.expose().starts_with(&format!("{scheme}://"))
        || (scheme == "postgres" && url.expose().starts_with("postgresql://"));
    if parsed && schemed && url.database().is_some() == with_database {
        return Ok(());
    }
    Err(wrong(key, format!("{:?}", url.to_string()), allowed.into()))
}
