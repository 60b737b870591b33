//! Waking the workers of every process when there is work.
//!
//! `NOTIFY` inside a transaction makes commits wait for each other, so none of ours has one. What
//! is committed is told afterwards, by a connection of its own and many commits at once; what is
//! lost of that on the way is found by the workers' polling.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use sqlx::postgres::PgListener;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::domain::payment::PspName;

/// The channel of `LISTEN` and `NOTIFY`.
const CHANNEL: &str = "settlenet_payments";
/// Between two tellings: what is committed within it is told once.
const TELL_EVERY: Duration = Duration::from_millis(5);
/// Before a listener that has lost its connection tries again.
const AGAIN: Duration = Duration::from_secs(1);

/// Clones share everything.
#[derive(Clone, Debug)]
pub struct Wake {
    pm: PgPool,
    /// There is something to tell the other processes.
    tell: Arc<Notify>,
    outbox: Arc<Notify>,
    incoming: Arc<Notify>,
    queues: Arc<BTreeMap<PspName, Arc<Notify>>>,
}

impl Wake {
    pub(super) fn new(pm: PgPool) -> Self {
        let queues = PspName::ALL.iter().map(|psp| (*psp, Arc::default()));
        let queues = Arc::new(queues.collect());
        let (tell, outbox, incoming) = (Arc::default(), Arc::default(), Arc::default());
        Self {
            pm,
            tell,
            outbox,
            incoming,
            queues,
        }
    }

    /// Says that something was committed which is work.
    pub fn up(&self) {
        self.up_here();
        self.tell.notify_one();
    }

    fn up_here(&self) {
        self.outbox.notify_one();
        self.incoming.notify_one();
        for queue in self.queues.values() {
            queue.notify_one();
        }
    }

    /// What the ledger's worker waits for.
    #[must_use]
    pub fn outbox(&self) -> Arc<Notify> {
        Arc::clone(&self.outbox)
    }

    /// What brings payments that came in where they go waits for.
    #[must_use]
    pub fn incoming(&self) -> Arc<Notify> {
        Arc::clone(&self.incoming)
    }

    /// What a provider's worker waits for.
    #[must_use]
    pub fn queue(&self, psp: PspName) -> Arc<Notify> {
        self.queues.get(&psp).map_or_else(Arc::default, Arc::clone)
    }

    /// Tells other processes of what was committed here, until the process ends.
    pub async fn tell_others(&self, stopping: &CancellationToken) {
        loop {
            tokio::select! {
                () = stopping.cancelled() => return,
                () = self.tell.notified() => {}
            }
            let told = sqlx::query("SELECT pg_notify($1, '')").bind(CHANNEL);
            if let Err(error) = told.execute(&self.pm).await {
                tracing::debug!(%error, "others were not told; they look by themselves");
            }
            tokio::time::sleep(TELL_EVERY).await;
        }
    }

    /// Listens to what others have committed, until the process ends.
    pub async fn listen(&self, stopping: &CancellationToken) {
        loop {
            let listening = async {
                let mut listener = PgListener::connect_with(&self.pm).await?;
                listener.listen(CHANNEL).await?;
                loop {
                    listener.recv().await?;
                    self.up_here();
                }
            };
            let ended: Result<(), sqlx::Error> = tokio::select! {
                () = stopping.cancelled() => return,
                ended = listening => ended,
            };
            if let Err(error) = ended {
                tracing::debug!(%error, "listening to others was broken off");
            }
            tokio::select! {
                () = stopping.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }
}
