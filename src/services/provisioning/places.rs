//! Servers and shards: where books may be.

use chrono::{DateTime, Utc};

use super::{Provisioning, ProvisioningError, another, key, not_migrated, occupied, whole};
use crate::stores::book;
use crate::stores::master;
use crate::stores::master::placement::{self, Server, Shard};
use crate::stores::migrate::{Kind, Survey, check_name, forget_number, is_system};
use crate::stores::router::DatabaseKey;

impl Provisioning {
    /// Registers a server of the configuration under its name there, or sets the number of
    /// databases that it may hold. Whether it takes new ones stays as it is where `accepts_new`
    /// says nothing, and is at first yes.
    ///
    /// # Errors
    /// [`ProvisioningError::NoSuchServer`] for one that the configuration lacks; the master's.
    pub async fn register_server(
        &self,
        name: &str,
        capacity: u32,
        accepts_new: Option<bool>,
        now: DateTime<Utc>,
    ) -> Result<Server, ProvisioningError> {
        self.configured(name)?;
        Ok(placement::put_server(&self.master, name, capacity, accepts_new, now).await?)
    }

    /// All servers that are registered, by name.
    ///
    /// # Errors
    /// The master's.
    pub async fn servers(&self) -> Result<Vec<Server>, ProvisioningError> {
        Ok(placement::servers(&self.master).await?)
    }

    /// Creates a shard in a database of a server, finishes one that was begun, or sets the number
    /// of brokers that one may hold. `accepts_new` as for a server.
    ///
    /// # Errors
    /// See [`ProvisioningError`].
    pub async fn create_shard(
        &self,
        server: &str,
        database: &str,
        capacity: u32,
        accepts_new: Option<bool>,
        now: DateTime<Utc>,
    ) -> Result<Shard, ProvisioningError> {
        check_name(database).map_err(|_| ProvisioningError::InvalidDatabase)?;
        let (this, key) = (self.clone(), key(server, database));
        whole(async move {
            let made = this.make_shard(&key, capacity, accepts_new, now);
            this.alone(&key, made).await
        })
        .await
    }

    /// Strikes a shard that holds no book off the registry: one that was never finished, or that
    /// nobody needs. Its database stays for its server's admin to drop, without its number, so
    /// that it may become a shard again. `name` is its number, or `SERVER/DATABASE`.
    ///
    /// # Errors
    /// [`ProvisioningError::NoSuchShard`], [`ProvisioningError::ShardInUse`]; a finished shard
    /// whose server is away.
    pub async fn remove_shard(&self, name: &str) -> Result<Shard, ProvisioningError> {
        let found = match (name.parse(), name.split_once('/')) {
            (Ok(id), _) => placement::shard(&self.master, id).await?,
            (Err(_), Some((server, database))) => {
                placement::shard_in(&self.master, server, database).await?
            }
            (Err(_), None) => None,
        };
        let shard = found.ok_or_else(|| ProvisioningError::NoSuchShard {
            name: name.to_owned(),
        })?;
        let this = self.clone();
        let key = key(&shard.server_name, &shard.database_name);
        whole(async move { this.alone(&key, this.strike(shard)).await }).await
    }

    /// All shards, by number.
    ///
    /// # Errors
    /// The master's.
    pub async fn shards(&self) -> Result<Vec<Shard>, ProvisioningError> {
        Ok(placement::shards(&self.master).await?)
    }

