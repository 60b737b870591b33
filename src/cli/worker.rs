//! `settlenet worker`: the background work alone, for a machine that serves no clients.

use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::{ConfigFile, Failure, logging};
use crate::app::App;
use crate::runtime::{Clock, Entropy};
use crate::workers;

/// Do the background work without serving clients
///
/// Takes over sagas whose process has died, expires requests past their deadline, numbers the event
/// feeds, and makes payments: asks the providers that are configured, and tells the ledger and books.
/// `settlenet serve` does all of it too; run this besides to have more hands.
/// Ends on SIGTERM or SIGINT, after what it has in hand.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigFile,
}

pub(super) async fn run(args: Args) -> Result<ExitCode, Failure> {
    let config = args.config.load()?;
    logging::start(&config.log)?;
    super::check_schema(&config).await?;
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env())?;
    let shutdown = CancellationToken::new();
    let mut workers = workers::start(&app, &config, &shutdown);
    tracing::info!("the worker runs");
    super::until_asked_to_end().await?;
    tracing::info!("ending");
    shutdown.cancel();
    let grace = config.http.shutdown_grace_ms.duration();
    let all = async { while workers.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() || !app.engine.drain(grace).await {
        tracing::warn!("some work has not ended in time; another process takes it over");
    }
    Ok(ExitCode::SUCCESS)
}
