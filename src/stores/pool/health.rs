use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

/// How long a server may take for a new connection when it is suspected.
const PROOF_OF_LIFE: Duration = Duration::from_secs(1);

/// Whether a server answers; what its pools share.
#[derive(Debug)]
pub struct Health {
    /// To any database of it, or none.
    options: MySqlConnectOptions,
    retry_down_after: Duration,
    down_until: Mutex<Option<Instant>>,
    suspected: AtomicBool,
    /// When a connection was last found broken: those from before are not to be trusted.
    lost: Mutex<Option<Instant>>,
}

impl Health {
    #[must_use]
    pub fn new(options: MySqlConnectOptions, retry_down_after: Duration) -> Self {
        Self {
            options: options.disable_statement_logging(),
            retry_down_after,
            down_until: Mutex::default(),
            suspected: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    #[must_use]
    pub fn is_down(&self) -> bool {
        self.down_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|until| Instant::now() < until)
    }

    pub(super) fn mark_down(&self) {
        let until = Instant::now() + self.retry_down_after;
        *self
            .down_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(until);
    }

    /// A connection broke: the server may have started anew, and closed all others too.
    pub(super) fn lose_trust(&self) {
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// Whether a connection that was last used then may be as dead as one found since.
    pub(super) fn lost_since(&self, used: Instant) -> bool {
        self.lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_some_and(|lost| lost >= used)
    }

    /// A statement had no answer in time: it may be slow, or the server stand still. Asks the
    /// server for a sign of life, in the background.
    pub(super) fn suspect(self: &Arc<Self>) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if self.suspected.swap(true, Ordering::AcqRel) {
            return;
        }
        let health = Arc::clone(self);
        runtime.spawn(async move {
            let alive = async {
                let connection = health.options.connect().await?;
                connection.close().await
            };
            let answer = tokio::time::timeout(PROOF_OF_LIFE, alive).await;
            if !matches!(answer, Ok(Ok(()))) {
                health.mark_down();
            }
            health.suspected.store(false, Ordering::Release);
        });
    }
}
