use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::broker::{Broker, BrokerPlan, BrokerState, Placement};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::services::Intention;
use crate::services::provisioning::{Provisioning, ProvisioningError};

#[derive(Debug, Subcommand)]
pub(super) enum What {
    /// Create a broker with its book
    ///
    /// A SOLO broker goes to the emptiest open shard, a FULL one gets a database
    /// of its own on the emptiest open server. Said again after a failure, it
    /// finishes what was begun.
    Create {
        /// Its name, which no other broker has
        name: String,
        /// starter or growth (SOLO), pro (FULL)
        #[arg(long, default_value = "starter")]
        plan: BrokerPlan,
        /// The broker that has invited it
        #[arg(long, value_name = "ID")]
        referred_by: Option<BrokerId>,
    },
    /// List brokers, newest first
    List {
        /// Only those that are provisioning, active, suspended, leaving or archived
        #[arg(long)]
        state: Option<BrokerState>,
        /// At most so many
        #[arg(long, default_value_t = 100)]
        limit: u32,
        /// Those before this one: the last of the list before
        #[arg(long, value_name = "ID")]
        before: Option<BrokerId>,
    },
    /// Show a broker
    Show { id: BrokerId },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<Shown, Failure> {
    let places = Stores::open(config)?.provisioning(config);
    let one = match what {
        What::Create {
            name,
            plan,
            referred_by,
        } => create(&places, name, *plan, *referred_by).await,
        What::List {
            state,
            limit,
            before,
        } => {
            let found = places.brokers(*state, *before, *limit).await?;
            return Ok(listed(&found));
        }
        What::Show { id } => places.broker(*id).await,
    };
    Ok(shown(&one.map_err(failure)?))
}

/// How the process ends for what could not be done to a broker.
pub(super) fn failure(error: ProvisioningError) -> Failure {
    match error {
        ProvisioningError::KeyReused => {
            anyhow::anyhow!("there is a broker of this name, of another plan or referrer").into()
        }
        ProvisioningError::NoSuchBroker { id } | ProvisioningError::NoSuchReferrer { id } => {
            no_such(format!("broker {id}"))
        }
        error => error.into(),
    }
}

/// The name is the key: whoever says the same again means the same broker.
async fn create(
    places: &Provisioning,
    name: &str,
    plan: BrokerPlan,
    referred_by: Option<BrokerId>,
) -> Result<Broker, ProvisioningError> {
    let name = crate::domain::broker::name(name).ok_or(ProvisioningError::InvalidName)?;
    let meant = json!({"name": name, "plan": plan, "referred_by": referred_by});
    let intention = Intention {
        client: "cli".to_owned(),
        key: format!("broker:{name}"),
        fingerprint: Hash::of_json(&meant),
    };
    let now = Clock::from_env().now();
    places
        .create_broker(name, plan, referred_by, Some(intention), now)
        .await
}

fn shown(broker: &Broker) -> Shown {
    let none = || "-".to_owned();
    let rows = [
        ("id", broker.id.to_string()),
        ("name", broker.name.clone()),
        ("mode", broker.mode.to_string()),
        ("plan", broker.plan.to_string()),
        ("state", broker.state.to_string()),
        ("place", place(broker)),
        (
            "referred by",
            broker.referred_by.map_or_else(none, |id| id.to_string()),
        ),
        ("created", broker.created_at.to_rfc3339()),
    ];
    Shown {
        text: facts(&rows),
        json: view(broker),
    }
}

fn listed(found: &[Broker]) -> Shown {
    let rows: Vec<_> = found
        .iter()
        .map(|broker| {
            [
                broker.id.to_string(),
                broker.name.clone(),
                broker.mode.to_string(),
                broker.plan.to_string(),
                broker.state.to_string(),
                place(broker),
            ]
        })
        .collect();
    Shown {
        text: table(["id", "name", "mode", "plan", "state", "place"], &rows),
        json: found.iter().map(view).collect(),
    }
}

fn place(broker: &Broker) -> String {
    match &broker.placement {
        None => "-".to_owned(),
        Some(Placement::Shard(shard)) => format!("shard {shard}"),
        Some(Placement::Own { server, database }) => format!("{server}/{database}"),
    }
}

fn view(broker: &Broker) -> Value {
    let (shard, server, database) = match &broker.placement {
        None => (None, None, None),
        Some(Placement::Shard(shard)) => (Some(shard), None, None),
        Some(Placement::Own { server, database }) => (None, Some(server), Some(database)),
    };
    json!({
        "id": broker.id,
        "name": broker.name,
        "broker_mode": broker.mode,
        "plan": broker.plan,
        "state": broker.state,
        "referred_by_broker_id": broker.referred_by,
        "shard_id": shard,
        "server_name": server,
        "database_name": database,
        "created_at": broker.created_at,
    })
}
