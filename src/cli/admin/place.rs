use anyhow::Context as _;
use clap::Subcommand;
use serde_json::{Value, json};

use super::{Failure, Shown};
use crate::app::Stores;
use crate::cli::table::table;
use crate::config::Config;
use crate::runtime::Clock;
use crate::services::provisioning::OpenPlace;
use crate::stores::master::placement;

#[derive(Debug, Subcommand)]
pub(super) enum Server {
    /// Register a server of the configuration, or set what it may hold
    ///
    /// Its address stays in the configuration, under servers.NAME.url.
    Add {
        /// NAME of servers.NAME
        name: String,
        /// Databases that it may hold: shards and FULL brokers' own
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
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
    /// Create a shard: a database for the books of many SOLO brokers
    ///
    /// Said again after a failure, it finishes what was begun.
    Create {
        /// NAME of servers.NAME in the configuration
        #[arg(long, value_name = "NAME")]
        server: String,
        /// The database, made if there is none
        #[arg(long, value_name = "NAME")]
        database: String,
        /// Brokers that it may hold; what it has at first stays
        #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        capacity: u32,
        /// Whether it takes new brokers [default: as it is; at first true]
        #[arg(long, value_name = "BOOL")]
        accepts_new: Option<bool>,
    },
    /// List the shards
    List,
}

pub(super) async fn servers(what: &Server, config: &Config) -> Result<Shown, Failure> {
    let stores = Stores::open(config)?;
    let mut only = None;
    if let Server::Add {
        name,
        capacity,
        accepts_new,
    } = what
    {
        let places = stores.provisioning(config);
        let now = Clock::from_env().now();
        places.register_server(name, *capacity, now).await?;
        if let Some(open) = accepts_new {
            places
                .set_open(&OpenPlace::Server(name.clone()), *open)
                .await?;
        }
        only = Some(name);
    }
    let found = placement::servers(&stores.master).await?;
    let found: Vec<_> = found
        .into_iter()
        .filter(|server| only.is_none_or(|only| *only == server.name))
        .collect();
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
    let view = |server: &placement::Server| {
        json!({
            "name": server.name,
            "capacity": server.capacity,
            "accepts_new": server.accepts_new,
            "databases": server.held,
        })
    };
    Ok(Shown {
        text: table(["name", "databases", "takes new"], &rows),
        json: one_or_all(only.is_some(), found.iter().map(view).collect())?,
    })
}

pub(super) async fn shards(what: &Shard, config: &Config) -> Result<Shown, Failure> {
    let stores = Stores::open(config)?;
    let mut only = None;
    if let Shard::Create {
        server,
        database,
        capacity,
        accepts_new,
    } = what
    {
        let places = stores.provisioning(config);
        let now = Clock::from_env().now();
        let number = places
            .create_shard(server, database, *capacity, now)
            .await?;
        if let Some(open) = accepts_new {
            places.set_open(&OpenPlace::Shard(number), *open).await?;
        }
        only = Some(number);
    }
    let found = placement::shards(&stores.master).await?;
    let found: Vec<_> = found
        .into_iter()
        .filter(|shard| only.is_none_or(|only| only == shard.shard_id))
        .collect();
    let rows: Vec<_> = found
        .iter()
        .map(|shard| {
            [
                shard.shard_id.to_string(),
                format!("{}/{}", shard.server_name, shard.database_name),
                format!("{} of {}", shard.brokers, shard.capacity),
                yes(shard.accepts_new),
            ]
        })
        .collect();
    let view = |shard: &placement::Shard| {
        json!({
            "id": shard.shard_id,
            "server_name": shard.server_name,
            "database_name": shard.database_name,
            "capacity": shard.capacity,
            "accepts_new": shard.accepts_new,
            "brokers": shard.brokers,
        })
    };
    Ok(Shown {
        text: table(["id", "database", "brokers", "takes new"], &rows),
        json: one_or_all(only.is_some(), found.iter().map(view).collect())?,
    })
}

fn yes(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// The thing that was made, or the list.
fn one_or_all(one: bool, mut all: Vec<Value>) -> anyhow::Result<Value> {
    if one {
        all.pop().context("it was removed meanwhile")
    } else {
        Ok(Value::Array(all))
    }
}
