//! Whether the rows of a book belong together: taken one by one, as a copy or an export is made,
//! and answered at any moment without going through them again.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::account::Side;
use super::book_table::{
    ACCOUNT, BookTable, CHAIN_HEAD, CHANGE, RESERVATION, Row, TRANSACTION, Value,
};
use super::canonical::{self, Hash};
use super::chain::{CanonicalEntry, ExportedEntry, Fault, Head, Verifier};
use super::ids::{AccountId, BrokerId};

/// What is wrong with a book.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BookFault {
    #[error("the chain does not hold: {0}")]
    Chain(#[from] Fault),
    #[error("the head says {said}, but the last entry is {last}", said = at(.said), last = at(.last))]
    Head { said: Head, last: Head },
    #[error("there is no head")]
    NoHead,
    /// What is written next would take a number that is taken.
    #[error("the head's {counter} is {said}, but a row has {found}")]
    Counter {
        counter: &'static str,
        said: u64,
        found: u64,
    },
    #[error(
        "{account} has a balance of {balance} in minor units, but its entries come to {entries}"
    )]
    Balance {
        account: AccountId,
        balance: i64,
        entries: i64,
    },
    #[error("{account} has entries or reservations, but there is no such account")]
    NoAccount { account: AccountId },
    #[error(
        "{account} has {reserved} reserved in minor units, but its open promises come to {held}"
    )]
    Reserved {
        account: AccountId,
        reserved: i64,
        held: i64,
    },
    /// The row has not the columns that its table has.
    #[error("a row of {table} can't be read")]
    Unreadable { table: &'static str },
}

fn at(head: &Head) -> String {
    format!("{}:{}", head.seq, head.hash)
}

/// Looks at a book row by row. Rows of a table come in the order in which they are read; a row
/// that has changed comes again.
#[derive(Clone, Debug)]
pub struct BookCheck {
    broker: BrokerId,
    chain: Verifier,
    head: Option<Head>,
    /// The head's `change_seq` and `feed_position`.
    counters: [u64; 2],
    /// The highest of each in a row.
    highest: [u64; 2],
    accounts: BTreeMap<u64, Account>,
    /// What each reservation that is held holds, and of which account.
    held: BTreeMap<(Vec<u8>, u64), (u64, i64)>,
    /// Accounts of which something came since the last answer.
    touched: BTreeSet<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// As its row says; `None` where there is no row.
    stated: Option<(i64, i64)>,
    held: i64,
}

impl BookCheck {
    #[must_use]
    pub fn new(broker: BrokerId) -> Self {
        Self {
            broker,
            chain: Verifier::of_book(broker),
            head: None,
            counters: [0; 2],
            highest: [0; 2],
            accounts: BTreeMap::new(),
            held: BTreeMap::new(),
            touched: BTreeSet::new(),
        }
    }

    /// The last entry that holds.
    #[must_use]
    pub const fn chain_head(&self) -> Head {
        self.chain.head()
    }

    /// Takes a row.
    ///
    /// # Errors
    /// An entry that does not follow, a row that can't be read.
    pub fn put(&mut self, table: &BookTable, row: &Row) -> Result<(), BookFault> {
        let unreadable = BookFault::Unreadable { table: table.name };
        let read = Reader { table, row };
        let change = read.unsigned(CHANGE).unwrap_or(0);
        let position = read.unsigned("position").unwrap_or(0);
        self.highest[0] = self.highest[0].max(change);
        self.highest[1] = self.highest[1].max(position);
        if table == &TRANSACTION {
            let exported = read.entry(self.broker).ok_or(unreadable)?;
            let account = read.unsigned("account_id");
            self.chain.exported(&exported)?;
            self.touched.extend(account);
            return Ok(());
        }
        if table == &CHAIN_HEAD {
            let head = || {
                Some(Head {
                    seq: read.unsigned("seq")?,
                    hash: read.hash("tx_hash")?,
                })
            };
            let counters = read.unsigned(CHANGE).zip(read.unsigned("feed_position"));
            let ((change, feed), head) = counters.zip(head()).ok_or(unreadable)?;
            self.counters = [change, feed];
            self.head = Some(head);
            return Ok(());
        }
        if table == &ACCOUNT {
            let stated = read.signed("balance").zip(read.signed("reserved"));
            let (id, stated) = read.unsigned("account_id").zip(stated).ok_or(unreadable)?;
            self.accounts.entry(id).or_default().stated = Some(stated);
            self.touched.insert(id);
            return Ok(());
        }
        if table == &RESERVATION {
            return self.reservation(&read).ok_or(unreadable);
        }
        Ok(())
    }

