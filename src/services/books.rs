//! A broker's own book: its accounts, entries that it makes by itself, and its chain.

mod export;
mod own_entry;
mod partners;
mod statement;
mod swap;
mod verify;

pub use crate::stores::book::{Bound, BoundSet, StoredEntry};
pub use export::ExportError;
pub use own_entry::{EntryInput, OwnEntryKind};
pub use statement::{Statement, StatementLine};
pub use swap::{Swap, SwapInput};
pub use verify::Walked;
pub(in crate::services) use verify::walk;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::domain::account::{AccountRef, HousePurpose, OwnerKind};
use crate::domain::book::{AccountState, Job, JobOutcome};
use crate::domain::chain::Head;
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::{CurrencyCode, reason_in_major};
use crate::domain::pause::Hindrance;
use crate::stores::StoreError;
use crate::stores::book::{self, AccountRow, Closed, Opened};
use crate::stores::master::idempotency::Intention;
use crate::stores::router::{BookRead, BookScope, Router};

/// Tries of a write on a book that is busy or moving, and the first pause between two; each
/// further one is as much longer. About a second in all: a move's pause is shorter.
const TRIES: u32 = 10;
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Why an operation on a book came to nothing. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum BooksError {
    #[error("{field} {rule}")]
    Invalid {
        field: &'static str,
        rule: &'static str,
    },
    #[error("{field} {rule}")]
    Unfit { field: &'static str, rule: String },
    /// A broker that is not active opens no accounts.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("no such account")]
    NoSuchAccount,
    #[error("no such swap")]
    NoSuchSwap,
    #[error("the partner was archived: restore it before it gets accounts")]
    Archived,
    /// The house's accounts stay open.
    #[error("an account of the house can't be closed")]
    HouseAccount,
    /// Minor units are promised on the account.
    #[error("{reserved} minor units are promised on the account")]
    Promised { reserved: i64 },
    /// A rule of the book said no; `reason.code` says which.
    #[error("the book refuses: {reason}")]
    Refused { reason: Value },
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The task that did the work has panicked: a repeat finds what it did.
    #[error("the work was broken off")]
    BrokenOff,
}

impl BooksError {
    /// With the amounts of a refusal in major units of a currency with `exponent` decimals.
    #[must_use]
    pub fn in_major(self, exponent: u8) -> Self {
        match self {
            Self::Refused { reason } => Self::Refused {
                reason: reason_in_major(reason, exponent),
            },
            other => other,
        }
    }
}

/// An account that is to be.
#[derive(Clone, Debug)]
pub struct NewAccount {
    pub owner_kind: OwnerKind,
    /// The cashier's or partner's name; `main`, `commission` or `suspense` for the house.
    pub owner_ref: String,
    /// One of the registry.
    pub currency: CurrencyCode,
}

/// Books of brokers. Clones share the router.
#[derive(Clone)]
pub struct BooksService {
    router: Arc<Router>,
}

impl BooksService {
    #[must_use]
    pub fn new(router: Arc<Router>) -> Self {
        Self { router }
    }

    /// Opens an account, or opens one again that was closed; one that is open is given as it is.
    /// A repeat of the same intention gives the account as it is by then.
    ///
    /// # Errors
    /// A name that can't be an owner's; see [`BooksError`].
    pub async fn open_account(
        &self,
        broker: BrokerId,
        intention: &Intention,
        new: NewAccount,
        now: DateTime<Utc>,
    ) -> Result<AccountState, BooksError> {
        let rule = match new.owner_kind {
            OwnerKind::House if HousePurpose::parse(&new.owner_ref).is_none() => {
                Some("is main, commission or suspense for the house")
            }
            OwnerKind::Cashier | OwnerKind::Partner
                if !AccountRef::is_owner_ref(&new.owner_ref) =>
            {
                Some("is 1 to 64 of letters, digits, '_', '-' and '.'")
            }
            OwnerKind::House | OwnerKind::Cashier | OwnerKind::Partner => None,
        };
        if let Some(rule) = rule {
            let field = "owner_ref";
            return Err(BooksError::Invalid { field, rule });
        }
        let standing = self.router.standing(broker).await?;
        standing.broker_is_open(broker, broker)?;
        let owner = AccountRef {
            broker,
            owner_kind: new.owner_kind,
            owner_ref: new.owner_ref,
            currency: new.currency,
        };
        let intention = intention.clone();
        let opened = self
            .write(broker, move |scope| {
                let (intention, owner) = (intention.clone(), owner.clone());
                async move { book::open_account(&scope, &intention, &owner, now).await }
            })
            .await?;
        match opened {
            Opened::Now(state) | Opened::Before(state) => Ok(state),
            Opened::Archived => Err(BooksError::Archived),
            Opened::OtherRequest => Err(BooksError::KeyReused),
        }
    }

    /// Closes an account on which nothing is promised.
    ///
    /// # Errors
    /// See [`BooksError`].
    pub async fn close_account(
        &self,
        broker: BrokerId,
        id: AccountId,
        now: DateTime<Utc>,
    ) -> Result<AccountState, BooksError> {
        let closed = self
            .write(broker, move |scope| async move {
                book::close_account(&scope, id, now).await
            })
            .await?;
        match closed {
            Closed::Done(state) => Ok(state),
            Closed::NoAccount => Err(BooksError::NoSuchAccount),
            Closed::House => Err(BooksError::HouseAccount),
            Closed::Promised { reserved } => Err(BooksError::Promised { reserved }),
        }
    }

    /// Accounts, newest first, of one owner's name or of all; `after` is the last of the page
    /// before.
    ///
    /// # Errors
    /// The book's database's.
    pub async fn accounts(
        &self,
        broker: BrokerId,
        owner_ref: Option<String>,
        after: Option<(DateTime<Utc>, AccountId)>,
        limit: u32,
    ) -> Result<Vec<AccountRow>, BooksError> {
        // A database would take it for equal to one without the spaces at its end.
        if owner_ref
            .as_deref()
            .is_some_and(|name| !AccountRef::is_owner_ref(name))
        {
            return Ok(Vec::new());
        }
        self.read(broker, move |read| {
            book::accounts_newest(read, owner_ref.clone(), after, limit).boxed()
        })
        .await
    }

    /// # Errors
    /// [`BooksError::NoSuchAccount`]; the book's database's.
    pub async fn account(
        &self,
        broker: BrokerId,
        id: AccountId,
    ) -> Result<AccountState, BooksError> {
        let found = self
            .read(broker, move |read| book::account(read, id).boxed())
            .await?;
        found
            .map(|(_, state)| state)
            .ok_or(BooksError::NoSuchAccount)
    }

    /// Entries, newest first, of one account or of all; `before` is the seq of the last of the
    /// page before.
    ///
    /// # Errors
    /// [`BooksError::NoSuchAccount`]; the book's database's.
    pub async fn transactions(
        &self,
        broker: BrokerId,
        account: Option<AccountId>,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, BooksError> {
        let page = self
            .read(broker, move |read| {
                async move {
                    if let Some(id) = account
                        && book::account(read, id).await?.is_none()
                    {
                        return Ok(None);
                    }
                    let before = before.unwrap_or(u64::MAX);
                    let page = book::transactions(read, account, before, limit).await?;
                    Ok(Some(page))
                }
                .boxed()
            })
            .await?;
        page.ok_or(BooksError::NoSuchAccount)
    }

    /// # Errors
    /// The book's database's.
    pub async fn head(&self, broker: BrokerId) -> Result<Head, BooksError> {
        self.read(broker, |read| book::head(read).boxed()).await
    }

    /// The head, and entries after a seq in order, as of one moment.
    ///
    /// # Errors
    /// The book's database's.
    pub async fn entries_after(
        &self,
        broker: BrokerId,
        seq: u64,
        limit: u32,
    ) -> Result<(Head, Vec<StoredEntry>), BooksError> {
        self.read(broker, move |read| {
            async move {
                let head = book::head(read).await?;
                let entries = book::entries_after(read, seq, limit).await?;
                Ok((head, entries))
            }
            .boxed()
        })
        .await
    }

    /// Applies a job of an operation that began elsewhere. A repeat gets the first outcome.
    ///
    /// # Errors
    /// The book's database's.
    pub async fn apply(
        &self,
        broker: BrokerId,
        job: Job,
        now: DateTime<Utc>,
    ) -> Result<JobOutcome, BooksError> {
        let mut outcomes = self
            .write(broker, move |scope| {
                let job = job.clone();
                async move { book::append(&scope, std::slice::from_ref(&job), now).await }
            })
            .await?;
        outcomes.pop().ok_or(BooksError::BrokenOff)
    }

    /// One read of one moment; asks the router again where the book has moved.
    async fn read<T>(
        &self,
        broker: BrokerId,
        read: impl for<'a> Fn(&'a mut BookRead) -> BoxFuture<'a, Result<T, StoreError>>,
    ) -> Result<T, BooksError> {
        let mut tried = 0;
        loop {
            let once = async {
                let scope = self.router.book(broker).await?;
                let mut open = scope.read().await?;
                let outcome = read(&mut open).await?;
                open.end().await?;
                Ok(outcome)
            };
            match once.await {
                Err(error) if again(&error, &mut tried).await => {}
                other => return other.map_err(BooksError::from),
            }
        }
    }

    /// One write, in a task of its own that ends whether or not the caller stays. It is tried
    /// again while the book is busy or moving, so it must be one that can be repeated.
    async fn write<T, W>(
        &self,
        broker: BrokerId,
        work: impl Fn(BookScope) -> W + Send + 'static,
    ) -> Result<T, BooksError>
    where
        T: Send + 'static,
        W: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let this = self.clone();
        let task = tokio::spawn(async move {
            let mut tried = 0;
            loop {
                let outcome = match this.router.book(broker).await {
                    Ok(scope) => work(scope).await,
                    Err(error) => Err(error),
                };
                match outcome {
                    Err(error) if again(&error, &mut tried).await => {}
                    other => return other,
                }
            }
        });
        match task.await {
            // A book that is frozen takes no writes, and never will while its broker leaves.
            Ok(Err(error @ StoreError::Moving { .. })) => {
                let standing = self.router.standing(broker).await?;
                standing.broker_is_open(broker, broker)?;
                Err(error.into())
            }
            Ok(outcome) => outcome.map_err(BooksError::from),
            Err(_) => Err(BooksError::BrokenOff),
        }
    }
}

/// Whether to try once more, after a pause.
async fn again(error: &StoreError, tried: &mut u32) -> bool {
    *tried += 1;
    if *tried >= TRIES {
        return false;
    }
    match error {
        StoreError::Busy { .. } => {}
        StoreError::Unavailable { .. }
        | StoreError::Outdated { .. }
        | StoreError::Moving { .. }
        | StoreError::NoBook { .. }
        | StoreError::UnknownServer { .. }
        | StoreError::Corrupt { .. }
        | StoreError::Database { .. } => return false,
    }
    tokio::time::sleep(BETWEEN_TRIES * *tried).await;
    true
}
