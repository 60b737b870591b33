//! `database_server` and `shared_shard`: where books may be.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::failed;
use crate::domain::canonical::Hash;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::{Connection, Pool};

/// A database server of the registry. Its connection string is in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Server {
    pub name: String,
    /// Databases that it may hold.
    pub capacity: u32,
    pub accepts_new: bool,
    /// Databases that it holds: shards and FULL brokers' own, with those that moves are making or
    /// have left.
    pub held: i64,
}

/// A shard with the number of its brokers.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Shard {
    pub shard_id: u32,
    pub server_name: String,
    pub database_name: String,
    /// Brokers that it may hold.
    pub capacity: u32,
    pub accepts_new: bool,
    /// `making` until its database is whole, then `open`.
    pub state: String,
    /// Brokers that it holds, with those that are moving to it.
    pub brokers: i64,
}

macro_rules! servers {
    () => {
        "SELECT s.name, s.capacity, s.accepts_new,
             (SELECT COUNT(*) FROM shared_shard h WHERE h.server_name = s.name)
             + (SELECT COUNT(*) FROM broker b WHERE b.broker_mode = 'FULL' AND b.server_name = s.name)
             + (SELECT COUNT(*) FROM broker_move m WHERE m.open_broker_id IS NOT NULL
                    AND m.to_shard_id IS NULL AND m.to_server = s.name AND m.state <> 'flipped')
             + (SELECT COUNT(*) FROM broker_move m
                    WHERE (m.state IN ('flipped', 'retained', 'purging', 'kept')
                           OR m.state = 'abandoned' AND m.flipped_at IS NOT NULL)
                    AND m.from_shard_id IS NULL AND m.from_server = s.name)
             + (SELECT COUNT(*) FROM broker_move m
                    WHERE m.state = 'abandoned' AND m.flipped_at IS NULL
                    AND m.to_shard_id IS NULL AND m.to_server = s.name)
             AS held
         FROM database_server s"
    };
}

macro_rules! shards {
    () => {
        "SELECT h.shard_id, h.server_name, h.database_name, h.capacity, h.accepts_new, h.state,
             (SELECT COUNT(*) FROM broker b WHERE b.shared_shard_id = h.shard_id)
             + (SELECT COUNT(*) FROM broker_move m WHERE m.open_broker_id IS NOT NULL
                    AND m.to_shard_id = h.shard_id AND m.state <> 'flipped') AS brokers
         FROM shared_shard h"
    };
}

/// Registers a server, or sets the capacity of one that is registered. Where `accepts_new` says
/// nothing, whether it takes new databases stays as it is, and is at first yes.
///
/// # Errors
/// The master's.
pub async fn put_server(
    master: &Pool,
    name: &str,
    capacity: u32,
    accepts_new: Option<bool>,
    now: DateTime<Utc>,
) -> Result<Server, StoreError> {
    sqlx::query(
        "INSERT INTO database_server (name, capacity, accepts_new, created_at) VALUES (?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE capacity = VALUES(capacity),
             accepts_new = COALESCE(?, accepts_new)",
    )
    .bind(name)
    .bind(capacity)
    .bind(accepts_new.unwrap_or(true))
    .bind(now)
    .bind(accepts_new)
    .execute(master)
    .await
    .map_err(failed)?;
    sqlx::query_as(concat!(servers!(), " WHERE s.name = ?"))
        .bind(name)
        .fetch_one(master)
        .await
        .map_err(failed)
}

/// All servers, by name.
///
/// # Errors
/// The master's.
pub async fn servers(master: &Pool) -> Result<Vec<Server>, StoreError> {
    sqlx::query_as(concat!(servers!(), " ORDER BY s.name"))
        .fetch_all(master)
        .await
        .map_err(failed)
}

/// The server that takes new databases and has most room, by share of its capacity, other than
/// `except`. Placements take turns on the registry's rows, so that two of them can't both take the
/// last room.
///
/// # Errors
/// The master's.
pub async fn emptiest_server(
    tx: &mut MasterTx,
    except: Option<&str>,
) -> Result<Option<Server>, StoreError> {
    lock_servers(tx).await?;
    sqlx::query_as(concat!(
        servers!(),
        " WHERE s.accepts_new = TRUE AND NOT s.name <=> ? HAVING held < s.capacity
          ORDER BY held / s.capacity, s.name LIMIT 1"
    ))
    .bind(except)
    .fetch_optional(tx)
    .await
    .map_err(failed)
}

