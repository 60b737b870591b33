//! The network of the demonstration: made once, found again later.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, bail};

use super::say;
use crate::app::App;
use crate::cli::settings;
use crate::config::Config;
use crate::domain::access::{Role, TeamSeat};
use crate::domain::broker::BrokerPlan;
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::services::Intention;
use crate::services::auth::AuthService;
use crate::services::migration::migrate_all;
use crate::services::team::{By, NewUser, TeamService};

/// Brokers, their plans and log-ins.
const BROKERS: [(&str, BrokerPlan, &str); 4] = [
    ("Alpha", BrokerPlan::Pro, "alpha"),
    ("Beta", BrokerPlan::Pro, "beta"),
    ("Gamma", BrokerPlan::Starter, "gamma"),
    ("Delta", BrokerPlan::Growth, "delta"),
];
pub(super) const ADMIN: &str = "admin";
/// Brokers on the shard, and databases on the tenants' server.
const CAPACITY: u32 = 1_000;

/// Who is there, and how to log in.
pub(super) struct Network {
    pub(super) brokers: Vec<Member>,
    pub(super) password: String,
}

/// A broker with the log-in of its admin.
pub(super) struct Member {
    pub(super) id: BrokerId,
    pub(super) name: &'static str,
    pub(super) login: &'static str,
    place: String,
}

impl Network {
    pub(super) fn logins(&self) -> Vec<(&'static str, String)> {
        let brokers = self.brokers.iter().map(|broker| {
            (
                broker.login,
                format!("{} (broker {}, {})", broker.name, broker.id, broker.place),
            )
        });
        brokers
            .chain([(ADMIN, "the platform".to_owned())])
            .collect()
    }
}

/// Migrates all databases and makes what is not there yet.
pub(super) async fn make(app: &App, config: &Config, dir: &Path) -> anyhow::Result<Network> {
    migrate(config).await?;
    let systems = &app.systems;
    let now = systems.clock.now();
    let provisioning = &app.provisioning;
    // Server `a` has the master and shards; FULL brokers go to `b`.
    provisioning.register_server("a", 0, None, now).await?;
    provisioning
        .register_server("b", CAPACITY, None, now)
        .await?;
    let shard = format!("{}shard_01", config.books.database_prefix);
    provisioning
        .create_shard("a", &shard, CAPACITY, None, now)
        .await?;

    let password = password(dir)?;
    let auth = AuthService::open(
        settings::auth(&config.auth),
        systems.master.clone(),
        systems.clock.clone(),
        systems.entropy.clone(),
    )
    .await?;
    let team = TeamService::new(
        systems.master.clone(),
        systems.clock.clone(),
        auth.passwords(),
    );
    let mut brokers = Vec::new();
    for (name, plan, login) in BROKERS {
        let intention = intention(&format!("broker {name}"));
        let broker = provisioning
            .create_broker(name, plan, None, Some(intention), now)
            .await?;
        user(&team, login, Role::BrokerAdmin, Some(broker.id), &password).await?;
        say(&format!("{name} is broker {}, {}", broker.id, broker.mode));
        brokers.push(Member {
            id: broker.id,
            name,
            login,
            place: format!("{}, plan {}", broker.mode, broker.plan),
        });
    }
    user(&team, ADMIN, Role::PlatformAdmin, None, &password).await?;
    Ok(Network { brokers, password })
}

async fn migrate(config: &Config) -> anyhow::Result<()> {
    let reports = migrate_all(config, |_, _, _| {}).await?;
    for report in reports {
        if let Err(error) = &report.outcome {
            bail!("{} could not be migrated: {error}", report.database);
        }
    }
    Ok(())
}

async fn user(
    team: &TeamService,
    login: &str,
    role: Role,
    broker_id: Option<BrokerId>,
    password: &str,
) -> anyhow::Result<()> {
    let new = NewUser {
        login: login.to_owned(),
        password: password.to_owned().into(),
        role,
    };
    let intention = intention(&format!("user {login}"));
    team.create_user(TeamSeat { broker_id }, new, By::Operator, &intention)
        .await?;
    Ok(())
}

/// The same at every run, so that each thing is made once.
fn intention(what: &str) -> Intention {
    Intention {
        client: "demo".to_owned(),
        key: what.to_owned(),
        fingerprint: Hash::of_bytes(what.as_bytes()),
    }
}

/// One password for all log-ins of this stack, made at its first run and kept beside its data
/// for its owner only.
fn password(dir: &Path) -> anyhow::Result<String> {
    let file = dir.join("demo-password");
    if let Ok(password) = std::fs::read_to_string(&file) {
        return Ok(password.trim().to_owned());
    }
    let password = format!("demo-{}", uuid::Uuid::new_v4().simple());
    std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&file)
        .and_then(|mut file| file.write_all(password.as_bytes()))
        .with_context(|| file.display().to_string())?;
    Ok(password)
}
