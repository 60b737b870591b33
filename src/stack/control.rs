//! The control socket: one line asks, one line answers.
//!
//! | asked | answered once |
//! |---|---|
//! | `status` | at once: `ok` and a JSON object |
//! | `stop NAME`, `kill NAME` | the server is down, and stays down |
//! | `start NAME` | the server answers its clients |
//! | `pause NAME`, `resume NAME` | SIGSTOP or SIGCONT is sent |
//! | `hold` | at once; the stack stays up as long as the connection lasts |
//! | `shutdown` | at once; the connection ends when the supervisor does |
//!
//! Whatever fails is answered by `error` and the reason. Of the answers only
//! `ok` and `error` are for programs.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use super::keeper::{Order, OrderReply, ServerStatus};
use super::presence::Presence;
use super::server::ServerName;

const FILE: &str = "control.sock";
/// A longer line is not an order.
const LINE_LIMIT: u64 = 4_096;

/// The answer to `status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackStatus {
    pub supervisor_pid: u32,
    /// All servers have answered once and `stack.json` is written.
    pub ready: bool,
    pub servers: Vec<ServerStatus>,
}

#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("no supervisor answers in {dir}")]
    NotRunning {
        dir: PathBuf,
        source: std::io::Error,
    },
    #[error("the supervisor hung up")]
    HungUp(#[source] std::io::Error),
    #[error("{0}")]
    Refused(String),
    #[error("the supervisor answered {0:?}, which is not understood")]
    Garbled(String),
}

/// A client's connection to a stack's supervisor. Blocking: orders such as
/// `stop` take as long as the server needs.
#[derive(Debug)]
pub struct Control {
    lines: BufReader<UnixStream>,
}

impl Control {
    /// Connects to the supervisor that runs in `dir`.
    ///
    /// # Errors
    /// [`ControlError::NotRunning`] when there is none.
    pub fn connect(dir: &Path) -> Result<Self, ControlError> {
        let failed = |source| ControlError::NotRunning {
            dir: dir.into(),
            source,
        };
        let (_folder, path) = short_path(dir).map_err(failed)?;
        let stream = UnixStream::connect(path).map_err(failed)?;
        Ok(Self {
            lines: BufReader::new(stream),
        })
    }

    /// Sends one line and returns what follows `ok` in the answer.
    ///
    /// # Errors
    /// The supervisor's reason when it refuses, or its silence.
    pub fn request(&mut self, line: &str) -> Result<String, ControlError> {
        writeln!(self.lines.get_mut(), "{line}").map_err(ControlError::HungUp)?;
        let mut answer = String::new();
        let read = self
            .lines
            .read_line(&mut answer)
            .map_err(ControlError::HungUp)?;
        if read == 0 {
            return Err(ControlError::HungUp(
                std::io::ErrorKind::UnexpectedEof.into(),
            ));
        }
        let answer = answer.trim_end();
        match answer.split_once(' ').unwrap_or((answer, "")) {
            ("ok", rest) => Ok(rest.to_owned()),
            ("error", reason) => Err(ControlError::Refused(reason.to_owned())),
            _ => Err(ControlError::Garbled(answer.to_owned())),
        }
    }

    /// What the supervisor and its servers are doing.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn status(&mut self) -> Result<StackStatus, ControlError> {
        let answer = self.request("status")?;
        serde_json::from_str(&answer).map_err(|_| ControlError::Garbled(answer))
    }

    /// Keeps the stack up as long as this connection lives.
    ///
    /// # Errors
    /// [`ControlError::Refused`] when the stack is already closing.
    pub fn hold(&mut self) -> Result<(), ControlError> {
        self.request("hold").map(drop)
    }

    /// Ends the stack and returns when its supervisor has ended.
    ///
    /// # Errors
    /// As [`Control::request`].
    pub fn shutdown(mut self) -> Result<(), ControlError> {
        self.request("shutdown")?;
        // The end of the supervisor ends the connection, in whichever way.
        let _ = self.lines.read_line(&mut String::new());
        Ok(())
    }
}

/// The socket under a path short enough for the 107 bytes that it may have:
/// through this process's own handle on the folder, which must stay open.
fn short_path(dir: &Path) -> std::io::Result<(std::fs::File, PathBuf)> {
    let folder = std::fs::File::open(dir)?;
    let path = Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join(FILE);
    Ok((folder, path))
}

