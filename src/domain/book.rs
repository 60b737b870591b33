//! What happens in one broker's book: a page of it is loaded under the chain head's lock, jobs
//! are applied in order, and what they changed is written. All rules of a book are here; the
//! store only loads and writes.
//!
//! Every job has an identity (saga, step) and leaves an outcome under it. The first outcome
//! stands: a repeat gets it again, nobody decides it anew.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use uuid::Uuid;

use super::account::{AccountRef, Balance, HousePurpose, OwnerKind, Side};
use super::canonical::Hash;
use super::chain::{self, Entry, EntryKind, FORMAT, PlannedEntry};
use super::ids::{AccountId, BrokerId};
use super::money::CurrencyCode;
use super::request::Booked;
use super::saga::{Outcome, StepDirection};
use super::words::words;

/// Reversing entries carry the number of the step that they undo plus this.
pub const UNDO_STEP: u16 = 1_000;

words!(
    ReservationState {
        Held = "held",
        /// Its debit has been booked.
        Consumed = "consumed",
        Released = "released",
    }
);

/// A piece of work for a book.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    pub saga_id: Uuid,
    pub step: u16,
    /// What it is about, as it stands in the entries: `NR-…`.
    pub subject: String,
    pub work: Work,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Work {
    /// Books entries; debits may use what the saga `consumes` has reserved.
    Book {
        entries: Vec<PlannedEntry>,
        op_digest: Hash,
        consumes: Option<Uuid>,
        /// Free text to stand beside the entries.
        private: Option<Value>,
    },
    UndoBook {
        consumes: Option<Uuid>,
    },
    Reserve {
        account: AccountRef,
        amount: u64,
    },
    UndoReserve,
    /// Gives back all that the saga `reserved_by` reserved.
    Release {
        reserved_by: Uuid,
    },
}

/// What a job comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum JobOutcome {
    Done {
        /// The entries of the step, whether booked now or before.
        booked: Vec<Booked>,
        /// A credit went to the house's suspense account.
        diverted: bool,
    },
    Refused(Value),
    /// The undo came first.
    Tombstone,
}

/// An account as the page holds it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountState {
    pub owner: AccountRef,
    pub open: bool,
    pub balance: Balance,
    pub created_at: DateTime<Utc>,
}

/// A promise on an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    pub account: AccountId,
    pub subject: String,
    pub amount: u64,
    pub state: ReservationState,
    pub created_at: DateTime<Utc>,
}

/// An outcome row.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    pub outcome: Outcome,
    pub reason: Option<Value>,
}

type StepKey = (Uuid, u16, StepDirection);

/// The part of a book that a group of jobs touches, and what they have changed of it.
#[derive(Clone, Debug, Default)]
pub struct Page {
    pub broker: BrokerId,
    pub head_seq: u64,
    pub head_hash: Option<Hash>,
    pub accounts: BTreeMap<AccountId, AccountState>,
    pub reservations: BTreeMap<(Uuid, u16), Reservation>,
    pub steps: HashMap<StepKey, StepRecord>,
    /// Entries of steps that have been booked before, in the order of seq.
    pub entries: HashMap<(Uuid, u16), Vec<(Entry, Hash)>>,
    pub changes: Changes,
}

/// What is to be written.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    pub steps: Vec<(StepKey, StepRecord)>,
    pub entries: Vec<(Entry, Hash, Option<Value>)>,
    pub accounts: BTreeSet<AccountId>,
    pub reservations: BTreeSet<(Uuid, u16)>,
    /// Accounts that were opened on demand.
    pub opened: Vec<AccountId>,
    /// Credits that found no open account: the entry's seq and what it was meant for.
    pub diverted: Vec<(u64, AccountId)>,
}

/// What an entry is, before it has its place in the chain.
struct Facts {
    leg: u16,
    kind: EntryKind,
    account: AccountId,
    diverted_from: Option<AccountId>,
    side: Side,
    amount: u64,
    currency: CurrencyCode,
    op_digest: Hash,
    reverses_seq: Option<u64>,
    private: Option<Value>,
}

impl Changes {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

impl Job {
    /// The accounts that the job may touch, as far as it names them.
    #[must_use]
    pub fn accounts(&self) -> Vec<AccountRef> {
        match &self.work {
            Work::Book { entries, .. } => entries
                .iter()
                .flat_map(|entry| {
                    let suspense = suspense(&entry.account);
                    [entry.account.clone(), suspense]
                })
                .collect(),
            Work::Reserve { account, .. } => vec![account.clone()],
            Work::UndoBook { .. } | Work::UndoReserve | Work::Release { .. } => Vec::new(),
        }
    }

