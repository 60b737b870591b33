//! `settlenet config`.

use std::process::ExitCode;

use super::{ConfigFile, Failure, print};

/// Print the configuration in force, secrets masked
///
/// Defaults, then the configuration file, then the environment: a key such as
/// http.listen is SETTLENET_HTTP__LISTEN there. A URL can be kept in a file of
/// its own (master.url_file instead of master.url). What is wrong is named with
/// its key, what was found and what is allowed.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: ConfigFile,
    /// Print JSON instead of TOML
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = args.file.load()?;
    print(&if args.json {
        config.to_json()?
    } else {
        config.to_toml()?
    });
    Ok(ExitCode::SUCCESS)
}
