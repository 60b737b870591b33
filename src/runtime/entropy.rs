use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use rand::rngs::{StdRng, SysRng};
use rand::{Rng, SeedableRng};
use uuid::Uuid;

/// Where randomness comes from: the operating system, or a seed so that a run can be replayed.
/// Never the source of keys and secrets, which always come from the operating system.
#[derive(Clone, Debug)]
pub struct Entropy(Arc<Mutex<StdRng>>);

impl Entropy {
    /// Seeded by the operating system, or in a debug build by `SETTLENET_TEST_SEED`.
    ///
    /// # Panics
    /// Where the operating system has no randomness to give: nothing could run safely.
    #[must_use]
    pub fn from_env() -> Self {
        #[cfg(debug_assertions)]
        if let Some(seed) = std::env::var("SETTLENET_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
        {
            return Self::seeded(seed);
        }
        let rng = StdRng::try_from_rng(&mut SysRng).expect("the operating system gives randomness");
        Self(Arc::new(Mutex::new(rng)))
    }

    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(StdRng::seed_from_u64(seed))))
    }

    /// A time-ordered uuid (version 7): rows made together stand together in an index.
    #[must_use]
    pub fn uuid(&self, now: DateTime<Utc>) -> Uuid {
        let mut random = [0u8; 10];
        self.fill(&mut random);
        let millis = u64::try_from(now.timestamp_millis()).unwrap_or(0);
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    /// A number in `0..bound`; 0 for a bound of 0.
    #[must_use]
    pub fn below(&self, bound: u64) -> u64 {
        let mut bytes = [0u8; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes).checked_rem(bound).unwrap_or(0)
    }

    fn fill(&self, bytes: &mut [u8]) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .fill_bytes(bytes);
    }
}
