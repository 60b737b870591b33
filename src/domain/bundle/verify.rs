//! Judges a bundle: claim by claim, in words, with nothing but the bundle, the keys that are trusted
//! and the digests of files. Every claim is judged, whatever became of the others; what can't be
//! judged for another's sake does not hold.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::Value;

use super::story::{Booking, Named, Story, whole};
use super::{Bundle, Logged, effects};
use crate::domain::canonical::{self, Hash};
use crate::domain::chain::{CanonicalEntry, Head, Verifier};
use crate::domain::checkpoint::{self, Checkpoint, LeafKind};
use crate::domain::decision;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::merkle::proof::includes;
use crate::domain::note::{Note, NoteKey};
use crate::domain::request_event::{self, EventKind};
use crate::domain::words::words;

words!(
    /// What is judged, in this order.
    ClaimKind {
        /// It is a bundle, in canonical form, and nothing of it has changed since it was written.
        Form = "form",
        /// The checkpoint is signed by a key that is trusted.
        Checkpoint = "checkpoint",
        /// The events follow each other from the first on, each with its hash.
        Events = "events",
        /// Decisions of disputes are signed by a key that is trusted.
        Decisions = "decisions",
        /// The log has the last event.
        Log = "log",
        /// What stands beside the events is what was written with them, and proofs are the agreed ones.
        Beside = "beside",
        /// The entries are parts of their books' chains, and the log has the end of each part.
        Books = "books",
        /// The entries are those that the events name, no fewer and no more.
        Entries = "entries",
        /// Each entry has the digest of the whole operation in it, in both books.
        Entangled = "entangled",
        /// The entries are what was agreed.
        Terms = "terms",
        /// So is what is owed by it.
        Obligations = "obligations",
        /// So are the ledger's transfers, and their ids.
        Transfers = "transfers",
        /// Files that were handed over are among those that the events name.
        Files = "files",
    }
);

/// A claim, judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    pub claim: ClaimKind,
    pub holds: bool,
    /// For people.
    pub says: String,
}

/// What a bundle comes to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Whether every claim holds.
    pub holds: bool,
    pub subject: Option<String>,
    /// How the subject stood at the checkpoint, where its events hold.
    pub status: Option<&'static str>,
    /// The state of the log, where its signature holds.
    pub checkpoint: Option<Shown>,
    pub claims: Vec<Claim>,
}

/// A checkpoint that is signed by a trusted key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Shown {
    pub origin: String,
    pub size: String,
    pub root: Hash,
    /// The names and ids of the trusted keys that have signed it.
    pub signed_by: Vec<String>,
}

/// What is believed without proof.
#[derive(Clone, Copy, Debug, Default)]
pub struct Trust<'a> {
    /// Of the log: one of them has signed the checkpoint.
    pub keys: &'a [NoteKey],
    /// Of witnesses: each of them has cosigned it.
    pub witnesses: &'a [NoteKey],
    /// Files that were handed over with the bundle: a name and the SHA-256 of each.
    pub files: &'a [(String, Hash)],
}

type Judged = Result<String, String>;

/// Judges the bytes of a bundle.
#[must_use]
pub fn verify(bytes: &[u8], trust: &Trust<'_>) -> Report {
    let bundle = match Bundle::from_bytes(bytes) {
        Ok(bundle) => bundle,
        Err(error) => return unreadable(&error.to_string()),
    };
    let mut judge = Judge::default();
    judge.say(
        ClaimKind::Form,
        Ok("It is a bundle in canonical form.".to_owned()),
    );
    let signed = judge.found(ClaimKind::Checkpoint, checkpoint_of(&bundle, trust));
    let shown = signed.as_ref().map(|(_, shown)| shown.clone());
    let checkpoint = signed.map(|(checkpoint, _)| checkpoint);
    let story = judge.found(ClaimKind::Events, story_of(&bundle));
    let decided = story.as_ref().map(|_| decisions(&bundle, trust));
    let decided = decided.unwrap_or_else(|| not_judged(ClaimKind::Events));
    judge.say(ClaimKind::Decisions, decided);
    judge.say(ClaimKind::Log, last_event(&bundle, checkpoint.as_ref()));
    judge.say(ClaimKind::Beside, beside(&bundle));
    let books = judge.found(ClaimKind::Books, books_of(&bundle, checkpoint.as_ref()));
    let of_story = |judged: fn(&Bundle, &Story, &Books<'_>) -> Judged| match (&story, &books) {
        (Some(story), Some(books)) => judged(&bundle, story, books),
        (None, _) => not_judged(ClaimKind::Events),
        (_, None) => not_judged(ClaimKind::Books),
    };
    for (claim, judged) in [
        (ClaimKind::Entries, of_story(entries)),
        (ClaimKind::Entangled, of_story(entangled)),
        (ClaimKind::Terms, of_story(terms)),
        (ClaimKind::Obligations, of_story(obligations)),
        (ClaimKind::Transfers, of_story(transfers)),
    ] {
        judge.say(claim, judged);
    }
    judge.say(ClaimKind::Files, files(&bundle, trust));
    Report {
        holds: judge.claims.iter().all(|claim| claim.holds),
        subject: Some(bundle.subject),
        status: story.map(|story| story.status.as_str()),
        checkpoint: shown,
        claims: judge.claims,
    }
}