    /// Whether doing the job for the first time records an outcome of its step, under a key that
    /// no second one can have.
    #[must_use]
    pub const fn leaves_an_outcome(&self) -> bool {
        match &self.work {
            Work::Book { .. } | Work::Reserve { .. } | Work::Release { .. } => true,
            Work::UndoBook { .. } | Work::UndoReserve => false,
        }
    }

    /// The sagas whose reservations the job may touch.
    #[must_use]
    pub fn reservations(&self) -> Option<Uuid> {
        match &self.work {
            Work::Book { consumes, .. } | Work::UndoBook { consumes } => *consumes,
            Work::UndoReserve => Some(self.saga_id),
            Work::Release { reserved_by } => Some(*reserved_by),
            Work::Reserve { .. } => None,
        }
    }
}

impl Page {
    /// Applies one job.
    pub fn apply(&mut self, job: &Job, now: DateTime<Utc>) -> JobOutcome {
        match &job.work {
            Work::Book {
                entries,
                op_digest,
                consumes,
                private,
            } => self.first(job, |page| {
                page.book(job, entries, *op_digest, *consumes, private.as_ref(), now)
            }),
            Work::Reserve { account, amount } => {
                self.first(job, |page| page.reserve(job, account, *amount, now))
            }
            Work::Release { reserved_by } => self.first(job, |page| {
                page.move_reservations(
                    *reserved_by,
                    ReservationState::Held,
                    ReservationState::Released,
                );
                Ok(false)
            }),
            Work::UndoBook { consumes } => self.undo(job, |page| {
                page.reverse(job, now);
                if let Some(consumes) = consumes {
                    page.move_reservations(
                        *consumes,
                        ReservationState::Consumed,
                        ReservationState::Held,
                    );
                }
            }),
            Work::UndoReserve => self.undo(job, |page| {
                page.move_reservations(
                    job.saga_id,
                    ReservationState::Held,
                    ReservationState::Released,
                );
            }),
        }
    }

    /// Does the job unless its outcome is already known. `act` says whether a credit was
    /// diverted, or why it is refused; a refusal must have changed nothing.
    fn first(
        &mut self,
        job: &Job,
        act: impl FnOnce(&mut Self) -> Result<bool, Value>,
    ) -> JobOutcome {
        if self
            .steps
            .contains_key(&(job.saga_id, job.step, StepDirection::Undo))
        {
            return JobOutcome::Tombstone;
        }
        let key = (job.saga_id, job.step, StepDirection::Do);
        let known = self.steps.get(&key).cloned();
        match known.as_ref().map(|record| record.outcome) {
            Some(Outcome::Done) => self.done(job),
            Some(Outcome::Refused) => JobOutcome::Refused(
                known
                    .and_then(|record| record.reason)
                    .unwrap_or(Value::Null),
            ),
            Some(Outcome::Tombstone) => JobOutcome::Tombstone,
            None => match act(self) {
                Ok(_) => {
                    self.record(key, Outcome::Done, None);
                    self.done(job)
                }
                Err(reason) => {
                    self.record(key, Outcome::Refused, Some(reason.clone()));
                    JobOutcome::Refused(reason)
                }
            },
        }
    }

    /// Undoes the job's step if it was done, and sees to it that it never will be if it wasn't.
    fn undo(&mut self, job: &Job, act: impl FnOnce(&mut Self)) -> JobOutcome {
        let undo = (job.saga_id, job.step, StepDirection::Undo);
        if !self.steps.contains_key(&undo) {
            let key = (job.saga_id, job.step, StepDirection::Do);
            match self.steps.get(&key).map(|record| record.outcome) {
                Some(Outcome::Done) => act(self),
                Some(Outcome::Refused | Outcome::Tombstone) => {}
                None => self.record(key, Outcome::Tombstone, None),
            }
            self.record(undo, Outcome::Done, None);
        }
        JobOutcome::Done {
            booked: self.booked(job.saga_id, job.step + UNDO_STEP),
            diverted: false,
        }
    }

    fn book(
        &mut self,
        job: &Job,
        planned: &[PlannedEntry],
        op_digest: Hash,
        consumes: Option<Uuid>,
        private: Option<&Value>,
        now: DateTime<Utc>,
    ) -> Result<bool, Value> {
        self.check_debits(planned, consumes)?;
        if let Some(consumes) = consumes {
            self.move_reservations(consumes, ReservationState::Held, ReservationState::Consumed);
        }
        let mut diverted = false;
        for entry in planned {
            let (account, diverted_from) =
                self.landing(&entry.account, entry.side, entry.amount, now);
            diverted |= diverted_from.is_some();
            let facts = Facts {
                leg: entry.leg,
                kind: entry.kind,
                account,
                diverted_from,
                side: entry.side,
                amount: entry.amount,
                currency: entry.account.currency.clone(),
                op_digest,
                reverses_seq: None,
                private: private.cloned(),
            };
            self.append(job, job.step, facts, now);
        }
        Ok(diverted)
    }

