//! `settlenet dev`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use super::{Failure, print};
use crate::stack::{
    Description, LayoutError, Options, ServerName, StackError, StartedBy, start_detached, supervise,
};

/// Run every server that settlenet needs, on this machine
///
/// Starts two MariaDB servers, PostgreSQL and a TigerBeetle replica with their
/// data under one folder, on free loopback ports, and looks after them until
/// Ctrl-C: one that dies is brought back. When all answer, the folder holds
/// settlenet.toml (a configuration that fits) and stack.json (what runs where).
/// The servers' programs come from `make setup`; SETTLENET_TIGERBEETLE names
/// another TigerBeetle binary.
///
/// The folder's control.sock takes orders, one line each: status, stop NAME,
/// kill NAME, start NAME, pause NAME, resume NAME, hold, shutdown; the names are
/// mariadb-a, mariadb-b, postgres, tigerbeetle.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The folder for all data; made if there is none
    #[arg(long, value_name = "DIR", default_value = ".local/dev")]
    dir: PathBuf,
    /// End when no connection has said `hold` for that long
    #[arg(long, value_name = "SECONDS")]
    linger: Option<u64>,
    /// Return when all is up, and leave it running
    #[arg(long)]
    detach: bool,
    /// Print stack.json, passwords included, to standard output when all is up
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let linger = args.linger.map(Duration::from_secs);
    if args.detach {
        let program = std::env::current_exe()?;
        let start = move || start_detached(&program, &args.dir, linger);
        let (description, _hold, by) = tokio::task::spawn_blocking(start).await??;
        if by == StartedBy::SomebodyElse {
            eprintln!(
                "already running, supervisor pid {}",
                description.supervisor_pid
            );
        }
        show(&description, args.json);
        return Ok(ExitCode::SUCCESS);
    }
    let options = Options {
        dir: args.dir,
        linger,
    };
    match supervise(options, |description| show(description, args.json)).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error @ StackError::Layout(LayoutError::InUse { .. })) => Err(Failure {
            code: ExitCode::from(3),
            error: error.into(),
        }),
        Err(error) => Err(error.into()),
    }
}

fn show(description: &Description, json: bool) {
    if json && let Ok(text) = serde_json::to_string_pretty(description) {
        print(&text);
        return;
    }
    eprintln!("all servers answer:");
    for name in ServerName::ALL {
        let server = &description.servers[&name];
        eprintln!(
            "  {name:<12} 127.0.0.1:{:<6} {}",
            server.port,
            server.home.display()
        );
    }
    eprintln!("configuration: {}", description.config.display());
    eprintln!("supervisor: pid {}", description.supervisor_pid);
}
