//! The copy of a book: read from the source, written to the target, read back from there, and
//! both hashed. What was read last of each table is where the next page begins, so a book that is
//! written in is caught up with by copying what has changed since.

use std::time::Instant;

use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::engine::MoveEngine;
use super::fault::Fault;
use crate::domain::book_check::BookCheck;
use crate::domain::book_table::{BOOK_TABLES, BookTable, Place, layout};
use crate::domain::book_tree::BookTree;
use crate::domain::broker_move::{BrokerMove, MoveProof};
use crate::domain::fence::may_copy;
use crate::stores::book::{HeldBook, TableRows};
use crate::stores::master::moves::{self, Claim};

/// Rows that are deleted in one transaction.
pub(super) const DELETE_ROWS: u32 = 1000;

/// Rows that are hashed between two turns of others.
const TURN_ROWS: usize = 16;
/// So many pages of all that a moment had: from then on it is not waited for less.
const ROUNDS: u32 = 5;
/// And so many: from then on it is not waited for quicker ones either. Once the book is closed
/// nobody is in the way, and where it is still not quick enough it is opened again.
const ROUNDS_AT_MOST: u32 = 25;

/// What one moment had beyond what was read before.
struct Page {
    rows: u64,
    /// Whether it was all that there was.
    is_all: bool,
}

/// A copy that is being made. What it knows is in memory only: another process makes it anew.
pub(super) struct Copy<'a> {
    engine: &'a MoveEngine,
    claim: &'a Claim,
    source: HeldBook,
    target: HeldBook,
    /// Where each table has been read to.
    read_to: Vec<Option<Place>>,
    before: BookTree,
    after: BookTree,
    check: BookCheck,
    copied: u64,
    total: u64,
}

impl<'a> Copy<'a> {
    pub(super) fn new(
        engine: &'a MoveEngine,
        claim: &'a Claim,
        this: &BrokerMove,
    ) -> Result<Self, Fault> {
        Ok(Self {
            engine,
            claim,
            source: engine.held(this.broker, &this.from)?,
            target: engine.held(this.broker, &this.to)?,
            read_to: vec![None; BOOK_TABLES.len()],
            before: BookTree::default(),
            after: BookTree::default(),
            check: BookCheck::new(this.broker),
            copied: 0,
            total: 0,
        })
    }

    pub(super) const fn source(&self) -> &HeldBook {
        &self.source
    }

    /// Empties the target of what an earlier claim has left.
    pub(super) async fn clear(&mut self) -> Result<(), Fault> {
        for table in BOOK_TABLES {
            loop {
                let (id, claim) = (self.claim.move_id, self.claim.number);
                let deleted = self.target.clear(id, claim, table, DELETE_ROWS).await?;
                if deleted < u64::from(DELETE_ROWS) {
                    break;
                }
                self.tell().await?;
            }
        }
        let mut read = self.source.read().await?;
        for table in BOOK_TABLES {
            self.total += read.count(table).await?;
        }
        read.end().await?;
        self.tell().await
    }

    /// Copies until little is left, leaving some of the time to others; then all that was copied
    /// is known to hold.
    pub(super) async fn catch_up(&mut self, stopping: &CancellationToken) -> Result<(), Fault> {
        let limits = &self.engine.0.limits;
        let mut rounds = 0;
        loop {
            if stopping.is_cancelled() {
                return Err(Fault::Stopping);
            }
            let begun = Instant::now();
            let page = self.page(limits.batch_rows).await?;
            let took = begun.elapsed();
            rounds += u32::from(page.is_all);
            // A busy book never has little left: then it is enough that what is left is copied
            // well within the bound.
            let is_quick = took <= limits.tail_bound / 4 || rounds >= ROUNDS_AT_MOST;
            let is_quick = rounds >= ROUNDS && is_quick;
            if page.is_all && (page.rows <= limits.tail_rows || is_quick) {
                break;
            }
            self.tell().await?;
            if !page.is_all {
                let rest = took * limits.yield_percent / 100;
                // Nobody else takes the move on meanwhile.
                tokio::time::sleep(rest.min(limits.lease / 4)).await;
            }
        }
        // The last page was all that its moment had, so what was copied is the book of that moment.
        // One that does not hold is found here, before it is ever closed.
        self.check.holds()?;
        Ok(())
    }

