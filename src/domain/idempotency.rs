//! The keys that clients name their intentions by.

/// Longest key, in characters.
pub const KEY_MAX: usize = 128;

/// Whether a text can be a key: 1 to [`KEY_MAX`] of visible ASCII. No spaces: a database takes texts
/// for equal that differ by spaces at their end, so two such keys would be one.
#[must_use]
pub fn is_key(text: &str) -> bool {
    (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_short_and_visible() {
        assert!(is_key("a-1") && is_key(&"x".repeat(KEY_MAX)));
        for bad in ["", " ", "a b", "a\0", "ä", &"x".repeat(KEY_MAX + 1)] {
            assert!(!is_key(bad), "{bad:?}");
        }
    }
}