fn unreadable(why: &str) -> Report {
    let mut judge = Judge::default();
    judge.say(ClaimKind::Form, Err(format!("{}.", capital(why))));
    for claim in &ClaimKind::ALL[1..] {
        judge.say(*claim, not_judged(ClaimKind::Form));
    }
    Report {
        holds: false,
        subject: None,
        status: None,
        checkpoint: None,
        claims: judge.claims,
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters
        .next()
        .map(|first| first.to_uppercase().collect::<String>());
    first.unwrap_or_default() + letters.as_str()
}

fn not_judged(of: ClaimKind) -> Judged {
    Err(format!("It can't be judged while {of} does not hold."))
}

#[derive(Default)]
struct Judge {
    claims: Vec<Claim>,
}

impl Judge {
    fn say(&mut self, claim: ClaimKind, judged: Judged) {
        let holds = judged.is_ok();
        let (Ok(says) | Err(says)) = judged;
        self.claims.push(Claim { claim, holds, says });
    }

    fn found<T>(&mut self, claim: ClaimKind, judged: Result<(T, String), String>) -> Option<T> {
        let (found, said) = match judged {
            Ok((found, said)) => (Some(found), Ok(said)),
            Err(why) => (None, Err(why)),
        };
        self.say(claim, said);
        found
    }
}

fn checkpoint_of(
    bundle: &Bundle,
    trust: &Trust<'_>,
) -> Result<((Checkpoint, Shown), String), String> {
    let note = Note::parse(bundle.checkpoint.as_bytes()).map_err(|error| error.to_string())?;
    let checkpoint = Checkpoint::parse(&note.text).map_err(|error| error.to_string())?;
    let by = note
        .signed_by(trust.keys)
        .map_err(|error| error.to_string())?;
    for witness in trust.witnesses {
        note.signed_by(std::slice::from_ref(witness))
            .map_err(|error| format!("The witness {}: {error}.", witness.name()))?;
    }
    let by: Vec<String> = by
        .iter()
        .map(|key| format!("{}+{:08x}", key.name(), key.id()))
        .collect();
    let names: Vec<&str> = trust.witnesses.iter().map(NoteKey::name).collect();
    let cosigned = match names.len() {
        0 => String::new(),
        _ => format!(", and cosigned by {}", names.join(", ")),
    };
    let said = format!(
        "The checkpoint of {} with {} leaves is signed by {}{cosigned}.",
        checkpoint.origin,
        checkpoint.size,
        by.join(" and ")
    );
    let shown = Shown {
        origin: checkpoint.origin.clone(),
        size: checkpoint.size.to_string(),
        root: checkpoint.root,
        signed_by: by,
    };
    Ok(((checkpoint, shown), said))
}

/// The chain of events, and what they say.
fn story_of(bundle: &Bundle) -> Result<(Story, String), String> {
    let subject: RequestId = bundle
        .subject
        .parse()
        .ok()
        .filter(|id: &RequestId| id.to_string() == bundle.subject)
        .ok_or("The subject is no request or order.")?;
    let mut before = request_event::genesis(subject);
    let mut read = Vec::with_capacity(bundle.events.len());
    for (due, given) in (1_u64..).zip(&bundle.events) {
        let event = &given.event;
        let wrong = |what: &str| Err(format!("Event {due}: {what}."));
        if event.v != request_event::FORMAT {
            return wrong("its version is unknown");
        }
        if event.request != bundle.subject {
            return wrong("it is another request's");
        }
        if whole(&event.seq) != Some(due) {
            return wrong("another one stands in its place");
        }
        if event.prev_hash != before {
            return wrong("its prev_hash is not the hash of the event before");
        }
        if Hash::of_json(event) != given.hash {
            return wrong("its hash is another than it says");
        }
        if canonical::read_time(&event.at).is_none() {
            return wrong("its time is none");
        }
        let Some(kind) = EventKind::parse(&event.kind) else {
            return wrong("this program does not know what it is");
        };
        before = given.hash;
        read.push((due, kind, event));
    }
    let story = Story::of(&read).map_err(|why| format!("{}.", capital(&why)))?;
    let said = format!(
        "All {} events of {subject} follow each other from the first on; by the last it is {}.",
        read.len(),
        story.status
    );
    Ok((story, said))
}

/// What was decided, as the server has signed it.
fn decisions(bundle: &Bundle, trust: &Trust<'_>) -> Judged {
    let mut by = Vec::new();
    for (seq, given) in (1_u32..).zip(&bundle.events) {
        if given.event.kind == EventKind::Decided.as_str() {
            let signed = decision::signed_by(&given.event, trust.keys);
            let signed = signed.map_err(|why| format!("The decision of event {seq} {why}."))?;
            let names: Vec<&str> = signed.iter().map(|key| key.name()).collect();
            by.push(format!("event {seq} by {}", names.join(" and ")));
        }
    }
    Ok(match &by[..] {
        [] => "Nothing was decided by an arbiter, or by default.".to_owned(),
        some => format!("Decisions are signed: {}.", some.join(", ")),
    })
}

/// Whether the checkpoint has a leaf.
fn in_log(logged: &Logged, checkpoint: Option<&Checkpoint>) -> Result<u64, String> {
    let checkpoint = checkpoint.ok_or_else(|| match not_judged(ClaimKind::Checkpoint) {
        Ok(why) | Err(why) => why,
    })?;
    if logged.leaf.v != checkpoint::FORMAT {
        return Err("The version of its leaf is unknown.".to_owned());
    }
    let index = whole(&logged.index).ok_or("The index of its leaf is no number.")?;
    let leaf = logged.leaf.hash_in_tree();
    if includes(leaf, index, checkpoint.size, checkpoint.root, &logged.proof) {
        Ok(index)
    } else {
        Err(format!(
            "The checkpoint has no such leaf at {index}: the log says something else."
        ))
    }
}

fn is_leaf_of(logged: &Logged, kinds: &[LeafKind], id: &str, head: Head) -> bool {
    let leaf = &logged.leaf;
    kinds.iter().any(|kind| leaf.kind == kind.as_str())
        && leaf.id == id
        && leaf.seq == head.seq.to_string()
        && leaf.hash == head.hash.to_hex()
}

fn last_event(bundle: &Bundle, checkpoint: Option<&Checkpoint>) -> Judged {
    let last = bundle.events.last().ok_or("There is no event.")?;
    let head = Head {
        seq: bundle.events.len() as u64,
        hash: last.hash,
    };
    if !is_leaf_of(&bundle.logged, &[LeafKind::Request], &bundle.subject, head) {
        return Err("The leaf is not that of the last event.".to_owned());
    }
    let index = in_log(&bundle.logged, checkpoint)?;
    Ok(format!(
        "The log has event {} as its leaf {index} since {}, and with it all before.",
        head.seq, bundle.logged.leaf.at
    ))
}

/// What stands beside the events; erased or not shown it is no fault.
fn beside(bundle: &Bundle) -> Judged {
    let (mut shown, mut missing) = (0_u32, 0_u32);
    for (seq, given) in (1..).zip(&bundle.events) {
        let facts = &given.event.payload;
        let digest = facts.get("private_digest").and_then(Value::as_str);
        let Some(private) = &given.private else {
            missing += u32::from(digest.is_some());
            continue;
        };
        if digest != Some(Hash::of_json(private).to_hex().as_str()) {
            return Err(format!(
                "What stands beside event {seq} is not what was written."
            ));
        }
        shown += 1;
        let Some(proofs) = private.get("proof").filter(|proofs| proofs.is_array()) else {
            continue;
        };
        let agreed = facts.get("proof_digest").and_then(Value::as_str);
        if agreed.is_some_and(|digest| digest != Hash::of_json(proofs).to_hex()) {
            return Err(format!("The proof beside event {seq} is another one."));
        }
        let hashes = proofs.as_array().into_iter().flatten();
        let hashes: Vec<&Value> = hashes.filter_map(|proof| proof.get("sha256")).collect();
        let named = facts.get("files_sha256").and_then(Value::as_array);
        if named.map(|named| named.iter().collect::<Vec<_>>()) != Some(hashes) {
            return Err(format!(
                "The files of event {seq} are others than it names."
            ));
        }
    }
    Ok(format!(
        "Texts that stand beside the events as they were written: {shown}; not shown, or erased: \
         {missing}."
    ))
}

/// The subject's entries by their place.
type Books<'a> = BTreeMap<(BrokerId, u64), (&'a CanonicalEntry, Hash)>;

