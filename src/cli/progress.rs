//! A line on standard error now and then, so that long work is seen to go on.

use std::sync::Mutex;
use std::time::{Duration, Instant};

const TELL_EVERY: Duration = Duration::from_secs(2);

/// Tells how far something is, not too often.
pub(super) struct Progress {
    unit: &'static str,
    told: Mutex<Instant>,
}

impl Progress {
    /// `unit` is what is counted, in the plural.
    pub(super) fn new(unit: &'static str) -> Self {
        let told = Mutex::new(Instant::now());
        Self { unit, told }
    }

    pub(super) fn at(&self, done: u64, of: u64) {
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        if told.elapsed() >= TELL_EVERY {
            *told = Instant::now();
            eprintln!("{done} of {of} {}", self.unit);
        }
    }
}
