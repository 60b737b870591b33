//! A pass: the heads that have changed go into the log.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::RangeInclusive;

use chrono::{DateTime, TimeDelta, Utc};
use futures::StreamExt as _;
use serde_json::json;

use super::{CONTRADICTED, CheckpointError, CheckpointService};
use crate::domain::chain::Head;
use crate::domain::checkpoint::{Leaf, LeafKind, origin_of};
use crate::domain::ids::{BrokerId, RequestId};
use crate::runtime::failpoint::{self, Ask};
use crate::stores::StoreError;
use crate::stores::book::logged;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::log::{self, Log, requests, sources};
use crate::stores::master::{self, audit, book_audit};
use crate::stores::router::DatabaseKey;

/// Marks that are taken back in one statement, when a new log has begun.
const UNMARK_BATCH: u32 = 5_000;

/// What a pass came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Leaves that it appended.
    pub appended: usize,
    /// Heads that it marked as had.
    pub marked: usize,
    /// Whether it signed a checkpoint.
    pub signed: bool,
    /// Whether there may be more to do at once.
    pub more: bool,
}

/// Heads of one kind that were read in one database.
struct Found<I> {
    database: DatabaseKey,
    heads: Vec<(I, Head)>,
}

/// How far the log has a chain: what is marked once that is signed.
enum Mark {
    Book(DatabaseKey, BrokerId, u64),
    Request(RequestId, u64),
}

/// What came of appending heads.
struct Appended {
    leaves: usize,
    /// The last leaf of each chain now.
    last: HashMap<String, Leaf>,
}

impl CheckpointService {
    /// Appends what has changed, signs and marks it, where a pass is due and no other process is
    /// at it. Nothing where this process keeps no log, or the log has forked.
    ///
    /// # Errors
    /// No usable key, or a database of ours being away. A database of books that is away holds up
    /// its own books only.
    pub async fn pass(&self) -> Result<Passed, CheckpointError> {
        if !self.keeps_log() {
            return Ok(Passed::default());
        }
        let signers = self.signers()?;
        let now = self.clock.now();
        let log = self.current(now).await?;
        let interval = TimeDelta::from_std(self.rules.interval).unwrap_or(TimeDelta::MAX);
        if !log::take_pass(&self.master, log.number, now + interval, now).await? {
            return Ok(Passed::default());
        }
        if self.forked().await? {
            return Ok(Passed::default());
        }
        let mut passed = Passed::default();
        let mut marks = Vec::new();
        for found in self.changed_books(&log).await? {
            self.take_books(&log, found, &mut passed, &mut marks)
                .await?;
        }
        self.take_requests(&log, &mut passed, &mut marks).await?;
        passed.signed = self.sign(log.number, &signers).await?;
        passed.marked = self.mark(log.number, marks).await;
        metrics::counter!("settlenet_log_leaves_total").increment(passed.appended as u64);
        metrics::counter!("settlenet_checkpoints_signed_total").increment(passed.signed.into());
        passed.more &= passed.appended + passed.marked > 0;
        if passed.more {
            // The next one is due at once.
            log::take_pass(&self.master, log.number, now, now + interval).await?;
        }
        Ok(passed)
    }

    /// The log that is appended to; the first one is begun here.
    async fn current(&self, now: DateTime<Utc>) -> Result<Log, CheckpointError> {
        if let Some(log) = log::last(&self.master).await? {
            return Ok(log);
        }
        let mut tx = master::begin(&self.master).await?;
        let first = Log {
            number: 1,
            origin: origin_of(&self.rules.name, 1),
            size: 0,
            begun_at: now,
            begun_by: None,
            reason: None,
            statement: None,
        };
        log::begin(&mut tx, &first).await?;
        master::commit(tx).await?;
        let log = log::last(&self.master).await?;
        log.ok_or(CheckpointError::NoSuch("log"))
    }

