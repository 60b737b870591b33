//! A broker leaves the network: once everything is settled it starts nothing new (`leaving`), its
//! book is frozen and exported, and it is `archived`: its people can't log in, its book is kept
//! and only read.
//!
//! | step | what | it died after it |
//! |---|---|---|
//! | 1 | `leaving`, in the master | the same again goes on |
//! | 2 | the book's fence frozen: nobody writes any more | the same again goes on |
//! | 3 | the book in a file, verified | the same file is taken as it is, where it is the book |
//! | 4 | `archived` with the file's digest; log-ins disabled, in one transaction | it is done |
//!
//! Each time that a broker begins to leave has a number, which also rises before a frozen book is
//! opened again; step 4 is for the number of step 2. So no file of before is taken for the book.
//!
//! What is outstanding is looked at before the first step and after each of the first two, and
//! what is found then takes the step back. Until the last step the broker may stay after all.

pub use crate::stores::master::exits::ExitNumber;

use std::sync::Arc;

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::book_files::{BookFileError, BookFiles, Exported};
use super::payments::{Incoming, Intent, PaymentError, PaymentService, WalletBalance};
use crate::domain::account::{AccountRef, HousePurpose, OwnerKind};
use crate::domain::book_file::Header;
use crate::domain::broker::{Broker, BrokerState};
use crate::domain::fence::{self, Fence, NotOurs};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::pause::Pausable;
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::book::{self, HeldBook};
use crate::stores::master::access::{self, refresh::RevokedBy};
use crate::stores::master::exits::{self, Archived, OpenRequest, OpenSaga};
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::obligations::{self, Position};
use crate::stores::master::{self, brokers, moves, pauses, standing};
use crate::stores::pool::Pool;
use crate::stores::router::Router;

/// Of each kind of thing that is outstanding, at most so many are named; all are counted.
pub const NAMED: usize = 100;
/// Accounts that are read at once.
const PAGE: u32 = 500;

/// Why a broker could not leave, or stay.
#[derive(Debug, thiserror::Error)]
pub enum ExitError {
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error("broker {id} is {state}: {why}")]
    State {
        id: BrokerId,
        state: BrokerState,
        why: &'static str,
    },
    /// Something is outstanding after all: see [`Offboarding::begin`].
    #[error("something must be settled first")]
    Outstanding,
    #[error("the file is of broker {found}, not {id}")]
    AnotherBroker { id: BrokerId, found: BrokerId },
    #[error("the book's fence: {0}")]
    Fence(#[from] NotOurs),
    #[error(transparent)]
    File(#[from] BookFileError),
    #[error("its payments: {0}")]
    Payments(#[from] PaymentError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Things of one kind: how many, and the first of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section<T> {
    pub count: u64,
    pub first: Vec<T>,
}

impl<T> Section<T> {
    fn of(mut all: Vec<T>) -> Self {
        let count = all.len() as u64;
        all.truncate(NAMED);
        Self { count, first: all }
    }

    fn counted((count, first): (u64, Vec<T>)) -> Self {
        Self { count, first }
    }
}

impl<T> Default for Section<T> {
    fn default() -> Self {
        Self {
            count: 0,
            first: Vec::new(),
        }
    }
}

/// An amount that is promised and not yet booked, in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldAmount {
    pub account: AccountId,
    pub subject: String,
    pub amount: u64,
}

/// Money of somebody else's that is in the book, in minor units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenBalance {
    pub owner: AccountRef,
    pub balance: i64,
}

/// All that must be settled before a broker can leave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outstanding {
    pub requests: Section<OpenRequest>,
    pub sagas: Section<OpenSaga>,
    /// What it owes and is owed by active obligations, by counterparty and currency.
    pub obligations: Section<Position>,
    pub reservations: Section<HeldAmount>,
    /// Accounts of clients, partners and cashiers, and suspense accounts. What the house's other
    /// accounts say is the broker's own affair.
    pub balances: Section<OpenBalance>,
    /// Payments through providers that are not over.
    pub intents: Section<Intent>,
    /// Wallets with money on them, or held.
    pub wallets: Section<WalletBalance>,
    /// What came in for its top-ups and is nobody's yet.
    pub incoming: Section<Incoming>,
    /// Its book is being moved.
    pub moving: Option<Uuid>,
}

