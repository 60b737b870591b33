//! A decision in a dispute, as the server signs it: a few lines that a person can read, with the hash of
//! the event that has the decision. The signatures stand in that event themselves, so they are left
//! out of the hash that they cover.

use serde_json::Value;

use super::canonical::Hash;
use super::note::{NoteKey, NoteSignature};
use super::request_event::CanonicalEvent;

/// Where the signatures stand among an event's facts.
pub const SIGNATURES: &str = "signatures";
/// Most signatures that are read of one decision: those of keys that are being changed.
pub const SIGNATURES_MAX: usize = 10;

/// The text that is signed. The event may have its signatures already, or not yet.
#[must_use]
pub fn text(event: &CanonicalEvent) -> String {
    let mut event = event.clone();
    if let Value::Object(facts) = &mut event.payload {
        facts.remove(SIGNATURES);
    }
    let fact = |name: &str| {
        event
            .payload
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or("-")
    };
    format!(
        "settlenet decision v1\nrequest {}\nseq {}\nverdict {}\namount {}\nevent {}\n",
        event.request,
        event.seq,
        fact("verdict"),
        fact("amount"),
        Hash::of_json(&event),
    )
}

/// The keys, of those that are trusted, by which a decision is signed. A log that follows another
/// has another name and may have the same keys, so a key counts under whatever name it has signed.
///
/// # Errors
/// In words: there is no signature by any of them, or one of them does not verify.
pub fn signed_by<'k>(
    event: &CanonicalEvent,
    trusted: &'k [NoteKey],
) -> Result<Vec<&'k NoteKey>, String> {
    let lines = event.payload.get(SIGNATURES).and_then(Value::as_array);
    let lines = lines.ok_or("is not signed")?;
    if lines.len() > SIGNATURES_MAX {
        return Err(format!("has more than {SIGNATURES_MAX} signatures"));
    }
    let text = text(event);
    let mut by: Vec<&NoteKey> = Vec::new();
    for line in lines {
        let line = line.as_str().unwrap_or_default();
        let signature: NoteSignature = line
            .parse()
            .map_err(|_| "has a line that is no signature")?;
        for key in trusted {
            let Ok(named) = NoteKey::new(&signature.name, key.algorithm(), &key.public()) else {
                continue;
            };
            if named.id() != signature.id {
                continue;
            }
            if !named.verifies(&text, &signature) {
                return Err(format!("is not what {} has signed", signature.name));
            }
            if !by.contains(&key) {
                by.push(key);
            }
        }
    }
    if by.is_empty() {
        return Err("is signed by no key that is trusted".to_owned());
    }
    Ok(by)
}

#[cfg(test)]
mod tests {
    use ed25519_dalek::SigningKey;
    use serde_json::json;

    use super::*;
    use crate::domain::note::Algorithm;

    type Change = fn(&mut CanonicalEvent);

    fn key(name: &str, seed: u8) -> (SigningKey, NoteKey) {
        let private = SigningKey::from_bytes(&[seed; 32]);
        let public = private.verifying_key().to_bytes();
        let key = NoteKey::new(name, Algorithm::Ed25519, &public).unwrap();
        (private, key)
    }

    fn decided() -> CanonicalEvent {
        CanonicalEvent {
            actor: "US-9".to_owned(),
            actor_broker: None,
            at: "2026-01-01T10:00:00.000000Z".to_owned(),
            kind: "decided".to_owned(),
            payload: json!({ "verdict": "adjust", "amount": "400000", "by_default": false }),
            prev_hash: Hash([1; 32]),
            request: "NR-00000a5bb4c1".to_owned(),
            seq: "7".to_owned(),
            v: 1,
        }
    }

    fn signed(private: &SigningKey, key: &NoteKey) -> CanonicalEvent {
        let mut event = decided();
        let line = key.sign(private, &text(&event), 0).to_string();
        event.payload[SIGNATURES] = json!([line]);
        event
    }

    #[test]
    fn the_text_is_for_people_and_has_the_events_hash() {
        let event = decided();
        let expected = format!(
            "settlenet decision v1\nrequest NR-00000a5bb4c1\nseq 7\nverdict adjust\namount 400000\n\
             event {}\n",
            Hash::of_json(&event)
        );
        assert_eq!(text(&event), expected);
        let (private, key) = key("log.example", 1);
        assert_eq!(text(&signed(&private, &key)), expected);
    }

    #[test]
    fn nothing_of_it_can_be_another() {
        let (private, first) = key("log.example", 1);
        let (_, later) = key("log.example/2", 1);
        let (_, stranger) = key("log.example", 2);
        let event = signed(&private, &first);
        let trusted = [stranger.clone(), later];
        assert_eq!(signed_by(&event, &trusted).unwrap(), [&trusted[1]]);
        assert!(
            signed_by(&event, &[stranger])
                .unwrap_err()
                .contains("no key")
        );
        assert!(
            signed_by(&decided(), &trusted)
                .unwrap_err()
                .contains("not signed")
        );
        for change in [
            (|event| event.payload["verdict"] = json!("complete")) as Change,
            |event| event.payload["amount"] = json!("400001"),
            |event| event.payload["private_digest"] = json!("00"),
            |event| event.actor = "US-8".to_owned(),
            |event| event.at = "2026-01-01T10:00:00.000001Z".to_owned(),
            |event| event.seq = "8".to_owned(),
            |event| event.request = "NR-00000a5bb4c2".to_owned(),
            |event| event.prev_hash = Hash([2; 32]),
            |event| event.payload[SIGNATURES] = json!(["\u{2014} log.example AAAA"]),
            |event| event.payload[SIGNATURES] = json!([7]),
            |event| event.payload[SIGNATURES] = json!([]),
            |event| event.payload[SIGNATURES] = json!(vec!["x"; SIGNATURES_MAX + 1]),
        ] {
            let mut event = event.clone();
            change(&mut event);
            assert!(signed_by(&event, &trusted).is_err(), "{event:?}");
        }
    }
}
