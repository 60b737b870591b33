use std::future::Future;
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

/// A task that was to outlive its caller has panicked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the work broke off")]
pub struct BrokeOff;

/// Whether the process is stopping, and what it must still finish. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct Lifecycle {
    stopping: CancellationToken,
    tasks: TaskTracker,
}

impl Lifecycle {
    /// Cancelled when the process is to stop: loops end, long answers break off.
    #[must_use]
    pub const fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }

    /// Runs work that goes on when its caller is dropped, as a handler is when its client hangs
    /// up: whatever opens a transaction belongs in here. Stopping waits for it.
    ///
    /// # Errors
    /// [`BrokeOff`] where it panicked.
    pub async fn detached<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, BrokeOff> {
        let task = self.tasks.spawn(work.in_current_span());
        task.await.map_err(|_| BrokeOff)
    }

    /// Says that the process is to stop.
    pub fn stop(&self) {
        self.stopping.cancel();
        self.tasks.close();
    }

    /// Waits until all that was [`detached`](Self::detached) is finished; false where `at_most`
    /// is over first.
    pub async fn finished(&self, at_most: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(at_most, self.tasks.wait())
            .await
            .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn work_outlives_its_caller_and_stopping_waits_for_it() {
        let lifecycle = Lifecycle::default();
        let (go, wait) = tokio::sync::oneshot::channel::<()>();
        let (done, seen) = tokio::sync::oneshot::channel::<()>();
        let mut caller = Box::pin(lifecycle.detached(async move {
            wait.await.ok();
            done.send(()).ok();
        }));
        assert!(futures::poll!(&mut caller).is_pending());
        drop(caller);
        lifecycle.stop();
        assert!(!lifecycle.finished(Duration::from_millis(1)).await);
        go.send(()).unwrap();
        assert!(lifecycle.finished(Duration::from_secs(30)).await);
        assert!(seen.await.is_ok());
    }

    #[tokio::test]
    async fn a_panic_is_an_error() {
        let lifecycle = Lifecycle::default();
        let result = lifecycle.detached(async { panic!("on purpose") }).await;
        assert_eq!(result, Err(BrokeOff));
    }
}