    /// Refuses what a debit may not take, before anything is changed: the debits of one account
    /// count together.
    fn check_debits(&self, planned: &[PlannedEntry], consumes: Option<Uuid>) -> Result<(), Value> {
        let mut sums: BTreeMap<AccountId, u64> = BTreeMap::new();
        for entry in planned.iter().filter(|entry| entry.side == Side::Debit) {
            let sum = sums.entry(entry.account.id()).or_default();
            *sum = sum.saturating_add(entry.amount);
        }
        for entry in planned.iter().filter(|entry| entry.side == Side::Debit) {
            let id = entry.account.id();
            let sum = sums.get(&id).copied().unwrap_or(entry.amount);
            self.check_debit(&entry.account, sum, self.held(consumes, id))?;
        }
        Ok(())
    }

    fn check_debit(&self, account: &AccountRef, amount: u64, own: u64) -> Result<(), Value> {
        let id = account.id();
        let balance = match self.accounts.get(&id) {
            None if account.owner_kind == OwnerKind::House => Balance::empty(account.owner_kind),
            None => return Err(json!({ "code": "no_such_account", "account": id })),
            Some(state) if !state.open => {
                return Err(json!({ "code": "account_closed", "account": id }));
            }
            Some(state) => state.balance,
        };
        let fits = moved(balance.balance, Side::Debit, amount).is_some();
        if fits && balance.covers(amount, own) {
            return Ok(());
        }
        let available = balance.available().unwrap_or(0);
        Err(json!({
            "code": "insufficient_funds",
            "account": id,
            "currency": account.currency,
            "needed": amount.to_string(),
            "available": (i128::from(available) + i128::from(own)).to_string(),
        }))
    }

    /// Where an entry lands: its account, opened now if it is the house's; for a credit that
    /// finds no open account, or no room, the house's suspense account.
    fn landing(
        &mut self,
        account: &AccountRef,
        side: Side,
        amount: u64,
        now: DateTime<Utc>,
    ) -> (AccountId, Option<AccountId>) {
        let id = account.id();
        if account.owner_kind == OwnerKind::House {
            self.open_on_demand(account, now);
        }
        let takes = self.accounts.get(&id).is_some_and(|state| {
            state.open && moved(state.balance.balance, side, amount).is_some()
        });
        if takes || side == Side::Debit {
            return (id, None);
        }
        let suspense = suspense(account);
        self.open_on_demand(&suspense, now);
        (suspense.id(), Some(id))
    }

    fn open_on_demand(&mut self, account: &AccountRef, now: DateTime<Utc>) {
        let id = account.id();
        if self.accounts.contains_key(&id) {
            return;
        }
        let state = AccountState {
            owner: account.clone(),
            open: true,
            balance: Balance::empty(account.owner_kind),
            created_at: now,
        };
        self.accounts.insert(id, state);
        self.changes.accounts.insert(id);
        self.changes.opened.push(id);
    }

    fn reserve(
        &mut self,
        job: &Job,
        account: &AccountRef,
        amount: u64,
        now: DateTime<Utc>,
    ) -> Result<bool, Value> {
        self.check_debit(account, amount, 0)?;
        if account.owner_kind == OwnerKind::House {
            self.open_on_demand(account, now);
        }
        let id = account.id();
        let reservation = Reservation {
            account: id,
            subject: job.subject.clone(),
            amount,
            state: ReservationState::Held,
            created_at: now,
        };
        self.reservations.insert((job.saga_id, 0), reservation);
        self.changes.reservations.insert((job.saga_id, 0));
        self.change_reserved(id, i64::try_from(amount).unwrap_or(i64::MAX));
        Ok(false)
    }

    fn move_reservations(&mut self, saga_id: Uuid, from: ReservationState, to: ReservationState) {
        let mut moved = Vec::new();
        for (key, reservation) in &mut self.reservations {
            if key.0 == saga_id && reservation.state == from {
                reservation.state = to;
                moved.push((*key, reservation.account, reservation.amount));
            }
        }
        for (key, account, amount) in moved {
            self.changes.reservations.insert(key);
            let amount = i64::try_from(amount).unwrap_or(i64::MAX);
            let by = match (from, to) {
                (
                    ReservationState::Held,
                    ReservationState::Consumed | ReservationState::Released,
                ) => -amount,
                (
                    ReservationState::Consumed | ReservationState::Released,
                    ReservationState::Held,
                ) => amount,
                (ReservationState::Held, ReservationState::Held)
                | (
                    ReservationState::Consumed | ReservationState::Released,
                    ReservationState::Consumed | ReservationState::Released,
                ) => 0,
            };
            self.change_reserved(account, by);
        }
    }

