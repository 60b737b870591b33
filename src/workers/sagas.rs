use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{Found, Served};
use crate::app::App;
use crate::config::Saga;

/// Takes over sagas whose lease has run out, and those whose retry is due.
#[derive(Clone)]
pub(super) struct SagaWorker {
    app: App,
    /// Bounds the sagas that run here at once.
    room: Arc<Semaphore>,
    claim_batch: u32,
}

impl SagaWorker {
    pub(super) fn new(app: App, config: &Saga) -> Self {
        Self {
            app,
            room: Arc::new(Semaphore::new(config.concurrency)),
            claim_batch: config.claim_batch,
        }
    }

    pub(super) async fn claim(&self) -> Served {
        let room = u32::try_from(self.room.available_permits()).unwrap_or(u32::MAX);
        let limit = room.min(self.claim_batch);
        if limit == 0 {
            return Ok(Found::Idle);
        }
        let (lease, claimed) = self.app.engine.claim(limit).await?;
        let count = claimed.len();
        for saga_id in claimed {
            let permit = Arc::clone(&self.room).acquire_owned().await?;
            let task = self.app.engine.take_on(saga_id, lease.clone());
            tokio::spawn(async move {
                // A panic was logged where it happened; the lease runs out.
                drop(task.await);
                drop(permit);
            });
        }
        Ok(if u32::try_from(count) == Ok(limit) {
            Found::More
        } else {
            Found::Idle
        })
    }
}
