//! Credit lines: what a creditor lets a debtor owe it, in a currency. They revolve: an acceptance
//! takes of a line what its completion will leave owing, and settling and netting give it back.

use chrono::{DateTime, Utc};
use serde_json::json;

use super::network::{Actor, FieldError};
use crate::domain::ids::BrokerId;
use crate::domain::money::Currency;
use crate::runtime::{BrokeOff, Clock};
use crate::stores::StoreError;
use crate::stores::master::feed::{self, NewEvent};
use crate::stores::master::settlements::Debts;
use crate::stores::master::{self, brokers, credit_lines, standing};
use crate::stores::pool::Pool;

pub use crate::stores::master::credit_lines::CreditLine;

/// Why a line was not set.
#[derive(Debug, thiserror::Error)]
pub enum CreditLineError {
    #[error(transparent)]
    Field(#[from] FieldError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    BrokeOff(#[from] BrokeOff),
}

/// Credit lines. Cheap to clone.
#[derive(Clone)]
pub struct CreditLineService {
    master: Pool,
    clock: Clock,
}

impl CreditLineService {
    #[must_use]
    pub const fn new(master: Pool, clock: Clock) -> Self {
        Self { master, clock }
    }

    /// The lines that a broker gives and is given, with what is used of each.
    ///
    /// # Errors
    /// The master's.
    pub async fn of_broker(&self, broker: BrokerId) -> Result<Vec<CreditLine>, StoreError> {
        credit_lines::of_broker(&self.master, broker).await
    }

    /// A creditor lets a debtor owe it `limit` minor units in a currency; without a limit as much as
    /// it accepts. What is owed or accepted already stays, also where it is more. Gives the line.
    ///
    /// # Errors
    /// See [`CreditLineError`]: a debtor that is no other broker of the network.
    pub async fn set(
        &self,
        creditor: &Actor,
        debtor: BrokerId,
        currency: &Currency,
        limit: Option<u64>,
    ) -> Result<Option<CreditLine>, CreditLineError> {
        if debtor == creditor.broker {
            return Err(FieldError::new("debtor_broker_id", "is another broker than you").into());
        }
        if brokers::get(&self.master, debtor).await?.is_none() {
            return Err(FieldError::new("debtor_broker_id", "is no broker of the network").into());
        }
        let debts = Debts {
            debtor,
            creditor: creditor.broker,
            currency: currency.code.clone(),
        };
        let (this, by) = (self.clone(), creditor.subject.clone());
        let now = self.clock.now();
        let of = debts.clone();
        let task = tokio::spawn(async move { this.write(&of, limit, &by, now).await });
        task.await.map_err(|_| BrokeOff)??;
        Ok(credit_lines::get(&self.master, &debts).await?)
    }

    async fn write(
        &self,
        debts: &Debts,
        limit: Option<u64>,
        by: &str,
        now: DateTime<Utc>,
    ) -> Result<(), CreditLineError> {
        let mut tx = master::begin(&self.master).await?;
        // Acceptances that have looked for a line, and found another, look again.
        standing::turn(&mut tx).await?;
        credit_lines::set(&mut tx, debts, limit, by, now).await?;
        let told = [debts.creditor, debts.debtor].map(|broker| NewEvent {
            broker,
            kind: "credit_line.set".to_owned(),
            subject: format!("{}/{}/{}", debts.creditor, debts.debtor, debts.currency),
            payload: json!({ "limit": limit.map(|minor| minor.to_string()) }),
        });
        feed::insert(&mut tx, &told, now).await?;
        master::commit(tx).await?;
        Ok(())
    }
}
