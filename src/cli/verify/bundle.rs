//! `settlenet verify bundle`.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use sha2::{Digest as _, Sha256};

use super::super::{Failure, print};
use super::DOES_NOT_HOLD;
use crate::domain::bundle::BUNDLE_MAX;
use crate::domain::bundle::verify::{Report, Trust, verify};
use crate::domain::canonical::Hash;
use crate::domain::note::{NoteError, NoteKey};

/// Check the evidence bundle of a request or an order
///
/// Needs no server, database, network or clock. Says of each claim in words whether
/// it holds. What is believed without proof is the key of the log, given as --key:
/// get it from the network's operator, from GET /v1/checkpoints/keys, or from a
/// witness, and once. The format is in docs/formats.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 all of it holds; 1 it could not be checked (an unreadable file); 2 the \
command line is wrong; 4 it does not hold.")]
pub(in crate::cli) struct Args {
    /// The bundle; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// A key that may have signed the checkpoint, as NAME+ID+KEY; several, of which one must have
    #[arg(long = "key", value_name = "KEY", required = true, value_parser = key)]
    keys: Vec<NoteKey>,
    /// The key of a witness that must have cosigned the checkpoint
    #[arg(long = "witness", value_name = "KEY", value_parser = key)]
    witnesses: Vec<NoteKey>,
    /// A file that was handed over as proof: it must be one that the events name
    #[arg(long = "proof", value_name = "FILE")]
    proofs: Vec<PathBuf>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn key(text: &str) -> Result<NoteKey, NoteError> {
    text.parse()
}

pub(in crate::cli) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let bytes = read(&args.file).with_context(|| args.file.display().to_string())?;
    let mut files = Vec::new();
    for path in &args.proofs {
        let name = path.display().to_string();
        let hash = digest(path).with_context(|| name.clone())?;
        files.push((name, hash));
    }
    let trust = Trust {
        keys: &args.keys,
        witnesses: &args.witnesses,
        files: &files,
    };
    let report = verify(&bytes, &trust);
    print(&if args.json {
        serde_json::to_string(&report).context("a report is plain JSON")?
    } else {
        text(&report)
    });
    Ok(if report.holds {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(DOES_NOT_HOLD)
    })
}

/// A little more than what may be read, so that what is too long is seen to be.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let most = BUNDLE_MAX as u64 + 2;
    let mut bytes = Vec::new();
    if path.as_os_str() == "-" {
        io::stdin().lock().take(most).read_to_end(&mut bytes)?;
    } else {
        File::open(path)?.take(most).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

fn digest(path: &Path) -> io::Result<Hash> {
    let mut file = File::open(path)?;
    let mut sha256 = Sha256::new();
    let mut part = [0; 8 * 1024];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(Hash(sha256.finalize().into())),
            size => sha256.update(&part[..size]),
        }
    }
}

fn text(report: &Report) -> String {
    let subject = report.subject.as_deref().unwrap_or("The file");
    let mut lines = vec![if report.holds {
        format!("{subject}: all of it holds.")
    } else {
        format!("{subject} does NOT hold.")
    }];
    for claim in &report.claims {
        let mark = if claim.holds { "holds" } else { "FAILS" };
        lines.push(format!(
            "{mark}  {:<12} {}",
            claim.claim.as_str(),
            claim.says
        ));
    }
    lines.join("\n")
}
