use std::sync::Arc;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Executor as _, FromRow, MySql, QueryBuilder, SqlSafeStr};
use tokio::sync::OwnedSemaphorePermit;
use uuid::Uuid;

use super::pools::BookPool;
use super::statement::{BookQuery, BookSql, BookStatement};
use super::{Route, Router};
use crate::domain::fence::{Fence, FenceRow, NotOurs, Turn};
use crate::domain::ids::BrokerId;
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Connection;
use crate::stores::sql::chunks;

/// The way to one broker's book, wherever it moves.
#[derive(Clone)]
pub struct BookScope {
    router: Arc<Router>,
    place: BookPlace,
}

/// One broker's book in one database.
#[derive(Clone)]
pub(in crate::stores) struct BookPlace {
    route: Route,
    pool: BookPool,
}

const FENCE_FOR_WRITE: BookSql =
    BookSql::new("SELECT state, epoch FROM book_fence WHERE broker_id = ? LOCK IN SHARE MODE");
const FENCE_FOR_READ: BookSql =
    BookSql::new("SELECT state, epoch FROM book_fence WHERE broker_id = ?");
const FENCE_WHOLE: BookSql = BookSql::new(
    "SELECT state, epoch, move_id FROM book_fence WHERE broker_id = ? LOCK IN SHARE MODE",
);

const BEGIN_WRITE: &str = "START TRANSACTION";
const BEGIN_READ: &str =
    "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY";
/// Whoever writes in a book queues behind a wait for its fence, so that wait is short.
const SHORT_WAIT: &str = "SET SESSION innodb_lock_wait_timeout = 1";
const USUAL_WAIT: &str = "SET SESSION innodb_lock_wait_timeout = 3";

/// Between two looks at where a moving book is.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

impl BookScope {
    pub(super) const fn new(router: Arc<Router>, place: BookPlace) -> Self {
        Self { router, place }
    }

    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.place.route.broker
    }

    /// Where the book was when this scope was made.
    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.place.route
    }

    /// Begins a write: a transaction that holds the book's fence in share mode, after checking
    /// that the book is open here and of this epoch. `first` is read in the same round trip; it
    /// has no value but the broker. While the book is between two places, waits for it within the
    /// router's bound.
    ///
    /// # Errors
    /// [`StoreError::Moving`] where that bound is over; the server being away or busy.
    pub async fn begin<T>(&self, first: BookSql) -> Result<(BookTx, Option<T>), StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let (tx, mut sets) = self.start(BEGIN_WRITE, &[FENCE_FOR_WRITE, first]).await?;
        let row = sets.pop().and_then(|rows| rows.into_iter().next());
        let row = row.map(|row| T::from_row(&row)).transpose();
        let row = row.map_err(|error| tx.failed(error))?;
        Ok((tx, row))
    }

    /// Begins a read of one moment: every statement sees the same snapshot, the fence's too.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn read(&self) -> Result<BookRead, StoreError> {
        let (tx, _) = self.start(BEGIN_READ, &[FENCE_FOR_READ]).await?;
        Ok(BookRead(tx))
    }

    async fn start(
        &self,
        begin: &str,
        reads: &[BookSql],
    ) -> Result<(BookTx, Vec<Vec<MySqlRow>>), StoreError> {
        let since = Instant::now();
        let mut pause = FIRST_PAUSE;
        let mut place = self.place.clone();
        loop {
            let moving = match place.start_open(begin, reads).await {
                Err(moving @ StoreError::Moving { .. }) => moving,
                // It may have moved away from what is gone now, which can't say so.
                Err(gone) if gone.is_unavailable() || gone.is_absence() => {
                    let now = self.router.place_now(self.broker()).await;
                    match now.ok().filter(|now| now.route != place.route) {
                        Some(now) => place = now,
                        None => return Err(gone),
                    }
                    continue;
                }
                outcome => return outcome,
            };
            self.router.forget(self.broker());
            if since.elapsed() >= self.router.move_wait() {
                return Err(moving);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            place = self.router.place(self.broker()).await?;
        }
    }
}

impl BookPlace {
    pub(super) const fn new(route: Route, pool: BookPool) -> Self {
        Self { route, pool }
    }

    /// A read of one moment, whatever the fence says: for whoever moves the book.
    pub(in crate::stores) async fn read(&self) -> Result<BookRead, StoreError> {
        let (tx, _) = self.start(BEGIN_READ, &[]).await?;
        Ok(BookRead(tx))
    }

