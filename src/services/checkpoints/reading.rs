//! What anybody may ask of the log.

use chrono::{DateTime, Utc};

use super::signing::missing_node;
use super::{COSIGNATURES_MAX, CheckpointError, CheckpointService, key_of};
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::{Leaf, LeafKind};
use crate::domain::merkle::proof::{self, Parts};
use crate::domain::note::NoteKey;
use crate::stores::master;
use crate::stores::master::log::checkpoints::{self, Signed};
use crate::stores::master::log::{self, Log, requests};

/// A checkpoint as it is given out.
#[derive(Clone, Debug)]
pub struct Shown {
    pub origin: String,
    pub signed: Signed,
    /// The note with the cosignatures of witnesses.
    pub note: String,
    pub cosignatures: usize,
}

/// How far the log is.
#[derive(Clone, Debug)]
pub struct Standing {
    pub log: Log,
    pub signed: Option<Signed>,
    /// When the first leaf was appended that is in no checkpoint yet.
    pub unsigned_since: Option<DateTime<Utc>>,
    /// Requests whose last event is not in the log yet; counted up to [`WAITING_MAX`].
    pub waiting: u64,
}

/// See [`Standing::waiting`].
pub const WAITING_MAX: u32 = 100_000;

/// Which leaf is wanted.
#[derive(Clone, Debug)]
pub enum Wanted {
    Index(u64),
    /// The last leaf of a chain.
    Last(LeafKind, String),
    /// The leaf of a chain at a seq.
    At(LeafKind, String, u64),
}

/// A leaf that is in the log.
#[derive(Clone, Debug)]
pub struct Included {
    pub log: u32,
    /// Of the checkpoint that the proof is against.
    pub size: u64,
    pub root: Hash,
    pub index: u64,
    pub leaf: Leaf,
    pub proof: Vec<Hash>,
}

impl CheckpointService {
    /// A log; the last one where no number is given.
    ///
    /// # Errors
    /// There is no such log, or the master's.
    pub async fn log(&self, number: Option<u32>) -> Result<Log, CheckpointError> {
        let log = match number {
            Some(number) => log::get(&self.master, number).await?,
            None => log::last(&self.master).await?,
        };
        log.ok_or(CheckpointError::NoSuch("log"))
    }

    /// All logs, the last first, at most `limit`.
    ///
    /// # Errors
    /// The master's.
    pub async fn logs(&self, limit: u32) -> Result<Vec<Log>, CheckpointError> {
        Ok(log::list(&self.master, limit).await?)
    }

    /// How far the log is, and what waits.
    ///
    /// # Errors
    /// There is no log yet, or the master's.
    pub async fn standing(&self) -> Result<Standing, CheckpointError> {
        let log = self.log(None).await?;
        let signed = checkpoints::get(&self.master, log.number, None).await?;
        let size = signed.as_ref().map_or(0, |signed| signed.size);
        let first = log::leaf(&self.master, log.number, size).await?;
        Ok(Standing {
            unsigned_since: first.map(|(_, leaf)| leaf.at),
            waiting: requests::count_unlogged(&self.master, WAITING_MAX).await?,
            log,
            signed,
        })
    }

    /// The public keys of a log: all that have ever signed, oldest first.
    ///
    /// # Errors
    /// The master's.
    pub async fn keys(&self, log: &Log) -> Result<Vec<NoteKey>, CheckpointError> {
        let keys = checkpoints::keys(&self.master).await?;
        let keys = keys.iter().map(|(public, _)| key_of(&log.origin, public));
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// A checkpoint of a log: the last one where no size is given.
    ///
    /// # Errors
    /// There is none, or the master's.
    pub async fn checkpoint(
        &self,
        number: Option<u32>,
        size: Option<u64>,
    ) -> Result<Shown, CheckpointError> {
        let log = self.log(number).await?;
        let signed = self.signed(&log, size).await?;
        let limit = COSIGNATURES_MAX;
        let lines = checkpoints::cosignatures(&self.master, log.number, signed.size, limit).await?;
        let mut note = signed.note.clone();
        for line in &lines {
            note.push_str(line);
            note.push('\n');
        }
        Ok(Shown {
            origin: log.origin,
            signed,
            note,
            cosignatures: lines.len(),
        })
    }

    /// That a leaf is in a checkpoint: of the last one where no size is given.
    ///
    /// # Errors
    /// There is no such leaf in it, no such checkpoint, or the master's.
    pub async fn inclusion(
        &self,
        number: Option<u32>,
        size: Option<u64>,
        wanted: &Wanted,
    ) -> Result<Included, CheckpointError> {
        let log = self.log(number).await?;
        let signed = self.signed(&log, size).await?;
        let found = match wanted {
            Wanted::Index(index) if *index >= signed.size => None,
            Wanted::Index(index) => log::leaf(&self.master, log.number, *index).await?,
            Wanted::At(kind, id, seq) => {
                let of = (*kind, id.as_str());
                log::leaf_at(&self.master, log.number, of, *seq, signed.size).await?
            }
            Wanted::Last(kind, id) => {
                log::last_leaf(&self.master, log.number, (*kind, id), signed.size).await?
            }
        };
        let (index, leaf) = found.ok_or(CheckpointError::NoSuch("leaf in this checkpoint"))?;
        let parts = proof::inclusion(index, signed.size);
        let parts = parts.ok_or(CheckpointError::NoSuch("leaf in this checkpoint"))?;
        Ok(Included {
            log: log.number,
            size: signed.size,
            root: signed.root,
            index,
            leaf,
            proof: self.resolve(log.number, &parts).await?,
        })
    }

    /// That a log's state of `to` leaves begins with that of `from`. Both sizes are at most that of
    /// the last checkpoint, and need not be those of checkpoints.
    ///
    /// # Errors
    /// Sizes that can't be shown, or the master's.
    pub async fn consistency(
        &self,
        number: Option<u32>,
        from: u64,
        to: u64,
    ) -> Result<(Log, Vec<Hash>), CheckpointError> {
        let log = self.log(number).await?;
        let last = self.signed(&log, None).await?.size;
        if to > last {
            let what = format!("to is at most {last}, the size of the last checkpoint");
            return Err(CheckpointError::Range(what));
        }
        let parts = proof::consistency(from, to);
        let parts = parts.ok_or_else(|| CheckpointError::Range("from is at most to".to_owned()))?;
        let proof = self.resolve(log.number, &parts).await?;
        Ok((log, proof))
    }

    pub(super) async fn signed(
        &self,
        log: &Log,
        size: Option<u64>,
    ) -> Result<Signed, CheckpointError> {
        let signed = checkpoints::get(&self.master, log.number, size).await?;
        signed.ok_or(CheckpointError::NoSuch("checkpoint"))
    }

    async fn resolve(&self, log: u32, parts: &Parts) -> Result<Vec<Hash>, CheckpointError> {
        let mut connection = self.master.acquire().await.map_err(master::failed)?;
        let nodes = log::nodes(&mut connection, log, parts.nodes()).await?;
        parts.resolve(&nodes).ok_or_else(|| missing_node().into())
    }
}
