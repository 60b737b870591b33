//! Waiting for a saga to end: by signal where it runs in this process, else by asking the master.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::MySqlPool;
use tokio::sync::watch;
use uuid::Uuid;

use crate::stores::StoreError;
use crate::stores::master::sagas;

/// How often the master is asked about a saga that runs elsewhere.
const ASK_EVERY: Duration = Duration::from_millis(50);

#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<Uuid, watch::Sender<()>>>>);

/// A try under way here. Dropped when it has ended, well or not, by a panic too: whoever waits
/// looks again.
pub(super) struct Trying {
    waiting: Waiting,
    saga_id: Uuid,
}

impl Drop for Trying {
    fn drop(&mut self) {
        self.waiting.lock().remove(&self.saga_id);
    }
}

impl Waiting {
    /// A try begins here.
    pub(super) fn begin(&self, saga_id: Uuid) -> Trying {
        self.lock()
            .entry(saga_id)
            .or_insert_with(|| watch::Sender::new(()));
        Trying {
            waiting: self.clone(),
            saga_id,
        }
    }

    pub(super) async fn wait(
        &self,
        master: &MySqlPool,
        saga_id: Uuid,
        bound: Duration,
    ) -> Result<bool, StoreError> {
        let until = Instant::now() + bound;
        loop {
            let here = self.lock().get(&saga_id).map(watch::Sender::subscribe);
            if let Some(mut signal) = here {
                let left = until.saturating_duration_since(Instant::now());
                // An error means that the try has ended and its sender is gone.
                if tokio::time::timeout(left, signal.changed()).await.is_err() {
                    return Ok(false);
                }
            }
            let record = sagas::record(master, saga_id).await?;
            if record.is_none_or(|record| record.status.is_terminal()) {
                return Ok(true);
            }
            if Instant::now() >= until {
                return Ok(false);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, watch::Sender<()>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
