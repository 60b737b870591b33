//! What must hold in a [`World`] at every moment at which nothing runs, told twice: by the
//! product's own reconciliation, and by the rules as they are written here, which work out the
//! expected entries from the request alone and look at the engine's cursors besides.

mod state;

use std::collections::{BTreeMap, BTreeSet};

use settlenet::domain::account::{AccountRef, HousePurpose, Side};
use settlenet::domain::book::Reservation;
use settlenet::domain::chain::{Entry, genesis};
use settlenet::domain::ids::{AccountId, BrokerId, RequestId};
use settlenet::domain::ledger::{
    AccountName, Balances, HOLD_INDEX, SETTLE_INDEX, TransferId, account_id, transfer_id,
};
use settlenet::domain::money::Amount;
use settlenet::domain::request::{Request, RequestKind, RequestStatus};
use settlenet::domain::request_event::{self, EventKind};
use settlenet::domain::saga::{SagaKind, SagaStatus};
use settlenet::domain::settlement::PartStatus;
use settlenet::domain::terms::Party;
use settlenet::stores::book::{self, StoredEntry};
use settlenet::stores::ledger::{AccountSpec, TransferKind, TransferRecord};
use settlenet::stores::master::obligations::{self, Obligation};
use settlenet::stores::master::requests;
use settlenet::stores::master::sagas::{self, SagaRecord};
use settlenet::stores::pool::Pool;
use uuid::Uuid;

use super::World;
use state::{Book, Cursors, State};

/// Asserts every invariant; panics with all that is broken.
pub async fn assert_invariants(world: &World) {
    let broken = breaks(world).await;
    assert!(broken.is_empty(), "broken:\n  {}", broken.join("\n  "));
}

/// What is broken, in words.
pub async fn breaks(world: &World) -> Vec<String> {
    let state = State::load(world).await;
    let mut broken = Vec::new();
    for book in &state.books {
        chain(book, &mut broken);
        balances(book, &mut broken);
        promises(book, &state, &mut broken);
    }
    for request in state.requests.values() {
        events(world, request, &mut broken).await;
        effects(request, &state, &mut broken);
    }
    for (saga, cursors) in &state.sagas {
        cursor(saga, *cursors, &mut broken);
    }
    repayments(&state, &mut broken);
    positions(world, &state, &mut broken);
    reconciled(world, &mut broken).await;
    broken
}

async fn reconciled(world: &World, broken: &mut Vec<String>) {
    let reconcile = &world.app.reconcile;
    let report = reconcile.run(None, &|_| {}).await.expect("reconciles");
    for invariant in report.invariants {
        let found = invariant.breaks.iter().chain(&invariant.unchecked);
        broken.extend(found.map(|found| {
            let number = invariant.invariant;
            format!(
                "reconciliation, {number}: {}: {}",
                found.subject, found.what
            )
        }));
    }
}

fn chain(book: &Book, broken: &mut Vec<String>) {
    let mut prev = genesis(book.broker);
    for (seq, stored) in (1..).zip(&book.entries) {
        let entry = &stored.entry;
        if entry.seq != seq || entry.prev_hash != prev || entry.hash() != stored.tx_hash {
            broken.push(format!(
                "book {}: the chain breaks at seq {seq}",
                book.broker
            ));
            return;
        }
        prev = stored.tx_hash;
    }
    if book.head != (book.entries.len() as u64, prev) {
        broken.push(format!(
            "book {}: the head is not the last entry",
            book.broker
        ));
    }
}

