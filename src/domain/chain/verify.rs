//! Whether a chain holds: recomputes a stream of entries and names the first bad one.
//!
//! Nothing here trusts the server, the database or the clock: an entry is what its canonical
//! form says, whoever stored it. What a chain alone can't show is that its end has been cut off
//! or that all of it has been rewritten; a head that the verifier knows from elsewhere shows both.

mod checked;
mod lines;

use std::collections::{BTreeMap, HashSet};
use std::fmt::Display;
use std::str::FromStr;

use foldhash::fast::RandomState;
use uuid::Uuid;

pub use self::checked::broker_of;
use self::checked::{Checked, Fields};
use super::{ExportedEntry, FORMAT, LineError, genesis};
use crate::domain::account::Side;
use crate::domain::canonical::Hash;
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::CurrencyCode;

/// The place of an entry in its chain: all that went before is fixed by it. Written `SEQ:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// 0 with the genesis hash before the first entry.
    pub seq: u64,
    pub hash: Hash,
}

/// The first thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq}: {problem}")]
pub struct Fault {
    /// The first bad seq: the one that was due at that place, whatever stands there.
    pub seq: u64,
    pub problem: Problem,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    #[error(transparent)]
    Line(#[from] LineError),
    #[error("format version {found} is unknown to this program, which knows {FORMAT}")]
    UnknownVersion { found: u16 },
    /// A field isn't written as the format says.
    #[error("{field} is {found:?}, which is not how it is written")]
    Field { field: &'static str, found: String },
    #[error("it is of the book of broker {found}, not {expected}")]
    WrongBroker { expected: BrokerId, found: BrokerId },
    /// Entries are missing, doubled or in another order.
    #[error("seq {found} stands in its place")]
    Gap { found: u64 },
    #[error("prev_hash is {found}, but what precedes has {expected}")]
    PrevHash { expected: Hash, found: Hash },
    #[error("tx_hash is {found}, but the entry's is {computed}")]
    TxHash { computed: Hash, found: Hash },
    /// The same leg of the same step has been booked before.
    #[error("saga {saga} has booked step {step}, leg {leg} before")]
    Repeated { saga: Uuid, step: u16, leg: u16 },
    #[error("it reverses {found}, which does not precede it")]
    Reverses { found: u64 },
    /// The account's balance isn't what its entries come to.
    #[error("the balance of {account} is said to be {found}, but its entries come to {computed}")]
    Balance {
        account: AccountId,
        computed: i128,
        found: i64,
    },
    #[error("{account} is an account in {expected}, not {found}")]
    Currency {
        account: AccountId,
        expected: CurrencyCode,
        found: CurrencyCode,
    },
    #[error("the free text beside it is not what private_digest says")]
    Private,
    /// The chain ends before an entry that is known to exist.
    #[error("the chain ends before it, but {known} is known to exist")]
    CutTail { known: u64 },
    /// The chain goes on where it is known to end.
    #[error("it follows {known}, where the chain is known to end")]
    BeyondHead { known: u64 },
    /// Every link holds, but this isn't the chain that was seen before: it has been rewritten.
    #[error("its hash is {found}, but {known} is known: the chain has been rewritten")]
    Rewritten { known: Hash, found: Hash },
    /// What is stored in its place is no entry at all.
    #[error("what is stored in its place can't be read: {0}")]
    Unreadable(String),
}

/// What has been found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    pub broker: BrokerId,
    pub entries: u64,
    pub head: Head,
    /// What each account's entries come to, in minor units; where the chain wasn't verified from
    /// genesis, of the accounts that occur.
    pub balances: BTreeMap<AccountId, (CurrencyCode, i64)>,
}

/// Takes the entries one after the other. After a fault there is nothing more to say.
#[derive(Clone, Debug)]
pub struct Verifier {
    broker: BrokerId,
    head: Head,
    /// Entries that are known from elsewhere.
    known: Vec<Head>,
    end: Option<Head>,
    from_genesis: bool,
    entries: u64,
    balances: BTreeMap<AccountId, (CurrencyCode, i64)>,
    /// `None` where the store's unique key sees to it that nothing is booked twice.
    booked: Option<HashSet<(Uuid, u16, u16), RandomState>>,
}

impl Verifier {
    /// Begins at genesis: the first entry must be seq 1.
    #[must_use]
    pub fn from_genesis(broker: BrokerId) -> Self {
        let genesis = Head {
            seq: 0,
            hash: genesis(broker),
        };
        Self {
            from_genesis: true,
            ..Self::after(broker, genesis)
        }
    }

