//! Judges a bundle: claim by claim, in words, with nothing but the bundle, the keys that are trusted
//! and the digests of files. Every claim is judged, whatever became of the others; what can't be
//! judged for another's sake does not hold.

mod booked;
mod happened;

use serde::Serialize;

use self::booked::{Books, books_of, entangled, entries, obligations, terms, transfers};
use self::happened::{beside, checkpoint_of, decisions, files, last_event, story_of};
use super::Bundle;
use super::story::Story;
use crate::domain::canonical::Hash;
use crate::domain::note::NoteKey;
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
