//! Signing: only what continues what was signed before.

use std::cmp::Ordering;

use ed25519_dalek::SigningKey;
use serde_json::json;

use super::appending::stop_at;
use super::{CheckpointError, CheckpointService, FORKED, key_of};
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::{Checkpoint, Leaf, origin_of};
use crate::domain::merkle::proof::{folded, full_parts};
use crate::domain::note::Note;
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::alerts::NewAlert;
use crate::stores::master::log::{self, Log, checkpoints};
use crate::stores::pm::{self, log_signed};

impl CheckpointService {
    /// Whether the master's log is another than the one that was signed; says so in an alert.
    pub(super) async fn forked(&self) -> Result<bool, CheckpointError> {
        let mut tx = pm::begin(&self.pm).await?;
        let signed = log_signed::lock_last(&mut tx, &self.rules.name).await?;
        pm::commit(tx).await?;
        let log = self.log(None).await?;
        self.contradicts(&log, signed.as_ref()).await
    }

    /// Signs the log's state, where it has grown since the last checkpoint. False where it has not,
    /// or has forked.
    pub(super) async fn sign(
        &self,
        number: u32,
        signers: &[SigningKey],
    ) -> Result<bool, CheckpointError> {
        let last = checkpoints::get(&self.master, number, None).await?;
        let log = log::get(&self.master, number).await?;
        let log = log.ok_or(CheckpointError::NoSuch("log"))?;
        if log.size == last.map_or(0, |last| last.size) {
            return Ok(false);
        }
        let checkpoint = Checkpoint {
            origin: log.origin.clone(),
            size: log.size,
            root: self.root(number, log.size).await?,
        };
        stop_at("log.sign.before")?;
        let now = self.clock.now();
        let mut tx = pm::begin(&self.pm).await?;
        let signed = log_signed::lock_last(&mut tx, &self.rules.name).await?;
        // Meanwhile others may have appended and signed, or begun another log: no fork either, and
        // from here on they wait.
        let current = self.log(None).await?;
        if current.number != number || self.contradicts(&current, signed.as_ref()).await? {
            return Ok(false);
        }
        if !log_signed::put(&mut tx, &self.rules.name, number, &checkpoint, now).await? {
            return Ok(false);
        }
        pm::commit(tx).await?;
        stop_at("log.sign.after")?;
        let note = signed_note(&log.origin, checkpoint.to_string(), signers)?;
        self.register(signers).await?;
        let mut tx = master::begin(&self.master).await?;
        let signed = checkpoints::Signed {
            log: number,
            size: log.size,
            root: checkpoint.root,
            note: note.to_string(),
            signed_at: now,
        };
        checkpoints::insert(&mut tx, &signed).await?;
        master::commit(tx).await?;
        stop_at("log.checkpoint.after")?;
        Ok(true)
    }

    /// Signs a text by the log's keys, under the name of the log that is appended to; gives the lines
    /// of a signed note. What the text begins with says what it is, so that no signature of one kind
    /// passes for another's.
    ///
    /// # Errors
    /// No usable key, or the master's.
    pub async fn sign_text(&self, text: &str) -> Result<Vec<String>, CheckpointError> {
        let signers = self.signers()?;
        let log = log::last(&self.master).await?;
        let origin = log.map_or_else(|| origin_of(&self.rules.name, 1), |log| log.origin);
        self.register(&signers).await?;
        let note = signed_note(&origin, text.to_owned(), &signers)?;
        Ok(note.signatures.iter().map(ToString::to_string).collect())
    }

    /// Makes the public halves of keys known that sign.
    async fn register(&self, signers: &[SigningKey]) -> Result<(), CheckpointError> {
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        for key in signers {
            let public = key.verifying_key().to_bytes();
            checkpoints::register_key(&mut tx, &public, now).await?;
        }
        Ok(master::commit(tx).await?)
    }

    /// The root of a log when it had `size` leaves.
    pub(super) async fn root(&self, log: u32, size: u64) -> Result<Hash, CheckpointError> {
        let parts = full_parts(0, size);
        let mut connection = self.master.acquire().await.map_err(master::failed)?;
        let nodes = log::nodes(&mut connection, log, parts.iter().copied()).await?;
        folded(&parts, &nodes).ok_or_else(|| missing_node().into())
    }

    /// The master's log must be the one that was signed, grown; or one that follows it and says so
    /// in its first leaf. `log` is read after `signed`, or what was signed since would be a fork.
    async fn contradicts(
        &self,
        log: &Log,
        signed: Option<&(u32, Checkpoint)>,
    ) -> Result<bool, CheckpointError> {
        let Some((number, signed)) = signed else {
            return Ok(false);
        };
        let continues = match number.cmp(&log.number) {
            Ordering::Equal => {
                signed.origin == log.origin
                    && signed.size <= log.size
                    && signed.root == self.root(log.number, signed.size).await?
            }
            Ordering::Less => {
                let first = log::leaf(&self.master, log.number, 0).await?;
                first.is_some_and(|(_, first)| first == Leaf::of_log(signed, first.at))
            }
            Ordering::Greater => false,
        };
        if !continues {
            self.raise(&fork(log, *number, signed)).await?;
        }
        Ok(!continues)
    }
}

/// A text signed by keys of ours, under the name of a log.
pub(super) fn signed_note(
    origin: &str,
    text: String,
    signers: &[SigningKey],
) -> Result<Note, CheckpointError> {
    let mut signatures = Vec::with_capacity(signers.len());
    for signer in signers {
        let key = key_of(origin, &signer.verifying_key().to_bytes())?;
        signatures.push(key.sign(signer, &text, 0));
    }
    Ok(Note { text, signatures })
}

pub(super) fn missing_node() -> StoreError {
    StoreError::Corrupt {
        table: "log_node",
        what: "a full subtree is missing".to_owned(),
    }
}

fn fork(log: &Log, number: u32, signed: &Checkpoint) -> NewAlert {
    NewAlert {
        kind: FORKED,
        subject: "network".to_owned(),
        message: format!(
            "The log of size {} (log {number}) was signed, and the master's log {} of size {} does \
             not begin with it: the master was restored from an older backup, or rewritten. \
             Nothing is signed any more; docs/checkpoints.md says how to go on.",
            signed.size, log.number, log.size
        ),
        details: json!({
            "signed": {
                "log": number, "origin": signed.origin, "size": signed.size.to_string(),
                "root": signed.root,
            },
            "master": { "log": log.number, "origin": log.origin, "size": log.size.to_string() },
        }),
    }
}
