//! What a saga does, step by step: a pure function of the request and its terms.
//!
//! Each step has one side effect in one system. Debits come before the pivot and credits after
//! it, so nobody can spend what may yet be reversed. Before the pivot everything can be undone;
//! after it the saga only goes forward.
//!
//! | step | system | does | undone by |
//! |---|---|---|---|
//! | 1 | master | obligation `pending`, in the confirm's own transaction | obligation `failed` |
//! | 2 | ledger | hold, debtor's position → creditor's | void |
//! | 3… | books | the debits | reversing entries |
//! | then | ledger | post: the **pivot** | – |
//! | then | books | the credits, never refused | – |
//! | last | master | obligation `active`, request `completed`, event | – |
//!
//! Where the terms say that nobody owes, there is no ledger step, and the pivot is a
//! compare-and-set of the saga's direction in the master. A settlement opens no obligation: its
//! hold goes from the creditor's position to the debtor's, and its last step lowers what it had
//! been promised of each obligation.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::account::{AccountRef, HousePurpose, Side};
use super::canonical::Hash;
use super::chain::{self, EntryKind, PlannedEntry};
use super::ids::{BrokerId, ObligationId, RequestId};
use super::money::{Amount, Currency, CurrencyCode};
use super::request::{Request, RequestKind};
use super::saga::SagaKind;
use super::terms::Party;

/// The version of the payloads that this program writes; a worker leaves others alone.
pub const PAYLOAD_VERSION: u16 = 2;

/// A saga to be recorded and run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub saga_id: Uuid,
    pub kind: SagaKind,
    pub subject: RequestId,
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// From 1, in the order of the plan.
    pub number: u16,
    pub action: Action,
}

/// A debt as the ledger holds it: debtor's position is debited, creditor's credited.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Debt {
    pub obligation: ObligationId,
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    pub currency: CurrencyCode,
    /// The currency's ledger number.
    pub ledger: u32,
    pub amount: u64,
}

/// The one side effect of a step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// Rides in the transaction that records the saga: the request is claimed.
    Claim,
    /// Rides in the transaction that records the saga.
    OpenObligation(Debt),
    /// A pending transfer.
    Hold(Debt),
    /// Entries in one book, all of one side. Debits consume the reservations that the saga
    /// `consumes` made there.
    Book {
        book: BrokerId,
        entries: Vec<PlannedEntry>,
        op_digest: Hash,
        consumes: Option<Uuid>,
    },
    /// Promises what the completion will debit.
    Reserve { account: AccountRef, amount: u64 },
    /// Gives back what the saga `reserved_by` promised in this book.
    Release { book: BrokerId, reserved_by: Uuid },
    /// The pivot of a saga with a hold.
    Post(Debt),
    /// The pivot of a saga without one.
    Decide,
    /// The last step. Where nothing follows an undecided saga's reservations, it is the pivot
    /// too.
    Finish,
}

impl Action {
    /// The `target_db` of the step's row.
    #[must_use]
    pub fn target(&self) -> String {
        match self {
            Self::Claim | Self::OpenObligation(_) | Self::Decide | Self::Finish => {
                "master".to_owned()
            }
            Self::Hold(_) | Self::Post(_) => "ledger".to_owned(),
            Self::Book { book, .. } | Self::Release { book, .. } => format!("tenant_{book}"),
            Self::Reserve { account, .. } => format!("tenant_{}", account.broker),
        }
    }

    /// The `entity_class` of the step's row.
    #[must_use]
    pub const fn entity_class(&self) -> &'static str {
        match self {
            Self::OpenObligation(_) => "ObligationEntity",
            Self::Hold(_) | Self::Post(_) => "Transfer",
            Self::Book { .. } => "TransactionEntity",
            Self::Reserve { .. } | Self::Release { .. } => "ReservationEntity",
            Self::Decide => "SagaEntity",
            Self::Claim | Self::Finish => "NetworkRequestEntity",
        }
    }

    /// The step's name in logs, metrics and failpoints.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::OpenObligation(_) => "obligation",
            Self::Hold(_) => "hold",
            Self::Book { entries, .. } => match entries.first().map(|entry| entry.side) {
                Some(Side::Debit) | None => "debit",
                Some(Side::Credit) => "credit",
            },
            Self::Reserve { .. } => "reserve",
            Self::Release { .. } => "release",
            Self::Post(_) => "post",
            Self::Decide => "decide",
            Self::Finish => "finish",
        }
    }

    /// Whether the step's effect is in the transaction that records the saga.
    #[must_use]
    pub const fn rides(&self) -> bool {
        match self {
            Self::Claim | Self::OpenObligation(_) => true,
            Self::Hold(_)
            | Self::Book { .. }
            | Self::Reserve { .. }
            | Self::Release { .. }
            | Self::Post(_)
            | Self::Decide
            | Self::Finish => false,
        }
    }

    /// Whether the step decides that the saga goes forward for good.
    #[must_use]
    const fn is_pivot(&self) -> bool {
        match self {
            Self::Post(_) | Self::Decide => true,
            Self::Claim
            | Self::OpenObligation(_)
            | Self::Hold(_)
            | Self::Book { .. }
            | Self::Reserve { .. }
            | Self::Release { .. }
            | Self::Finish => false,
        }
    }
}

