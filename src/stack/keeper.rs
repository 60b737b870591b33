//! Keeps one server running: starts it, watches it, brings it back when it dies
//! unasked, and carries out orders.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use tokio::process::Child;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::process::ProcessId;
use super::say;
use super::server::{Instance, ServerError, ServerName, choose_port, last_lines, port_is_free};

/// How long a start may take; a cold machine and crash recovery included.
const START_LIMIT: Duration = Duration::from_secs(90);
/// How long a server may take to end by itself before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(20);
/// How often a server may die unasked within [`RESTART_WINDOW`].
const RESTARTS: usize = 5;
const RESTART_WINDOW: Duration = Duration::from_mins(1);
const PROBE_PERIOD: Duration = Duration::from_millis(50);
/// How long a predecessor's port may stay busy.
const PORT_LIMIT: Duration = Duration::from_secs(5);
/// Between a failed restart and the next.
const RESTART_PAUSE: Duration = Duration::from_millis(500);
/// How many ports a first start tries, should another process be quicker.
const PORT_TRIES: usize = 5;

/// What a server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    Starting,
    /// Answers its clients.
    Running,
    /// Stopped by SIGSTOP: connections stay open and get no answer.
    Paused,
    /// Down because somebody asked for it.
    Stopped,
    /// Down and given up.
    Failed,
}

/// One server as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerStatus {
    pub name: ServerName,
    pub state: ServerState,
    /// Of the server's process, while there is one.
    pub pid: Option<i32>,
    /// On 127.0.0.1.
    pub port: u16,
    /// How often it was brought back after dying unasked.
    pub restarts: u32,
    /// Why it is not running, where there is a reason to tell.
    pub problem: Option<String>,
}

/// What can be asked of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Stop,
    Kill,
    Start,
    Pause,
    Resume,
}

pub(super) type OrderReply = oneshot::Sender<Result<(), String>>;

/// See the module.
pub(super) struct Keeper {
    server: Instance,
    status: watch::Sender<ServerStatus>,
    port: u16,
    /// A port that clients have been told never changes again.
    port_is_known: bool,
    deaths: VecDeque<Instant>,
}

/// Why a running server is no longer watched.
enum End {
    Unasked(ExitStatus),
    Asked,
    Closing,
}

impl Keeper {
    pub fn new(server: Instance, port: u16) -> (Self, watch::Receiver<ServerStatus>) {
        let (status, watcher) = watch::channel(ServerStatus {
            name: server.name,
            state: ServerState::Starting,
            pid: None,
            port,
            restarts: 0,
            problem: None,
        });
        let keeper = Self {
            server,
            status,
            port,
            port_is_known: false,
            deaths: VecDeque::new(),
        };
        (keeper, watcher)
    }

    /// Runs until `closing`, then ends the server and returns.
    pub async fn keep(
        mut self,
        mut orders: mpsc::Receiver<(Order, OrderReply)>,
        closing: CancellationToken,
    ) {
        // Whoever ordered the start that is under way.
        let mut waiting: Option<OrderReply> = None;
        loop {
            let started = tokio::select! {
                started = self.bring_up() => started,
                () = closing.cancelled() => {
                    end_leftover(self.server.name, &self.server.home).await;
                    return;
                }
            };
            let end = match started {
                Ok(mut child) => {
                    if let Some(reply) = waiting.take() {
                        let _ = reply.send(Ok(()));
                    }
                    self.watch(&mut child, &mut orders, &closing).await
                }
                Err(error) => {
                    let reason = describe(&error);
                    say(&format!("{}: {reason}", self.server.name));
                    end_leftover(self.server.name, &self.server.home).await;
                    // One that has run before may need another try: what its
                    // last life left is not always gone at once.
                    if self.port_is_known && waiting.is_none() && self.may_restart() {
                        tokio::select! {
                            () = tokio::time::sleep(RESTART_PAUSE) => continue,
                            () = closing.cancelled() => return,
                        }
                    }
                    if let Some(reply) = waiting.take() {
                        let _ = reply.send(Err(reason.clone()));
                    }
                    self.set(ServerState::Failed, None, Some(reason));
                    End::Asked
                }
            };
            match end {
                End::Closing => return,
                End::Asked => match self.wait_for_start(&mut orders, &closing).await {
                    Some(reply) => waiting = Some(reply),
                    None => return,
                },
                End::Unasked(status) => {
                    if let Err(error) = self.note_death(status) {
                        say(&format!("{}: {error}", self.server.name));
                        self.set(ServerState::Failed, None, Some(error.to_string()));
                        match self.wait_for_start(&mut orders, &closing).await {
                            Some(reply) => waiting = Some(reply),
                            None => return,
                        }
                    }
                }
            }
        }
    }

