//! What the simulator knows: all of it follows from the entries of its record, but how often it was
//! asked about a payment.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::faults::number;
use crate::domain::payment::PspName;

/// A line of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "entry", rename_all = "snake_case")]
pub(super) enum Entry {
    Paid(Payment),
    /// It was asked to pay, and will not.
    Refused {
        provider: PspName,
        uid: String,
        code: String,
        /// So often it says first that it is working on it.
        pending_asks: u32,
    },
    Account(Account),
    Quote(Quote),
    Transfer(Transfer),
    /// What was paid has come back.
    Bounced {
        transfer: u64,
    },
    Code(Code),
}

/// Money that has moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Payment {
    pub(super) provider: PspName,
    pub(super) uid: String,
    /// As the client had called it.
    pub(super) intent: String,
    pub(super) response_id: String,
    pub(super) currency: String,
    /// In major units, as it was stated.
    pub(super) amount: String,
    /// What the provider charges us, in major units.
    pub(super) fee: String,
    pub(super) paid_at: DateTime<Utc>,
    /// So often it is unknown to who asks, and after that so often it is said to be under way.
    pub(super) unknown_asks: u32,
    pub(super) pending_asks: u32,
}

/// WISE: whom it can pay.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Account {
    pub(super) id: u64,
    pub(super) holder: String,
    pub(super) iban: String,
    pub(super) currency: String,
}

/// WISE: what it offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Quote {
    pub(super) id: String,
    pub(super) currency: String,
    pub(super) amount: String,
    pub(super) expires_at: DateTime<Utc>,
}

/// WISE: what it is to pay once it is funded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Transfer {
    pub(super) id: u64,
    pub(super) uid: String,
    pub(super) intent: String,
    pub(super) account: u64,
    pub(super) quote: String,
    pub(super) currency: String,
    pub(super) amount: String,
    pub(super) created_at: DateTime<Utc>,
    pub(super) unknown_asks: u32,
}

/// QP: what somebody may scan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Code {
    pub(super) uid: String,
    pub(super) intent: String,
    pub(super) qr_ref: String,
    pub(super) payload: String,
    pub(super) currency: String,
    pub(super) amount: String,
    pub(super) expires_at: DateTime<Utc>,
}

/// A refusal that was given.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: String,
    pub(super) pending_asks: u32,
}

type Key = (PspName, String);

#[derive(Default)]
pub(super) struct Book {
    /// In the order of payment.
    pub(super) payments: Vec<Payment>,
    by_uid: HashMap<Key, Vec<usize>>,
    refused: HashMap<Key, Refusal>,
    pub(super) accounts: HashMap<u64, Account>,
    pub(super) quotes: HashMap<String, Quote>,
    /// In the order of their making.
    transfers: Vec<Transfer>,
    transfer_at: HashMap<u64, usize>,
    bounced: BTreeMap<u64, usize>,
    codes: Vec<Code>,
    /// By uid, reference and intent.
    code_at: HashMap<String, usize>,
    asks: HashMap<(&'static str, String), u32>,
}

impl Book {
    pub(super) fn apply(&mut self, entry: Entry) {
        match entry {
            Entry::Paid(payment) => {
                let key = (payment.provider, payment.uid.clone());
                self.by_uid
                    .entry(key)
                    .or_default()
                    .push(self.payments.len());
                self.payments.push(payment);
            }
            Entry::Refused {
                provider,
                uid,
                code,
                pending_asks,
            } => {
                let refusal = Refusal { code, pending_asks };
                self.refused.insert((provider, uid), refusal);
            }
            Entry::Account(account) => {
                self.accounts.insert(account.id, account);
            }
            Entry::Quote(quote) => {
                self.quotes.insert(quote.id.clone(), quote);
            }
            Entry::Transfer(transfer) => {
                self.transfer_at.insert(transfer.id, self.transfers.len());
                self.transfers.push(transfer);
            }
            Entry::Bounced { transfer } => *self.bounced.entry(transfer).or_default() += 1,
            Entry::Code(code) => {
                for name in [&code.uid, &code.qr_ref, &code.intent] {
                    self.code_at.insert(name.clone(), self.codes.len());
                }
                self.codes.push(code);
            }
        }
    }

