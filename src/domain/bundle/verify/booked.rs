//! What was booked of it: entries in both books, what is owed, and the ledger's transfers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::happened::{in_log, is_leaf_of};
use super::{Judged, capital};
use crate::domain::bundle::story::{Booking, Named, Story, whole};
use crate::domain::bundle::{Bundle, effects};
use crate::domain::canonical::Hash;
use crate::domain::chain::{CanonicalEntry, Head, Verifier};
use crate::domain::checkpoint::{Checkpoint, LeafKind};
use crate::domain::ids::BrokerId;

/// The subject's entries by their place.
pub(super) type Books<'a> = BTreeMap<(BrokerId, u64), (&'a CanonicalEntry, Hash)>;

pub(super) fn books_of<'a>(
    bundle: &'a Bundle,
    checkpoint: Option<&Checkpoint>,
) -> Result<(Books<'a>, String), String> {
    let mut found = Books::new();
    let mut said = Vec::new();
    let mut last_book = None;
    for book in &bundle.books {
        let broker = whole(&book.broker).ok_or("A book is no broker's.")?;
        if last_book.is_some_and(|last| last >= broker) {
            return Err("The books are not in order.".to_owned());
        }
        last_book = Some(broker);
        let mut done = 0;
        for segment in &book.segments {
            let wrong = |what: String| format!("Broker {broker}: {what}");
            let first = segment.entries.first().map(|one| &one.entry);
            let begin = first.and_then(|entry| {
                Some(Head {
                    seq: whole(&entry.seq)?.checked_sub(1)?,
                    hash: Hash::from_hex(&entry.prev_hash)?,
                })
            });
            let begin =
                begin.ok_or_else(|| wrong("a part of the chain has no beginning.".to_owned()))?;
            if begin.seq < done {
                return Err(wrong("parts of the chain overlap.".to_owned()));
            }
            let mut verifier = Verifier::after(broker, begin);
            for exported in &segment.entries {
                verifier
                    .exported(exported)
                    .map_err(|fault| wrong(format!("{fault}.")))?;
                let head = verifier.head();
                if exported.entry.subject == bundle.subject {
                    found.insert((broker, head.seq), (&exported.entry, head.hash));
                }
            }
            let end = verifier.head();
            done = end.seq;
            if !is_leaf_of(
                &segment.logged,
                &[LeafKind::Book, LeafKind::Entry],
                &book.broker,
                end,
            ) {
                return Err(wrong(format!("the leaf is not that of entry {}.", end.seq)));
            }
            let index = in_log(&segment.logged, checkpoint).map_err(wrong)?;
            said.push(format!(
                "entry {} of broker {broker} is leaf {index} since {}",
                end.seq, segment.logged.leaf.at
            ));
        }
    }
    let said = if said.is_empty() {
        "It has no entries.".to_owned()
    } else {
        format!("In the log, {}.", said.join("; "))
    };
    Ok((found, said))
}

pub(super) fn entries(_: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
    let named: BTreeSet<Named> = story
        .bookings
        .iter()
        .flat_map(|booking| booking.entries.iter().copied())
        .collect();
    let count: usize = story
        .bookings
        .iter()
        .map(|booking| booking.entries.len())
        .sum();
    if count != named.len() {
        return Err("The events name an entry twice.".to_owned());
    }
    for Named { book, seq, tx_hash } in &named {
        match books.get(&(*book, *seq)) {
            Some((_, hash)) if hash == tx_hash => {}
            Some((_, hash)) => {
                return Err(format!(
                    "Entry {seq} of broker {book} has the hash {hash}, but when it was booked it was \
                     {tx_hash}: the book has been rewritten."
                ));
            }
            None => return Err(format!("Entry {seq} of broker {book} is missing.")),
        }
    }
    if let Some((book, seq)) = books
        .iter()
        .find(|((book, seq), (_, hash))| {
            let (book, seq, tx_hash) = (*book, *seq, *hash);
            !named.contains(&Named { book, seq, tx_hash })
        })
        .map(|(place, _)| place)
    {
        return Err(format!(
            "Entry {seq} of broker {book} is named by no event."
        ));
    }
    Ok(match named.len() {
        0 => "Nothing has been booked by it.".to_owned(),
        count => format!("The {count} entries are those that the events name."),
    })
}

/// The entries of a completion or correction.
fn of_booking<'a>(booking: &Booking, books: &Books<'a>) -> Vec<&'a CanonicalEntry> {
    let places = booking.entries.iter().map(|named| (named.book, named.seq));
    let entries = places.filter_map(|place| books.get(&place));
    entries.map(|(entry, _)| *entry).collect()
}

pub(super) fn entangled(bundle: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
    for booking in &story.bookings {
        let entries = of_booking(booking, books);
        let digest = digest_of(&bundle.subject, booking, &entries);
        for entry in entries {
            let place = format!("Entry {} of broker {}", entry.seq, entry.broker);
            if entry.saga != booking.saga.to_string() {
                return Err(format!(
                    "{place} is of another operation than event {} says.",
                    booking.event
                ));
            }
            if entry.op_digest != digest.to_hex() {
                return Err(format!(
                    "{place} belongs to an operation with other entries: one side is missing or another."
                ));
            }
        }
    }
    Ok("Each entry has the whole operation's digest in it: no side is missing.".to_owned())
}