impl Outstanding {
    #[must_use]
    pub const fn is_nothing(&self) -> bool {
        self.requests.count == 0
            && self.sagas.count == 0
            && self.obligations.count == 0
            && self.reservations.count == 0
            && self.balances.count == 0
            && self.intents.count == 0
            && self.wallets.count == 0
            && self.incoming.count == 0
            && self.moving.is_none()
    }
}

/// How far a broker is on its way out.
#[derive(Clone, Debug, PartialEq)]
pub struct Exit {
    pub broker: Broker,
    pub outstanding: Outstanding,
    pub archived: Option<Archived>,
}

/// Brokers that leave. Clones share everything.
#[derive(Clone)]
pub struct Offboarding {
    master: Pool,
    router: Arc<Router>,
    files: BookFiles,
    payments: PaymentService,
}

impl Offboarding {
    #[must_use]
    pub fn new(master: Pool, router: Arc<Router>, payments: PaymentService) -> Self {
        let files = BookFiles::new(master.clone(), Arc::clone(&router));
        Self {
            master,
            router,
            files,
            payments,
        }
    }

    /// What is outstanding, and how far the broker is. Changes nothing.
    ///
    /// # Errors
    /// [`ExitError::NoSuchBroker`]; the master's and the book's.
    pub async fn look(&self, id: BrokerId) -> Result<Exit, ExitError> {
        let broker = self.broker(id).await?;
        let (outstanding, archived) = match broker.state {
            BrokerState::Archived => {
                let kept = exits::archived(&self.master, id).await?;
                (Outstanding::default(), kept)
            }
            // It has no book yet.
            BrokerState::Provisioning => (Outstanding::default(), None),
            BrokerState::Active | BrokerState::Suspended | BrokerState::Leaving => {
                (self.outstanding(id).await?, None)
            }
        };
        Ok(Exit {
            broker,
            outstanding,
            archived,
        })
    }

