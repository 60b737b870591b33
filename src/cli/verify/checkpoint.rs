//! `settlenet verify checkpoint`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::json;

use super::super::{Failure, print};
use super::DOES_NOT_HOLD;
use super::bundle::key;
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::Checkpoint;
use crate::domain::merkle::proof::{PROOF_MAX, extends};
use crate::domain::note::{NOTE_MAX, Note, NoteKey};

/// Check that a log's newer checkpoint begins with an older one
///
/// Needs no server, database, network or clock. Both files are checkpoints as
/// GET /v1/checkpoints gives them; the proof is the answer of
/// GET /v1/checkpoints/consistency, and needed unless both have one size. A log that
/// has rewritten anything has no such proof.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 it holds; 1 it could not be checked (an unreadable file); 2 the command \
line is wrong; 4 it does not hold.")]
pub(in crate::cli) struct Args {
    /// The checkpoint that was kept
    #[arg(value_name = "OLD")]
    old: PathBuf,
    /// The one of now
    #[arg(value_name = "NEW")]
    new: PathBuf,
    /// The proof that the newer log begins with the older
    #[arg(long, value_name = "FILE")]
    proof: Option<PathBuf>,
    /// A key that may have signed them, as NAME+ID+KEY; several, of which one must have
    #[arg(long = "key", value_name = "KEY", required = true, value_parser = key)]
    keys: Vec<NoteKey>,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
}

/// The answer of the server, as far as it is needed.
#[derive(Deserialize)]
struct Proof {
    proof: Vec<Hash>,
}

pub(in crate::cli) fn run(args: &Args) -> Result<ExitCode, Failure> {
    let old = read(&args.old)?;
    let new = read(&args.new)?;
    let proof = match &args.proof {
        Some(path) => {
            let name = path.display().to_string();
            let bytes = read(path)?;
            let proof: Proof = serde_json::from_slice(&bytes).context(name)?;
            proof.proof
        }
        None => Vec::new(),
    };
    let found = judged(&old, &new, &proof, &args.keys);
    print(&match (&found, args.json) {
        (Ok((old, new)), false) => format!(
            "The checkpoint of {} with {} leaves begins with the one of {} leaves.",
            new.origin, new.size, old.size
        ),
        (Err(why), false) => format!("It does not hold.\nWhat is wrong: {why}"),
        (Ok((old, new)), true) => json!({
            "holds": true, "origin": new.origin, "old_size": old.size.to_string(),
            "size": new.size.to_string(), "root": new.root,
        })
        .to_string(),
        (Err(why), true) => json!({ "holds": false, "message": why }).to_string(),
    });
    Ok(match found {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(DOES_NOT_HOLD),
    })
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let name = || path.display().to_string();
    let size = fs::metadata(path).with_context(name)?.len();
    if size > NOTE_MAX as u64 {
        let what = anyhow::anyhow!("{}: has more than {NOTE_MAX} bytes", name());
        return Err(what.into());
    }
    Ok(fs::read(path).with_context(name)?)
}

fn judged(
    old: &[u8],
    new: &[u8],
    proof: &[Hash],
    keys: &[NoteKey],
) -> Result<(Checkpoint, Checkpoint), String> {
    let old = signed(old, keys).map_err(|why| format!("the older checkpoint: {why}"))?;
    let new = signed(new, keys).map_err(|why| format!("the newer checkpoint: {why}"))?;
    if old.origin != new.origin {
        return Err(format!("{} and {} are two logs", old.origin, new.origin));
    }
    if proof.len() > PROOF_MAX {
        return Err(format!("a proof has at most {PROOF_MAX} hashes"));
    }
    if extends((old.size, old.root), (new.size, new.root), proof) {
        Ok((old, new))
    } else {
        Err(format!(
            "the log of {} leaves does not begin with that of {}, or the proof is of others",
            new.size, old.size
        ))
    }
}

fn signed(bytes: &[u8], keys: &[NoteKey]) -> Result<Checkpoint, String> {
    let note = Note::parse(bytes).map_err(|error| error.to_string())?;
    note.signed_by(keys).map_err(|error| error.to_string())?;
    Checkpoint::parse(&note.text).map_err(|error| error.to_string())
}
