//! The log of chain heads and its checkpoints (C2SP tlog-checkpoint): what a leaf is, what a
//! checkpoint says, and what contradicts a leaf.
//!
//! A leaf says that a chain had a head: a broker's book, or the events of a request. So whoever
//! has a checkpoint sees whether the chain still has that entry, with that hash. The first leaf of
//! a log that follows another names the last checkpoint of the one before.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::canonical::{self, Hash};
use super::chain::Head;
use super::ids::{BrokerId, RequestId};
use super::merkle;
use super::note::{NAME_MAX, NoteError, NoteKey};
use super::words::words;

/// The version of the leaf's format that this program writes.
pub const FORMAT: u16 = 1;

/// Longest text of a checkpoint, in bytes.
pub const CHECKPOINT_MAX: usize = 4096;

words!(
    /// Whose head a leaf has.
    LeafKind {
        /// A broker's book.
        Book = "book",
        /// A broker's book at an entry that a request's events name, whether it was the head or not.
        Entry = "entry",
        /// The events of a request or an order.
        Request = "request",
        /// The log before: its origin, size and root.
        Log = "log",
    }
);

/// One leaf of the log: everything that its hash covers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leaf {
    pub v: u16,
    pub kind: LeafKind,
    /// The broker, the request, or the origin of the log before.
    pub id: String,
    /// Of the last entry or event; of a log, its size.
    pub seq: u64,
    /// Of the last entry or event; of a log, its root.
    pub hash: Hash,
    /// When it was put into the log.
    pub at: DateTime<Utc>,
}

/// The form that is hashed and given out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CanonicalLeaf {
    #[schema(example = "2026-01-01T10:00:00.250000Z")]
    pub at: String,
    /// 64 hex digits.
    pub hash: String,
    /// A broker's number, `NR-…` or `OR-…`, or the origin of the log before.
    pub id: String,
    /// `book`, `entry`, `request`, `log`
    pub kind: String,
    #[schema(example = "42")]
    pub seq: String,
    pub v: u16,
}

impl CanonicalLeaf {
    /// The hash of it as a leaf of the tree.
    ///
    /// # Panics
    /// Never: a leaf is plain JSON.
    #[must_use]
    pub fn hash_in_tree(&self) -> Hash {
        let text = serde_json_canonicalizer::to_vec(self);
        merkle::leaf(&text.expect("a leaf is plain JSON"))
    }
}

impl Leaf {
    #[must_use]
    pub fn of_book(broker: BrokerId, head: Head, at: DateTime<Utc>) -> Self {
        Self::of(LeafKind::Book, broker.to_string(), head, at)
    }

    #[must_use]
    pub fn of_request(request: RequestId, head: Head, at: DateTime<Utc>) -> Self {
        Self::of(LeafKind::Request, request.to_string(), head, at)
    }

    /// An entry that a request's events say was booked.
    #[must_use]
    pub fn of_entry(broker: BrokerId, entry: Head, at: DateTime<Utc>) -> Self {
        Self::of(LeafKind::Entry, broker.to_string(), entry, at)
    }

    /// The first leaf of a log that follows another.
    #[must_use]
    pub fn of_log(before: &Checkpoint, at: DateTime<Utc>) -> Self {
        let head = Head {
            seq: before.size,
            hash: before.root,
        };
        Self::of(LeafKind::Log, before.origin.clone(), head, at)
    }

    const fn of(kind: LeafKind, id: String, head: Head, at: DateTime<Utc>) -> Self {
        Self {
            v: FORMAT,
            kind,
            id,
            seq: head.seq,
            hash: head.hash,
            at,
        }
    }

    #[must_use]
    pub fn canonical(&self) -> CanonicalLeaf {
        CanonicalLeaf {
            at: canonical::time(self.at),
            hash: self.hash.to_hex(),
            id: self.id.clone(),
            kind: self.kind.as_str().to_owned(),
            seq: self.seq.to_string(),
            v: self.v,
        }
    }

    /// The hash of it as a leaf of the tree.
    #[must_use]
    pub fn hash_in_tree(&self) -> Hash {
        self.canonical().hash_in_tree()
    }

    /// Whether a chain is another one than that whose head this leaf has. `found` is the hash of
    /// the chain's entry of the leaf's seq, which a chain that only grew still has.
    #[must_use]
    pub fn contradicts(&self, found: Option<Hash>) -> bool {
        found != Some(self.hash)
    }
}

/// What is no checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CheckpointError {
    #[error("a checkpoint has at most {CHECKPOINT_MAX} bytes")]
    TooLong,
    #[error("the first line of a checkpoint is its log's origin")]
    Origin,
    #[error("the second line of a checkpoint is its size, a decimal number")]
    Size,
    #[error("the third line of a checkpoint is its root, 32 bytes as base64")]
    Root,
    #[error(transparent)]
    Note(#[from] NoteError),
}

