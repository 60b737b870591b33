//! Invariant 7: every row of a book is in the database where its broker is placed.

use std::collections::BTreeMap;

use super::{Finding, InvariantReport, PAGE, Progress, Reconcile, ReconcileError};
use crate::domain::ids::BrokerId;
use crate::stores::book;
use crate::stores::master::audit::{self, Placed};
use crate::stores::master::moves;

impl Reconcile {
    /// Checks every database of the registry.
    ///
    /// # Errors
    /// The master's.
    pub async fn isolation(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report =
            InvariantReport::new(7, "each database holds the books that are placed in it");
        // A book is made after its place is known and before its broker is active: what is
        // active now must have one, and what has one must be placed afterwards.
        let before = self.all_placed().await?;
        let master = &self.systems.master;
        let mut traces = moves::traces(master).await?;
        for database in audit::databases(master).await? {
            let name = format!("{}/{}", database.server, database.database);
            let census = match book::census(&self.systems.router, &database).await {
                Ok(census) => census,
                Err(error) => {
                    report.unchecked(Finding::new(name, error));
                    continue;
                }
            };
            let after = self.all_placed().await?;
            // A move may have begun or ended while the database was looked at.
            traces.extend(moves::traces(master).await?);
            for (table, brokers) in &census.tables {
                for broker in brokers {
                    let here = after
                        .get(broker)
                        .is_some_and(|place| place.database == database);
                    let trace = (*broker, database.clone());
                    if !here && !traces.contains(&trace) {
                        let what = format!("{table} has rows of broker {broker}, placed elsewhere");
                        report.broken(Finding::new(&name, what));
                    }
                }
            }
            for (broker, place) in &before {
                if place.provisioning || place.database != database {
                    continue;
                }
                if place.archived && !census.frozen.contains(broker) {
                    let what =
                        format!("the book of broker {broker}, which has left, is not frozen");
                    report.broken(Finding::new(&name, what));
                }
                for table in ["book_fence", "chain_head"] {
                    let has = census
                        .tables
                        .get(table)
                        .is_some_and(|brokers| brokers.contains(broker));
                    if !has {
                        let what = format!("{table} has no row of broker {broker}, placed here");
                        report.broken(Finding::new(&name, what));
                    }
                }
            }
            report.count(progress);
        }
        Ok(report)
    }

    async fn all_placed(&self) -> Result<BTreeMap<BrokerId, Placed>, ReconcileError> {
        let mut all = BTreeMap::new();
        let mut last = 0;
        loop {
            let page = audit::placed(&self.systems.master, last, PAGE).await?;
            let full = page.len() == PAGE as usize;
            for placed in page {
                last = placed.broker;
                all.insert(placed.broker, placed);
            }
            if !full {
                return Ok(all);
            }
        }
    }
}
