//! Invariant 1: every request has exactly the effects that its state says, in both books, in the
//! master and in the ledger.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::canonical::Hash;
use crate::domain::chain::Entry;
use crate::domain::effects::{self, Named};
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, account_id, transfer_id};
use crate::domain::obligation::ObligationStatus;
use crate::domain::plan::{self, Debt, Plan};
use crate::domain::request::{Request, RequestStatus};
use crate::domain::request_event::{self, Event, EventKind};
use crate::domain::saga::{SagaKind, SagaStatus};
use crate::stores::StoreError;
use crate::stores::book;
use crate::stores::ledger::TransferKind;
use crate::stores::master::audit::{self, SagaOf};
use crate::stores::master::{obligations, requests};

/// Entries of the requests of a page, by subject; of a book that can't be read, why.
type Entries = BTreeMap<BrokerId, Result<BTreeMap<String, Vec<(Entry, Hash)>>, String>>;

/// What a look at one request gives.
enum Look {
    Found(Vec<Finding>),
    /// A book that it needs can't be read.
    Unchecked(String),
}

impl Reconcile {
    /// Checks every request.
    ///
    /// # Errors
    /// The master's or the ledger's.
    pub async fn requests(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = InvariantReport::new(1, "each request has exactly its effects, once");
        let mut last = None;
        loop {
            let ids = audit::request_ids(&self.systems.master, last, PAGE).await?;
            last = ids.last().copied().or(last);
            let full = ids.len() == PAGE as usize;
            self.page(ids, &mut report, progress).await?;
            if !full {
                return Ok(report);
            }
        }
    }

    async fn page(
        &self,
        ids: Vec<RequestId>,
        report: &mut InvariantReport,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), ReconcileError> {
        let mut page = Vec::with_capacity(ids.len());
        for id in ids {
            page.extend(requests::get(&self.systems.master, id).await?);
        }
        let entries = self.entries(&page).await;
        for request in &page {
            match self.look(request, &entries).await? {
                Look::Unchecked(why) => report.unchecked(Finding::new(request.id, why)),
                Look::Found(found) => {
                    for finding in self.lasting(request.id, found).await? {
                        report.broken(finding);
                    }
                }
            }
            report.count(progress);
        }
        Ok(())
    }

    /// What of the findings of a look is still there at every further one.
    async fn lasting(
        &self,
        id: RequestId,
        mut found: Vec<Finding>,
    ) -> Result<Vec<Finding>, ReconcileError> {
        for _ in 1..LOOKS {
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let next = self.look_again(id).await?;
            found.retain(|finding| next.contains(finding));
        }
        Ok(found)
    }

    async fn look_again(&self, id: RequestId) -> Result<Vec<Finding>, ReconcileError> {
        let Some(request) = requests::get(&self.systems.master, id).await? else {
            return Ok(Vec::new());
        };
        let entries = self.entries(std::slice::from_ref(&request)).await;
        Ok(match self.look(&request, &entries).await? {
            Look::Found(found) => found,
            Look::Unchecked(_) => Vec::new(),
        })
    }

    /// What both books of each request have of it.
    async fn entries(&self, page: &[Request]) -> Entries {
        let mut subjects: BTreeMap<BrokerId, Vec<String>> = BTreeMap::new();
        for request in page {
            for broker in std::iter::once(request.author).chain(request.target) {
                let of = subjects.entry(broker).or_default();
                of.push(request.id.to_string());
            }
        }
        let mut all = Entries::new();
        for (broker, subjects) in subjects {
            let read = self.entries_in(broker, &subjects).await;
            all.insert(broker, read.map_err(|error| error.to_string()));
        }
        all
    }

    async fn entries_in(
        &self,
        broker: BrokerId,
        subjects: &[String],
    ) -> Result<BTreeMap<String, Vec<(Entry, Hash)>>, StoreError> {
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let stored = book::entries_of(&mut read, subjects).await?;
        read.end().await?;
        let mut by_subject: BTreeMap<String, Vec<(Entry, Hash)>> = BTreeMap::new();
        for one in stored {
            let of = by_subject.entry(one.entry.subject.clone()).or_default();
            of.push((one.entry, one.tx_hash));
        }
        Ok(by_subject)
    }

