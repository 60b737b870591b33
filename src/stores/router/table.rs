//! Whole rows of a book's tables, whatever the table: for a move, an export and a deletion.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row as _};

use super::scope::{BookRead, BookTx};
use super::statement::BookStatement;
use crate::domain::book_table::{BookTable, CHANGE, Column, Kind, Place, Row, Value};
use crate::stores::StoreError;
use crate::stores::sql::chunks;

impl BookRead {
    /// Rows after a place, or from the beginning, in the order of their changes and keys, at most
    /// `limit`.
    ///
    /// # Errors
    /// The database's, or a column that is not as [`BookTable`] says.
    pub async fn rows(
        &mut self,
        table: &'static BookTable,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        self.0.rows(table, after, limit).await
    }

    /// How many rows the book has in a table.
    ///
    /// # Errors
    /// The database's.
    pub async fn count(&mut self, table: &'static BookTable) -> Result<u64, StoreError> {
        let sql = format!("SELECT COUNT(*) FROM {} WHERE broker_id = ?", table.name);
        let query = sqlx::query(AssertSqlSafe(sql)).bind(self.broker());
        let rows = self.0.fetch_rows(query).await?;
        let count: Option<i64> = rows.first().map(|row| row.get(0));
        Ok(count.and_then(|count| count.try_into().ok()).unwrap_or(0))
    }
}

impl BookTx {
    async fn rows(
        &mut self,
        table: &'static BookTable,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let Some(after) = after else {
            return self.page(table, "", &[], limit).await;
        };
        let mut rows = Vec::new();
        // Two ranges of the index, one after the other: what one write has left goes on by key.
        if table.key > 0 {
            let (within, values) = after_key(table, after);
            rows = self.page(table, &within, &values, limit).await?;
        }
        if table.numbered && rows.len() < limit {
            let values = [Value::Unsigned(after.change)];
            let later = format!(" AND {CHANGE} > ?");
            rows.extend(
                self.page(table, &later, &values, limit - rows.len())
                    .await?,
            );
        }
        Ok(rows)
    }

    async fn page(
        &mut self,
        table: &'static BookTable,
        condition: &str,
        values: &[Value],
        limit: usize,
    ) -> Result<Vec<Row>, StoreError> {
        let order = table
            .numbered
            .then_some(CHANGE)
            .into_iter()
            .chain(names(table.key_columns()));
        let sql = format!(
            "SELECT {} FROM {} WHERE broker_id = ?{condition} ORDER BY {} LIMIT ?",
            list(names(table.columns)),
            table.name,
            list(order),
        );
        let mut query = sqlx::query(AssertSqlSafe(sql));
        query = query.bind(self.broker());
        for value in values {
            query = bind(query, value);
        }
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        let rows = self.fetch_rows(query.bind(limit)).await?;
        let read: Result<_, _> = rows.iter().map(|row| read(table, row)).collect();
        read.map_err(|error| self.failed(error))
    }

    /// Writes rows as they are, over those with the same key.
    ///
    /// # Errors
    /// The database's.
    pub async fn put_rows(
        &mut self,
        table: &'static BookTable,
        rows: &[Row],
    ) -> Result<(), StoreError> {
        let columns = list(names(table.columns));
        let values = format!("(?{})", ", ?".repeat(table.columns.len()));
        let rest = names(&table.columns[table.key..]);
        let renewed = list(rest.map(|name| format!("{name} = VALUES({name})")));
        let mut left = rows;
        for size in chunks(rows.len()) {
            let (chunk, after) = left.split_at(size);
            left = after;
            let sql = format!(
                "INSERT INTO {} (broker_id, {columns}) VALUES {} ON DUPLICATE KEY UPDATE {renewed}",
                table.name,
                list(std::iter::repeat_n(&values, size)),
            );
            let mut query = sqlx::query(AssertSqlSafe(sql));
            for row in chunk {
                query = query.bind(self.broker());
                for value in &row.0 {
                    query = bind(query, value);
                }
            }
            self.run(query).await?;
        }
        Ok(())
    }

    /// Deletes rows of the book in a table, at most `limit`; gives how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn delete_rows(
        &mut self,
        table: &'static BookTable,
        limit: u32,
    ) -> Result<u64, StoreError> {
        let sql = format!(
            "DELETE FROM {} WHERE broker_id = ? LIMIT {limit}",
            table.name
        );
        let query = sqlx::query(AssertSqlSafe(sql)).bind(self.broker());
        self.run(query).await
    }
}

/// The condition for rows of the same change with a greater key, and its values. Spelt out and
/// with the first column's own bound, because `MariaDB` uses no index for `(a, b) > (?, ?)`.
fn after_key(table: &BookTable, after: &Place) -> (String, Vec<Value>) {
    let mut text = String::new();
    let mut values = Vec::new();
    if table.numbered {
        write!(text, " AND {CHANGE} = ?").expect("a string takes all");
        values.push(Value::Unsigned(after.change));
    }
    let key: Vec<&str> = names(table.key_columns()).collect();
    write!(text, " AND {} >= ? AND (", key[0]).expect("a string takes all");
    values.push(after.key[0].clone());
    for last in 0..key.len() {
        text.push_str(if last == 0 { "(" } else { " OR (" });
        for (at, name) in key[..=last].iter().enumerate() {
            let (and, sign) = (
                if at == 0 { "" } else { " AND " },
                if at == last { ">" } else { "=" },
            );
            write!(text, "{and}{name} {sign} ?").expect("a string takes all");
            values.push(after.key[at].clone());
        }
        text.push(')');
    }
    text.push(')');
    (text, values)
}

fn names(columns: &'static [Column]) -> impl Iterator<Item = &'static str> {
    columns.iter().map(|column| column.name)
}

fn list(parts: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let mut text = String::new();
    for part in parts {
        if !text.is_empty() {
            text.push_str(", ");
        }
        text.push_str(part.as_ref());
    }
    text
}

fn bind(query: BookStatement, value: &Value) -> BookStatement {
    match value {
        Value::Null => query.bind(None::<u64>),
        Value::Unsigned(number) => query.bind(*number),
        Value::Signed(number) => query.bind(*number),
        Value::Text(text) => query.bind(text.clone()),
        Value::Bytes(bytes) => query.bind(bytes.clone()),
        Value::Json(json) => query.bind(json.clone()),
        Value::Time(at) => query.bind(*at),
    }
}

fn read(table: &BookTable, row: &MySqlRow) -> Result<Row, sqlx::Error> {
    let columns = table.columns.iter().enumerate();
    let values: Result<_, _> = columns
        .map(|(at, column)| {
            let value = match column.kind {
                Kind::Unsigned => row.try_get::<Option<u64>, _>(at)?.map(Value::Unsigned),
                Kind::Signed => row.try_get::<Option<i64>, _>(at)?.map(Value::Signed),
                Kind::Text => row.try_get::<Option<String>, _>(at)?.map(Value::Text),
                Kind::Bytes => row.try_get::<Option<Vec<u8>>, _>(at)?.map(Value::Bytes),
                Kind::Json => row
                    .try_get::<Option<serde_json::Value>, _>(at)?
                    .map(Value::Json),
                Kind::Time => row
                    .try_get::<Option<DateTime<Utc>>, _>(at)?
                    .map(Value::Time),
            };
            Ok(value.unwrap_or(Value::Null))
        })
        .collect();
    values.map(Row)
}
