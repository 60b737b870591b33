//! `settlenet bench`: figures beside floors that are measured in the same run.

mod bare;
mod client;
mod evidence;
mod floors;
mod load;
mod moving;
mod netting;
mod network;
mod payments;
mod report;
mod settlement;
mod stage;
mod tenancy;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use self::report::Figure;
use super::Failure;
use crate::config::Config;
use crate::stack::start_detached;

/// Measure how fast it settles, nets, moves books, proves and works off payments, and what idle
/// brokers cost
///
/// Starts a stack of its own (netting needs none), measures, prints a table and writes a JSON list of
/// {group, name, value, unit, floor, floor_value, ratio, target}: ratio is value over floor_value.
/// Figures, never a pass or fail. Use a release build and an otherwise idle machine.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One group only: netting, settlement, payments, move, evidence or tenancy
    #[arg(long, value_name = "GROUP", env = "ONLY")]
    only: Option<String>,
    /// A short run, for a look
    #[arg(long)]
    quick: bool,
    /// Where the list is written
    #[arg(long, value_name = "FILE", default_value = "target/bench.json")]
    output: PathBuf,
    /// The folder of the stack
    #[arg(long, value_name = "DIR", default_value = ".local/bench")]
    dir: PathBuf,
}

/// The first needs no servers, and is measured before there are any.
const GROUPS: [&str; 6] = [
    netting::GROUP,
    "settlement",
    "payments",
    "move",
    evidence::GROUP,
    "tenancy",
];

/// The stack ends by itself that long after the run.
const LINGER: Duration = Duration::from_secs(5);

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let only = args.only.as_deref().filter(|only| !only.is_empty());
    if let Some(only) = only
        && !GROUPS.contains(&only)
    {
        return Err(anyhow::anyhow!("--only {only}: there is {}", GROUPS.join(", ")).into());
    }
    if cfg!(debug_assertions) {
        eprintln!("this is a debug build: its figures mean little");
    }
    let mut figures = Vec::new();
    if only.is_none_or(|only| only == netting::GROUP) {
        figures.extend(tokio::task::spawn_blocking(move || netting::measure(args.quick)).await??);
    }
    if only != Some(netting::GROUP) {
        figures.extend(on_servers(&args, only).await?);
    }
    report::print(&figures);
    report::write(&figures, &args.output)?;
    eprintln!("written to {}", args.output.display());
    Ok(ExitCode::SUCCESS)
}

/// All groups, or one, that need servers.
async fn on_servers(args: &Args, only: Option<&str>) -> anyhow::Result<Vec<Figure>> {
    let program = std::env::current_exe()?;
    let dir = std::path::absolute(&args.dir)?;
    eprintln!("starting the servers");
    let start = move || start_detached(&program, &dir, Some(LINGER));
    let (description, _hold, _) = tokio::task::spawn_blocking(start).await??;
    let config = Config::load(Some(&description.config))?;
    let mut figures = Vec::new();
    for group in GROUPS[1..]
        .iter()
        .filter(|group| only.is_none_or(|only| only == **group))
    {
        figures.extend(match *group {
            "payments" => Box::pin(payments::measure(&config, args.quick)).await?,
            "move" => Box::pin(moving::measure(&config, args.quick)).await?,
            evidence::GROUP => Box::pin(evidence::measure(&config, args.quick)).await?,
            "tenancy" => {
                Box::pin(tenancy::measure(&config, &description.config, args.quick)).await?
            }
            _ => settlement::measure(&config, args.quick).await?,
        });
    }
    Ok(figures)
}
