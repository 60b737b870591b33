//! What has happened: the checkpoint, the events that the log has, decisions, and what stands beside
//! events.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ClaimKind, Judged, Shown, Trust, capital, not_judged};
use crate::domain::bundle::story::{Story, whole};
use crate::domain::bundle::{Bundle, Logged};
use crate::domain::canonical::{self, Hash};
use crate::domain::chain::Head;
use crate::domain::checkpoint::{self, Checkpoint, LeafKind};
use crate::domain::decision;
use crate::domain::ids::RequestId;
use crate::domain::merkle::proof::includes;
use crate::domain::note::{Note, NoteKey};
use crate::domain::request_event::{self, EventKind};

pub(super) fn checkpoint_of(
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
pub(super) fn story_of(bundle: &Bundle) -> Result<(Story, String), String> {
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
pub(super) fn decisions(bundle: &Bundle, trust: &Trust<'_>) -> Judged {
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
pub(super) fn in_log(logged: &Logged, checkpoint: Option<&Checkpoint>) -> Result<u64, String> {
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

pub(super) fn is_leaf_of(logged: &Logged, kinds: &[LeafKind], id: &str, head: Head) -> bool {
    let leaf = &logged.leaf;
    kinds.iter().any(|kind| leaf.kind == kind.as_str())
        && leaf.id == id
        && leaf.seq == head.seq.to_string()
        && leaf.hash == head.hash.to_hex()
}

pub(super) fn last_event(bundle: &Bundle, checkpoint: Option<&Checkpoint>) -> Judged {
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
pub(super) fn beside(bundle: &Bundle) -> Judged {
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

/// Every file that the events name.
fn named_files(bundle: &Bundle) -> BTreeSet<&str> {
    let named = bundle
        .events
        .iter()
        .filter_map(|given| given.event.payload.get("files_sha256"));
    let hashes = named.filter_map(Value::as_array).flatten();
    hashes.filter_map(Value::as_str).collect()
}

pub(super) fn files(bundle: &Bundle, trust: &Trust<'_>) -> Judged {
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
