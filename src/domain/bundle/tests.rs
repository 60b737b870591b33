use std::collections::{BTreeMap, HashMap};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use chrono::{DateTime, Duration, Utc};
use ed25519_dalek::SigningKey;
use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::json;
use uuid::Uuid;

use super::verify::{ClaimKind, Report, Trust, verify};
use super::*;
use crate::domain::account::{OwnerKind, Side};
use crate::domain::canonical;
use crate::domain::chain::{self, Entry, Head};
use crate::domain::checkpoint::{Checkpoint, Leaf};
use crate::domain::decision;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::merkle::proof::inclusion;
use crate::domain::merkle::{Growing, proof::NodeAt};
use crate::domain::note::{Algorithm, Note, NoteKey};
use crate::domain::plan::{self, Action, Plan};
use crate::domain::proof::{Proof, ProofType};
use crate::domain::request::tests::{
    TARGET, acceptance, account, amount, applied, new_request, start, usd,
};
use crate::domain::request::{
    Booked, Change, DisputeRules, Request, RequestKind, Settles, Statement, Verdict,
};
use crate::domain::request_event::{self, Event};
use crate::domain::settlement::Part;
use crate::domain::terms::{Commission, CommissionSize, Party};

mod decisions;

const ORIGIN: &str = "log.example";
const FILE: Hash = Hash([7; 32]);

fn key(seed: u8) -> (SigningKey, NoteKey) {
    let private = SigningKey::from_bytes(&[seed; 32]);
    let public = private.verifying_key().to_bytes();
    let key = NoteKey::new(ORIGIN, Algorithm::Ed25519, &public).unwrap();
    (private, key)
}

/// What has happened to one subject: its events, its entries, and what other business its books had.
#[derive(Clone)]
struct Case {
    request: Request,
    events: Vec<Event>,
    books: BTreeMap<BrokerId, Vec<(Entry, Hash)>>,
    balances: HashMap<String, i64>,
}

impl Case {
    fn new(kind: RequestKind, commission: Option<Commission>) -> Self {
        let mut new = new_request(kind, Some(TARGET));
        new.note = Some("for the \"second\" of May".to_owned());
        new.terms.commission = commission;
        if kind.is_order() {
            new.account = Some(account(1, OwnerKind::Partner));
        }
        if kind == RequestKind::Settlement {
            new.terms = crate::domain::terms::Terms::NONE;
            new.settles = Some(Settles {
                debtor: Party::Author,
                obligation: None,
            });
        }
        let change = new.create(start()).unwrap();
        let id = change.request.id;
        let mut case = Self {
            request: change.request.clone(),
            events: Vec::new(),
            books: BTreeMap::new(),
            balances: HashMap::new(),
        };
        case.book_other(1, id);
        case.take(change);
        case
    }

    fn take(&mut self, change: Change) -> Option<Plan> {
        let prev = self.events.last();
        let prev = prev.map_or_else(|| request_event::genesis(self.request.id), Event::hash);
        let seq = u32::try_from(self.events.len()).unwrap() + 1;
        let draft = change.event.salted(Uuid::from_u128(u128::from(seq)));
        let at = start() + Duration::minutes(i64::from(seq));
        let id = self.request.id;
        self.events
            .push(Event::seal(draft, id, seq, prev, "US-1", at));
        self.request = change.request;
        change.plan
    }

    fn append(
        &mut self,
        make: impl FnOnce(u64, Hash, DateTime<Utc>) -> Entry,
        book: BrokerId,
    ) -> Booked {
        let chain = self.books.entry(book).or_default();
        let prev = chain
            .last()
            .map_or_else(|| chain::genesis(book), |(_, hash)| *hash);
        let mut entry = make(
            chain.len() as u64 + 1,
            prev,
            start() + Duration::minutes(30),
        );
        let balance = self
            .balances
            .entry(format!("{}", entry.account))
            .or_default();
        let moved = i64::try_from(entry.amount).unwrap();
        *balance += match entry.side {
            Side::Debit => -moved,
            Side::Credit => moved,
        };
        entry.balance = *balance;
        let tx_hash = entry.hash();
        let seq = entry.seq;
        chain.push((entry, tx_hash));
        Booked { book, seq, tx_hash }
    }

