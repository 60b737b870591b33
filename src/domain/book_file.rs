//! A broker's book as a file: every row of one moment, in lines that any program can read and
//! check, as `docs/formats.md` tells. What is written is verified while it is written, and all of
//! it again before any of it is taken in.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::book_check::{BookCheck, BookFault};
use super::book_table::{BOOK_TABLES, BookTable, Place, Row, RowError, TRANSACTION, Value};
use super::canonical::{self, Hash};
use super::chain::{Head, LINE_MAX};
use super::ids::BrokerId;

/// What the first line says it is.
pub const FORMAT: &str = "settlenet.book";
/// The version that this program writes.
pub const VERSION: u16 = 1;

/// How many rows of a table there are, and the digest of their lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSum {
    pub rows: u64,
    /// Of the lines with their line feeds, one after the other.
    pub sha256: Hash,
}

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub broker: BrokerId,
    /// The moment that the file is of.
    pub at: DateTime<Utc>,
    pub head: Head,
    /// In the order of [`BOOK_TABLES`].
    pub tables: Vec<TableSum>,
}

/// What is wrong with a file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct FileFault {
    /// From 1; the one after the last where something is missing.
    pub line: u64,
    pub what: FileProblem,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    #[error("the file is empty")]
    Empty,
    #[error("it is no first line of a book's file: {0}")]
    Header(String),
    #[error("version {0} of the format is not known; {VERSION} is")]
    Version(u16),
    #[error("it is no line of a book's file: {0}")]
    Unreadable(String),
    #[error("it is not in canonical form, or longer than {LINE_MAX} bytes")]
    NotCanonical,
    #[error("a row of {due} is due, by the count of the first line, and it is one of {found}")]
    Table { due: String, found: String },
    #[error(transparent)]
    Row(#[from] RowError),
    #[error("the row does not come after the one before it, or is there twice")]
    Order,
    #[error("the lines of {table} up to here have the SHA-256 {found}; the first line says {said}")]
    Digest {
        table: &'static str,
        said: Hash,
        found: Hash,
    },
    #[error("{0}")]
    Book(#[from] BookFault),
    #[error("the head is {found}; the first line says {said}", found = at(.found), said = at(.said))]
    Head { said: Head, found: Head },
    #[error("the file ends, and rows of {table} are missing")]
    Ends { table: &'static str },
    #[error("nothing is due any more, by the counts of the first line")]
    TooLong,
}

fn at(head: &Head) -> String {
    format!("{}:{}", head.seq, head.hash)
}

/// As it is written. Numbers that may not fit a double are strings.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeaderLine {
    at: String,
    broker: String,
    format: String,
    head: HeadText,
    tables: Vec<TableText>,
    v: u16,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct HeadText {
    hash: Hash,
    seq: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TableText {
    name: String,
    rows: String,
    sha256: Hash,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RowLine {
    row: Json,
    table: String,
}

impl Header {
    /// The line, with its line feed. Its length does not depend on the digests, so that it can be
    /// written over once they are known.
    ///
    /// # Errors
    /// None that a header could cause; serialization as such can fail.
    pub fn to_line(&self) -> Result<String, serde_json::Error> {
        let tables = BOOK_TABLES.iter().zip(&self.tables);
        canonical_line(&HeaderLine {
            at: canonical::time(self.at),
            broker: self.broker.to_string(),
            format: FORMAT.to_owned(),
            head: HeadText {
                hash: self.head.hash,
                seq: self.head.seq.to_string(),
            },
            tables: tables
                .map(|(table, sum)| TableText {
                    name: table.name.to_owned(),
                    rows: sum.rows.to_string(),
                    sha256: sum.sha256,
                })
                .collect(),
            v: VERSION,
        })
    }

    /// # Errors
    /// Any other line than [`Self::to_line`] gives.
    pub fn from_line(line: &[u8]) -> Result<Self, FileProblem> {
        let unreadable = |why: &dyn std::fmt::Display| FileProblem::Header(why.to_string());
        // A later version may have other fields; it is told first.
        let json: Json = serde_json::from_slice(line).map_err(|error| unreadable(&error))?;
        if json.get("format").and_then(Json::as_str) != Some(FORMAT) {
            return Err(unreadable(&format!("its format is not {FORMAT:?}")));
        }
        match json.get("v").and_then(Json::as_u64).map(u16::try_from) {
            Some(Ok(VERSION)) => {}
            Some(Ok(other)) => return Err(FileProblem::Version(other)),
            Some(Err(_)) | None => return Err(unreadable(&"it has no version")),
        }
        let read: HeaderLine = serde_json::from_value(json).map_err(|error| unreadable(&error))?;
        let names = read.tables.iter().map(|table| table.name.as_str());
        if !names.eq(BOOK_TABLES.iter().map(|table| table.name)) {
            return Err(unreadable(&"its tables are not those of a book"));
        }
        let number = |text: &str| text.parse::<u64>().map_err(|error| unreadable(&error));
        let tables = read.tables.iter().map(|table| {
            Ok(TableSum {
                rows: number(&table.rows)?,
                sha256: table.sha256,
            })
        });
        let at = DateTime::parse_from_rfc3339(&read.at).map_err(|error| unreadable(&error))?;
        let header = Self {
            broker: number(&read.broker)?,
            at: at.to_utc(),
            head: Head {
                seq: number(&read.head.seq)?,
                hash: read.head.hash,
            },
            tables: tables.collect::<Result<_, FileProblem>>()?,
        };
        match header.to_line() {
            Ok(written) if written.as_bytes() == line => Ok(header),
            Ok(_) | Err(_) => Err(FileProblem::NotCanonical),
        }
    }

    /// Rows of all tables.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.tables.iter().map(|table| table.rows).sum()
    }
}

/// A file that is being written: rows come in the order of [`BOOK_TABLES`], and of each in the
/// order in which they are read.
#[derive(Clone, Debug)]
pub struct Writing {
    header: Header,
    digests: Vec<Sha256>,
    check: BookCheck,
}

impl Writing {
    /// `rows` are the counts of the moment that is written.
    #[must_use]
    pub fn begin(broker: BrokerId, at: DateTime<Utc>, head: Head, rows: &[u64]) -> Self {
        let nothing = Hash([0; 32]);
        let tables = rows.iter().map(|rows| TableSum {
            rows: *rows,
            sha256: nothing,
        });
        Self {
            header: Header {
                broker,
                at,
                head,
                tables: tables.collect(),
            },
            digests: vec![Sha256::new(); BOOK_TABLES.len()],
            check: BookCheck::new(broker),
        }
    }

    /// The first line as it is for now, with no digest yet.
    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// The line of a row, which is checked on the way.
    ///
    /// # Errors
    /// A row that does not follow those before it.
    ///
    /// # Panics
    /// For a table that is not a book's.
    pub fn row(&mut self, table: &'static BookTable, row: &Row) -> Result<String, FileProblem> {
        let at = BOOK_TABLES
            .iter()
            .position(|known| known.name == table.name);
        let at = at.expect("a table of a book");
        self.check.put(table, row)?;
        let line = canonical_line(&RowLine {
            row: table.to_json(row),
            table: table.name.to_owned(),
        });
        let line = line.map_err(|error| FileProblem::Unreadable(error.to_string()))?;
        if line.len() > LINE_MAX {
            return Err(FileProblem::NotCanonical);
        }
        self.digests[at].update(line.as_bytes());
        Ok(line)
    }

    /// The first line as it is to be.
    ///
    /// # Errors
    /// Rows that do not belong together.
    pub fn finish(mut self) -> Result<Header, FileProblem> {
        let found = self.check.holds()?;
        let said = self.header.head;
        if found != said {
            return Err(FileProblem::Head { said, found });
        }
        for (table, digest) in self.header.tables.iter_mut().zip(self.digests) {
            table.sha256 = Hash(digest.finalize().into());
        }
        Ok(self.header)
    }
}

/// A file that is being read, line by line. Of each row it remembers sixteen bytes.
#[derive(Clone, Debug)]
pub struct Reading {
    header: Header,
    line: u64,
    /// The table whose rows are due, and how many of them have come.
    table: usize,
    rows: u64,
    digest: Sha256,
    last: Option<Place>,
    seen: HashSet<[u8; 16]>,
    check: BookCheck,
}

impl Reading {
    /// Takes the first line; `None` for a file without one.
    ///
    /// # Errors
    /// Anything that is not the first line of a book's file.
    pub fn begin(line: Option<&[u8]>) -> Result<Self, FileFault> {
        let header = line.ok_or(FileProblem::Empty).and_then(Header::from_line);
        let header = header.map_err(|what| FileFault { line: 1, what })?;
        let mut this = Self {
            check: BookCheck::new(header.broker),
            header,
            line: 1,
            table: 0,
            rows: 0,
            digest: Sha256::new(),
            last: None,
            seen: HashSet::new(),
        };
        this.close_tables().map_err(|what| this.at_fault(what))?;
        Ok(this)
    }

    #[must_use]
    pub const fn header(&self) -> &Header {
        &self.header
    }

    /// Takes the next line.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn line(&mut self, line: &[u8]) -> Result<(&'static BookTable, Row), FileFault> {
        self.line += 1;
        self.take(line).map_err(|what| self.at_fault(what))
    }

    fn take(&mut self, line: &[u8]) -> Result<(&'static BookTable, Row), FileProblem> {
        let Some(table) = BOOK_TABLES.get(self.table).copied() else {
            return Err(FileProblem::TooLong);
        };
        if line.len() > LINE_MAX {
            return Err(FileProblem::NotCanonical);
        }
        let read: RowLine = serde_json::from_slice(line)
            .map_err(|error| FileProblem::Unreadable(error.to_string()))?;
        match canonical_line(&read) {
            Ok(written) if written.as_bytes() == line => {}
            Ok(_) | Err(_) => return Err(FileProblem::NotCanonical),
        }
        if read.table != table.name {
            return Err(FileProblem::Table {
                due: table.name.to_owned(),
                found: read.table,
            });
        }
        let row = table.from_json(read.row)?;
        self.in_order(table, &row)?;
        self.check.put(table, &row)?;
        self.digest.update(line);
        self.rows += 1;
        self.close_tables()?;
        Ok((table, row))
    }

    /// Each row comes after the one before it, and nothing has the key of another: it would be
    /// written over it.
    fn in_order(&mut self, table: &'static BookTable, row: &Row) -> Result<(), FileProblem> {
        let place = table.place(row);
        if self
            .last
            .as_ref()
            .is_some_and(|last| !is_after(last, &place))
        {
            return Err(FileProblem::Order);
        }
        self.last = Some(place);
        let mut new = self.seen.insert(mark(table.name, &table.key_text(row)));
        if table == &TRANSACTION {
            new &= self.seen.insert(mark("step", &step_text(row)));
        }
        if new { Ok(()) } else { Err(FileProblem::Order) }
    }

    /// Goes on to the next table that has rows, past those that are complete.
    fn close_tables(&mut self) -> Result<(), FileProblem> {
        while let Some(sum) = self.header.tables.get(self.table) {
            if self.rows < sum.rows {
                return Ok(());
            }
            let found = Hash(std::mem::take(&mut self.digest).finalize().into());
            if found != sum.sha256 {
                return Err(FileProblem::Digest {
                    table: BOOK_TABLES[self.table].name,
                    said: sum.sha256,
                    found,
                });
            }
            self.table += 1;
            self.rows = 0;
            self.last = None;
        }
        Ok(())
    }

    /// Once there is no further line: whether the file is whole and its book holds.
    ///
    /// # Errors
    /// What is missing, or does not belong together.
    pub fn finish(&mut self) -> Result<&Header, FileFault> {
        self.line += 1;
        if let Some(table) = BOOK_TABLES.get(self.table) {
            return Err(self.at_fault(FileProblem::Ends { table: table.name }));
        }
        let found = self.check.holds();
        let found = found.map_err(|fault| self.at_fault(fault.into()))?;
        let said = self.header.head;
        if found != said {
            return Err(self.at_fault(FileProblem::Head { said, found }));
        }
        Ok(&self.header)
    }

    const fn at_fault(&self, what: FileProblem) -> FileFault {
        FileFault {
            line: self.line,
            what,
        }
    }
}

/// What the files of one book have in common with a row of it: a mark for its key.
fn mark(table: &str, key: &[u8]) -> [u8; 16] {
    let digest = Hash::of_bytes(&[table.as_bytes(), &[0], key].concat());
    let mut mark = [0; 16];
    mark.copy_from_slice(&digest.0[..16]);
    mark
}

/// What of an entry no other entry has: the operation, the step and the leg.
fn step_text(row: &Row) -> Vec<u8> {
    let columns = TRANSACTION.columns.iter().zip(&row.0);
    let named = columns.filter(|(column, _)| ["saga_id", "step", "leg"].contains(&column.name));
    let values: Vec<String> = named.map(|(_, value)| format!("{value:?}")).collect();
    values.join("/").into_bytes()
}

/// Whether a place comes after another, in the order of the databases.
fn is_after(last: &Place, place: &Place) -> bool {
    if last.change != place.change {
        return last.change < place.change;
    }
    let mut pairs = last.key.iter().zip(&place.key);
    pairs
        .find_map(|pair| match pair {
            (Value::Unsigned(a), Value::Unsigned(b)) if a != b => Some(a < b),
            (Value::Text(a), Value::Text(b)) if a != b => Some(a < b),
            (Value::Bytes(a), Value::Bytes(b)) if a != b => Some(a < b),
            _ => None,
        })
        .unwrap_or(false)
}

fn canonical_line<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    let mut line = serde_json_canonicalizer::to_string(value)?;
    line.push('\n');
    Ok(line)
}

/// The name under which the rows of a file are taken in: the same file for the same broker, the
/// same import.
#[must_use]
pub fn import_id(broker: BrokerId, file: Hash) -> Uuid {
    const IMPORT_NS: Uuid = Uuid::from_u128(0x6d1f_0c52_8b7e_4f3a_9d24_c5e8_71ab_306f);
    Uuid::new_v5(&IMPORT_NS, format!("{broker}\0{file}").as_bytes())
}
