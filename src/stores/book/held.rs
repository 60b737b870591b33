//! A broker's book in one named database, whatever its fence says there: for whoever moves it.

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::book_table::{BookTable, Row};
use crate::domain::fence::{FenceRow, NotOurs, Turn, is_leavings, may_copy};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::router::{BookPlace, BookRead, DatabaseKey, Router};

/// Rows of one table.
pub type TableRows = (&'static BookTable, Vec<Row>);

/// A book in a database: the source or the target of a move.
#[derive(Clone)]
pub struct HeldBook(BookPlace);

impl HeldBook {
    /// # Errors
    /// A server that the configuration lacks.
    pub fn new(
        router: &Router,
        broker: BrokerId,
        database: &DatabaseKey,
    ) -> Result<Self, StoreError> {
        router.place_in(broker, database).map(Self)
    }

    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.0.broker()
    }

    /// The fence, as it is now.
    ///
    /// # Errors
    /// The database's.
    pub async fn fence(&self) -> Result<Option<FenceRow>, StoreError> {
        self.0.fence_now().await
    }

    /// A read of one moment.
    ///
    /// # Errors
    /// The database's.
    pub async fn read(&self) -> Result<BookRead, StoreError> {
        self.0.read().await
    }

    /// Turns the fence, once nobody writes in the book any more; the inner error says that it is
    /// not this move's to turn.
    ///
    /// # Errors
    /// The database's; busy where a writer is slow.
    pub async fn turn(
        &self,
        now: DateTime<Utc>,
        turn: impl Fn(Option<FenceRow>) -> Turn,
    ) -> Result<Result<(), NotOurs>, StoreError> {
        self.0.turn_fence(now, turn).await
    }

    /// Writes rows of a copy in one transaction, over those that are there.
    ///
    /// # Errors
    /// [`StoreError::Moving`] where another claim has the copy; the database's.
    pub async fn put(
        &self,
        move_id: Uuid,
        claim: u64,
        rows: &[TableRows],
    ) -> Result<(), StoreError> {
        let may = |fence: &_| may_copy(move_id, claim, fence);
        let mut tx = self.0.begin(may).await?;
        for (table, rows) in rows {
            tx.put_rows(table, rows).await?;
        }
        tx.commit().await
    }

    /// Deletes rows of a copy; gives how many.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub async fn clear(
        &self,
        move_id: Uuid,
        claim: u64,
        table: &'static BookTable,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let may = |fence: &_| may_copy(move_id, claim, fence);
        let mut tx = self.0.begin(may).await?;
        let deleted = tx.delete_rows(table, limit).await?;
        tx.commit().await?;
        Ok(deleted)
    }

    /// Deletes rows of a book that a move has left here; gives how many.
    ///
    /// # Errors
    /// [`StoreError::Moving`] where that move did not leave it here; the database's.
    pub async fn purge(
        &self,
        move_id: Uuid,
        table: &'static BookTable,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let left = |fence: &FenceRow| is_leavings(move_id, fence);
        let mut tx = self.0.begin(left).await?;
        let deleted = tx.delete_rows(table, limit).await?;
        tx.commit().await?;
        Ok(deleted)
    }

    /// Strikes off the fence of a copy that a claim has begun and nobody goes on with.
    ///
    /// # Errors
    /// The database's.
    pub async fn strike(&self, move_id: Uuid, claim: u64) -> Result<(), StoreError> {
        self.0.strike_copy(move_id, claim).await
    }

    /// Strikes off a fence that is `moved`, or closed by this move for its copy.
    ///
    /// # Errors
    /// The database's.
    pub async fn remove_fence(&self, move_id: Uuid) -> Result<(), StoreError> {
        self.0.remove_fence(move_id).await
    }
}
