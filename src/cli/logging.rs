//! Logs go to standard error; standard output is for what was asked for.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

use crate::config::{Log, LogFormat};

/// # Errors
/// A level that can't be read.
pub(super) fn start(log: &Log) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&log.level)?;
    let base = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let started = match log.format {
        LogFormat::Text => base.with_ansi(false).finish().try_init(),
        LogFormat::Json => base.json().flatten_event(true).finish().try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("the log can't be started: {error}"))
}