    fn change_reserved(&mut self, account: AccountId, by: i64) {
        if let Some(state) = self.accounts.get_mut(&account) {
            state.balance.reserved = state.balance.reserved.saturating_add(by);
            self.changes.accounts.insert(account);
        }
    }

    /// What the saga holds on the account.
    fn held(&self, saga_id: Option<Uuid>, account: AccountId) -> u64 {
        self.reservations
            .iter()
            .filter(|((saga, _), reservation)| {
                Some(*saga) == saga_id
                    && reservation.account == account
                    && reservation.state == ReservationState::Held
            })
            .map(|(_, reservation)| reservation.amount)
            .sum()
    }

    /// Appends an entry against each entry of the step.
    fn reverse(&mut self, job: &Job, now: DateTime<Utc>) {
        let original = self
            .entries
            .get(&(job.saga_id, job.step))
            .cloned()
            .unwrap_or_default();
        for (entry, _) in original {
            let side = entry.side.opposite();
            let Some(owner) = self
                .accounts
                .get(&entry.account)
                .map(|state| state.owner.clone())
            else {
                continue;
            };
            let (account, diverted_from) = self.landing(&owner, side, entry.amount, now);
            let facts = Facts {
                leg: entry.leg,
                kind: entry.kind,
                account,
                diverted_from,
                side,
                amount: entry.amount,
                currency: entry.currency.clone(),
                op_digest: entry.op_digest,
                reverses_seq: Some(entry.seq),
                private: None,
            };
            self.append(job, job.step + UNDO_STEP, facts, now);
        }
    }

    fn append(&mut self, job: &Job, step: u16, facts: Facts, now: DateTime<Utc>) {
        let balance = self.accounts.get_mut(&facts.account).map_or(0, |state| {
            let after = moved(state.balance.balance, facts.side, facts.amount);
            state.balance.balance = after.unwrap_or(state.balance.balance);
            state.balance.balance
        });
        let entry = Entry {
            v: FORMAT,
            broker: self.broker,
            seq: self.head_seq + 1,
            saga_id: job.saga_id,
            step,
            leg: facts.leg,
            kind: facts.kind,
            subject: job.subject.clone(),
            account: facts.account,
            diverted_from: facts.diverted_from,
            side: facts.side,
            amount: facts.amount,
            currency: facts.currency,
            balance,
            op_digest: facts.op_digest,
            reverses_seq: facts.reverses_seq,
            private_digest: facts.private.as_ref().map(Hash::of_json),
            booked_at: now,
            prev_hash: self
                .head_hash
                .unwrap_or_else(|| chain::genesis(self.broker)),
        };
        if let Some(meant_for) = entry.diverted_from {
            self.changes.diverted.push((entry.seq, meant_for));
        }
        let hash = entry.hash();
        self.head_seq = entry.seq;
        self.head_hash = Some(hash);
        self.changes.accounts.insert(entry.account);
        self.entries
            .entry((entry.saga_id, entry.step))
            .or_default()
            .push((entry.clone(), hash));
        self.changes.entries.push((entry, hash, facts.private));
    }

    fn record(&mut self, key: StepKey, outcome: Outcome, reason: Option<Value>) {
        let record = StepRecord { outcome, reason };
        self.steps.insert(key, record.clone());
        self.changes.steps.push((key, record));
    }

    fn done(&self, job: &Job) -> JobOutcome {
        let entries = self.entries.get(&(job.saga_id, job.step));
        JobOutcome::Done {
            booked: self.booked(job.saga_id, job.step),
            diverted: entries.is_some_and(|entries| {
                entries
                    .iter()
                    .any(|(entry, _)| entry.diverted_from.is_some())
            }),
        }
    }

    fn booked(&self, saga_id: Uuid, step: u16) -> Vec<Booked> {
        let entries = self.entries.get(&(saga_id, step));
        entries.map_or_else(Vec::new, |entries| {
            entries
                .iter()
                .map(|(entry, hash)| Booked {
                    book: self.broker,
                    seq: entry.seq,
                    tx_hash: *hash,
                })
                .collect()
        })
    }
}

/// A balance after an entry; `None` where it would not fit.
fn moved(balance: i64, side: Side, amount: u64) -> Option<i64> {
    let amount = i64::try_from(amount).ok()?;
    match side {
        Side::Debit => balance.checked_sub(amount),
        Side::Credit => balance.checked_add(amount),
    }
}

fn suspense(account: &AccountRef) -> AccountRef {
    AccountRef::house(account.broker, HousePurpose::Suspense, &account.currency)
}

#[cfg(test)]
mod tests;
