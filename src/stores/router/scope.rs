use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, FromRow, MySql, QueryBuilder, SqlSafeStr};
use tokio::sync::OwnedSemaphorePermit;

use super::Route;
use super::pools::BookPool;
use super::statement::{BookQuery, BookSql};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Connection;
use crate::stores::sql::chunks;

/// The way to one broker's book.
#[derive(Clone)]
pub struct BookScope {
    route: Route,
    pool: BookPool,
}

/// Whether a book takes writes here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    Open,
    Closed,
    Moved,
}

const FENCE_FOR_WRITE: BookSql =
    BookSql::new("SELECT state, epoch FROM book_fence WHERE broker_id = ? LOCK IN SHARE MODE");
const FENCE_FOR_READ: BookSql =
    BookSql::new("SELECT state, epoch FROM book_fence WHERE broker_id = ?");

impl BookScope {
    pub(super) const fn new(route: Route, pool: BookPool) -> Self {
        Self { route, pool }
    }

    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.route.broker
    }

    #[must_use]
    pub const fn route(&self) -> &Route {
        &self.route
    }

    /// Begins a write: a transaction that holds the book's fence in share mode, after checking
    /// that the book is open here and of this epoch. `first` is read in the same round trip; it
    /// has no value but the broker.
    ///
    /// # Errors
    /// [`StoreError::Moving`] where the fence says otherwise; the server being away or busy.
    pub async fn begin<T>(&self, first: BookSql) -> Result<(BookTx, Option<T>), StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let (tx, mut sets) = self
            .start("START TRANSACTION", &[FENCE_FOR_WRITE, first])
            .await?;
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
        let begin = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; START TRANSACTION READ ONLY";
        let (tx, _) = self.start(begin, &[FENCE_FOR_READ]).await?;
        Ok(BookRead(tx))
    }

    /// Begins a transaction and reads the fence and whatever else in one round trip. Gives the
    /// rows of each of `reads` after the first, which is the fence's.
    async fn start(
        &self,
        begin: &str,
        reads: &[BookSql],
    ) -> Result<(BookTx, Vec<Vec<MySqlRow>>), StoreError> {
        let broker = self.broker();
        let mut text = begin.to_owned();
        for read in reads {
            text.push_str("; ");
            text.push_str(&read.of(broker));
        }
        let (permit, mut connection) = self.pool.acquire().await?;
        let sets = connection.begin(AssertSqlSafe(text).into_sql_str()).await;
        let tx = BookTx {
            scope: self.clone(),
            connection,
            _permit: permit,
        };
        let mut sets = sets.map_err(|error| tx.failed(error))?;
        let mut sets = sets.split_off(sets.len().saturating_sub(reads.len()));
        tx.check_fence(sets.first().and_then(|rows| rows.first()))?;
        sets.remove(0);
        Ok((tx, sets))
    }
}

/// A transaction on one book. Dropped without [`BookTx::commit`], it closes its connection, and
/// the server rolls it back.
pub struct BookTx {
    scope: BookScope,
    connection: Connection,
    _permit: OwnedSemaphorePermit,
}

/// A read-only transaction on one book.
pub struct BookRead(BookTx);

impl BookTx {
    #[must_use]
    pub const fn broker(&self) -> BrokerId {
        self.scope.route.broker
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

    fn check_fence(&self, row: Option<&MySqlRow>) -> Result<(), StoreError> {
        let row: Option<(String, u64)> = row
            .map(FromRow::from_row)
            .transpose()
            .map_err(|error| self.failed(error))?;
        let fence = row.map(|(state, epoch)| {
            let state = match state.as_str() {
                "open" => Fence::Open,
                "closed" => Fence::Closed,
                _ => Fence::Moved,
            };
            (state, epoch)
        });
        match fence {
            Some((Fence::Open, epoch)) if epoch == self.scope.route.epoch => Ok(()),
            Some((Fence::Open | Fence::Closed | Fence::Moved, _)) | None => {
                Err(StoreError::Moving {
                    broker: self.broker(),
                })
            }
        }
    }

    fn failed(&self, error: sqlx::Error) -> StoreError {
        self.scope.pool.failed(error)
    }
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