/// Registers a shard that is `making` and takes no brokers yet, or sets the capacity of one that
/// is registered.
///
/// # Errors
/// The master's.
pub async fn put_shard(
    master: &Pool,
    server: &str,
    database: &str,
    capacity: u32,
    now: DateTime<Utc>,
) -> Result<Shard, StoreError> {
    sqlx::query(
        "INSERT INTO shared_shard (server_name, database_name, capacity, accepts_new, state, created_at)
         VALUES (?, ?, ?, FALSE, 'making', ?) ON DUPLICATE KEY UPDATE capacity = VALUES(capacity)",
    )
    .bind(server)
    .bind(database)
    .bind(capacity)
    .bind(now)
    .execute(master)
    .await
    .map_err(failed)?;
    sqlx::query_as(concat!(
        shards!(),
        " WHERE h.server_name = ? AND h.database_name = ?"
    ))
    .bind(server)
    .bind(database)
    .fetch_one(master)
    .await
    .map_err(failed)
}

/// The database of a shard is whole.
///
/// # Errors
/// The master's.
pub async fn set_shard_made(master: &Pool, shard_id: u32) -> Result<(), StoreError> {
    sqlx::query("UPDATE shared_shard SET state = 'open' WHERE shard_id = ?")
        .bind(shard_id)
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(())
}

/// The registered shard in a database of a server.
///
/// # Errors
/// The master's.
pub async fn shard_in(
    master: &Pool,
    server: &str,
    database: &str,
) -> Result<Option<Shard>, StoreError> {
    sqlx::query_as(concat!(
        shards!(),
        " WHERE h.server_name = ? AND h.database_name = ?"
    ))
    .bind(server)
    .bind(database)
    .fetch_optional(master)
    .await
    .map_err(failed)
}

/// The FULL broker whose own a database of a server is.
///
/// # Errors
/// The master's.
pub async fn owner_of(
    master: &Pool,
    server: &str,
    database: &str,
) -> Result<Option<u64>, StoreError> {
    sqlx::query_scalar(
        "SELECT broker_id FROM broker
         WHERE broker_mode = 'FULL' AND server_name = ? AND database_name = ?",
    )
    .bind(server)
    .bind(database)
    .fetch_optional(master)
    .await
    .map_err(failed)
}

/// The master's own database, by its name.
///
/// # Errors
/// The master's.
pub async fn own_name(master: &Pool) -> Result<String, StoreError> {
    sqlx::query_scalar("SELECT CAST(DATABASE() AS CHAR)")
        .fetch_one(master)
        .await
        .map_err(failed)
}

/// How long to wait for another process that works on the same place.
const PLACE_WAIT_S: u32 = 8;

/// Keeps a place (a database of a server) to oneself while it becomes a shard or stops being one:
/// `None` where somebody else has it for longer than one waits. Give it back by [`give_back`]; a
/// process that dies, or a task that panics, gives it back with its connection.
///
/// # Errors
/// The master's.
pub async fn keep(
    master: &Pool,
    server: &str,
    database: &str,
) -> Result<Option<Connection>, StoreError> {
    let mut kept = master.acquire().await.map_err(failed)?;
    kept.keep_own();
    let got: Option<i64> = sqlx::query_scalar("SELECT CAST(GET_LOCK(?, ?) AS SIGNED)")
        .bind(place_lock(server, database))
        .bind(PLACE_WAIT_S)
        .fetch_one(&mut kept)
        .await
        .map_err(failed)?;
    Ok((got == Some(1)).then_some(kept))
}