fn balances(book: &Book, broken: &mut Vec<String>) {
    let mut sums: BTreeMap<AccountId, i64> = BTreeMap::new();
    for stored in &book.entries {
        let sum = sums.entry(stored.entry.account).or_default();
        *sum += signed(&stored.entry);
        if *sum != stored.entry.balance {
            broken.push(format!(
                "book {}: the balance after seq {} is {} and was written as {}",
                book.broker, stored.entry.seq, sum, stored.entry.balance
            ));
        }
    }
    for (id, state) in &book.accounts {
        let sum = sums.remove(id).unwrap_or(0);
        if sum != state.balance.balance {
            let has = state.balance.balance;
            broken.push(format!(
                "book {}: {id} has {has}, its entries say {sum}",
                book.broker
            ));
        }
        let held = book.held.iter().filter(|(_, held)| held.account == *id);
        let held: u64 = held.map(|(_, held)| held.amount).sum();
        if i64::try_from(held) != Ok(state.balance.reserved) {
            let reserved = state.balance.reserved;
            broken.push(format!(
                "book {}: {id} has {reserved} reserved, its reservations hold {held}",
                book.broker
            ));
        }
        if state.balance.available().is_some_and(|left| left < 0) {
            broken.push(format!("book {}: {id} is under its floor", book.broker));
        }
    }
    for id in sums.keys() {
        broken.push(format!(
            "book {}: entries on {id}, which is no account",
            book.broker
        ));
    }
}

fn signed(entry: &Entry) -> i64 {
    let amount = i64::try_from(entry.amount).expect("fits");
    match entry.side {
        Side::Debit => -amount,
        Side::Credit => amount,
    }
}

/// Every held reservation is an open promise.
fn promises(book: &Book, state: &State, broken: &mut Vec<String>) {
    for ((saga, _), held) in &book.held {
        let Some(request) = state.requests.get(&held.subject) else {
            broken.push(format!(
                "a reservation for {}, which isn't there",
                held.subject
            ));
            continue;
        };
        let promised = request.reservation_saga_id == Some(*saga) && is_open(request.status);
        let in_motion = state
            .sagas_of(request)
            .any(|saga| !saga.status.is_terminal());
        if !promised && !in_motion {
            broken.push(format!(
                "book {}: {} is reserved for {}, which is {}",
                book.broker, held.amount, held.subject, request.status
            ));
        }
    }
}

fn is_open(status: RequestStatus) -> bool {
    use RequestStatus as S;
    matches!(status, S::Accepted | S::Sent | S::Disputed)
}

async fn events(world: &World, request: &Request, broken: &mut Vec<String>) {
    let events = requests::events(&world.app.systems.master, request.id).await;
    let events = events.expect("reads");
    let mut prev = request_event::genesis(request.id);
    for (seq, (event, stored)) in (1..).zip(&events) {
        if event.seq != seq || event.prev_hash != prev || event.hash() != *stored {
            broken.push(format!("{}: the events break at {seq}", request.id));
            return;
        }
        prev = *stored;
    }
    if (request.event_seq as usize, request.event_hash) != (events.len(), prev) {
        broken.push(format!("{}: the last event is not the head", request.id));
    }
    let completed = events
        .iter()
        .filter(|(event, _)| event.kind == EventKind::Completed);
    let expected = usize::from(request.booked_saga_id.is_some());
    if completed.count() != expected {
        broken.push(format!(
            "{}: completed other than {expected} times",
            request.id
        ));
    }
}

