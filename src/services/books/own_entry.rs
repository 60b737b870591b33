//! Entries that a broker makes in its own book: an opening balance, a correction. They are
//! chained like any other, as an operation of the book's own with one step.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use uuid::Uuid;

use super::{BooksError, BooksService};
use crate::domain::account::Side;
use crate::domain::book::{Job, JobOutcome, Work};
use crate::domain::chain::{self, EntryKind, PlannedEntry};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::Amount;
use crate::domain::text;
use crate::stores::book::{self, Once, StoredEntry};
use crate::stores::master::idempotency::Intention;

/// The one step of an operation of the book's own.
pub(super) const STEP: u16 = 0;
/// The longest note, in characters.
const MAX_NOTE: usize = 1_000;
/// Names the operation of a client's key; never changes.
const OWN_ENTRY_NS: Uuid = Uuid::from_u128(0x5d0c_6f5e_1b7a_5c0e_9a5d_7f2d_3c41_8e60);

/// What a broker may book by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnEntryKind {
    /// What was there before the book began.
    Opening,
    Correction,
}

impl OwnEntryKind {
    const fn entry_kind(self) -> EntryKind {
        match self {
            Self::Opening => EntryKind::Opening,
            Self::Correction => EntryKind::Correction,
        }
    }
}

/// An entry as it is asked for.
#[derive(Clone, Debug)]
pub struct EntryInput {
    pub account: AccountId,
    pub kind: OwnEntryKind,
    pub side: Side,
    /// In the account's currency.
    pub amount: Amount,
    /// Stands beside the chain, and can be erased.
    pub note: Option<String>,
}

impl BooksService {
    /// Books an entry of the broker's own. A repeat of the same intention gives the same entry,
    /// or the same refusal.
    ///
    /// # Errors
    /// A debit that the account can't bear, or of an account that is closed, is
    /// [`BooksError::Refused`]. A credit is never refused: where the account is closed it goes to
    /// the house's suspense account, with an alert. See [`BooksError`] for the rest.
    pub async fn book_entry(
        &self,
        broker: BrokerId,
        intention: &Intention,
        input: EntryInput,
        now: DateTime<Utc>,
    ) -> Result<StoredEntry, BooksError> {
        let note = note_of(input.note.as_deref())?;
        let account = self.account(broker, input.account).await?.owner;
        let saga_id = operation(OWN_ENTRY_NS, broker, intention);
        let subject = input.account.to_string();
        let entry = PlannedEntry {
            leg: 0,
            account,
            side: input.side,
            amount: input.amount.minor(),
            kind: input.kind.entry_kind(),
        };
        let op_digest = chain::op_digest(saga_id, &subject, [(STEP, &entry)]);
        let job = Job {
            saga_id,
            step: STEP,
            subject,
            work: Work::Book {
                entries: vec![entry],
                op_digest,
                consumes: None,
                // The salt keeps a short text from being guessed by its digest once it is erased.
                private: note.map(
                    |note| json!({ "note": note, "salt": Uuid::new_v4().simple().to_string() }),
                ),
            },
        };
        let intention = intention.clone();
        let once = self
            .write(broker, move |scope| {
                let (intention, job) = (intention.clone(), job.clone());
                async move { book::append_once(&scope, &intention, &job, now).await }
            })
            .await?;
        let booked = match once {
            // Nobody undoes an operation of the book's own: what did is another's.
            Once::OtherRequest | Once::Outcome(JobOutcome::Tombstone) => {
                return Err(BooksError::KeyReused);
            }
            Once::Outcome(JobOutcome::Refused(reason)) => {
                return Err(BooksError::Refused { reason });
            }
            Once::Outcome(JobOutcome::Done { booked, .. }) => booked,
        };
        let seq = booked.first().map_or(0, |entry| entry.seq);
        let (_, entries) = self.entries_after(broker, seq.saturating_sub(1), 1).await?;
        entries.into_iter().next().ok_or(BooksError::NoSuchAccount)
    }
}

/// The same intention of the same client is the same operation.
pub(super) fn operation(namespace: Uuid, broker: BrokerId, intention: &Intention) -> Uuid {
    let name = format!("{broker}\0{}\0{}", intention.client, intention.key);
    Uuid::new_v5(&namespace, name.as_bytes())
}

/// A note without spaces around it; nothing where it says nothing.
///
/// # Errors
/// One that is too long, or can't be shown.
pub(super) fn note_of(note: Option<&str>) -> Result<Option<&str>, BooksError> {
    let note = note.map(str::trim).filter(|note| !note.is_empty());
    match note {
        Some(note) if text::prose(note, MAX_NOTE).is_err() => Err(BooksError::Invalid {
            field: "note",
            rule: "is at most 1000 characters, no control characters but newline and tab",
        }),
        note => Ok(note),
    }
}
