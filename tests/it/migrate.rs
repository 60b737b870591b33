//! Migrations over all databases of a network.

use std::process::{Command, Output, Stdio};
use std::time::Duration;

use settlenet::services::migration::{Report, migrate_all};
use settlenet::stores::migrate::{Kind, MigrationError, migrate};
use sqlx::mysql::MySqlConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::harness::{Databases, private_stack, program};

const NO_PROGRESS: fn(&Report, usize, usize) = |_, _, _| {};

async fn open(url: &settlenet::config::SecretUrl) -> MySqlConnection {
    MySqlConnection::connect(url.expose())
        .await
        .expect("MariaDB answers")
}

async fn tables(url: &settlenet::config::SecretUrl) -> Vec<String> {
    sqlx::query_scalar(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.tables \
         WHERE table_schema = DATABASE() ORDER BY 1",
    )
    .fetch_all(&mut open(url).await)
    .await
    .expect("a list of tables")
}

/// A master that knows one shard and `tenants` tenant databases.
async fn network(tenants: usize) -> Databases {
    let mut databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master)
        .await
        .expect("the master is migrated");
    let shard = databases.shard.clone();
    register_shard(&databases, "a", &shard).await;
    for _ in 0..tenants {
        let name = databases.tenant().await;
        register_tenant(&databases, "b", &name).await;
    }
    databases
}

async fn register_shard(databases: &Databases, server: &str, name: &str) {
    sqlx::query(
        "INSERT INTO shared_shard (server_name, database_name, capacity, created_at) \
         VALUES (?, ?, 1000, '2026-01-01')",
    )
    .bind(server)
    .bind(name)
    .execute(&mut open(databases.master_url()).await)
    .await
    .expect("the shard is registered");
}

async fn register_tenant(databases: &Databases, server: &str, name: &str) {
    sqlx::query(
        "INSERT INTO broker (name, broker_mode, plan, state, server_name, database_name, \
         created_at) VALUES (?, 'FULL', 'pro', 'active', ?, ?, '2026-01-01')",
    )
    .bind(format!("Broker of {name}"))
    .bind(server)
    .bind(name)
    .execute(&mut open(databases.master_url()).await)
    .await
    .expect("the broker is registered");
}