    /// Lets a broker begin to leave where nothing is outstanding: it is `leaving` then. Otherwise
    /// it stays as it is, and what must be settled is told. Repeating it changes nothing.
    ///
    /// # Errors
    /// See [`ExitError`].
    pub async fn begin(
        &self,
        id: BrokerId,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Exit, ExitError> {
        let found = self.look(id).await?;
        match found.broker.state {
            BrokerState::Active | BrokerState::Suspended => {}
            BrokerState::Leaving | BrokerState::Archived => return Ok(found),
            state @ BrokerState::Provisioning => {
                let why = "it has to be finished first";
                return Err(ExitError::State { id, state, why });
            }
        }
        if !found.outstanding.is_nothing() {
            return Ok(found);
        }
        self.turn(id, by, now).await?;
        failpoint::at("offboard.leaving");
        // From here on nothing new starts. What has started since the look takes it back.
        let found = self.look(id).await?;
        if found.outstanding.is_nothing() {
            return Ok(found);
        }
        self.stay(id, by, now).await?;
        self.look(id).await
    }

    /// Lets a broker that is leaving stay after all. Repeating it changes nothing, but opens the
    /// book where a first try could not.
    ///
    /// # Errors
    /// [`ExitError::State`] once it is archived; the book's server being away, once it stays.
    pub async fn stay(
        &self,
        id: BrokerId,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Broker, ExitError> {
        match self.broker(id).await?.state {
            BrokerState::Leaving => self.unmark(id, by, now).await?,
            BrokerState::Active | BrokerState::Suspended => {}
            BrokerState::Provisioning => return self.broker(id).await,
            state @ BrokerState::Archived => {
                let why = "it has left";
                return Err(ExitError::State { id, state, why });
            }
        }
        // Only now: whoever would archive it finds that it stays, and the gate is not held while
        // the book's server is waited for.
        self.thaw(id, now).await?;
        self.broker(id).await
    }

    /// Opens a book that is frozen; one that is not stays as it is. Before that a file of now counts
    /// no more: it is not of the book as it will be.
    async fn thaw(&self, id: BrokerId, now: DateTime<Utc>) -> Result<(), ExitError> {
        let (held, epoch) = self.held(id).await?;
        let found = held.fence().await?;
        if found.is_some_and(|fence| fence.state == Fence::Frozen) {
            exits::renumber(&self.master, id).await?;
            held.turn(now, |found| fence::thaw(epoch, found)).await??;
        }
        Ok(())
    }

    /// The broker is one that stays.
    async fn unmark(&self, id: BrokerId, by: &str, now: DateTime<Utc>) -> Result<(), ExitError> {
        let mut tx = master::begin(&self.master).await?;
        standing::turn(&mut tx).await?;
        let locked = brokers::lock(&mut tx, id).await?;
        if locked.is_none_or(|broker| broker.state != BrokerState::Leaving) {
            let (state, why) = (self.broker(id).await?.state, "it is leaving no more");
            return Err(ExitError::State { id, state, why });
        }
        let paused = pauses::open_of(&mut tx, &Pausable::Broker(id)).await?;
        let back = if paused.is_some() {
            BrokerState::Suspended
        } else {
            BrokerState::Active
        };
        if brokers::set_state(&mut tx, id, BrokerState::Leaving, back).await? {
            feed::insert(&mut tx, &told(id, "broker.stays", by), now).await?;
        }
        Ok(master::commit(tx).await?)
    }

    /// Freezes the book of a leaving broker: from here on it is read and never written. Gives
    /// which time of leaving that is for.
    ///
    /// # Errors
    /// [`ExitError::Outstanding`] where the broker has brought something into its book since it
    /// began to leave; the book is open again then.
    pub async fn freeze(&self, id: BrokerId, now: DateTime<Utc>) -> Result<ExitNumber, ExitError> {
        let number = self.leaving(id).await?;
        let (held, epoch) = self.held(id).await?;
        held.turn(now, |found| fence::freeze(epoch, found))
            .await??;
        failpoint::at("offboard.frozen");
        match self.leaving(id).await {
            Ok(now) if now == number => {}
            Ok(_) => {
                let (state, why) = (BrokerState::Leaving, "it has begun to leave anew");
                return Err(ExitError::State { id, state, why });
            }
            Err(error) => {
                // Whoever has let it stay meanwhile found a book that was open. An archived one's
                // stays frozen, and so does one of which nothing is known now.
                if let ExitError::State {
                    state: BrokerState::Active | BrokerState::Suspended,
                    ..
                } = &error
                {
                    self.thaw(id, now).await?;
                }
                return Err(error);
            }
        }
        if self.outstanding(id).await?.is_nothing() {
            return Ok(number);
        }
        self.thaw(id, now).await?;
        Err(ExitError::Outstanding)
    }

    /// Which time a broker is leaving.
    async fn leaving(&self, id: BrokerId) -> Result<ExitNumber, ExitError> {
        let number = exits::number(&self.master, id).await?;
        let state = self.broker(id).await?.state;
        let why = "only a leaving one's book is frozen";
        number
            .filter(|_| state == BrokerState::Leaving)
            .ok_or(ExitError::State { id, state, why })
    }

    /// Whether a file is the export of a frozen book as it is.
    ///
    /// # Errors
    /// What differs.
    pub async fn is_export(&self, id: BrokerId, header: &Header) -> Result<(), ExitError> {
        if header.broker != id {
            let found = header.broker;
            return Err(ExitError::AnotherBroker { id, found });
        }
        Ok(self.files.same(header).await?)
    }

    /// Archives a leaving broker whose book is in a file that was made since it was frozen for that
    /// time of leaving: its people and programs can't log in any more. Repeating it changes nothing.
    ///
    /// # Errors
    /// See [`ExitError`].
    pub async fn archive(
        &self,
        id: BrokerId,
        number: ExitNumber,
        exported: &Exported,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<Exit, ExitError> {
        let kept = Archived {
            export_digest: exported.digest,
            head: exported.header.head,
            by: by.to_owned(),
            at: now,
        };
        let mut tx = master::begin(&self.master).await?;
        standing::turn(&mut tx).await?;
        let state = brokers::lock(&mut tx, id).await?.map(|broker| broker.state);
        match state.ok_or(ExitError::NoSuchBroker { id })? {
            BrokerState::Leaving => {
                // A book that was opened again since has another number before it is.
                if exits::number(&mut tx, id).await? != Some(number) {
                    let (state, why) =
                        (BrokerState::Leaving, "its book is not the one in the file");
                    return Err(ExitError::State { id, state, why });
                }
                brokers::set_state(&mut tx, id, BrokerState::Leaving, BrokerState::Archived)
                    .await?;
                exits::archive(&mut tx, id, &kept).await?;
                access::disable_all(&mut tx, id, RevokedBy::Disabled, now).await?;
                feed::insert(&mut tx, &told(id, "broker.archived", by), now).await?;
                master::commit(tx).await?;
            }
            BrokerState::Archived => {}
            state @ (BrokerState::Provisioning | BrokerState::Active | BrokerState::Suspended) => {
                let why = "only a leaving one is archived";
                return Err(ExitError::State { id, state, why });
            }
        }
        failpoint::at("offboard.archived");
        self.look(id).await
    }

    async fn turn(&self, id: BrokerId, by: &str, now: DateTime<Utc>) -> Result<(), ExitError> {
        let mut tx = master::begin(&self.master).await?;
        standing::turn(&mut tx).await?;
        let state = brokers::lock(&mut tx, id).await?.map(|broker| broker.state);
        let state = state.ok_or(ExitError::NoSuchBroker { id })?;
        match state {
            BrokerState::Active | BrokerState::Suspended => {
                brokers::set_state(&mut tx, id, state, BrokerState::Leaving).await?;
                exits::begin(&mut tx, id, by, now).await?;
                feed::insert(&mut tx, &told(id, "broker.leaving", by), now).await?;
            }
            BrokerState::Provisioning | BrokerState::Leaving | BrokerState::Archived => {}
        }
        Ok(master::commit(tx).await?)
    }

    async fn broker(&self, id: BrokerId) -> Result<Broker, ExitError> {
        let found = brokers::get(&self.master, id).await?;
        found.ok_or(ExitError::NoSuchBroker { id })
    }

    /// The book where it is, and the epoch of its route.
    async fn held(&self, id: BrokerId) -> Result<(HeldBook, u64), ExitError> {
        self.router.forget(id);
        let scope = self.router.book(id).await?;
        let route = scope.route();
        let held = HeldBook::new(&self.router, id, &route.database)?;
        Ok((held, route.epoch))
    }

    async fn outstanding(&self, id: BrokerId) -> Result<Outstanding, ExitError> {
        let named = u32::try_from(NAMED).unwrap_or(u32::MAX);
        let (count, first) = exits::open_requests(&self.master, id, named).await?;
        let sagas = exits::open_sagas(&self.master, id).await?;
        let positions = obligations::positions(&self.master, id).await?;
        let moving = moves::open_of(&self.master, id).await?;
        let payments = self.payments.unsettled(id, named).await?;
        let scope = self.router.book(id).await?;
        let mut read = scope.read().await?;
        let held = book::reservations_held(&mut read).await?;
        let held = held.into_iter().map(|(_, one)| HeldAmount {
            account: one.account,
            subject: one.subject,
            amount: one.amount,
        });
        let mut balances = Vec::new();
        let mut last = None;
        loop {
            let page = book::accounts(&mut read, last, PAGE).await?;
            last = page.last().map(|(id, _)| *id);
            let full = page.len() == PAGE as usize;
            let open = page
                .into_iter()
                .filter(|(_, state)| state.balance.balance != 0 && is_of_others(&state.owner));
            balances.extend(open.map(|(_, state)| OpenBalance {
                owner: state.owner,
                balance: state.balance.balance,
            }));
            if !full {
                break;
            }
        }
        read.end().await?;
        Ok(Outstanding {
            requests: Section::counted((count, first)),
            sagas: Section::of(sagas),
            obligations: Section::of(positions),
            reservations: Section::of(held.collect()),
            balances: Section::of(balances),
            intents: Section::counted(payments.intents),
            wallets: Section::of(payments.wallets),
            incoming: Section::counted(payments.incoming),
            moving: moving.map(|open| open.id),
        })
    }
}

/// Whether what is on an account is somebody else's money: a credit that was diverted waits on
/// the suspense account for whoever it was meant for.
fn is_of_others(owner: &AccountRef) -> bool {
    match owner.owner_kind {
        OwnerKind::Partner | OwnerKind::Cashier => true,
        OwnerKind::House => owner.owner_ref == HousePurpose::Suspense.as_str(),
    }
}

/// For the platform's feed and the broker's own.
fn told(id: BrokerId, kind: &str, by: &str) -> [NewEvent; 2] {
    [feed::PLATFORM, id].map(|broker| NewEvent {
        broker,
        kind: kind.to_owned(),
        subject: id.to_string(),
        payload: if broker == id {
            json!({})
        } else {
            json!({ "by": by })
        },
    })
}