    async fn look(&self, request: &Request, entries: &Entries) -> Result<Look, ReconcileError> {
        let master = &self.systems.master;
        let subject = request.id.to_string();
        let mut here: Vec<(Entry, Hash)> = Vec::new();
        for broker in std::iter::once(request.author).chain(request.target) {
            match entries.get(&broker) {
                Some(Ok(of_book)) => {
                    here.extend(of_book.get(&subject).cloned().unwrap_or_default());
                }
                Some(Err(why)) => return Ok(Look::Unchecked(why.clone())),
                None => {}
            }
        }
        let mut found = Vec::new();
        let events = requests::events(master, request.id).await?;
        event_breaks(request, &events, &mut found);

        let sagas = audit::sagas_of(master, &subject).await?;
        let running = sagas.iter().any(|saga| !saga.status.is_terminal());
        let completed = request.status == RequestStatus::Completed;
        if running && !completed {
            return Ok(Look::Found(findings(request.id, found)));
        }
        let completion = events
            .iter()
            .rev()
            .map(|(event, _)| event)
            .find(|event| completed && event.kind == EventKind::Completed);
        let plan = match completion {
            Some(event) => self.plan_of(request, event, &mut found).await?,
            None => None,
        };
        if completed && plan.is_none() {
            found.push("completed, and no event says by which saga".to_owned());
        }
        let named = completion.map(named).unwrap_or_default();
        let breaks = effects::breaks(plan.as_ref(), &here, &named);
        found.extend(breaks.iter().map(ToString::to_string));
        for saga in sagas.iter().filter(|saga| saga.kind == SagaKind::Confirm) {
            let of_saga = plan.as_ref().filter(|plan| plan.saga_id == saga.saga_id);
            self.saga_breaks(saga, of_saga, &mut found).await?;
        }
        if let Some(plan) = &plan
            && !sagas.iter().any(|saga| saga.saga_id == plan.saga_id)
        {
            found.push(format!(
                "completed by saga {}, which is not there",
                plan.saga_id
            ));
        }
        Ok(Look::Found(findings(request.id, found)))
    }

    /// What the completion must have done, from the request and its terms alone.
    async fn plan_of(
        &self,
        request: &Request,
        completion: &Event,
        found: &mut Vec<String>,
    ) -> Result<Option<Plan>, ReconcileError> {
        let saga = completion.payload.get("saga").and_then(Value::as_str);
        let Some(saga_id) = saga.and_then(|text| Uuid::parse_str(text).ok()) else {
            return Ok(None);
        };
        let Some(currency) = self.currencies.get(&request.currency).await? else {
            found.push(format!(
                "{} is no currency of the network",
                request.currency
            ));
            return Ok(None);
        };
        Ok(plan::confirm(
            request,
            saga_id,
            request.settled_amount(),
            &currency,
        ))
    }

    /// The obligation and the ledger transfer of a confirm saga: there, where it is the one that
    /// completed the request and its terms say so; else none that counts.
    async fn saga_breaks(
        &self,
        saga: &SagaOf,
        completed: Option<&Plan>,
        found: &mut Vec<String>,
    ) -> Result<(), ReconcileError> {
        let id = saga.saga_id;
        let expected_status = match completed {
            Some(_) => SagaStatus::Completed,
            None => SagaStatus::Compensated,
        };
        if saga.status != expected_status {
            found.push(format!(
                "saga {id} is {}, not {expected_status}",
                saga.status
            ));
        }
        let debt = completed.and_then(Plan::debt);
        let obligation = obligations::of_saga(&self.systems.master, id).await?;
        let stands = obligation.filter(|one| one.status != ObligationStatus::Failed);
        match (debt, &stands) {
            (None, None) => {}
            (None, Some(one)) => found.push(format!("{} is {} of saga {id}", one.id, one.status)),
            (Some(debt), None) => found.push(format!("{} does not stand", debt.obligation)),
            (Some(debt), Some(one)) => {
                let same = one.id == debt.obligation
                    && one.debtor == debt.debtor
                    && one.creditor == debt.creditor
                    && one.currency == debt.currency.as_str()
                    && one.amount == debt.amount
                    && one.remaining_amount <= one.amount
                    && one.reserved_amount <= one.remaining_amount;
                let settled = one.remaining_amount == 0;
                let state = if settled {
                    ObligationStatus::Settled
                } else {
                    ObligationStatus::Active
                };
                if !same || one.status != state {
                    found.push(format!("{} is not as the terms say", one.id));
                }
            }
        }
        self.transfer_breaks(id, debt, found).await
    }

