use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::ids::BrokerId;
use crate::domain::money::CurrencyCode;
use crate::domain::pause::{Pausable, Pause as Record};
use crate::runtime::Clock;
use crate::services::pauses::{PauseError, Paused};

#[derive(Debug, Subcommand)]
pub(super) enum Pause {
    /// Pause the whole network: no request is created or accepted, and no broker joins
    ///
    /// What runs is finished, and requests that are accepted go on to their end.
    Network {
        /// Why; told to everybody
        #[arg(long)]
        reason: String,
    },
    /// Pause a broker: it finishes what is in flight and starts nothing new
    Broker {
        id: BrokerId,
        /// Why; told to the broker
        #[arg(long)]
        reason: String,
    },
    /// Pause a currency: no request in it is created or accepted
    Currency {
        code: CurrencyCode,
        /// Why; told to everybody
        #[arg(long)]
        reason: String,
    },
    /// List what is paused, newest first
    List {
        /// What was paused, too
        #[arg(long)]
        all: bool,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum Resume {
    /// Lift the pause of the whole network
    Network {
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Lift the pause of a broker
    Broker {
        id: BrokerId,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
    /// Lift the pause of a currency
    Currency {
        code: CurrencyCode,
        /// Why, for the record
        #[arg(long)]
        reason: Option<String>,
    },
}

pub(super) async fn pause(what: &Pause, config: &Config) -> Result<Shown, Failure> {
    let service = Stores::open(config)?.pauses();
    let (what, reason) = match what {
        Pause::Network { reason } => (Pausable::Network, reason),
        Pause::Broker { id, reason } => (Pausable::Broker(*id), reason),
        Pause::Currency { code, reason } => (Pausable::Currency(code.clone()), reason),
        Pause::List { all, limit } => return Ok(listed(&service.list(!all, None, *limit).await?)),
    };
    let now = Clock::from_env().now();
    let paused = service.pause(what, reason, &operator(), None, now).await;
    let paused = paused.map_err(failure)?;
    if let Paused::Before(pause) = &paused {
        eprintln!("{} was paused already: nothing has changed", pause.what);
    }
    Ok(shown(&paused.into_pause()))
}

pub(super) async fn resume(what: &Resume, config: &Config) -> Result<Shown, Failure> {
    let (what, reason) = match what {
        Resume::Network { reason } => (Pausable::Network, reason),
        Resume::Broker { id, reason } => (Pausable::Broker(*id), reason),
        Resume::Currency { code, reason } => (Pausable::Currency(code.clone()), reason),
    };
    let now = Clock::from_env().now();
    let name = what.to_string();
    let lifted = Stores::open(config)?
        .pauses()
        .resume(what, reason.as_deref(), &operator(), now)
        .await
        .map_err(failure)?;
    Ok(match lifted {
        Some(pause) => shown(&pause),
        None => Shown {
            text: format!("{name} is not paused"),
            json: Value::Null,
        },
    })
}

/// Who is at the command line, as far as the system tells: whoever can run it can be anybody.
pub(super) fn operator() -> String {
    let name = ["SUDO_USER", "USER"]
        .iter()
        .find_map(|name| std::env::var(name).ok())
        .filter(|name| name.len() <= 64 && name.bytes().all(|byte| byte.is_ascii_graphic()));
    name.map_or_else(|| "cli".to_owned(), |name| format!("cli:{name}"))
}

fn failure(error: PauseError) -> Failure {
    match error {
        PauseError::NoSuchBroker { id } => no_such(format!("broker {id}")),
        PauseError::NoSuchCurrency { code } => no_such(format!("currency {code}")),
        error => error.into(),
    }
}

fn shown(pause: &Record) -> Shown {
    let none = || "-".to_owned();
    let lifted = pause.lifted.as_ref();
    let rows = [
        ("id", pause.id.to_string()),
        ("paused", pause.what.to_string()),
        ("reason", pause.reason.clone()),
        ("by", pause.by.clone()),
        ("since", pause.at.to_rfc3339()),
        (
            "lifted",
            lifted.map_or_else(none, |end| end.at.to_rfc3339()),
        ),
        ("lifted by", lifted.map_or_else(none, |end| end.by.clone())),
    ];
    Shown {
        text: facts(&rows),
        json: view(pause),
    }
}

fn listed(found: &[Record]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|pause| {
            [
                pause.id.to_string(),
                pause.what.to_string(),
                pause.at.to_rfc3339(),
                pause.by.clone(),
                if pause.lifted.is_some() {
                    "lifted"
                } else {
                    "open"
                }
                .to_owned(),
                pause.reason.clone(),
            ]
        })
        .collect();
    Shown {
        text: table(["id", "paused", "since", "by", "state", "reason"], &rows),
        json: found.iter().map(view).collect(),
    }
}

fn view(pause: &Record) -> Value {
    let lifted = pause.lifted.as_ref();
    json!({
        "id": pause.id,
        "scope": pause.what.scope(),
        "broker_id": pause.what.broker(),
        "currency_code": pause.what.currency(),
        "reason": pause.reason,
        "paused_by": pause.by,
        "paused_at": pause.at,
        "lifted_by": lifted.map(|end| &end.by),
        "lifted_at": lifted.map(|end| end.at),
        "lift_reason": lifted.and_then(|end| end.reason.as_ref()),
    })
}