    /// An entry of other business, in between.
    fn book_other(&mut self, book: BrokerId, id: RequestId) {
        let house = account(book, OwnerKind::House);
        let make = |seq, prev_hash, booked_at| Entry {
            v: chain::FORMAT,
            broker: book,
            seq,
            saga_id: Uuid::from_u128(u128::from(seq) << 64 | 5),
            step: 1,
            leg: 0,
            kind: chain::EntryKind::Correction,
            subject: format!("{}", house.id()),
            account: house.id(),
            diverted_from: None,
            side: Side::Credit,
            amount: 5,
            currency: usd().code,
            balance: 0,
            op_digest: Hash::of_bytes(id.to_string().as_bytes()),
            reverses_seq: None,
            private_digest: None,
            booked_at,
            prev_hash,
        };
        self.append(make, book);
    }

    fn book(&mut self, plan: &Plan) -> Vec<Booked> {
        let mut booked = Vec::new();
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
            for planned in entries {
                let make = |seq, prev_hash, booked_at| Entry {
                    v: chain::FORMAT,
                    broker: *book,
                    seq,
                    saga_id: plan.saga_id,
                    step: step.number,
                    leg: planned.leg,
                    kind: planned.kind,
                    subject: plan.subject.to_string(),
                    account: planned.account.id(),
                    diverted_from: None,
                    side: planned.side,
                    amount: planned.amount,
                    currency: planned.account.currency.clone(),
                    balance: 0,
                    op_digest: *op_digest,
                    reverses_seq: None,
                    private_digest: None,
                    booked_at,
                    prev_hash,
                };
                booked.push(self.append(make, *book));
            }
            self.book_other(*book, plan.subject);
        }
        booked
    }

    /// Taken to its end, with less than was agreed.
    fn completed(mut self) -> Self {
        let orders = self.request.kind.is_order();
        let landing = orders.then(|| account(TARGET, OwnerKind::Cashier));
        let now = start();
        let accepted = self
            .request
            .accept(acceptance(TARGET, landing), &usd(), now);
        self.take(applied(accepted));
        if self.request.saga_id.is_some() {
            let settled = self.request.accept_settled(now);
            self.take(settled);
        }
        let sender = self.request.broker_of(self.request.sender()).unwrap();
        let proofs = [Proof {
            kind: ProofType::Photo,
            url: Some("https://files.example/1.jpg".to_owned()),
            value: None,
            note: None,
            sha256: Some(FILE),
        }];
        let sent = self.request.prove(sender, &proofs, Duration::hours(1), now);
        self.take(applied(sent));
        let receiver = self.request.sender().other();
        let receiver = self.request.broker_of(receiver).unwrap();
        let saga = Uuid::from_u128(0xc0);
        let claimed = amount(999_000);
        for by in [receiver, sender] {
            let confirmed = self.request.confirm(by, Some(claimed), saga, &usd(), now);
            let plan = self.take(applied(confirmed));
            let Some(plan) = plan else { continue };
            let booked = self.book(&plan);
            let settled = [Part {
                obligation: crate::domain::ids::ObligationId::from_bits(3),
                amount: 999_000,
            }];
            let done = self.request.completed(&booked, &settled, now);
            self.take(done);
        }
        self
    }

    /// Disputed, and decided by an arbiter: less counts. The decision is signed as it is told.
    fn decided(mut self, counts: u64, sign: &dyn Fn(&str) -> Vec<String>) -> Self {
        let now = start();
        let rules = DisputeRules {
            window: Duration::days(7),
            respond_within: Duration::days(3),
            appeal_within: Duration::zero(),
        };
        let statement = Statement {
            text: "counterfeit notes",
            proofs: &[],
        };
        let disputed = self.request.dispute(1, &statement, &rules, now);
        self.take(applied(disputed));
        let assigned = self.request.assign_dispute("US-9", None, now);
        self.take(applied(assigned));
        let (verdict, amount) = match counts {
            0 => (Verdict::Cancel, None),
            some => (Verdict::Adjust, Some(amount(some))),
        };
        let decided = self
            .request
            .decide("US-9", verdict, amount, "they were", &rules, now);
        let change = applied(decided);
        let mut unsigned = self.clone();
        unsigned.take(change.clone());
        let text = decision::text(&unsigned.events.last().unwrap().canonical());
        let mut signed = change;
        let lines = json!(sign(&text));
        signed
            .event
            .payload
            .insert(decision::SIGNATURES.to_owned(), lines);
        self.take(signed);
        self
    }

    /// An arbiter finds that less counts, and it is corrected.
    fn corrected(self, counts: u64) -> Self {
        self.decided(counts, &|text| {
            let (private, key) = key(1);
            vec![key.sign(&private, text, 0).to_string()]
        })
        .enforced(counts)
    }

    fn enforced(mut self, counts: u64) -> Self {
        let plan = plan::correct(&self.request, Uuid::from_u128(0xcc), counts, &usd()).unwrap();
        self.request.saga_id = Some(plan.saga_id);
        let booked = self.book(&plan);
        let corrected = self
            .request
            .corrected(&booked, plan.corrected_by(), start());
        self.take(corrected);
        self
    }

    /// The log, and a bundle that it proves. The books' parts go on to their heads where `whole`.
    fn bundle(&self, whole: bool) -> Bundle {
        let at = start() + Duration::hours(2);
        let last = self.events.last().unwrap();
        let head = Head {
            seq: self.events.len() as u64,
            hash: last.hash(),
        };
        let mut leaves = vec![Leaf::of_request(RequestId::from_bits(99), head, at)];
        let subject = self.request.id.to_string();
        let mut parts = Vec::new();
        for (book, chain) in &self.books {
            for (entry, hash) in chain.iter().filter(|(entry, _)| entry.subject == subject) {
                let named = Head {
                    seq: entry.seq,
                    hash: *hash,
                };
                let (end, leaf) = if whole {
                    let (last, hash) = chain.last().unwrap();
                    let head = Head {
                        seq: last.seq,
                        hash: *hash,
                    };
                    (last.seq, Leaf::of_book(*book, head, at))
                } else {
                    (entry.seq, Leaf::of_entry(*book, named, at))
                };
                let at_index = leaves.len();
                leaves.push(leaf);
                parts.push((*book, entry.seq, end, at_index));
                if whole {
                    break;
                }
            }
        }
        let of_subject = leaves.len();
        leaves.push(Leaf::of_request(self.request.id, head, at));
        let mut nodes: HashMap<NodeAt, Hash> = HashMap::new();
        let mut tree = Growing::default();
        for leaf in &leaves {
            tree.push_noting(leaf.hash_in_tree(), |at, hash| {
                nodes.insert(at, hash);
            });
        }
        let logged = |index: usize| Logged {
            index: index.to_string(),
            leaf: leaves[index].canonical(),
            proof: inclusion(index as u64, tree.size())
                .unwrap()
                .resolve(&nodes)
                .unwrap(),
        };
        let checkpoint = Checkpoint {
            origin: ORIGIN.to_owned(),
            size: tree.size(),
            root: tree.root(),
        };
        let mut books: BTreeMap<BrokerId, Vec<Segment>> = BTreeMap::new();
        for (book, from, to, index) in parts {
            let of_part = self.books[&book]
                .iter()
                .filter(|(entry, _)| (from..=to).contains(&entry.seq));
            let entries = of_part.map(|(entry, hash)| ExportedEntry {
                entry: entry.canonical(),
                private: None,
                tx_hash: *hash,
            });
            books.entry(book).or_default().push(Segment {
                entries: entries.collect(),
                logged: logged(index),
            });
        }
        let (obligations, transfers) = self.owed();
        Bundle {
            books: books
                .into_iter()
                .map(|(broker, segments)| BundledBook {
                    broker: broker.to_string(),
                    segments,
                })
                .collect(),
            checkpoint: signed(&checkpoint, 1),
            events: self
                .events
                .iter()
                .map(|event| BundledEvent {
                    event: event.canonical(),
                    hash: event.hash(),
                    private: event.private.clone(),
                })
                .collect(),
            format: FORMAT.to_owned(),
            logged: logged(of_subject),
            made_at: canonical::time(at),
            obligations,
            sha256: Hash([0; 32]),
            subject,
            transfers,
            v: VERSION,
        }
        .sealed()
    }

    /// What the plans themselves say is owed and moved.
    fn owed(&self) -> (Vec<BundledObligation>, Vec<BundledTransfer>) {
        let mut obligations = Vec::new();
        let mut transfers = Vec::new();
        let mut request = self.request.clone();
        for event in &self.events {
            let of = |name: &str| event.payload.get(name).and_then(Value::as_str);
            let counts = of("received_amount").and_then(|minor| minor.parse().ok());
            let saga = of("saga").and_then(|saga| saga.parse().ok());
            let plan = match event.kind {
                request_event::EventKind::Completed => {
                    request.received_amount = Some(amount(999_000));
                    plan::confirm(&request, saga.unwrap(), amount(999_000), &usd())
                }
                request_event::EventKind::Corrected => {
                    plan::correct(&request, saga.unwrap(), counts.unwrap(), &usd())
                }
                _ => None,
            };
            let Some(plan) = plan else { continue };
            let saga = plan.saga_id.to_string();
            obligations.extend(plan.opens().map(|debt| BundledObligation {
                amount: debt.amount.to_string(),
                creditor: debt.creditor.to_string(),
                currency: debt.currency.to_string(),
                debtor: debt.debtor.to_string(),
                id: debt.obligation.to_string(),
                saga: saga.clone(),
            }));
            transfers.extend(plan.debt().map(|debt| {
                BundledTransfer {
                    amount: debt.amount.to_string(),
                    credit: format!("broker.{}.position.USD", debt.creditor),
                    debit: format!("broker.{}.position.USD", debt.debtor),
                    hold: crate::domain::ledger::transfer_id(plan.saga_id, 0)
                        .get()
                        .to_string(),
                    post: crate::domain::ledger::transfer_id(plan.saga_id, 1)
                        .get()
                        .to_string(),
                    saga: saga.clone(),
                }
            }));
        }
        (obligations, transfers)
    }
}

