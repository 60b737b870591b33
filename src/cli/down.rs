//! `settlenet down`.

use std::path::PathBuf;
use std::process::ExitCode;

use super::Failure;
use crate::stack::take_down;

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

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let ran = take_down(&args.dir, args.remove).await?;
    let dir = args.dir.display();
    eprintln!(
        "{} {dir}",
        if ran {
            "stopped what ran in"
        } else {
            "nothing runs in"
        }
    );
    if args.remove {
        eprintln!("deleted {dir}");
    }
    Ok(ExitCode::SUCCESS)
}
