//! Small pieces of SQL text that depend on a count.

/// `?, ?, ?` for `count` values.
pub(super) fn placeholders(count: usize) -> String {
    let mut text = "?, ".repeat(count);
    text.truncate(text.len().saturating_sub(2));
    text
}

/// Splits `count` rows into powers of two, largest first, so that a server sees few different
/// statements whatever the size of a batch, and each stays prepared.
pub(super) fn chunks(count: usize) -> impl Iterator<Item = usize> {
    (0..usize::BITS)
        .rev()
        .map(|bit| 1 << bit)
        .filter(move |size| count & size != 0)
}

/// The next power of two: an `IN` list padded to it (with a repeated value) stays prepared.
pub(super) fn padded(count: usize) -> usize {
    count.next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(placeholders(3), "?, ?, ?");
        assert_eq!(chunks(13).collect::<Vec<_>>(), [8, 4, 1]);
        assert_eq!(chunks(0).count(), 0);
        assert_eq!(padded(5), 8);
    }
}
