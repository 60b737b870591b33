use chrono::DateTime;
use serde_json::{Value, json};

use super::*;
use crate::domain::chain::{self, CanonicalEntry, Entry, EntryKind};

const LENGTH: u64 = 7;

/// A chain of two accounts, with a diversion, a reversal and free text.
fn entries() -> Vec<Entry> {
    let mut chain: Vec<Entry> = Vec::new();
    let mut balances = [0_i64; 2];
    for seq in 1..=LENGTH {
        let account = usize::from(seq % 3 == 0);
        let side = if seq % 2 == 0 {
            Side::Debit
        } else {
            Side::Credit
        };
        let moved = i64::try_from(seq).unwrap() * 1_000;
        balances[account] += if seq % 2 == 0 { -moved } else { moved };
        chain.push(Entry {
            v: FORMAT,
            broker: 12,
            seq,
            saga_id: Uuid::from_u128(u128::from(seq) << 64),
            step: 3,
            leg: 0,
            kind: EntryKind::RequestPrincipal,
            subject: format!("NR-{seq:012x}"),
            account: AccountId::from_bits(0xab + u64::from(seq % 3 == 0)),
            diverted_from: (seq == 3).then(|| AccountId::from_bits(1)),
            side,
            amount: seq * 1_000,
            currency: "USD".parse().unwrap(),
            balance: balances[account],
            op_digest: Hash([9; 32]),
            reverses_seq: (seq == 5).then_some(4),
            private_digest: (seq == 6).then(|| Hash::of_json(&note())),
            booked_at: DateTime::from_timestamp_micros(1_767_225_600_000_000).unwrap(),
            prev_hash: chain.last().map_or_else(|| chain::genesis(12), Entry::hash),
        });
    }
    chain
}

fn note() -> Value {
    json!({ "note": "counted twice — ждём" })
}

/// Links and hashes the entries anew, as somebody would who rewrites the whole chain.
fn rehashed(mut entries: Vec<Entry>) -> Vec<Entry> {
    let mut prev = chain::genesis(12);
    for entry in &mut entries {
        entry.prev_hash = prev;
        prev = entry.hash();
    }
    entries
}

fn lines(entries: &[Entry]) -> Vec<Vec<u8>> {
    let line = |entry: &Entry| ExportedEntry {
        entry: entry.canonical(),
        private: entry.private_digest.map(|_| note()),
        tx_hash: entry.hash(),
    };
    entries
        .iter()
        .map(|entry| line(entry).to_line().unwrap().into_bytes())
        .collect()
}

fn head(entries: &[Entry]) -> Head {
    let last = entries.last().unwrap();
    Head {
        seq: last.seq,
        hash: last.hash(),
    }
}

fn run(mut verifier: Verifier, text: &[u8]) -> Result<Verified, Fault> {
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        verifier.line(line)?;
    }
    verifier.finish()
}

fn verify(lines: &[Vec<u8>], known: Option<Head>) -> Result<Verified, Fault> {
    let verifier = Verifier::from_genesis(12);
    let verifier = match known {
        Some(known) => verifier.expecting(known),
        None => verifier,
    };
    run(verifier, &lines.concat())
}

/// The first bad seq and what is wrong.
fn fault(result: Result<Verified, Fault>) -> (u64, &'static str) {
    match result {
        Ok(verified) => panic!("holds: {verified:?}"),
        Err(fault) => (fault.seq, fault.problem.code()),
    }
}

#[test]
fn a_chain_that_nobody_touched_holds() {
    let entries = entries();
    let verified = verify(&lines(&entries), Some(head(&entries))).unwrap();
    assert_eq!((verified.entries, verified.head), (LENGTH, head(&entries)));
    let balances: Vec<i64> = verified.balances.values().map(|(_, sum)| *sum).collect();
    assert_eq!(balances, [7_000, -3_000]);
}

#[test]
fn a_part_holds_after_a_known_entry() {
    let entries = entries();
    let (before, after) = entries.split_at(3);
    let part = Verifier::after(12, head(before)).expecting(head(&entries));
    let verified = run(part.clone(), &lines(after).concat()).unwrap();
    assert_eq!(verified.entries, LENGTH - 3);
    let missing = run(part, &lines(&after[1..]).concat());
    assert_eq!(fault(missing), (4, "gap"));
}