impl Plan {
    /// The steps that can be undone: those before the pivot, without what rode along.
    pub fn before_pivot(&self) -> impl DoubleEndedIterator<Item = &Step> {
        let pivot = self.pivot_index();
        self.steps[..pivot]
            .iter()
            .filter(|step| !step.action.rides())
    }

    /// `Post` or `Decide`; `None` where the last step decides.
    #[must_use]
    pub fn pivot(&self) -> Option<&Step> {
        self.steps.iter().find(|step| step.action.is_pivot())
    }

    /// The steps between the pivot and the last: never refused.
    pub fn after_pivot(&self) -> impl Iterator<Item = &Step> {
        let from = self.steps.len().min(self.pivot_index() + 1);
        let until = self.steps.len().saturating_sub(1).max(from);
        self.steps[from..until].iter()
    }

    /// The debt that the ledger holds and posts, if any.
    #[must_use]
    pub fn debt(&self) -> Option<&Debt> {
        self.steps.iter().find_map(|step| match &step.action {
            Action::Post(debt) => Some(debt),
            _ => None,
        })
    }

    /// The debt that begins with this saga, as an obligation that rides in its recording.
    #[must_use]
    pub fn opens(&self) -> Option<&Debt> {
        self.steps.iter().find_map(|step| match &step.action {
            Action::OpenObligation(debt) => Some(debt),
            Action::Claim
            | Action::Hold(_)
            | Action::Book { .. }
            | Action::Reserve { .. }
            | Action::Release { .. }
            | Action::Post(_)
            | Action::Decide
            | Action::Finish => None,
        })
    }

    /// By how much a correction lessens the principal, in minor units.
    #[must_use]
    pub fn corrected_by(&self) -> u64 {
        let entries = self.steps.iter().filter_map(|step| match &step.action {
            Action::Book { entries, .. } => Some(entries),
            _ => None,
        });
        let mut principal = entries.flatten().filter(|entry| entry.leg == 0);
        principal.next().map_or(0, |entry| entry.amount)
    }

    /// The first step that has a side effect of its own: where the saga's lease begins.
    #[must_use]
    pub fn first_step(&self) -> u16 {
        self.steps
            .iter()
            .find(|step| !step.action.rides())
            .map_or(1, |step| step.number)
    }

    fn pivot_index(&self) -> usize {
        let last = self.steps.len().saturating_sub(1);
        self.steps
            .iter()
            .position(|step| step.action.is_pivot())
            .unwrap_or(last)
    }
}

/// Reserves in each book what will be debited there.
#[must_use]
pub fn accept(request: RequestId, saga_id: Uuid, promises: Vec<(AccountRef, u64)>) -> Plan {
    let reserve = |(account, amount)| Action::Reserve { account, amount };
    let mut actions = vec![Action::Claim];
    actions.extend(promises.into_iter().map(reserve));
    actions.push(Action::Finish);
    numbered(saga_id, SagaKind::Accept, request, actions)
}

/// Gives back what an acceptance reserved, in each book.
#[must_use]
pub fn release(request: RequestId, saga_id: Uuid, books: Vec<BrokerId>, reserved_by: Uuid) -> Plan {
    let give_back = |book| Action::Release { book, reserved_by };
    let mut actions: Vec<Action> = books.into_iter().map(give_back).collect();
    actions.push(Action::Finish);
    numbered(saga_id, SagaKind::Release, request, actions)
}

