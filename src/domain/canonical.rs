//! Canonical JSON (RFC 8785) and its SHA-256: the one way in which anything here is hashed.

use std::ops::Range;

use chrono::{DateTime, NaiveDate, Utc};
use serde::Serialize;
use sha2::{Digest, Sha256};

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// SHA-256 of bytes as they are.
    #[must_use]
    pub fn of_bytes(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// SHA-256 of a value's canonical JSON.
    ///
    /// # Panics
    /// Where a value can't be JSON at all (a map with keys that are no strings): a mistake in
    /// the type, found by its first test.
    #[must_use]
    pub fn of_json<T: Serialize>(value: &T) -> Self {
        let text =
            serde_json_canonicalizer::to_vec(value).expect("hashed types are plain JSON objects");
        Self::of_bytes(&text)
    }

    #[must_use]
    pub fn to_hex(self) -> String {
        let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 15)]);
        let digits = self
            .0
            .iter()
            .flat_map(|byte| [digit(byte >> 4), digit(*byte)]);
        digits.collect()
    }

    /// Reads 64 lower-case hex digits.
    #[must_use]
    pub fn from_hex(text: &str) -> Option<Self> {
        let (digits, []) = text.as_bytes().as_chunks::<2>() else {
            return None;
        };
        let mut bytes = [0; 32];
        if digits.len() != bytes.len() {
            return None;
        }
        let mut all = 0;
        for (byte, [high, low]) in bytes.iter_mut().zip(digits) {
            let (high, low) = (NIBBLES[usize::from(*high)], NIBBLES[usize::from(*low)]);
            *byte = high << 4 | low & 15;
            all |= high | low;
        }
        (all < NO_DIGIT).then_some(Self(bytes))
    }
}

// Hashes are read and written by the million, and in one case only, which the crate `hex` does not
// insist on.
const DIGITS: &[u8; 16] = b"0123456789abcdef";
const NO_DIGIT: u8 = 0x80;
const NIBBLES: [u8; 256] = {
    let mut nibbles = [NO_DIGIT; 256];
    let mut nibble = 0;
    while nibble < 16 {
        nibbles[DIGITS[nibble as usize] as usize] = nibble;
        nibble += 1;
    }
    nibbles
};

impl std::fmt::Debug for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.to_hex())
    }
}

impl Serialize for Hash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_hex())
    }
}

impl<'de> serde::Deserialize<'de> for Hash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::from_hex(&text)
            .ok_or_else(|| serde::de::Error::custom("a hash is 64 lower-case hex digits"))
    }
}

/// RFC 3339 UTC with exactly six decimals: how every time that is hashed is written.
#[must_use]
pub fn time(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// Reads a time that is written so, and in no other way.
#[must_use]
pub fn read_time(text: &str) -> Option<DateTime<Utc>> {
    let bytes: &[u8; 27] = text.as_bytes().try_into().ok()?;
    let marks = [
        (4, b'-'),
        (7, b'-'),
        (10, b'T'),
        (13, b':'),
        (16, b':'),
        (19, b'.'),
        (26, b'Z'),
    ];
    if marks.iter().any(|(at, mark)| bytes[*at] != *mark) {
        return None;
    }
    let number = |at: Range<usize>| {
        bytes[at].iter().try_fold(0, |number: u32, digit| {
            digit
                .is_ascii_digit()
                .then(|| number * 10 + u32::from(digit - b'0'))
        })
    };
    let year = number(0..4)?.try_into().ok()?;
    let date = NaiveDate::from_ymd_opt(year, number(5..7)?, number(8..10)?)?;
    let (hour, minute) = (number(11..13)?, number(14..16)?);
    let at = date.and_hms_micro_opt(hour, minute, number(17..19)?, number(20..26)?)?;
    Some(at.and_utc())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn hashes_are_read_in_the_one_way_in_which_they_are_written(
            bytes in any::<[u8; 32]>(),
            at in any::<prop::sample::Index>(),
            other in any::<char>(),
        ) {
            let hash = Hash(bytes);
            let text = hash.to_hex();
            prop_assert_eq!(&text, &hex::encode(bytes));
            prop_assert_eq!(Hash::from_hex(&text), Some(hash));
            let mut changed: Vec<char> = text.chars().collect();
            let at = at.index(changed.len());
            changed[at] = other;
            let changed: String = changed.into_iter().collect();
            if let Some(read) = Hash::from_hex(&changed) {
                prop_assert_eq!(read.to_hex(), changed);
            }
            prop_assert_eq!(Hash::from_hex(&text[1..]), None);
            prop_assert_eq!(Hash::from_hex(&format!("{text}00")), None);
            prop_assert_eq!(Hash::from_hex(&text.to_uppercase()).is_some(), text == text.to_uppercase());
        }

        #[test]
        fn times_are_read_in_the_one_way_in_which_they_are_written(
            micros in -62_135_596_800_000_000..253_402_300_800_000_000_i64,
            at in any::<prop::sample::Index>(),
            other in any::<char>(),
        ) {
            let moment = DateTime::from_timestamp_micros(micros).unwrap();
            let text = time(moment);
            prop_assert_eq!(read_time(&text), Some(moment));
            let mut changed: Vec<char> = text.chars().collect();
            let at = at.index(changed.len());
            changed[at] = other;
            let changed: String = changed.into_iter().collect();
            if let Some(read) = read_time(&changed) {
                prop_assert_eq!(time(read), changed);
            }
        }
    }
}