    fn set(&self, state: ServerState, pid: Option<i32>, problem: Option<String>) {
        self.status.send_modify(|status| {
            status.state = state;
            status.pid = pid;
            status.port = self.port;
            status.problem = problem;
        });
    }

    /// Counts a death or a failed restart; false when there were too many of late.
    fn may_restart(&mut self) -> bool {
        let now = Instant::now();
        self.deaths.push_back(now);
        while self
            .deaths
            .front()
            .is_some_and(|at| now - *at > RESTART_WINDOW)
        {
            self.deaths.pop_front();
        }
        self.deaths.len() <= RESTARTS
    }

    /// Counts an unasked death; an error when there were too many of late.
    fn note_death(&mut self, status: ExitStatus) -> Result<(), ServerError> {
        if !self.may_restart() {
            return Err(ServerError::KeepsDying {
                restarts: RESTARTS,
                seconds: RESTART_WINDOW.as_secs(),
            });
        }
        say(&format!(
            "{} died unasked ({status}); bringing it back",
            self.server.name
        ));
        self.status.send_modify(|status| status.restarts += 1);
        Ok(())
    }

    /// Starts the server and waits until it answers.
    async fn bring_up(&mut self) -> Result<Child, ServerError> {
        self.set(ServerState::Starting, None, None);
        end_leftover(self.server.name, &self.server.home).await;
        self.server.prepare().await?;
        for _ in 1..PORT_TRIES {
            match self.start_once().await {
                Err(ServerError::PortTaken { .. }) if !self.port_is_known => {
                    self.port = choose_port(&[self.port])?;
                }
                // Somebody was quicker between our look at the port and its start.
                Err(ServerError::EndedAtStart { .. })
                    if !self.port_is_known && !port_is_free(self.port) =>
                {
                    self.port = choose_port(&[self.port])?;
                }
                Ok(child) => {
                    self.port_is_known = true;
                    return Ok(child);
                }
                Err(error) => return Err(error),
            }
        }
        self.start_once().await
    }

    async fn start_once(&self) -> Result<Child, ServerError> {
        self.port_freed().await?;
        let launch = self.server.launch(self.port)?;
        let log = self.server.log();
        let failed = |source| ServerError::File {
            path: log.clone(),
            source,
        };
        if log.exists() {
            fs::rename(&log, log.with_extension("1")).map_err(failed)?;
        }
        let output = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .map_err(failed)?;
        let errors = output.try_clone().map_err(failed)?;
        let mut child = self
            .server
            .command(&launch.program)
            .args(&launch.args)
            .stdout(Stdio::from(output))
            .stderr(Stdio::from(errors))
            .spawn()
            .map_err(|source| ServerError::Spawn {
                program: launch.program.clone(),
                source,
            })?;
        let process = child.id().and_then(ProcessId::of);
        if let Some(process) = process {
            let path = pid_file(&self.server.home);
            process
                .write(&path)
                .map_err(|source| ServerError::File { path, source })?;
        }
        self.set(ServerState::Starting, process.map(|p| p.pid), None);

        let deadline = Instant::now() + START_LIMIT;
        loop {
            let last = match self.server.probe(self.port).await {
                Ok(()) => String::new(),
                Err(reason) => reason,
            };
            // Asked after the probe: what answered may be another's server.
            if let Some(status) = child.try_wait().map_err(failed)? {
                let tail = last_lines(&fs::read_to_string(&log).unwrap_or_default());
                return Err(ServerError::EndedAtStart {
                    status: status.to_string(),
                    log,
                    tail,
                });
            }
            if last.is_empty() {
                self.set(ServerState::Running, process.map(|p| p.pid), None);
                return Ok(child);
            }
            if Instant::now() >= deadline {
                return Err(ServerError::Unhealthy {
                    seconds: START_LIMIT.as_secs(),
                    last,
                    log,
                });
            }
            tokio::time::sleep(PROBE_PERIOD).await;
        }
    }