/// Books a request of which `received` has arrived. `None` where the request has no counterparty
/// or accounts yet, which an accepted request always has.
#[must_use]
pub fn confirm(
    request: &Request,
    saga_id: Uuid,
    received: Amount,
    currency: &Currency,
) -> Option<Plan> {
    let author = request.author;
    let counterparty = request.target?;
    let broker_of = |party: Party| match party {
        Party::Author => author,
        Party::Counterparty => counterparty,
    };
    let debt = moved(request, received).map(|(debtor, amount)| Debt {
        obligation: ObligationId::derive(&[&saga_id.to_string()]),
        debtor: broker_of(debtor),
        creditor: broker_of(debtor.other()),
        currency: currency.code.clone(),
        ledger: currency.ledger,
        amount,
    });
    let legs = entries(request, received, broker_of)?;
    let mut actions: Vec<Action> = Vec::new();
    actions.push(match &debt {
        Some(debt) if request.settles.is_none() => Action::OpenObligation(debt.clone()),
        Some(_) | None => Action::Claim,
    });
    actions.extend(debt.clone().map(Action::Hold));
    actions.extend(book_steps(&legs, Side::Debit, request.reservation_saga_id));
    actions.push(debt.map_or(Action::Decide, Action::Post));
    actions.extend(book_steps(&legs, Side::Credit, None));
    actions.push(Action::Finish);

    let mut plan = numbered(saga_id, SagaKind::Confirm, request.id, actions);
    seal(&mut plan);
    Some(plan)
}

/// Books, the other way round, the difference between what was booked of a request and the `counts`
/// minor units that an arbiter found to count. What a floor could refuse is debited from the house's
/// main account: whose client it is settles that with its client. `None` where the request has no
/// counterparty or accounts, which a completed one always has.
#[must_use]
pub fn correct(request: &Request, saga_id: Uuid, counts: u64, currency: &Currency) -> Option<Plan> {
    let author = request.author;
    let counterparty = request.target?;
    let broker_of = |party: Party| match party {
        Party::Author => author,
        Party::Counterparty => counterparty,
    };
    let booked = request.settled_amount();
    let counts = Amount::from_minor(counts).ok();
    let (debtor, before) = moved(request, booked).map_or((Party::Author, 0), |owed| owed);
    let after = counts.and_then(|counts| moved(request, counts));
    let owed_less = before.saturating_sub(after.map_or(0, |(_, amount)| amount));
    let debt = (owed_less > 0).then(|| Debt {
        obligation: ObligationId::derive(&[&saga_id.to_string()]),
        debtor: broker_of(debtor.other()),
        creditor: broker_of(debtor),
        currency: currency.code.clone(),
        ledger: currency.ledger,
        amount: owed_less,
    });
    let left = match counts {
        Some(counts) => entries(request, counts, broker_of)?,
        None => Vec::new(),
    };
    let legs: Vec<PlannedEntry> = entries(request, booked, broker_of)?
        .into_iter()
        .filter_map(|entry| {
            let same = |other: &&PlannedEntry| {
                (other.leg, &other.account, other.side) == (entry.leg, &entry.account, entry.side)
            };
            let stays = left.iter().find(same).map_or(0, |other| other.amount);
            back(entry, stays)
        })
        .collect();
    let mut actions = vec![match &debt {
        Some(debt) => Action::OpenObligation(debt.clone()),
        None => Action::Claim,
    }];
    actions.extend(debt.clone().map(Action::Hold));
    actions.extend(book_steps(&legs, Side::Debit, None));
    actions.push(debt.map_or(Action::Decide, Action::Post));
    actions.extend(book_steps(&legs, Side::Credit, None));
    actions.push(Action::Finish);
    let mut plan = numbered(saga_id, SagaKind::Correct, request.id, actions);
    seal(&mut plan);
    Some(plan)
}

/// What takes an entry back but for `stays` of it; nothing where all of it stays.
fn back(entry: PlannedEntry, stays: u64) -> Option<PlannedEntry> {
    let amount = entry
        .amount
        .checked_sub(stays)
        .filter(|amount| *amount > 0)?;
    let side = entry.side.opposite();
    let account = match side {
        Side::Debit if entry.account.has_floor() => {
            let AccountRef {
                broker, currency, ..
            } = &entry.account;
            AccountRef::house(*broker, HousePurpose::Main, currency)
        }
        Side::Debit | Side::Credit => entry.account,
    };
    Some(PlannedEntry {
        account,
        side,
        amount,
        kind: EntryKind::DisputeCorrection,
        ..entry
    })
}

