//! The tables of a book, column by column: what is copied when a book moves, written when it is
//! exported, counted and deleted when it has gone. The broker is the first column of each and is
//! not listed; `book_fence` is not here, because it says where the book is and stays behind.
//!
//! A row as text is a JSON object of its columns: numbers as decimal strings, bytes as hex, times
//! as in [`canonical::time`], text and JSON as they are. Its hash is a Merkle leaf over the
//! canonical form of that.

use chrono::{DateTime, SubsecRound, Utc};
use serde_json::{Map, Value as Json};

use super::canonical::{self, Hash};
use super::merkle;

/// What a column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Unsigned,
    Signed,
    Text,
    Bytes,
    Json,
    Time,
}

/// One column of a book's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub kind: Kind,
    pub nullable: bool,
}

/// One table of a book.
#[derive(Debug, PartialEq, Eq)]
pub struct BookTable {
    pub name: &'static str,
    /// All but the broker; the primary key, less the broker, comes first.
    pub columns: &'static [Column],
    /// How many of the columns are the key.
    pub key: usize,
    /// Whether the columns have [`CHANGE`], by which changed rows are found. One that has not is
    /// only appended to, in the order of its key.
    pub numbered: bool,
    /// Whether a row may change once it is there. None is ever deleted.
    pub mutable: bool,
}

/// The column that holds the number of the write that inserted or last changed a row.
pub const CHANGE: &str = "change_seq";

/// A value of a row.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Null,
    Unsigned(u64),
    Signed(i64),
    Text(String),
    Bytes(Vec<u8>),
    Json(Json),
    Time(DateTime<Utc>),
}

/// A row: its values in the order of the table's columns.
#[derive(Clone, Debug, PartialEq)]
pub struct Row(pub Vec<Value>);

/// Where in a table one has come to, in the order in which it is read: the last row's change (0
/// where the table is not numbered) and key.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    pub change: u64,
    pub key: Vec<Value>,
}

/// Why a text is no row of a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    #[error("a row of {table} is a JSON object")]
    NoObject { table: &'static str },
    #[error("{table}.{column} is missing")]
    Missing {
        table: &'static str,
        column: &'static str,
    },
    #[error("{table} has no column {column}")]
    Unknown { table: &'static str, column: String },
    #[error("{table}.{column} is {wanted}")]
    Wrong {
        table: &'static str,
        column: &'static str,
        wanted: &'static str,
    },
}

const fn column(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        nullable: false,
    }
}

const fn nullable(name: &'static str, kind: Kind) -> Column {
    Column {
        name,
        kind,
        nullable: true,
    }
}

/// Every table of a book, in an order in which they can be read and written.
pub const BOOK_TABLES: &[&BookTable] = &[
    &CHAIN_HEAD,
    &ACCOUNT,
    &RESERVATION,
    &PARTNER,
    &BOOK_LIMIT,
    &SAGA_STEP,
    &IDEMPOTENCY_KEY,
    &FEED_EVENT,
    &TRANSACTION,
];

