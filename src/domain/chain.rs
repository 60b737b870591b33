//! A broker's book as a hash chain: what an entry is, its canonical form and its hash.
//!
//! `tx_hash = SHA-256(JCS(entry))`; the previous entry's hash is inside, so that nothing before
//! an entry can change without changing every hash after it. The entries of one operation also
//! carry a digest of the whole operation's plan, so that neither broker can drop its side
//! without the other's chain telling.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::{AccountRef, Side};
use super::canonical::{self, Hash};
use super::ids::{AccountId, BrokerId};
use super::money::CurrencyCode;
use super::words::words;

mod export;
mod plain;
mod verify;

pub use export::{ExportedEntry, LINE_MAX, LineError};
pub use verify::{Fault, Head, HeadError, Problem, Verified, Verifier, broker_of};

/// The version of the entry's format that this program writes.
pub const FORMAT: u16 = 1;

words!(
    /// What an entry books.
    EntryKind {
        RequestPrincipal = "request.principal",
        RequestCommission = "request.commission",
        /// A debt is repaid.
        Settlement = "settlement.principal",
        OrderPrincipal = "order.principal",
        OrderCommission = "order.commission",
        /// An arbiter found that less counts than was booked.
        DisputeCorrection = "dispute.correction",
        Opening = "account.opening",
        Correction = "account.correction",
        PaymentAmount = "payment.amount",
        PaymentFee = "payment.fee",
        SwapSold = "swap.sold",
        SwapBought = "swap.bought",
    }
);

/// One append-only entry: everything that its hash covers. Amounts are minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub v: u16,
    pub broker: BrokerId,
    /// From 1, without gaps.
    pub seq: u64,
    /// The saga that booked it, or the book's own operation.
    pub saga_id: Uuid,
    pub step: u16,
    pub leg: u16,
    pub kind: EntryKind,
    pub subject: String,
    pub account: AccountId,
    /// The closed account that this credit was meant for.
    pub diverted_from: Option<AccountId>,
    pub side: Side,
    pub amount: u64,
    pub currency: CurrencyCode,
    /// Of the account, after this entry.
    pub balance: i64,
    pub op_digest: Hash,
    pub reverses_seq: Option<u64>,
    /// Digest of the free text that stands beside the chain.
    pub private_digest: Option<Hash>,
    pub booked_at: DateTime<Utc>,
    pub prev_hash: Hash,
}

/// The form that is hashed and exported: all numbers but `v` are strings, since a JSON number
/// is a double.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CanonicalEntry {
    pub account: String,
    pub amount: String,
    pub at: String,
    pub balance: String,
    pub broker: String,
    pub currency: String,
    pub diverted_from: Option<String>,
    pub kind: String,
    pub leg: String,
    pub op_digest: String,
    pub prev_hash: String,
    pub private_digest: Option<String>,
    pub reverses_seq: Option<String>,
    pub saga: String,
    pub seq: String,
    pub side: String,
    pub step: String,
    pub subject: String,
    pub v: u16,
}

impl Entry {
    #[must_use]
    pub fn canonical(&self) -> CanonicalEntry {
        CanonicalEntry {
            account: self.account.to_string(),
            amount: self.amount.to_string(),
            at: canonical::time(self.booked_at),
            balance: self.balance.to_string(),
            broker: self.broker.to_string(),
            currency: self.currency.to_string(),
            diverted_from: self.diverted_from.map(|id| id.to_string()),
            kind: self.kind.as_str().to_owned(),
            leg: self.leg.to_string(),
            op_digest: self.op_digest.to_hex(),
            prev_hash: self.prev_hash.to_hex(),
            private_digest: self.private_digest.map(Hash::to_hex),
            reverses_seq: self.reverses_seq.map(|seq| seq.to_string()),
            saga: self.saga_id.to_string(),
            seq: self.seq.to_string(),
            side: self.side.as_str().to_owned(),
            step: self.step.to_string(),
            subject: self.subject.clone(),
            v: self.v,
        }
    }

    #[must_use]
    pub fn hash(&self) -> Hash {
        self.canonical().hash()
    }
}

/// What the first entry of a broker's chain has as its previous hash.
#[must_use]
pub fn genesis(broker: BrokerId) -> Hash {
    Hash::of_bytes(format!("settlenet:chain:v1:{broker}").as_bytes())
}

/// One entry of an operation before it is booked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedEntry {
    pub leg: u16,
    pub account: AccountRef,
    pub side: Side,
    pub amount: u64,
    pub kind: EntryKind,
}

