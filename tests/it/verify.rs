//! `settlenet verify chain`, and the documents that tell others how to do the same.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use settlenet::domain::account::{AccountRef, HousePurpose, Side};
use settlenet::domain::canonical::Hash;
use settlenet::domain::chain::{self, Entry, EntryKind, ExportedEntry, FORMAT, PlannedEntry};
use settlenet::stores::book;
use uuid::Uuid;

use crate::harness::{World, program};

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")
}

/// A file of the test's own, gone when dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(text: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("settlenet-chain-{}", Uuid::new_v4()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn verify_chain(text: &[u8], args: &[&str]) -> Output {
    let file = Scratch::new(text);
    let mut command = Command::new(program());
    command.args(["verify", "chain", "--file"]).arg(&file.0);
    command.args(args).output().unwrap()
}

/// The exit code and what is printed as JSON.
fn verified(text: &[u8], args: &[&str]) -> (Option<i32>, Value) {
    let output = verify_chain(text, &[args, &["--json"]].concat());
    let printed = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), printed)
}

/// What the documents show: a debit, a credit with free text, and its reversal.
fn example() -> Vec<ExportedEntry> {
    let usd = "USD".parse().unwrap();
    let main = |broker| AccountRef::house(broker, HousePurpose::Main, &usd);
    let planned = |broker, side, amount| PlannedEntry {
        leg: 0,
        account: main(broker),
        side,
        amount,
        kind: EntryKind::RequestPrincipal,
    };
    let saga = |n: u128| Uuid::from_u128(0x0193_a5b0_7c3e_7abc_8def_0123_4567_8900 + n);
    let digest = |n, subject, first, second, amount| {
        let (one, two) = (planned(1, first, amount), planned(2, second, amount));
        let steps = if first == Side::Debit { (3, 5) } else { (5, 3) };
        chain::op_digest(saga(n), subject, [(steps.0, &one), (steps.1, &two)])
    };
    let note = json!({ "note": "Delivered at the Deira office" });
    let at = |seconds: i64| -> DateTime<Utc> {
        DateTime::from_timestamp_micros(1_767_261_600_250_000 + seconds * 1_000_000).unwrap()
    };
    let (sent, received) = ("NR-00000a5bb4c1", "NR-00000a5bb4d7");
    let credit = Entry {
        v: FORMAT,
        broker: 1,
        seq: 2,
        saga_id: saga(2),
        step: 5,
        leg: 0,
        kind: EntryKind::RequestPrincipal,
        subject: received.to_owned(),
        account: main(1).id(),
        diverted_from: None,
        side: Side::Credit,
        amount: 25_000,
        currency: usd.clone(),
        balance: -975_000,
        op_digest: digest(2, received, Side::Credit, Side::Debit, 25_000),
        reverses_seq: None,
        private_digest: Some(Hash::of_json(&note)),
        booked_at: at(60),
        prev_hash: chain::genesis(1),
    };
    let mut entries = [
        Entry {
            seq: 1,
            saga_id: saga(1),
            step: 3,
            subject: sent.to_owned(),
            side: Side::Debit,
            amount: 1_000_000,
            balance: -1_000_000,
            op_digest: digest(1, sent, Side::Debit, Side::Credit, 1_000_000),
            private_digest: None,
            booked_at: at(0),
            ..credit.clone()
        },
        credit.clone(),
        Entry {
            seq: 3,
            step: 1_005,
            side: Side::Debit,
            balance: -1_000_000,
            reverses_seq: Some(2),
            private_digest: None,
            booked_at: at(61),
            ..credit
        },
    ];
    let mut prev = chain::genesis(1);
    for entry in &mut entries {
        entry.prev_hash = prev;
        prev = entry.hash();
    }
    entries
        .iter()
        .map(|entry| ExportedEntry {
            entry: entry.canonical(),
            private: entry.private_digest.map(|_| note.clone()),
            tx_hash: entry.hash(),
        })
        .collect()
}

fn text(entries: &[ExportedEntry]) -> String {
    entries
        .iter()
        .map(|entry| entry.to_line().unwrap())
        .collect()
}

/// `SETTLENET_BLESS=1` writes the example anew; the format may only ever be added to.
#[test]
fn the_example_of_the_documents_is_what_the_program_writes() {
    let path = docs().join("examples/chain.jsonl");
    let written = text(&example());
    if std::env::var_os("SETTLENET_BLESS").is_some() {
        std::fs::write(&path, &written).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap(), written);
}

/// Every block of shell in docs/formats.md prints the block of text that follows it.
#[test]
fn what_the_documents_compute_comes_out() {
    let page = std::fs::read_to_string(docs().join("formats.md")).unwrap();
    let mut runs = 0;
    for part in page.split("```sh\n").skip(1) {
        let (script, rest) = part.split_once("```\n").unwrap();
        let expected = rest
            .trim_start()
            .strip_prefix("```text\n")
            .and_then(|rest| rest.split_once("```"))
            .map(|(expected, _)| expected);
        let Some(expected) = expected else { continue };
        // The page says `settlenet` for the program, wherever it is installed.
        let bin = program().parent().unwrap();
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let output = Command::new("sh")
            .args(["-ec", script])
            .current_dir(docs())
            .env("PATH", path)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            expected,
            "{script}"
        );
        runs += 1;
    }
    assert!(runs >= 5, "{runs} computed examples");
}

