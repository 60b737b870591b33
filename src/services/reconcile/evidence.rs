//! What all systems have of a page of requests: a handful of statements for the page and one or
//! two for each book, whatever the number of requests.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt as _, StreamExt as _, stream};
use uuid::Uuid;

use super::{BOOKS_AT_ONCE, Reconcile, ReconcileError};
use crate::domain::canonical::Hash;
use crate::domain::chain::Entry;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::ledger::{HOLD_INDEX, SETTLE_INDEX, TransferId, transfer_id};
use crate::domain::request::{Owing, Request};
use crate::domain::request_event::Event;
use crate::domain::saga::{Outcome, StepDirection};
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::ledger::TransferRecord;
use crate::stores::master::audit::{self, SagaOf};
use crate::stores::master::obligations::{self, Obligation};
use crate::stores::master::requests;
use crate::stores::master::settlements::{self, Settlement};

/// What one book has of the requests of a page.
#[derive(Default)]
pub(super) struct OfBook {
    /// By subject.
    pub(super) entries: BTreeMap<String, Vec<(Entry, Hash)>>,
    pub(super) outcomes: BTreeMap<(Uuid, u16, StepDirection), Outcome>,
}

/// What is known of a page of requests.
#[derive(Default)]
pub(super) struct Evidence {
    pub(super) requests: Vec<Request>,
    /// Rows that can't be read, and why.
    pub(super) unreadable: BTreeMap<RequestId, String>,
    pub(super) events: BTreeMap<RequestId, Vec<(Event, Hash)>>,
    /// By subject, the oldest first.
    pub(super) sagas: BTreeMap<String, Vec<SagaOf>>,
    /// By saga.
    pub(super) obligations: BTreeMap<Uuid, Obligation>,
    /// What the rows say that requests take of credit lines.
    pub(super) credit: BTreeMap<RequestId, Option<Owing>>,
    /// By subject.
    pub(super) settlements: BTreeMap<String, Vec<Settlement>>,
    pub(super) transfers: BTreeMap<TransferId, TransferRecord>,
    /// Of a book that can't be read, why.
    pub(super) books: BTreeMap<BrokerId, Result<OfBook, String>>,
}

impl Reconcile {
    /// Gathers what there is of some requests.
    ///
    /// # Errors
    /// The master's or the ledger's.
    pub(super) async fn evidence(
        &self,
        rows: Vec<requests::Read<Request>>,
    ) -> Result<Evidence, ReconcileError> {
        let master = &self.systems.master;
        let mut all = Evidence::default();
        let ids: Vec<RequestId> = rows.iter().map(|(id, _)| *id).collect();
        for (id, row) in rows {
            match row {
                Ok(request) => all.requests.push(request),
                Err(error) => {
                    all.unreadable.insert(id, error.to_string());
                }
            }
        }
        for (id, row) in requests::events_of(master, &ids).await? {
            match row {
                Ok(event) => all.events.entry(id).or_default().push(event),
                Err(error) => {
                    all.unreadable.insert(id, error.to_string());
                }
            }
        }
        let subjects: Vec<String> = ids.iter().map(ToString::to_string).collect();
        for (subject, saga) in audit::sagas_of_all(master, &subjects).await? {
            all.sagas.entry(subject).or_default().push(saga);
        }
        let confirms: Vec<Uuid> = all
            .sagas
            .values()
            .flatten()
            .filter(|saga| saga.kind.books())
            .map(|saga| saga.saga_id)
            .collect();
        for obligation in obligations::of_sagas(master, &confirms).await? {
            all.obligations.insert(obligation.saga_id, obligation);
        }
        all.credit = audit::credit_holds(master, &ids).await?;
        for part in settlements::of_subjects(master, &subjects).await? {
            let of = all.settlements.entry(part.subject.clone()).or_default();
            of.push(part);
        }
        let transfers: Vec<TransferId> = confirms
            .iter()
            .flat_map(|saga| [HOLD_INDEX, SETTLE_INDEX].map(|index| transfer_id(*saga, index)))
            .collect();
        let found = self.systems.ledger.transfers(&transfers).await?;
        all.transfers = found
            .into_iter()
            .flatten()
            .map(|one| (one.id, one))
            .collect();
        all.books = self.of_books(&all).await;
        Ok(all)
    }

    /// What both books of each request have of it.
    async fn of_books(&self, page: &Evidence) -> BTreeMap<BrokerId, Result<OfBook, String>> {
        let mut wanted: BTreeMap<BrokerId, (Vec<String>, BTreeSet<Uuid>)> = BTreeMap::new();
        for request in &page.requests {
            let subject = request.id.to_string();
            let sagas = page.sagas.get(&subject);
            for broker in std::iter::once(request.author).chain(request.target) {
                let of = wanted.entry(broker).or_default();
                of.0.push(subject.clone());
                of.1.extend(sagas.into_iter().flatten().map(|saga| saga.saga_id));
            }
        }
        let reads = wanted.into_iter().map(|(broker, (subjects, sagas))| {
            async move {
                let sagas: Vec<Uuid> = sagas.into_iter().collect();
                let read = self.of_book(broker, &subjects, &sagas).await;
                (broker, read.map_err(|error| error.to_string()))
            }
            .boxed()
        });
        let reads: Vec<_> = reads.collect();
        stream::iter(reads)
            .buffer_unordered(BOOKS_AT_ONCE)
            .collect()
            .await
    }

    async fn of_book(
        &self,
        broker: BrokerId,
        subjects: &[String],
        sagas: &[Uuid],
    ) -> Result<OfBook, StoreError> {
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let stored = book::entries_of(&mut read, subjects).await?;
        let outcomes = book::outcomes_of(&mut read, sagas).await?;
        read.end().await?;
        let mut of_book = OfBook {
            outcomes: outcomes.into_iter().collect(),
            ..OfBook::default()
        };
        for one in stored {
            let subject = one.entry.subject.clone();
            let of = of_book.entries.entry(subject).or_default();
            of.push((one.entry, one.tx_hash));
        }
        Ok(of_book)
    }
}