/// Who owes whom more than before, in minor units. A settlement moves the ledger back: as far as
/// positions go, it is the creditor who now owes.
fn moved(request: &Request, received: Amount) -> Option<(Party, u64)> {
    match request.settles {
        Some(settles) => Some((settles.debtor.other(), received.minor())),
        None => request.terms.obligation_on(received),
    }
}

/// The entries of both books: the principal, and the commission from its payer to the other.
fn entries(
    request: &Request,
    received: Amount,
    broker_of: impl Fn(Party) -> BrokerId,
) -> Option<Vec<PlannedEntry>> {
    let (principal, commission) = match request.kind {
        RequestKind::Send | RequestKind::Receive => {
            (EntryKind::RequestPrincipal, EntryKind::RequestCommission)
        }
        RequestKind::Settlement => (EntryKind::Settlement, EntryKind::Settlement),
        RequestKind::Collect | RequestKind::Payout => {
            (EntryKind::OrderPrincipal, EntryKind::OrderCommission)
        }
    };
    let sender = request.sender();
    // What is sent leaves one book and arrives in the other. Cash that an executor takes or pays
    // moves its cashier's account and the client's the same way.
    let (senders, receivers) = match request.kind {
        RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => {
            (Side::Debit, Side::Credit)
        }
        RequestKind::Collect => (Side::Credit, Side::Credit),
        RequestKind::Payout => (Side::Debit, Side::Debit),
    };
    let mut entries = Vec::with_capacity(4);
    for (party, side) in [(sender, senders), (sender.other(), receivers)] {
        entries.push(PlannedEntry {
            leg: 0,
            account: request.account_of(party)?.clone(),
            side,
            amount: received.minor(),
            kind: principal,
        });
    }
    let agreed = request.terms.commission;
    let agreed = agreed.map(|agreed| (agreed.payer, agreed.on(received)));
    if let Some((payer, amount)) = agreed.filter(|(_, amount)| *amount > 0) {
        let house = |party| {
            let currency = &request.currency;
            AccountRef::house(broker_of(party), HousePurpose::Commission, currency)
        };
        // A sender pays it from the account that it sends from, everybody else from the house's.
        let pays_from = if payer == sender && !request.kind.is_order() {
            request.account_of(sender)?.clone()
        } else {
            house(payer)
        };
        let to = house(payer.other());
        for (account, side) in [(pays_from, Side::Debit), (to, Side::Credit)] {
            entries.push(PlannedEntry {
                leg: 1,
                account,
                side,
                amount,
                kind: commission,
            });
        }
    }
    Some(entries)
}

/// One step for each book that has entries of this side.
fn book_steps(entries: &[PlannedEntry], side: Side, consumes: Option<Uuid>) -> Vec<Action> {
    let mut steps: Vec<Action> = Vec::new();
    for entry in entries.iter().filter(|entry| entry.side == side) {
        let existing = steps.iter_mut().find_map(|step| match step {
            Action::Book { book, entries, .. } if *book == entry.account.broker => Some(entries),
            _ => None,
        });
        match existing {
            Some(of_book) => of_book.push(entry.clone()),
            None => steps.push(Action::Book {
                book: entry.account.broker,
                entries: vec![entry.clone()],
                op_digest: Hash([0; 32]),
                consumes,
            }),
        }
    }
    steps
}

/// Puts the digest of the whole operation into each of its book steps.
fn seal(plan: &mut Plan) {
    let all: Vec<(u16, PlannedEntry)> = plan
        .steps
        .iter()
        .filter_map(|step| match &step.action {
            Action::Book { entries, .. } => {
                Some(entries.iter().map(|entry| (step.number, entry.clone())))
            }
            _ => None,
        })
        .flatten()
        .collect();
    let subject = plan.subject.to_string();
    let digest = chain::op_digest(
        plan.saga_id,
        &subject,
        all.iter().map(|(step, entry)| (*step, entry)),
    );
    for step in &mut plan.steps {
        if let Action::Book { op_digest, .. } = &mut step.action {
            *op_digest = digest;
        }
    }
}

fn numbered(saga_id: Uuid, kind: SagaKind, subject: RequestId, actions: Vec<Action>) -> Plan {
    Plan {
        saga_id,
        kind,
        subject,
        steps: (1..)
            .zip(actions)
            .map(|(number, action)| Step { number, action })
            .collect(),
    }
}

#[cfg(test)]
mod tests;