    /// One indexed read of each database that holds books.
    async fn changed_books(&self, log: &Log) -> Result<Vec<Found<BrokerId>>, CheckpointError> {
        let known = sources::all(&self.master).await?;
        let reads = audit::databases(&self.master).await?.into_iter();
        let reads = reads.map(|database| {
            let is_known = known.get(&database) == Some(&log.number);
            self.changed_in(log.number, database, is_known)
        });
        let read: Vec<_> = futures::stream::iter(reads)
            .buffered(self.rules.readers)
            .collect()
            .await;
        let mut found = Vec::new();
        for (database, heads) in read {
            match heads {
                Ok(heads) if heads.is_empty() => {}
                Ok(heads) => found.push(Found { database, heads }),
                Err(error) => {
                    tracing::warn!(%error, server = database.server, database = database.database,
                        "its heads are not looked at now");
                }
            }
        }
        Ok(found)
    }

    async fn changed_in(
        &self,
        log: u32,
        database: DatabaseKey,
        is_known: bool,
    ) -> (DatabaseKey, Result<Vec<(BrokerId, Head)>, StoreError>) {
        let read = async {
            if !is_known {
                // Marks of a log before; the first one found none.
                let batch = u64::from(UNMARK_BATCH);
                let router = &self.router;
                while log > 1
                    && logged::unmark_logged(router, &database, log, UNMARK_BATCH).await? == batch
                {
                }
                sources::set(&self.master, &database, log).await?;
            }
            let (after, batch) = (self.turn(&database), self.rules.batch);
            let heads = logged::unlogged(&self.router, &database, after, batch).await?;
            let full = heads.len() >= batch as usize;
            let last = heads.last().map(|(broker, _)| *broker);
            self.end_turn(&database, last.filter(|_| full));
            Ok(heads)
        };
        let heads = read.await;
        (database, heads)
    }

    async fn take_books(
        &self,
        log: &Log,
        found: Found<BrokerId>,
        passed: &mut Passed,
        marks: &mut Vec<Mark>,
    ) -> Result<(), CheckpointError> {
        let Found { database, heads } = found;
        passed.more |= heads.len() >= self.rules.batch as usize;
        let brokers: Vec<BrokerId> = heads.iter().map(|(broker, _)| *broker).collect();
        let mut at_home = sources::at_home(&self.master, &brokers, &database).await?;
        self.refuse_rewritten_books(log, &database, &mut at_home)
            .await?;
        let now = self.clock.now();
        let leaves = heads.iter().map(|(broker, head)| {
            let is_home = at_home.contains(broker);
            (Leaf::of_book(*broker, *head, now), is_home)
        });
        let appended = self
            .append(log, LeafKind::Book, leaves.collect(), &[])
            .await?;
        passed.appended += appended.leaves;
        let grown: Vec<BrokerId> = at_home.iter().copied().collect();
        book_audit::grown(&self.master, &grown, self.rules.audit_growth, now).await?;
        for (broker, head) in heads {
            let Some(last) = appended.last.get(&broker.to_string()) else {
                continue;
            };
            if at_home.contains(&broker) && last.seq >= head.seq && last.hash != head.hash {
                self.doubt(&database, broker, last).await?;
            }
            marks.push(Mark::Book(database.clone(), broker, last.seq));
        }
        Ok(())
    }

    /// A book goes on in the log only from what the log has of it: one that was written anew, and has
    /// grown since, is not the same chain. It is named, and left out of `at_home`.
    async fn refuse_rewritten_books(
        &self,
        log: &Log,
        database: &DatabaseKey,
        at_home: &mut BTreeSet<BrokerId>,
    ) -> Result<(), CheckpointError> {
        let ids: Vec<String> = at_home.iter().map(ToString::to_string).collect();
        let last = self.last_leaves(log, LeafKind::Book, &ids).await?;
        let by_broker = last
            .values()
            .filter_map(|leaf| Some((leaf.id.parse().ok()?, leaf)));
        let by_broker: Vec<(BrokerId, &Leaf)> = by_broker.collect();
        let places: Vec<(BrokerId, u64)> = by_broker
            .iter()
            .map(|(broker, leaf)| (*broker, leaf.seq))
            .collect();
        let found = logged::hashes_at(&self.router, database, &places).await?;
        for (broker, leaf) in by_broker {
            let now = found.get(&broker).copied();
            if leaf.seq > 0 && leaf.contradicts(now) && at_home.remove(&broker) {
                let now = now.map(|hash| Head {
                    seq: leaf.seq,
                    hash,
                });
                let alert = contradiction(format!("book {broker}"), leaf, now);
                self.raise(&alert).await?;
            }
        }
        Ok(())
    }

