//! `settlenet down`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::Failure;
use crate::stack::{Control, ControlError, LayoutError, remove};

/// Stop the stack that `settlenet dev` runs
///
/// Ends the supervisor and its servers and waits until they have ended. The
/// data stays for the next start, unless --remove is given.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The stack's folder
    #[arg(long, value_name = "DIR", default_value = ".local/dev")]
    dir: PathBuf,
    /// Delete the folder with all its data afterwards
    #[arg(long)]
    remove: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    match Control::connect(&args.dir) {
        Ok(control) => {
            control.shutdown()?;
            eprintln!("stopped what ran in {}", args.dir.display());
        }
        Err(ControlError::NotRunning { .. }) => {
            eprintln!("nothing runs in {}", args.dir.display());
        }
        Err(error) => return Err(error.into()),
    }
    if args.remove {
        remove_stopped(args).with_context(|| format!("deleting {}", args.dir.display()))?;
        eprintln!("deleted {}", args.dir.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The connection ends a moment before the process does.
fn remove_stopped(args: &Args) -> Result<(), LayoutError> {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match remove(&args.dir) {
            Err(LayoutError::InUse { .. }) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(50));
            }
            outcome => return outcome,
        }
    }
}
