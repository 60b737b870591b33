//! Where a queue is looked at.
//!
//! Rows that have ended leave the queue's index only once no transaction anywhere is older than
//! their end. While one is, the index begins with what is dead, and whoever looks from its beginning
//! walks over all of it each time. So a look goes on where the last one ended, and only now and then
//! begins at the beginning: for rows that wait for their time, or were written by a clock that is
//! behind.

use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

/// A look begins at the beginning this often at least.
const SWEEP_EVERY: TimeDelta = TimeDelta::seconds(1);
/// How much older a row may be than the moment it is committed in, to be found before that.
const LATE: TimeDelta = TimeDelta::seconds(5);

/// Of one queue, in one process.
#[derive(Debug, Default)]
pub(super) struct Cursor(Mutex<State>);

#[derive(Debug)]
struct State {
    from: DateTime<Utc>,
    swept: DateTime<Utc>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            from: DateTime::UNIX_EPOCH,
            swept: DateTime::UNIX_EPOCH,
        }
    }
}

impl Cursor {
    /// From which time of creation to look now.
    pub(super) fn begin(&self, now: DateTime<Utc>) -> DateTime<Utc> {
        self.with(|state| {
            // A clock may be set back.
            if (now - state.swept).abs() >= SWEEP_EVERY {
                state.swept = now;
                state.from = DateTime::UNIX_EPOCH;
            }
            state.from
        })
    }

    /// What a look found: the newest row's time of creation, and whether there may be more behind
    /// it.
    pub(super) fn found(&self, newest: Option<DateTime<Utc>>, more: bool, now: DateTime<Utc>) {
        self.with(|state| {
            state.from = match newest {
                Some(newest) if more => newest,
                _ => now - LATE,
            };
        });
    }

    /// There is work on a row of that time again.
    pub(super) fn back_to(&self, created_at: DateTime<Utc>) {
        self.with(|state| state.from = state.from.min(created_at));
    }

    /// There may be work on any.
    pub(super) fn reset(&self) {
        self.back_to(DateTime::UNIX_EPOCH);
    }

    fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_000_000 + second, 0).unwrap()
    }

    #[test]
    fn it_goes_on_where_it_was_and_begins_again_now_and_then() {
        let cursor = Cursor::default();
        let begin = DateTime::UNIX_EPOCH;
        let half = at(100) + TimeDelta::milliseconds(500);
        assert_eq!(cursor.begin(at(100)), begin);
        cursor.found(Some(at(40)), true, at(100));
        assert_eq!(cursor.begin(half), at(40));
        cursor.found(None, false, half);
        assert_eq!(cursor.begin(half), half - LATE, "all that is due was seen");
        cursor.back_to(at(30));
        assert_eq!(cursor.begin(half), at(30));
        cursor.back_to(at(50));
        assert_eq!(cursor.begin(half), at(30));
        assert_eq!(cursor.begin(at(101)), begin, "a second has passed");
        cursor.found(Some(at(60)), false, at(101));
        assert_eq!(cursor.begin(at(90)), begin, "the clock was set back");
        cursor.found(Some(at(60)), true, at(90));
        cursor.reset();
        assert_eq!(cursor.begin(at(90)), begin);
    }
}