    /// The same of requests: those whose events are others than the log has.
    async fn rewritten_requests(
        &self,
        log: &Log,
        requests: &[RequestId],
    ) -> Result<HashSet<RequestId>, CheckpointError> {
        let ids: Vec<String> = requests.iter().map(ToString::to_string).collect();
        let last = self.last_leaves(log, LeafKind::Request, &ids).await?;
        let by_id = last
            .values()
            .filter_map(|leaf| Some((leaf.id.parse().ok()?, leaf)));
        let by_id: Vec<(RequestId, &Leaf)> = by_id.collect();
        let places: Vec<(RequestId, u64)> =
            by_id.iter().map(|(id, leaf)| (*id, leaf.seq)).collect();
        let found = requests::hashes_at(&self.master, &places).await?;
        let mut rewritten = HashSet::new();
        for (id, leaf) in by_id {
            let now = found.get(&id).copied();
            if leaf.contradicts(now) {
                let now = now.map(|hash| Head {
                    seq: leaf.seq,
                    hash,
                });
                self.raise(&contradiction(id.to_string(), leaf, now))
                    .await?;
                rewritten.insert(id);
            }
        }
        Ok(rewritten)
    }

    async fn last_leaves(
        &self,
        log: &Log,
        kind: LeafKind,
        ids: &[String],
    ) -> Result<HashMap<String, Leaf>, CheckpointError> {
        let mut tx = master::begin(&self.master).await?;
        let last = log::last_leaves(&mut tx, log.number, kind, ids).await?;
        master::commit(tx).await?;
        Ok(last)
    }

    /// A head that is another than the log's, or before it. Another process may have appended a
    /// later one meanwhile, so it is read again: what the log has, the book has.
    async fn doubt(
        &self,
        database: &DatabaseKey,
        broker: BrokerId,
        last: &Leaf,
    ) -> Result<(), CheckpointError> {
        let now = logged::head(&self.router, database, broker).await?;
        match now {
            Some(head) if head.seq < last.seq => {}
            Some(head) if head.seq == last.seq && last.contradicts(Some(head.hash)) => {}
            Some(_) | None => return Ok(()),
        }
        let alert = contradiction(format!("book {broker}"), last, now);
        self.raise(&alert).await
    }

    async fn take_requests(
        &self,
        log: &Log,
        passed: &mut Passed,
        marks: &mut Vec<Mark>,
    ) -> Result<(), CheckpointError> {
        let itself = sources::master_itself();
        if sources::all(&self.master).await?.get(&itself) != Some(&log.number) {
            let batch = u64::from(UNMARK_BATCH);
            while log.number > 1
                && requests::unmark(&self.master, log.number, UNMARK_BATCH).await? == batch
            {
            }
            sources::set(&self.master, &itself, log.number).await?;
        }
        let heads = requests::unlogged(&self.master, self.rules.batch).await?;
        passed.more |= heads.len() >= self.rules.batch as usize;
        let ids: Vec<RequestId> = heads.iter().map(|(id, _)| *id).collect();
        let rewritten = self.rewritten_requests(log, &ids).await?;
        let now = self.clock.now();
        let leaves = heads
            .iter()
            .map(|(id, head)| (Leaf::of_request(*id, *head, now), !rewritten.contains(id)));
        let namings = requests::namings(&self.master, &ids).await?;
        let appended = self
            .append(log, LeafKind::Request, leaves.collect(), &namings)
            .await?;
        passed.appended += appended.leaves;
        for (id, head) in heads {
            let Some(last) = appended.last.get(&id.to_string()) else {
                continue;
            };
            if last.seq == head.seq && last.contradicts(Some(head.hash)) {
                let alert = contradiction(id.to_string(), last, Some(head));
                self.raise(&alert).await?;
            }
            marks.push(Mark::Request(id, last.seq));
        }
        Ok(())
    }

