//! `settlenet admin arbiter`: who hears no dispute of whom.

use clap::Subcommand;
use serde_json::{Value, json};

use super::pause::operator;
use super::{Failure, Shown, no_such, usage};
use crate::app::Stores;
use crate::cli::table::table;
use crate::config::Config;
use crate::domain::ids::{BrokerId, UserId};
use crate::runtime::Clock;
use crate::services::arbiters::{ArbiterService, Tie, TieError};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Tie an arbiter to a broker, whose disputes they hear no more
    ///
    /// What they are hearing another arbiter may take over.
    Tie {
        /// The arbiter, US-…
        user: UserId,
        broker: BrokerId,
        /// Why, for the record
        #[arg(long)]
        reason: String,
    },
    /// End a tie
    Untie { id: u64 },
    /// List ties, the last first
    Ties {
        /// Those that have ended, too
        #[arg(long)]
        all: bool,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let arbiters = ArbiterService::new(Stores::open(config)?.master, Clock::from_env());
    match what {
        What::Tie {
            user,
            broker,
            reason,
        } => {
            let tied = arbiters.tie(*user, *broker, reason, &operator()).await;
            let tie = tied.map_err(failure)?;
            let text = format!(
                "{user} hears no dispute of broker {broker} (tie {})",
                tie.id
            );
            Ok(one(text, &tie))
        }
        What::Untie { id } => {
            let ended = arbiters.untie(*id, &operator()).await.map_err(failure)?;
            Ok(one(format!("tie {id} has ended"), &ended))
        }
        What::Ties { all, limit } => Ok(listed(&arbiters.ties(*all, *limit).await?)),
    }
}

fn failure(error: TieError) -> Failure {
    match error {
        TieError::Reason(error) => usage("--reason", &error),
        TieError::NoSuchArbiter { id } => no_such(format!("arbiter {id}")),
        TieError::NoSuchBroker { id } => no_such(format!("broker {id}")),
        TieError::NoSuchTie { id } => no_such(format!("tie {id}")),
        TieError::Store(error) => error.into(),
    }
}

fn one(text: String, tie: &Tie) -> Shown {
    let json = view(tie);
    Shown { text, json }
}

fn view(tie: &Tie) -> Value {
    let (ended_by, ended_at) = tie.ended.clone().unzip();
    json!({
        "id": tie.id,
        "user_id": tie.user,
        "broker_id": tie.broker,
        "reason": tie.reason,
        "created_by": tie.created_by,
        "created_at": tie.created_at,
        "ended_by": ended_by,
        "ended_at": ended_at,
    })
}

fn listed(found: &[Tie]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|tie| {
            let ended = tie.ended.as_ref().map(|(_, at)| at.to_rfc3339());
            [
                tie.id.to_string(),
                tie.user.to_string(),
                tie.broker.to_string(),
                tie.created_at.to_rfc3339(),
                ended.unwrap_or_else(|| "-".to_owned()),
                tie.reason.clone(),
            ]
        })
        .collect();
    Shown {
        text: table(
            ["id", "arbiter", "broker", "since", "ended", "reason"],
            &rows,
        ),
        json: found.iter().map(view).collect(),
    }
}