    fn reservation(&mut self, read: &Reader<'_>) -> Option<()> {
        let key = (read.bytes("saga_id")?.to_vec(), read.unsigned("leg")?);
        let account = read.unsigned("account_id")?;
        if let Some((account, amount)) = self.held.remove(&key) {
            self.accounts.entry(account).or_default().held -= amount;
            self.touched.insert(account);
        }
        if read.text("state")? == "held" {
            let amount = i64::try_from(read.unsigned("amount")?).ok()?;
            self.held.insert(key, (account, amount));
            self.accounts.entry(account).or_default().held += amount;
            self.touched.insert(account);
        }
        Some(())
    }

    /// Whether all that came belongs together: the head is the last entry, and each account has
    /// the balance that its entries come to and the reserved amount of its open promises. Looks
    /// at what came since the last answer only, so it may be asked often.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn holds(&mut self) -> Result<Head, BookFault> {
        let last = self.chain.head();
        let said = self.head.ok_or(BookFault::NoHead)?;
        if said != last {
            return Err(BookFault::Head { said, last });
        }
        for (at, counter) in [CHANGE, "feed_position"].into_iter().enumerate() {
            let (said, found) = (self.counters[at], self.highest[at]);
            if said < found {
                return Err(BookFault::Counter {
                    counter,
                    said,
                    found,
                });
            }
        }
        while let Some(id) = self.touched.first().copied() {
            let account = AccountId::from_bits(id);
            let known = self.accounts.get(&id).copied().unwrap_or_default();
            let (balance, reserved) = known.stated.ok_or(BookFault::NoAccount { account })?;
            let entries = self.chain.balance(account).unwrap_or(0);
            if balance != entries {
                return Err(BookFault::Balance {
                    account,
                    balance,
                    entries,
                });
            }
            if reserved != known.held {
                let held = known.held;
                return Err(BookFault::Reserved {
                    account,
                    reserved,
                    held,
                });
            }
            self.touched.pop_first();
        }
        Ok(last)
    }
}

/// A value is of another kind than its column.
struct OtherKind;

/// A row's values by the names of their columns.
struct Reader<'a> {
    table: &'a BookTable,
    row: &'a Row,
}

impl Reader<'_> {
    fn value(&self, name: &str) -> Option<&Value> {
        let mut columns = self.table.columns.iter();
        let at = columns.position(|column| column.name == name)?;
        self.row.0.get(at)
    }

    fn unsigned(&self, name: &str) -> Option<u64> {
        match self.value(name)? {
            Value::Unsigned(number) => Some(*number),
            _ => None,
        }
    }

    fn signed(&self, name: &str) -> Option<i64> {
        match self.value(name)? {
            Value::Signed(number) => Some(*number),
            _ => None,
        }
    }

    fn text(&self, name: &str) -> Option<&str> {
        match self.value(name)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    fn bytes(&self, name: &str) -> Option<&[u8]> {
        match self.value(name)? {
            Value::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn hash(&self, name: &str) -> Option<Hash> {
        self.bytes(name)?.try_into().ok().map(Hash)
    }

    /// A value that may be missing.
    fn maybe<T>(
        &self,
        name: &str,
        read: impl Fn(&Self, &str) -> Option<T>,
    ) -> Result<Option<T>, OtherKind> {
        match self.value(name) {
            Some(Value::Null) => Ok(None),
            _ => read(self, name).map(Some).ok_or(OtherKind),
        }
    }

    /// An entry of the chain, as it is exported.
    fn entry(&self, broker: BrokerId) -> Option<ExportedEntry> {
        let number = |name| Some(self.unsigned(name)?.to_string());
        let account = |bits| AccountId::from_bits(bits).to_string();
        let side = Side::parse(self.text("side")?)?;
        let at = match self.value("booked_at")? {
            Value::Time(at) => canonical::time(*at),
            _ => return None,
        };
        let private = match self.value("private")? {
            Value::Null => None,
            Value::Json(json) => Some(json.clone()),
            _ => return None,
        };
        let optional = |name| self.maybe(name, Self::unsigned).ok();
        let entry = CanonicalEntry {
            account: account(self.unsigned("account_id")?),
            amount: number("amount")?,
            at,
            balance: self.signed("balance")?.to_string(),
            broker: broker.to_string(),
            currency: self.text("currency_code")?.to_owned(),
            diverted_from: optional("diverted_from")?.map(account),
            kind: self.text("kind")?.to_owned(),
            leg: number("leg")?,
            op_digest: self.hash("op_digest")?.to_hex(),
            prev_hash: self.hash("prev_hash")?.to_hex(),
            private_digest: (self.maybe("private_digest", Self::hash).ok()?).map(Hash::to_hex),
            reverses_seq: optional("reverses_seq")?.map(|seq| seq.to_string()),
            saga: Uuid::from_slice(self.bytes("saga_id")?).ok()?.to_string(),
            seq: number("seq")?,
            side: side.as_str().to_owned(),
            step: number("step")?,
            subject: self.text("subject")?.to_owned(),
            v: self.unsigned("v")?.try_into().ok()?,
        };
        Some(ExportedEntry {
            entry,
            private,
            tx_hash: self.hash("tx_hash")?,
        })
    }
}
