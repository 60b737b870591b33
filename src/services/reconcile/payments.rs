//! Invariant 5: intents, their rows at the provider and the ledger say the same.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::ids::BrokerId;
use crate::domain::ledger::{TransferId, payout_index, transfer_id};
use crate::domain::payment::book_step;
use crate::domain::payment::evidence::{InBook, Reservation, Standing, Transfer};
use crate::domain::payment::transfers::{Expected, Money};
use crate::domain::saga::{Outcome, StepDirection};
use crate::stores::StoreError;
use crate::stores::book::{self, StepOutcome};
use crate::stores::ledger::{TransferKind, TransferRecord};
use crate::stores::pm::intents::Intent;
use crate::stores::pm::{audit, intents};

/// Transfer indexes of an intent.
const INDEXES: u32 = 6;
/// From a hold's index to its post's or void's.
const SETTLES: u32 = payout_index::SETTLE_AMOUNT - payout_index::HOLD_AMOUNT;

impl Reconcile {
    /// Checks every intent.
    ///
    /// # Errors
    /// The payment manager's database's and the ledger's.
    pub async fn payments(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let name = "intents, providers' rows and the ledger say the same";
        let mut report = InvariantReport::new(5, name);
        let mut last = Uuid::nil();
        loop {
            let ids = audit::page(&self.systems.pm, last, PAGE).await?;
            let Some(end) = ids.last() else {
                return Ok(report);
            };
            last = *end;
            let (mut wrong, away) = self.wrong_payments(&ids).await?;
            // What is read of several systems is not of one moment.
            for _ in 1..LOOKS {
                if wrong.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let again: Vec<Uuid> = wrong.keys().copied().collect();
                let (next, _) = self.wrong_payments(&again).await?;
                wrong.retain(|id, what| next.get(id) == Some(what));
            }
            for (broker, error) in away {
                report.unchecked(Finding::new(format!("payments in book {broker}"), error));
            }
            for (id, what) in wrong {
                for what in what {
                    report.broken(Finding::new(format!("intent {id}"), what));
                }
            }
            for _ in &ids {
                report.count(progress);
            }
        }
    }

    /// What is wrong with intents, as far as it looks so now; and the books that could not be asked.
    async fn wrong_payments(&self, ids: &[Uuid]) -> Result<(Wrong, Away), ReconcileError> {
        let pm = &self.systems.pm;
        let found = intents::many(pm, ids).await?;
        let states = audit::states(pm, ids).await?;
        let pending = audit::pending(pm, ids).await?;
        let transfers = |id: Uuid| (0..INDEXES).map(move |index| transfer_id(id, index));
        let wanted: Vec<TransferId> = found.iter().flat_map(|one| transfers(one.id)).collect();
        let there = self.systems.ledger.transfers(&wanted).await?;
        let (books, away) = self.books_of(&found).await;
        let mut wrong = BTreeMap::new();
        for (intent, there) in found.iter().zip(there.chunks(INDEXES as usize)) {
            let mut seen = [None; INDEXES as usize];
            for (slot, record) in seen.iter_mut().zip(there) {
                *slot = record.as_ref().map(|record| match record.kind {
                    TransferKind::Hold => Transfer::Hold,
                    TransferKind::Post(_) => Transfer::Posted,
                    TransferKind::Void(_) => Transfer::Voided,
                    TransferKind::Single => Transfer::Moved,
                });
            }
            let standing = Standing {
                kind: intent.kind,
                status: intent.status,
                has_fee: intent.fee > 0,
                psp: states.get(&intent.id).copied(),
                pending: pending.get(&intent.id).cloned().unwrap_or_default(),
                book: books.get(&intent.id).copied(),
                transfers: seen,
            };
            let mut what: Vec<String> = standing.breaks().into_iter().map(str::to_owned).collect();
            what.extend(other_moves(intent, there));
            if !what.is_empty() {
                wrong.insert(intent.id, what);
            }
        }
        Ok((wrong, away))
    }