    /// A write that the fence allows by `may`, which it then holds in share mode.
    pub(in crate::stores) async fn begin(
        &self,
        may: impl FnOnce(&FenceRow) -> bool,
    ) -> Result<BookTx, StoreError> {
        let (tx, sets) = self.start(BEGIN_WRITE, &[FENCE_WHOLE]).await?;
        match tx.fence_in(&sets)? {
            Some(fence) if may(&fence) => Ok(tx),
            Some(_) | None => Err(StoreError::Moving {
                broker: self.route.broker,
            }),
        }
    }

    /// Leaves the fence as `turn` says of what it finds, once nobody writes in the book any more.
    /// It is read, and then set where it is still so, in one statement each: whoever stands still
    /// in between holds up nobody. The outer error is the database's, the inner one says that the
    /// fence is not ours to turn.
    pub(in crate::stores) async fn turn_fence(
        &self,
        now: DateTime<Utc>,
        turn: impl Fn(Option<FenceRow>) -> Turn,
    ) -> Result<Result<(), NotOurs>, StoreError> {
        let (_permit, mut connection) = self.pool.acquire().await?;
        let failed = |error| self.pool.failed(error);
        connection.execute(SHORT_WAIT).await.map_err(failed)?;
        let turned = self.turn_on(&mut connection, now, turn).await;
        connection.execute(USUAL_WAIT).await.map_err(failed)?;
        turned
    }

    async fn turn_on(
        &self,
        connection: &mut Connection,
        now: DateTime<Utc>,
        turn: impl Fn(Option<FenceRow>) -> Turn,
    ) -> Result<Result<(), NotOurs>, StoreError> {
        loop {
            let found = self.fence(connection).await?;
            let fence = match turn(found) {
                Ok(None) => return Ok(Ok(())),
                Err(not_ours) => return Ok(Err(not_ours)),
                Ok(Some(fence)) => fence,
            };
            failpoint::at("fence.before");
            let set = self.set_fence(connection, found, fence, now).await?;
            failpoint::at("fence.after");
            if set {
                return Ok(Ok(()));
            }
        }
    }

    pub(in crate::stores) const fn broker(&self) -> BrokerId {
        self.route.broker
    }

    pub(in crate::stores) async fn fence_now(&self) -> Result<Option<FenceRow>, StoreError> {
        let (_permit, mut connection) = self.pool.acquire().await?;
        self.fence(&mut connection).await
    }

    async fn fence(&self, connection: &mut Connection) -> Result<Option<FenceRow>, StoreError> {
        let sql = "SELECT state, epoch, move_id FROM book_fence WHERE broker_id = ?";
        let row = sqlx::query(sql).bind(self.route.broker);
        let row = row.fetch_optional(connection).await;
        fence_of(row.map_err(|error| self.pool.failed(error))?.as_ref())
            .map_err(|error| self.pool.failed(error))?
            .transpose()
    }

    /// Sets the fence where it is as it was found; gives whether it was.
    async fn set_fence(
        &self,
        connection: &mut Connection,
        found: Option<FenceRow>,
        fence: FenceRow,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let query = match found {
            None => sqlx::query(
                "INSERT IGNORE INTO book_fence (state, epoch, move_id, broker_id, created_at)
                 VALUES (?, ?, ?, ?, ?)",
            ),
            Some(_) => sqlx::query(
                "UPDATE book_fence SET state = ?, epoch = ?, move_id = ?
                 WHERE broker_id = ? AND state = ? AND epoch = ? AND move_id <=> ?",
            ),
        };
        let query = query
            .bind(fence.state.as_str())
            .bind(fence.epoch)
            .bind(fence.move_id)
            .bind(self.route.broker);
        let query = match found {
            None => query.bind(now),
            Some(found) => query
                .bind(found.state.as_str())
                .bind(found.epoch)
                .bind(found.move_id),
        };
        let done = query.execute(connection).await;
        let done = done.map_err(|error| self.pool.failed(error))?;
        Ok(done.rows_affected() == 1)
    }

    /// Strikes off the fence of a book or a copy that is not here any more, where this move has
    /// turned it last and it is not open.
    pub(in crate::stores) async fn remove_fence(&self, move_id: Uuid) -> Result<(), StoreError> {
        const REMOVE: BookSql = BookSql::new(
            "DELETE FROM book_fence WHERE broker_id = ? AND move_id = ? AND state IN ('closed', 'moved')",
        );
        let (mut tx, _) = self.start(BEGIN_WRITE, &[]).await?;
        let query = tx.sql(REMOVE).bind(move_id);
        tx.execute(query).await?;
        tx.commit().await
    }

