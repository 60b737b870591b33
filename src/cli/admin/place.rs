use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::table;
use crate::config::Config;
use crate::runtime::Clock;
use crate::services::provisioning::{self, CAPACITY_MAX, ProvisioningError};

#[derive(Debug, Subcommand)]
pub(super) enum Server {
    /// Register a server of the configuration, or set what it may hold
    ///
    /// Its address stays in the configuration, under servers.NAME.url.
    Add {
        /// NAME of servers.NAME
        name: String,
        /// Databases that it may hold: shards and FULL brokers' own
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(CAPACITY_MAX)))]
        capacity: u32,
        /// Whether it takes new databases [default: as it is; at first true]
        #[arg(long, value_name = "BOOL")]
        accepts_new: Option<bool>,
    },
    /// List the servers
    List,
}

#[derive(Debug, Subcommand)]
pub(super) enum Shard {
    /// Create a shard: a database for the books of many SOLO brokers; or set what it may hold
    ///
    /// Said again after a failure, it finishes what was begun.
    Create {
        /// NAME of servers.NAME in the configuration
        #[arg(long, value_name = "NAME")]
        server: String,
        /// The database, made if there is none
        #[arg(long, value_name = "NAME")]
        database: String,
        /// Brokers that it may hold
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(CAPACITY_MAX)))]
        capacity: u32,
        /// Whether it takes new brokers [default: as it is; at first true]
        #[arg(long, value_name = "BOOL")]
        accepts_new: Option<bool>,
    },
    /// Remove a shard that holds no book: one that was never finished, or that nobody needs
    ///
    /// Its database stays, for its server's admin to drop.
    Remove {
        /// Its number, or SERVER/DATABASE
        name: String,
    },
    /// List the shards
    List,
}

pub(super) async fn servers(what: &Server, config: &Config) -> Result<Shown, Failure> {
    let places = Stores::open(config)?.provisioning(config);
    let (found, one) = match what {
        Server::Add {
            name,
            capacity,
            accepts_new,
        } => {
            let now = Clock::from_env().now();
            let added = places.register_server(name, *capacity, *accepts_new, now);
            (vec![added.await?], true)
        }
        Server::List => (places.servers().await?, false),
    };
    let rows: Vec<_> = found
        .iter()
        .map(|server| {
            [
                server.name.clone(),
                format!("{} of {}", server.held, server.capacity),
                yes(server.accepts_new),
            ]
        })
        .collect();
    let view = |server: &provisioning::Server| {
        json!({
            "name": server.name,
            "capacity": server.capacity,
            "accepts_new": server.accepts_new,
            "databases": server.held,
        })
    };
    Ok(Shown {
        text: table(["name", "databases", "takes new"], &rows),
        json: one_or_all(one, found.iter().map(view).collect()),
    })
}

pub(super) async fn shards(what: &Shard, config: &Config) -> Result<Shown, Failure> {
    let places = Stores::open(config)?.provisioning(config);
    let (found, one) = match what {
        Shard::Create {
            server,
            database,
            capacity,
            accepts_new,
        } => {
            let now = Clock::from_env().now();
            let made = places.create_shard(server, database, *capacity, *accepts_new, now);
            (vec![made.await?], true)
        }
        Shard::Remove { name } => match places.remove_shard(name).await {
            Err(ProvisioningError::NoSuchShard { name }) => {
                return Err(no_such(format!("shard {name}")));
            }
            removed => (vec![removed?], true),
        },
        Shard::List => (places.shards().await?, false),
    };
    let rows: Vec<_> = found
        .iter()
        .map(|shard| {
            [
                shard.shard_id.to_string(),
                format!("{}/{}", shard.server_name, shard.database_name),
                format!("{} of {}", shard.brokers, shard.capacity),
                yes(shard.accepts_new),
                shard.state.clone(),
            ]
        })
        .collect();
    let view = |shard: &provisioning::Shard| {
        json!({
            "id": shard.shard_id,
            "server_name": shard.server_name,
            "database_name": shard.database_name,
            "capacity": shard.capacity,
            "accepts_new": shard.accepts_new,
            "state": shard.state,
            "brokers": shard.brokers,
        })
    };
    Ok(Shown {
        text: table(["id", "database", "brokers", "takes new", "state"], &rows),
        json: one_or_all(one, found.iter().map(view).collect()),
    })
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// The thing that was made, or the list.
fn one_or_all(one: bool, mut all: Vec<Value>) -> Value {
    all.pop_if(|_| one).unwrap_or(Value::Array(all))
}
