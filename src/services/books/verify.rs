//! Whether a book's chain holds, recomputed from genesis to the head that the book has.

use super::{BooksError, BooksService};
use crate::domain::chain::{Fault, Head, Problem, Verified, Verifier};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::router::BookRead;

/// Entries that are read at once.
const PAGE: u32 = 500;

/// What came of walking a chain.
#[derive(Clone, Debug)]
pub struct Walked {
    /// The head that the book says it has.
    pub head: Head,
    /// The last entry that holds; seq 0 where none does.
    pub holds_to: Head,
    pub result: Result<Verified, Fault>,
}

impl BooksService {
    /// Walks a broker's chain as of one moment. `known` is an entry that must be in it, as
    /// somebody outside has seen it; `progress` is told the last seq that holds and
    /// the head's, now and then.
    ///
    /// # Errors
    /// The book's database's; a chain that does not hold is no error.
    pub async fn verify(
        &self,
        broker: BrokerId,
        known: Option<Head>,
        progress: &(dyn Fn(u64, u64) + Sync),
    ) -> Result<Walked, BooksError> {
        let scope = self.router.book(broker).await?;
        let mut read = scope.read().await?;
        let walked = walk(&mut read, known, progress).await?;
        read.end().await?;
        Ok(walked)
    }

    /// Walks what a chain has grown by since it held up to `from`, that entry once more included.
    ///
    /// # Errors
    /// The book's database's; a chain that does not hold is no error.
    pub async fn verify_growth(
        &self,
        broker: BrokerId,
        from: Head,
        known: Option<Head>,
    ) -> Result<Walked, BooksError> {
        let scope = self.router.book(broker).await?;
        let mut read = scope.read().await?;
        let before = from.seq.saturating_sub(1);
        let first = match book::entries_after(&mut read, before, 1).await {
            Ok(page) => page.into_iter().next(),
            Err(StoreError::Corrupt { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let verifier = if from.seq == 0 {
            Verifier::of_book(broker)
        } else {
            // What is missing there, or can't be read, the walk names.
            let hash = first.map_or(from.hash, |first| first.entry.prev_hash);
            Verifier::of_book_after(broker, Head { seq: before, hash }).expecting(from)
        };
        let walked = go(&mut read, verifier, known, &|_, _| {}).await?;
        read.end().await?;
        Ok(walked)
    }
}

/// Walks the chain of a book from genesis to its head.
pub(in crate::services) async fn walk(
    read: &mut BookRead,
    known: Option<Head>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Walked, StoreError> {
    let verifier = Verifier::of_book(read.broker());
    go(read, verifier, known, progress).await
}

/// Walks on from where a verifier is to the head.
async fn go(
    read: &mut BookRead,
    verifier: Verifier,
    known: Option<Head>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Walked, StoreError> {
    let head = book::head(read).await?;
    let mut verifier = verifier.ending_at(head);
    // What is before the verifier's place is behind it.
    if let Some(known) = known.filter(|known| known.seq >= verifier.due()) {
        verifier = verifier.expecting(known);
    }
    let mut limit = PAGE;
    loop {
        let holds_to = verifier.head();
        let broken = |fault, holds_to| Walked {
            head,
            holds_to,
            result: Err(fault),
        };
        let page = match book::entries_after(read, holds_to.seq, limit).await {
            Ok(page) => page,
            // One row of the page can't be read: the walk goes on to it one by one.
            Err(StoreError::Corrupt { .. }) if limit > 1 => {
                limit = 1;
                continue;
            }
            Err(StoreError::Corrupt { what, .. }) => {
                let fault = Fault {
                    seq: verifier.due(),
                    problem: Problem::Unreadable(what),
                };
                return Ok(broken(fault, holds_to));
            }
            Err(error) => return Err(error),
        };
        for stored in &page {
            if let Err(fault) = verifier.exported(&stored.exported()) {
                return Ok(broken(fault, verifier.head()));
            }
        }
        if page.is_empty() {
            return Ok(Walked {
                head,
                holds_to: verifier.head(),
                result: verifier.finish(),
            });
        }
        progress(verifier.head().seq, head.seq);
    }
}
