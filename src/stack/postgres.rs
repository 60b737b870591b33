//! `PostgreSQL`: default durability, loopback only, no Unix socket.

use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgSslMode};
use sqlx::{AssertSqlSafe, Connection as _};

use super::server::{Instance, Launch, ServerError, find_program, rename};

/// The role that clients use, and the database that they find.
pub(super) const USER: &str = "settlenet";
pub(super) const DATABASE: &str = "settlenet";

/// Debian keeps the server's programs outside the PATH, by major version.
fn program(name: &str) -> Result<PathBuf, ServerError> {
    let mut folders: Vec<PathBuf> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path().join("bin")))
        .collect();
    // The newest first, by number: 9.6 must not win over 15.
    folders.sort_by_key(|folder| {
        let major = folder
            .parent()
            .and_then(|p| p.file_name()?.to_str()?.parse::<u32>().ok());
        std::cmp::Reverse(major.unwrap_or(0))
    });
    find_program(name, &folders)
}

pub(super) async fn prepare(server: &Instance) -> Result<(), ServerError> {
    let data = server.home.join("data");
    if data.exists() {
        return Ok(());
    }
    let scratch = server.scratch()?;
    let password_file = server.home.join("password");
    super::layout::write_private(&password_file, server.password.expose_secret().as_bytes())?;
    server.hand_over(&password_file)?;
    let mut pwfile = OsString::from("--pwfile=");
    pwfile.push(&password_file);
    let args = [
        "-D".into(),
        scratch.clone().into(),
        "-U".into(),
        USER.into(),
        "--auth=scram-sha-256".into(),
        pwfile,
        "-E".into(),
        "UTF8".into(),
        "--locale=C.UTF-8".into(),
    ];
    server.run(&program("initdb")?, &args).await?;
    rename(&scratch, &data)
}

pub(super) fn launch(server: &Instance, port: u16) -> Result<Launch, ServerError> {
    let mut args: Vec<OsString> = vec!["-D".into(), server.home.join("data").into()];
    let port = format!("port={port}");
    for setting in [
        port.as_str(),
        "listen_addresses=127.0.0.1",
        // No socket at all: its path would be bound to 107 bytes.
        "unix_socket_directories=",
        "timezone=UTC",
        "log_timezone=UTC",
        "max_connections=200",
        "shared_buffers=64MB",
        "idle_in_transaction_session_timeout=5s",
        "lock_timeout=3s",
    ] {
        args.extend(["-c".into(), setting.into()]);
    }
    Ok(Launch {
        program: program("postgres")?,
        args,
    })
}

/// Connects, and creates [`DATABASE`] the first time.
pub(super) async fn probe(server: &Instance, port: u16) -> Result<(), String> {
    let options = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(port)
        .username(USER)
        .password(server.password.expose_secret())
        .ssl_mode(PgSslMode::Disable)
        .database("postgres");
    let mut connection = PgConnection::connect_with(&options)
        .await
        .map_err(|e| e.to_string())?;
    let exists: bool =
        sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM pg_database WHERE datname = $1)")
            .bind(DATABASE)
            .fetch_one(&mut connection)
            .await
            .map_err(|e| e.to_string())?;
    if !exists {
        sqlx::query(AssertSqlSafe(format!("CREATE DATABASE {DATABASE}")))
            .execute(&mut connection)
            .await
            .map_err(|e| e.to_string())?;
    }
    // A probe that cannot say goodbye has still found the server alive.
    let _ = connection.close().await;
    Ok(())
}
