use proptest::prelude::*;

use super::*;

/// The example of the Go module that the format comes from (golang.org/x/mod/sumdb/note).
const VKEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const SIGNED: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n\
    \n\
    \u{2014} PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";

fn key(name: &str, seed: u8, algorithm: Algorithm) -> (SigningKey, NoteKey) {
    let private = SigningKey::from_bytes(&[seed; 32]);
    let public = private.verifying_key().to_bytes();
    (private, NoteKey::new(name, algorithm, &public).unwrap())
}

#[test]
fn a_known_note_verifies() {
    let key: NoteKey = VKEY.parse().unwrap();
    assert_eq!(key.to_string(), VKEY);
    let note = Note::parse(SIGNED.as_bytes()).unwrap();
    assert_eq!(note.to_string(), SIGNED);
    let keys = [key];
    assert_eq!(note.signed_by(&keys).unwrap(), [&keys[0]]);
    let mut other = note.clone();
    other.text.insert(3, 'x');
    assert_eq!(other.signed_by(&keys), Err(NoteError::Wrong(0xc74f_20a3)));
}

#[test]
fn unknown_keys_are_ignored_and_wrong_signatures_are_not() {
    let text = "log.example\n1\nroot\n";
    let (ours, our_key) = key("log.example", 1, Algorithm::Ed25519);
    let (witness, witness_key) = key("witness.example", 2, Algorithm::Cosignature);
    let (_, same_name) = key("log.example", 3, Algorithm::Ed25519);
    let note = Note {
        text: text.to_owned(),
        signatures: vec![
            our_key.sign(&ours, text, 0),
            witness_key.sign(&witness, text, 1_700_000_000),
        ],
    };
    let note = Note::parse(note.to_string().as_bytes()).unwrap();
    let both = [our_key.clone(), witness_key.clone()];
    assert_eq!(note.signed_by(&both).unwrap().len(), 2);
    assert_eq!(note.signed_by(&both[..1]).unwrap(), [&our_key]);
    assert_eq!(note.signed_by(&[same_name]), Err(NoteError::Unknown));
    assert_eq!(note.signed_by(&[]), Err(NoteError::Unknown));
    for place in 0..2 {
        for byte in 0..note.signatures[place].bytes.len() {
            let mut other = note.clone();
            other.signatures[place].bytes[byte] ^= 1;
            let wrong = NoteError::Wrong(both[place].id());
            assert_eq!(other.signed_by(&both), Err(wrong), "{place}: {byte}");
        }
    }
    // A cosignature is of its moment: it is no plain signature of the same key.
    let plain = NoteKey::new("witness.example", Algorithm::Ed25519, &witness_key.public());
    assert_ne!(plain.unwrap().id(), witness_key.id());
}

#[test]
fn what_is_no_note_is_refused() {
    let line = "\u{2014} a AAAAAAAA\n";
    let note = |text: &str| Note::parse(text.as_bytes()).map(drop);
    assert_eq!(note("a\n"), Err(NoteError::Form));
    assert_eq!(note("a\n\n"), Err(NoteError::Form));
    assert_eq!(note(&format!("\n\n{line}")), Err(NoteError::Form));
    assert_eq!(
        note(&format!("a\n\n{}", line.trim_end())),
        Err(NoteError::Form)
    );
    assert_eq!(note("a\n\n- a AAAAAAAA\n"), Err(NoteError::Line));
    assert_eq!(note("a\n\n\u{2014} a AAAA\n"), Err(NoteError::Line));
    assert_eq!(note("a\n\n\u{2014} a+b AAAAAAAA\n"), Err(NoteError::Name));
    assert_eq!(note(&format!("a\r\n\n{line}")), Err(NoteError::Text));
    let many = format!("a\n\n{}", line.repeat(SIGNATURES_MAX + 1));
    assert_eq!(note(&many), Err(NoteError::TooMany));
    assert_eq!(note(&"a".repeat(NOTE_MAX + 1)), Err(NoteError::TooLong));
    assert_eq!(note(&format!("a\n\nb\n\n{line}")), Ok(()));
    for text in ["", "a", "a+b", "a+00000000+AQ==", &VKEY.replace("c7", "c8")] {
        assert_eq!(text.parse::<NoteKey>(), Err(NoteError::Key), "{text}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        if let Ok(note) = Note::parse(&bytes) {
            prop_assert!(note.text.len() <= bytes.len() && note.signatures.len() <= SIGNATURES_MAX);
        }
        if let Ok(text) = std::str::from_utf8(&bytes) {
            let _ = text.parse::<NoteKey>();
            let _ = text.parse::<NoteSignature>();
        }
    }

    #[test]
    fn almost_notes_are_read_as_they_are_written(
        text in "[a-z\n]{1,40}", name in "[a-z+ ]{0,6}", bytes in prop::collection::vec(any::<u8>(), 0..90),
    ) {
        let note = format!("{text}\n\n\u{2014} {name} {}\n", STANDARD.encode(bytes));
        if let Ok(read) = Note::parse(note.as_bytes()) {
            prop_assert_eq!(read.to_string(), note);
        }
    }
}
