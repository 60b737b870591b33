use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::services::domains::{Domain, DomainError, DomainService};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// List host names that brokers have claimed, newest first
    List {
        /// Only those that wait to be activated
        #[arg(long)]
        waiting: bool,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
    },
    /// Make a broker's host name active, once its proof was found published
    ///
    /// The proof is a TXT record of _settlenet. and the host; look for it first, for
    /// instance by: dig +short TXT _settlenet.HOST
    Activate {
        /// The broker
        id: BrokerId,
        /// The name that was looked at
        host: String,
    },
    /// Take a broker's host name away
    Release {
        /// The broker
        id: BrokerId,
    },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let domains = DomainService::new(Stores::open(config)?.master, Clock::from_env());
    let missing = |id: BrokerId| {
        move |error| match error {
            DomainError::NotFound => no_such(format!("host name of broker {id}")),
            error => error.into(),
        }
    };
    match what {
        What::List { waiting, limit } => {
            let active = waiting.then_some(false);
            Ok(listed(&domains.list(active, None, *limit).await?))
        }
        What::Activate { id, host } => {
            let active = domains.activate(*id, host, "cli").await;
            let domain = active.map_err(missing(*id))?;
            Ok(Shown {
                text: facts(&[
                    ("host", domain.host.clone()),
                    ("broker", domain.broker_id.to_string()),
                    ("state", state(&domain).to_owned()),
                ]),
                json: view(&domain),
            })
        }
        What::Release { id } => {
            domains.release(*id).await.map_err(missing(*id))?;
            Ok(Shown {
                text: format!("broker {id} has no host name of its own any more"),
                json: json!({"broker_id": id, "released": true}),
            })
        }
    }
}

fn listed(found: &[Domain]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|domain| {
            [
                domain.broker_id.to_string(),
                domain.host.clone(),
                state(domain).to_owned(),
                domain.claimed_at.to_rfc3339(),
                domain.proof.clone(),
            ]
        })
        .collect();
    Shown {
        text: table(["broker", "host", "state", "claimed", "proof"], &rows),
        json: found.iter().map(view).collect(),
    }
}

const fn state(domain: &Domain) -> &'static str {
    if domain.activated_at.is_some() {
        "active"
    } else {
        "claimed"
    }
}

fn view(domain: &Domain) -> Value {
    json!({
        "broker_id": domain.broker_id,
        "host": domain.host,
        "state": state(domain),
        "proof": domain.proof,
        "claimed_at": domain.claimed_at,
        "activated_at": domain.activated_at,
    })
}
