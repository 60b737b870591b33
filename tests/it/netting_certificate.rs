//! `settlenet verify netting`, and the documents that tell others how to do the same.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use settlenet::domain::ids::ObligationId;
use settlenet::domain::netting::certificate::{Format, write};
use settlenet::domain::netting::{Claim, clear};

use crate::harness::program;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples")
}

/// What the documents show: a ring of three, two of whom owe each other besides, and a fourth to
/// whom nobody owes anything.
fn example() -> String {
    example_of(Format::NEW)
}

fn example_of(format: Format) -> String {
    let claims = [
        (0x1c90_5b7e_f318, 1, 2, 10_000),
        (0x2a44_d0c6_3e71, 2, 3, 5_000),
        (0x6f02_9be1_7d55, 3, 1, 3_000),
        (0x83d7_10fa_446c, 2, 1, 2_000),
        (0xe5b1_6c28_90a3, 4, 1, 700),
    ];
    let claims = claims.map(|(id, debtor, creditor, amount)| Claim {
        id: ObligationId::from_bits(id),
        debtor,
        creditor,
        amount,
    });
    let clearing = clear(&claims);
    let mut text = Vec::new();
    let (prices, lines) = (&clearing.prices, &clearing.lines);
    let usd = "USD".parse().unwrap();
    write(&mut text, format, "NT-4be0a7d21c96", &usd, prices, lines).unwrap();
    String::from_utf8(text).unwrap()
}

fn told(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that has refused its command line doesn't read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    child.wait_with_output().unwrap()
}

fn verify_netting(text: &str, args: &[&str]) -> Output {
    let mut command = Command::new(program());
    command.args(["verify", "netting", "-"]).args(args);
    told(&mut command, text)
}

/// The exit code and what is printed as JSON.
fn verified(text: &str, args: &[&str]) -> (Option<i32>, Value) {
    let output = verify_netting(text, &[args, &["--json"]].concat());
    let printed = serde_json::from_slice(&output.stdout).unwrap();
    (output.status.code(), printed)
}

fn root(text: &str) -> String {
    let head: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    head["root"].as_str().unwrap().to_owned()
}

/// `SETTLENET_BLESS=1` writes the example anew; the formats may only ever be added to.
#[test]
fn the_example_of_the_documents_is_what_the_program_writes() {
    for (format, name) in [
        (Format::V1, "netting-v1.jsonl"),
        (Format::V2, "netting.jsonl"),
    ] {
        let path = examples().join(name);
        let written = example_of(format);
        if std::env::var_os("SETTLENET_BLESS").is_some() {
            std::fs::write(&path, &written).unwrap();
        }
        assert_eq!(std::fs::read_to_string(path).unwrap(), written);
    }
}

#[test]
fn the_command_tells_what_holds_and_ends_with_4_where_it_does_not() {
    let sound = example();
    let root = root(&sound);
    let holds = json!({
        "holds": true,
        "round": "NT-4be0a7d21c96",
        "currency": "USD",
        "brokers": "4",
        "obligations": "5",
        "total": "20700",
        "cleared": "13000",
        "root": root,
    });
    for args in [&[][..], &["--root", &root]] {
        assert_eq!(verified(&sound, args), (Some(0), holds.clone()));
    }
    let human = verify_netting(&sound, &[]);
    let human = String::from_utf8(human.stdout).unwrap();
    assert!(human.contains("holds.\nCurrency: USD\n"), "{human}");

    let other = root.replace(char::is_numeric, "a");
    for (changed, args, why) in [
        (
            sound.replacen("\"3000\"", "\"3001\"", 1),
            &[][..],
            "cleared is",
        ),
        (sound.replacen("USD", "EUR", 1), &[], "sha256"),
        (sound.replacen(":\"", ": \"", 1), &[], "canonical"),
        (sound.clone(), &["--root", &other], "the root is"),
        (String::new(), &[], "line 1"),
    ] {
        let (code, printed) = verified(&changed, args);
        assert_eq!((code, &printed["holds"]), (Some(4), &json!(false)));
        let message = printed["message"].as_str().unwrap();
        assert!(message.contains(why), "{message}");
    }
    let badly = verify_netting(&sound, &["--root", "7"]);
    assert_eq!(badly.status.code(), Some(2));
    let missing = Command::new(program())
        .args(["verify", "netting", "/nowhere/netting.jsonl"])
        .output()
        .unwrap();
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn the_python_of_the_documents_finds_the_same() {
    for format in [Format::V1, Format::V2] {
        python_finds_the_same(&example_of(format));
    }
}

fn python_finds_the_same(sound: &str) {
    let root = root(sound);
    let script = |text: &str, known: &str| {
        let mut python = Command::new("python3");
        let script = examples().join("verify-netting.py");
        python.arg(script).args(["/dev/stdin", known]);
        let output = told(&mut python, text);
        let printed = String::from_utf8(output.stdout).unwrap();
        (output.status.code().unwrap(), printed)
    };
    let (code, printed) = script(sound, &root);
    assert_eq!(code, 0);
    assert_eq!(
        printed,
        format!("holds: 13000 of 20700 USD cleared, root {root}\n")
    );
    let other_root = root.replace(char::is_numeric, "a");
    for (from, to) in [
        ("\"3000\"", "\"3001\""),
        ("USD", "EUR"),
        (":\"", ": \""),
        ("\"price\":\"", "\"price\":\"-"),
        ("netting-v", "netting-v1"),
        ("NT-4", "NT-5"),
        (&root, &other_root),
        ("\n", "\r\n"),
    ] {
        let changed = sound.replacen(from, to, 1);
        let (code, printed) = script(&changed, &root);
        assert_eq!(code, 4, "{from} -> {to}: {printed}");
        assert_eq!(verified(&changed, &[]).0, Some(4), "{from} -> {to}");
    }
}