pub const CHAIN_HEAD: BookTable = BookTable {
    name: "chain_head",
    columns: &[
        column("seq", Kind::Unsigned),
        column("tx_hash", Kind::Bytes),
        column("feed_position", Kind::Unsigned),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 0,
    numbered: true,
    mutable: true,
};

pub const ACCOUNT: BookTable = BookTable {
    name: "account",
    columns: &[
        column("account_id", Kind::Unsigned),
        column("owner_kind", Kind::Text),
        column("owner_ref", Kind::Text),
        column("currency_code", Kind::Text),
        column("state", Kind::Text),
        column("balance", Kind::Signed),
        column("reserved", Kind::Signed),
        nullable("min_balance", Kind::Signed),
        column("created_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 1,
    numbered: true,
    mutable: true,
};

pub const TRANSACTION: BookTable = BookTable {
    name: "transaction",
    columns: &[
        column("seq", Kind::Unsigned),
        column("v", Kind::Unsigned),
        column("saga_id", Kind::Bytes),
        column("step", Kind::Unsigned),
        column("leg", Kind::Unsigned),
        column("kind", Kind::Text),
        column("subject", Kind::Text),
        column("account_id", Kind::Unsigned),
        nullable("diverted_from", Kind::Unsigned),
        column("side", Kind::Text),
        column("amount", Kind::Unsigned),
        column("currency_code", Kind::Text),
        column("balance", Kind::Signed),
        column("op_digest", Kind::Bytes),
        nullable("reverses_seq", Kind::Unsigned),
        nullable("private_digest", Kind::Bytes),
        nullable("private", Kind::Json),
        column("booked_at", Kind::Time),
        column("prev_hash", Kind::Bytes),
        column("tx_hash", Kind::Bytes),
    ],
    key: 1,
    numbered: false,
    mutable: false,
};

pub const SAGA_STEP: BookTable = BookTable {
    name: "saga_step",
    columns: &[
        column("saga_id", Kind::Bytes),
        column("step", Kind::Unsigned),
        column("direction", Kind::Text),
        column("outcome", Kind::Text),
        nullable("reason", Kind::Json),
        column("created_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 3,
    numbered: true,
    mutable: false,
};

pub const RESERVATION: BookTable = BookTable {
    name: "reservation",
    columns: &[
        column("saga_id", Kind::Bytes),
        column("leg", Kind::Unsigned),
        column("account_id", Kind::Unsigned),
        column("subject", Kind::Text),
        column("amount", Kind::Unsigned),
        column("state", Kind::Text),
        column("created_at", Kind::Time),
        column("updated_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 2,
    numbered: true,
    mutable: true,
};

pub const PARTNER: BookTable = BookTable {
    name: "partner",
    columns: &[
        column("partner_id", Kind::Unsigned),
        column("kind", Kind::Text),
        column("display_name", Kind::Text),
        column("search_name", Kind::Text),
        nullable("phone", Kind::Text),
        nullable("contacts", Kind::Text),
        nullable("note", Kind::Text),
        nullable("platform_broker_id", Kind::Unsigned),
        column("state", Kind::Text),
        column("created_at", Kind::Time),
        column("updated_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 1,
    numbered: true,
    mutable: true,
};

pub const BOOK_LIMIT: BookTable = BookTable {
    name: "book_limit",
    columns: &[
        nullable("offline_partners", Kind::Unsigned),
        column("plan_number", Kind::Unsigned),
        nullable("refused_at", Kind::Unsigned),
        column("updated_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 0,
    numbered: true,
    mutable: true,
};

pub const IDEMPOTENCY_KEY: BookTable = BookTable {
    name: "idempotency_key",
    columns: &[
        column("client", Kind::Text),
        column("idempotency_key", Kind::Text),
        column("fingerprint", Kind::Bytes),
        column("subject", Kind::Text),
        column("created_at", Kind::Time),
        column(CHANGE, Kind::Unsigned),
    ],
    key: 2,
    numbered: true,
    mutable: false,
};

pub const FEED_EVENT: BookTable = BookTable {
    name: "feed_event",
    columns: &[
        column("position", Kind::Unsigned),
        column("kind", Kind::Text),
        column("subject", Kind::Text),
        column("payload", Kind::Json),
        column("created_at", Kind::Time),
    ],
    key: 1,
    numbered: false,
    mutable: false,
};

/// The digest of all tables and their columns: roots over books of different layouts say nothing
/// of each other.
#[must_use]
pub fn layout() -> Hash {
    let columns = |table: &BookTable| -> Vec<(&str, String)> {
        let columns = table.columns.iter();
        columns
            .map(|column| (column.name, format!("{:?}", column.kind)))
            .collect()
    };
    let tables: Vec<_> = BOOK_TABLES
        .iter()
        .map(|table| (table.name, table.key, table.mutable, columns(table)))
        .collect();
    Hash::of_json(&tables)
}

impl BookTable {
    /// The table of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        BOOK_TABLES.iter().copied().find(|table| table.name == name)
    }

    /// The columns of the key, without the broker.
    #[must_use]
    pub fn key_columns(&self) -> &'static [Column] {
        &self.columns[..self.key]
    }

    /// Where a row stands in the order of reading.
    #[must_use]
    pub fn place(&self, row: &Row) -> Place {
        let change = match row.0.last() {
            Some(Value::Unsigned(change)) if self.numbered => *change,
            _ => 0,
        };
        Place {
            change,
            key: row.0[..self.key].to_vec(),
        }
    }

    /// The canonical JSON of a row's key.
    ///
    /// # Panics
    /// Never: what a key has can be JSON.
    #[must_use]
    pub fn key_text(&self, row: &Row) -> Vec<u8> {
        let key: Vec<Json> = row.0[..self.key].iter().map(Value::to_json).collect();
        serde_json_canonicalizer::to_vec(&key).expect("a key is plain JSON")
    }

    /// A row as a JSON object.
    #[must_use]
    pub fn to_json(&self, row: &Row) -> Json {
        let columns = self.columns.iter().zip(&row.0);
        let object: Map<String, Json> = columns
            .map(|(column, value)| (column.name.to_owned(), value.to_json()))
            .collect();
        Json::Object(object)
    }

    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    /// [`RowError`], which names the column.
    pub fn from_json(&self, json: Json) -> Result<Row, RowError> {
        let table = self.name;
        let Json::Object(mut object) = json else {
            return Err(RowError::NoObject { table });
        };
        let mut values = Vec::with_capacity(self.columns.len());
        for column in self.columns {
            let name = column.name;
            let json = object.remove(name).ok_or(RowError::Missing {
                table,
                column: name,
            })?;
            let value = Value::from_json(*column, json).ok_or(RowError::Wrong {
                table,
                column: name,
                wanted: column.kind.wanted(),
            })?;
            values.push(value);
        }
        match object.into_iter().next() {
            Some((column, _)) => Err(RowError::Unknown { table, column }),
            None => Ok(Row(values)),
        }
    }

    /// The leaf of a row in a Merkle tree of its book.
    ///
    /// # Panics
    /// Never: what a row has can be JSON.
    #[must_use]
    pub fn leaf(&self, row: &Row) -> Hash {
        let text = serde_json_canonicalizer::to_vec(&(self.name, self.to_json(row)))
            .expect("a row is plain JSON");
        merkle::leaf(&text)
    }
}

impl Kind {
    const fn wanted(self) -> &'static str {
        match self {
            Self::Unsigned => "a string of decimal digits below 2^64",
            Self::Signed => "a string of a decimal number of 64 bits",
            Self::Text => "a string",
            Self::Bytes => "a string of lower-case hex digits",
            Self::Json => "JSON",
            Self::Time => "a time such as 2026-01-31T09:30:00.000000Z",
        }
    }
}

impl Value {
    fn to_json(&self) -> Json {
        match self {
            Self::Null => Json::Null,
            Self::Unsigned(number) => Json::String(number.to_string()),
            Self::Signed(number) => Json::String(number.to_string()),
            Self::Text(text) => Json::String(text.clone()),
            Self::Bytes(bytes) => Json::String(hex::encode(bytes)),
            Self::Json(json) => json.clone(),
            Self::Time(at) => Json::String(canonical::time(*at)),
        }
    }

    fn from_json(column: Column, json: Json) -> Option<Self> {
        if json.is_null() {
            return column.nullable.then_some(Self::Null);
        }
        if column.kind == Kind::Json {
            return Some(Self::Json(json));
        }
        let Json::String(text) = json else {
            return None;
        };
        let value = match column.kind {
            Kind::Unsigned => Self::Unsigned(text.parse().ok()?),
            Kind::Signed => Self::Signed(text.parse().ok()?),
            Kind::Text => Self::Text(text.clone()),
            Kind::Bytes => Self::Bytes(hex::decode(&text).ok()?),
            Kind::Time => {
                let at = DateTime::parse_from_rfc3339(&text).ok()?.to_utc();
                Self::Time(at.trunc_subsecs(6))
            }
            Kind::Json => return None,
        };
        // One value has one text only.
        (value.to_json() == Json::String(text)).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row() -> Row {
        Row(vec![
            Value::Unsigned(u64::MAX),
            Value::Text("partner".into()),
            Value::Text("Анна".into()),
            Value::Text("USD".into()),
            Value::Text("open".into()),
            Value::Signed(i64::MIN),
            Value::Signed(0),
            Value::Null,
            Value::Time("2026-01-31T09:30:00.000001Z".parse().unwrap()),
            Value::Unsigned(7),
        ])
    }

    #[test]
    fn a_row_survives_its_text() {
        let json = ACCOUNT.to_json(&row());
        assert_eq!(json["account_id"], "18446744073709551615");
        assert_eq!(json["created_at"], "2026-01-31T09:30:00.000001Z");
        assert_eq!(ACCOUNT.from_json(json), Ok(row()));
        assert_eq!(ACCOUNT.place(&row()).change, 7);
    }

    #[test]
    fn what_is_no_row_is_told_by_its_column() {
        let whole = ACCOUNT.to_json(&row());
        let wrong = |column: &str, value: Json| {
            let mut json = whole.clone();
            json[column] = value;
            ACCOUNT.from_json(json).unwrap_err().to_string()
        };
        assert!(wrong("balance", json!(5)).contains("account.balance is a string"));
        assert!(wrong("balance", json!("+5")).contains("account.balance"));
        assert!(wrong("account_id", json!("007")).contains("account.account_id"));
        assert!(wrong("state", Json::Null).contains("account.state"));
        assert!(wrong("created_at", json!("2026-01-31")).contains("account.created_at"));
        assert_eq!(
            wrong("colour", json!("red")),
            "account has no column colour"
        );
        let mut short = whole;
        short.as_object_mut().unwrap().remove("reserved");
        assert_eq!(
            ACCOUNT.from_json(short).unwrap_err().to_string(),
            "account.reserved is missing"
        );
    }

    #[test]
    fn every_change_moves_the_leaf() {
        let leaf = ACCOUNT.leaf(&row());
        for at in 0..row().0.len() {
            let mut changed = row();
            changed.0[at] = match &changed.0[at] {
                Value::Null => Value::Signed(0),
                Value::Text(text) => Value::Text(format!("{text} ")),
                Value::Unsigned(number) => Value::Unsigned(number - 1),
                Value::Signed(number) => Value::Signed(number + 1),
                Value::Time(at) => Value::Time(*at + chrono::TimeDelta::microseconds(1)),
                other => unreachable!("{other:?}"),
            };
            assert_ne!(ACCOUNT.leaf(&changed), leaf, "{at}");
        }
    }

    #[test]
    fn tables_are_in_form() {
        for table in BOOK_TABLES {
            let last = table.columns.last().unwrap();
            assert_eq!(last.name == CHANGE, table.numbered, "{}", table.name);
            // What changes is found by its number, and only that.
            assert!(table.numbered || !table.mutable, "{}", table.name);
            assert!(table.key < table.columns.len());
            assert!(table.key_columns().iter().all(|column| !column.nullable));
        }
    }
}
