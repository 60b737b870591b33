//! Walks a chain from genesis and finds the first entry that is not what it was.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{Entry, FORMAT, Head, genesis};
use crate::domain::account::Side;
use crate::domain::canonical::Hash;
use crate::domain::ids::{AccountId, BrokerId};

/// The first entry that breaks a chain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("seq {seq}: {kind}")]
pub struct Break {
    pub seq: u64,
    pub kind: BreakKind,
}

/// What is wrong with an entry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BreakKind {
    #[error("is missing: seq {found} follows")]
    Missing { found: u64 },
    #[error("is of broker {found}")]
    AnotherBroker { found: BrokerId },
    #[error("has a format that this program does not know: {found}")]
    Format { found: u16 },
    #[error("does not go on from the entry before it (its prev_hash is {found})")]
    Previous { found: Hash },
    #[error("is not what was hashed: its fields give {computed}, and it says {stored}")]
    Hash { computed: Hash, stored: Hash },
    #[error("leaves its account at {expected} by all entries until here, and says {found}")]
    Balance { expected: i128, found: i64 },
    #[error("has free text beside it that is not what was hashed")]
    Private,
    #[error("the chain ends before its known head")]
    Cut,
    #[error("the chain goes on beyond its head")]
    BeyondHead,
    #[error("the head has another hash: {found}")]
    HeadHash { found: Hash },
    /// The row holds what no program of ours writes.
    #[error("can't be read: {0}")]
    Unreadable(String),
}

/// Takes a chain's entries one after the other. Memory grows with the accounts, not with the
/// entries.
#[derive(Clone, Debug)]
pub struct Verifier {
    broker: BrokerId,
    head: Head,
    balances: BTreeMap<AccountId, i128>,
}

impl Verifier {
    #[must_use]
    pub fn new(broker: BrokerId) -> Self {
        let head = Head {
            seq: 0,
            tx_hash: genesis(broker),
        };
        Self {
            broker,
            head,
            balances: BTreeMap::new(),
        }
    }

    /// Takes the next entry with the hash that is stored beside it, and its free text if that is
    /// there; text that was erased is no break.
    ///
    /// # Errors
    /// The first thing that is wrong. Nothing after it can be relied on.
    pub fn push(
        &mut self,
        entry: &Entry,
        stored: Hash,
        private: Option<&Value>,
    ) -> Result<(), Break> {
        let expected = self.head.seq + 1;
        let broken = |kind| {
            Err(Break {
                seq: expected,
                kind,
            })
        };
        if entry.seq != expected {
            return broken(BreakKind::Missing { found: entry.seq });
        }
        if entry.v != FORMAT {
            return broken(BreakKind::Format { found: entry.v });
        }
        if entry.broker != self.broker {
            return broken(BreakKind::AnotherBroker {
                found: entry.broker,
            });
        }
        if entry.prev_hash != self.head.tx_hash {
            return broken(BreakKind::Previous {
                found: entry.prev_hash,
            });
        }
        let computed = entry.hash();
        if computed != stored {
            return broken(BreakKind::Hash { computed, stored });
        }
        if private.is_some() && private.map(Hash::of_json) != entry.private_digest {
            return broken(BreakKind::Private);
        }
        let balance = self.balances.entry(entry.account).or_default();
        match entry.side {
            Side::Debit => *balance -= i128::from(entry.amount),
            Side::Credit => *balance += i128::from(entry.amount),
        }
        if *balance != i128::from(entry.balance) {
            return broken(BreakKind::Balance {
                expected: *balance,
                found: entry.balance,
            });
        }
        self.head = Head {
            seq: entry.seq,
            tx_hash: computed,
        };
        Ok(())
    }

    /// What has been verified so far.
    #[must_use]
    pub const fn head(&self) -> Head {
        self.head
    }

    /// Each account's sum of entries.
    #[must_use]
    pub const fn balances(&self) -> &BTreeMap<AccountId, i128> {
        &self.balances
    }

