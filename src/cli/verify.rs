//! `settlenet verify`: what a third party can check by itself.

mod bundle;
mod chain;
mod checkpoint;
mod netting;

use std::process::ExitCode;

use clap::Subcommand;

use super::Failure;

/// Ends a process that has found that something doesn't hold. Not 1, which says that it could
/// not be checked.
const DOES_NOT_HOLD: u8 = 4;

/// Check what the network has given out, without trusting it
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Bundle(bundle::Args),
    Chain(chain::Args),
    Checkpoint(checkpoint::Args),
    Netting(netting::Args),
}

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    match &args.what {
        What::Bundle(args) => bundle::run(args),
        What::Chain(args) => chain::run(args).await,
        What::Checkpoint(args) => checkpoint::run(args),
        What::Netting(args) => netting::run(args),
    }
}