    /// Strikes off the fence of a copy where it is as that claim has left it.
    pub(in crate::stores) async fn strike_copy(
        &self,
        move_id: Uuid,
        claim: u64,
    ) -> Result<(), StoreError> {
        const STRIKE: BookSql = BookSql::new(
            "DELETE FROM book_fence
             WHERE broker_id = ? AND move_id = ? AND epoch = ? AND state = 'closed'",
        );
        let (mut tx, _) = self.start(BEGIN_WRITE, &[]).await?;
        let query = tx.sql(STRIKE).bind(move_id).bind(claim);
        tx.execute(query).await?;
        tx.commit().await
    }

    /// Begins a transaction on a book that is open here and of the route's epoch. The rows are
    /// those of each of `reads` after the first, which is the fence's.
    async fn start_open(
        &self,
        begin: &str,
        reads: &[BookSql],
    ) -> Result<(BookTx, Vec<Vec<MySqlRow>>), StoreError> {
        let (tx, mut sets) = self.start(begin, reads).await?;
        let fence = sets.first().and_then(|rows| rows.first());
        tx.check_fence(fence, begin == BEGIN_READ)?;
        sets.remove(0);
        Ok((tx, sets))
    }

    /// Begins a transaction and reads whatever in one round trip. Gives the rows of each read.
    async fn start(
        &self,
        begin: &str,
        reads: &[BookSql],
    ) -> Result<(BookTx, Vec<Vec<MySqlRow>>), StoreError> {
        let mut text = begin.to_owned();
        for read in reads {
            text.push_str("; ");
            text.push_str(&read.of(self.route.broker));
        }
        let (permit, mut connection) = self.pool.acquire().await?;
        let sets = connection.begin(AssertSqlSafe(text).into_sql_str()).await;
        let tx = BookTx {
            place: self.clone(),
            connection,
            _permit: permit,
        };
        let mut sets = sets.map_err(|error| tx.failed(error))?;
        let sets = sets.split_off(sets.len().saturating_sub(reads.len()));
        Ok((tx, sets))
    }
}

/// A transaction on one book. Dropped without [`BookTx::commit`], it closes its connection, and
/// the server rolls it back.
pub struct BookTx {
    place: BookPlace,
    connection: Connection,
    _permit: OwnedSemaphorePermit,
}

/// A read-only transaction on one book.
pub struct BookRead(pub(super) BookTx);