    /// Compares the end of what was verified with the head that the book, or somebody who saw it
    /// earlier, knows.
    ///
    /// # Errors
    /// A tail that is cut or too long, or another hash at the head.
    pub fn finish(&self, known: Head) -> Result<(), Break> {
        if self.head.seq < known.seq {
            return Err(Break {
                seq: self.head.seq + 1,
                kind: BreakKind::Cut,
            });
        }
        if self.head.seq > known.seq {
            return Err(Break {
                seq: known.seq + 1,
                kind: BreakKind::BeyondHead,
            });
        }
        if self.head.tx_hash != known.tx_hash {
            return Err(Break {
                seq: known.seq,
                kind: BreakKind::HeadHash {
                    found: known.tx_hash,
                },
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::chain::EntryKind;
    use chrono::DateTime;
    use serde_json::json;
    use uuid::Uuid;

    /// Five entries of two accounts.
    fn chain() -> Vec<(Entry, Hash)> {
        let mut chain: Vec<(Entry, Hash)> = Vec::new();
        for seq in 1..=5u64 {
            let entry = Entry {
                v: FORMAT,
                broker: 1,
                seq,
                saga_id: Uuid::from_u128(u128::from(seq)),
                step: 3,
                leg: 0,
                kind: EntryKind::Opening,
                subject: format!("AC-{seq}"),
                account: AccountId::from_bits(seq % 2),
                diverted_from: None,
                side: Side::Credit,
                amount: 10,
                currency: "USD".parse().unwrap(),
                balance: 10 * i64::try_from(seq.div_ceil(2)).unwrap(),
                op_digest: Hash([1; 32]),
                reverses_seq: None,
                private_digest: Some(Hash::of_json(&json!({ "note": "n" }))),
                booked_at: DateTime::from_timestamp(1_767_225_600, 0).unwrap(),
                prev_hash: chain.last().map_or(genesis(1), |(_, hash)| *hash),
            };
            let hash = entry.hash();
            chain.push((entry, hash));
        }
        chain
    }

    fn verify(chain: &[(Entry, Hash)]) -> Result<Verifier, Break> {
        let mut verifier = Verifier::new(1);
        for (entry, hash) in chain {
            verifier.push(entry, *hash, None)?;
        }
        Ok(verifier)
    }

    fn head(chain: &[(Entry, Hash)]) -> Head {
        chain.last().map_or_else(
            || Verifier::new(1).head(),
            |(entry, tx_hash)| Head {
                seq: entry.seq,
                tx_hash: *tx_hash,
            },
        )
    }

    #[test]
    fn a_whole_chain_and_an_empty_one() {
        let chain = chain();
        let verifier = verify(&chain).unwrap();
        assert_eq!(verifier.finish(head(&chain)), Ok(()));
        assert_eq!(verifier.balances()[&AccountId::from_bits(1)], 30);
        let empty = verify(&[]).unwrap();
        assert_eq!(empty.finish(head(&[])), Ok(()));
        assert_eq!(empty.finish(head(&chain)).unwrap_err().seq, 1);
    }

    #[test]
    fn a_change_is_found_where_it_is() {
        for at in 0..5usize {
            let seq = at as u64 + 1;
            let mut changed = chain();
            changed[at].0.amount += 1;
            let broken = verify(&changed).unwrap_err();
            assert!(broken.seq == seq && matches!(broken.kind, BreakKind::Hash { .. }));

            let mut changed = chain();
            changed[at].1.0[31] ^= 1;
            assert_eq!(verify(&changed).unwrap_err().seq, seq);

            let mut removed = chain();
            removed.remove(at);
            match verify(&removed) {
                Err(broken) => assert_eq!(broken.seq, seq),
                Ok(cut) => assert_eq!(cut.finish(head(&chain())).unwrap_err().seq, seq),
            }
        }
        let mut swapped = chain();
        swapped.swap(1, 2);
        assert_eq!(verify(&swapped).unwrap_err().seq, 2);
    }

    /// Whoever rewrites an entry and all hashes after it is found by a head that was known.
    #[test]
    fn a_rewritten_chain_has_another_head() {
        let known = head(&chain());
        let mut rewritten = chain();
        rewritten[2].0.subject = "AC-x".to_owned();
        let mut prev = genesis(1);
        for (entry, hash) in &mut rewritten {
            entry.prev_hash = prev;
            *hash = entry.hash();
            prev = *hash;
        }
        let verifier = verify(&rewritten).unwrap();
        let broken = verifier.finish(known).unwrap_err();
        assert!(matches!(broken.kind, BreakKind::HeadHash { .. }));
    }

    #[test]
    fn a_balance_that_the_entries_do_not_give() {
        let mut wrong = chain();
        let (entry, hash) = &mut wrong[4];
        entry.balance += 1;
        *hash = entry.hash();
        let broken = verify(&wrong).unwrap_err();
        assert!(broken.seq == 5 && matches!(broken.kind, BreakKind::Balance { .. }));
    }

    #[test]
    fn free_text_may_be_erased_and_not_changed() {
        let chain = chain();
        let (entry, hash) = &chain[0];
        let push = |private: Option<Value>| {
            Verifier::new(1)
                .push(entry, *hash, private.as_ref())
                .map_err(|broken| broken.kind)
        };
        assert_eq!(push(Some(json!({ "note": "n" }))), Ok(()));
        assert_eq!(push(None), Ok(()));
        assert_eq!(push(Some(json!({ "note": "m" }))), Err(BreakKind::Private));
    }
}