    /// What books have of the intents that are booked there.
    async fn books_of(&self, found: &[Intent]) -> (BTreeMap<Uuid, InBook>, Away) {
        let mut wanted: BTreeMap<BrokerId, Vec<Uuid>> = BTreeMap::new();
        for intent in found.iter().filter(|one| one.book_account.is_some()) {
            wanted.entry(intent.broker).or_default().push(intent.id);
        }
        let (mut all, mut away) = (BTreeMap::new(), Away::new());
        for (broker, ids) in wanted {
            match self.of_payments(broker, &ids).await {
                Ok(outcomes) => all.extend(ids.iter().map(|id| (*id, in_book(*id, &outcomes)))),
                Err(error) => {
                    away.insert(broker, error.to_string());
                }
            }
        }
        (all, away)
    }

    async fn of_payments(
        &self,
        broker: BrokerId,
        ids: &[Uuid],
    ) -> Result<Vec<StepOutcome>, StoreError> {
        let scope = self.systems.router.book(broker).await?;
        let mut read = scope.read().await?;
        let outcomes = book::outcomes_of(&mut read, ids).await?;
        read.end().await?;
        Ok(outcomes)
    }
}

type Wrong = BTreeMap<Uuid, Vec<String>>;
type Away = BTreeMap<BrokerId, String>;

/// Transfers that move something else than the intent says.
fn other_moves(intent: &Intent, there: &[Option<TransferRecord>]) -> Vec<String> {
    let money = Money {
        kind: intent.kind,
        channel: intent.channel,
        wallet: &intent.wallet,
        currency: &intent.currency,
        amount: intent.amount,
        fee: intent.fee,
    };
    let expected = match money.transfers() {
        Ok(expected) => expected,
        Err(error) => return vec![error.to_string()],
    };
    let both = (0..).zip(expected).zip(there);
    both.filter_map(|((index, expected), record)| {
        differs(intent.id, index, intent.ledger, expected, record.as_ref()?)
    })
    .collect()
}

/// What a transfer has that it must not have; of each the first.
pub(super) fn differs(
    operation: Uuid,
    index: u32,
    ledger: u32,
    expected: Option<Expected>,
    found: &TransferRecord,
) -> Option<String> {
    let Some(expected) = expected else {
        return Some(format!("it has a transfer {index}, and must have none"));
    };
    let settles = match found.kind {
        TransferKind::Single | TransferKind::Hold => None,
        TransferKind::Post(hold) | TransferKind::Void(hold) => Some(hold),
    };
    let hold = index
        .checked_sub(SETTLES)
        .map(|index| transfer_id(operation, index));
    let what = if found.amount != u128::from(expected.amount) {
        format!("moves {} and not {}", found.amount, expected.amount)
    } else if found.debit != expected.debit {
        "is from another account".to_owned()
    } else if found.credit != expected.credit {
        "is to another account".to_owned()
    } else if found.ledger != ledger {
        format!("is on ledger {} and not {ledger}", found.ledger)
    } else if found.code != expected.code.number() {
        format!("has code {} and not {}", found.code, expected.code.number())
    } else if found.operation != operation {
        format!("is of {}", found.operation)
    } else if settles.is_some() && settles != hold {
        "settles another hold".to_owned()
    } else {
        return None;
    };
    Some(format!("transfer {index} {what}"))
}

fn in_book(id: Uuid, outcomes: &[StepOutcome]) -> InBook {
    let has = |step, direction| {
        let key = (id, step, direction);
        let mut outcomes = outcomes.iter();
        outcomes.any(|(of, outcome)| *of == key && *outcome == Outcome::Done)
    };
    InBook {
        reservation: match (
            has(book_step::RESERVE, StepDirection::Do),
            has(book_step::RESERVE, StepDirection::Undo),
        ) {
            (false, _) => Reservation::None,
            (true, false) => Reservation::Made,
            (true, true) => Reservation::Released,
        },
        booked: has(book_step::BOOK, StepDirection::Do),
        booked_back: has(book_step::RETURN, StepDirection::Do),
    }
}
