//! The supervisor: starting, ordering, dying, coming back.

use std::process::{Command, Stdio};
use std::time::Duration;

use settlenet::stack::{
    Control, ControlError, Description, ServerName, ServerState, StartedBy, start_detached,
};
use sqlx::mysql::MySqlConnection;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Connection as _};

use crate::harness::{Databases, Stack, own_folder, private_stack, program, stack, until};

const SOON: Duration = Duration::from_secs(30);

fn signal(name: &str, pid: impl std::fmt::Display) {
    let done = Command::new("kill")
        .arg(format!("-{name}"))
        .arg(pid.to_string())
        .status();
    assert!(done.expect("kill runs").success());
}

async fn count(url: &str, table: &str) -> sqlx::Result<i64> {
    let mut connection = MySqlConnection::connect(url).await?;
    sqlx::query_scalar(AssertSqlSafe(format!("SELECT COUNT(*) FROM {table}")))
        .fetch_one(&mut connection)
        .await
}

async fn write_row(url: &str, table: &str) {
    let mut connection = MySqlConnection::connect(url)
        .await
        .expect("MariaDB answers");
    for sql in [
        format!("CREATE TABLE IF NOT EXISTS {table} (n INT NOT NULL) ENGINE=InnoDB"),
        format!("INSERT INTO {table} VALUES (1)"),
    ] {
        sqlx::query(AssertSqlSafe(sql))
            .execute(&mut connection)
            .await
            .expect("the row is written");
    }
}

#[tokio::test]
async fn servers_have_the_settings_that_promises_rest_on() {
    let databases = Databases::new().await;
    for url in [databases.master_url().clone(), databases.shard_url()] {
        let mut connection = MySqlConnection::connect(url.expose()).await.unwrap();
        let row: (i64, String, f64, f64, i64, String, i64) = sqlx::query_as(
            "SELECT CAST(@@innodb_flush_log_at_trx_commit AS INT), CAST(@@tx_isolation AS CHAR), \
             CAST(@@idle_transaction_timeout AS DOUBLE), CAST(@@innodb_lock_wait_timeout AS DOUBLE), \
             CAST(@@log_bin AS INT), CAST(@@bind_address AS CHAR), CAST(@@max_connections AS INT)",
        )
        .fetch_one(&mut connection)
        .await
        .unwrap();
        assert_eq!(
            row,
            (
                1,
                "READ-COMMITTED".into(),
                5.0,
                3.0,
                0,
                "127.0.0.1".into(),
                400
            )
        );
    }
    let mut postgres = PgConnection::connect(stack().url(ServerName::Postgres))
        .await
        .unwrap();
    for (setting, value) in [
        ("fsync", "on"),
        ("synchronous_commit", "on"),
        ("TimeZone", "UTC"),
    ] {
        let found: String = sqlx::query_scalar("SELECT current_setting($1)")
            .bind(setting)
            .fetch_one(&mut postgres)
            .await
            .unwrap();
        assert_eq!(found, value, "{setting}");
    }
}

#[tokio::test]
async fn the_ledger_takes_forty_clients_at_once() {
    let config = tokio::task::spawn_blocking(stack).await.unwrap().config();
    let address = config.tigerbeetle.addresses[0].to_string();
    let cluster = config.tigerbeetle.cluster_id.0;
    let clients: Vec<_> = (0..40)
        .map(|_| tigerbeetle_unofficial::Client::new(cluster, &address).unwrap())
        .collect();
    let lookups = clients
        .iter()
        .map(|client| client.lookup_accounts(vec![u128::MAX - 7]));
    let answers = tokio::time::timeout(SOON, futures::future::join_all(lookups)).await;
    for answer in answers.expect("all forty have a session") {
        assert!(answer.unwrap().is_empty());
    }
}

#[tokio::test]
async fn a_server_that_dies_comes_back_with_its_data() {
    let stack = private_stack().await;
    let databases = Databases::on(&stack).await;
    let url = databases.shard_url();
    write_row(url.expose(), "kept").await;
    for name in ServerName::ALL {
        let before = stack.server(name);
        signal("KILL", before.pid.unwrap());
        until("the server is back", SOON, async || {
            let now = stack.server(name);
            now.state == ServerState::Running && now.pid != before.pid && now.port == before.port
        })
        .await;
        assert_eq!(stack.server(name).restarts, 1);
    }
    assert_eq!(count(url.expose(), "kept").await.unwrap(), 1);
    drop(databases);
    stopped_killed_and_paused(&stack).await;
}

