//! Whether a request has exactly the effects that it should have: the entries of its plan once
//! where it completed, and none that count where it didn't.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::account::Side;
use super::book::UNDO_STEP;
use super::canonical::Hash;
use super::chain::{Entry, PlannedEntry};
use super::ids::BrokerId;
use super::plan::{Action, Plan};

/// What is found in the books about one request is not what its plan says.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum EffectBreak {
    #[error("book {book}: the entry of step {step} leg {leg} is missing")]
    Missing { book: BrokerId, step: u16, leg: u16 },
    #[error("book {book} seq {seq}: not as the terms say")]
    Differs { book: BrokerId, seq: u64 },
    #[error("book {book} seq {seq}: counts, and no completed saga has booked it")]
    Unexpected { book: BrokerId, seq: u64 },
    #[error("book {book} seq {seq}: was reversed, and should count")]
    Reversed { book: BrokerId, seq: u64 },
    #[error("book {book} seq {seq}: reverses what it does not match")]
    BadReversal { book: BrokerId, seq: u64 },
    #[error("book {book} seq {seq}: is not in the completion's event")]
    NotInEvent { book: BrokerId, seq: u64 },
    #[error("the completion's event names {book} seq {seq}, which is not its entry")]
    OnlyInEvent { book: BrokerId, seq: u64 },
}

/// An entry as the completion's event names it.
pub type Named = (BrokerId, u64, Hash);

/// A saga's place in a book.
type Place = (Uuid, BrokerId, u16, u16);

/// Compares all entries that books have of one request with the plans of the sagas that have booked
/// it: none, the one that completed it, and the one that corrected it; and with the entries that
/// their events name.
#[must_use]
pub fn breaks(
    plans: &[&Plan],
    entries: &[(Entry, Hash)],
    named: &BTreeSet<Named>,
) -> Vec<EffectBreak> {
    let mut found = Vec::new();
    let mut expected: BTreeMap<_, _> = plans.iter().flat_map(|plan| expected(plan)).collect();
    let mut unnamed = named.clone();
    let reversals = reversals(entries, &mut found);
    for (entry, hash) in entries.iter().filter(|(e, _)| e.reverses_seq.is_none()) {
        let (book, seq) = (entry.broker, entry.seq);
        let reversed = reversals.contains(&(book, seq));
        let counts = plans.iter().any(|plan| plan.saga_id == entry.saga_id);
        if !counts {
            if !reversed {
                found.push(EffectBreak::Unexpected { book, seq });
            }
            continue;
        }
        match expected.remove(&(entry.saga_id, book, entry.step, entry.leg)) {
            None => found.push(EffectBreak::Unexpected { book, seq }),
            Some((planned, op_digest)) => {
                if !is_planned(entry, planned, op_digest) {
                    found.push(EffectBreak::Differs { book, seq });
                }
            }
        }
        if reversed {
            found.push(EffectBreak::Reversed { book, seq });
        }
        if !unnamed.remove(&(book, seq, *hash)) {
            found.push(EffectBreak::NotInEvent { book, seq });
        }
    }
    found.extend(
        expected
            .into_keys()
            .map(|(_, book, step, leg)| EffectBreak::Missing { book, step, leg }),
    );
    found.extend(
        unnamed
            .into_iter()
            .map(|(book, seq, _)| EffectBreak::OnlyInEvent { book, seq }),
    );
    found.sort();
    found
}

fn expected(plan: &Plan) -> BTreeMap<Place, (&PlannedEntry, Hash)> {
    let mut expected = BTreeMap::new();
    for step in &plan.steps {
        match &step.action {
            Action::Book {
                book,
                entries,
                op_digest,
                ..
            } => {
                for entry in entries {
                    let place = (plan.saga_id, *book, step.number, entry.leg);
                    expected.insert(place, (entry, *op_digest));
                }
            }
            Action::Claim
            | Action::OpenObligation(_)
            | Action::Hold(_)
            | Action::Reserve { .. }
            | Action::Release { .. }
            | Action::Post(_)
            | Action::Decide
            | Action::Finish => {}
        }
    }
    expected
}

fn is_planned(entry: &Entry, planned: &PlannedEntry, op_digest: Hash) -> bool {
    let meant_for = planned.account.id();
    let on_account = match entry.diverted_from {
        None => entry.account == meant_for,
        Some(diverted) => diverted == meant_for && entry.side == Side::Credit,
    };
    on_account
        && entry.side == planned.side
        && entry.amount == planned.amount
        && entry.kind == planned.kind
        && entry.currency == planned.account.currency
        && entry.op_digest == op_digest
}

