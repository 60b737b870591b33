//! `settlenet verify netting`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde_json::json;

use super::super::{Failure, print};
use super::DOES_NOT_HOLD;
use crate::domain::canonical::Hash;
use crate::domain::netting::verify::{CertificateError, Verified, verify};

/// Check the certificate of a netting round
///
/// Needs no server, database, network or clock. Says whether the reductions leave
/// every broker's net position as it was, whether a larger total was possible, and
/// whether the obligations are those of the certificate's root. That the network
/// had just those obligations shows only against a root that is known from
/// elsewhere: give it as --root. The format is in docs/formats.md.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 it holds; 1 it could not be checked (an unreadable file); 2 the command \
line is wrong; 4 it does not hold.")]
pub(in crate::cli) struct Args {
    /// The certificate; - for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The root that the obligations must have
    #[arg(long, value_name = "HASH", value_parser = hash)]
    root: Option<Hash>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

fn hash(text: &str) -> Result<Hash, &'static str> {
    Hash::from_hex(text).ok_or("a hash is 64 lower-case hex digits")
}

pub(in crate::cli) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let input = open(&args.file).with_context(|| args.file.display().to_string())?;
    let found = match verify(input) {
        Ok(verified) if args.root.is_some_and(|root| root != verified.root) => {
            Err(format!("the root is {}, another", verified.root))
        }
        Ok(verified) => Ok(verified),
        Err(error @ CertificateError::Wrong { .. }) => Err(error.to_string()),
        Err(CertificateError::Io(error)) => {
            return Err(anyhow::Error::from(error)
                .context(args.file.display().to_string())
                .into());
        }
    };
    print(&if args.json {
        as_json(&found)
    } else {
        text(&found)
    });
    Ok(match found {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(DOES_NOT_HOLD),
    })
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    if path.as_os_str() == "-" {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(BufReader::new(File::open(path)?)))
}

fn text(found: &Result<Verified, String>) -> String {
    match found {
        Ok(verified) => format!(
            "The certificate of round {} holds.\nCurrency: {}\nBrokers: {}\nObligations: {}\n\
             Total: {} minor units\nCleared: {} minor units, the most that was possible\nRoot: {}",
            verified.round,
            verified.currency,
            verified.brokers,
            verified.obligations,
            verified.total,
            verified.cleared,
            verified.root,
        ),
        Err(what) => format!("The certificate does not hold.\nWhat is wrong: {what}"),
    }
}

/// Numbers that may not fit a double are strings.
fn as_json(found: &Result<Verified, String>) -> String {
    match found {
        Ok(verified) => json!({
            "holds": true,
            "round": verified.round,
            "currency": verified.currency,
            "brokers": verified.brokers.to_string(),
            "obligations": verified.obligations.to_string(),
            "total": verified.total.to_string(),
            "cleared": verified.cleared.to_string(),
            "root": verified.root,
        }),
        Err(what) => json!({ "holds": false, "message": what }),
    }
    .to_string()
}
