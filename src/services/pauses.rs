//! Pausing the network, a broker or a currency. What runs is finished, nothing new starts: once a
//! pause has answered, no request is created or accepted any more that it concerns (see
//! `stores::master::standing`). Every pause is kept, with who and why.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde_json::json;

use crate::domain::broker::BrokerState;
use crate::domain::ids::BrokerId;
use crate::domain::money::CurrencyCode;
use crate::domain::pause::{Pausable, Pause};
use crate::domain::reason::{self, NotAReason};
use crate::stores::StoreError;
use crate::stores::master::currencies::CurrencyRegistry;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::{self, MasterTx, brokers, pauses, standing};
use crate::stores::pool::Pool;

/// Tries at the gate, which others hold for the length of their commits, and the pause between
/// two. A try waits for locks by itself, for seconds.
const TRIES: u32 = 5;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Why something was not paused, or not resumed.
#[derive(Debug, thiserror::Error)]
pub enum PauseError {
    #[error(transparent)]
    Reason(#[from] NotAReason),
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("no currency {code}")]
    NoSuchCurrency { code: CurrencyCode },
    #[error("no pause {id}")]
    NoSuchPause { id: u64 },
    #[error("broker {id} is {state}: only an active one is paused")]
    BrokerState { id: BrokerId, state: BrokerState },
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work has panicked.
    #[error("the work was broken off")]
    BrokenOff,
}

/// A pause that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Paused {
    Now(Pause),
    /// It was paused already, or this intention has paused it before.
    Before(Pause),
}

impl Paused {
    #[must_use]
    pub fn into_pause(self) -> Pause {
        match self {
            Self::Now(pause) | Self::Before(pause) => pause,
        }
    }
}

/// Pauses. Cheap to clone.
#[derive(Clone)]
pub struct PauseService {
    master: Pool,
    currencies: Arc<CurrencyRegistry>,
}

impl PauseService {
    #[must_use]
    pub const fn new(master: Pool, currencies: Arc<CurrencyRegistry>) -> Self {
        Self { master, currencies }
    }

    /// Pauses something; what is paused already stays as it is, with its first reason. `by` is the
    /// subject of who asks. An intention is recorded with it: a repeat gives the pause that it
    /// made, lifted or not, and never pauses anew.
    ///
    /// # Errors
    /// See [`PauseError`].
    pub async fn pause(
        &self,
        what: Pausable,
        reason: &str,
        by: &str,
        intention: Option<Intention>,
        now: DateTime<Utc>,
    ) -> Result<Paused, PauseError> {
        let reason = reason::checked(reason)?;
        if let Pausable::Currency(code) = &what
            && self.currencies.get(code).await?.is_none()
        {
            return Err(PauseError::NoSuchCurrency { code: code.clone() });
        }
        let (this, by) = (self.clone(), by.to_owned());
        whole(async move {
            let mut tried = 0;
            loop {
                if let Some(known) = this.known(intention.as_ref()).await? {
                    return Ok(Paused::Before(known));
                }
                let once = this.pause_once(&what, &reason, &by, intention.as_ref(), now);
                match once.await {
                    Err(PauseError::Store(error))
                        if (error.is_duplicate() || is_busy(&error)) && tried < TRIES =>
                    {
                        tried += 1;
                        tokio::time::sleep(BETWEEN_TRIES).await;
                    }
                    other => return other,
                }
            }
        })
        .await
    }

