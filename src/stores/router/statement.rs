use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Encode, MySql, Type};

use crate::stores::sql::{padded, placeholders};

/// A statement on a book's tables, whose first placeholder is the broker: checked when the
/// program is compiled, so declare each as a `const`.
///
/// It reads `… WHERE broker_id = ? …`, or inserts into `(broker_id, …) VALUES (?, …)`.
///
/// ```compile_fail
/// # use settlenet::stores::router::BookSql;
/// const ALL: BookSql = BookSql::new("SELECT seq FROM transaction WHERE seq > ?");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BookSql(&'static str);

impl BookSql {
    /// # Panics
    /// At compile time, where the first placeholder is not the broker's.
    #[must_use]
    pub const fn new(sql: &'static str) -> Self {
        assert!(
            first_placeholder_is_the_broker(sql.as_bytes()),
            "the first placeholder of a book's statement is its broker: `broker_id = ?`, or `(broker_id, …) VALUES (?`"
        );
        Self(sql)
    }

    /// The text, with `{}` standing for a list of `count` values, padded to a power of two.
    pub(super) fn with_list(self, count: usize) -> String {
        self.0.replace("{}", &placeholders(padded(count)))
    }

    /// The text for a broker, where the statement has no other value: for a server that takes
    /// several statements at once, which carry no values.
    pub(super) fn of(self, broker: u64) -> String {
        self.0.replacen('?', &broker.to_string(), 1)
    }

    pub(super) const fn text(self) -> &'static str {
        self.0
    }
}

const fn first_placeholder_is_the_broker(sql: &[u8]) -> bool {
    let mut at = 0;
    while at < sql.len() && sql[at] != b'?' {
        at += 1;
    }
    if at == sql.len() {
        return false;
    }
    ends_with(sql, at, b"broker_id = ")
        || (ends_with(sql, at, b"VALUES (") && contains(sql, at, b" (broker_id,"))
}

const fn ends_with(text: &[u8], end: usize, suffix: &[u8]) -> bool {
    if end < suffix.len() {
        return false;
    }
    let mut at = 0;
    while at < suffix.len() {
        if text[end - suffix.len() + at] != suffix[at] {
            return false;
        }
        at += 1;
    }
    // `other_broker_id = ?` is another column.
    end == suffix.len() || !is_word(text[end - suffix.len() - 1]) || !is_word(suffix[0])
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

const fn contains(text: &[u8], end: usize, part: &[u8]) -> bool {
    let mut at = part.len();
    while at <= end {
        if ends_with(text, at, part) {
            return true;
        }
        at += 1;
    }
    false
}

/// A statement inside this module, with its values.
pub(super) type BookStatement = Query<'static, MySql, MySqlArguments>;

/// A statement with its broker bound, waiting for the rest of its values.
pub struct BookQuery(BookStatement);

impl BookQuery {
    pub(super) fn new(sql: BookSql, broker: u64) -> Self {
        Self(sqlx::query(sql.text()).bind(broker))
    }

    pub(super) fn with_text(sql: String, broker: u64) -> Self {
        Self(sqlx::query(AssertSqlSafe(sql)).bind(broker))
    }

    #[must_use]
    pub fn bind<T>(self, value: T) -> Self
    where
        T: Encode<'static, MySql> + Type<MySql> + Send + 'static,
    {
        Self(self.0.bind(value))
    }

    pub(super) fn into_inner(self) -> BookStatement {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::first_placeholder_is_the_broker as scoped;

    #[test]
    fn the_broker_comes_first() {
        assert!(scoped(b"SELECT a FROM t WHERE broker_id = ? AND b = ?"));
        assert!(scoped(b"INSERT INTO t (broker_id, a) VALUES (?, ?)"));
        assert!(!scoped(b"SELECT a FROM t WHERE b = ? AND broker_id = ?"));
        assert!(!scoped(b"SELECT a FROM t WHERE other_broker_id = ?"));
        assert!(!scoped(b"SELECT a FROM t"));
        assert!(!scoped(b"INSERT INTO t (a, broker_id) VALUES (?, ?)"));
        assert!(!scoped(b"INSERT INTO t VALUES (?, ?)"));
    }
}