/// The digest that every entry of an operation carries: of all its planned entries, in all
/// books, in the order of (step, leg).
#[must_use]
pub fn op_digest<'a>(
    saga_id: Uuid,
    subject: &str,
    entries: impl IntoIterator<Item = (u16, &'a PlannedEntry)>,
) -> Hash {
    #[derive(Serialize)]
    struct Planned {
        account: String,
        amount: String,
        book: String,
        currency: String,
        kind: &'static str,
        leg: String,
        side: &'static str,
        step: String,
    }
    #[derive(Serialize)]
    struct Operation<'a> {
        entries: Vec<Planned>,
        saga: String,
        subject: &'a str,
        v: u16,
    }
    let mut entries: Vec<_> = entries.into_iter().collect();
    entries.sort_by_key(|(step, entry)| (*step, entry.leg));
    let entries = entries
        .into_iter()
        .map(|(step, entry)| Planned {
            account: entry.account.id().to_string(),
            amount: entry.amount.to_string(),
            book: entry.account.broker.to_string(),
            currency: entry.account.currency.to_string(),
            kind: entry.kind.as_str(),
            leg: entry.leg.to_string(),
            side: entry.side.as_str(),
            step: step.to_string(),
        })
        .collect();
    Hash::of_json(&Operation {
        entries,
        saga: saga_id.to_string(),
        subject,
        v: FORMAT,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            v: FORMAT,
            broker: 1,
            seq: 1,
            saga_id: Uuid::from_u128(7),
            step: 3,
            leg: 0,
            kind: EntryKind::RequestPrincipal,
            subject: "NR-0000000a5bb4".to_owned(),
            account: AccountId::from_bits(0xabc),
            diverted_from: None,
            side: Side::Debit,
            amount: 1_000_000,
            currency: "USD".parse().unwrap(),
            balance: -1_000_000,
            op_digest: Hash([1; 32]),
            reverses_seq: None,
            private_digest: None,
            booked_at: DateTime::from_timestamp_micros(1_767_225_600_000_001).unwrap(),
            prev_hash: genesis(1),
        }
    }

    /// The bytes are a promise to verifiers in other languages: this text may never change.
    #[test]
    fn the_canonical_form_is_fixed() {
        let text = serde_json_canonicalizer::to_string(&entry().canonical()).unwrap();
        assert_eq!(
            text,
            format!(
                concat!(
                    r#"{{"account":"AC-000000000abc","amount":"1000000","at":"2026-01-01T00:00:00.000001Z","#,
                    r#""balance":"-1000000","broker":"1","currency":"USD","diverted_from":null,"#,
                    r#""kind":"request.principal","leg":"0","op_digest":"{}","prev_hash":"{}","#,
                    r#""private_digest":null,"reverses_seq":null,"saga":"00000000-0000-0000-0000-000000000007","#,
                    r#""seq":"1","side":"debit","step":"3","subject":"NR-0000000a5bb4","v":1}}"#
                ),
                "01".repeat(32),
                genesis(1)
            )
        );
        assert_eq!(entry().hash(), Hash::of_bytes(text.as_bytes()));
    }

    #[test]
    fn every_field_is_in_the_hash() {
        let base = entry();
        let changes: Vec<fn(&mut Entry)> = vec![
            |e| e.v += 1,
            |e| e.broker += 1,
            |e| e.seq += 1,
            |e| e.saga_id = Uuid::from_u128(8),
            |e| e.step += 1,
            |e| e.leg += 1,
            |e| e.kind = EntryKind::Opening,
            |e| e.subject.push('x'),
            |e| e.account = AccountId::from_bits(1),
            |e| e.diverted_from = Some(AccountId::from_bits(1)),
            |e| e.side = Side::Credit,
            |e| e.amount += 1,
            |e| e.currency = "EUR".parse().unwrap(),
            |e| e.balance += 1,
            |e| e.op_digest = Hash([2; 32]),
            |e| e.reverses_seq = Some(1),
            |e| e.private_digest = Some(Hash([3; 32])),
            |e| e.booked_at += chrono::Duration::microseconds(1),
            |e| e.prev_hash = Hash([4; 32]),
        ];
        for (number, change) in changes.into_iter().enumerate() {
            let mut other = base.clone();
            change(&mut other);
            assert_ne!(other.hash(), base.hash(), "change {number}");
        }
    }

    #[test]
    fn the_order_of_planning_does_not_matter_to_the_digest() {
        let planned = |leg| PlannedEntry {
            leg,
            account: AccountRef::house(
                1,
                super::super::account::HousePurpose::Main,
                &"USD".parse().unwrap(),
            ),
            side: Side::Debit,
            amount: 5,
            kind: EntryKind::RequestPrincipal,
        };
        let (a, b) = (planned(0), planned(1));
        let id = Uuid::from_u128(1);
        assert_eq!(
            op_digest(id, "NR-1", [(3, &a), (3, &b)]),
            op_digest(id, "NR-1", [(3, &b), (3, &a)])
        );
        assert_ne!(
            op_digest(id, "NR-1", [(3, &a)]),
            op_digest(id, "NR-1", [(4, &a)])
        );
    }
}
