//! `settlenet reconcile`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Subcommand;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;

use super::{ConfigFile, Failure, print};
use crate::app::App;
use crate::runtime::{Clock, Entropy};
use crate::services::reconcile::{Progress, Report};

/// The invariant of payments.
const PAYMENTS: u8 = 5;
/// Progress is told this often.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Check that the books, the master and the ledger say the same
///
/// Reads all of them, changes nothing, and may run beside the working network:
/// what seems wrong is looked at again, and only what stays wrong counts.
///
///   1  a completed request has exactly the effects of its terms, once; any
///      other has none that count
///   2  every book is a whole chain; its balances are its entries, its
///      reservations the open promises
///   3  what brokers owe each other is what the ledger says
///   5  what was paid through providers is what the ledger has posted, once
///   7  every database holds the books that are placed in it, and no others
#[derive(Debug, clap::Args)]
#[command(
    verbatim_doc_comment,
    after_help = "\
Exit codes: 0 all was checked and nothing is wrong; 1 something is wrong, or could not \
be checked; 2 the command line or the configuration is wrong."
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    file: ConfigFile,
    /// Check only this invariant [possible values: 1, 2, 3, 5, 7]
    #[arg(long, value_name = "NUMBER", value_parser = invariant)]
    only: Option<u8>,
    /// Print the report as JSON
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check payments (invariant 5), after taking in a provider's statement
    ///
    /// A statement is CSV with the columns provider, uid, currency, amount (major
    /// units), paid_at (RFC 3339), status (paid, returned) and, where the provider
    /// has one, response_id; others are ignored. A line is one payment: two of one
    /// uid in one file are two, unless they have the same response_id. uid is what
    /// we had called the payment: of a payout confirm_rq_uid, of a top-up
    /// query_rq_uid. It is taken in as a whole or not at all, and once more changes
    /// nothing. What was taken in is compared by every later run too, so leave no
    /// gaps between two: what we have as paid within their time and none of them
    /// has is wrong.
    #[command(verbatim_doc_comment)]
    Psp(Psp),
}

#[derive(Debug, clap::Args)]
struct Psp {
    /// A statement as a file
    #[arg(long, value_name = "FILE")]
    statement: Option<PathBuf>,
    /// The statement of a settlenet psp-sim at this address
    #[arg(long, value_name = "URL", conflicts_with = "statement")]
    simulator: Option<String>,
    /// The simulator's token
    #[arg(
        long,
        value_name = "TOKEN",
        env = "SETTLENET_PSP_SIM_TOKEN",
        hide_env_values = true
    )]
    token: Option<SecretString>,
}

fn invariant(text: &str) -> Result<u8, String> {
    use crate::services::reconcile::INVARIANTS;
    let number = text.parse().ok();
    number
        .filter(|number| INVARIANTS.contains(number))
        .ok_or_else(|| format!("one of {INVARIANTS:?}"))
}

pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let config = args.file.load()?;
    let app = App::assemble(&config, Clock::from_env(), Entropy::from_env())?;
    let told = Mutex::new(Instant::now());
    let progress = move |progress: Progress| tell(&told, progress);
    let only = match &args.what {
        None => args.only,
        Some(What::Psp(psp)) => {
            take_in(&app, psp).await?;
            Some(PAYMENTS)
        }
    };
    let report = app.reconcile.run(only, &progress).await?;
    for one in &report.invariants {
        eprintln!("invariant {}: {} checked", one.invariant, one.checked);
    }
    let clean = report.is_clean();
    if args.json {
        let shown = json!({"clean": clean, "invariants": report.invariants});
        print(&serde_json::to_string_pretty(&shown)?);
    } else {
        print(&text(&report));
    }
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// A provider's statement, from where it is.
async fn take_in(app: &App, psp: &Psp) -> anyhow::Result<()> {
    let (named, text) = match (&psp.statement, &psp.simulator) {
        (Some(file), _) => {
            let named = file.display().to_string();
            let text = std::fs::read(file).with_context(|| named.clone())?;
            (named, text)
        }
        (None, Some(url)) => {
            let url = format!("{}/sim/report.csv", url.trim_end_matches('/'));
            let mut request = reqwest::Client::new().get(&url);
            if let Some(token) = &psp.token {
                request = request.bearer_auth(token.expose_secret());
            }
            let answer = request.send().await?.error_for_status()?;
            (url, answer.bytes().await?.to_vec())
        }
        (None, None) => return Ok(()),
    };
    let taken = app.reconcile.take_statement(text.as_slice()).await;
    let taken = taken.with_context(|| named.clone())?;
    if taken.is_empty() {
        eprintln!("{named}: 0 lines");
    }
    for (psp, lines) in taken {
        eprintln!("{named}: {lines} lines of {psp}");
    }
    Ok(())
}

/// A line now and then, so that a long run is seen to go on.
fn tell(last: &Mutex<Instant>, progress: Progress) {
    let Ok(mut last) = last.lock() else { return };
    if last.elapsed() >= TELL_EVERY {
        *last = Instant::now();
        eprintln!(
            "invariant {}: {} so far",
            progress.invariant, progress.checked
        );
    }
}

fn text(report: &Report) -> String {
    let mut lines = Vec::new();
    for one in &report.invariants {
        lines.push(format!(
            "{}  {}: {} checked, {} wrong, {} could not be checked",
            one.invariant, one.name, one.checked, one.breaks_count, one.unchecked_count
        ));
        for (word, findings, count) in [
            ("wrong", &one.breaks, one.breaks_count),
            ("not checked", &one.unchecked, one.unchecked_count),
        ] {
            for finding in findings {
                lines.push(format!("   {word}: {}: {}", finding.subject, finding.what));
            }
            let more = count.saturating_sub(findings.len() as u64);
            if more > 0 {
                lines.push(format!("   {word}: and {more} more"));
            }
        }
    }
    let end = if report.is_clean() {
        "Nothing is wrong."
    } else {
        "Not all is right."
    };
    lines.push(end.to_owned());
    lines.join("\n")
}