fn effects(request: &Request, state: &State, broken: &mut Vec<String>) {
    let id = request.id;
    let mut counted = Vec::new();
    for saga in state.sagas_of(request) {
        let owns = request.saga_id == Some(saga.saga_id);
        match (saga.kind, saga.status.is_terminal()) {
            (SagaKind::Accept | SagaKind::Confirm, ended) if ended == owns => broken.push(format!(
                "{id}: its saga is {:?} and the {} saga {} is {}",
                request.saga_id, saga.kind, saga.saga_id, saga.status
            )),
            _ => {}
        }
        match saga.status {
            SagaStatus::Completed if saga.kind == SagaKind::Confirm => counted.push(saga.saga_id),
            SagaStatus::Compensated => nothing_counts(id, saga.saga_id, state, broken),
            SagaStatus::Completed
            | SagaStatus::Running
            | SagaStatus::Compensating
            | SagaStatus::Stuck => {}
        }
    }
    let completed = usize::from(request.booked_saga_id.is_some());
    if counted.len() != completed {
        broken.push(format!(
            "{id} is {} and was booked {} times",
            request.status,
            counted.len()
        ));
    }
    for saga in counted {
        booked_once(request, saga, state, broken);
    }
    let reserved = request
        .reservation_saga_id
        .filter(|_| request.saga_id.is_none());
    if let (Some(saga), true) = (reserved, is_open(request.status)) {
        for (account, promised) in request.promises() {
            let book = state.book(account.broker);
            let mut held = book.into_iter().flat_map(|book| &book.held);
            let held = held.find(|((of, _), held)| *of == saga && held.account == account.id());
            let amount = held.map(|(_, held)| held.amount);
            if amount != Some(promised) {
                broken.push(format!("{id}: reserved {amount:?}, not {promised}"));
            }
        }
    }
}

/// A saga that went back has no effect that counts.
fn nothing_counts(id: RequestId, saga: Uuid, state: &State, broken: &mut Vec<String>) {
    let mut open: BTreeSet<(BrokerId, u64)> = BTreeSet::new();
    for stored in state.entries_of(saga) {
        let entry = &stored.entry;
        match entry.reverses_seq {
            None => drop(open.insert((entry.broker, entry.seq))),
            Some(seq) => {
                let original = state
                    .book(entry.broker)
                    .and_then(|book| book.entries.get(usize::try_from(seq).ok()? - 1));
                let mirrors = original.is_some_and(|original| {
                    signed(&original.entry) == -signed(entry)
                        && entry.diverted_from.unwrap_or(entry.account) == original.entry.account
                });
                if !mirrors || !open.remove(&(entry.broker, seq)) {
                    broken.push(format!("{id}: seq {} reverses {seq} wrongly", entry.seq));
                }
            }
        }
    }
    if !open.is_empty() {
        broken.push(format!("{id}: went back, and {open:?} stand"));
    }
    let owed = state.obligations.iter().find(|owed| owed.saga_id == saga);
    if owed.is_some_and(|owed| owed.status.as_str() != "failed" || owed.remaining_amount != 0) {
        broken.push(format!("{id}: went back, and its obligation stands"));
    }
    match state.transfers_of(saga) {
        [None, None] => {}
        [Some(hold), Some(settled)] if settled.kind == TransferKind::Void(hold.id) => {}
        other => broken.push(format!("{id}: went back, and the ledger has {other:?}")),
    }
}

/// A request as it was when it was booked, before an arbiter found that less counts.
fn as_booked(request: &Request, state: &State) -> Request {
    let corrected = state
        .sagas_of(request)
        .filter(|saga| saga.kind == SagaKind::Correct && saga.status == SagaStatus::Completed)
        .flat_map(|saga| state.entries_of(saga.saga_id))
        .find(|stored| stored.entry.leg == 0)
        .map_or(0, |stored| stored.entry.amount);
    let mut booked = request.clone();
    if corrected > 0 && request.status == RequestStatus::Completed {
        let received = request.settled_amount().minor() + corrected;
        booked.received_amount = Amount::from_minor(received).ok();
    }
    booked
}