    async fn transfer_breaks(
        &self,
        saga_id: Uuid,
        debt: Option<&Debt>,
        found: &mut Vec<String>,
    ) -> Result<(), ReconcileError> {
        let ids = [HOLD_INDEX, SETTLE_INDEX].map(|index| transfer_id(saga_id, index));
        let transfers = self.systems.ledger.transfers(&ids).await?;
        let at = |index: usize| transfers.get(index).and_then(Option::as_ref);
        let (hold, settle) = (at(0), at(1));
        let posted = settle.is_some_and(|one| matches!(one.kind, TransferKind::Post(_)));
        let voided = settle.is_some_and(|one| matches!(one.kind, TransferKind::Void(_)));
        match debt {
            None if posted => found.push(format!("saga {saga_id} has posted in the ledger")),
            None if hold.is_some() && !voided => {
                found.push(format!("saga {saga_id} still holds in the ledger"));
            }
            None => {}
            Some(_) if !posted => found.push(format!("saga {saga_id} has posted nothing")),
            Some(debt) => {
                let account = |broker| account_id(&AccountName::position(broker, &debt.currency));
                let same = hold.is_some_and(|one| {
                    one.debit == account(debt.debtor)
                        && one.credit == account(debt.creditor)
                        && one.amount == u128::from(debt.amount)
                        && one.ledger == debt.ledger
                }) && settle.is_some_and(|one| one.amount == u128::from(debt.amount));
                if !same {
                    found.push(format!("saga {saga_id} has posted another transfer"));
                }
            }
        }
        Ok(())
    }
}

fn findings(id: RequestId, found: Vec<String>) -> Vec<Finding> {
    found
        .into_iter()
        .map(|what| Finding::new(id, what))
        .collect()
}

/// The request's own chain of events, from its genesis to what the request says is its last.
fn event_breaks(request: &Request, events: &[(Event, Hash)], found: &mut Vec<String>) {
    let mut prev = request_event::genesis(request.id);
    for (seq, (event, stored)) in (1..).zip(events) {
        let private = event
            .private
            .as_ref()
            .map(|text| Hash::of_json(text).to_hex());
        let digest = event.payload.get("private_digest").and_then(Value::as_str);
        let whole = event.seq == seq && event.prev_hash == prev && event.hash() == *stored;
        if !whole || (private.is_some() && private.as_deref() != digest) {
            found.push(format!("event {seq} breaks the chain of events"));
            return;
        }
        prev = *stored;
    }
    if events.len() != request.event_seq as usize || prev != request.event_hash {
        found.push("the events do not end where the request says".to_owned());
    }
}

/// The entries that a completion names.
fn named(completion: &Event) -> BTreeSet<Named> {
    let entries = completion.payload.get("entries").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| -> Option<String> {
        entry.get(field).and_then(Value::as_str).map(str::to_owned)
    };
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let book = text(entry, "book")?.parse().ok()?;
            let seq = text(entry, "seq")?.parse().ok()?;
            let hash = Hash::from_hex(&text(entry, "tx_hash")?)?;
            Some((book, seq, hash))
        })
        .collect()
}
