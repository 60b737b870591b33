//! Waiting for a saga to end: by signal where it runs in this process, else by asking the master.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use uuid::Uuid;

use crate::domain::request::Request;
use crate::stores::StoreError;
use crate::stores::master::sagas;
use crate::stores::pool::Pool;

/// How often the master is asked about a saga that runs elsewhere.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// What is known of a saga after waiting for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Waited {
    /// It went forward here, and left its request so.
    Forward(Box<Request>),
    /// It has ended, one way or the other: the master says how.
    Ended,
    /// Not within the bound.
    Running,
}

type Signal = watch::Sender<Option<Request>>;

#[derive(Clone, Default)]
pub(super) struct Waiting(Arc<Mutex<HashMap<Uuid, Signal>>>);

/// A try under way here. Dropped when it has ended, well or not, by a panic too: whoever waits
/// looks again.
pub(super) struct Trying {
    waiting: Waiting,
    saga_id: Uuid,
}

impl Trying {
    /// The saga has gone forward: whoever waits need not ask the master.
    pub(super) fn forward(&self, request: Request) {
        if let Some(signal) = self.waiting.lock().get(&self.saga_id) {
            signal.send_replace(Some(request));
        }
    }
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
            .or_insert_with(|| watch::Sender::new(None));
        Trying {
            waiting: self.clone(),
            saga_id,
        }
    }

    pub(super) async fn wait(
        &self,
        master: &Pool,
        saga_id: Uuid,
        bound: Duration,
    ) -> Result<Waited, StoreError> {
        let until = Instant::now() + bound;
        loop {
            let here = self.lock().get(&saga_id).map(Signal::subscribe);
            if let Some(mut signal) = here {
                let left = until.saturating_duration_since(Instant::now());
                match tokio::time::timeout(left, signal.wait_for(Option::is_some)).await {
                    Ok(Ok(left_so)) => {
                        if let Some(request) = left_so.as_ref() {
                            return Ok(Waited::Forward(Box::new(request.clone())));
                        }
                    }
                    // The try has ended otherwise, and its sender is gone.
                    Ok(Err(_)) => {}
                    Err(_) => return Ok(Waited::Running),
                }
            }
            let record = sagas::record(master, saga_id).await?;
            if record.is_none_or(|record| record.status.is_terminal()) {
                return Ok(Waited::Ended);
            }
            if Instant::now() >= until {
                return Ok(Waited::Running);
            }
            tokio::time::sleep(ASK_EVERY).await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Signal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
