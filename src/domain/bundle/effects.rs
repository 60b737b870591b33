//! What must have been booked and be owed, from what was agreed: written a second time and in another
//! way than the plans that book it, so that a mistake in those shows here.

use super::story::{Booking, Story};
use super::{BundledObligation, BundledTransfer};
use crate::domain::account::{AccountRef, HousePurpose, Side};
use crate::domain::chain::EntryKind;
use crate::domain::ids::{AccountId, BrokerId, ObligationId};
use crate::domain::ledger::{AccountName, HOLD_INDEX, SETTLE_INDEX, transfer_id};
use crate::domain::money::Amount;
use crate::domain::request::RequestKind;
use crate::domain::terms::Party;

/// An entry that there must be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) book: BrokerId,
    pub(super) side: Side,
    pub(super) leg: u64,
    pub(super) amount: u64,
    pub(super) kind: &'static str,
    /// Where only one account is possible.
    pub(super) account: Option<AccountId>,
}

impl Due {
    /// Whether an entry that was found is this one.
    pub(super) fn allows(&self, found: &Self) -> bool {
        let any = Self {
            account: None,
            ..found.clone()
        };
        let this = Self {
            account: None,
            ..self.clone()
        };
        any == this && (self.account.is_none() || self.account == found.account)
    }
}

/// The entries of a completion or correction; `None` where nobody has accepted it.
pub(super) fn entries(story: &Story, booking: &Booking) -> Option<Vec<Due>> {
    let mut due = Vec::new();
    for party in [Party::Author, Party::Counterparty] {
        let book = story.broker_of(party)?;
        let amount = booking.moved(Amount::minor);
        due.push(Due {
            book,
            side: booking.turned(principal_side(story, party)),
            leg: 0,
            amount,
            kind: booking.kind_or(principal_kind(story.kind)),
            account: None,
        });
        let Some(commission) = story.terms.commission else {
            continue;
        };
        let pays = commission.payer == party;
        let house = AccountRef::house(book, HousePurpose::Commission, &story.currency).id();
        // A sender pays out of what it sends from.
        let from_own = pays && !story.kind.is_order() && sender(story) == party;
        due.push(Due {
            book,
            side: booking.turned(if pays { Side::Debit } else { Side::Credit }),
            leg: 1,
            amount: booking.moved(|counts| commission.on(counts)),
            kind: booking.kind_or(commission_kind(story.kind)),
            account: (booking.before.is_none() && !from_own).then_some(house),
        });
    }
    due.retain(|due| due.amount > 0);
    due.sort();
    Some(due)
}

/// Who owes whom more by it, and how much; `None` where nobody does.
fn debt(story: &Story, booking: &Booking) -> Option<(Party, u64)> {
    let owed = |counts: Amount| match story.settles {
        // Repaying takes from what the creditor is owed.
        Some(settles) => Some((settles.debtor.other(), counts.minor())),
        None => story.terms.obligation_on(counts),
    };
    let Some(before) = booking.before else {
        return owed(booking.counts?);
    };
    let (debtor, owed_before) = owed(before)?;
    let owed_after = booking
        .counts
        .and_then(owed)
        .map_or(0, |(_, amount)| amount);
    let less = owed_before.saturating_sub(owed_after);
    (less > 0).then_some((debtor.other(), less))
}

/// What is owed by it; a settlement opens nothing.
pub(super) fn obligation(story: &Story, booking: &Booking) -> Option<BundledObligation> {
    if story.settles.is_some() && booking.before.is_none() {
        return None;
    }
    let (debtor, amount) = debt(story, booking)?;
    let saga = booking.saga.to_string();
    Some(BundledObligation {
        amount: amount.to_string(),
        creditor: story.broker_of(debtor.other())?.to_string(),
        currency: story.currency.to_string(),
        debtor: story.broker_of(debtor)?.to_string(),
        id: ObligationId::derive(&[&saga]).to_string(),
        saga,
    })
}

/// What it moves in the ledger.
pub(super) fn transfer(story: &Story, booking: &Booking) -> Option<BundledTransfer> {
    let (debtor, amount) = debt(story, booking)?;
    let position = |party| {
        let broker = story.broker_of(party)?;
        Some(AccountName::position(broker, &story.currency).to_string())
    };
    Some(BundledTransfer {
        amount: amount.to_string(),
        credit: position(debtor.other())?,
        debit: position(debtor)?,
        hold: transfer_id(booking.saga, HOLD_INDEX).get().to_string(),
        post: transfer_id(booking.saga, SETTLE_INDEX).get().to_string(),
        saga: booking.saga.to_string(),
    })
}

impl Booking {
    /// By how much a sum that depends on what counts has changed.
    fn moved(&self, of: impl Fn(Amount) -> u64) -> u64 {
        let counts = self.counts.map_or(0, &of);
        match self.before {
            None => counts,
            Some(before) => of(before).saturating_sub(counts),
        }
    }

    /// A correction books the other way round.
    const fn turned(&self, side: Side) -> Side {
        match self.before {
            None => side,
            Some(_) => side.opposite(),
        }
    }

    const fn kind_or(&self, kind: EntryKind) -> &'static str {
        match self.before {
            None => kind.as_str(),
            Some(_) => EntryKind::DisputeCorrection.as_str(),
        }
    }
}

fn sender(story: &Story) -> Party {
    match story.kind {
        RequestKind::Send => Party::Author,
        RequestKind::Receive | RequestKind::Collect | RequestKind::Payout => Party::Counterparty,
        RequestKind::Settlement => story
            .settles
            .map_or(Party::Author, |settles| settles.debtor),
    }
}

fn principal_side(story: &Story, party: Party) -> Side {
    match story.kind {
        RequestKind::Send | RequestKind::Receive | RequestKind::Settlement => {
            if sender(story) == party {
                Side::Debit
            } else {
                Side::Credit
            }
        }
        RequestKind::Collect => Side::Credit,
        RequestKind::Payout => Side::Debit,
    }
}

const fn principal_kind(kind: RequestKind) -> EntryKind {
    match kind {
        RequestKind::Send | RequestKind::Receive => EntryKind::RequestPrincipal,
        RequestKind::Settlement => EntryKind::Settlement,
        RequestKind::Collect | RequestKind::Payout => EntryKind::OrderPrincipal,
    }
}

const fn commission_kind(kind: RequestKind) -> EntryKind {
    match kind {
        RequestKind::Send | RequestKind::Receive => EntryKind::RequestCommission,
        RequestKind::Settlement => EntryKind::Settlement,
        RequestKind::Collect | RequestKind::Payout => EntryKind::OrderCommission,
    }
}
