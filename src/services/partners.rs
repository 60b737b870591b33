//! A broker's clients and counterparts. How many offline ones there may be is its plan's to say,
//! and its book's to hold: see [`super::plans`].

use chrono::{DateTime, Utc};

use super::books::{BooksError, BooksService, Bound};
use super::plans::{PlanError, PlanService};
use crate::domain::book::AccountState;
use crate::domain::broker::Broker;
use crate::domain::ids::{AccountId, BrokerId, PartnerId};
use crate::domain::partner::{Change, Facts, FactsError, Partner, PartnerKind, PartnerState};
use crate::domain::pause::Hindrance;
use crate::domain::plan_limits::{LimitReached, PlanLimit};
use crate::stores::StoreError;
use crate::stores::book::Full;
use crate::stores::book::partners::Written;
use crate::stores::master::idempotency::Intention;
use crate::stores::master::{brokers, standing};
use crate::stores::pool::Pool;

pub use crate::stores::book::partners::PartnerFilter;

/// Why a partner stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum PartnerError {
    #[error(transparent)]
    Facts(#[from] FactsError),
    #[error("an online partner is another broker of the network, and an offline one is none")]
    PlatformAccount,
    #[error("there is no broker {id} that could be a partner")]
    NoSuchBroker { id: BrokerId },
    #[error("broker {broker} is the partner {partner} already")]
    Known {
        broker: BrokerId,
        partner: PartnerId,
    },
    /// The plan has no room for one more offline partner.
    #[error(transparent)]
    Plan(LimitReached),
    #[error("close the partner's accounts first: {}", list(.open))]
    HasAccounts { open: Vec<AccountId> },
    /// Nothing new starts for the broker.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("no such partner")]
    NoSuchPartner,
    #[error("this Idempotency-Key was used for another request")]
    KeyReused,
    #[error(transparent)]
    Book(#[from] BooksError),
    #[error(transparent)]
    Change(#[from] PlanError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn list(accounts: &[AccountId]) -> String {
    let ids: Vec<String> = accounts.iter().map(ToString::to_string).collect();
    ids.join(", ")
}

/// A partner that is to be.
#[derive(Clone, Debug)]
pub struct NewPartner {
    pub kind: PartnerKind,
    pub facts: Facts,
    /// Of an online one: the broker that it is.
    pub platform_broker_id: Option<BrokerId>,
}

/// Partners of brokers' books.
pub struct PartnerService {
    master: Pool,
    books: BooksService,
    plans: PlanService,
}

impl PartnerService {
    #[must_use]
    pub const fn new(master: Pool, books: BooksService, plans: PlanService) -> Self {
        Self {
            master,
            books,
            plans,
        }
    }

    /// Records a partner. A repeat of the same intention gives the same partner as it is by then.
    ///
    /// # Errors
    /// [`PartnerError::Plan`]; see [`PartnerError`].
    pub async fn create(
        &self,
        broker: BrokerId,
        intention: &Intention,
        new: NewPartner,
        now: DateTime<Utc>,
    ) -> Result<Partner, PartnerError> {
        let facts = new.facts.checked()?;
        let number = broker.to_string();
        let partner = Partner {
            id: PartnerId::derive(&[&number, &intention.client, &intention.key]),
            kind: new.kind,
            facts,
            platform_broker_id: new.platform_broker_id,
            state: PartnerState::Active,
            created_at: now,
            updated_at: now,
        };
        match (partner.kind, partner.platform_broker_id) {
            (PartnerKind::Online, Some(other)) => self.check_platform(broker, other).await?,
            (PartnerKind::Offline, None) => {}
            (PartnerKind::Online, None) | (PartnerKind::Offline, Some(_)) => {
                return Err(PartnerError::PlatformAccount);
            }
        }
        let (books, starts) = (&self.books, true);
        let write = |bound| books.create_partner(broker, intention, &partner, bound, now);
        self.written(broker, starts, partner.platform_broker_id, write, now)
            .await
    }

    /// Changes a partner's facts, archives it or restores it. One that is so already stays as it
    /// is.
    ///
    /// # Errors
    /// Restoring: [`PartnerError::Plan`]; archiving: [`PartnerError::HasAccounts`]; see
    /// [`PartnerError`].
    pub async fn change(
        &self,
        broker: BrokerId,
        id: PartnerId,
        change: Change,
        now: DateTime<Utc>,
    ) -> Result<Partner, PartnerError> {
        let (change, starts, platform) = match change {
            Change::Edit(edit) => {
                let edit = edit.checked()?;
                let platform = edit.platform_broker_id;
                (Change::Edit(edit), false, platform)
            }
            Change::Archive => (Change::Archive, false, None),
            Change::Restore => (Change::Restore, true, None),
        };
        if let Some(other) = platform {
            self.check_platform(broker, other).await?;
        }
        let books = &self.books;
        let write = |bound| books.change_partner(broker, id, &change, bound, now);
        self.written(broker, starts, platform, write, now).await
    }

    /// Partners, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The book's database's.
    pub async fn list(
        &self,
        broker: BrokerId,
        filter: PartnerFilter,
        after: Option<(DateTime<Utc>, PartnerId)>,
        limit: u32,
    ) -> Result<Vec<Partner>, PartnerError> {
        Ok(self.books.partners(broker, filter, after, limit).await?)
    }

    /// A partner, and its accounts by currency.
    ///
    /// # Errors
    /// [`PartnerError::NoSuchPartner`]; the book's database's.
    pub async fn get(
        &self,
        broker: BrokerId,
        id: PartnerId,
    ) -> Result<(Partner, Vec<AccountState>), PartnerError> {
        let found = self.books.partner(broker, id).await?;
        let (partner, accounts) = found.ok_or(PartnerError::NoSuchPartner)?;
        let accounts = accounts.into_iter().map(|(_, account)| account);
        Ok((partner, accounts.collect()))
    }

    /// Writes; where the book has no room and a change of the plan is under way, sees that to its
    /// end and writes again.
    async fn written<W>(
        &self,
        id: BrokerId,
        starts: bool,
        platform: Option<BrokerId>,
        write: impl Fn(Bound) -> W,
        now: DateTime<Utc>,
    ) -> Result<Partner, PartnerError>
    where
        W: Future<Output = Result<Written, BooksError>>,
    {
        let mut broker = self.broker(id).await?;
        if starts {
            let (standing, _) = standing::look(&self.master, [Some(id), None], None).await?;
            standing.broker_is_open(id, id)?;
        }
        let mut written = write(bound_of(&broker)).await?;
        if matches!(written, Written::Full(_)) {
            broker = self.broker(id).await?;
            if broker.plan_wanted.is_some() {
                self.plans.see_through(&broker, now).await?;
                broker = self.broker(id).await?;
                written = write(bound_of(&broker)).await?;
            }
        }
        match written {
            Written::Done(partner) => Ok(partner),
            Written::NoPartner => Err(PartnerError::NoSuchPartner),
            Written::Full(Full { most, there }) => Err(PartnerError::Plan(LimitReached {
                plan: broker.plan_to_fit(),
                limit: PlanLimit::OfflinePartners,
                most,
                there,
            })),
            Written::Known(partner) => Err(PartnerError::Known {
                broker: platform.unwrap_or(id),
                partner,
            }),
            Written::HasAccounts(open) => Err(PartnerError::HasAccounts { open }),
            Written::OtherRequest => Err(PartnerError::KeyReused),
        }
    }

    async fn broker(&self, id: BrokerId) -> Result<Broker, PartnerError> {
        let found = brokers::get(&self.master, id).await?;
        found.ok_or(PartnerError::NoSuchPartner)
    }

    /// An online partner is a broker of the network, and another one.
    async fn check_platform(&self, own: BrokerId, other: BrokerId) -> Result<(), PartnerError> {
        let is_there = own != other && brokers::get(&self.master, other).await?.is_some();
        if is_there {
            Ok(())
        } else {
            Err(PartnerError::NoSuchBroker { id: other })
        }
    }
}

/// What a book is held to that has no bound of its own: that of the plan in force, as of the last
/// change that is over.
pub(super) fn bound_of(broker: &Broker) -> Bound {
    let lessening = broker
        .plan_wanted
        .is_some_and(|wanted| wanted != broker.plan);
    Bound {
        number: broker.plan_number - u64::from(lessening),
        most: broker.plan.most(PlanLimit::OfflinePartners),
    }
}
