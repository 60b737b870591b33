//! The feeds: what brokers want to know, in an order that a reader can resume.

use crate::stores::pool::Pool;

use crate::stores::StoreError;
use crate::stores::master::feed;

/// The brokers' feeds. Cheap to clone.
#[derive(Clone)]
pub struct FeedService {
    master: Pool,
}

impl FeedService {
    #[must_use]
    pub const fn new(master: Pool) -> Self {
        Self { master }
    }

    /// Gives committed events their positions, at most `limit`. Gives how many.
    ///
    /// # Errors
    /// The master's.
    pub async fn sequence(&self, limit: u32) -> Result<usize, StoreError> {
        feed::sequence(&self.master, limit).await
    }
}