    /// Begins after an entry that is known to hold. What the accounts had by then isn't known, so
    /// the balance of each is taken from the first of its entries.
    #[must_use]
    pub fn after(broker: BrokerId, head: Head) -> Self {
        Self {
            broker,
            head,
            known: Vec::new(),
            end: None,
            from_genesis: false,
            entries: 0,
            balances: BTreeMap::new(),
            booked: Some(HashSet::default()),
        }
    }

    /// Begins at genesis of a book in its database, whose unique key doesn't let anything be
    /// booked twice: memory grows with the accounts only, not with the entries.
    #[must_use]
    pub fn of_book(broker: BrokerId) -> Self {
        Self {
            booked: None,
            ..Self::from_genesis(broker)
        }
    }

    /// As [`Self::after`], of a book in its database: see [`Self::of_book`].
    #[must_use]
    pub fn of_book_after(broker: BrokerId, head: Head) -> Self {
        Self {
            booked: None,
            ..Self::after(broker, head)
        }
    }

    /// Makes the verifier insist on an entry that is known from elsewhere (a checkpoint, an
    /// earlier export, the counterparty), besides any before.
    #[must_use]
    pub fn expecting(mut self, known: Head) -> Self {
        self.known.push(known);
        self
    }

    /// Makes the verifier insist on the chain's ending there: what its book calls the head.
    #[must_use]
    pub fn ending_at(mut self, end: Head) -> Self {
        self.end = Some(end);
        self
    }

    /// The seq that is due.
    #[must_use]
    pub const fn due(&self) -> u64 {
        self.head.seq.saturating_add(1)
    }

    /// The last entry that holds.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// What an account's entries have come to so far, in minor units.
    #[must_use]
    pub fn balance(&self, account: AccountId) -> Option<i64> {
        self.balances.get(&account).map(|(_, balance)| *balance)
    }

    /// Takes the next line of an exported chain.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn line(&mut self, line: &[u8]) -> Result<(), Fault> {
        self.take(Checked::line(line))
    }