#[tokio::test]
async fn every_database_gets_what_its_kind_needs_once() {
    let databases = network(2).await;
    let config = databases.config();
    let reports = migrate_all(&config, NO_PROGRESS).await.unwrap();
    assert_eq!(reports.len(), 5);
    // The payment manager's is one for all tests, and another may have come first.
    let books = reports[1..]
        .iter()
        .filter(|report| report.database.kind != Kind::PaymentManager);
    for report in books {
        assert!(*report.outcome.as_ref().unwrap() > 0, "{report:?}");
    }
    let tenant = tables(&databases.url("b", &databases.tenants[0])).await;
    let shard = tables(&databases.shard_url()).await;
    for table in &tenant {
        assert!(shard.contains(table), "a shard lacks a tenant's {table}");
    }
    let more: Vec<_> = shard
        .iter()
        .filter(|table| !tenant.contains(table))
        .collect();
    assert!(
        more.len() >= 2,
        "a shard has its own history and tables besides: {more:?}"
    );

    let mut payments = sqlx::PgConnection::connect(config.postgres.url.expose())
        .await
        .unwrap();
    let there: bool = sqlx::query_scalar("SELECT to_regclass('pm.idempotency_key') IS NOT NULL")
        .fetch_one(&mut payments)
        .await
        .unwrap();
    assert!(there);

    let again = migrate_all(&config, NO_PROGRESS).await.unwrap();
    assert!(
        again.iter().all(|report| matches!(report.outcome, Ok(0))),
        "{again:?}"
    );
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_created() {
    let databases = network(0).await;
    let name = format!("{}later", databases.prefix);
    register_tenant(&databases, "b", &name).await;
    let reports = migrate_all(&databases.config(), NO_PROGRESS).await.unwrap();
    assert!(
        reports.iter().all(|report| report.outcome.is_ok()),
        "{reports:?}"
    );
    assert!(!tables(&databases.url("b", &name)).await.is_empty());
}

#[tokio::test]
async fn a_run_that_died_half_way_is_taken_up_again() {
    let databases = network(1).await;
    let url = databases.url("b", &databases.tenants[0]);
    let applied = migrate(&url, Kind::Tenant).await.unwrap();
    // As a process killed after the statement and before its mark leaves it.
    let mut connection = open(&url).await;
    sqlx::query("UPDATE _sqlx_migrations SET success = FALSE ORDER BY version DESC LIMIT 1")
        .execute(&mut connection)
        .await
        .unwrap();
    assert_eq!(migrate(&url, Kind::Tenant).await.unwrap(), 1);
    let done: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations WHERE success")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert_eq!(usize::try_from(done).unwrap(), applied);
}

/// Runs the program on this network with a configuration of its own.
fn settlenet_migrate(databases: &Databases) -> std::process::Child {
    Command::new(program())
        .arg("migrate")
        .arg("--config")
        .arg(databases.config_file())
        .env("SETTLENET_MASTER__URL", databases.master_url().expose())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs")
}

fn ended(child: std::process::Child) -> (Output, String) {
    let output = child.wait_with_output().expect("the program ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, said)
}

#[tokio::test]
async fn two_processes_at_once_take_turns() {
    let databases = network(6).await;
    let children: Vec<_> = (0..2).map(|_| settlenet_migrate(&databases)).collect();
    for child in children {
        let (output, said) = ended(child);
        assert!(output.status.success(), "{said}");
    }
    let mut expected = None;
    for tenant in &databases.tenants {
        let (all, done): (i64, i64) =
            sqlx::query_as("SELECT COUNT(*), CAST(SUM(success) AS SIGNED) FROM _sqlx_migrations")
                .fetch_one(&mut open(&databases.url("b", tenant)).await)
                .await
                .unwrap();
        assert_eq!(all, done);
        assert_eq!(*expected.get_or_insert(all), all);
    }
}

#[tokio::test]
async fn failures_are_named_and_hold_up_nobody_else() {
    let databases = network(1).await;
    register_tenant(&databases, "nowhere", "some_database").await;
    register_tenant(&databases, "b", "no`name").await;
    let (output, said) = ended(settlenet_migrate(&databases));
    assert_eq!(output.status.code(), Some(1), "{said}");
    let last = said.lines().last().unwrap();
    assert!(last.contains("2 of 6 failed"), "{said}");
    assert!(
        last.contains("nowhere/some_database") && last.contains("b/no`name"),
        "{said}"
    );
    assert!(
        !tables(&databases.url("b", &databases.tenants[0]))
            .await
            .is_empty()
    );
    assert!(
        !said.contains(password(&databases)),
        "no password in what is said"
    );
}

/// As in an outage: what can be migrated is, what can't is named, and the next run finishes.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_away_is_gone_past() {
    let stack = private_stack().await;
    let mut databases = Databases::on(&stack).await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let shard = databases.shard.clone();
    register_shard(&databases, "a", &shard).await;
    let tenant = databases.tenant().await;
    register_tenant(&databases, "b", &tenant).await;
    let run = async || -> (Option<i32>, serde_json::Value) {
        let mut command = Command::new(program());
        command
            .args(["migrate", "--json", "--config"])
            .arg(databases.config_file())
            .env("SETTLENET_MASTER__URL", databases.master_url().expose());
        let output = tokio::task::spawn_blocking(move || command.output());
        let output = output.await.unwrap().unwrap();
        (
            output.status.code(),
            serde_json::from_slice(&output.stdout).unwrap(),
        )
    };
    let result = |all: &serde_json::Value, name: &str| {
        let of = |one: &&serde_json::Value| one["database"].as_str().unwrap().ends_with(name);
        all.as_array().unwrap().iter().find(of).unwrap().clone()
    };
    stack.order("kill mariadb-b").await;
    let (code, all) = run().await;
    assert_eq!(code, Some(1), "{all}");
    assert_eq!(result(&all, &databases.master)["result"], "already");
    assert_eq!(result(&all, &shard)["result"], "applied");
    let away = result(&all, &tenant);
    assert_eq!(away["result"], "failed");
    assert!(
        away["error"].as_str().unwrap().contains("not reachable"),
        "{away}"
    );
    stack.order("start mariadb-b").await;
    let (code, all) = run().await;
    assert_eq!(code, Some(0), "{all}");
    assert_eq!(result(&all, &tenant)["result"], "applied");
    assert_eq!(result(&all, &shard)["result"], "already");
}

fn password(databases: &Databases) -> &str {
    let url = databases.master_url().expose();
    url.split(':')
        .nth(2)
        .and_then(|rest| rest.split('@').next())
        .expect("a password in the URL")
}

#[tokio::test]
async fn the_lock_makes_others_wait() {
    let databases = network(0).await;
    let url = databases.shard_url();
    let mut other = open(&url).await;
    let got: i64 = sqlx::query_scalar("SELECT CAST(GET_LOCK(?, 0) AS SIGNED)")
        .bind(
            format!("mig:{}", databases.shard)
                .chars()
                .take(64)
                .collect::<String>(),
        )
        .fetch_one(&mut other)
        .await
        .unwrap();
    assert_eq!(got, 1);
    let waiting = tokio::time::timeout(Duration::from_millis(300), migrate(&url, Kind::Shared));
    assert!(waiting.await.is_err(), "it waits");
    assert!(tables(&url).await.is_empty(), "and does nothing meanwhile");
    drop(other);
    migrate(&url, Kind::Shared).await.unwrap();
}

#[tokio::test]
async fn a_master_that_is_down_is_told_quickly() {
    let databases = Databases::new().await;
    let mut config = databases.config();
    config.master.url = settlenet::config::SecretUrl::new("mysql://u:p@127.0.0.1:1/master");
    let error = migrate_all(&config, NO_PROGRESS).await.unwrap_err();
    assert!(matches!(error, MigrationError::Connect(_)), "{error:?}");
}

#[tokio::test]
async fn every_file_is_safe_to_run_again() {
    let databases = Databases::new().await;
    let places = [
        (Kind::Master, databases.master_url().clone()),
        (Kind::Shared, databases.shard_url()),
    ];
    for (kind, url) in places {
        migrate(&url, kind)
            .await
            .unwrap_or_else(|e| panic!("{kind:?}: {e}"));
        let mut connection = open(&url).await;
        for history in ["_sqlx_migrations", "_sqlx_migrations_shared"] {
            sqlx::query(AssertSqlSafe(format!("DROP TABLE IF EXISTS {history}")))
                .execute(&mut connection)
                .await
                .unwrap();
        }
        migrate(&url, kind)
            .await
            .unwrap_or_else(|e| panic!("{kind:?} again: {e}"));
    }
}
