//! `settlenet migrate`.

use std::process::ExitCode;

use serde_json::json;

use super::{ConfigFile, Failure, print};
use crate::services::migration::{Report, migrate_all};

/// Bring all databases of the network to this program's schema
///
/// The master first, then every shared shard and tenant database that its
/// registry names, several at a time; those that do not exist are created. One
/// that is away or fails holds up no other. Safe to run again after a failure and
/// by several processes at once. Ends with 1 and the names of the databases that
/// failed, if any did.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    file: ConfigFile,
    /// Print the results as JSON
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = args.file.load()?;
    let reports = migrate_all(&config, |report, done, total| {
        eprintln!("[{done}/{total}] {}: {}", report.database, told(report));
    })
    .await
    .map_err(|error| anyhow::Error::from(error).context("master"))?;
    if args.json {
        let results: Vec<_> = reports
            .iter()
            .map(|report| match &report.outcome {
                Ok(applied) => json!({
                    "database": report.database.to_string(),
                    "result": if *applied == 0 { "already" } else { "applied" },
                    "applied": applied,
                }),
                Err(_) => json!({
                    "database": report.database.to_string(),
                    "result": "failed",
                    "error": told(report),
                }),
            })
            .collect();
        print(&serde_json::to_string_pretty(&results)?);
    }
    let failed: Vec<String> = reports
        .iter()
        .filter(|report| report.outcome.is_err())
        .map(|report| report.database.to_string())
        .collect();
    if failed.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    Err(anyhow::anyhow!(
        "{} of {} failed: {}",
        failed.len(),
        reports.len(),
        failed.join(", ")
    )
    .into())
}

fn told(report: &Report) -> String {
    match &report.outcome {
        Ok(0) => "up to date".into(),
        Ok(1) => "1 migration applied".into(),
        Ok(applied) => format!("{applied} migrations applied"),
        Err(error) => {
            let mut text = format!("failed: {error}");
            let mut cause = std::error::Error::source(error);
            while let Some(inner) = cause {
                text = format!("{text}: {inner}");
                cause = inner.source();
            }
            text
        }
    }
}