    /// Appends what is newer than the last leaf of its chain, of what may be; and with a request the
    /// entries that its events name since. Gives the last leaf of each chain. Nothing where another
    /// log has begun.
    async fn append(
        &self,
        log: &Log,
        kind: LeafKind,
        offered: Vec<(Leaf, bool)>,
        namings: &[requests::Naming],
    ) -> Result<Appended, CheckpointError> {
        let mut appended = Appended {
            leaves: 0,
            last: HashMap::new(),
        };
        if offered.is_empty() {
            return Ok(appended);
        }
        let mut tx = master::begin(&self.master).await?;
        let Some(mut last_log) = log::lock_last(&mut tx).await? else {
            return Ok(appended);
        };
        if last_log.number != log.number {
            return Ok(appended);
        }
        let ids: Vec<String> = offered.iter().map(|(leaf, _)| leaf.id.clone()).collect();
        appended.last = log::last_leaves(&mut tx, log.number, kind, &ids).await?;
        let mut newer = Vec::new();
        for (leaf, may) in offered {
            let before = appended.last.get(&leaf.id);
            if may && before.is_none_or(|before| before.seq < leaf.seq) {
                let since = before.map_or(0, |before| before.seq) + 1..=leaf.seq;
                newer.extend(named_leaves(namings, &leaf, since));
                appended.last.insert(leaf.id.clone(), leaf.clone());
                newer.push(leaf);
            }
        }
        log::append(&mut tx, &mut last_log, &newer).await?;
        stop_at("log.append.before")?;
        master::commit(tx).await?;
        stop_at("log.append.after")?;
        appended.leaves = newer.len();
        Ok(appended)
    }

    /// Marks what the log has; gives how many. One that can't be marked now is found again.
    async fn mark(&self, log: u32, marks: Vec<Mark>) -> usize {
        let mut marked = 0;
        for mark in marks {
            failpoint::at("log.mark.before");
            let done = match &mark {
                Mark::Book(database, broker, seq) => {
                    logged::mark_logged(&self.router, database, *broker, *seq, log).await
                }
                Mark::Request(id, seq) => requests::mark(&self.master, *id, *seq, log).await,
            };
            match done {
                Ok(done) => marked += usize::from(done),
                Err(error) => tracing::debug!(%error, "a head is not marked now"),
            }
        }
        marked
    }

    pub(super) async fn raise(&self, alert: &NewAlert) -> Result<(), CheckpointError> {
        let mut tx = master::begin(&self.master).await?;
        alerts::raise(&mut tx, alert, self.clock.now()).await?;
        Ok(master::commit(tx).await?)
    }
}

/// The leaves of the entries that events of a request name, of those events that are new.
fn named_leaves(
    namings: &[requests::Naming],
    request: &Leaf,
    since: RangeInclusive<u64>,
) -> Vec<Leaf> {
    let new = namings
        .iter()
        .filter(|(id, seq, _)| id.to_string() == request.id && since.contains(&u64::from(*seq)));
    let named = new.flat_map(|(_, _, named)| named);
    let leaf = |(broker, entry): &(BrokerId, Head)| Leaf::of_entry(*broker, *entry, request.at);
    named.map(leaf).collect()
}

fn contradiction(subject: String, last: &Leaf, now: Option<Head>) -> NewAlert {
    let found = now.map(|head| json!({ "seq": head.seq.to_string(), "hash": head.hash }));
    NewAlert {
        kind: CONTRADICTED,
        message: format!(
            "The log has the head {}:{} of {subject}, and the chain is another one now: it was \
             rewritten, or restored from an older backup.",
            last.seq, last.hash
        ),
        subject,
        details: json!({ "log": last.canonical(), "found": found }),
    }
}

/// A place where a test makes the pass fail.
pub(super) fn stop_at(name: &str) -> Result<(), CheckpointError> {
    match failpoint::at(name) {
        Ask::GoOn => Ok(()),
        Ask::Fail => Err(CheckpointError::Store(StoreError::Unavailable {
            database: "a failpoint".to_owned(),
            source: sqlx::Error::WorkerCrashed,
        })),
    }
}
