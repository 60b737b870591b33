//! One session with the ledger, and its replacement when the server has evicted it.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tigerbeetle_unofficial::Client;
use tigerbeetle_unofficial::error::{SendError, SendErrorKind};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{LedgerConfig, LedgerError};

/// Gives every call a deadline, a bound on how many are under way, and a session that lives.
#[derive(Debug)]
pub(super) struct Sessions {
    config: LedgerConfig,
    current: Mutex<Option<Arc<Session>>>,
}

struct Session {
    client: Arc<Client>,
    /// Calls that the client has and hasn't answered, given up by their callers or not: it keeps
    /// them for ever while the server is away.
    under_way: Arc<Semaphore>,
    /// An evicted client never answers what comes after; whoever waits is told by this.
    ended: CancellationToken,
    _end_on_drop: DropGuard,
}

/// Why a session gave no answer.
pub(super) enum Silence {
    Evicted,
    Other(String),
}

impl Sessions {
    pub(super) fn open(config: LedgerConfig) -> Result<Self, LedgerError> {
        let sessions = Self {
            config,
            current: Mutex::new(None),
        };
        sessions.session()?;
        Ok(sessions)
    }

    /// Runs one request within the deadline. After an eviction it is sent once more in a new
    /// session, since a repeat changes nothing.
    pub(super) async fn call<T, F, Fut>(
        &self,
        call: &'static str,
        request: F,
    ) -> Result<T, LedgerError>
    where
        T: Send + 'static,
        F: Fn(Arc<Client>) -> Fut,
        Fut: Future<Output = Result<T, Silence>> + Send + 'static,
    {
        let unknown = |reason: String| LedgerError::Unknown { call, reason };
        let deadline = Instant::now() + self.config.timeout;
        for last in [false, true] {
            let session = self.session().map_err(|error| unknown(error.to_string()))?;
            let answer = session.run(request(Arc::clone(&session.client)));
            match tokio::time::timeout_at(deadline, answer).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(Silence::Evicted)) if !last => self.retire(&session),
                Ok(Err(Silence::Evicted)) => {
                    self.retire(&session);
                    break;
                }
                Ok(Err(Silence::Other(reason))) => return Err(unknown(reason)),
                Err(_) => return Err(unknown(late(self.config.timeout))),
            }
        }
        Err(unknown("evicted twice: too many clients".to_owned()))
    }

    fn session(&self) -> Result<Arc<Session>, LedgerError> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*current {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::open(&self.config)?);
        *current = Some(Arc::clone(&session));
        Ok(session)
    }

    /// Ends a session, unless another call has already done so; the next call opens a new one.
    fn retire(&self, session: &Arc<Session>) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current
            .as_ref()
            .is_some_and(|now| Arc::ptr_eq(now, session))
        {
            tracing::warn!("the ledger evicted this client; a new session begins");
            *current = None;
        }
        session.ended.cancel();
    }
}

impl Session {
    fn open(config: &LedgerConfig) -> Result<Self, LedgerError> {
        let addresses: Vec<String> = config.addresses.iter().map(ToString::to_string).collect();
        let client = Client::new(config.cluster_id, addresses.join(","))
            .map_err(|error| LedgerError::Client(error.to_string()))?;
        let ended = CancellationToken::new();
        Ok(Self {
            client: Arc::new(client),
            under_way: Arc::new(Semaphore::new(config.calls_max)),
            _end_on_drop: ended.clone().drop_guard(),
            ended,
        })
    }

    /// The request runs in a task of its own: the client has it until it answers, so it counts
    /// as under way even when its caller has gone.
    async fn run<T, Fut>(&self, request: Fut) -> Result<T, Silence>
    where
        T: Send + 'static,
        Fut: Future<Output = Result<T, Silence>> + Send + 'static,
    {
        let permit = tokio::select! {
            permit = Arc::clone(&self.under_way).acquire_owned() => permit,
            () = self.ended.cancelled() => return Err(Silence::Evicted),
        };
        let permit = permit.map_err(|closed| Silence::Other(closed.to_string()))?;
        let ended = self.ended.clone();
        let task = tokio::spawn(async move {
            let _permit = permit;
            tokio::select! {
                answer = request => answer,
                () = ended.cancelled() => Err(Silence::Evicted),
            }
        });
        task.await
            .unwrap_or_else(|failed| Err(Silence::Other(failed.to_string())))
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("room", &self.under_way.available_permits())
            .finish_non_exhaustive()
    }
}

impl From<SendError> for Silence {
    fn from(error: SendError) -> Self {
        match error.kind() {
            // A request that was queued behind the evicted one is told of a shutdown.
            SendErrorKind::ClientEvicted | SendErrorKind::ClientShutdown => Self::Evicted,
            _ => Self::Other(error.to_string()),
        }
    }
}

impl From<String> for Silence {
    fn from(reason: String) -> Self {
        Self::Other(reason)
    }
}

fn late(timeout: Duration) -> String {
    format!("no answer within {} ms", timeout.as_millis())
}
