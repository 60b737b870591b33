//! What a move has left behind: verified once more, then deleted.

use super::copy::DELETE_ROWS;
use super::drive::Next;
use super::engine::MoveEngine;
use super::fault::Fault;
use crate::domain::book_check::BookCheck;
use crate::domain::book_table::{BOOK_TABLES, BookTable, layout};
use crate::domain::book_tree::{BookRoot, BookTree};
use crate::domain::broker_move::{BrokerMove, MoveEvent, MoveState};
use crate::domain::canonical::Hash;
use crate::domain::fence::NotOurs;
use crate::runtime::failpoint;
use crate::services::provisioning::ProvisioningError;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::master;
use crate::stores::master::moves::{self, Claim, Step};

/// The claim that the work is done under, and its move.
type Kept<'a> = (&'a Claim, &'a BrokerMove);

impl MoveEngine {
    /// Whether what was left is what was moved, and the book has it where it is now.
    pub(super) async fn end_retention(
        &self,
        this: &BrokerMove,
        claim: &Claim,
    ) -> Result<Next, Fault> {
        // It may have been away when the book arrived.
        let differs = match self.leave_source(this).await {
            Err(Fault::Store(error)) if error.is_absence() => None,
            Ok(()) => self.differs(this, (claim, this)).await?,
            Err(fault @ Fault::Fence { .. }) => Some(fault.to_string()),
            Err(fault) => return Err(fault),
        };
        match differs {
            None => {
                failpoint::at("move.verified");
                self.step(this, claim, MoveEvent::Verified, Step::On).await
            }
            Some(fault) => {
                let rests = Step::Rests { fault };
                self.step(this, claim, MoveEvent::Differs, rests).await?;
                Ok(Next::Rest)
            }
        }
    }

    pub(super) async fn purge(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        self.delete(this, (claim, this)).await?;
        metrics::counter!("settlenet_moves_total", "outcome" => "purged").increment(1);
        self.step(this, claim, MoveEvent::Purged, Step::Ended)
            .await?;
        Ok(Next::Rest)
    }

    /// Deletes what was given up, once its database is back and it is what was moved.
    pub(super) async fn clear_up(&self, this: &BrokerMove, claim: &Claim) -> Result<Next, Fault> {
        if let Some(fault) = self.was_kept_wrong(this, (claim, this)).await? {
            let rests = Step::Rests { fault };
            self.step(this, claim, MoveEvent::Differs, rests).await?;
            return Ok(Next::Rest);
        }
        self.delete(this, (claim, this)).await?;
        self.step(this, claim, cleared_up(this), Step::Ended)
            .await?;
        Ok(Next::Rest)
    }

    /// Deletes what an earlier move has left where the book is to go now. Retention ends with it:
    /// the book can't be in one database twice.
    pub(super) async fn purge_for(
        &self,
        left: &BrokerMove,
        by: &BrokerMove,
        claim: &Claim,
    ) -> Result<(), Fault> {
        let now = self.now();
        let end = |this: BrokerMove, event, step: Step| async move {
            let mut tx = master::begin(&self.0.master).await?;
            moves::step(&mut tx, &this, None, event, &step, now).await?;
            master::commit(tx).await?;
            Ok::<_, Fault>(())
        };
        let mut left = left.clone();
        if left.state == MoveState::Kept {
            return Err(Fault::LeftBehind { id: left.id });
        }
        let what = match left.state {
            MoveState::Retained => self.differs(&left, (claim, by)).await?,
            MoveState::Abandoned => self.was_kept_wrong(&left, (claim, by)).await?,
            _ => None,
        };
        if let Some(what) = what {
            tracing::warn!(%what, left = %left.id, by = %by.id, "what was left is not what was moved");
            return Err(Fault::LeftBehind { id: left.id });
        }
        if left.state == MoveState::Retained {
            end(left.clone(), MoveEvent::Verified, Step::On).await?;
            left.state = MoveState::Purging;
        }
        self.delete(&left, (claim, by)).await?;
        let event = cleared_up(&left);
        end(left, event, Step::Ended).await
    }