pub(super) fn listen(dir: &Path) -> std::io::Result<UnixListener> {
    withdraw(dir);
    let (_folder, path) = short_path(dir)?;
    let listener = UnixListener::bind(path)?;
    // Whoever may send orders owns the stack.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(dir.join(FILE), mode)?;
    Ok(listener)
}

/// Removes the socket, also one that a dead supervisor left.
pub(super) fn withdraw(dir: &Path) {
    let _ = std::fs::remove_file(dir.join(FILE));
}

/// What connections act upon.
pub(super) struct Desk {
    pub presence: Presence,
    pub ready: watch::Receiver<bool>,
    pub servers: Vec<ServerDesk>,
    /// Cancelled by `shutdown`.
    pub closing: CancellationToken,
}

/// One server's status and the way to its keeper.
pub(super) struct ServerDesk {
    pub name: ServerName,
    pub status: watch::Receiver<ServerStatus>,
    pub orders: mpsc::Sender<(Order, OrderReply)>,
}

/// Answers connections until dropped.
pub(super) async fn serve(listener: UnixListener, desk: Arc<Desk>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                tokio::spawn(talk(stream, Arc::clone(&desk)));
            }
            // Out of file handles, most likely: others may give some back.
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(100)).await,
        }
    }
}

/// One conversation. A client that goes away ends it; nothing is lost by that.
async fn talk(stream: tokio::net::UnixStream, desk: Arc<Desk>) {
    let (reader, mut writer) = stream.into_split();
    let mut reader = tokio::io::BufReader::new(reader);
    let mut hold = None;
    loop {
        let mut line = String::new();
        let mut limited = tokio::io::AsyncReadExt::take(&mut reader, LINE_LIMIT);
        match limited.read_line(&mut line).await {
            Ok(n) if n > 0 && line.ends_with('\n') => {}
            Ok(_) | Err(_) => return,
        }
        let mut words = line.split_ascii_whitespace();
        let answer = match (words.next(), words.next(), words.next()) {
            (Some("status"), None, None) => desk.status(),
            (Some("hold"), None, None) => {
                if hold.is_none() {
                    hold = desk.presence.hold();
                }
                match hold {
                    Some(_) => Ok("held".into()),
                    None => Err("the stack is closing".into()),
                }
            }
            (Some("shutdown"), None, None) => {
                desk.presence.close();
                desk.closing.cancel();
                Ok("closing".into())
            }
            (Some("stop"), Some(name), None) => desk.order(Order::Stop, name).await,
            (Some("kill"), Some(name), None) => desk.order(Order::Kill, name).await,
            (Some("start"), Some(name), None) => desk.order(Order::Start, name).await,
            (Some("pause"), Some(name), None) => desk.order(Order::Pause, name).await,
            (Some("resume"), Some(name), None) => desk.order(Order::Resume, name).await,
            _ => Err(
                "orders are: status, hold, shutdown, and stop, kill, start, pause, \
                      resume with a server's name"
                    .into(),
            ),
        };
        let answer = match answer {
            Ok(text) => format!("ok {text}\n"),
            Err(reason) => format!("error {}\n", reason.replace('\n', " | ")),
        };
        if writer.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

impl Desk {
    fn status(&self) -> Result<String, String> {
        let status = StackStatus {
            supervisor_pid: std::process::id(),
            ready: *self.ready.borrow(),
            servers: self
                .servers
                .iter()
                .map(|s| s.status.borrow().clone())
                .collect(),
        };
        serde_json::to_string(&status).map_err(|e| e.to_string())
    }

    async fn order(&self, order: Order, name: &str) -> Result<String, String> {
        let name: ServerName = name.parse()?;
        let closing = || "the stack is closing".to_owned();
        let server = self
            .servers
            .iter()
            .find(|s| s.name == name)
            .ok_or_else(closing)?;
        let (reply, answer) = oneshot::channel();
        server
            .orders
            .send((order, reply))
            .await
            .map_err(|_| closing())?;
        answer
            .await
            .map_err(|_| closing())?
            .map(|()| name.to_string())
    }
}