/// Gives back what [`keep`] gave.
///
/// # Errors
/// The master's: then the lock went with the connection.
pub async fn give_back(
    mut kept: Connection,
    server: &str,
    database: &str,
) -> Result<(), StoreError> {
    sqlx::query("DO RELEASE_LOCK(?)")
        .bind(place_lock(server, database))
        .execute(&mut kept)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Names of locks are the server's, at most 64 characters, and of any case.
fn place_lock(server: &str, database: &str) -> String {
    let place = format!("{server}/{database}");
    let digest = Hash::of_bytes(place.as_bytes()).to_string();
    format!("place:{}", &digest[..32])
}

/// Closes a shard without brokers for good; gives whether it has none. Placements take turns, as
/// for servers, so none comes from here on.
///
/// # Errors
/// The master's.
pub async fn set_shard_removing(tx: &mut MasterTx, shard_id: u32) -> Result<bool, StoreError> {
    lock_shards(tx).await?;
    sqlx::query(
        "UPDATE shared_shard SET state = 'removing', accepts_new = FALSE WHERE shard_id = ?
           AND NOT EXISTS (SELECT 1 FROM broker b WHERE b.shared_shard_id = ?)
           AND NOT EXISTS (SELECT 1 FROM broker_move m
                           WHERE m.to_shard_id = ? AND m.open_broker_id IS NOT NULL)",
    )
    .bind(shard_id)
    .bind(shard_id)
    .bind(shard_id)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    // Whether it was so before or is now.
    let closed: Option<String> =
        sqlx::query_scalar("SELECT state FROM shared_shard WHERE shard_id = ?")
            .bind(shard_id)
            .fetch_optional(tx)
            .await
            .map_err(failed)?;
    Ok(closed.is_none_or(|state| state == "removing"))
}

/// Strikes a shard that is `removing` off the registry.
///
/// # Errors
/// The master's.
pub async fn remove_shard(master: &Pool, shard_id: u32) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM shared_shard WHERE shard_id = ? AND state = 'removing'")
        .bind(shard_id)
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Says whether a shard takes new brokers; gives whether there is such a shard.
///
/// # Errors
/// The master's.
pub async fn set_shard_open(
    master: &Pool,
    shard_id: u32,
    accepts_new: bool,
) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE shared_shard SET accepts_new = ? WHERE shard_id = ?")
        .bind(accepts_new)
        .bind(shard_id)
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// All shards, by number.
///
/// # Errors
/// The master's.
pub async fn shards(master: &Pool) -> Result<Vec<Shard>, StoreError> {
    sqlx::query_as(concat!(shards!(), " ORDER BY h.shard_id"))
        .fetch_all(master)
        .await
        .map_err(failed)
}

/// # Errors
/// The master's.
pub async fn shard(master: &Pool, shard_id: u32) -> Result<Option<Shard>, StoreError> {
    sqlx::query_as(concat!(shards!(), " WHERE h.shard_id = ?"))
        .bind(shard_id)
        .fetch_optional(master)
        .await
        .map_err(failed)
}

/// Lets placements on servers take turns.
///
/// # Errors
/// The master's.
pub async fn lock_servers(tx: &mut MasterTx) -> Result<(), StoreError> {
    let rows = "SELECT name FROM database_server ORDER BY name FOR UPDATE";
    lock(tx, rows).await
}

/// Lets placements in shards take turns.
///
/// # Errors
/// The master's.
pub async fn lock_shards(tx: &mut MasterTx) -> Result<(), StoreError> {
    let rows = "SELECT shard_id FROM shared_shard ORDER BY shard_id FOR UPDATE";
    lock(tx, rows).await
}

/// A registered server, as a transaction sees it.
///
/// # Errors
/// The master's.
pub async fn server_of(tx: &mut MasterTx, name: &str) -> Result<Option<Server>, StoreError> {
    sqlx::query_as(concat!(servers!(), " WHERE s.name = ?"))
        .bind(name)
        .fetch_optional(tx)
        .await
        .map_err(failed)
}

/// A shard, as a transaction sees it.
///
/// # Errors
/// The master's.
pub async fn shard_of(tx: &mut MasterTx, shard_id: u32) -> Result<Option<Shard>, StoreError> {
    sqlx::query_as(concat!(shards!(), " WHERE h.shard_id = ?"))
        .bind(shard_id)
        .fetch_optional(tx)
        .await
        .map_err(failed)
}

/// The emptiest shard that takes new brokers, other than `except`. Placements take turns, as for
/// servers.
///
/// # Errors
/// The master's.
pub async fn emptiest_shard(
    tx: &mut MasterTx,
    except: Option<u32>,
) -> Result<Option<Shard>, StoreError> {
    lock_shards(tx).await?;
    sqlx::query_as(concat!(
        shards!(),
        " WHERE h.accepts_new = TRUE AND h.state = 'open' AND NOT h.shard_id <=> ?
          HAVING brokers < h.capacity ORDER BY brokers, h.shard_id LIMIT 1"
    ))
    .bind(except)
    .fetch_optional(tx)
    .await
    .map_err(failed)
}

async fn lock(tx: &mut MasterTx, rows: &'static str) -> Result<(), StoreError> {
    sqlx::query(rows).fetch_all(tx).await.map_err(failed)?;
    Ok(())
}