    /// Copies all that is left of a book that nobody writes in, and says what it comes to, and how
    /// many rows it has.
    pub(super) async fn finish(&mut self) -> Result<(MoveProof, u64), Fault> {
        while !self.page(self.engine.0.limits.batch_rows).await?.is_all {}
        // The target answers, and the copy is still this claim's: nothing flips to where it isn't.
        let fence = self.target.fence().await?;
        if !fence.is_some_and(|fence| may_copy(self.claim.move_id, self.claim.number, &fence)) {
            return Err(Fault::Lost);
        }
        let head = self.check.holds()?;
        let (before, after) = (self.before.root(), self.after.root());
        if before != after {
            return Err(Fault::RootsDiffer);
        }
        let rows = before.rows.iter();
        let rows = rows.map(|(table, rows)| ((*table).to_owned(), json!(rows.to_string())));
        let proof = MoveProof {
            head,
            root_before: before.root,
            root_after: after.root,
            rows: rows.collect(),
            layout: layout(),
        };
        Ok((proof, before.total()))
    }

    /// Copies what one moment has beyond what was read, at most `limit` rows of each table.
    async fn page(&mut self, limit: usize) -> Result<Page, Fault> {
        let mut read = self.source.read().await?;
        let mut found: Vec<TableRows> = Vec::new();
        for (table, read_to) in BOOK_TABLES.iter().zip(&self.read_to) {
            let rows = read.rows(table, read_to.as_ref(), limit).await?;
            if !rows.is_empty() {
                found.push((table, rows));
            }
        }
        read.end().await?;
        let page = Page {
            rows: found.iter().map(|(_, rows)| rows.len() as u64).sum(),
            is_all: found.iter().all(|(_, rows)| rows.len() < limit),
        };
        if found.is_empty() {
            return Ok(page);
        }
        let (id, claim) = (self.claim.move_id, self.claim.number);
        self.target.put(id, claim, &found).await?;
        self.read_back(&found).await?;
        self.copied += page.rows;
        Ok(page)
    }

    /// Reads from the target what was written there, and takes both into account.
    async fn read_back(&mut self, written: &[TableRows]) -> Result<(), Fault> {
        let mut read = self.target.read().await?;
        for (table, rows) in written {
            let at = position(table);
            // One more than was written: nothing else may be there.
            let limit = rows.len() + 1;
            let there = read.rows(table, self.read_to[at].as_ref(), limit).await?;
            if there != *rows {
                return Err(Fault::Differs { table: table.name });
            }
            for (number, (row, there)) in rows.iter().zip(&there).enumerate() {
                self.before.put(table, row);
                self.after.put(table, there);
                self.check.put(table, there)?;
                // Hashing is work: whoever shares the thread has a turn in between.
                if number % TURN_ROWS == 0 {
                    tokio::task::yield_now().await;
                }
            }
            self.read_to[at] = rows.last().map(|row| table.place(row));
        }
        Ok(read.end().await?)
    }

    /// Says how far it has come, which keeps the claim.
    pub(super) async fn tell(&self) -> Result<(), Fault> {
        let engine = self.engine;
        let until = engine.lease_end();
        let come = (self.copied, self.total);
        let holds = moves::progress(&engine.0.master, self.claim, until, come).await?;
        holds.then_some(()).ok_or(Fault::Lost)
    }
}

fn position(table: &'static BookTable) -> usize {
    let mut tables = BOOK_TABLES.iter();
    tables
        .position(|known| known.name == table.name)
        .unwrap_or(0)
}