/// The digest of the operation that consists of just those entries.
fn digest_of(subject: &str, booking: &Booking, entries: &[&CanonicalEntry]) -> Hash {
    let mut planned = entries.to_vec();
    planned.sort_by_key(|entry| (whole(&entry.step), whole(&entry.leg)));
    let planned: Vec<Value> = planned
        .into_iter()
        .map(|entry| {
            serde_json::json!({
                "account": entry.diverted_from.as_ref().unwrap_or(&entry.account),
                "amount": entry.amount,
                "book": entry.broker,
                "currency": entry.currency,
                "kind": entry.kind,
                "leg": entry.leg,
                "side": entry.side,
                "step": entry.step,
            })
        })
        .collect();
    Hash::of_json(&serde_json::json!({
        "entries": planned,
        "saga": booking.saga.to_string(),
        "subject": subject,
        "v": crate::domain::chain::FORMAT,
    }))
}

pub(super) fn terms(_: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
    let mut said = Vec::new();
    for booking in &story.bookings {
        let at = format!("event {}", booking.event);
        let due = effects::entries(story, booking)
            .ok_or_else(|| format!("Nobody had accepted it at {at}."))?;
        let mut found: Vec<effects::Due> = Vec::new();
        for entry in of_booking(booking, books) {
            let odd = || format!("Entry {} of broker {} is none.", entry.seq, entry.broker);
            let planned = entry.diverted_from.as_ref().unwrap_or(&entry.account);
            let account = planned.parse().map_err(|_| odd())?;
            let same_kind = due
                .iter()
                .find(|due| due.kind == entry.kind)
                .map(|due| due.kind);
            found.push(effects::Due {
                book: whole(&entry.broker).ok_or_else(odd)?,
                side: crate::domain::account::Side::parse(&entry.side).ok_or_else(odd)?,
                leg: whole(&entry.leg).ok_or_else(odd)?,
                amount: whole(&entry.amount).ok_or_else(odd)?,
                kind: same_kind.unwrap_or_default(),
                account: Some(account),
            });
            if entry.currency != story.currency.as_str() || entry.reverses_seq.is_some() {
                return Err(format!(
                    "Entry {} of broker {} is not as agreed.",
                    entry.seq, entry.broker
                ));
            }
        }
        found.sort();
        let same = found.len() == due.len()
            && found.iter().zip(&due).all(|(found, due)| due.allows(found));
        if !same {
            return Err(format!("The entries of {at} are not what was agreed."));
        }
        said.extend(due.iter().map(|due| {
            let (book, side, amount) = (due.book, due.side, due.amount);
            format!("broker {book} {side} {amount}")
        }));
    }
    let currency = &story.currency;
    Ok(match said.len() {
        0 => "By what was agreed nothing is booked yet.".to_owned(),
        _ => format!(
            "As agreed, in minor units of {currency}: {}.",
            said.join(", ")
        ),
    })
}

pub(super) fn obligations(bundle: &Bundle, story: &Story, _: &Books<'_>) -> Judged {
    let due: Vec<_> = story
        .bookings
        .iter()
        .filter_map(|booking| effects::obligation(story, booking))
        .collect();
    if due != bundle.obligations {
        return Err("What is owed by it is not what was agreed.".to_owned());
    }
    for booking in story
        .bookings
        .iter()
        .filter(|booking| booking.before.is_none())
    {
        let settled = booking
            .settled
            .iter()
            .map(|(_, amount)| u128::from(*amount))
            .sum::<u128>();
        let due = match (story.settles, booking.counts) {
            (Some(_), Some(counts)) => u128::from(counts.minor()),
            _ => 0,
        };
        if settled != due {
            return Err(format!("It settles {settled} minor units, not {due}."));
        }
    }
    let said: Vec<String> = due
        .iter()
        .map(|one| {
            format!(
                "broker {} owes broker {} {} minor units of {} by {}",
                one.debtor, one.creditor, one.amount, one.currency, one.id
            )
        })
        .collect();
    Ok(match said.len() {
        0 => "Nobody owes anything by it.".to_owned(),
        _ => format!("{}.", capital(&said.join("; "))),
    })
}

pub(super) fn transfers(bundle: &Bundle, story: &Story, _: &Books<'_>) -> Judged {
    let due: Vec<_> = story
        .bookings
        .iter()
        .filter_map(|booking| effects::transfer(story, booking))
        .collect();
    if due != bundle.transfers {
        return Err(
            "The ledger's transfers are not what was agreed, or have other ids.".to_owned(),
        );
    }
    let said: Vec<String> = due
        .iter()
        .map(|one| format!("{} to {} as {}", one.debit, one.credit, one.post))
        .collect();
    Ok(match said.len() {
        0 => "It moves nothing in the ledger.".to_owned(),
        _ => format!("To be found in the ledger: {}.", said.join("; ")),
    })
}
