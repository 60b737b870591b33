use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown, book_file, no_such, offboard};
use crate::app::Stores;
use crate::cli::table::{facts, table};
use crate::config::Config;
use crate::domain::broker::{Broker, BrokerPlan, BrokerState, Placement};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::services::Intention;
use crate::services::plans::{AskedBy, PlanError};
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
    /// Let a broker leave the network, or say what must be settled first
    ///
    /// Where nothing is outstanding it is `leaving`: it starts nothing new. With --out
    /// its book is frozen and exported into the file, and it is archived: its people
    /// can't log in, and its book is kept, and only read. Said again after a crash,
    /// with the same file, it goes on.
    Offboard {
        id: BrokerId,
        /// Where its book goes
        #[arg(long, value_name = "FILE")]
        out: Option<PathBuf>,
        /// It stays after all, which it can until it is archived
        #[arg(long, conflicts_with = "out")]
        cancel: bool,
    },
    /// Write a broker's book into a file: its backup, or what it takes along
    ///
    /// All of it, as of one moment, while the broker works, and verified on the way.
    /// The file has personal data; only its owner may read it. docs/formats.md has
    /// the format. The platform sees no book over REST, so this is done here alone.
    Export {
        id: BrokerId,
        /// A file that is not there yet
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
    /// Take a broker's book in from a file
    ///
    /// The whole file is verified first; one that is wrong changes nothing, and the
    /// line is named. The broker must be here, and its book be empty or absent.
    /// Nobody reads or writes the book meanwhile. Said again after a crash, with the
    /// same file, it finishes.
    Import {
        file: PathBuf,
        /// The book that is there may be replaced, where the file goes on from it
        #[arg(long)]
        replace: bool,
        /// Verify the file only, without any database
        #[arg(long, conflicts_with = "replace")]
        check: bool,
    },
    /// Move a broker's book to another database while the broker works
    ///
    /// A running `serve` or `worker` does the work; `settlenet admin move show`
    /// says how far it is.
    Move(super::moves::Start),
    /// Put a broker on another plan
    ///
    /// It is another at once; to or from pro the book moves to a database of its own
    /// or back. Where the broker has more than the plan allows, the message says what
    /// has to go first. Said again, it finishes what was begun.
    Plan {
        /// The broker
        id: BrokerId,
        /// starter, growth, pro
        plan: BrokerPlan,
    },
}

pub(super) async fn run(what: &What, config: &Config) -> Result<(Shown, ExitCode), Failure> {
    if let What::Offboard { id, out, cancel } = what {
        return offboard::run(*id, out.as_deref(), *cancel, config).await;
    }
    Ok((one(what, config).await?, ExitCode::SUCCESS))
}

async fn one(what: &What, config: &Config) -> Result<Shown, Failure> {
    let stores = Stores::open(config)?;
    let places = stores.provisioning(config);
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
        What::Export { id, out } => return book_file::export(*id, out, config).await,
        What::Import {
            file,
            replace,
            check,
        } => return book_file::import(file, *replace, *check, config).await,
        What::Show { id } | What::Offboard { id, .. } => places.broker(*id).await,
        What::Move(start) => return super::moves::start(start, config).await,
        What::Plan { id, plan } => {
            let now = Clock::from_env().now();
            let plans = stores.plans();
            let changed = plans.change(*id, *plan, AskedBy::Platform, now);
            return match Box::pin(changed).await {
                Ok(broker) => Ok(shown(&broker)),
                Err(PlanError::NoSuchBroker { id }) => Err(no_such(format!("broker {id}"))),
                Err(error) => Err(error.into()),
            };
        }
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
        "plan_wanted": broker.plan_wanted,
        "state": broker.state,
        "referred_by_broker_id": broker.referred_by,
        "shard_id": shard,
        "server_name": server,
        "database_name": database,
        "created_at": broker.created_at,
    })
}
