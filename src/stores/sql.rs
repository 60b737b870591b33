//! Small pieces of SQL that several stores put together.

use chrono::{DateTime, Utc};
use sqlx::{Encode, MySql, QueryBuilder, Type};

/// Where a page of a list begins that is newest first by `time` and `id`: after the last row of
/// the page before. Spelt out, because MariaDB doesn't use an index for `(a, b) < (?, ?)`.
pub(super) fn push_after<'q, I: Encode<'q, MySql> + Type<MySql> + Copy>(
    builder: &mut QueryBuilder<MySql>,
    (time, id): (&str, &str),
    (last_time, last_id): (DateTime<Utc>, I),
) {
    builder
        .push(format!(" AND ({time} < "))
        .push_bind(last_time)
        .push(format!(" OR ({time} = "))
        .push_bind(last_time)
        .push(format!(" AND {id} < "))
        .push_bind(last_id)
        .push("))");
}

/// `?, ?, ?` for `count` values.
pub(super) fn placeholders(count: usize) -> String {
    let mut text = "?, ".repeat(count);
    text.truncate(text.len().saturating_sub(2));
    text
}

/// Rows that go in one statement whatever their number.
const FEW: usize = 8;

/// Splits `count` rows into powers of two, largest first, and a few that are left, so that a
/// server sees few different statements whatever the size of a batch, and each stays prepared.
pub(super) fn chunks(count: usize) -> impl Iterator<Item = usize> {
    let mut left = count;
    std::iter::from_fn(move || {
        let size = match left {
            0 => return None,
            1..=FEW => left,
            _ => 1 << left.ilog2(),
        };
        left -= size;
        Some(size)
    })
}

/// The next power of two: an `IN` list padded to it (with a repeated value) stays prepared.
pub(super) fn padded(count: usize) -> usize {
    count.next_power_of_two()
}

/// The values of such a list.
pub(super) fn list_of<T>(values: &[T]) -> impl Iterator<Item = &T> {
    let last = values.last().into_iter().cycle();
    values.iter().chain(last).take(padded(values.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts() {
        assert_eq!(placeholders(3), "?, ?, ?");
        assert_eq!(chunks(13).collect::<Vec<_>>(), [8, 5]);
        assert_eq!(chunks(100).collect::<Vec<_>>(), [64, 32, 4]);
        assert_eq!(chunks(0).count(), 0);
        assert_eq!(padded(5), 8);
        assert_eq!(
            list_of(&[1, 2, 3]).copied().collect::<Vec<_>>(),
            [1, 2, 3, 3]
        );
    }
}