/// Part of the test above: a private stack takes seconds to make.
async fn stopped_killed_and_paused(stack: &Stack) {
    let url = stack.url(ServerName::MariadbB);
    let answers = async || {
        let ping = async { MySqlConnection::connect(url).await?.ping().await };
        matches!(
            tokio::time::timeout(Duration::from_millis(500), ping).await,
            Ok(Ok(()))
        )
    };
    for order in ["stop", "kill"] {
        stack.order(format!("{order} mariadb-b")).await;
        assert_eq!(
            stack.server(ServerName::MariadbB).state,
            ServerState::Stopped
        );
        assert!(!answers().await, "{order} leaves it down");
        stack.order("start mariadb-b").await;
        assert!(answers().await, "start returns when it answers");
    }
    stack.order("pause mariadb-b").await;
    assert_eq!(
        stack.server(ServerName::MariadbB).state,
        ServerState::Paused
    );
    assert!(!answers().await, "a paused server gives no answer");
    stack.order("resume mariadb-b").await;
    assert!(answers().await);
    // The whole family: backends would go on while their head is stopped.
    let postgres = stack.url(ServerName::Postgres);
    let mut open = PgConnection::connect(postgres).await.unwrap();
    stack.order("pause postgres").await;
    assert!(
        tokio::time::timeout(Duration::from_millis(300), open.ping())
            .await
            .is_err()
    );
    stack.order("resume postgres").await;
    stack.order("pause postgres").await;
    stack.order("stop postgres").await;
    stack.order("start postgres").await;
    PgConnection::connect(postgres).await.unwrap();

    let mut control = Control::connect(stack.dir()).unwrap();
    assert!(matches!(
        control.request("stop nothing"),
        Err(ControlError::Refused(_))
    ));
    assert!(matches!(
        control.request("dance"),
        Err(ControlError::Refused(_))
    ));
}

#[tokio::test]
async fn a_stack_has_one_supervisor_and_outlives_its_death() {
    let folder = own_folder().await;
    let dir = folder.dir.clone();
    let start = {
        let dir = dir.clone();
        move || start_detached(program(), &dir, Some(Duration::from_secs(1))).unwrap()
    };
    let (first, hold, by) = tokio::task::spawn_blocking(start.clone()).await.unwrap();
    assert_eq!(by, StartedBy::ThisCall);
    write_row(
        &format!("{}/mysql", first.url(ServerName::MariadbA)),
        "kept",
    )
    .await;

    let second = Command::new(program())
        .arg("dev")
        .arg("--dir")
        .arg(&dir)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(3), "{said}");
    assert!(
        said.contains(&format!("pid {}", first.supervisor_pid)),
        "{said}"
    );

    // Its death leaves the servers; the next supervisor takes their place.
    signal("KILL", first.supervisor_pid);
    drop(hold);
    let (next, hold, by) = tokio::task::spawn_blocking(start).await.unwrap();
    assert_eq!(by, StartedBy::ThisCall);
    assert_ne!(next.supervisor_pid, first.supervisor_pid);
    for name in ServerName::ALL {
        assert_eq!(
            next.servers[&name].port, first.servers[&name].port,
            "{name} keeps its port"
        );
    }
    let url = format!("{}/mysql", next.url(ServerName::MariadbA));
    assert_eq!(count(&url, "kept").await.unwrap(), 1);

    // Nobody holds it any more: it ends by itself, servers and all.
    let pids: Vec<i32> = {
        let status = Control::connect(&dir).unwrap().status().unwrap();
        status.servers.iter().filter_map(|s| s.pid).collect()
    };
    assert_eq!(pids.len(), 4);
    drop(hold);
    until("the stack ends by itself", SOON, async || {
        Control::connect(&dir).is_err() && Description::read(&dir).unwrap().is_none()
    })
    .await;
    until("its servers end", SOON, async || {
        pids.iter()
            .all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists())
    })
    .await;
}

#[tokio::test]
async fn a_stack_ends_in_order_on_sigterm_even_while_starting() {
    let folder = own_folder().await;
    let mut child = Command::new(program())
        .arg("dev")
        .arg("--dir")
        .arg(&folder.dir)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the supervisor listens", SOON, async || {
        Control::connect(&folder.dir).is_ok()
    })
    .await;
    signal("TERM", child.id());
    let mut status = None;
    until("the supervisor ends", SOON, async || {
        status = child.try_wait().unwrap();
        status.is_some()
    })
    .await;
    assert!(status.is_some_and(|status| status.success()));
}

#[tokio::test]
async fn a_server_that_keeps_dying_is_given_up_until_it_is_started() {
    let stack = private_stack().await;
    let name = ServerName::MariadbB;
    // Five times it is brought back; the sixth death within the minute is too much.
    for _ in 0..6 {
        let pid = stack.server(name).pid.unwrap();
        signal("KILL", pid);
        until("it is back or given up", SOON, async || {
            let now = stack.server(name);
            matches!(now.state, ServerState::Running | ServerState::Failed) && now.pid != Some(pid)
        })
        .await;
    }
    let given_up = stack.server(name);
    assert_eq!(given_up.state, ServerState::Failed);
    assert!(given_up.problem.unwrap().contains("gave up"));
    assert_eq!(
        stack.server(ServerName::MariadbA).state,
        ServerState::Running
    );
    stack.order("start mariadb-b").await;
    assert_eq!(stack.server(name).state, ServerState::Running);
}