#[test]
fn any_changed_byte_is_found_at_its_entry() {
    let lines = lines(&entries());
    // What precedes the change is verified once, not again for each of the changes.
    let mut verifier = Verifier::from_genesis(12);
    for (index, line) in lines.iter().enumerate() {
        for at in 0..line.len() {
            for changed in [0x01, 0x02, 0x10, 0x20, 0x80, 0xff]
                .map(|flip| line[at] ^ flip)
                .into_iter()
                .chain([b'\n', b'0', b'"', b'}'])
                .filter(|changed| *changed != line[at])
            {
                let mut rest = lines[index..].to_vec();
                rest[0][at] = changed;
                let found = run(verifier.clone(), &rest.concat());
                let found = found.map(drop).map_err(|fault| fault.seq);
                let expected = Err(index as u64 + 1);
                assert_eq!(found, expected, "byte {at} of line {index}: {changed:#x}");
            }
        }
        verifier.line(line).unwrap();
    }
}

#[test]
fn a_deleted_entry_is_found_at_its_place() {
    let entries = entries();
    let lines = lines(&entries);
    for index in 0..lines.len() {
        let mut cut = lines.clone();
        cut.remove(index);
        let expected = if index + 1 == lines.len() {
            "cut_tail"
        } else {
            "gap"
        };
        let found = fault(verify(&cut, Some(head(&entries))));
        assert_eq!(found, (index as u64 + 1, expected));
    }
}

#[test]
fn two_swapped_entries_are_found_at_the_first_of_them() {
    let lines = lines(&entries());
    for first in 0..lines.len() {
        for second in first + 1..lines.len() {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            assert_eq!(fault(verify(&swapped, None)), (first as u64 + 1, "gap"));
        }
    }
}

#[test]
fn a_tail_cut_beyond_a_known_head_is_found() {
    let entries = entries();
    let lines = lines(&entries);
    for kept in 0..lines.len() {
        let cut = &lines[..kept];
        let known = head(&entries[..=kept]);
        assert_eq!(
            fault(verify(cut, Some(known))),
            (kept as u64 + 1, "cut_tail")
        );
        // The chain alone doesn't show it.
        assert!(verify(cut, None).is_ok());
        // In the middle of a line it does.
        let mut torn = cut.to_vec();
        torn.push(lines[kept][..lines[kept].len() / 2].to_vec());
        assert_eq!(fault(verify(&torn, None)), (kept as u64 + 1, "line"));
    }
    let longer = verify(&lines, Some(head(&entries[..4]))).unwrap();
    assert_eq!(longer.entries, LENGTH, "a chain may have grown since");
}

#[test]
fn a_chain_rewritten_with_its_hashes_is_found_by_a_known_head() {
    let known = head(&entries());
    let mut rewritten = entries();
    for entry in &mut rewritten[2..] {
        entry.subject = "NR-000000000bad".to_owned();
    }
    let rewritten = lines(&rehashed(rewritten));
    assert!(
        verify(&rewritten, None).is_ok(),
        "it is a right chain, of another book"
    );
    assert_eq!(
        fault(verify(&rewritten, Some(known))),
        (LENGTH, "rewritten")
    );
    let earlier = head(&entries()[..3]);
    assert_eq!(fault(verify(&rewritten, Some(earlier))), (3, "rewritten"));
}

/// What can't be hidden by hashing anew.
#[test]
fn a_wrong_book_is_found_however_well_it_is_linked() {
    type Change = fn(&mut Vec<Entry>);
    let changes: [(Change, u64, &str); 9] = [
        (|e| e[3].amount += 1, 4, "balance"),
        (|e| e[3].balance += 1, 4, "balance"),
        (|e| e[3].side = Side::Credit, 4, "balance"),
        (|e| e[3].currency = "EUR".parse().unwrap(), 4, "currency"),
        (|e| e[3].broker = 13, 4, "wrong_broker"),
        (|e| e[3].v = FORMAT + 1, 4, "unknown_version"),
        (|e| e[4].reverses_seq = Some(5), 5, "reverses"),
        (|e| e[4].saga_id = e[1].saga_id, 5, "repeated"),
        (|e| e[5].private_digest = Some(Hash([0; 32])), 6, "private"),
    ];
    for (change, seq, code) in changes {
        let mut entries = entries();
        change(&mut entries);
        assert_eq!(fault(verify(&lines(&rehashed(entries)), None)), (seq, code));
    }
    let mut restarted = entries();
    restarted.remove(0);
    assert_eq!(
        fault(verify(&lines(&rehashed(restarted)), None)),
        (1, "gap")
    );
}