/// The entries that were reversed, each by exactly one that mirrors it.
fn reversals(entries: &[(Entry, Hash)], found: &mut Vec<EffectBreak>) -> BTreeSet<(BrokerId, u64)> {
    let originals: BTreeMap<(BrokerId, u64), &Entry> = entries
        .iter()
        .map(|(entry, _)| ((entry.broker, entry.seq), entry))
        .collect();
    let mut reversed = BTreeSet::new();
    for (entry, _) in entries {
        let Some(seq) = entry.reverses_seq else {
            continue;
        };
        let key = (entry.broker, seq);
        let mirrors = originals.get(&key).is_some_and(|original| {
            original.reverses_seq.is_none()
                && original.seq < entry.seq
                && original.saga_id == entry.saga_id
                && original.step.checked_add(UNDO_STEP) == Some(entry.step)
                && original.leg == entry.leg
                && original.side == entry.side.opposite()
                && original.amount == entry.amount
                && original.currency == entry.currency
        });
        if !mirrors || !reversed.insert(key) {
            found.push(EffectBreak::BadReversal {
                book: entry.broker,
                seq: entry.seq,
            });
        }
    }
    reversed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::book::{Job, Page, Work};
    use crate::domain::plan;
    use crate::domain::request::RequestKind;
    use crate::domain::request::tests::{
        TARGET, acceptance, amount, applied, created, new_request, proofs, start, usd,
    };
    /// A confirmed send: its plan, and what the two books have after its book steps.
    fn booked() -> (Plan, Vec<(Entry, Hash)>) {
        let pending = created(new_request(RequestKind::Send, Some(TARGET)));
        let accepted = applied(pending.accept(acceptance(TARGET, None), &usd(), start())).request;
        let within = chrono::Duration::hours(1);
        let sent = applied(accepted.mark_sent(1, &proofs("1"), within, start())).request;
        let plan = plan::confirm(&sent, Uuid::from_u128(5), amount(1_000), &usd()).unwrap();
        let entries = run(&plan, false);
        (plan, entries)
    }

    fn run(plan: &Plan, undo: bool) -> Vec<(Entry, Hash)> {
        let mut all = Vec::new();
        for step in &plan.steps {
            let Action::Book {
                book,
                entries,
                op_digest,
                ..
            } = &step.action
            else {
                continue;
            };
            let mut page = Page {
                broker: *book,
                ..Page::default()
            };
            let mut works = vec![Work::Book {
                entries: entries.clone(),
                op_digest: *op_digest,
                consumes: None,
                private: None,
            }];
            if undo {
                works.push(Work::UndoBook { consumes: None });
            }
            for work in works {
                let job = Job {
                    saga_id: plan.saga_id,
                    step: step.number,
                    subject: plan.subject.to_string(),
                    work,
                };
                page.apply(&job, start());
            }
            all.extend(
                page.changes
                    .entries
                    .into_iter()
                    .map(|(e, hash, _)| (e, hash)),
            );
        }
        all
    }

    fn named(entries: &[(Entry, Hash)]) -> BTreeSet<Named> {
        entries
            .iter()
            .map(|(entry, hash)| (entry.broker, entry.seq, *hash))
            .collect()
    }

    #[test]
    fn exactly_what_the_plan_says() {
        let (plan, entries) = booked();
        let event = named(&entries);
        assert_eq!(breaks(&[&plan], &entries, &event), []);

        let missing = breaks(&[&plan], &entries[1..], &event);
        assert!(matches!(missing[0], EffectBreak::Missing { book: 1, .. }));
        assert!(missing.contains(&EffectBreak::OnlyInEvent { book: 1, seq: 1 }));

        let mut twice = entries.clone();
        let (mut copy, hash) = entries[0].clone();
        copy.seq = 2;
        twice.push((copy, hash));
        let twice = breaks(&[&plan], &twice, &event);
        assert!(twice.contains(&EffectBreak::Unexpected { book: 1, seq: 2 }));

        let mut differs = entries.clone();
        differs[1].0.amount += 1;
        let differs = breaks(&[&plan], &differs, &event);
        assert_eq!(differs, [EffectBreak::Differs { book: 2, seq: 1 }]);

        let mut other_hash = entries.clone();
        other_hash[1].1.0[0] ^= 1;
        let other_hash = breaks(&[&plan], &other_hash, &event);
        assert!(other_hash.contains(&EffectBreak::NotInEvent { book: 2, seq: 1 }));
    }

    #[test]
    fn nothing_counts_of_what_did_not_complete() {
        let (plan, entries) = booked();
        let none = BTreeSet::new();
        let left = breaks(&[], &entries, &none);
        assert_eq!(left.len(), 2, "{left:?}");
        let reversed = run(&plan, true);
        assert_eq!(breaks(&[], &reversed, &none), []);
        let completed = breaks(&[&plan], &reversed, &none);
        assert!(completed.contains(&EffectBreak::Reversed { book: 1, seq: 1 }));

        let mut short = reversed.clone();
        short[1].0.amount -= 1;
        let short = breaks(&[], &short, &none);
        assert!(short.contains(&EffectBreak::BadReversal { book: 1, seq: 2 }));
    }

    /// A first try that went back and a second that completed.
    #[test]
    fn an_earlier_try_may_have_been_reversed() {
        let (plan, entries) = booked();
        let earlier = Plan {
            saga_id: Uuid::from_u128(4),
            ..plan.clone()
        };
        let mut all = run(&earlier, true);
        for (entry, _) in &mut all {
            entry.seq += 100;
            entry.reverses_seq = entry.reverses_seq.map(|seq| seq + 100);
        }
        let event = named(&entries);
        all.extend(entries);
        assert_eq!(breaks(&[&plan], &all, &event), []);
    }
}
