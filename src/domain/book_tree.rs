//! A Merkle root over every row of a book, kept up to date row by row while the book is copied.
//!
//! The root of a book is that of a tree (RFC 6962) whose leaves are the book's tables in the order
//! of [`BOOK_TABLES`], each the canonical JSON of `[name, rows, root]`. The root of a table that is
//! only appended to is that of a tree over its rows in the order of their changes and keys. A row
//! of one that changes is in one of 4,096 buckets, by the first twelve bits of the SHA-256 of its
//! key's canonical JSON; a bucket's root is that of a tree over its rows in the order of that
//! JSON, and the table's of one over its buckets. So a row that changes costs its bucket, not the
//! table.

use std::collections::BTreeMap;

use super::book_table::{BOOK_TABLES, BookTable, Row};
use super::canonical::Hash;
use super::merkle::{self, Growing};

const BUCKETS: usize = 4096;

/// The tree of a book, as far as it has been read.
#[derive(Clone, Debug)]
pub struct BookTree {
    tables: Vec<TableTree>,
}

/// What a tree comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookRoot {
    pub root: Hash,
    /// Rows by table, in the order of [`BOOK_TABLES`].
    pub rows: Vec<(&'static str, u64)>,
}

impl BookRoot {
    /// Rows of all tables.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.rows.iter().map(|(_, rows)| rows).sum()
    }
}

#[derive(Clone, Debug)]
enum TableTree {
    Appended(Growing),
    Changing(Vec<Bucket>),
}

#[derive(Clone, Debug, Default)]
struct Bucket {
    leaves: BTreeMap<Vec<u8>, Hash>,
    /// Of the leaves, where none has changed since.
    root: Option<Hash>,
}

impl Default for BookTree {
    fn default() -> Self {
        let tree = |table: &&BookTable| {
            if table.mutable {
                TableTree::Changing(vec![Bucket::default(); BUCKETS])
            } else {
                TableTree::Appended(Growing::default())
            }
        };
        Self {
            tables: BOOK_TABLES.iter().map(tree).collect(),
        }
    }
}

impl BookTree {
    /// Takes a row: the next one of a table that is appended to, a new or changed one of another.
    ///
    /// # Panics
    /// For a table that is not a book's.
    pub fn put(&mut self, table: &'static BookTable, row: &Row) {
        let at = BOOK_TABLES
            .iter()
            .position(|known| known.name == table.name);
        let at = at.expect("a table of a book");
        match &mut self.tables[at] {
            TableTree::Appended(tree) => tree.push(table.leaf(row)),
            TableTree::Changing(buckets) => {
                let key = table.key_text(row);
                let digest = Hash::of_bytes(&key).0;
                let bucket = usize::from(u16::from_be_bytes([digest[0], digest[1]]) >> 4);
                let bucket = &mut buckets[bucket];
                bucket.leaves.insert(key, table.leaf(row));
                bucket.root = None;
            }
        }
    }

    /// # Panics
    /// Never: names, counts and hashes can be JSON.
    pub fn root(&mut self) -> BookRoot {
        let mut all = Growing::default();
        let mut rows = Vec::with_capacity(self.tables.len());
        for (table, tree) in BOOK_TABLES.iter().zip(&mut self.tables) {
            let (count, root) = match tree {
                TableTree::Appended(tree) => (tree.size(), tree.root()),
                TableTree::Changing(buckets) => {
                    let count: usize = buckets.iter().map(|bucket| bucket.leaves.len()).sum();
                    let roots = buckets.iter_mut().map(Bucket::root);
                    (count as u64, roots.collect::<Growing>().root())
                }
            };
            let leaf = serde_json_canonicalizer::to_vec(&(table.name, count.to_string(), root))
                .expect("plain JSON");
            all.push(merkle::leaf(&leaf));
            rows.push((table.name, count));
        }
        BookRoot {
            root: all.root(),
            rows,
        }
    }
}

impl Bucket {
    fn root(&mut self) -> Hash {
        *self
            .root
            .get_or_insert_with(|| self.leaves.values().copied().collect::<Growing>().root())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::book_table::{FEED_EVENT, RESERVATION, Value};

    fn reservation(saga: u8, state: &str) -> Row {
        let at = Value::Time("2026-01-31T09:30:00Z".parse().unwrap());
        Row(vec![
            Value::Bytes(vec![saga; 16]),
            Value::Unsigned(0),
            Value::Unsigned(5),
            Value::Text("NR-000000000001".into()),
            Value::Unsigned(100),
            Value::Text(state.into()),
            at.clone(),
            at,
            Value::Unsigned(1),
        ])
    }

    fn event(position: u64) -> Row {
        Row(vec![
            Value::Unsigned(position),
            Value::Text("account.opened".into()),
            Value::Text("AC-1".into()),
            Value::Json(serde_json::json!({})),
            Value::Time("2026-01-31T09:30:00Z".parse().unwrap()),
        ])
    }

    #[test]
    fn the_order_in_which_changing_rows_come_does_not_matter() {
        let (mut one, mut other) = (BookTree::default(), BookTree::default());
        for saga in 0..50 {
            one.put(&RESERVATION, &reservation(saga, "held"));
        }
        one.put(&RESERVATION, &reservation(7, "consumed"));
        for saga in (0..50).rev() {
            let state = if saga == 7 { "consumed" } else { "held" };
            other.put(&RESERVATION, &reservation(saga, state));
            // What has been asked between does not matter either.
            other.root();
        }
        assert_eq!(one.root(), other.root());
        assert_eq!(one.root().total(), 50);
    }

    #[test]
    fn every_row_is_in_the_root() {
        let mut tree = BookTree::default();
        let mut seen = std::collections::BTreeSet::from([tree.root().root]);
        for n in 0..20 {
            tree.put(&RESERVATION, &reservation(n, "held"));
            assert!(seen.insert(tree.root().root));
            tree.put(&FEED_EVENT, &event(u64::from(n) + 1));
            assert!(seen.insert(tree.root().root));
        }
        tree.put(&RESERVATION, &reservation(3, "released"));
        assert!(seen.insert(tree.root().root));
    }
}
