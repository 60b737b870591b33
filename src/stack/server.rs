//! The four servers and what is common to running one.

use std::ffi::OsString;
use std::fmt;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::process::Signal;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::account::{Account, AccountError};
use super::layout::LayoutError;
use super::{mariadb, postgres, tigerbeetle};

/// One server of the stack, by the name that orders and descriptions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerName {
    /// The master database and the shared shards.
    MariadbA,
    /// The tenant databases.
    MariadbB,
    Postgres,
    Tigerbeetle,
}

impl ServerName {
    pub const ALL: [Self; 4] = [
        Self::MariadbA,
        Self::MariadbB,
        Self::Postgres,
        Self::Tigerbeetle,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::MariadbA => "mariadb-a",
            Self::MariadbB => "mariadb-b",
            Self::Postgres => "postgres",
            Self::Tigerbeetle => "tigerbeetle",
        }
    }

    /// What asks the server to finish and end.
    pub(super) fn stop_signal(self) -> Signal {
        match self {
            // Its "fast" shutdown, which does not wait for clients to leave.
            Self::Postgres => Signal::INT,
            // TigerBeetle has no orderly shutdown: its journal makes any end a clean one.
            Self::MariadbA | Self::MariadbB | Self::Tigerbeetle => Signal::TERM,
        }
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ServerName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| {
                let known = Self::ALL.map(Self::as_str).join(", ");
                format!("no server {text:?}; the servers are {known}")
            })
    }
}

#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    #[error("{program} is not installed; run `make setup`")]
    NotInstalled { program: String },
    #[error(transparent)]
    Account(#[from] AccountError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("could not run {program}")]
    Spawn {
        program: PathBuf,
        source: std::io::Error,
    },
    #[error("{program} failed ({status}); the end of its output:\n{tail}")]
    Failed {
        program: PathBuf,
        status: std::process::ExitStatus,
        tail: String,
    },
    #[error("{path}: {source}")]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("ended while starting ({status}); the end of {log}:\n{tail}")]
    EndedAtStart {
        status: String,
        log: PathBuf,
        tail: String,
    },
    #[error("not healthy after {seconds} s ({last}); see {log}")]
    Unhealthy {
        seconds: u64,
        last: String,
        log: PathBuf,
    },
    #[error("another process listens on its port {port}")]
    PortTaken { port: u16 },
    #[error("no free port between {} and {}", PORTS.start, PORTS.end)]
    NoPort,
    #[error(
        "{found:?} is not TigerBeetle {}, which the client speaks; run `make setup`",
        crate::TIGERBEETLE_RELEASE
    )]
    WrongRelease { found: String },
    #[error("gave up after {restarts} restarts within {seconds} s")]
    KeepsDying { restarts: usize, seconds: u64 },
}

/// A server's place and identity; everything needed to make and start it.
pub(super) struct Instance {
    pub name: ServerName,
    /// Its own folder, owned by `account` where there is one.
    pub home: PathBuf,
    pub account: Option<Account>,
    pub password: SecretString,
}

/// How to start a server.
pub(super) struct Launch {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Instance {
    pub fn log(&self) -> PathBuf {
        self.home.join("log")
    }

    /// Makes the data folder if there is none; an interrupted attempt leaves
    /// nothing that a later one would take for a whole one.
    pub async fn prepare(&self) -> Result<(), ServerError> {
        match self.name {
            ServerName::MariadbA | ServerName::MariadbB => mariadb::prepare(self).await,
            ServerName::Postgres => postgres::prepare(self).await,
            ServerName::Tigerbeetle => tigerbeetle::prepare(self).await,
        }
    }

    pub fn launch(&self, port: u16) -> Result<Launch, ServerError> {
        match self.name {
            ServerName::MariadbA | ServerName::MariadbB => mariadb::launch(self, port),
            ServerName::Postgres => postgres::launch(self, port),
            ServerName::Tigerbeetle => tigerbeetle::launch(self, port),
        }
    }

    /// Does what a client does; an error is the reason why one could not.
    pub async fn probe(&self, port: u16) -> Result<(), String> {
        match self.name {
            ServerName::MariadbA | ServerName::MariadbB => mariadb::probe(self, port).await,
            ServerName::Postgres => postgres::probe(self, port).await,
            ServerName::Tigerbeetle => tigerbeetle::probe(port).await,
        }
    }

    /// A command that runs as the server's account, in its own process group
    /// (a Ctrl-C in the terminal is for the supervisor), with its home as folder.
    pub fn command(&self, program: &Path) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(program);
        command
            .current_dir(&self.home)
            .stdin(std::process::Stdio::null())
            .process_group(0);
        if let Some(account) = &self.account {
            command.uid(account.uid).gid(account.gid);
            command.env("HOME", &self.home).env("USER", &account.name);
        }
        command
    }

    /// Runs `program` to its end; a failure carries the end of its output.
    pub async fn run(&self, program: &Path, args: &[OsString]) -> Result<(), ServerError> {
        let output = self
            .command(program)
            .args(args)
            // A start that is given up must not go on writing.
            .kill_on_drop(true)
            .output()
            .await
            .map_err(|source| ServerError::Spawn {
                program: program.into(),
                source,
            })?;
        if output.status.success() {
            return Ok(());
        }
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        Err(ServerError::Failed {
            program: program.into(),
            status: output.status,
            tail: last_lines(&text),
        })
    }

    /// Gives `path` to the account that the server runs under.
    pub fn hand_over(&self, path: &Path) -> Result<(), ServerError> {
        let Some(account) = &self.account else {
            return Ok(());
        };
        std::os::unix::fs::chown(path, Some(account.uid), Some(account.gid)).map_err(|source| {
            ServerError::File {
                path: path.into(),
                source,
            }
        })
    }

    /// An empty scratch folder inside the home, to be renamed once complete.
    pub fn scratch(&self) -> Result<PathBuf, ServerError> {
        let path = self.home.join("data.new");
        let failed = |source| ServerError::File {
            path: path.clone(),
            source,
        };
        if path.exists() {
            std::fs::remove_dir_all(&path).map_err(failed)?;
        }
        std::fs::create_dir(&path).map_err(failed)?;
        self.hand_over(&path)?;
        Ok(path)
    }
}

/// Puts what is complete in its place.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), ServerError> {
    std::fs::rename(from, to).map_err(|source| ServerError::File {
        path: to.into(),
        source,
    })
}

/// `program` on the PATH or in one of `folders`.
pub(super) fn find_program(program: &str, folders: &[PathBuf]) -> Result<PathBuf, ServerError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(folders.iter().cloned())
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| ServerError::NotInstalled {
            program: program.into(),
        })
}

/// Where ports are chosen: below what the kernel gives to outgoing connections
/// (from 32768), so that no client can sit on a port while its server restarts.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// Whether a server could listen on `port` of the loopback now.
pub(super) fn port_is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).is_ok()
}

/// A loopback port that nothing listens on and `taken` does not hold.
pub(super) fn choose_port(taken: &[u16]) -> Result<u16, ServerError> {
    (0..1_000)
        .map(|_| rand::random_range(PORTS))
        .find(|port| !taken.contains(port) && port_is_free(*port))
        .ok_or(ServerError::NoPort)
}

/// The last lines of a log, enough to see why a server gave up.
pub(super) fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(15)..].join("\n")
}
