//! The continuous audit: every book's chain is verified again and again, against the last head of it
//! that the log has. What a book has grown by is verified soon after the log has it, on from where the
//! book was known to hold; and all of it, from genesis, once a round. So whoever writes the chain anew
//! and goes on is named within `audit.growth_s`, and whoever changes any entry, however old,
//! within [`AuditRules::round`].
//!
//! One book at a time is taken by one process. Whoever dies over it has put it off for a while; a book
//! whose database is away is taken again after that too. What was found is an alert, [`TAMPERED`],
//! which goes once the chain holds again; nothing else follows from it by itself.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::json;

use super::books::{BooksError, BooksService};
use super::checkpoints::{CheckpointError, CheckpointService, Wanted};
use crate::domain::chain::{Fault, Head};
use crate::domain::checkpoint::LeafKind;
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::alerts::{self, NewAlert};
use crate::stores::master::book_audit::{self, Held};
use crate::stores::pool::Pool;

/// The alert that a chain does not hold, or is another than the log has.
pub const TAMPERED: &str = "book_tampered";

/// When a book is taken again whose audit came to nothing.
const AGAIN: TimeDelta = TimeDelta::minutes(5);
/// Books that are put in line at once.
const BATCH: u32 = 1_000;

/// What the configuration says.
#[derive(Clone, Copy, Debug)]
pub struct AuditRules {
    /// Between two audits of all of one book.
    pub round: Duration,
}

/// Why a book could not be audited.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    #[error(transparent)]
    Books(#[from] BooksError),
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// What came of the audit of one book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audited {
    pub broker: BrokerId,
    /// The last entry that holds.
    pub holds_to: Head,
    /// The head that the log has of it, against which it was verified.
    pub known: Option<Head>,
    /// When all of it was last verified; `None` where it does not hold.
    pub whole_at: Option<DateTime<Utc>>,
    /// The first thing that is wrong.
    pub fault: Option<Fault>,
}

/// Audits books. Cheap to clone.
#[derive(Clone)]
pub struct AuditService {
    master: Pool,
    books: BooksService,
    checkpoints: CheckpointService,
    clock: Clock,
    rules: AuditRules,
}

impl AuditService {
    #[must_use]
    pub const fn new(
        master: Pool,
        books: BooksService,
        checkpoints: CheckpointService,
        clock: Clock,
        rules: AuditRules,
    ) -> Self {
        Self {
            master,
            books,
            checkpoints,
            clock,
            rules,
        }
    }

    /// Audits the book that is due for longest, and gives what came of it; none where none is due.
    /// A book that could not be audited is taken again later, and holds up no other.
    ///
    /// # Errors
    /// The master's.
    pub async fn next(&self) -> Result<Option<Result<Audited, AuditError>>, StoreError> {
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        let due = book_audit::take(&mut tx, now + AGAIN, now).await?;
        master::commit(tx).await?;
        match due {
            Some(broker) => Ok(Some(self.look(broker).await)),
            None if book_audit::add_new(&self.master, BATCH, now).await? > 0 => {
                Box::pin(self.next()).await
            }
            None => Ok(None),
        }
    }

    /// Audits what a book has grown by, or all of it where its round is over.
    ///
    /// # Errors
    /// See [`AuditError`]; a chain that does not hold is no error.
    pub async fn look(&self, broker: BrokerId) -> Result<Audited, AuditError> {
        let held = book_audit::held(&self.master, broker).await?;
        let held = held.filter(|held| held.whole_at + self.round() > self.clock.now());
        self.audit_from(broker, held).await
    }

    /// Audits all of one book now.
    ///
    /// # Errors
    /// See [`AuditError`]; a chain that does not hold is no error.
    pub async fn audit(&self, broker: BrokerId) -> Result<Audited, AuditError> {
        self.audit_from(broker, None).await
    }

    async fn audit_from(
        &self,
        broker: BrokerId,
        held: Option<Held>,
    ) -> Result<Audited, AuditError> {
        // What the log has by now, the book has from now on.
        let wanted = Wanted::Last(LeafKind::Book, broker.to_string());
        let known = match self.checkpoints.inclusion(None, None, &wanted).await {
            Ok(found) => Some(Head {
                seq: found.leaf.seq,
                hash: found.leaf.hash,
            }),
            Err(CheckpointError::NoSuch(_)) => None,
            Err(error) => return Err(error.into()),
        };
        let begun = self.clock.now();
        let walked = match held {
            Some(held) => self.books.verify_growth(broker, held.to, known).await?,
            None => self.books.verify(broker, known, &|_, _| {}).await?,
        };
        let before = held.map_or(0, |held| held.to.seq);
        let read = walked.holds_to.seq.saturating_sub(before);
        metrics::counter!("settlenet_audited_entries_total").increment(read);
        let fault = walked.result.err();
        let whole_at = held.map_or(begun, |held| held.whole_at);
        let audited = Audited {
            broker,
            holds_to: walked.holds_to,
            known,
            whole_at: fault.is_none().then_some(whole_at),
            fault,
        };
        self.record(&audited, self.clock.now()).await?;
        Ok(audited)
    }

    fn round(&self) -> TimeDelta {
        TimeDelta::from_std(self.rules.round).unwrap_or(TimeDelta::MAX)
    }

    async fn record(&self, audited: &Audited, now: DateTime<Utc>) -> Result<(), StoreError> {
        // One that does not hold is verified as a whole until it does.
        let next = audited.whole_at.unwrap_or(now) + self.round();
        let came_to = (audited.holds_to, audited.whole_at);
        let subject = format!("book {}", audited.broker);
        let mut tx = master::begin(&self.master).await?;
        book_audit::record(&mut tx, audited.broker, came_to, next, now).await?;
        match &audited.fault {
            Some(fault) => alerts::raise(&mut tx, &alert(subject, audited, fault), now).await?,
            None => {
                alerts::resolve(&mut tx, TAMPERED, &subject, now).await?;
            }
        }
        master::commit(tx).await
    }
}

fn alert(subject: String, audited: &Audited, fault: &Fault) -> NewAlert {
    NewAlert {
        kind: TAMPERED,
        message: format!(
            "The chain of broker {} does not hold. The first bad seq is {}: {}. Before it holds up to \
             {}.",
            audited.broker, fault.seq, fault.problem, audited.holds_to
        ),
        subject,
        details: json!({
            "broker_id": audited.broker,
            "first_bad_seq": fault.seq,
            "problem": fault.problem.code(),
            "holds_to": audited.holds_to.to_string(),
            "log": audited.known.map(|known| known.to_string()),
        }),
    }
}
