//! Who owes whom: obligations, what settles them, and what they come to per counterparty and in the
//! ledger. They are opened and settled by the sagas of requests, and by netting; here they are read.

use crate::stores::pool::Pool;
use chrono::{DateTime, Utc};

use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::money::Currency;
use crate::stores::StoreError;
use crate::stores::ledger::{Ledger, LedgerError};
use crate::stores::master::{obligations, settlements};

pub use crate::stores::master::obligations::{Ageing, Filter, Obligation, Position};
pub use crate::stores::master::settlements::Settlement;

/// Obligations. Cheap to clone.
#[derive(Clone)]
pub struct ObligationService {
    master: Pool,
    ledger: Ledger,
}

impl ObligationService {
    #[must_use]
    pub const fn new(master: Pool, ledger: Ledger) -> Self {
        Self { master, ledger }
    }

    /// A broker's obligations, as debtor and as creditor, newest first; `after` is the last of
    /// the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        broker: BrokerId,
        filter: &Filter,
        after: Option<(DateTime<Utc>, ObligationId)>,
        limit: u32,
    ) -> Result<Vec<Obligation>, StoreError> {
        obligations::list(&self.master, broker, filter, after, limit).await
    }

    /// What settled an obligation, or is promised to, oldest first.
    ///
    /// # Errors
    /// The master's.
    pub async fn settlements_of(
        &self,
        id: ObligationId,
        limit: u32,
    ) -> Result<Vec<Settlement>, StoreError> {
        settlements::of_obligation(&self.master, id, limit).await
    }

    /// How old a broker's debts and claims are, by counterparty and currency.
    ///
    /// # Errors
    /// The master's.
    pub async fn ageing(
        &self,
        broker: BrokerId,
        now: DateTime<Utc>,
    ) -> Result<Vec<Ageing>, StoreError> {
        obligations::ageing(&self.master, broker, now).await
    }

    /// An obligation, for its parties; for everybody else there is none.
    ///
    /// # Errors
    /// The master's.
    pub async fn obligation(
        &self,
        broker: BrokerId,
        id: ObligationId,
    ) -> Result<Option<Obligation>, StoreError> {
        let found = obligations::get(&self.master, id).await?;
        Ok(found.filter(|found| found.debtor == broker || found.creditor == broker))
    }

    /// What a broker owes and is owed, by counterparty and currency, as the obligations say.
    ///
    /// # Errors
    /// The master's.
    pub async fn positions(&self, broker: BrokerId) -> Result<Vec<Position>, StoreError> {
        obligations::positions(&self.master, broker).await
    }

    /// What a broker is owed less what it owes, in minor units, as the ledger itself says.
    ///
    /// # Errors
    /// The ledger's.
    pub async fn position_in_ledger(
        &self,
        broker: BrokerId,
        currency: &Currency,
    ) -> Result<i128, LedgerError> {
        let ledger = &self.ledger;
        let balances = ledger.position(broker, &currency.code, currency.ledger);
        Ok(balances.await?.posted())
    }
}