fn signed(checkpoint: &Checkpoint, seed: u8) -> String {
    let (private, key) = key(seed);
    let text = checkpoint.to_string();
    let signature = key.sign(&private, &text, 0);
    Note {
        text,
        signatures: vec![signature],
    }
    .to_string()
}

fn judged(bundle: &Bundle) -> Report {
    let keys = [key(1).1];
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    verify(&bundle.to_bytes().unwrap(), &trust)
}

fn failing(report: &Report) -> Vec<ClaimKind> {
    let failing = report.claims.iter().filter(|claim| !claim.holds);
    failing.map(|claim| claim.claim).collect()
}

#[track_caller]
fn holds(bundle: &Bundle) {
    let report = judged(bundle);
    assert!(report.holds, "{:#?}", report.claims);
    assert_eq!(report.claims.len(), ClaimKind::ALL.len());
    let (code, said) = by_python(&bundle.to_bytes().unwrap());
    assert_eq!(code, Some(0), "{said}");
}

/// The verifier of the documents, which shares nothing with this one but them: its exit code, and
/// what it says.
fn by_python(bytes: &[u8]) -> (Option<i32>, String) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples");
    let mut child = Command::new("python3")
        .arg(folder.join("verify-bundle.py"))
        .args(["/dev/stdin", &key(1).1.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (
        output.status.code(),
        String::from_utf8_lossy(&said).into_owned(),
    )
}

/// An attacker seals what it has changed.
#[track_caller]
fn refused(bundle: &Bundle, claim: ClaimKind, change: impl FnOnce(&mut Bundle)) {
    let mut other = bundle.clone();
    change(&mut other);
    let other = other.sealed();
    let report = judged(&other);
    assert!(!report.holds);
    let (code, said) = by_python(&other.to_bytes().unwrap());
    assert_eq!(code, Some(4), "{said}");
    assert_eq!(
        failing(&report).first(),
        Some(&claim),
        "{:#?}",
        report.claims
    );
}

fn every_kind() -> Vec<Case> {
    let percent = |payer| Commission {
        payer,
        size: CommissionSize::BasisPoints(150),
    };
    let mut cases = Vec::new();
    for kind in RequestKind::ALL {
        cases.push(Case::new(*kind, None));
        if *kind != RequestKind::Settlement {
            cases.push(Case::new(*kind, Some(percent(Party::Author))));
            cases.push(Case::new(*kind, Some(percent(Party::Counterparty))));
        }
    }
    cases
}

#[test]
fn what_has_happened_holds_whatever_it_was() {
    for case in every_kind() {
        holds(&case.bundle(true));
        let case = case.completed();
        for whole in [false, true] {
            holds(&case.bundle(whole));
        }
    }
    for counts in [0, 67, 400_000, 998_999] {
        for case in every_kind() {
            let case = case.completed().corrected(counts);
            holds(&case.bundle(false));
            holds(&case.bundle(true));
        }
    }
}

fn completed() -> Bundle {
    let commission = Commission {
        payer: Party::Author,
        size: CommissionSize::BasisPoints(100),
    };
    Case::new(RequestKind::Send, Some(commission))
        .completed()
        .bundle(true)
}

#[test]
fn whatever_is_changed_in_a_book_is_named() {
    let bundle = completed();
    // Edited, with and without its hashes made anew.
    refused(&bundle, ClaimKind::Books, |b| {
        b.books[0].segments[0].entries[0].entry.amount = "1".to_owned();
    });
    refused(&bundle, ClaimKind::Books, |b| {
        let mut prev = None;
        for one in &mut b.books[0].segments[0].entries {
            one.entry.at = "2026-01-01T00:00:00.000000Z".to_owned();
            if let Some(prev) = prev {
                one.entry.prev_hash = prev;
            }
            one.tx_hash = Hash::of_json(&one.entry);
            prev = Some(one.tx_hash.to_hex());
        }
    });
    // And the leaf with them.
    refused(&bundle, ClaimKind::Books, |b| {
        let segment = &mut b.books[0].segments[0];
        segment.entries.truncate(1);
        let only = &mut segment.entries[0];
        only.entry.amount = "1".to_owned();
        only.tx_hash = Hash::of_json(&only.entry);
        segment.logged.leaf.seq.clone_from(&only.entry.seq);
        segment.logged.leaf.hash = only.tx_hash.to_hex();
    });
    // Deleted, doubled, in another order, cut off, of the other book.
    refused(&bundle, ClaimKind::Books, |b| {
        b.books[0].segments[0].entries.remove(1);
    });
    refused(&bundle, ClaimKind::Books, |b| {
        let again = b.books[0].segments[0].entries[0].clone();
        b.books[0].segments[0].entries.insert(1, again);
    });
    refused(&bundle, ClaimKind::Books, |b| {
        b.books[0].segments[0].entries.swap(0, 1);
    });
    refused(&bundle, ClaimKind::Books, |b| {
        b.books[0].segments[0].entries.pop();
    });
    refused(&bundle, ClaimKind::Books, |b| {
        let first = b.books[0].segments.clone();
        b.books[0].segments = std::mem::replace(&mut b.books[1].segments, first);
    });
    refused(&bundle, ClaimKind::Books, |b| b.books.swap(0, 1));
    refused(&bundle, ClaimKind::Books, |b| {
        let again = b.books[1].segments[0].clone();
        b.books[1].segments.push(again);
    });
    // One side dropped: the events know of it.
    refused(&bundle, ClaimKind::Entries, |b| {
        b.books.pop();
    });
}

#[test]
fn whatever_is_changed_of_the_events_is_named() {
    let bundle = completed();
    refused(&bundle, ClaimKind::Events, |b| {
        b.events[2].event.actor = "US-2".to_owned();
    });
    refused(&bundle, ClaimKind::Events, |b| b.events.swap(1, 2));
    refused(&bundle, ClaimKind::Events, |b| {
        b.events.remove(0);
    });
    refused(&bundle, ClaimKind::Events, |b| {
        b.subject = "NR-00000000ffff".to_owned();
    });
    refused(&bundle, ClaimKind::Log, |b| {
        b.events.pop();
        b.books.clear();
        b.obligations.clear();
        b.transfers.clear();
    });
    // All hashes made anew, and the leaf too: the log has another one.
    let rewritten = |b: &mut Bundle| {
        b.events[0].event.payload["amount"] = json!("1000001");
        let mut prev = None;
        for one in &mut b.events {
            if let Some(prev) = prev {
                one.event.prev_hash = prev;
            }
            one.hash = Hash::of_json(&one.event);
            prev = Some(one.hash);
        }
    };
    refused(&bundle, ClaimKind::Log, rewritten);
    refused(&bundle, ClaimKind::Log, |b| {
        rewritten(b);
        b.logged.leaf.hash = b.events.last().unwrap().hash.to_hex();
    });
    // What stands beside them, and files.
    refused(&bundle, ClaimKind::Beside, |b| {
        b.events[0].private = Some(json!({ "note": "no" }));
    });
    let mut erased = bundle.clone();
    erased.events[0].private = None;
    holds(&erased.sealed());
    let keys = [key(1).1];
    let bytes = bundle.to_bytes().unwrap();
    for (hash, held) in [(FILE, true), (Hash([8; 32]), false)] {
        let files = [("1.jpg".to_owned(), hash)];
        let trust = Trust {
            keys: &keys,
            files: &files,
            ..Trust::default()
        };
        let report = verify(&bytes, &trust);
        assert_eq!(report.holds, held);
        assert_eq!(
            failing(&report),
            if held { vec![] } else { vec![ClaimKind::Files] }
        );
    }
}

#[test]
fn what_is_owed_and_who_signs_can_be_no_other() {
    let bundle = completed();
    refused(&bundle, ClaimKind::Obligations, |b| {
        b.obligations[0].amount = "5".to_owned();
    });
    refused(&bundle, ClaimKind::Obligations, |b| b.obligations.clear());
    refused(&bundle, ClaimKind::Obligations, |b| {
        let one = &mut b.obligations[0];
        std::mem::swap(&mut one.debtor, &mut one.creditor);
    });
    refused(&bundle, ClaimKind::Transfers, |b| {
        b.transfers[0].post = "5".to_owned();
    });
    // A fork of the log, by another key and by the same.
    let fork = Checkpoint {
        origin: ORIGIN.to_owned(),
        size: 5,
        root: Hash([5; 32]),
    };
    refused(&bundle, ClaimKind::Checkpoint, |b| {
        b.checkpoint = signed(&fork, 2);
    });
    refused(&bundle, ClaimKind::Log, |b| b.checkpoint = signed(&fork, 1));
    refused(&bundle, ClaimKind::Log, |b| b.logged.index = "0".to_owned());
    let witness = [key(3).1];
    let keys = [key(1).1];
    let trust = Trust {
        keys: &keys,
        witnesses: &witness,
        ..Trust::default()
    };
    let report = verify(&bundle.to_bytes().unwrap(), &trust);
    assert_eq!(failing(&report)[0], ClaimKind::Checkpoint);
}

#[test]
fn no_bit_of_it_can_be_another_one() {
    let keys = [key(1).1];
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    let bytes = completed().to_bytes().unwrap();
    let mut random = StdRng::seed_from_u64(4);
    for round in 0..10_000 {
        let mut flipped = bytes.clone();
        let at = random.random_range(0..flipped.len());
        flipped[at] ^= 1 << random.random_range(0..8);
        assert!(
            !verify(&flipped, &trust).holds,
            "byte {at} of {}",
            flipped.len()
        );
        if round % 200 == 0 {
            let (code, said) = by_python(&flipped);
            assert_eq!(code, Some(4), "byte {at}: {said}");
        }
    }
}

#[test]
fn hostile_files_are_refused_quickly() {
    let keys = [key(1).1];
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
    let long = vec![b' '; BUNDLE_MAX + 1];
    for bytes in [b"".as_slice(), b"{}", b"\xff", deep.as_bytes(), &long] {
        let report = verify(bytes, &trust);
        assert_eq!(failing(&report).len(), ClaimKind::ALL.len());
    }
    // A payload may have any form in which an attacker writes it.
    let bundle = completed();
    for odd in [
        json!(null),
        json!([[]]),
        json!("x"),
        json!({ "entries": 1 }),
        json!({ "settled": {} }),
    ] {
        for at in 0..bundle.events.len() {
            let mut other = bundle.clone();
            other.events[at].event.payload = odd.clone();
            let mut prev = None;
            for one in &mut other.events {
                if let Some(prev) = prev {
                    one.event.prev_hash = prev;
                }
                one.hash = Hash::of_json(&one.event);
                prev = Some(one.hash);
            }
            assert!(!judged(&other.sealed()).holds);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// Any value in any place of it, sealed as an attacker would: never a panic, never believed.
    #[test]
    fn no_value_anywhere_makes_it_panic(
        place in 0_usize..400,
        value in prop_oneof![
            Just(json!(null)),
            Just(json!([])),
            Just(json!({})),
            any::<u64>().prop_map(|n| json!(n.to_string())),
            ".{0,20}".prop_map(|text| json!(text)),
            "[0-9a-f]{64}".prop_map(|text| json!(text)),
        ],
    ) {
        let bundle = completed();
        let mut all = serde_json::to_value(&bundle).unwrap();
        let mut left = place;
        replace(&mut all, &mut left, &value);
        if let Ok(mut other) = serde_json::from_value::<Bundle>(all) {
            let held = judged(&other.clone().sealed()).holds;
            // When it was made nobody vouches for, and what stands beside an event may be erased.
            other.made_at.clone_from(&bundle.made_at);
            other.sha256 = bundle.sha256;
            for (other, event) in other.events.iter_mut().zip(&bundle.events) {
                if other.private.is_none() {
                    other.private.clone_from(&event.private);
                }
            }
            prop_assert!(!held || other == bundle);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let keys = [key(1).1];
        let trust = Trust { keys: &keys, ..Trust::default() };
        let held = verify(&bytes, &trust).holds;
        prop_assert!(!held);
    }
}

/// Replaces the value at a place, counted depth first.
fn replace(all: &mut Value, left: &mut usize, with: &Value) {
    match all {
        Value::Object(fields) => fields
            .values_mut()
            .for_each(|value| replace(value, left, with)),
        Value::Array(values) => values
            .iter_mut()
            .for_each(|value| replace(value, left, with)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            if *left == 0 {
                *all = with.clone();
            }
            *left = left.wrapping_sub(1);
        }
    }
}

/// What the documents show: a send of which 9,990.00 of 10,000.00 arrived, with its proof.
#[test]
fn the_example_of_the_documents_is_a_bundle() {
    let example = Case::new(RequestKind::Send, None).completed().bundle(false);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/bundle.json");
    let made = [example.to_bytes().unwrap(), b"\n".to_vec()].concat();
    if std::env::var_os("SETTLENET_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(std::fs::read(path).unwrap(), made);
    holds(&example);
}
