//! Witnesses: who else says that a checkpoint is the one they have seen.

use super::{COSIGNATURES_MAX, CheckpointError, CheckpointService};
use crate::domain::ids::BrokerId;
use crate::domain::note::{Note, NoteError, NoteKey, NoteSignature};
use crate::stores::StoreError;
use crate::stores::master::log::{checkpoints, witnesses};

use super::Witness;

/// A cosignature that was handed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cosigned {
    Now,
    /// The witness has cosigned this checkpoint before: the first signature stays.
    Before,
}

impl CheckpointService {
    /// Takes a witness's signature of a checkpoint.
    ///
    /// # Errors
    /// See [`CheckpointError`]: a line that is none, an unknown witness, a signature that does not
    /// verify, no such checkpoint.
    pub async fn cosign(
        &self,
        log: Option<u32>,
        size: u64,
        line: &str,
    ) -> Result<Cosigned, CheckpointError> {
        let signature: NoteSignature = line.trim_end_matches('\n').parse()?;
        let witness = witnesses::named(&self.master, &signature.name).await?;
        let witness = witness.ok_or(CheckpointError::UnknownWitness)?;
        if witness.key.id() != signature.id {
            return Err(CheckpointError::UnknownWitness);
        }
        let log = self.log(log).await?;
        let signed = self.signed(&log, Some(size)).await?;
        let note = Note::parse(signed.note.as_bytes())?;
        if !witness.key.verifies(&note.text, &signature) {
            return Err(CheckpointError::WrongSignature);
        }
        let of = (log.number, size);
        let (master, limit) = (&self.master, COSIGNATURES_MAX);
        let there = checkpoints::cosignatures(master, log.number, size, limit).await?;
        if there.len() >= limit as usize {
            return Err(CheckpointError::Full);
        }
        let line = signature.to_string();
        let now = self.clock.now();
        let kept = checkpoints::cosign(master, of, witness.id, &line, now).await?;
        Ok(if kept {
            Cosigned::Now
        } else {
            Cosigned::Before
        })
    }

    /// A broker's own witness, if it has one.
    ///
    /// # Errors
    /// The master's.
    pub async fn witness_of(&self, broker: BrokerId) -> Result<Option<Witness>, CheckpointError> {
        Ok(witnesses::of_broker(&self.master, broker).await?)
    }

    /// Witnesses, newest first, withdrawn ones too; `before` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn witnesses(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Witness>, CheckpointError> {
        Ok(witnesses::list(&self.master, before, limit).await?)
    }

    /// Registers a key: a broker's own in the place of the one before, or an outside one. The same
    /// key again changes nothing.
    ///
    /// # Errors
    /// See [`CheckpointError`]: a key that is none, a name that is taken.
    pub async fn register_witness(
        &self,
        broker: Option<BrokerId>,
        key: &str,
        by: &str,
    ) -> Result<Witness, CheckpointError> {
        let key: NoteKey = key.parse()?;
        // Under our own name it would pass for a signature of the log itself.
        if key.name().starts_with(&self.rules.name) {
            return Err(CheckpointError::Note(NoteError::Name));
        }
        let taken = || CheckpointError::NameTaken {
            name: key.name().to_owned(),
        };
        if let Some(there) = witnesses::named(&self.master, key.name()).await? {
            if there.broker_id == broker && there.key == key {
                return Ok(there);
            }
            if there.broker_id != broker || broker.is_none() {
                return Err(taken());
            }
        }
        let now = self.clock.now();
        if let Some(broker) = broker
            && let Some(before) = witnesses::of_broker(&self.master, broker).await?
        {
            witnesses::withdraw(&self.master, before.id, now).await?;
        }
        let id = match witnesses::insert(&self.master, broker, &key, by, now).await {
            Err(error) if error.is_duplicate() => return Err(taken()),
            other => other?,
        };
        let made = witnesses::get(&self.master, id).await?;
        Ok(made.ok_or_else(|| gone(id))?)
    }

    /// Takes no more signatures of a witness; what it has signed stays.
    ///
    /// # Errors
    /// There is none of that number, or the master's.
    pub async fn withdraw_witness(&self, id: u64) -> Result<Witness, CheckpointError> {
        witnesses::withdraw(&self.master, id, self.clock.now()).await?;
        let found = witnesses::get(&self.master, id).await?;
        found.ok_or(CheckpointError::NoSuch("witness"))
    }
}

fn gone(id: u64) -> StoreError {
    StoreError::Corrupt {
        table: "witness",
        what: format!("{id} is gone"),
    }
}
