//! Invariant 1, seen from what stands: no entry, saga, step, obligation or event without the
//! request that it comes of. A request is never deleted, so one that isn't there has been taken
//! out of the master; what it left counts for nobody.

use std::collections::{BTreeMap, BTreeSet};

use futures::{FutureExt as _, StreamExt as _, stream};
use uuid::Uuid;

use super::{
    BOOKS_AT_ONCE, ENTRIES_PAGE, Finding, InvariantReport, PAGE, REQUESTS_PAGE, Reconcile,
    ReconcileError,
};
use crate::domain::ids::{BrokerId, RequestId};
use crate::stores::StoreError;
use crate::stores::book::{self, Origin};
use crate::stores::master::audit;

impl Reconcile {
    /// Reports what has no request behind it.
    ///
    /// # Errors
    /// The master's.
    pub(super) async fn strays(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        self.stray_sagas(report).await?;
        self.stray_steps(report).await?;
        self.stray_obligations(report).await?;
        self.stray_events(report).await?;
        let mut last = 0;
        loop {
            let page = audit::placed(&self.systems.master, last, PAGE).await?;
            let brokers: Vec<BrokerId> = page
                .iter()
                .filter(|placed| !placed.provisioning)
                .map(|placed| placed.broker)
                .collect();
            let looks = brokers
                .iter()
                .map(|broker| async move { (*broker, self.stray_entries(*broker).await) }.boxed());
            let looks: Vec<_> = looks.collect();
            let mut looks = stream::iter(looks).buffer_unordered(BOOKS_AT_ONCE);
            while let Some((broker, found)) = looks.next().await {
                match found {
                    Ok(found) => report.absorb(found),
                    Err(error) => report.unchecked(Finding::new(format!("broker {broker}"), error)),
                }
            }
            drop(looks);
            last = page.last().map_or(last, |placed| placed.broker);
            if page.len() < PAGE as usize {
                return Ok(());
            }
        }
    }

    async fn stray_sagas(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = None;
        loop {
            let page = audit::sagas(master, last, REQUESTS_PAGE).await?;
            let ids: Vec<Uuid> = page.iter().map(|saga| saga.saga_id).collect();
            let steps = audit::open_steps(master, &ids).await?;
            let there = self
                .there(page.iter().map(|saga| saga.subject.as_str()))
                .await?;
            for saga in &page {
                let (id, of) = (saga.saga_id, &saga.subject);
                if !there.contains(of.as_str()) {
                    report.broken(Finding::new(of, format!("saga {id} is of it: {GONE}")));
                }
                match steps.get(&id) {
                    None => report.broken(Finding::new(of, format!("saga {id} has no steps"))),
                    Some(open) if *open > 0 && saga.status.is_terminal() => {
                        let what = format!("saga {id} is {} with {open} open steps", saga.status);
                        report.broken(Finding::new(of, what));
                    }
                    Some(_) => {}
                }
            }
            last = page.last().map(|saga| saga.saga_id).or(last);
            if page.len() < REQUESTS_PAGE as usize {
                return Ok(());
            }
        }
    }

    async fn stray_steps(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = None;
        loop {
            let page = audit::stepping(master, last, REQUESTS_PAGE).await?;
            let there = audit::sagas_there(master, &page).await?;
            for id in page.iter().filter(|id| !there.contains(id)) {
                let what = "has steps in exchange_outbox and is not in the master";
                report.broken(Finding::new(format!("saga {id}"), what));
            }
            last = page.last().copied().or(last);
            if page.len() < REQUESTS_PAGE as usize {
                return Ok(());
            }
        }
    }

