use std::sync::Arc;
use std::time::Duration;

use deadpool::managed::Object;
use futures::future::BoxFuture;
use futures::stream;
use futures::{FutureExt, StreamExt, TryFutureExt, TryStreamExt};
use sqlx::mysql::{MySqlQueryResult, MySqlRow, MySqlStatement, MySqlTypeInfo};
use sqlx::{Connection as _, Describe, Either, Execute, Executor, MySql, MySqlConnection, SqlStr};
use tokio::time::error::Elapsed;

use super::{Connector, Health, Rows};
use crate::stores::error::is_read_only;

/// A connection of a pool, whose statements are bounded in time. It goes back to its pool when
/// it is dropped between statements, after a rollback where it was left in a transaction; else it
/// is closed, and the server rolls back.
#[derive(Debug)]
pub struct Connection {
    /// Taken only when it is dropped.
    object: Option<Object<Connector>>,
    health: Arc<Health>,
    statement_timeout: Duration,
    /// A statement is under way, or was given up.
    busy: bool,
    in_transaction: bool,
    /// It holds something of its session's, and ends with its user.
    own: bool,
}

impl Connection {
    pub(super) const fn new(
        object: Object<Connector>,
        health: Arc<Health>,
        statement_timeout: Duration,
    ) -> Self {
        Self {
            object: Some(object),
            health,
            statement_timeout,
            busy: false,
            in_transaction: false,
            own: false,
        }
    }

    /// From here on the connection is closed when it is dropped, in whatever way, and with it ends
    /// what its session holds, such as a lock by name.
    pub fn keep_own(&mut self) {
        self.own = true;
    }

    /// Begins a transaction by text, in which reads that take no values may follow the beginning:
    /// all of it is one round trip. Gives the rows of each statement.
    ///
    /// # Errors
    /// The server's.
    pub async fn begin(&mut self, sql: SqlStr) -> Result<Vec<Vec<MySqlRow>>, sqlx::Error> {
        self.in_transaction = true;
        let mut sets = Vec::new();
        let mut rows = Vec::new();
        for part in self.all(sqlx::raw_sql(sql)).await? {
            match part {
                Either::Left(_) => sets.push(std::mem::take(&mut rows)),
                Either::Right(row) => rows.push(row),
            }
        }
        Ok(sets)
    }

    /// # Errors
    /// The server's: whether it took effect is unknown where the connection broke.
    pub async fn commit(&mut self) -> Result<(), sqlx::Error> {
        self.end("COMMIT").await
    }

    /// # Errors
    /// The server's; nothing is there in any case.
    pub async fn rollback(&mut self) -> Result<(), sqlx::Error> {
        self.end("ROLLBACK").await
    }

    async fn end(&mut self, sql: &'static str) -> Result<(), sqlx::Error> {
        self.all(sqlx::raw_sql(sql)).await?;
        self.in_transaction = false;
        Ok(())
    }

    pub(super) async fn all<'q>(
        &mut self,
        query: impl Execute<'q, MySql> + 'q,
    ) -> Result<Vec<Either<MySqlQueryResult, MySqlRow>>, sqlx::Error> {
        let bound = self.statement_timeout;
        let work = self.begin_statement().fetch_many(query).try_collect();
        let outcome = tokio::time::timeout(bound, work).await;
        self.end_statement(outcome)
    }

    pub(super) async fn optional<'q>(
        &mut self,
        query: impl Execute<'q, MySql> + 'q,
    ) -> Result<Option<MySqlRow>, sqlx::Error> {
        let bound = self.statement_timeout;
        let work = self.begin_statement().fetch_optional(query);
        let outcome = tokio::time::timeout(bound, work).await;
        self.end_statement(outcome)
    }

    pub(super) async fn prepared(
        &mut self,
        sql: SqlStr,
        parameters: &[MySqlTypeInfo],
    ) -> Result<MySqlStatement, sqlx::Error> {
        let bound = self.statement_timeout;
        let work = self.begin_statement().prepare_with(sql, parameters);
        let outcome = tokio::time::timeout(bound, work).await;
        self.end_statement(outcome)
    }

    pub(super) async fn described(&mut self, sql: SqlStr) -> Result<Describe<MySql>, sqlx::Error> {
        let bound = self.statement_timeout;
        let work = self.begin_statement().describe(sql);
        let outcome = tokio::time::timeout(bound, work).await;
        self.end_statement(outcome)
    }

    /// From here on until its end the connection is in the middle of something, also where the
    /// caller is dropped meanwhile.
    fn begin_statement(&mut self) -> &mut MySqlConnection {
        self.busy = true;
        self.object
            .as_mut()
            .expect("a connection is there until it is dropped")
    }

    fn end_statement<T>(
        &mut self,
        outcome: Result<Result<T, sqlx::Error>, Elapsed>,
    ) -> Result<T, sqlx::Error> {
        match outcome {
            Ok(outcome) => {
                // What the server itself refuses leaves the connection in order, but one that
                // takes no writes is not the one that the next caller wants.
                let in_order = match &outcome {
                    Ok(_) => true,
                    Err(error @ sqlx::Error::Database(_)) => !is_read_only(error),
                    Err(_) => false,
                };
                if !in_order {
                    self.health.lose_trust();
                }
                self.busy = !in_order;
                outcome
            }
            Err(late) => {
                self.health.suspect();
                Err(sqlx::Error::Io(late.into()))
            }
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if !self.busy && !self.in_transaction && !self.own {
            return;
        }
        let Some(object) = self.object.take() else {
            return;
        };
        if self.busy || self.own {
            close(Object::take(object));
        } else {
            roll_back(object);
        }
    }
}

/// Ends the transaction that a connection was left in, in the background, and gives it back.
fn roll_back(mut object: Object<Connector>) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else {
        drop(Object::take(object));
        return;
    };
    runtime.spawn(async move {
        let rollback = object.execute(sqlx::raw_sql("ROLLBACK"));
        if !matches!(tokio::time::timeout(GOODBYE, rollback).await, Ok(Ok(_))) {
            drop(Object::take(object));
        }
    });
}

/// How long a server may take to take leave.
const GOODBYE: Duration = Duration::from_secs(1);

/// Closes a connection in the background. The server rolls back when it ends, said goodbye or
/// not.
pub(super) fn close(connection: MySqlConnection) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(async move {
            drop(tokio::time::timeout(GOODBYE, connection.close()).await);
        });
    }
}

/// All rows of a statement are read before the first is given.
impl<'c> Executor<'c> for &'c mut Connection {
    type Database = MySql;

    fn fetch_many<'e, 'q: 'e, E>(self, query: E) -> Rows<'e>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        self.all(query)
            .map_ok(|rows| stream::iter(rows.into_iter().map(Ok)))
            .try_flatten_stream()
            .boxed()
    }

    fn fetch_optional<'e, 'q: 'e, E>(
        self,
        query: E,
    ) -> BoxFuture<'e, Result<Option<MySqlRow>, sqlx::Error>>
    where
        'c: 'e,
        E: 'q + Execute<'q, MySql>,
    {
        self.optional(query).boxed()
    }

    fn prepare_with<'e>(
        self,
        sql: SqlStr,
        parameters: &'e [MySqlTypeInfo],
    ) -> BoxFuture<'e, Result<MySqlStatement, sqlx::Error>>
    where
        'c: 'e,
    {
        self.prepared(sql, parameters).boxed()
    }

    fn describe<'e>(self, sql: SqlStr) -> BoxFuture<'e, Result<Describe<MySql>, sqlx::Error>>
    where
        'c: 'e,
    {
        self.described(sql).boxed()
    }
}