    /// What speaks against deleting what was abandoned, now that its database answers. A copy that
    /// was never the book may go; so may what a server has lost that came back without it.
    async fn was_kept_wrong(
        &self,
        this: &BrokerMove,
        kept: Kept<'_>,
    ) -> Result<Option<String>, Fault> {
        match self.0.places.ready(this.leavings(), this.broker).await {
            // What is there now is another's, and nothing of this book.
            Ok(()) | Err(ProvisioningError::Occupied { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        match this.flipped_at {
            Some(_) => self.differs(this, kept).await,
            None => Ok(None),
        }
    }

    /// What speaks against deleting it.
    async fn differs(&self, this: &BrokerMove, kept: Kept<'_>) -> Result<Option<String>, Fault> {
        let Some(proof) = &this.proof else {
            return Ok(Some("it has no proof".to_owned()));
        };
        let (root, mut check) = match self.look(this, kept).await {
            Err(Fault::Book(fault)) => return Ok(Some(fault.to_string())),
            // The database was dropped, as somebody may.
            Err(Fault::Store(error)) if error.is_absence() => return Ok(None),
            looked => looked?,
        };
        // Deleted by hand, as somebody may who has looked at it.
        if root.total() == 0 {
            return Ok(None);
        }
        // A later release may know more columns: then the chain, the sums and the counts speak.
        if proof.layout == layout() && root.root != proof.root_before {
            let (root, moved) = (root.root, proof.root_before);
            return Ok(Some(format!(
                "its root is {root}, that of the move is {moved}"
            )));
        }
        match check.holds() {
            Ok(head) if head != proof.head => {
                let moved = proof.head;
                return Ok(Some(format!("it ends at {head}, the move at {moved}")));
            }
            Ok(_) => {}
            Err(fault) => return Ok(Some(fault.to_string())),
        }
        for (table, rows) in &root.rows {
            let moved = proof.rows.get(*table).and_then(serde_json::Value::as_str);
            if moved.is_some_and(|moved| moved != rows.to_string()) {
                return Ok(Some(format!(
                    "{table} has {rows} rows, other than were moved"
                )));
            }
        }
        let (seq, hash) = (proof.head.seq, proof.head.hash);
        if seq == 0 {
            return Ok(None);
        }
        let scope = self.0.router.book(this.broker).await?;
        let mut read = scope.read().await?;
        let there = book::entries_after(&mut read, seq - 1, 1).await?;
        read.end().await?;
        let there = there.first().map(|entry| entry.tx_hash);
        Ok((there != Some(hash)).then(|| missing(seq, hash, there)))
    }

    /// All rows of what was left, taken together.
    async fn look(
        &self,
        this: &BrokerMove,
        kept: Kept<'_>,
    ) -> Result<(BookRoot, BookCheck), Fault> {
        let source = self.held(this.broker, &this.from)?;
        let (mut tree, mut check) = (BookTree::default(), BookCheck::new(this.broker));
        for table in BOOK_TABLES {
            let mut read_to = None;
            loop {
                let mut read = source.read().await?;
                let limit = self.0.limits.batch_rows;
                let rows = read.rows(table, read_to.as_ref(), limit).await?;
                read.end().await?;
                for row in &rows {
                    tree.put(table, row);
                    check.put(table, row)?;
                }
                read_to = rows.last().map(|row| table.place(row)).or(read_to);
                if rows.len() < limit {
                    break;
                }
                self.keep(kept).await?;
            }
        }
        Ok((tree.root(), check))
    }

    async fn delete(&self, this: &BrokerMove, kept: Kept<'_>) -> Result<(), Fault> {
        let leavings = self.held(this.broker, this.leavings())?;
        for table in BOOK_TABLES {
            while self.delete_some(this, table).await? == u64::from(DELETE_ROWS) {
                self.keep(kept).await?;
            }
            failpoint::at("move.purged.table");
        }
        match leavings.remove_fence(this.id).await {
            Err(error) if error.is_absence() => Ok(()),
            removed => Ok(removed?),
        }
    }

    async fn delete_some(
        &self,
        this: &BrokerMove,
        table: &'static BookTable,
    ) -> Result<u64, Fault> {
        let leavings = self.held(this.broker, this.leavings())?;
        match leavings.purge(this.id, table, DELETE_ROWS).await {
            // The fence went last: all of it was deleted before.
            Err(StoreError::Moving { .. }) => match leavings.fence().await? {
                None => Ok(0),
                found => Err(Fault::Fence {
                    side: "what was left",
                    error: NotOurs { found },
                }),
            },
            Err(error) if error.is_absence() => Ok(0),
            other => Ok(other?),
        }
    }

    async fn keep(&self, (claim, this): Kept<'_>) -> Result<(), Fault> {
        let come = (this.rows_copied, this.rows_total);
        let until = self.lease_end();
        let holds = moves::progress(&self.0.master, claim, until, come).await?;
        holds.then_some(()).ok_or(Fault::Lost)
    }
}

/// What has happened once the leavings of a move are deleted.
const fn cleared_up(this: &BrokerMove) -> MoveEvent {
    match this.flipped_at {
        Some(_) => MoveEvent::Purged,
        None => MoveEvent::Cleared,
    }
}

fn missing(seq: u64, hash: Hash, there: Option<Hash>) -> String {
    match there {
        None => format!("the book has no entry {seq}, which was moved"),
        Some(there) => format!("entry {seq} of the book is {there}, but {hash} was moved"),
    }
}
