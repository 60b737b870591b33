use sqlx::mysql::MySqlRow;
use sqlx::pool::PoolConnection;
use sqlx::{Connection, FromRow, MySql, QueryBuilder};
use tokio::sync::SemaphorePermit;

use super::Route;
use super::pools::BookPool;
use super::statement::{BookQuery, BookSql};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
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
    /// that the book is open here and of this epoch.
    ///
    /// # Errors
    /// [`StoreError::Moving`] where the fence says otherwise; the server being away or busy.
    pub async fn begin(&self) -> Result<BookTx<'_>, StoreError> {
        let mut tx = self.start("START TRANSACTION").await?;
        tx.check_fence(FENCE_FOR_WRITE).await?;
        Ok(tx)
    }

    /// Begins a read of one moment: every statement sees the same snapshot, the fence's too.
    ///
    /// # Errors
    /// As [`Self::begin`].
    pub async fn read(&self) -> Result<BookRead<'_>, StoreError> {
        let (permit, connection) = self.pool.acquire().await?;
        let mut tx = BookTx::new(self, permit, connection);
        tx.raw("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            .await?;
        tx.raw("START TRANSACTION READ ONLY").await?;
        tx.check_fence(FENCE_FOR_READ).await?;
        Ok(BookRead(tx))
    }

    async fn start(&self, begin: &'static str) -> Result<BookTx<'_>, StoreError> {
        let (permit, connection) = self.pool.acquire().await?;
        let mut tx = BookTx::new(self, permit, connection);
        tx.raw(begin).await?;
        Ok(tx)
    }
}

/// A transaction on one book. Dropped without [`BookTx::commit`], it closes its connection, and
/// the server rolls it back.
pub struct BookTx<'a> {
    scope: &'a BookScope,
    connection: Option<PoolConnection<MySql>>,
    _permit: SemaphorePermit<'a>,
}

/// A read-only transaction on one book.
pub struct BookRead<'a>(BookTx<'a>);

impl<'a> BookTx<'a> {
    const fn new(
        scope: &'a BookScope,
        permit: SemaphorePermit<'a>,
        connection: PoolConnection<MySql>,
    ) -> Self {
        Self {
            scope,
            connection: Some(connection),
            _permit: permit,
        }
    }

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
        let pool = &self.scope.pool;
        let work = query.into_inner().execute(&mut **self.open());
        Ok(pool.statement(work).await?.rows_affected())
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_all<T>(&mut self, query: BookQuery) -> Result<Vec<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let pool = &self.scope.pool;
        let rows = query.into_inner().fetch_all(&mut **self.open());
        let read = async { rows.await?.iter().map(T::from_row).collect() };
        pool.statement(read).await
    }

    /// # Errors
    /// The database's, or a row that can't be read.
    pub async fn fetch_optional<T>(&mut self, query: BookQuery) -> Result<Option<T>, StoreError>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        let pool = &self.scope.pool;
        let row = query.into_inner().fetch_optional(&mut **self.open());
        let read = async { row.await?.as_ref().map(T::from_row).transpose() };
        pool.statement(read).await
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
            let pool = &self.scope.pool;
            pool.statement(builder.build().execute(&mut **self.open()))
                .await?;
        }
        Ok(())
    }

    /// # Errors
    /// The database's: whether it took effect is unknown where the connection broke.
    pub async fn commit(mut self) -> Result<(), StoreError> {
        self.raw("COMMIT").await?;
        // Only a connection with nothing open goes back to the pool.
        drop(self.connection.take());
        Ok(())
    }

    async fn check_fence(&mut self, sql: BookSql) -> Result<(), StoreError> {
        let row: Option<(String, u64)> = self.fetch_optional(self.sql(sql)).await?;
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

    async fn raw(&mut self, sql: &'static str) -> Result<(), StoreError> {
        let pool = &self.scope.pool;
        let work = sqlx::raw_sql(sql).execute(&mut **self.open());
        pool.statement(work).await.map(drop)
    }

    fn open(&mut self) -> &mut PoolConnection<MySql> {
        self.connection
            .as_mut()
            .expect("a transaction has its connection until it commits, which consumes it")
    }
}

impl Drop for BookTx<'_> {
    /// A transaction that was left (an error, a task that was dropped) may be in any state: its
    /// connection is closed rather than handed to the next, who would go on inside it.
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take() {
            let connection = connection.detach();
            if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                runtime.spawn(async move {
                    // The server rolls back when the connection ends, said goodbye or not.
                    drop(connection.close().await);
                });
            }
        }
    }
}

impl BookRead<'_> {
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
