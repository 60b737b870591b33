//! `settlenet admin log` and `settlenet admin witness`: the log of chain heads and who cosigns it.

use clap::Subcommand;
use serde_json::json;

use super::pause::operator;
use super::{Failure, Shown, no_such, usage};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::runtime::Clock;
use crate::services::checkpoints::{CheckpointError, CheckpointService, Log, Standing, Witness};

/// Logs that are listed: a further one begins only where the one before was lost.
const LOGS_MAX: u32 = 100;

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Show the logs, what was signed last, by which keys, and what waits to be signed
    Show,
    /// Begin a log in the place of one that is lost, which a restored master can't go on with
    ///
    /// It is said aloud, signed, and never taken back: first see whether a newer backup or a
    /// replica has what was signed. This process needs the log's signing keys.
    Begin {
        /// The number of the log that is lost. Said again, it is the same log that has begun
        /// in its place
        #[arg(long, value_name = "LOG")]
        after: u32,
        /// Why; it is signed, and published
        #[arg(long)]
        reason: String,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Witnesses {
    /// List witnesses, newest first
    List {
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Register a witness from outside; the same key again changes nothing
    Add {
        /// The public key, as NAME+ID+KEY
        key: String,
    },
    /// Take no more signatures of a witness; what it has signed stays
    Withdraw { id: u64 },
}

fn service(config: &Config) -> Result<CheckpointService, Failure> {
    Ok(Stores::open(config)?.checkpoints(config, Clock::from_env())?)
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let service = service(config)?;
    match what {
        What::Show => shown(&service).await,
        What::Begin { after, reason } => {
            let begun = service.begin_new(*after, reason, &operator()).await;
            let log = begun.map_err(failure)?;
            Ok(Shown {
                text: format!(
                    "{} follows log {after}. Its statement, for everybody:\n\n{}",
                    log.origin,
                    log.statement.as_deref().unwrap_or_default()
                ),
                json: view(&log),
            })
        }
    }
}

pub(super) async fn witnesses(what: &Witnesses, config: &Config) -> Result<Shown, Failure> {
    let service = service(config)?;
    let one = |witness: &Witness| Shown {
        text: facts(&[
            ("id", witness.id.to_string()),
            ("key", witness.key.to_string()),
        ]),
        json: witness_view(witness),
    };
    match what {
        Witnesses::List { limit } => {
            let found = service.witnesses(None, *limit).await.map_err(failure)?;
            Ok(listed(&found))
        }
        Witnesses::Add { key } => {
            let added = service.register_witness(None, key, &operator()).await;
            added.map(|witness| one(&witness)).map_err(failure)
        }
        Witnesses::Withdraw { id } => {
            let gone = service.withdraw_witness(*id).await;
            gone.map(|witness| one(&witness)).map_err(failure)
        }
    }
}

fn failure(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::NoSuch(what) => no_such(what),
        CheckpointError::Note(error) => usage("KEY", &error),
        CheckpointError::Reason(error) => usage("--reason", &error),
        CheckpointError::NotTheLast { .. } => usage("--after:", &error),
        error => error.into(),
    }
}

async fn shown(service: &CheckpointService) -> Result<Shown, Failure> {
    let Standing {
        log,
        signed,
        unsigned_since,
        waiting,
    } = service.standing().await.map_err(failure)?;
    let logs = service.logs(LOGS_MAX).await.map_err(failure)?;
    let keys = service.keys(&log).await.map_err(failure)?;
    let keys: Vec<String> = keys.iter().map(ToString::to_string).collect();
    let (size, at) = signed.as_ref().map_or((0, None), |signed| {
        (signed.size, Some(signed.signed_at.to_rfc3339()))
    });
    let mut text = facts(&[
        ("log", format!("{} ({})", log.number, log.origin)),
        ("leaves", log.size.to_string()),
        ("last checkpoint", size.to_string()),
        (
            "signed at",
            at.clone().unwrap_or_else(|| "never".to_owned()),
        ),
        (
            "unsigned since",
            unsigned_since.map_or_else(|| "-".to_owned(), |at| at.to_rfc3339()),
        ),
        ("requests waiting", waiting.to_string()),
    ]);
    for key in &keys {
        text.push_str(&facts(&[("key", key.clone())]));
    }
    for older in logs.iter().filter(|other| other.number != log.number) {
        let lost = format!("{} ({}), {} leaves", older.number, older.origin, older.size);
        text.push_str(&facts(&[("lost log", lost)]));
    }
    Ok(Shown {
        text,
        json: json!({
            "log": view(&log),
            "checkpoint": { "size": size.to_string(), "signed_at": at },
            "unsigned_since": unsigned_since,
            "requests_waiting": waiting,
            "keys": keys,
            "logs": logs.iter().map(view).collect::<Vec<_>>(),
        }),
    })
}

fn view(log: &Log) -> serde_json::Value {
    json!({
        "log": log.number,
        "origin": log.origin,
        "size": log.size.to_string(),
        "begun_at": log.begun_at,
        "begun_by": log.begun_by,
        "statement": log.statement,
    })
}

fn listed(found: &[Witness]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|witness| {
            let ended = witness.withdrawn_at.map(|at| at.to_rfc3339());
            [
                witness.id.to_string(),
                witness
                    .broker_id
                    .map_or_else(|| "-".to_owned(), |id| id.to_string()),
                witness.key.to_string(),
                witness.created_at.to_rfc3339(),
                ended.unwrap_or_else(|| "-".to_owned()),
            ]
        })
        .collect();
    Shown {
        text: table(["id", "broker", "key", "registered", "withdrawn"], &rows),
        json: found.iter().map(witness_view).collect(),
    }
}

fn witness_view(witness: &Witness) -> serde_json::Value {
    json!({
        "id": witness.id,
        "broker_id": witness.broker_id,
        "key": witness.key.to_string(),
        "created_by": witness.created_by,
        "created_at": witness.created_at,
        "withdrawn_at": witness.withdrawn_at,
    })
}
