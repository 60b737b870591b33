//! `stack.json` and `settlenet.toml`: how others find the servers.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ed25519_dalek::SigningKey;
use ed25519_dalek::pkcs8::EncodePrivateKey as _;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use super::layout::{Layout, LayoutError, write_private};
use super::server::ServerName;
use super::{mariadb, postgres, tigerbeetle};

/// What runs in a stack's folder. The file is there only while all of it is
/// supposed to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Description {
    /// Raised when a field changes its meaning.
    pub format: u32,
    pub supervisor_pid: u32,
    pub dir: PathBuf,
    /// A configuration that fits these servers.
    pub config: PathBuf,
    pub servers: BTreeMap<ServerName, ServerDescription>,
}

/// How to reach one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerDescription {
    /// On 127.0.0.1.
    pub port: u16,
    /// With the password, for SQL servers; `IP:PORT` for `TigerBeetle`.
    pub url: String,
    /// Where it keeps its data and its log.
    pub home: PathBuf,
}

impl Description {
    /// The description in `dir`, or `None` if no stack is up there.
    ///
    /// # Errors
    /// When the file cannot be read or is not a description.
    pub fn read(dir: &Path) -> std::io::Result<Option<Self>> {
        match std::fs::read(file(dir)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The URL of a server; see [`ServerDescription::url`].
    ///
    /// # Panics
    /// Never: a description holds all servers.
    pub fn url(&self, name: ServerName) -> &str {
        &self.servers[&name].url
    }

    /// Writes the description, and before it the configuration and its key.
    pub(super) fn write(&self, layout: &Layout, http_port: u16) -> Result<(), LayoutError> {
        let [tokens, log] = ["signing-key.pem", "log-key.pem"].map(|name| layout.dir().join(name));
        for key in [&tokens, &log] {
            if !key.exists() {
                write_private(key, new_signing_key(key)?.as_bytes())?;
            }
        }
        let settings = self.settings(http_port, &tokens, &log);
        write_private(&layout.config(), settings.as_bytes())?;
        let path = file(layout.dir());
        let bytes = serde_json::to_vec_pretty(self).map_err(|e| LayoutError::Io {
            path: path.clone(),
            source: e.into(),
        })?;
        write_private(&path, &bytes)
    }

    pub(super) fn withdraw(layout: &Layout) {
        let _ = std::fs::remove_file(file(layout.dir()));
    }

    fn settings(&self, http_port: u16, tokens: &Path, log: &Path) -> String {
        let a = self.url(ServerName::MariadbA);
        let b = self.url(ServerName::MariadbB);
        let mut text =
            String::from("# Written by `settlenet dev` at each start; changes are lost.\n");
        let mut section = |name: &str, lines: &[(&str, String)]| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\n[{name}]");
            for (key, value) in lines {
                let _ = writeln!(text, "{key} = {value}");
            }
        };
        let quoted = |value: &str| toml::Value::String(value.to_owned()).to_string();
        section(
            "http",
            &[("listen", quoted(&format!("127.0.0.1:{http_port}")))],
        );
        section(
            "master",
            &[("url", quoted(&format!("{a}/settlenet_master")))],
        );
        section("servers.a", &[("url", quoted(a))]);
        section("servers.b", &[("url", quoted(b))]);
        section(
            "postgres",
            &[("url", quoted(self.url(ServerName::Postgres)))],
        );
        section(
            "tigerbeetle",
            &[
                ("cluster_id", tigerbeetle::CLUSTER_ID.to_string()),
                (
                    "addresses",
                    format!("[{}]", quoted(self.url(ServerName::Tigerbeetle))),
                ),
            ],
        );
        section(
            "auth",
            &[("signing_key_file", quoted(&tokens.to_string_lossy()))],
        );
        section(
            "checkpoints",
            &[("signing_key_file", quoted(&log.to_string_lossy()))],
        );
        text
    }
}

fn file(dir: &Path) -> PathBuf {
    dir.join("stack.json")
}

/// The URL of a server on `port`, with its password where it has one.
pub(super) fn url(name: ServerName, port: u16, password: &secrecy::SecretString) -> String {
    let password = password.expose_secret();
    match name {
        ServerName::MariadbA | ServerName::MariadbB => {
            format!("mysql://{}:{password}@127.0.0.1:{port}", mariadb::USER)
        }
        ServerName::Postgres => format!(
            "postgres://{}:{password}@127.0.0.1:{port}/{}?sslmode=disable",
            postgres::USER,
            postgres::DATABASE
        ),
        ServerName::Tigerbeetle => format!("127.0.0.1:{port}"),
    }
}

/// An Ed25519 key in PKCS#8 PEM, for what this stack signs.
fn new_signing_key(path: &Path) -> Result<String, LayoutError> {
    let key = SigningKey::from_bytes(&rand::random::<[u8; 32]>());
    let pem = key.to_pkcs8_pem(ed25519_dalek::pkcs8::spki::der::pem::LineEnding::LF);
    pem.map(|pem| pem.to_string()).map_err(|e| LayoutError::Io {
        path: path.into(),
        source: std::io::Error::other(e.to_string()),
    })
}
