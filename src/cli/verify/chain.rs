//! `settlenet verify chain`.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::super::progress::Progress;
use super::super::{ConfigFile, Failure, print};
use super::DOES_NOT_HOLD;
use crate::app::Stores;
use crate::domain::chain::{Fault, Head, LINE_MAX, Verified, Verifier, broker_of};
use crate::domain::ids::BrokerId;
use crate::services::books::BooksService;

/// Recompute the chain of a broker's book
///
/// With --file an exported chain: needs no server, database, network or clock.
/// Without it the book of --broker as it is stored now, from genesis to the head
/// that the database has for it: needs the configuration, and only reads.
///
/// Says whether every entry is in its place and unchanged and the balance that
/// each states is the sum of its account's entries so far, and if not names the
/// first bad seq and what is wrong with it. The accounts' own rows are no part of
/// the chain: `settlenet reconcile --only 2` compares them with it. That the end has been cut off, or all of it rewritten, shows only
/// against a head that is known from elsewhere: give it as --head. The format is
/// in docs/formats.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 the chain holds; 1 it could not be checked (an unreadable file, \
an empty one without --broker, a database that is away); 2 the command line or the \
configuration is wrong; 4 it does not hold.")]
pub(in crate::cli) struct Args {
    /// The exported chain; - for standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Whose book it is [default with --file: that of the first entry]
    #[arg(long, value_name = "ID", required_unless_present = "file")]
    broker: Option<BrokerId>,
    /// An entry that must be in it
    #[arg(long, value_name = "SEQ:HASH")]
    head: Option<Head>,
    /// The known entry that the file goes on from, for a part of a chain
    #[arg(long, value_name = "SEQ:HASH", requires = "file")]
    after: Option<Head>,
    #[command(flatten)]
    config: ConfigFile,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// What the chain comes to.
struct Report {
    broker: Option<BrokerId>,
    /// The last entry that holds, if any does.
    holds_to: Option<Head>,
    result: Result<Verified, Fault>,
}

pub(in crate::cli) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let start = args.after.map_or(0, |after| after.seq);
    if args.head.is_some_and(|head| head.seq <= start) {
        return Err(Failure {
            code: ExitCode::from(2),
            error: anyhow::anyhow!("--head is an entry of the chain, so its seq is above {start}"),
        });
    }
    let report = match (&args.file, args.broker) {
        (Some(file), _) => read(args, file).with_context(|| file.display().to_string())?,
        (None, Some(broker)) => stored(args, broker).await?,
        (None, None) => return Err(anyhow::anyhow!("neither --file nor --broker").into()),
    };
    print(&if args.json {
        report.json()
    } else {
        report.text()
    });
    match report.result {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(_) => Ok(ExitCode::from(DOES_NOT_HOLD)),
    }
}

/// The book as its database has it.
async fn stored(args: &Args, broker: BrokerId) -> Result<Report, Failure> {
    let stores = Stores::open(&args.config.load()?)?;
    let books = BooksService::new(stores.router);
    let progress = Progress::new("entries");
    let progress = |done, of| progress.at(done, of);
    let walked = books.verify(broker, args.head, &progress).await?;
    Ok(Report::new(broker, walked.holds_to, walked.result))
}

fn read(args: &Args, file: &Path) -> anyhow::Result<Report> {
    let mut input = open(file)?;
    let mut first = Vec::new();
    let mut bounded = (&mut input).take(LINE_MAX as u64 + 1);
    bounded.read_until(b'\n', &mut first)?;
    let broker = match args.broker {
        Some(broker) => broker,
        None if first.is_empty() => anyhow::bail!("no entries, and no --broker to say whose"),
        None => match broker_of(&first) {
            Ok(broker) => broker,
            Err(problem) => {
                let seq = args.after.map_or(0, |after| after.seq).saturating_add(1);
                return Ok(Report {
                    broker: None,
                    holds_to: args.after,
                    result: Err(Fault { seq, problem }),
                });
            }
        },
    };
    let mut verifier = match args.after {
        Some(after) => Verifier::after(broker, after),
        None => Verifier::from_genesis(broker),
    };
    if let Some(head) = args.head {
        verifier = verifier.expecting(head);
    }
    let taken = verifier.lines(&mut first.as_slice().chain(input))?;
    let holds_to = verifier.head();
    let result = taken.and_then(|()| verifier.finish());
    Ok(Report::new(broker, holds_to, result))
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::new(File::open(path)?)))
}

impl Report {
    fn new(broker: BrokerId, holds_to: Head, result: Result<Verified, Fault>) -> Self {
        Self {
            broker: Some(broker),
            holds_to: (holds_to.seq > 0).then_some(holds_to),
            result,
        }
    }

    fn text(&self) -> String {
        let whose = self
            .broker
            .map_or_else(String::new, |broker| format!(" of broker {broker}"));
        match &self.result {
            Ok(verified) => format!(
                "The chain{whose} holds.\nEntries: {}\nAccounts: {}\nHead: {}",
                verified.entries,
                verified.balances.len(),
                verified.head,
            ),
            Err(fault) => {
                let before = match self.holds_to {
                    Some(head) => format!("holds up to {head}"),
                    None => "holds nowhere".to_owned(),
                };
                format!(
                    "The chain{whose} does not hold.\nFirst bad seq: {}\nWhat is wrong: {}\nBefore it: {before}",
                    fault.seq, fault.problem,
                )
            }
        }
    }

    /// Numbers that may not fit a double are strings, as in the entries.
    fn json(&self) -> String {
        let head = |head: Head| json!({ "seq": head.seq.to_string(), "hash": head.hash });
        let broker = self.broker.map(|broker| broker.to_string());
        match &self.result {
            Ok(verified) => json!({
                "holds": true,
                "broker": broker,
                "entries": verified.entries.to_string(),
                "head": head(verified.head),
                "balances": verified.balances.iter().map(|(account, (currency, balance))| json!({
                    "account": account,
                    "currency": currency,
                    "balance": balance.to_string(),
                })).collect::<Vec<_>>(),
            }),
            Err(fault) => json!({
                "holds": false,
                "broker": broker,
                "first_bad_seq": fault.seq.to_string(),
                "problem": fault.problem.code(),
                "message": fault.problem.to_string(),
                "holds_to": self.holds_to.map(head),
            }),
        }
        .to_string()
    }
}
