//! The command line: one file per subcommand.

mod admin;
mod bench;
mod config;
mod demo;
mod dev;
mod down;
mod ids;
mod ledger;
mod logging;
mod migrate;
mod openapi;
mod progress;
mod psp_sim;
mod reconcile;
mod serve;
pub mod settings;
mod table;
mod verify;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Exit codes that every subcommand keeps to; clap itself ends with 2 for a
/// command line that it does not understand.
const EXIT_CODES: &str = "\
Exit codes: 0 done; 1 failed, the reason on standard error; 2 the command line \
or the configuration is wrong; 3 another process is in the way.";

const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (commit ",
    env!("SETTLENET_COMMIT"),
    ", speaks TigerBeetle 0.16.78)"
);

/// A server for a network of brokers that settle with each other.
///
/// New here? `settlenet demo` shows the main job on this machine and leaves a server
/// running; `settlenet dev` runs just the databases and the ledger.
#[derive(Debug, Parser)]
#[command(name = "settlenet", version = VERSION, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Bench(bench::Args),
    Demo(demo::Args),
    Dev(dev::Args),
    Down(down::Args),
    Config(config::Args),
    Migrate(migrate::Args),
    Serve(serve::Args),
    Worker(worker::Args),
    Admin(admin::Args),
    Reconcile(reconcile::Args),
    Ids(ids::Args),
    Ledger(ledger::Args),
    Verify(verify::Args),
    PspSim(psp_sim::Args),
    Openapi(openapi::Args),
}

/// The configuration file, for the subcommands that need one.
#[derive(Debug, clap::Args)]
struct ConfigFile {
    /// Configuration file [default: settlenet.toml in this folder, if it is there]
    #[arg(long, global = true, value_name = "FILE", env = "SETTLENET_CONFIG")]
    config: Option<PathBuf>,
}

impl ConfigFile {
    fn load(&self) -> Result<crate::config::Config, Failure> {
        crate::config::Config::load(self.config.as_deref()).map_err(|error| Failure {
            code: ExitCode::from(2),
            error: error.into(),
        })
    }
}

/// Why a subcommand failed, and how the process ends for it.
#[derive(Debug)]
struct Failure {
    code: ExitCode,
    error: anyhow::Error,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self {
            code: ExitCode::FAILURE,
            error: error.into(),
        }
    }
}

/// Runs the program on this process's own arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("settlenet: no threads to run on: {error}");
            return ExitCode::FAILURE;
        }
    };
    let outcome = runtime.block_on(async {
        match cli.command {
            Command::Bench(args) => Box::pin(bench::run(args)).await,
            Command::Demo(args) => Box::pin(demo::run(args)).await,
            Command::Dev(args) => dev::run(args).await,
            Command::Down(args) => down::run(&args).await,
            Command::Config(args) => config::run(&args),
            Command::Migrate(args) => migrate::run(&args).await,
            Command::Serve(args) => serve::run(args).await,
            Command::Worker(args) => worker::run(args).await,
            Command::Ids(args) => ids::run(&args),
            Command::Ledger(args) => ledger::run(&args).await,
            Command::Admin(args) => admin::run(&args).await,
            Command::Reconcile(args) => reconcile::run(&args).await,
            Command::Openapi(args) => openapi::run(&args),
            Command::Verify(args) => verify::run(&args).await,
            Command::PspSim(args) => psp_sim::run(args).await,
        }
    });
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            // With all its causes, in one line.
            eprintln!("settlenet: {:#}", failure.error);
            failure.code
        }
    }
}

/// Prints a document to standard output; a reader that has gone is no failure.
fn print(document: &str) {
    use std::io::Write as _;
    let _ = writeln!(std::io::stdout(), "{}", document.trim_end());
}

/// Refuses to work on databases that are behind this release.
async fn check_schema(config: &crate::config::Config) -> anyhow::Result<()> {
    match crate::services::migration::missing(config).await {
        None => Ok(()),
        Some(missing) => {
            anyhow::bail!("{missing}: run settlenet migrate, then start this again")
        }
    }
}

/// Waits for SIGTERM or SIGINT.
async fn until_asked_to_end() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The release is written where a constant cannot reach; they must agree.
    #[test]
    fn one_release_of_the_ledger_is_named_everywhere() {
        let release = crate::TIGERBEETLE_RELEASE;
        assert!(VERSION.contains(release));
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
        for (file, line) in [
            ("scripts/setup.sh", format!("tb_version={release}\n")),
            ("docker-compose.yml", format!("tigerbeetle:{release}\n")),
            ("Cargo.lock", format!("+{release}\"\n")),
        ] {
            let text = std::fs::read_to_string(root.join(file)).unwrap();
            assert!(text.contains(&line), "{file} names {release}");
        }
    }
}