    /// Lifts what is paused; gives the pause as it was lifted, or nothing where it is not paused.
    ///
    /// # Errors
    /// See [`PauseError`].
    pub async fn resume(
        &self,
        what: Pausable,
        reason: Option<&str>,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Pause>, PauseError> {
        self.end(what, None, reason, by, now).await
    }

    /// Lifts the pause of something; only a certain one, where its number is given.
    async fn end(
        &self,
        what: Pausable,
        which: Option<u64>,
        reason: Option<&str>,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Pause>, PauseError> {
        let reason = reason.map(reason::checked).transpose()?;
        let (this, by) = (self.clone(), by.to_owned());
        whole(async move {
            let mut tried = 0;
            loop {
                let once = this.end_once(&what, which, reason.as_deref(), &by, now);
                match once.await {
                    Err(PauseError::Store(error)) if is_busy(&error) && tried < TRIES => {
                        tried += 1;
                        tokio::time::sleep(BETWEEN_TRIES).await;
                    }
                    other => return other,
                }
            }
        })
        .await
    }

    /// Lifts one pause; gives it as it is then. One that was lifted before stays as it is.
    ///
    /// # Errors
    /// [`PauseError::NoSuchPause`]; see there.
    pub async fn lift(
        &self,
        id: u64,
        reason: Option<&str>,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Pause, PauseError> {
        let pause = self.one(id).await?;
        if pause.lifted.is_none() {
            self.end(pause.what, Some(id), reason, by, now).await?;
        }
        self.one(id).await
    }

    /// Pauses, newest first; `before` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        open_only: bool,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Pause>, PauseError> {
        Ok(pauses::list(&self.master, open_only, before, limit).await?)
    }

    async fn one(&self, id: u64) -> Result<Pause, PauseError> {
        let found = pauses::get(&self.master, id).await?;
        found.ok_or(PauseError::NoSuchPause { id })
    }

    async fn known(&self, intention: Option<&Intention>) -> Result<Option<Pause>, PauseError> {
        let Some(intention) = intention else {
            return Ok(None);
        };
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(PauseError::KeyReused),
            Some(Known::Same { subject }) => {
                let id = subject.parse().map_err(|_| PauseError::KeyReused)?;
                self.one(id).await.map(Some)
            }
        }
    }

    async fn pause_once(
        &self,
        what: &Pausable,
        reason: &str,
        by: &str,
        intention: Option<&Intention>,
        now: DateTime<Utc>,
    ) -> Result<Paused, PauseError> {
        let mut tx = master::begin(&self.master).await?;
        standing::turn(&mut tx).await?;
        let open = pauses::open_of(&mut tx, what).await?;
        let id = if let Some(pause) = &open {
            pause.id
        } else {
            if let Some(id) = what.broker() {
                suspend(&mut tx, id).await?;
            }
            let id = pauses::insert(&mut tx, what, reason, by, now).await?;
            tell(&mut tx, what, "paused", Some(reason), now).await?;
            id
        };
        if let Some(intention) = intention {
            idempotency::insert(&mut tx, intention, &id.to_string(), now).await?;
        }
        master::commit(tx).await?;
        match open {
            Some(pause) => Ok(Paused::Before(pause)),
            None => Ok(Paused::Now(self.one(id).await?)),
        }
    }

    async fn end_once(
        &self,
        what: &Pausable,
        which: Option<u64>,
        reason: Option<&str>,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<Pause>, PauseError> {
        let mut tx = master::begin(&self.master).await?;
        standing::turn(&mut tx).await?;
        let mut open = pauses::open_of(&mut tx, what).await?.map(|pause| pause.id);
        if let Some(id) = what.broker() {
            let state = brokers::lock(&mut tx, id).await?.map(|broker| broker.state);
            let suspended = state.ok_or(PauseError::NoSuchBroker { id })? == BrokerState::Suspended;
            if suspended && open.is_none() {
                // By a process of a release that kept no pauses.
                let unknown = "suspended before reasons were kept";
                open = Some(pauses::insert(&mut tx, what, unknown, "unknown", now).await?);
            }
            if suspended && which.is_none_or(|which| open == Some(which)) {
                brokers::set_state(&mut tx, id, BrokerState::Suspended, BrokerState::Active)
                    .await?;
            }
        }
        // Another one that was made meanwhile stays.
        let Some(id) = open.filter(|open| which.is_none_or(|which| which == *open)) else {
            return Ok(None);
        };
        pauses::lift(&mut tx, id, reason, by, now).await?;
        tell(&mut tx, what, "resumed", reason, now).await?;
        master::commit(tx).await?;
        self.one(id).await.map(Some)
    }
}

/// Marks a broker as suspended.
async fn suspend(tx: &mut MasterTx, id: BrokerId) -> Result<(), PauseError> {
    let state = brokers::lock(tx, id).await?.map(|broker| broker.state);
    match state.ok_or(PauseError::NoSuchBroker { id })? {
        BrokerState::Active => {
            brokers::set_state(tx, id, BrokerState::Active, BrokerState::Suspended).await?;
            Ok(())
        }
        BrokerState::Suspended => Ok(()),
        state @ (BrokerState::Provisioning | BrokerState::Leaving | BrokerState::Archived) => {
            Err(PauseError::BrokerState { id, state })
        }
    }
}

/// Tells the platform's feed, and those whom it concerns: the broker, or all of them.
async fn tell(
    tx: &mut MasterTx,
    what: &Pausable,
    done: &str,
    reason: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let event = NewEvent {
        broker: feed::PLATFORM,
        kind: format!("{}.{done}", what.scope()),
        subject: match what {
            Pausable::Network => "network".to_owned(),
            Pausable::Broker(id) => id.to_string(),
            Pausable::Currency(code) => code.to_string(),
        },
        payload: json!({ "reason": reason }),
    };
    match what {
        Pausable::Broker(id) => {
            let own = NewEvent {
                broker: *id,
                ..event.clone()
            };
            feed::insert(tx, &[event, own], now).await
        }
        Pausable::Network | Pausable::Currency(_) => {
            feed::insert_for_all(tx, &event, now).await?;
            feed::insert(tx, &[event], now).await
        }
    }
}

const fn is_busy(error: &StoreError) -> bool {
    matches!(error, StoreError::Busy { .. })
}

/// Runs work to its end in a task of its own, whether or not the caller stays.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, PauseError>> + Send + 'static,
) -> Result<T, PauseError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(PauseError::BrokenOff))
}
