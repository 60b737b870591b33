//! `MariaDB`: durable at every commit, no binary log, small caches so that
//! several stacks fit side by side.

use std::ffi::OsString;
use std::path::PathBuf;

use secrecy::ExposeSecret as _;
use sqlx::Connection as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlConnection};

use super::server::{Instance, Launch, ServerError, find_program, rename};

/// The account that clients use, from the loopback only.
pub(super) const USER: &str = "settlenet";

fn program(name: &str) -> Result<PathBuf, ServerError> {
    find_program(
        name,
        &[
            "/usr/sbin".into(),
            "/usr/bin".into(),
            "/usr/local/sbin".into(),
        ],
    )
}

fn option(name: &str, value: impl Into<OsString>) -> OsString {
    let mut option = OsString::from(format!("--{name}="));
    option.push(value.into());
    option
}

pub(super) async fn prepare(server: &Instance) -> Result<(), ServerError> {
    let data = server.home.join("data");
    let tmpdir = tmpdir(server);
    let failed = |source| ServerError::File {
        path: tmpdir.clone(),
        source,
    };
    std::fs::create_dir_all(&tmpdir).map_err(failed)?;
    server.hand_over(&tmpdir)?;
    if !data.exists() {
        let scratch = server.scratch()?;
        let args = [
            "--no-defaults".into(),
            option("datadir", &scratch),
            option("tmpdir", &tmpdir),
            // Root gets in only through the socket, as the system account.
            "--auth-root-authentication-method=socket".into(),
            "--skip-test-db".into(),
            "--skip-name-resolve".into(),
        ];
        server.run(&program("mariadb-install-db")?, &args).await?;
        rename(&scratch, &data)?;
    }
    write_init_file(server)
}

/// Its own: a server that starts removes temporary tables from its folder, and would take those
/// of another that is being installed.
fn tmpdir(server: &Instance) -> PathBuf {
    server.home.join("tmp")
}

/// Statements that the server runs at each start, before it listens.
fn write_init_file(server: &Instance) -> Result<(), ServerError> {
    let path = server.home.join("init.sql");
    let user = format!("'{USER}'@'127.0.0.1'");
    let password = server.password.expose_secret();
    let sql = format!(
        "CREATE USER IF NOT EXISTS {user} IDENTIFIED BY '{password}';\n\
         ALTER USER {user} IDENTIFIED BY '{password}';\n\
         GRANT ALL PRIVILEGES ON *.* TO {user} WITH GRANT OPTION;\n"
    );
    super::layout::write_private(&path, sql.as_bytes())?;
    server.hand_over(&path)
}

pub(super) fn launch(server: &Instance, port: u16) -> Result<Launch, ServerError> {
    let mut args: Vec<OsString> = vec![
        "--no-defaults".into(),
        option("datadir", server.home.join("data")),
        option("tmpdir", tmpdir(server)),
        // Relative to the data folder: a socket's whole path has 107 bytes at most.
        "--socket=socket".into(),
        option("pid-file", "server.pid"),
        option("init-file", server.home.join("init.sql")),
        option("port", port.to_string()),
    ];
    args.extend(
        [
            "--bind-address=127.0.0.1",
            "--skip-name-resolve",
            "--skip-log-bin",
            "--character-set-server=utf8mb4",
            "--collation-server=utf8mb4_bin",
            "--default-time-zone=+00:00",
            "--transaction-isolation=READ-COMMITTED",
            "--innodb-flush-log-at-trx-commit=1",
            "--innodb-log-file-size=64M",
            "--innodb-buffer-pool-size=128M",
            "--performance-schema=OFF",
            "--max-connections=400",
            // A client that stops inside a transaction must not hold a book's rows.
            "--idle-transaction-timeout=5",
            "--innodb-lock-wait-timeout=3",
        ]
        .map(OsString::from),
    );
    Ok(Launch {
        program: program("mariadbd")?,
        args,
    })
}

pub(super) async fn probe(server: &Instance, port: u16) -> Result<(), String> {
    let options = MySqlConnectOptions::new()
        .host("127.0.0.1")
        .port(port)
        .username(USER)
        .password(server.password.expose_secret());
    let mut connection = MySqlConnection::connect_with(&options)
        .await
        .map_err(|e| e.to_string())?;
    connection.ping().await.map_err(|e| e.to_string())?;
    // A probe that cannot say goodbye has still found the server alive.
    let _ = connection.close().await;
    Ok(())
}
