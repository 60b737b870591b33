//! A log that follows another: the only way on from a fork, said aloud.

use super::signing::signed_note;
use super::{CheckpointError, CheckpointService, FORKED, key_of};
use crate::domain::checkpoint::{Leaf, LeafKind, beginning, origin_of};
use crate::domain::reason;
use crate::runtime::failpoint;
use crate::stores::master::log::{self, Log};
use crate::stores::master::{self, alerts};
use crate::stores::pm::{self, log_signed};

impl CheckpointService {
    /// Begins a log in the place of the one before, whatever the master has of that. Its first leaf
    /// names the last state that was signed, and so does a signed statement, with the reason. All
    /// heads go into it anew. It is one transaction of the master; meanwhile nobody signs.
    ///
    /// `after` is the number of the log that is lost: said again, the same log is given that has
    /// begun in its place.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub async fn begin_new(
        &self,
        after: u32,
        reason: &str,
        by: &str,
    ) -> Result<Log, CheckpointError> {
        let reason = reason::checked(reason)?;
        let signers = self.signers()?;
        let now = self.clock.now();
        let mut signing = pm::begin(&self.pm).await?;
        let signed = log_signed::lock_last(&mut signing, &self.rules.name).await?;
        let (number, before) = signed.ok_or(CheckpointError::NothingSigned)?;
        let mut tx = master::begin(&self.master).await?;
        let last = log::lock_last(&mut tx).await?;
        if let Some(last) = &last
            && let Some((_, first)) = log::leaf(&self.master, last.number, 0).await?
            && first.kind == LeafKind::Log
            && first.id == origin_of(&self.rules.name, after)
        {
            return Ok(last.clone());
        }
        if number != after {
            let last = number;
            return Err(CheckpointError::NotTheLast { after, last });
        }
        let number = number.max(last.map_or(0, |last| last.number)) + 1;
        let origin = origin_of(&self.rules.name, number);
        let mut keys = Vec::new();
        for signer in &signers {
            keys.push(key_of(&origin, &signer.verifying_key().to_bytes())?);
        }
        // A reason of several lines would read as lines of the statement.
        let spoken = reason.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = beginning(&before, &origin, &spoken, &keys, now);
        // By the names under which the log before is known: whoever has its keys can tell.
        let statement = signed_note(&before.origin, text, &signers)?;
        let mut log = Log {
            number,
            origin,
            size: 0,
            begun_at: now,
            begun_by: Some(by.to_owned()),
            reason: Some(reason),
            statement: Some(statement.to_string()),
        };
        log::begin(&mut tx, &log).await?;
        log::append(&mut tx, &mut log, &[Leaf::of_log(&before, now)]).await?;
        alerts::resolve(&mut tx, FORKED, "network", now).await?;
        failpoint::at("log.new.before");
        master::commit(tx).await?;
        failpoint::at("log.new.after");
        pm::commit(signing).await?;
        Ok(log)
    }
}