/// A saga that completed has exactly the effects that the request's terms say.
fn booked_once(request: &Request, saga: Uuid, state: &State, broken: &mut Vec<String>) {
    let id = request.id;
    let entries = state.entries_of(saga);
    let request = &as_booked(request, state);
    let mut lines: Vec<_> = entries
        .iter()
        .map(|stored| {
            let entry = &stored.entry;
            let meant_for = entry.diverted_from.unwrap_or(entry.account);
            (entry.broker, meant_for, entry.side.as_str(), entry.amount)
        })
        .collect();
    let mut expected = expected_entries(request);
    lines.sort_unstable();
    expected.sort_unstable();
    if lines != expected {
        broken.push(format!("{id}: booked {lines:?}, agreed {expected:?}"));
    }
    if entries
        .iter()
        .any(|stored| stored.entry.op_digest != entries[0].entry.op_digest)
    {
        broken.push(format!("{id}: the entries are not of one operation"));
    }
    let owed = state.obligations.iter().find(|owed| owed.saga_id == saga);
    let owed = owed.map(|owed| {
        let state = if owed.remaining_amount == 0 {
            "settled"
        } else {
            "active"
        };
        if owed.status.as_str() != state || owed.remaining_amount > owed.amount {
            broken.push(format!("{} is {}", owed.id, owed.status));
        }
        ((owed.debtor, owed.creditor), owed.amount)
    });
    let received = request.settled_amount();
    let sides = |debtor: Party| {
        let of = |party| request.broker_of(party).unwrap_or(0);
        (of(debtor), of(debtor.other()))
    };
    let agreed = request.terms.obligation_on(received);
    let agreed = agreed.map(|(debtor, amount)| (sides(debtor), amount));
    if owed != agreed {
        broken.push(format!("{id}: owed {owed:?}, agreed {agreed:?}"));
    }
    // A settlement moves the ledger back.
    let repaid = request
        .settles
        .map(|settles| (sides(settles.debtor.other()), received.minor()));
    match (state.transfers_of(saga), repaid.or(agreed)) {
        ([None, None], None) => {}
        ([Some(hold), Some(posted)], Some(((debtor, creditor), amount)))
            if posted.kind == TransferKind::Post(hold.id)
                && posted.amount == u128::from(amount)
                && hold.debit == account_id(&AccountName::position(debtor, &request.currency))
                && hold.credit
                    == account_id(&AccountName::position(creditor, &request.currency)) => {}
        (other, _) => broken.push(format!("{id}: completed, and the ledger has {other:?}")),
    }
}

/// The principal from sender to receiver, or of an order the same way on both sides; the commission
/// from its payer (a sender pays it from the account that it sends from, in an order the houses
/// pay) to the other's commission account.
fn expected_entries(request: &Request) -> Vec<(BrokerId, AccountId, &'static str, u64)> {
    let received = request.settled_amount();
    let sender = request.sender();
    let account = |party: Party| request.account_of(party).expect("has accounts").clone();
    let house = |party: Party| {
        let broker = request.broker_of(party).expect("has parties");
        AccountRef::house(broker, HousePurpose::Commission, &request.currency)
    };
    let line = |account: &AccountRef, side, amount| (account.broker, account.id(), side, amount);
    let (from_side, to_side) = match request.kind {
        RequestKind::Collect => ("credit", "credit"),
        RequestKind::Payout => ("debit", "debit"),
        RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => ("debit", "credit"),
    };
    let mut lines = vec![
        line(&account(sender), from_side, received.minor()),
        line(&account(sender.other()), to_side, received.minor()),
    ];
    if let Some(commission) = request.terms.commission {
        let from = if commission.payer == sender && !request.kind.is_order() {
            account(sender)
        } else {
            house(commission.payer)
        };
        let amount = commission.on(received);
        if amount > 0 {
            lines.push(line(&from, "debit", amount));
            lines.push(line(&house(commission.payer.other()), "credit", amount));
        }
    }
    lines
}

/// Every debt is what it was less what repaid it, and has reserved what is promised of it.
fn repayments(state: &State, broken: &mut Vec<String>) {
    for owed in &state.obligations {
        let parts = state.parts.iter().filter(|part| part.obligation == owed.id);
        let (mut settled, mut reserved) = (0, 0);
        for part in parts {
            settled += part.settled_amount;
            if part.status == PartStatus::Reserved {
                reserved += part.amount;
            }
            let request = state.requests.get(&part.subject);
            let open = request.is_none_or(Request::is_under_way);
            if part.status == PartStatus::Reserved && !open {
                broken.push(format!("{} is reserved for {}", owed.id, part.subject));
            }
        }
        let stands = owed.status.as_str() != "failed";
        let remains = if stands { owed.amount - settled } else { 0 };
        if (owed.remaining_amount, owed.reserved_amount) != (remains, reserved) {
            broken.push(format!(
                "{}: {} remains and {} is reserved, not {remains} and {reserved}",
                owed.id, owed.remaining_amount, owed.reserved_amount
            ));
        }
        if owed.reserved_amount > owed.remaining_amount {
            broken.push(format!("{}: more is reserved than remains", owed.id));
        }
    }
}