fn books_of<'a>(
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

fn entries(_: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
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

fn entangled(bundle: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
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

fn terms(_: &Bundle, story: &Story, books: &Books<'_>) -> Judged {
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

fn obligations(bundle: &Bundle, story: &Story, _: &Books<'_>) -> Judged {
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

fn transfers(bundle: &Bundle, story: &Story, _: &Books<'_>) -> Judged {
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

/// Every file that the events name.
fn named_files(bundle: &Bundle) -> BTreeSet<&str> {
    let named = bundle
        .events
        .iter()
        .filter_map(|given| given.event.payload.get("files_sha256"));
    let hashes = named.filter_map(Value::as_array).flatten();
    hashes.filter_map(Value::as_str).collect()
}

fn files(bundle: &Bundle, trust: &Trust<'_>) -> Judged {
    let named = named_files(bundle);
    for (name, hash) in trust.files {
        if !named.contains(hash.to_hex().as_str()) {
            return Err(format!(
                "{name} is none of the files that the events name: it was replaced."
            ));
        }
    }
    Ok(match (named.len(), trust.files.len()) {
        (0, _) => "The events name no files.".to_owned(),
        (named, 0) => {
            format!("Files that the events name: {named}; none was handed over to be compared.")
        }
        (named, given) => {
            format!("{given} of the {named} files that the events name are the same.")
        }
    })
}
