use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, Duration, DurationRound, Utc};

/// Where the time comes from. Nothing else in the product asks the system for it, so a test
/// moves it for everything at once, child processes too.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The system's clock.
    System,
    /// Stands still until it is moved.
    Manual(Arc<AtomicI64>),
    /// The system's clock plus the microseconds written in a file, and a fixed skew besides:
    /// how a test moves the time of servers that it started (debug builds only).
    Shifted { file: PathBuf, skew: Duration },
}

impl Clock {
    /// The clock that the environment asks for: in a debug build `SETTLENET_TEST_CLOCK` names
    /// the file of a shifted clock and `SETTLENET_TEST_SKEW_MS` its skew in milliseconds; a
    /// release build always has the system's.
    #[must_use]
    pub fn from_env() -> Self {
        #[cfg(debug_assertions)]
        if let Some(file) = std::env::var_os("SETTLENET_TEST_CLOCK") {
            let skew = std::env::var("SETTLENET_TEST_SKEW_MS")
                .ok()
                .and_then(|text| text.parse().ok())
                .unwrap_or(0);
            return Self::Shifted {
                file: file.into(),
                skew: Duration::milliseconds(skew),
            };
        }
        Self::System
    }

    #[must_use]
    pub fn manual(start: DateTime<Utc>) -> Self {
        Self::Manual(Arc::new(AtomicI64::new(start.timestamp_micros())))
    }

    /// The present, in whole microseconds: what a DATETIME(6) keeps.
    #[must_use]
    pub fn now(&self) -> DateTime<Utc> {
        match self {
            Self::System => micros(Utc::now()),
            Self::Manual(at) => {
                DateTime::from_timestamp_micros(at.load(Ordering::SeqCst)).unwrap_or_default()
            }
            Self::Shifted { file, skew } => {
                let shift = std::fs::read_to_string(file)
                    .ok()
                    .and_then(|text| text.trim().parse().ok())
                    .unwrap_or(0);
                micros(Utc::now() + Duration::microseconds(shift) + *skew)
            }
        }
    }

    /// What a database is to take for the present where the clocks of several processes would be
    /// compared; `None` where it has its own: one clock for all. A test's time goes with it, and
    /// a skew does not.
    #[must_use]
    pub fn shared(&self) -> Option<DateTime<Utc>> {
        match self {
            Self::System => None,
            Self::Manual(_) => Some(self.now()),
            Self::Shifted { skew, .. } => Some(self.now() - *skew),
        }
    }

    /// Moves a manual clock; the others have their own mind.
    pub fn advance(&self, by: Duration) {
        if let Self::Manual(at) = self {
            at.fetch_add(by.num_microseconds().unwrap_or(0), Ordering::SeqCst);
        }
    }
}

fn micros(at: DateTime<Utc>) -> DateTime<Utc> {
    at.duration_trunc(Duration::microseconds(1)).unwrap_or(at)
}