    /// Waits for a predecessor's port: the kernel closes what an io_uring held
    /// only after the process is gone, and a probe would find it answering.
    async fn port_freed(&self) -> Result<(), ServerError> {
        let deadline = Instant::now() + PORT_LIMIT;
        while !port_is_free(self.port) {
            if Instant::now() >= deadline {
                return Err(ServerError::PortTaken { port: self.port });
            }
            tokio::time::sleep(PROBE_PERIOD).await;
        }
        Ok(())
    }

    /// Carries out orders until the server is down, whatever the reason.
    async fn watch(
        &mut self,
        child: &mut Child,
        orders: &mut mpsc::Receiver<(Order, OrderReply)>,
        closing: &CancellationToken,
    ) -> End {
        let Some(process) = child.id().and_then(ProcessId::of) else {
            return End::Unasked(child.wait().await.unwrap_or_default());
        };
        loop {
            tokio::select! {
                status = child.wait() => {
                    self.forget();
                    return End::Unasked(status.unwrap_or_default());
                }
                () = closing.cancelled() => {
                    end_child(self.server.name, process, child).await;
                    self.forget();
                    self.set(ServerState::Stopped, None, None);
                    return End::Closing;
                }
                Some((order, reply)) = orders.recv() => {
                    let down = self.obey(order, process, child).await;
                    let _ = reply.send(Ok(()));
                    if down {
                        return End::Asked;
                    }
                }
            }
        }
    }

    /// Carries out one order; true when the server is down afterwards.
    async fn obey(&self, order: Order, process: ProcessId, child: &mut Child) -> bool {
        match order {
            Order::Start => false,
            Order::Pause => {
                signal_family(process, Signal::STOP);
                self.set(ServerState::Paused, Some(process.pid), None);
                false
            }
            Order::Resume => {
                signal_family(process, Signal::CONT);
                self.set(ServerState::Running, Some(process.pid), None);
                false
            }
            Order::Stop => {
                end_child(self.server.name, process, child).await;
                self.forget();
                self.set(ServerState::Stopped, None, None);
                true
            }
            Order::Kill => {
                signal_family(process, Signal::KILL);
                let _ = child.wait().await;
                self.forget();
                self.set(ServerState::Stopped, None, Some("killed by order".into()));
                true
            }
        }
    }

    fn forget(&self) {
        let _ = fs::remove_file(pid_file(&self.server.home));
    }

    /// With the server down: waits for the order to start it; `None` = closing.
    async fn wait_for_start(
        &mut self,
        orders: &mut mpsc::Receiver<(Order, OrderReply)>,
        closing: &CancellationToken,
    ) -> Option<OrderReply> {
        loop {
            tokio::select! {
                () = closing.cancelled() => return None,
                Some((order, reply)) = orders.recv() => match order {
                    Order::Start => {
                        self.deaths.clear();
                        return Some(reply);
                    }
                    Order::Stop | Order::Kill => {
                        let _ = reply.send(Ok(()));
                    }
                    Order::Pause | Order::Resume => {
                        let _ = reply.send(Err(format!("{} is down", self.server.name)));
                    }
                }
            }
        }
    }
}

/// Ends what an earlier supervisor, or an abandoned start, left running.
/// True when there was something to end.
pub(super) async fn end_leftover(name: ServerName, home: &Path) -> bool {
    let path = pid_file(home);
    let process = ProcessId::read(&path).filter(|process| process.is_alive());
    if let Some(process) = process {
        end(name, process).await;
    }
    let _ = fs::remove_file(path);
    process.is_some()
}

/// Where the server's process is recorded while there is one.
fn pid_file(home: &Path) -> PathBuf {
    home.join("process.json")
}

/// Ends a process: asks, waits, and kills it if it does not follow.
async fn end(name: ServerName, process: ProcessId) {
    // A paused process would not hear anything but SIGKILL.
    signal_family(process, Signal::CONT);
    process.signal(name.stop_signal());
    if !process.gone_within(STOP_LIMIT).await {
        say(&format!("{name} does not end by itself; killing it"));
        signal_family(process, Signal::KILL);
        process.gone_within(STOP_LIMIT).await;
    }
}

/// To the process and all that it started.
fn signal_family(process: ProcessId, signal: Signal) {
    for member in process.family() {
        member.signal(signal);
    }
}

async fn end_child(name: ServerName, process: ProcessId, child: &mut Child) {
    // Ending and reaping go together: unreaped, it would stay a zombie.
    tokio::join!(end(name, process), async {
        let _ = child.wait().await;
    });
}

/// An error with all its causes in one line.
fn describe(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}
