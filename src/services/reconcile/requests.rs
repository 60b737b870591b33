//! Invariant 1: every request has exactly the effects that its state says, in both books, in the
//! master and in the ledger. [`super::strays`] looks the other way: whether what stands there has
//! its request.

use std::collections::BTreeSet;

use serde_json::Value;
use uuid::Uuid;

use super::evidence::Evidence;
use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, Progress, REQUESTS_PAGE, Reconcile,
    ReconcileError,
};
use crate::domain::canonical::Hash;
use crate::domain::chain::Entry;
use crate::domain::effects::{self, Named};
use crate::domain::ids::RequestId;
use crate::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, account_id, transfer_id};
use crate::domain::money::{Amount, Currency};
use crate::domain::obligation::ObligationStatus;
use crate::domain::plan::{self, Action, Debt, Plan};
use crate::domain::request::{Request, RequestStatus};
use crate::domain::request_event::{self, Event, EventKind};
use crate::domain::saga::{Outcome, SagaStatus, StepDirection};
use crate::stores::ledger::TransferKind;
use crate::stores::master::audit::SagaOf;
use crate::stores::master::requests;

/// What a look at a page gives.
#[derive(Default)]
struct Look {
    found: Vec<Finding>,
    /// Requests of which a book that they need can't be read.
    unchecked: Vec<Finding>,
}

impl Reconcile {
    /// Checks every request, and then whether everything that stands has its request.
    ///
    /// # Errors
    /// The master's or the ledger's.
    pub async fn requests(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = InvariantReport::new(1, "each request has exactly its effects, once");
        let currencies = self.currencies.all().await?;
        let mut last = None;
        loop {
            let page = requests::after(&self.systems.master, last, REQUESTS_PAGE).await?;
            last = page.last().map(|(id, _)| *id).or(last);
            let count = page.len();
            let Look { found, unchecked } = self.look(page, &currencies).await?;
            for finding in unchecked {
                report.unchecked(finding);
            }
            for finding in self.lasting(found, &currencies).await? {
                report.broken(finding);
            }
            for _ in 0..count {
                report.count(progress);
            }
            if count < REQUESTS_PAGE as usize {
                break;
            }
        }
        self.settled_obligations(&mut report).await?;
        self.netted(&mut report).await?;
        self.strays(&mut report).await?;
        Ok(report)
    }

    /// What of the findings of a look is still there at every further one.
    async fn lasting(
        &self,
        mut found: Vec<Finding>,
        currencies: &[Currency],
    ) -> Result<Vec<Finding>, ReconcileError> {
        for _ in 1..LOOKS {
            if found.is_empty() {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
            let ids: BTreeSet<RequestId> = found
                .iter()
                .filter_map(|finding| finding.subject.parse().ok())
                .collect();
            let ids: Vec<RequestId> = ids.into_iter().collect();
            let rows = requests::some(&self.systems.master, &ids).await?;
            let next: BTreeSet<Finding> = self
                .look(rows, currencies)
                .await?
                .found
                .into_iter()
                .collect();
            found.retain(|finding| next.contains(finding));
        }
        Ok(found)
    }

    async fn look(
        &self,
        rows: Vec<requests::Read<Request>>,
        currencies: &[Currency],
    ) -> Result<Look, ReconcileError> {
        let page = self.evidence(rows).await?;
        let mut look = Look::default();
        for (id, why) in &page.unreadable {
            look.found
                .push(Finding::new(id, format!("can't be read: {why}")));
        }
        for request in &page.requests {
            if page.unreadable.contains_key(&request.id) {
                continue;
            }
            let mut found = Vec::new();
            if let Err(why) = page.faults(request, currencies, &mut found) {
                look.unchecked.push(Finding::new(request.id, why));
            }
            let found = found.into_iter();
            look.found
                .extend(found.map(|what| Finding::new(request.id, what)));
        }
        Ok(look)
    }
}

impl Evidence {
    /// What is wrong with a request; or why not all of it could be looked at.
    fn faults(
        &self,
        request: &Request,
        currencies: &[Currency],
        found: &mut Vec<String>,
    ) -> Result<(), String> {
        let subject = request.id.to_string();
        let events = self.events.get(&request.id).map_or(&[][..], Vec::as_slice);
        event_faults(request, events, found);
        let mut here: Vec<(Entry, Hash)> = Vec::new();
        for broker in std::iter::once(request.author).chain(request.target) {
            match self.books.get(&broker) {
                Some(Ok(of_book)) => {
                    here.extend(of_book.entries.get(&subject).into_iter().flatten().cloned());
                }
                Some(Err(why)) => return Err(why.clone()),
                None => {}
            }
        }
        let sagas = self.sagas.get(&subject).map_or(&[][..], Vec::as_slice);
        let running = sagas.iter().any(|saga| !saga.status.is_terminal());
        if let Some(owner) = request.saga_id
            && !sagas
                .iter()
                .any(|saga| saga.saga_id == owner && !saga.status.is_terminal())
        {
            found.push(format!("is owned by saga {owner}, which does not run"));
        }
        if running {
            return Ok(());
        }
        let bookings = bookings(request, events, currencies, found);
        if request.status == RequestStatus::Completed && bookings.is_empty() {
            found.push("completed, and no event says by which saga".to_owned());
        }
        let named = bookings.iter().flat_map(|booking| named(booking.event));
        let named: BTreeSet<Named> = named.collect();
        let first = bookings.first().map(|first| {
            let repaid = first.plan.debt().map_or(0, |debt| debt.amount);
            (first.event, repaid)
        });
        self.settlement_faults(request, first, found);
        let plans: Vec<&Plan> = bookings.iter().map(|booking| &booking.plan).collect();
        let breaks = effects::breaks(&plans, &here, &named);
        found.extend(breaks.iter().map(ToString::to_string));
        for saga in sagas.iter().filter(|saga| saga.kind.books()) {
            let of_saga = plans.iter().find(|plan| plan.saga_id == saga.saga_id);
            self.saga_faults(&subject, saga, of_saga.copied(), found);
        }
        for plan in plans {
            self.outcome_faults(plan, found);
            if !sagas.iter().any(|saga| saga.saga_id == plan.saga_id) {
                let id = plan.saga_id;
                found.push(format!("completed by saga {id}, which is not there"));
            }
        }
        Ok(())
    }