    /// The payments under a uid, the oldest first.
    pub(super) fn paid(&self, provider: PspName, uid: &str) -> Vec<&Payment> {
        let at = self.by_uid.get(&(provider, uid.to_owned()));
        at.into_iter()
            .flatten()
            .map(|at| &self.payments[*at])
            .collect()
    }

    pub(super) fn refusal(&self, provider: PspName, uid: &str) -> Option<&Refusal> {
        self.refused.get(&(provider, uid.to_owned()))
    }

    pub(super) fn transfer(&self, id: u64) -> Option<&Transfer> {
        self.transfer_at.get(&id).map(|at| &self.transfers[*at])
    }

    /// The newest first.
    pub(super) fn transfers(&self) -> impl Iterator<Item = &Transfer> {
        self.transfers.iter().rev()
    }

    pub(super) fn has_bounced(&self, transfer: u64) -> bool {
        self.bounced.contains_key(&transfer)
    }

    /// A code by its uid, its reference or the intent.
    pub(super) fn code(&self, name: &str) -> Option<&Code> {
        self.code_at.get(name).map(|at| &self.codes[*at])
    }

    /// Counts that somebody asks; gives how often somebody had before.
    pub(super) fn asked(&mut self, what: &'static str, uid: &str) -> u32 {
        let asks = self.asks.entry((what, uid.to_owned())).or_default();
        *asks += 1;
        *asks - 1
    }

    /// The same without counting.
    pub(super) fn asks(&self, what: &'static str, uid: &str) -> u32 {
        let asks = self.asks.get(&(what, uid.to_owned()));
        asks.copied().unwrap_or_default()
    }
}

/// An id of the `nth` thing of its kind under a uid, which follows from both.
pub(super) fn id_of(kind: &str, uid: &str, nth: usize) -> u64 {
    // What JSON's numbers hold, and not so small that it looks like a counter.
    number(&format!("{kind} {uid} {nth}")) >> 12 | 1 << 51
}

/// Receivers for whom things go otherwise than well: account numbers, proxies and IBANs that end in
/// `9990000` and one more digit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Magic {
    NotFound,
    Closed,
    OverLimit,
    ClosedSince,
    Slow,
    SlowlyRefused,
    Compliance,
    Bounces,
    BalanceTooSmall,
}

impl Magic {
    pub(super) fn of(receiver: &str) -> Option<Self> {
        let (before, digit) = receiver.split_at_checked(receiver.len().checked_sub(1)?)?;
        if !before.ends_with("9990000") {
            return None;
        }
        Some(match digit {
            "1" => Self::NotFound,
            "2" => Self::Closed,
            "3" => Self::OverLimit,
            "4" => Self::ClosedSince,
            "5" => Self::Slow,
            "6" => Self::SlowlyRefused,
            "7" => Self::Compliance,
            "8" => Self::Bounces,
            "9" => Self::BalanceTooSmall,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_receivers_are_not_magic() {
        assert_eq!(Magic::of("0099900003"), Some(Magic::OverLimit));
        assert_eq!(Magic::of("0999900001"), Some(Magic::NotFound));
        for receiver in [
            "",
            "1",
            "0123456789",
            "9990000",
            "0099900000",
            "99900001x",
            "๙",
        ] {
            assert_eq!(Magic::of(receiver), None, "{receiver}");
        }
    }

    #[test]
    fn ids_are_exact_in_json() {
        for nth in 0..1_000 {
            let id = id_of("transfer", "uid", nth);
            assert!((1 << 51..1 << 53).contains(&id));
        }
        assert_ne!(id_of("transfer", "uid", 0), id_of("transfer", "uid", 1));
    }
}
