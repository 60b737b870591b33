//! What there is to check of an entry by itself, without the chain that it stands in.

use std::str::FromStr;

use uuid::Uuid;

use super::super::plain::{PlainLine, Texts};
use super::super::{ExportedEntry, FORMAT, LINE_MAX};
use super::Problem;
use crate::domain::account::Side;
use crate::domain::canonical::{self, Hash};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::CurrencyCode;

/// The broker of whose book an exported line is.
///
/// # Errors
/// A line that is no exported entry.
pub fn broker_of(line: &[u8]) -> Result<BrokerId, Problem> {
    exact("broker", &ExportedEntry::from_line(line)?.entry.broker)
}

/// An entry by itself: all that can be said of it wherever it stands.
pub(super) struct Checked {
    pub(super) fields: Fields,
    /// The hash of what it says, and the one that it is said to have.
    pub(super) computed: Hash,
    pub(super) tx_hash: Hash,
    /// The digest of the free text beside it.
    pub(super) private: Option<Hash>,
}

impl Checked {
    pub(super) fn line(line: &[u8]) -> Result<Self, Problem> {
        if line.len() <= LINE_MAX
            && let Some(plain) = PlainLine::scan(line)
        {
            return Ok(Self {
                fields: Fields::read(&plain.texts)?,
                computed: Hash::of_bytes(plain.entry.as_bytes()),
                tx_hash: plain.tx_hash,
                private: plain.private,
            });
        }
        Self::exported(&ExportedEntry::from_line(line)?)
    }

    pub(super) fn exported(exported: &ExportedEntry) -> Result<Self, Problem> {
        Ok(Self {
            fields: Fields::read(&exported.entry.texts())?,
            computed: exported.entry.hash(),
            tx_hash: exported.tx_hash,
            private: exported.private.as_ref().map(Hash::of_json),
        })
    }
}

/// An entry's fields, each read back from the one way in which it may be written.
pub(super) struct Fields {
    pub(super) broker: BrokerId,
    pub(super) seq: u64,
    pub(super) leg: (Uuid, u16, u16),
    pub(super) account: AccountId,
    pub(super) side: Side,
    pub(super) amount: u64,
    pub(super) currency: CurrencyCode,
    pub(super) balance: i64,
    pub(super) reverses_seq: Option<u64>,
    pub(super) private_digest: Option<Hash>,
    pub(super) prev_hash: Hash,
}

impl Fields {
    fn read(entry: &Texts<'_>) -> Result<Self, Problem> {
        if entry.v != FORMAT {
            return Err(Problem::UnknownVersion { found: entry.v });
        }
        let odd = |field, found: &str| Problem::Field {
            field,
            found: found.to_owned(),
        };
        let digest = |field, text: &str| Hash::from_hex(text).ok_or_else(|| odd(field, text));
        digest("op_digest", entry.op_digest)?;
        if let Some(text) = entry.diverted_from {
            exact::<AccountId>("diverted_from", text)?;
        }
        time(entry.at)?;
        // What an entry is called may grow without a new version; it is a word all the same.
        for (field, text) in [("kind", entry.kind), ("subject", entry.subject)] {
            if text.is_empty() || !text.bytes().all(is_word) {
                return Err(odd(field, text));
            }
        }
        let amount = exact("amount", entry.amount)?;
        if amount == 0 {
            return Err(odd("amount", entry.amount));
        }
        Ok(Self {
            broker: exact("broker", entry.broker)?,
            seq: exact("seq", entry.seq)?,
            leg: (
                exact("saga", entry.saga)?,
                exact("step", entry.step)?,
                exact("leg", entry.leg)?,
            ),
            account: exact("account", entry.account)?,
            side: Side::parse(entry.side).ok_or_else(|| odd("side", entry.side))?,
            amount,
            currency: exact("currency", entry.currency)?,
            balance: exact("balance", entry.balance)?,
            reverses_seq: match entry.reverses_seq {
                Some(text) => Some(exact("reverses_seq", text)?),
                None => None,
            },
            private_digest: match entry.private_digest {
                Some(text) => Some(digest("private_digest", text)?),
                None => None,
            },
            prev_hash: digest("prev_hash", entry.prev_hash)?,
        })
    }
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':')
}

/// What is read of one text only: no leading zeros, signs or other case.
trait Exact: FromStr {
    fn is_written_so(text: &str) -> bool;
}

macro_rules! numbers {
    ($($number:ty),+) => {
        $(impl Exact for $number {
            fn is_written_so(text: &str) -> bool {
                match text.as_bytes() {
                    [b'0'] | [b'1'..=b'9', ..] | [b'-', b'1'..=b'9', ..] => true,
                    _ => false,
                }
            }
        })+
    };
}

numbers!(u16, u64, i64);

impl Exact for AccountId {
    fn is_written_so(text: &str) -> bool {
        let digits = text.strip_prefix(Self::PREFIX).unwrap_or(text);
        !digits.bytes().any(|byte| byte.is_ascii_uppercase())
    }
}

impl Exact for CurrencyCode {
    /// It is its text.
    fn is_written_so(_: &str) -> bool {
        true
    }
}

impl Exact for Uuid {
    fn is_written_so(text: &str) -> bool {
        text.len() == 36 && !text.bytes().any(|byte| byte.is_ascii_uppercase())
    }
}

fn exact<T: Exact>(field: &'static str, text: &str) -> Result<T, Problem> {
    let read = text.parse().ok().filter(|_| T::is_written_so(text));
    read.ok_or_else(|| Problem::Field {
        field,
        found: text.to_owned(),
    })
}

fn time(text: &str) -> Result<(), Problem> {
    match canonical::read_time(text) {
        Some(_) => Ok(()),
        None => Err(Problem::Field {
            field: "at",
            found: text.to_owned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fmt::Display;

    use proptest::prelude::*;

    use super::*;

    fn writes_itself<T: Exact + Display>(text: &str) -> Option<bool> {
        exact::<T>("a field", text)
            .ok()
            .map(|read| read.to_string() == text)
    }

    proptest! {
        #[test]
        fn what_is_read_writes_itself_just_so(
            text in prop_oneof![
                "[-+]?[0-9]{1,20}",
                "(AC-|ac-)?[0-9a-fA-F]{11,13}",
                "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-fA-F]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
                "[0-9a-f]{32}",
                "[A-Z0-9-]{1,17}",
            ],
            number in any::<i64>(),
            small in any::<u16>(),
            uuid in any::<u128>(),
        ) {
            for found in [
                writes_itself::<u16>(&text),
                writes_itself::<u64>(&text),
                writes_itself::<i64>(&text),
                writes_itself::<AccountId>(&text),
                writes_itself::<CurrencyCode>(&text),
                writes_itself::<Uuid>(&text),
            ] {
                prop_assert_ne!(found, Some(false), "{}", text);
            }
            prop_assert_eq!(writes_itself::<i64>(&number.to_string()), Some(true));
            prop_assert_eq!(writes_itself::<u16>(&small.to_string()), Some(true));
            prop_assert_eq!(writes_itself::<Uuid>(&Uuid::from_u128(uuid).to_string()), Some(true));
        }
    }
}
