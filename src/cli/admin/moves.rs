use std::time::Duration;

use clap::Subcommand;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::progress::Progress;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::broker_move::{BookPlace, BrokerMove, MoveState};
use crate::domain::ids::BrokerId;
use crate::runtime::{Clock, Entropy};
use crate::services::moves::{Destination, MoveError, MoveService};

/// How often to look at a move that is waited for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// List moves, newest first
    List {
        /// Only those of one broker
        #[arg(long, value_name = "ID")]
        broker: Option<BrokerId>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Show a move: its state, how far it is, and what it has shown
    Show { id: Uuid },
    /// Give a move up; the book stays where it is
    Cancel { id: Uuid },
    /// Let a move go on that is stuck, or verify again what was kept
    Retry { id: Uuid },
    /// Move a book back to where it came from, while what was left there is retained
    Reverse {
        id: Uuid,
        /// Stay until it has arrived, or needs a look
        #[arg(long)]
        wait: bool,
    },
    /// Delete now what a move has left behind, once it has been verified again
    ///
    /// What was abandoned is deleted as soon as its database answers.
    Purge { id: Uuid },
    /// Give up what a move has left, or its copy, in a database that is lost
    ///
    /// Nobody waits for it to be deleted any more, and the broker may move elsewhere.
    Abandon {
        id: Uuid,
        /// Kept with the move
        #[arg(long)]
        reason: String,
    },
}

/// `settlenet admin broker move`: where to, and whether to wait.
#[derive(Debug, clap::Args)]
pub(super) struct Start {
    id: BrokerId,
    /// `shard` or `shard:NUMBER`; `own` or `own:SERVER`
    ///
    /// Without a number or a server the emptiest other one that takes what is new.
    #[arg(long, value_name = "PLACE", value_parser = destination)]
    to: Destination,
    /// Stay until it has arrived, or needs a look
    #[arg(long)]
    wait: bool,
}

fn destination(text: &str) -> Result<Destination, String> {
    let wrong = || format!("{text:?} is no place: it is shard, shard:NUMBER, own or own:SERVER");
    match text.split_once(':') {
        None if text == "shard" => Ok(Destination::Shard(None)),
        None if text == "own" => Ok(Destination::Own(None)),
        Some(("shard", id)) => id
            .parse()
            .map(|id| Destination::Shard(Some(id)))
            .map_err(|_| wrong()),
        Some(("own", server)) if !server.is_empty() => {
            Ok(Destination::Own(Some(server.to_owned())))
        }
        None | Some(_) => Err(wrong()),
    }
}

fn service(config: &Config) -> Result<MoveService, Failure> {
    Ok(Stores::open(config)?.moves(config, Clock::from_env(), Entropy::from_env()))
}

pub(super) async fn start(what: &Start, config: &Config) -> Result<Shown, Failure> {
    let moves = service(config)?;
    let begun = moves
        .start(what.id, what.to.clone(), None)
        .await
        .map_err(failure)?;
    follow(&moves, begun, what.wait).await
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let moves = service(config)?;
    let one = match what {
        What::List { broker, limit } => {
            let found = moves.list(*broker, None, *limit).await.map_err(failure)?;
            return Ok(listed(&found));
        }
        What::Show { id } => moves.get(*id).await,
        What::Cancel { id } => moves.cancel(*id).await,
        What::Retry { id } => moves.retry(*id).await,
        What::Purge { id } => moves.purge(*id).await,
        What::Abandon { id, reason } => moves.abandon(*id, reason).await,
        What::Reverse { id, wait } => {
            let begun = moves.reverse(*id, None).await.map_err(failure)?;
            return follow(&moves, begun, *wait).await;
        }
    };
    Ok(shown(&one.map_err(failure)?))
}

/// Waits for a move where that is asked, telling how far it is.
async fn follow(moves: &MoveService, begun: BrokerMove, wait: bool) -> Result<Shown, Failure> {
    let mut now = begun;
    let progress = Progress::new("rows");
    while wait && now.state.is_open() && !now.state.is_at_rest() {
        progress.at(now.rows_copied, now.rows_total);
        tokio::time::sleep(LOOK_EVERY).await;
        now = moves.get(now.id).await.map_err(failure)?;
    }
    if wait && matches!(now.state, MoveState::Stuck | MoveState::Cancelled) {
        let why = now.fault.as_deref().unwrap_or("it was cancelled");
        return Err(anyhow::anyhow!("move {} is {}: {why}", now.id, now.state).into());
    }
    Ok(shown(&now))
}

fn failure(error: MoveError) -> Failure {
    match error {
        MoveError::NoSuchBroker { id } => no_such(format!("broker {id}")),
        MoveError::NoSuchMove { id } => no_such(format!("move {id}")),
        MoveError::NoSuchShard { id } => no_such(format!("shard {id}")),
        error => error.into(),
    }
}

fn shown(this: &BrokerMove) -> Shown {
    let or_none = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let proof = this.proof.as_ref();
    let rows = [
        ("id", this.id.to_string()),
        ("broker", this.broker.to_string()),
        ("state", this.state.to_string()),
        ("from", this.from.to_string()),
        ("to", this.to.to_string()),
        (
            "rows",
            format!("{} of {}", this.rows_copied, this.rows_total),
        ),
        ("closed", or_none(this.pause_us.map(milliseconds))),
        ("head", or_none(proof.map(|proof| proof.head.to_string()))),
        (
            "root before",
            or_none(proof.map(|proof| proof.root_before.to_hex())),
        ),
        (
            "root after",
            or_none(proof.map(|proof| proof.root_after.to_hex())),
        ),
        ("fault", or_none(this.fault.clone())),
        (
            "kept until",
            or_none(this.purge_at().map(|at| at.to_rfc3339())),
        ),
        ("given up", or_none(this.abandoned_because.clone())),
        ("created", this.created_at.to_rfc3339()),
    ];
    Shown {
        text: facts(&rows),
        json: view(this),
    }
}

fn milliseconds(us: u64) -> String {
    format!("{}.{:03} ms", us / 1000, us % 1000)
}

fn listed(found: &[BrokerMove]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|this| {
            [
                this.id.to_string(),
                this.broker.to_string(),
                this.state.to_string(),
                this.from.to_string(),
                this.to.to_string(),
                format!("{} of {}", this.rows_copied, this.rows_total),
            ]
        })
        .collect();
    Shown {
        text: table(["id", "broker", "state", "from", "to", "rows"], &rows),
        json: found.iter().map(view).collect(),
    }
}

fn view(this: &BrokerMove) -> Value {
    json!({
        "id": this.id,
        "broker_id": this.broker,
        "state": this.state,
        "cause": this.cause,
        "from": place(&this.from),
        "to": place(&this.to),
        "rows_total": this.rows_total,
        "rows_copied": this.rows_copied,
        "fencings": this.fencings,
        "pause_us": this.pause_us,
        "proof": this.proof.as_ref().map(|proof| json!({
            "head": proof.head.to_string(),
            "root_before": proof.root_before,
            "root_after": proof.root_after,
            "rows": proof.rows,
        })),
        "fault": this.fault,
        "created_at": this.created_at,
        "flipped_at": this.flipped_at,
        "purge_at": this.purge_at(),
        "ended_at": this.ended_at,
        "abandoned_because": this.abandoned_because,
    })
}

fn place(place: &BookPlace) -> Value {
    json!({
        "shard_id": place.shard_id,
        "server_name": place.server,
        "database_name": place.database,
    })
}
