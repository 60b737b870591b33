//! The supervisor's own life: take the folder, bring all servers up, tell
//! others, wait for a reason to end, bring all servers down.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::account::Account;
use super::control::{self, Desk, ServerDesk};
use super::description::{self, Description, ServerDescription};
use super::keeper::{Keeper, ServerState, ServerStatus, end_leftover};
use super::layout::{Layout, LayoutError};
use super::presence::Presence;
use super::say;
use super::server::{Instance, ServerError, ServerName, choose_port, port_is_free};

/// Orders that may wait for one server.
const ORDER_QUEUE: usize = 16;
/// The name under which the HTTP server's port is remembered.
const HTTP: &str = "http";

/// What to supervise, and until when.
#[derive(Debug, Clone)]
pub struct Options {
    /// The stack's folder; made if there is none.
    pub dir: PathBuf,
    /// End by itself once nobody has held the stack for that long.
    pub linger: Option<Duration>,
}

#[derive(Debug, thiserror::Error)]
pub enum StackError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("{name}")]
    Server {
        name: ServerName,
        source: ServerError,
    },
    #[error("{name} did not start: {reason}")]
    NotStarted { name: ServerName, reason: String },
    #[error(transparent)]
    Ports(ServerError),
    #[error("control socket in {dir}")]
    Socket {
        dir: PathBuf,
        source: std::io::Error,
    },
    #[error("signal handlers")]
    Signals(#[source] std::io::Error),
}

/// Runs a stack until it is told to end (SIGINT, SIGTERM, SIGHUP, `shutdown`)
/// or nobody needs it any more. `ready` is called once, when all is healthy.
///
/// # Errors
/// When the folder is in use or a server does not come up; whatever did come up
/// is down again by then.
pub async fn supervise(
    options: Options,
    ready: impl FnOnce(&Description),
) -> Result<(), StackError> {
    // From here on no signal ends the process by itself.
    let mut signals = Signals::new().map_err(StackError::Signals)?;
    let layout = Layout::open(&options.dir)?;
    let _lock = layout.lock()?;
    Description::withdraw(&layout);
    let password = layout.password()?;
    let listener = control::listen(layout.dir()).map_err(|source| StackError::Socket {
        dir: layout.dir().into(),
        source,
    })?;

    let closing = CancellationToken::new();
    let keepers = TaskTracker::new();
    let (is_ready, ready_watcher) = watch::channel(false);
    let instances = ServerName::ALL
        .into_iter()
        .map(|name| instance(&layout, name, &password))
        .collect::<Result<Vec<_>, _>>()?;
    // A supervisor that was killed leaves its servers, on the ports wanted now.
    futures::future::join_all(instances.iter().map(|s| end_leftover(s.name, &s.home))).await;
    let mut ports = choose_ports(&layout)?;
    let mut homes = BTreeMap::new();
    let mut servers = Vec::new();
    for server in instances {
        let name = server.name;
        homes.insert(name, server.home.clone());
        let (keeper, status) = Keeper::new(server, ports[name.as_str()]);
        let (orders, received) = mpsc::channel(ORDER_QUEUE);
        keepers.spawn(keeper.keep(received, closing.clone()));
        servers.push(ServerDesk {
            name,
            status,
            orders,
        });
    }
    keepers.close();
    let desk = Arc::new(Desk {
        presence: Presence::new(),
        ready: ready_watcher,
        servers,
        closing: closing.clone(),
    });
    let desk_task = tokio::spawn(control::serve(listener, Arc::clone(&desk)));

    let life = async {
        let statuses = all_running(&desk).await?;
        let servers = statuses.iter().map(|status| {
            ports.insert(status.name.to_string(), status.port);
            let server = ServerDescription {
                port: status.port,
                url: description::url(status.name, status.port, &password),
                home: homes[&status.name].clone(),
            };
            (status.name, server)
        });
        let description = Description {
            format: 1,
            supervisor_pid: std::process::id(),
            dir: layout.dir().into(),
            config: layout.config(),
            servers: servers.collect(),
        };
        layout.write_ports(&ports)?;
        description.write(&layout, ports[HTTP])?;
        is_ready.send_replace(true);
        ready(&description);
        match options.linger {
            Some(linger) => {
                desk.presence.abandoned(linger).await;
                say(&format!("nobody has held it for {} s", linger.as_secs()));
            }
            None => std::future::pending::<()>().await,
        }
        Ok(())
    };
    let outcome = tokio::select! {
        outcome = life => outcome,
        name = signals.next() => {
            say(&format!("{name} received"));
            Ok(())
        }
        () = closing.cancelled() => {
            say("told to shut down");
            Ok(())
        }
    };

    desk.presence.close();
    Description::withdraw(&layout);
    say("stopping");
    closing.cancel();
    keepers.wait().await;
    desk_task.abort();
    control::withdraw(layout.dir());
    say("stopped");
    outcome
}

fn instance(
    layout: &Layout,
    name: ServerName,
    password: &SecretString,
) -> Result<Instance, StackError> {
    let account = match name {
        ServerName::MariadbA | ServerName::MariadbB => Account::when_root("mysql"),
        ServerName::Postgres => Account::when_root("postgres"),
        ServerName::Tigerbeetle => Ok(None),
    }
    .map_err(|e| StackError::Server {
        name,
        source: e.into(),
    })?;
    let home = layout.home(name, account.as_ref())?;
    Ok(Instance {
        name,
        home,
        account,
        password: password.clone(),
    })
}

/// The remembered ports where they are still free, others in their place.
fn choose_ports(layout: &Layout) -> Result<BTreeMap<String, u16>, StackError> {
    let remembered = layout.read_ports();
    let mut ports = BTreeMap::new();
    for name in ServerName::ALL
        .map(ServerName::as_str)
        .into_iter()
        .chain([HTTP])
    {
        let taken: Vec<u16> = ports.values().copied().collect();
        let port = match remembered.get(name).copied() {
            // An HTTP server that outlived the stack may hold its own port.
            Some(port) if !taken.contains(&port) && (name == HTTP || port_is_free(port)) => port,
            _ => choose_port(&taken).map_err(StackError::Ports)?,
        };
        ports.insert(name.to_owned(), port);
    }
    Ok(ports)
}

/// Waits until every server answers; an error as soon as one has failed.
async fn all_running(desk: &Desk) -> Result<Vec<ServerStatus>, StackError> {
    let waits = desk.servers.iter().map(|server| async {
        let mut status = server.status.clone();
        let settled = status
            .wait_for(|s| matches!(s.state, ServerState::Running | ServerState::Failed))
            .await
            .map(|s| s.clone());
        match settled {
            Ok(status) if status.state == ServerState::Running => {
                say(&format!(
                    "{} answers on 127.0.0.1:{}",
                    status.name, status.port
                ));
                Ok(status)
            }
            Ok(status) => Err(StackError::NotStarted {
                name: server.name,
                reason: status.problem.unwrap_or_default(),
            }),
            Err(_) => Err(StackError::NotStarted {
                name: server.name,
                reason: "its keeper ended".into(),
            }),
        }
    });
    futures::future::try_join_all(waits).await
}

/// The signals that end a supervisor in an orderly way.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hangup.recv() => "SIGHUP",
        }
    }
}