impl BookTx {
    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.place.route.broker
    }

    /// A statement with the broker bound.
    #[must_use]
    pub fn sql(&self, sql: BookSql) -> BookQuery {
        BookQuery::new(sql, self.broker())
    }

    /// A statement with the broker and a list bound, the list in the place of `{}`. An empty list
    /// is the caller's to avoid: it matches the padding only.
    #[must_use]
    pub fn sql_list<T>(&self, sql: BookSql, list: &[T]) -> BookQuery
    where
        T: sqlx::Encode<'static, MySql> + sqlx::Type<MySql> + Clone + Send + 'static,
    {
        let mut query = BookQuery::with_text(sql.with_list(list.len()), self.broker());
        let count = list.len().next_power_of_two();
        for value in list
            .iter()
            .chain(list.last().into_iter().cycle())
            .take(count)
        {
            query = query.bind(value.clone());
        }
        query
    }

    /// # Errors
    /// The database's. Gives the number of rows that matched.
    pub async fn execute(&mut self, query: BookQuery) -> Result<u64, StoreError> {
        let done = query.into_inner().execute(&mut self.connection).await;
        let done = done.map_err(|error| self.failed(error))?;
        Ok(done.rows_affected())
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_all<T>(&mut self, query: BookQuery) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let rows = query.into_inner().fetch_all(&mut self.connection).await;
        let rows = rows.and_then(|rows| rows.iter().map(T::from_row).collect());
        rows.map_err(|error| self.failed(error))
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_optional<T>(&mut self, query: BookQuery) -> Result<Option<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let row = query
            .into_inner()
            .fetch_optional(&mut self.connection)
            .await;
        let row = row.and_then(|row| row.as_ref().map(T::from_row).transpose());
        row.map_err(|error| self.failed(error))
    }

    /// Inserts rows in as few statements as there are bits in their number. `into` reads
    /// `INSERT INTO table (broker_id, …)`, `bind` adds a row's values after the broker.
    ///
    /// # Errors
    /// The database's.
    ///
    /// # Panics
    /// Where `into` does not begin with the broker: a mistake in the statement's text.
    pub async fn insert<R>(
        &mut self,
        into: &'static str,
        rows: &[R],
        bind: impl Fn(&mut sqlx::query_builder::Separated<'_, MySql, &'static str>, &R),
        on_duplicate: &'static str,
    ) -> Result<(), StoreError> {
        assert!(
            into.contains(" (broker_id,"),
            "rows of a book begin with their broker"
        );
        let broker = self.broker();
        let mut rest = rows;
        for size in chunks(rows.len()) {
            let (chunk, after) = rest.split_at(size);
            rest = after;
            let mut builder = QueryBuilder::<MySql>::new(into);
            builder.push(" ");
            builder.push_values(chunk, |mut row, value| {
                let row = &mut row;
                row.push_bind(broker);
                bind(row, value);
            });
            builder.push(on_duplicate);
            let done = builder.build().execute(&mut self.connection).await;
            done.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    /// # Errors
    /// The database's: whether it took effect is unknown where the connection broke.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        let done = self.connection.commit().await;
        done.map_err(|error| self.failed(error))
    }

    /// Gives up what was done, and the connection back.
    ///
    /// # Errors
    /// The database's; nothing is there in any case.
    pub async fn rollback(mut self) -> Result<(), StoreError> {
        let done = self.connection.rollback().await;
        done.map_err(|error| self.failed(error))
    }

    /// A statement of this module's, whose first value is the broker.
    pub(super) async fn run(&mut self, query: BookStatement) -> Result<u64, StoreError> {
        let done = query.execute(&mut self.connection).await;
        let done = done.map_err(|error| self.failed(error))?;
        Ok(done.rows_affected())
    }

    pub(super) async fn fetch_rows(
        &mut self,
        query: BookStatement,
    ) -> Result<Vec<MySqlRow>, StoreError> {
        let rows = query.fetch_all(&mut self.connection).await;
        rows.map_err(|error| self.failed(error))
    }

    /// Whether the book is here, of the route's epoch, and open; to be read it may be frozen too.
    fn check_fence(&self, row: Option<&MySqlRow>, to_read: bool) -> Result<(), StoreError> {
        let row: Option<(String, u64)> = row
            .map(FromRow::from_row)
            .transpose()
            .map_err(|error| self.failed(error))?;
        let epoch = self.place.route.epoch;
        let allowed = |state: &str| match Fence::parse(state) {
            Some(Fence::Open) => true,
            Some(Fence::Frozen) => to_read,
            Some(Fence::Closed | Fence::Moved) | None => false,
        };
        match row {
            Some((state, found)) if found == epoch && allowed(&state) => Ok(()),
            Some(_) | None => Err(StoreError::Moving {
                broker: self.broker(),
            }),
        }
    }

    /// The fence, where it was the one thing to read at the beginning.
    fn fence_in(&self, sets: &[Vec<MySqlRow>]) -> Result<Option<FenceRow>, StoreError> {
        let row = sets.first().and_then(|rows| rows.first());
        fence_of(row)
            .map_err(|error| self.failed(error))?
            .transpose()
    }

    pub(super) fn failed(&self, error: sqlx::Error) -> StoreError {
        self.place.pool.failed(error)
    }
}

type MaybeFence = Option<Result<FenceRow, StoreError>>;

fn fence_of(row: Option<&MySqlRow>) -> Result<MaybeFence, sqlx::Error> {
    let row: Option<(String, u64, Option<Uuid>)> = row.map(FromRow::from_row).transpose()?;
    let read = |(state, epoch, move_id): (String, u64, Option<Uuid>)| {
        let state = Fence::parse(&state);
        let state = state.ok_or_else(|| corrupt("book_fence", "state"))?;
        Ok(FenceRow {
            state,
            epoch,
            move_id,
        })
    };
    Ok(row.map(read))
}

impl BookRead {
    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.0.broker()
    }

    #[must_use]
    pub fn sql(&self, sql: BookSql) -> BookQuery {
        self.0.sql(sql)
    }

    #[must_use]
    pub fn sql_list<T>(&self, sql: BookSql, list: &[T]) -> BookQuery
    where
        T: sqlx::Encode<'static, MySql> + sqlx::Type<MySql> + Clone + Send + 'static,
    {
        self.0.sql_list(sql, list)
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_all<T>(&mut self, query: BookQuery) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        self.0.fetch_all(query).await
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_optional<T>(&mut self, query: BookQuery) -> Result<Option<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        self.0.fetch_optional(query).await
    }

    /// Ends the read and gives the connection back.
    ///
    /// # Errors
    /// The database's.
    pub async fn end(self) -> Result<(), StoreError> {
        self.0.commit().await
    }
}