    /// Takes the next entry with what stands beside it. Free text that was erased is no fault.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn exported(&mut self, exported: &ExportedEntry) -> Result<(), Fault> {
        self.take(Checked::exported(exported))
    }

    fn take(&mut self, entry: Result<Checked, Problem>) -> Result<(), Fault> {
        let seq = self.due();
        let taken = entry.and_then(|entry| {
            self.link(&entry)?;
            self.book(&entry.fields)?;
            // The chain has the digest only, so that the text itself can be erased.
            if entry.private.is_some() && entry.private != entry.fields.private_digest {
                return Err(Problem::Private);
            }
            Ok(entry.tx_hash)
        });
        let hash = taken.map_err(|problem| Fault { seq, problem })?;
        self.head = Head { seq, hash };
        self.entries += 1;
        Ok(())
    }

    /// Says that there are no more entries.
    ///
    /// # Errors
    /// [`Problem::CutTail`] where one that is known is missing; [`Problem::Rewritten`] for an
    /// empty chain whose book calls another hash the genesis.
    pub fn finish(self) -> Result<Verified, Fault> {
        for known in self.known.iter().chain(&self.end) {
            if known.seq > self.head.seq {
                return Err(Fault {
                    seq: self.due(),
                    problem: Problem::CutTail { known: known.seq },
                });
            }
        }
        if let Some(end) = self.end
            && end.hash != self.head.hash
        {
            return Err(Fault {
                seq: end.seq,
                problem: Problem::Rewritten {
                    known: end.hash,
                    found: self.head.hash,
                },
            });
        }
        Ok(Verified {
            broker: self.broker,
            entries: self.entries,
            head: self.head,
            balances: self.balances,
        })
    }

    /// The entry's place: whose chain, where in it, and whether the hashes agree.
    fn link(&self, entry: &Checked) -> Result<(), Problem> {
        let Checked {
            fields,
            computed,
            tx_hash,
            ..
        } = entry;
        if fields.broker != self.broker {
            return Err(Problem::WrongBroker {
                expected: self.broker,
                found: fields.broker,
            });
        }
        if fields.seq != self.due() {
            return Err(Problem::Gap { found: fields.seq });
        }
        if let Some(end) = self.end
            && fields.seq > end.seq
        {
            return Err(Problem::BeyondHead { known: end.seq });
        }
        if fields.prev_hash != self.head.hash {
            return Err(Problem::PrevHash {
                expected: self.head.hash,
                found: fields.prev_hash,
            });
        }
        if computed != tx_hash {
            return Err(Problem::TxHash {
                computed: *computed,
                found: *tx_hash,
            });
        }
        for known in self.known.iter().chain(&self.end) {
            if known.seq == fields.seq && known.hash != *computed {
                return Err(Problem::Rewritten {
                    known: known.hash,
                    found: *computed,
                });
            }
        }
        Ok(())
    }

    /// The entry's effect: once, and on the balance that it says.
    fn book(&mut self, fields: &Fields) -> Result<(), Problem> {
        let (saga, step, leg) = fields.leg;
        if let Some(booked) = &mut self.booked
            && !booked.insert(fields.leg)
        {
            return Err(Problem::Repeated { saga, step, leg });
        }
        if let Some(found) = fields.reverses_seq
            && !(1..fields.seq).contains(&found)
        {
            return Err(Problem::Reverses { found });
        }
        let account = fields.account;
        let before = match self.balances.get(&account) {
            Some((currency, _)) if *currency != fields.currency => {
                return Err(Problem::Currency {
                    account,
                    expected: currency.clone(),
                    found: fields.currency.clone(),
                });
            }
            Some((_, balance)) => Some(*balance),
            None if self.from_genesis => Some(0),
            None => None,
        };
        if let Some(before) = before {
            let computed = match fields.side {
                Side::Debit => i128::from(before) - i128::from(fields.amount),
                Side::Credit => i128::from(before) + i128::from(fields.amount),
            };
            if computed != i128::from(fields.balance) {
                return Err(Problem::Balance {
                    account,
                    computed,
                    found: fields.balance,
                });
            }
        }
        if let Some((_, balance)) = self.balances.get_mut(&account) {
            *balance = fields.balance;
        } else {
            let stated = (fields.currency.clone(), fields.balance);
            self.balances.insert(account, stated);
        }
        Ok(())
    }
}

impl Display for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

/// A text is no head.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a head is SEQ:HASH, the hash being 64 lower-case hex digits")]
pub struct HeadError;

impl FromStr for Head {
    type Err = HeadError;

    fn from_str(text: &str) -> Result<Self, HeadError> {
        let (seq, hash) = text.split_once(':').ok_or(HeadError)?;
        Ok(Self {
            seq: seq.parse().map_err(|_| HeadError)?,
            hash: Hash::from_hex(hash).ok_or(HeadError)?,
        })
    }
}

impl Problem {
    /// A word for programs.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Line(_) => "line",
            Self::UnknownVersion { .. } => "unknown_version",
            Self::Field { .. } => "field",
            Self::WrongBroker { .. } => "wrong_broker",
            Self::Gap { .. } => "gap",
            Self::PrevHash { .. } => "prev_hash",
            Self::TxHash { .. } => "tx_hash",
            Self::Repeated { .. } => "repeated",
            Self::Reverses { .. } => "reverses",
            Self::Balance { .. } => "balance",
            Self::Currency { .. } => "currency",
            Self::Private => "private",
            Self::CutTail { .. } => "cut_tail",
            Self::BeyondHead { .. } => "beyond_head",
            Self::Rewritten { .. } => "rewritten",
            Self::Unreadable(_) => "unreadable",
        }
    }
}

#[cfg(test)]
mod tests;