#[test]
fn a_field_has_one_spelling() {
    type Change = fn(&mut CanonicalEntry);
    let changes: [(Change, &str); 12] = [
        (|e| e.amount = "01000".into(), "amount"),
        (|e| e.amount = "0".into(), "amount"),
        (|e| e.amount = "-1000".into(), "amount"),
        (|e| e.balance = "+1000".into(), "balance"),
        (|e| e.balance = "-0".into(), "balance"),
        (|e| e.seq = "1.0".into(), "seq"),
        (|e| e.saga = e.saga.to_uppercase(), "saga"),
        (|e| e.at = "2026-01-01T00:00:00Z".into(), "at"),
        (|e| e.at = "2026-01-01T02:00:00.000000+02:00".into(), "at"),
        (|e| e.subject = "NR 1".into(), "subject"),
        (|e| e.side = "Debit".into(), "side"),
        (|e| e.op_digest = e.op_digest.replace('0', "A"), "op_digest"),
    ];
    let mut first = entries()[0].canonical();
    first.saga = "00000000-0000-0001-0000-00000000abcd".into();
    for (change, expected) in changes {
        let mut entry = first.clone();
        change(&mut entry);
        let exported = ExportedEntry {
            tx_hash: Hash::of_json(&entry),
            private: None,
            entry,
        };
        match Verifier::from_genesis(12).exported(&exported) {
            Err(Fault {
                seq: 1,
                problem: Problem::Field { field, .. },
            }) => {
                assert_eq!(field, expected);
            }
            other => panic!("{expected}: {other:?}"),
        }
    }
}

#[test]
fn another_writing_of_the_same_line_is_refused() {
    let line = String::from_utf8(lines(&entries())[0].clone()).unwrap();
    for changed in [
        line.replacen(':', ": ", 1),
        line.replace('\n', "\r\n"),
        line.replace("\"broker\":\"12\"", "\"broker\":\"\\u00312\""),
        line.replace("\"diverted_from\":null,", ""),
        line.replace("},\"tx_hash\"", "},\"private\":null,\"tx_hash\""),
        line.replace("\"v\":1}", "\"v\":1,\"x\":1}"),
        line.replace("\"v\":1}", "\"v\":1,\"v\":1}"),
        line.replace("\"v\":1}", "\"v\":1.0}"),
        format!(" {line}"),
        "\n".to_owned(),
    ] {
        assert_ne!(changed, line);
        assert!(
            ExportedEntry::from_line(changed.as_bytes()).is_err(),
            "{changed}"
        );
    }
    let endless = vec![b' '; chain::LINE_MAX + 1];
    assert_eq!(ExportedEntry::from_line(&endless), Err(LineError::TooLong));
}

#[test]
fn an_erased_text_breaks_nothing() {
    let entries = entries();
    let mut lines = lines(&entries);
    let erased = ExportedEntry {
        entry: entries[5].canonical(),
        private: None,
        tx_hash: entries[5].hash(),
    };
    lines[5] = erased.to_line().unwrap().into_bytes();
    assert!(verify(&lines, None).is_ok());
}

/// A book's own head says where its chain ends, and nothing may follow.
#[test]
fn a_chain_ends_at_its_books_head_and_nowhere_else() {
    let entries = entries();
    let text = lines(&entries).concat();
    let ending = |end| run(Verifier::from_genesis(12).ending_at(end), &text);
    let end = head(&entries);
    assert_eq!(ending(end).unwrap().entries, LENGTH);
    assert_eq!(fault(ending(head(&entries[..5]))), (6, "beyond_head"));
    let seq = LENGTH + 2;
    assert_eq!(fault(ending(Head { seq, ..end })), (LENGTH + 1, "cut_tail"));
    let hash = Hash([0; 32]);
    assert_eq!(fault(ending(Head { hash, ..end })), (LENGTH, "rewritten"));
    let empty = Verifier::from_genesis(12);
    assert!(empty.clone().ending_at(empty.head()).finish().is_ok());
    let other = empty.ending_at(Head { seq: 0, hash }).finish();
    assert_eq!(fault(other), (0, "rewritten"));
}

#[test]
fn what_does_not_hold_is_not_counted_among_what_does() {
    let mut lines = lines(&entries());
    lines[5] = String::from_utf8(lines[5].clone())
        .unwrap()
        .replace("twice", "thrice")
        .into_bytes();
    let mut verifier = Verifier::from_genesis(12);
    for line in &lines[..5] {
        verifier.line(line).unwrap();
    }
    let found = verifier.line(&lines[5]).map(drop).unwrap_err();
    assert_eq!((found.seq, found.problem), (6, Problem::Private));
    assert_eq!(verifier.head().seq, 5);
}

#[test]
fn heads_are_read_as_they_are_written() {
    let head = head(&entries());
    assert_eq!(head.to_string().parse(), Ok(head));
    for text in ["", "7", "7:", ":00", "x:00", "7:zz"] {
        assert_eq!(text.parse::<Head>(), Err(HeadError), "{text}");
    }
}
