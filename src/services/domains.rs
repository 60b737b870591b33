//! Host names of brokers' own: claimed by a broker whose plan allows it, made active by the
//! platform once the claim was proven, and what the host of a request then leads to.
//!
//! Claiming proves nothing, so several brokers may claim a name, and it leads nowhere. The owner of
//! the name publishes the claim's proof in its DNS; the platform looks for it there, which this
//! program does not do by itself, and activates the name for one of them.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

use chrono::{DateTime, Duration, Utc};
use secrecy::ExposeSecret;

use super::auth::secret;
use crate::domain::broker::Broker;
use crate::domain::host::{HostName, NoHostName};
use crate::domain::ids::BrokerId;
use crate::domain::pause::Hindrance;
use crate::domain::plan_limits::{LimitReached, PlanLimit};
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master::{self, MasterTx, brokers, domains, standing};
use crate::stores::pool::Pool;

pub use crate::stores::master::domains::{Domain, Site};

/// How long a process goes by what it knows of active names: within this a change is seen
/// everywhere.
const KNOWN_FOR: Duration = Duration::seconds(5);

/// Why a name stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum DomainError {
    #[error(transparent)]
    Host(#[from] NoHostName),
    #[error(transparent)]
    Plan(LimitReached),
    /// Nothing new starts for the broker.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("the name {host} is another broker's")]
    Taken { host: String },
    #[error("the broker has claimed {claimed}, not {asked}")]
    NotClaimed { claimed: String, asked: String },
    #[error("there is no such broker, or it has claimed no name")]
    NotFound,
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Claims, activates and releases names, and says to whom one leads.
pub struct DomainService {
    master: Pool,
    clock: Clock,
    known: RwLock<Option<Arc<Known>>>,
}

/// Every active name as of a moment.
struct Known {
    at: DateTime<Utc>,
    sites: HashMap<String, Site>,
}

impl Known {
    fn site(&self, host: &HostName) -> Option<Site> {
        self.sites.get(host.as_str()).cloned()
    }
}

impl DomainService {
    #[must_use]
    pub fn new(master: Pool, clock: Clock) -> Self {
        Self {
            master,
            clock,
            known: RwLock::default(),
        }
    }

    /// Claims a name for a broker, in the place of one that it had. Claiming it again changes
    /// nothing.
    ///
    /// # Errors
    /// See [`DomainError`].
    pub async fn claim(&self, id: BrokerId, host: &str) -> Result<Domain, DomainError> {
        let host = HostName::parse(host)?;
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        let broker = locked(&mut tx, id).await?;
        let present = domains::of_broker(&mut tx, id).await?;
        if let Some(same) = present.clone().filter(|own| own.host == host.as_str()) {
            return Ok(same);
        }
        let (standing, _) = standing::look(&mut tx, [Some(id), None], None).await?;
        standing.broker_is_open(id, id)?;
        fits(&broker)?;
        if domains::holder(&mut tx, host.as_str()).await?.is_some() {
            return Err(taken(host.as_str()));
        }
        if present.is_some() {
            domains::release(&mut tx, id).await?;
        }
        let proof = secret::random_token("settlenet-").map_err(|_| DomainError::Randomness)?;
        let domain = Domain {
            broker_id: id,
            host: host.to_string(),
            proof: proof.expose_secret().to_owned(),
            claimed_at: now,
            activated_at: None,
        };
        domains::claim(&mut tx, &domain).await?;
        master::commit(tx).await?;
        self.forget();
        Ok(domain)
    }

    /// The name that a broker has claimed.
    ///
    /// # Errors
    /// [`DomainError::NotFound`]; the master's.
    pub async fn of_broker(&self, id: BrokerId) -> Result<Domain, DomainError> {
        let mut conn = self.master.acquire().await.map_err(master::failed)?;
        let found = domains::of_broker(&mut conn, id).await?;
        found.ok_or(DomainError::NotFound)
    }

    /// Makes a broker's claim active, on the platform's word (`by`) that it was proven. `host` is
    /// the name that was looked at.
    ///
    /// # Errors
    /// [`DomainError::NotClaimed`] where the broker has claimed another one meanwhile,
    /// [`DomainError::Taken`]; see there for the rest.
    pub async fn activate(
        &self,
        id: BrokerId,
        host: &str,
        by: &str,
    ) -> Result<Domain, DomainError> {
        let host = HostName::parse(host)?;
        let now = self.clock.now();
        let mut tx = master::begin(&self.master).await?;
        let broker = locked(&mut tx, id).await?;
        let present = domains::of_broker(&mut tx, id).await?;
        let domain = present.ok_or(DomainError::NotFound)?;
        if domain.host != host.as_str() {
            return Err(DomainError::NotClaimed {
                claimed: domain.host,
                asked: host.to_string(),
            });
        }
        if domain.activated_at.is_some() {
            return Ok(domain);
        }
        fits(&broker)?;
        match domains::activate(&mut tx, id, by, now).await {
            Err(error) if error.is_duplicate() => return Err(taken(host.as_str())),
            activated => activated?,
        }
        master::commit(tx).await?;
        self.forget();
        Ok(Domain {
            activated_at: Some(now),
            ..domain
        })
    }

    /// Gives up a broker's name: it leads nowhere from now on, within seconds.
    ///
    /// # Errors
    /// [`DomainError::NotFound`] where it has none; the master's.
    pub async fn release(&self, id: BrokerId) -> Result<(), DomainError> {
        let mut tx = master::begin(&self.master).await?;
        locked(&mut tx, id).await?;
        if !domains::release(&mut tx, id).await? {
            return Err(DomainError::NotFound);
        }
        master::commit(tx).await?;
        self.forget();
        Ok(())
    }

    /// Claims, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        active: Option<bool>,
        after: Option<(DateTime<Utc>, BrokerId)>,
        limit: u32,
    ) -> Result<Vec<Domain>, StoreError> {
        domains::list(&self.master, active, after, limit).await
    }

    /// To whom a host leads: one broker, or nobody in particular. Whether the broker is suspended
    /// makes no difference.
    ///
    /// # Errors
    /// The master's, where nothing is known from before: a name that led to a broker goes on
    /// doing so while the master is away.
    pub async fn site(&self, host: &HostName) -> Result<Option<Site>, StoreError> {
        let now = self.clock.now();
        let from_before = self.known();
        let fresh = from_before
            .as_ref()
            .filter(|known| now - known.at < KNOWN_FOR);
        if let Some(known) = fresh {
            return Ok(known.site(host));
        }
        match domains::sites(&self.master).await {
            Ok(sites) => {
                let sites = sites.into_iter().map(|site| (site.host.clone(), site));
                let known = Arc::new(Known {
                    at: now,
                    sites: sites.collect(),
                });
                let site = known.site(host);
                *self.known.write().unwrap_or_else(PoisonError::into_inner) = Some(known);
                Ok(site)
            }
            Err(error) => from_before.map(|known| known.site(host)).ok_or(error),
        }
    }

    fn known(&self) -> Option<Arc<Known>> {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        known.clone()
    }

    /// What this process has changed it sees at once.
    fn forget(&self) {
        *self.known.write().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// The broker with its row locked, so that its plan stays until the transaction ends.
async fn locked(tx: &mut MasterTx, id: BrokerId) -> Result<Broker, DomainError> {
    brokers::lock(tx, id).await?.ok_or(DomainError::NotFound)
}

/// A claim takes the place of the one before, so there is never one beside it.
fn fits(broker: &Broker) -> Result<(), DomainError> {
    let plan = broker.plan_to_fit();
    plan.room_for_one(PlanLimit::CustomDomains, 0)
        .map_err(DomainError::Plan)
}

fn taken(host: &str) -> DomainError {
    DomainError::Taken {
        host: host.to_owned(),
    }
}