#[test]
fn the_shell_script_of_the_documents_finds_the_same() {
    let entries = example();
    let script = |text: &str, known: &str| {
        let file = Scratch::new(text.as_bytes());
        let output = Command::new("sh")
            .arg(docs().join("examples/verify-chain.sh"))
            .args([file.0.to_str().unwrap(), "1", known])
            .output()
            .unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), printed.trim_end().to_owned())
    };
    let head = format!("3:{}", entries[2].tx_hash);
    let whole = text(&entries);
    assert_eq!(
        script(&whole, &head),
        (0, format!("holds: 3 entries, head {head}"))
    );
    for (changed, found) in [
        (
            whole.replacen("\"25000\"", "\"25001\"", 1),
            "first bad seq: 2 (tx_hash)",
        ),
        (text(&entries[1..]), "first bad seq: 1 (gap)"),
        (text(&entries[..2]), "first bad seq: 3 (cut tail)"),
        (
            text(&[entries[0].clone(), entries[2].clone()]),
            "first bad seq: 2 (gap)",
        ),
    ] {
        assert_eq!(script(&changed, &head), (4, found.to_owned()));
    }
}

#[test]
fn the_command_names_the_first_bad_seq_and_ends_with_4() {
    let entries = example();
    let head = format!("3:{}", entries[2].tx_hash);
    let whole = text(&entries);
    let holds = json!({
        "holds": true,
        "broker": "1",
        "entries": "3",
        "head": { "seq": "3", "hash": entries[2].tx_hash },
        "balances": [{ "account": entries[0].entry.account, "currency": "USD", "balance": "-1000000" }],
    });
    for args in [&[][..], &["--broker", "1"], &["--head", &head]] {
        assert_eq!(verified(whole.as_bytes(), args), (Some(0), holds.clone()));
    }
    let human = verify_chain(whole.as_bytes(), &[]);
    let human = String::from_utf8(human.stdout).unwrap();
    assert!(
        human.starts_with("The chain of broker 1 holds.\nEntries: 3\n"),
        "{human}"
    );

    let first = format!("1:{}", entries[0].tx_hash);
    let (code, part) = verified(text(&entries[1..]).as_bytes(), &["--after", &first]);
    assert_eq!((code, &part["entries"]), (Some(0), &json!("2")));

    let swapped = [&entries[0], &entries[2], &entries[1]].map(Clone::clone);
    for (changed, args, seq, problem) in [
        (
            whole.replacen("\"25000\"", "\"25001\"", 1),
            &[][..],
            "2",
            "tx_hash",
        ),
        (whole.replacen("Deira", "Deirb", 1), &[], "2", "private"),
        (text(&swapped), &[], "2", "gap"),
        (text(&entries[1..]), &[], "1", "gap"),
        (text(&entries[..2]), &["--head", &head], "3", "cut_tail"),
        (whole.clone(), &["--broker", "2"], "1", "wrong_broker"),
        (
            whole.clone(),
            &["--head", &head.replacen("3:", "2:", 1)],
            "2",
            "rewritten",
        ),
        (whole.replace('\n', "\r\n"), &[], "1", "line"),
        ("{}\n".to_owned(), &["--after", &first], "2", "line"),
        (
            String::new(),
            &["--broker", "1", "--head", &head],
            "1",
            "cut_tail",
        ),
    ] {
        let (code, printed) = verified(changed.as_bytes(), args);
        assert_eq!(code, Some(4), "{printed}");
        let found = (
            &printed["holds"],
            &printed["first_bad_seq"],
            &printed["problem"],
        );
        assert_eq!(found, (&json!(false), &json!(seq), &json!(problem)));
    }
}

#[test]
fn what_could_not_be_checked_does_not_end_with_4() {
    for (args, code) in [
        (&["--head", "7"][..], 2),
        (&["--head", &format!("0:{}", chain::genesis(1))], 2),
        (&["--broker", "x"], 2),
        (&[], 1),
    ] {
        let output = verify_chain(b"", args);
        assert_eq!(output.status.code(), Some(code), "{args:?}");
        assert!(
            output.stdout.is_empty() && !output.stderr.is_empty(),
            "{args:?}"
        );
    }
    let missing = Command::new(program())
        .args(["verify", "chain", "--file", "/nowhere/chain.jsonl"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_that_was_really_written_holds_and_each_change_to_it_is_found() {
    let world = World::new().await;
    for _ in 0..3 {
        let id = world.sent(world.alpha, world.beta).await;
        let beta = World::actor(world.beta);
        let confirmed = world.app.network.confirm_received(&beta, id, None).await;
        confirmed.expect("is confirmed");
    }
    let scope = world.app.systems.router.book(world.alpha).await.unwrap();
    let mut read = scope.read().await.unwrap();
    let stored = book::entries_after(&mut read, 0, 10).await.unwrap();
    read.end().await.unwrap();
    let entries: Vec<ExportedEntry> = stored.iter().map(book::StoredEntry::exported).collect();
    assert_eq!(entries.len(), 3);
    let head = format!("3:{}", entries[2].tx_hash);
    let broker = world.alpha.to_string();
    let args = ["--broker", &broker, "--head", &head];
    assert_eq!(verified(text(&entries).as_bytes(), &args).0, Some(0));
    for index in 0..entries.len() {
        let mut cut = entries.clone();
        cut.remove(index);
        let (code, printed) = verified(text(&cut).as_bytes(), &args);
        let due = (index + 1).to_string();
        assert_eq!((code, &printed["first_bad_seq"]), (Some(4), &json!(due)));
    }
}