    /// The obligation and the ledger transfer of a confirm saga: there, where it is the one that
    /// completed the request and its terms say so; else none that counts.
    fn saga_faults(
        &self,
        subject: &str,
        saga: &SagaOf,
        completed: Option<&Plan>,
        found: &mut Vec<String>,
    ) {
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
        let opened = completed.and_then(Plan::opens);
        let obligation = self.obligations.get(&id);
        let stands = obligation.filter(|one| one.status != ObligationStatus::Failed);
        match (opened, stands) {
            (None, None) => {}
            (None, Some(one)) => found.push(format!("{} is {} of saga {id}", one.id, one.status)),
            (Some(debt), None) => found.push(format!("{} does not stand", debt.obligation)),
            (Some(debt), Some(one)) => {
                let same = one.id == debt.obligation
                    && one.subject == subject
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
        self.transfer_faults(id, completed.and_then(Plan::debt), found);
    }

    fn transfer_faults(&self, saga_id: Uuid, debt: Option<&Debt>, found: &mut Vec<String>) {
        let at = |index| self.transfers.get(&transfer_id(saga_id, index));
        let (hold, settle) = (at(HOLD_INDEX), at(SETTLE_INDEX));
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
    }

    /// What the books have recorded of the completed saga's steps: each done, none undone.
    fn outcome_faults(&self, plan: &Plan, found: &mut Vec<String>) {
        for step in &plan.steps {
            let Action::Book { book, .. } = &step.action else {
                continue;
            };
            let Some(Ok(of_book)) = self.books.get(book) else {
                continue;
            };
            let recorded = |direction| {
                let key = (plan.saga_id, step.number, direction);
                of_book.outcomes.get(&key).copied()
            };
            let done = recorded(StepDirection::Do) == Some(Outcome::Done);
            if !done || recorded(StepDirection::Undo).is_some() {
                let number = step.number;
                found.push(format!(
                    "book {book} has not recorded step {number} as done"
                ));
            }
        }
    }
}

/// What has been booked of a request, and the event that says so.
struct Booking<'a> {
    event: &'a Event,
    plan: Plan,
}

/// What the completion must have done, and the correction after a dispute, from the request, its
/// terms and what its events say of amounts.
fn bookings<'a>(
    request: &Request,
    events: &'a [(Event, Hash)],
    currencies: &[Currency],
    found: &mut Vec<String>,
) -> Vec<Booking<'a>> {
    let currency = currencies.iter().find(|one| one.code == request.currency);
    let Some(currency) = currency else {
        let code = &request.currency;
        found.push(format!("{code} is no currency of the network"));
        return Vec::new();
    };
    let text = |event: &'a Event, name: &str| event.payload.get(name).and_then(Value::as_str);
    let minor = |event| text(event, "received_amount").and_then(|minor| minor.parse().ok());
    let mut booked = request.amount;
    let mut bookings = Vec::new();
    for (event, _) in events {
        let saga = text(event, "saga").and_then(|id| Uuid::parse_str(id).ok());
        let plan = match event.kind {
            EventKind::Confirmed | EventKind::Enforced if bookings.is_empty() => {
                let received = minor(event).and_then(|minor| Amount::from_minor(minor).ok());
                booked = received.unwrap_or(request.amount);
                continue;
            }
            EventKind::Completed => {
                saga.and_then(|saga| plan::confirm(request, saga, booked, currency))
            }
            EventKind::Corrected => {
                let before = Request {
                    received_amount: Some(booked),
                    ..request.clone()
                };
                saga.zip(minor(event))
                    .and_then(|(saga, counts)| plan::correct(&before, saga, counts, currency))
            }
            _ => continue,
        };
        bookings.extend(plan.map(|plan| Booking { event, plan }));
    }
    let counts = match request.status {
        RequestStatus::Completed | RequestStatus::Disputed => true,
        // An arbiter found that nothing of it counts.
        RequestStatus::Cancelled => bookings.len() > 1,
        RequestStatus::Pending
        | RequestStatus::Accepting
        | RequestStatus::Accepted
        | RequestStatus::Sent
        | RequestStatus::Rejected
        | RequestStatus::Expired => false,
    };
    if !counts {
        bookings.clear();
    }
    bookings
}

/// The request's own chain of events, from its genesis to what the request says is its last, and
/// what it says of the request's row.
fn event_faults(request: &Request, events: &[(Event, Hash)], found: &mut Vec<String>) {
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
        return;
    }
    let events: Vec<&Event> = events.iter().map(|(event, _)| event).collect();
    for column in request.unlike_events(&events) {
        found.push(format!("its {column} is not what its events say"));
    }
}

/// The entries that a completion names.
fn named(completion: &Event) -> BTreeSet<Named> {
    let named = request_event::named_entries(&completion.payload).unwrap_or_default();
    let named = named.into_iter();
    named
        .map(|(book, head)| (book, head.seq, head.hash))
        .collect()
}