    async fn make_shard(
        &self,
        key: &DatabaseKey,
        capacity: u32,
        accepts_new: Option<bool>,
        now: DateTime<Utc>,
    ) -> Result<Shard, ProvisioningError> {
        self.configured(&key.server)?;
        let registered = placement::shard_in(&self.master, &key.server, &key.database).await?;
        let numbered = self.check_shard_place(key, registered.as_ref()).await?;
        let mut shard =
            placement::put_shard(&self.master, &key.server, &key.database, capacity, now).await?;
        if shard.state == "removing" {
            return Err(occupied(key, "it is a shard that is being removed"));
        }
        let finished = numbered && shard.state == "open";
        self.migrate(key, Kind::Shared).await?;
        let expected = shard.shard_id;
        book::set_shard_number(&self.router, key, expected, now).await?;
        // Of two that make one database two shards, one was first.
        match book::shard_number(&self.router, key).await? {
            Some(found) if found != expected => return Err(another(key, expected, found)),
            Some(_) | None => {}
        }
        placement::set_shard_made(&self.master, expected).await?;
        "open".clone_into(&mut shard.state);
        // Once it is finished, whether it takes brokers is its admin's to say.
        if let Some(open) = accepts_new.or((!finished).then_some(true)) {
            placement::set_shard_open(&self.master, expected, open).await?;
            shard.accepts_new = open;
        }
        Ok(shard)
    }

    /// Whether a database may become a shard, or go on being the one that is registered. Gives
    /// whether it has that one's number already.
    async fn check_shard_place(
        &self,
        key: &DatabaseKey,
        registered: Option<&Shard>,
    ) -> Result<bool, ProvisioningError> {
        let own = placement::own_name(&self.master).await?;
        if key.database.eq_ignore_ascii_case(&own) {
            return Err(occupied(key, "that is the name of the master's"));
        }
        if is_system(&key.database) {
            return Err(occupied(key, "the server keeps that name for itself"));
        }
        if let Some(id) = placement::owner_of(&self.master, &key.server, &key.database).await? {
            return Err(occupied(key, format!("it is broker {id}'s own")));
        }
        let there = self.survey(key, None).await?;
        match (there.shard, registered) {
            (Some(found), Some(shard)) if found != shard.shard_id => {
                return Err(another(key, shard.shard_id, found));
            }
            (Some(found), None) => {
                return Err(occupied(key, format!("it says that it is shard {found}")));
            }
            (Some(_), Some(_)) | (None, _) => {}
        }
        match there.book_of {
            Some(id) if there.shard.is_none() => {
                Err(occupied(key, format!("it holds the book of broker {id}")))
            }
            Some(_) | None => Ok(there.shard.is_some()),
        }
    }

    async fn strike(&self, shard: Shard) -> Result<Shard, ProvisioningError> {
        let (id, brokers) = (shard.shard_id, shard.brokers);
        let key = key(&shard.server_name, &shard.database_name);
        let making = shard.state == "making";
        let numbered = match self.survey(&key, None).await {
            // What is left of books that have moved away is still needed there.
            Ok(Survey {
                shard: Some(found),
                book_of: Some(_),
                ..
            }) if found == id => return Err(ProvisioningError::ShardInUse { id, brokers }),
            Ok(there) => there.shard == Some(id),
            // It is not this shard, so there is nothing of it there.
            Err(ProvisioningError::Occupied { .. }) => false,
            Err(_) if making => false,
            Err(error) => return Err(error),
        };
        let mut tx = master::begin(&self.master).await?;
        if !placement::set_shard_removing(&mut tx, id).await? {
            return Err(ProvisioningError::ShardInUse { id, brokers });
        }
        master::commit(tx).await?;
        if numbered {
            let forgot = forget_number(&self.url(&key)?, id).await;
            forgot.map_err(|source| not_migrated(&key, source))?;
        }
        placement::remove_shard(&self.master, id).await?;
        Ok(shard)
    }

    /// Does what must not be done twice at once in a place.
    async fn alone<T>(
        &self,
        key: &DatabaseKey,
        work: impl Future<Output = Result<T, ProvisioningError>>,
    ) -> Result<T, ProvisioningError> {
        let kept = placement::keep(&self.master, &key.server, &key.database).await?;
        let Some(kept) = kept else {
            return Err(occupied(key, "somebody else is at it; try again"));
        };
        let done = work.await;
        placement::give_back(kept, &key.server, &key.database).await?;
        done
    }
}