    async fn stray_obligations(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = None;
        loop {
            let page = audit::obligations(master, last, REQUESTS_PAGE).await?;
            let sagas: Vec<Uuid> = page.iter().map(|one| one.saga_id).collect();
            let sagas = audit::sagas_there(master, &sagas).await?;
            let there = self
                .there(page.iter().map(|one| one.subject.as_str()))
                .await?;
            for one in &page {
                let (id, status, of) = (one.id, one.status, &one.subject);
                if !there.contains(of.as_str()) {
                    report.broken(Finding::new(of, format!("{id} is {status} of it: {GONE}")));
                } else if !sagas.contains(&one.saga_id) {
                    let saga = one.saga_id;
                    let what = format!("{id} is {status} of saga {saga}, which is not there");
                    report.broken(Finding::new(of, what));
                }
            }
            last = page.last().map(|one| one.id).or(last);
            if page.len() < REQUESTS_PAGE as usize {
                return Ok(());
            }
        }
    }

    async fn stray_events(&self, report: &mut InvariantReport) -> Result<(), ReconcileError> {
        let master = &self.systems.master;
        let mut last = None;
        loop {
            let page = audit::eventful(master, last, REQUESTS_PAGE).await?;
            let there = audit::sides(master, &page).await?;
            for id in page.iter().filter(|id| !there.contains_key(id)) {
                report.broken(Finding::new(id, format!("has events: {GONE}")));
            }
            last = page.last().copied().or(last);
            if page.len() < REQUESTS_PAGE as usize {
                return Ok(());
            }
        }
    }

    /// A book's entries of requests: each of one that is there and has the broker for a side, by
    /// a saga that is there. Whether they count is said where their request is looked at.
    async fn stray_entries(&self, broker: BrokerId) -> Result<InvariantReport, StoreError> {
        let master = &self.systems.master;
        let scope = self.systems.router.book(broker).await?;
        let mut found = InvariantReport::new(1, "");
        let mut last = 0;
        loop {
            // Entries are only ever added, so each page may be of a moment of its own.
            let mut read = scope.read().await?;
            let page = book::origins(&mut read, last, ENTRIES_PAGE).await?;
            read.end().await?;
            last = page.last().map_or(last, |entry| entry.seq);
            let full = page.len() == ENTRIES_PAGE as usize;
            let of_requests: Vec<Origin> = page
                .into_iter()
                .filter(|entry| !entry.is_of_book())
                .collect();
            let ids: BTreeSet<RequestId> = of_requests
                .iter()
                .filter_map(|entry| entry.subject.parse().ok())
                .collect();
            let ids: Vec<RequestId> = ids.into_iter().collect();
            let sides = audit::sides(master, &ids).await?;
            let sides: BTreeMap<String, _> = sides
                .into_iter()
                .map(|(id, sides)| (id.to_string(), sides))
                .collect();
            let sagas: BTreeSet<Uuid> = of_requests.iter().map(|entry| entry.saga_id).collect();
            let sagas: Vec<Uuid> = sagas.into_iter().collect();
            let there = audit::sagas_there(master, &sagas).await?;
            for entry in of_requests {
                let Origin {
                    seq,
                    saga_id,
                    subject,
                    ..
                } = &entry;
                let at = format!("book {broker} seq {seq}");
                let what = match sides.get(subject) {
                    None => format!("{at}: books it: {GONE}"),
                    Some((author, target)) if *author != broker && *target != Some(broker) => {
                        format!("{at}: books it, and its broker has no part in it")
                    }
                    Some(_) if !there.contains(saga_id) => {
                        format!("{at}: was booked by saga {saga_id}, which is not there")
                    }
                    Some(_) => continue,
                };
                found.broken(Finding::new(subject, what));
            }
            if !full {
                return Ok(found);
            }
        }
    }

    /// Those of some subjects whose requests are there.
    pub(super) async fn there(
        &self,
        subjects: impl Iterator<Item = &str>,
    ) -> Result<BTreeSet<String>, ReconcileError> {
        let ids: BTreeSet<RequestId> = subjects.filter_map(|text| text.parse().ok()).collect();
        let ids: Vec<RequestId> = ids.into_iter().collect();
        let sides = audit::sides(&self.systems.master, &ids).await?;
        Ok(sides.into_keys().map(|id| id.to_string()).collect())
    }
}

/// What is wrong where a request is not there.
const GONE: &str = "there is no such request in the master";