fn cursor(saga: &SagaRecord, cursors: Cursors, broken: &mut Vec<String>) {
    let right = match saga.status {
        SagaStatus::Running | SagaStatus::Compensating => {
            (cursors.pending, cursors.failed) == (1, 0)
        }
        SagaStatus::Stuck => (cursors.pending, cursors.failed) == (0, 1),
        SagaStatus::Completed | SagaStatus::Compensated => {
            (cursors.pending, cursors.waiting, cursors.failed) == (0, 0, 0)
        }
    };
    if !right {
        broken.push(format!(
            "saga {} is {} with {} pending, {} waiting, {} failed steps",
            saga.saga_id, saga.status, cursors.pending, cursors.waiting, cursors.failed
        ));
    }
}

/// Claims less debts in the world's own currency is the position in the ledger, sagas under way
/// counted in.
fn positions(world: &World, state: &State, broken: &mut Vec<String>) {
    let mut posted: BTreeMap<BrokerId, i128> = BTreeMap::new();
    let mut held: BTreeMap<BrokerId, i128> = BTreeMap::new();
    let running = |saga: Uuid| {
        let mut all = state.sagas.iter().map(|(saga, _)| saga);
        all.any(|record| record.saga_id == saga && !record.status.is_terminal())
    };
    let ours = world.currency.as_str();
    for owed in state
        .obligations
        .iter()
        .filter(|owed| owed.currency == ours)
    {
        let settled = state.transfers_of(owed.saga_id);
        let sums = match (owed.status.as_str(), settled) {
            ("active", _) => &mut posted,
            ("pending", _) if !running(owed.saga_id) => {
                broken.push(format!("{} is pending and no saga runs", owed.id));
                continue;
            }
            ("pending", [_, Some(settled)]) if matches!(settled.kind, TransferKind::Post(_)) => {
                &mut posted
            }
            ("pending", [Some(_), None]) => &mut held,
            _ => continue,
        };
        let amount = i128::from(owed.remaining_amount);
        *sums.entry(owed.debtor).or_default() -= amount;
        *sums.entry(owed.creditor).or_default() += amount;
    }
    for (saga, _) in state
        .sagas
        .iter()
        .filter(|(saga, _)| !saga.status.is_terminal())
    {
        let request = state.requests.get(&saga.subject.to_string());
        let Some((request, settles)) = request.and_then(|one| Some((one, one.settles?))) else {
            continue;
        };
        let sums = match state.transfers_of(saga.saga_id) {
            [_, Some(settled)] if matches!(settled.kind, TransferKind::Post(_)) => &mut posted,
            [Some(_), None] => &mut held,
            _ => continue,
        };
        let amount = i128::from(request.settled_amount().minor());
        let of = |party| request.broker_of(party).unwrap_or(0);
        *sums.entry(of(settles.debtor)).or_default() += amount;
        *sums.entry(of(settles.debtor.other())).or_default() -= amount;
    }
    for (broker, balances) in &state.positions {
        let of = |sums: &BTreeMap<BrokerId, i128>| sums.get(broker).copied().unwrap_or(0);
        let (owed, found) = (
            (of(&posted), of(&held)),
            (balances.posted(), balances.pending()),
        );
        if owed != found {
            broken.push(format!(
                "broker {broker}: obligations say {owed:?}, the ledger {found:?}"
            ));
        }
    }
}
