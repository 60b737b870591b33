//! A network of a run's own, on the servers of the benchmark.

use uuid::Uuid;

use crate::app::App;
use crate::config::Config;
use crate::domain::canonical::Hash;
use crate::runtime::{Clock, Entropy};
use crate::services::Intention;
use crate::stores::migrate::{self, Kind};

pub(super) struct Bench {
    pub(super) app: App,
    /// With the master and the names of databases of this run.
    pub(super) config: Config,
}

impl Bench {
    /// Databases of this run only: what an earlier one left has no part in it.
    pub(super) async fn set(config: &Config) -> anyhow::Result<Self> {
        let mut config = config.clone();
        let run = format!("bench_{}_", Uuid::now_v7().simple());
        config.master.url = config.master.url.with_database(&format!("{run}m"));
        // What was signed last is kept in the payment manager's database, which is all runs'.
        config.checkpoints.name = format!("{run}log");
        config.books.database_prefix = run;
        migrate::migrate(&config.master.url, Kind::Master).await?;
        migrate::migrate_postgres(&config.postgres.url).await?;
        let app = App::assemble(&config, Clock::System, Entropy::from_env())?;
        Ok(Self { app, config })
    }

    /// The name of a database of this run.
    pub(super) fn database(&self, name: &str) -> String {
        format!("{}{name}", self.config.books.database_prefix)
    }
}

/// What nobody has meant before.
pub(super) fn intention() -> Intention {
    let key = Uuid::now_v7().to_string();
    Intention {
        client: "bench".to_owned(),
        fingerprint: Hash::of_bytes(key.as_bytes()),
        key,
    }
}