/// The state of a log: the text that is signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The log's name, unique in the world.
    pub origin: String,
    /// How many leaves there are.
    pub size: u64,
    pub root: Hash,
}

impl Checkpoint {
    /// Reads the text of a note. Further lines are allowed, and ignored.
    ///
    /// # Errors
    /// See [`CheckpointError`].
    pub fn parse(text: &str) -> Result<Self, CheckpointError> {
        if text.len() > CHECKPOINT_MAX {
            return Err(CheckpointError::TooLong);
        }
        let mut lines = text.split('\n');
        let origin = lines.next().unwrap_or_default();
        if !is_origin(origin) {
            return Err(CheckpointError::Origin);
        }
        let size = lines.next().unwrap_or_default();
        let size = decimal(size).ok_or(CheckpointError::Size)?;
        let root = STANDARD.decode(lines.next().unwrap_or_default());
        let root = root.ok().and_then(|bytes| bytes.try_into().ok());
        let root = Hash(root.ok_or(CheckpointError::Root)?);
        // The line of the root has ended.
        if lines.next().is_none() {
            return Err(CheckpointError::Root);
        }
        Ok(Self {
            origin: origin.to_owned(),
            size,
            root,
        })
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = STANDARD.encode(self.root.0);
        write!(f, "{}\n{}\n{root}\n", self.origin, self.size)
    }
}

/// A number without sign and leading zeros.
fn decimal(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

/// Whether a text can name a log: it is the name of the log's keys as well.
#[must_use]
pub fn is_origin(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'+';
    (1..=ORIGIN_MAX).contains(&text.len()) && text.bytes().all(plain)
}

/// Longest origin, in bytes: the number of a further log may follow.
pub const ORIGIN_MAX: usize = NAME_MAX - 80;

/// The origin of a network's log: the first has the name itself, each further one its number too.
#[must_use]
pub fn origin_of(name: &str, log: u32) -> String {
    match log {
        0 | 1 => name.to_owned(),
        further => format!("{name}/{further}"),
    }
}

/// What is signed when a new log begins: for people, and for programs line by line.
#[must_use]
pub fn beginning(
    before: &Checkpoint,
    origin: &str,
    reason: &str,
    keys: &[NoteKey],
    at: DateTime<Utc>,
) -> String {
    let root = STANDARD.encode(before.root.0);
    let (old, size, at) = (&before.origin, before.size, canonical::time(at));
    let keys: Vec<String> = keys.iter().map(|key| format!("key {key}\n")).collect();
    let keys = keys.concat();
    format!(
        "settlenet new log v1\nold {old}\nsize {size}\nroot {root}\nnew {origin}\nat {at}\n\
         {keys}reason {reason}\n"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_form_of_a_checkpoint() {
        let text = "log.example/brokers\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n";
        let read = Checkpoint::parse(text).unwrap();
        assert_eq!((read.size, read.to_string().as_str()), (20_852_163, text));
        let longer = format!("{text}an extension\n");
        assert_eq!(Checkpoint::parse(&longer), Ok(read));
        for (from, to, error) in [
            ("log.example", "log example", CheckpointError::Origin),
            ("20852163", "020852163", CheckpointError::Size),
            ("20852163", "+20852163", CheckpointError::Size),
            ("20852163", "99999999999999999999", CheckpointError::Size),
            ("CsUY", "Cs", CheckpointError::Root),
            ("=\n", "=", CheckpointError::Root),
        ] {
            assert_eq!(Checkpoint::parse(&text.replace(from, to)), Err(error));
        }
    }

    /// The bytes are a promise to verifiers in other languages: this text may never change.
    #[test]
    fn the_form_of_a_leaf_is_fixed() {
        let head = Head {
            seq: 3,
            hash: Hash([0xab; 32]),
        };
        let at = DateTime::from_timestamp_micros(1_767_225_600_000_001).unwrap();
        let leaf = Leaf::of_book(1, head, at);
        let text = serde_json_canonicalizer::to_string(&leaf.canonical()).unwrap();
        let hash = "ab".repeat(32);
        assert_eq!(
            text,
            format!(
                r#"{{"at":"2026-01-01T00:00:00.000001Z","hash":"{hash}","id":"1","kind":"book","seq":"3","v":1}}"#
            )
        );
        assert_eq!(leaf.hash_in_tree(), merkle::leaf(text.as_bytes()));
    }

    #[test]
    fn a_chain_that_only_grew_contradicts_nothing() {
        let head = |byte| Head {
            seq: 3,
            hash: Hash([byte; 32]),
        };
        let leaf = Leaf::of_book(1, head(1), DateTime::UNIX_EPOCH);
        assert!(!leaf.contradicts(Some(Hash([1; 32]))));
        assert!(leaf.contradicts(Some(Hash([2; 32]))));
        assert!(leaf.contradicts(None), "it was cut off");
    }

    proptest! {
        #[test]
        fn no_text_makes_a_reader_panic(text in ".{0,200}") {
            let _ = Checkpoint::parse(&text);
        }
    }
}
