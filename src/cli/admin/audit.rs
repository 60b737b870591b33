//! `settlenet admin audit`: books verified now.

use std::process::ExitCode;

use serde_json::{Value, json};

use super::{Failure, NO_SUCH_THING, Shown};
use crate::app::Stores;
use crate::cli::progress::Progress;
use crate::config::Config;
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::services::audit::Audited;

/// Brokers that are read at once.
const PAGE: u32 = 500;

/// Verify books from their first entries to their heads, against what the log has of them
///
/// The workers do the same all the time; this does it now. A book that does not hold
/// raises the alert `book_tampered`, and ends this with 4.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// One broker's; all without it
    #[arg(long, value_name = "ID")]
    broker: Option<BrokerId>,
}

pub(super) async fn run(args: &Args, config: &Config) -> Result<(Shown, ExitCode), Failure> {
    let stores = Stores::open(config)?;
    let clock = Clock::from_env();
    let checkpoints = stores.checkpoints(config, clock.clone())?;
    let audit = stores.audit(config, checkpoints, clock);
    let places = stores.provisioning(config);
    let mut brokers = Vec::new();
    if let Some(broker) = args.broker {
        brokers.push(broker);
    } else {
        let mut before = None;
        loop {
            let page = places.brokers(None, before, PAGE).await?;
            before = page.last().map(|broker| broker.id).or(before);
            brokers.extend(page.iter().map(|broker| broker.id));
            if page.len() < PAGE as usize {
                break;
            }
        }
    }
    let progress = Progress::new("books");
    let (mut holding, mut lines, mut found) = (0, Vec::new(), Vec::new());
    for (done, broker) in (0..).zip(&brokers) {
        progress.at(done, brokers.len() as u64);
        match audit.audit(*broker).await {
            Ok(audited) => {
                holding += u64::from(audited.fault.is_none());
                lines.extend(line(&audited));
                found.push(shown(&audited));
            }
            Err(error) => {
                lines.push(format!("Broker {broker} could not be audited: {error}"));
                found.push(json!({ "broker_id": broker, "error": error.to_string() }));
            }
        }
    }
    lines.push(format!("{holding} of {} books hold.", brokers.len()));
    let code = if holding == brokers.len() as u64 {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO_SUCH_THING)
    };
    let shown = Shown {
        text: lines.join("\n"),
        json: json!({ "books": found, "holding": holding }),
    };
    Ok((shown, code))
}

fn line(audited: &Audited) -> Option<String> {
    let fault = audited.fault.as_ref()?;
    Some(format!(
        "Broker {} does not hold: {fault}. Before it holds up to {}.",
        audited.broker, audited.holds_to
    ))
}

fn shown(audited: &Audited) -> Value {
    json!({
        "broker_id": audited.broker,
        "holds": audited.fault.is_none(),
        "holds_to": audited.holds_to.to_string(),
        "log": audited.known.map(|known| known.to_string()),
        "first_bad_seq": audited.fault.as_ref().map(|fault| fault.seq),
        "problem": audited.fault.as_ref().map(|fault| fault.problem.code()),
        "message": audited.fault.as_ref().map(ToString::to_string),
    })
}
