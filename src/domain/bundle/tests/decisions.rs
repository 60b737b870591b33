//! Decisions of disputes: by the key that is trusted, and just so.

use super::*;

type Sign = fn(&str) -> Vec<String>;

/// A line of a signature by the key of a seed, under a name.
fn by(name: &str, seed: u8, text: &str) -> String {
    let private = SigningKey::from_bytes(&[seed; 32]);
    let public = private.verifying_key().to_bytes();
    let key = NoteKey::new(name, Algorithm::Ed25519, &public).unwrap();
    key.sign(&private, text, 0).to_string()
}

/// Whoever changes a decision, or makes one up, does not have the key.
#[test]
fn a_decision_that_is_not_as_it_was_signed_is_named() {
    let decided = |counts, sign: Sign| {
        let case = Case::new(RequestKind::Send, None).completed();
        case.decided(counts, &|text| sign(text))
    };
    // A key that is being changed, a log that follows another: still the key.
    for sign in [
        (|text| vec![by(ORIGIN, 1, text)]) as Sign,
        |text| vec![by("log.example/2", 1, text)],
        |text| vec![by(ORIGIN, 3, text), by(ORIGIN, 1, text)],
    ] {
        holds(&decided(400_000, sign).bundle(false));
    }
    let mut cases: Vec<Case> = Vec::new();
    for sign in [
        (|_| Vec::new()) as Sign,
        |text| vec![by(ORIGIN, 3, text)],
        |text| vec![by(ORIGIN, 1, &text.replace("400000", "500000"))],
        |_| vec![by(ORIGIN, 1, "settlenet decision v1\n")],
        |text| vec![by(ORIGIN, 1, text); decision::SIGNATURES_MAX + 1],
        |_| vec!["\u{2014} log.example AAAAAAA=".to_owned()],
    ] {
        cases.push(decided(400_000, sign));
    }
    // Changed in the master, with all hashes after it and the log anew.
    for (fact, value) in [
        ("verdict", json!("complete")),
        ("amount", json!("998999")),
        ("private_digest", json!("0".repeat(64))),
        ("final_at", json!("2026-02-02T00:00:00.000000Z")),
        ("by_default", json!(true)),
        ("signatures", json!(null)),
    ] {
        let mut case = decided(400_000, |text| vec![by(ORIGIN, 1, text)]);
        let last = case.events.last_mut().unwrap();
        last.payload[fact] = value;
        last.private = None;
        cases.push(case);
    }
    for case in cases {
        let bundle = case.bundle(false);
        let report = judged(&bundle);
        assert_eq!(
            failing(&report),
            [ClaimKind::Decisions],
            "{:#?}",
            report.claims
        );
        let (code, said) = by_python(&bundle.to_bytes().unwrap());
        assert_eq!(code, Some(4), "{said}");
    }
}
