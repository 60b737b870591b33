//! Whether an intent, its row at the provider and the ledger say the same.

use super::{IntentKind, IntentStatus, OutboxAction, PspState};

/// What the ledger has under one index of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    Hold,
    Posted,
    Voided,
    Moved,
}

/// What a broker's book has of an intent that is booked there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InBook {
    pub reservation: Reservation,
    pub booked: bool,
    pub booked_back: bool,
}

/// What has become of the reservation of an intent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reservation {
    #[default]
    None,
    /// It was made, and stands or was used by the booking.
    Made,
    /// It was made and given up.
    Released,
}

/// What is known of one intent, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub kind: IntentKind,
    pub status: IntentStatus,
    pub has_fee: bool,
    pub psp: Option<PspState>,
    /// What the ledger is yet to be told.
    pub pending: Vec<OutboxAction>,
    /// Where it names an account in a book.
    pub book: Option<InBook>,
    /// By index, from 0.
    pub transfers: [Option<Transfer>; 6],
}

impl Standing {
    /// What does not fit together; nothing for an intent that is as it must be.
    #[must_use]
    pub fn breaks(&self) -> Vec<&'static str> {
        let mut found = match self.kind {
            IntentKind::Payout => self.payout(),
            IntentKind::TopUp => self.top_up(),
        };
        if let Some(book) = self.book {
            found.extend(self.in_book(book));
        }
        found
    }

    fn in_book(&self, book: InBook) -> Vec<&'static str> {
        let mut found = Vec::new();
        let mut wrong = |is: bool, what| {
            if is {
                found.push(what);
            }
        };
        let doing = |action| self.pending.contains(&action);
        let is_payout = self.kind == IntentKind::Payout;
        match self.status {
            IntentStatus::Created => wrong(book.booked, "it is booked and not held yet"),
            IntentStatus::Held | IntentStatus::Processing | IntentStatus::ManualReview => {
                wrong(
                    is_payout && book.reservation == Reservation::None,
                    "it is held, and its book has nothing reserved",
                );
                wrong(
                    book.reservation == Reservation::Released && !doing(OutboxAction::Void),
                    "its book has given up what is reserved, and it may yet be paid",
                );
                wrong(
                    book.booked && !doing(OutboxAction::Post),
                    "its book has it as paid, and nobody else",
                );
            }
            IntentStatus::Completed | IntentStatus::Returned => {
                wrong(!book.booked, "it is completed, and its book has not got it");
                let returned = self.status == IntentStatus::Returned;
                wrong(
                    book.booked_back != returned && !doing(OutboxAction::Return),
                    "whether it came back is not what its book says",
                );
            }
            IntentStatus::Failed => {
                wrong(book.booked, "it has failed, and its book has it as paid");
                wrong(
                    book.reservation == Reservation::Made,
                    "it has failed, and its book has the amount reserved",
                );
            }
        }
        found
    }

    fn payout(&self) -> Vec<&'static str> {
        use Transfer as T;
        let [hold, fee_hold, settled, fee_settled, out, back] = self.transfers;
        let mut found = Vec::new();
        let mut wrong = |is: bool, what| {
            if is {
                found.push(what);
            }
        };
        let fee = |amount: Option<T>| if self.has_fee { amount } else { None };
        wrong(fee_hold != fee(hold), "amount and fee are not held alike");
        wrong(
            fee_settled != fee(settled),
            "amount and fee are not settled alike",
        );
        wrong(
            settled.is_some() && hold.is_none(),
            "it was settled and never held",
        );
        let moved = settled == Some(T::Posted);
        wrong(
            moved != (out == Some(T::Moved)),
            "what was posted has not left, or what left was not posted",
        );
        wrong(back.is_some() && !moved, "it came back and was never paid");
        let told = |action| !self.pending.contains(&action);
        let (posting, voiding) = (!told(OutboxAction::Post), !told(OutboxAction::Void));
        match self.status {
            IntentStatus::Created => {
                wrong(settled.is_some(), "it is settled and not held yet");
                wrong(
                    self.psp.is_some(),
                    "the provider is asked and nothing is held",
                );
            }
            IntentStatus::Held | IntentStatus::Processing | IntentStatus::ManualReview => {
                wrong(hold.is_none(), "nothing is held for it");
                wrong(self.psp.is_none(), "it has no row at the provider");
                let under_way = posting || voiding;
                wrong(
                    settled.is_some() && !under_way,
                    "the ledger has settled it, and nobody says so",
                );
                let ended = matches!(self.psp, Some(PspState::Confirmed | PspState::Failed));
                wrong(
                    ended && !under_way,
                    "the provider has answered, and the ledger is not told",
                );
            }
            IntentStatus::Completed | IntentStatus::Returned => {
                wrong(!moved, "it is completed and was not posted");
                wrong(
                    self.psp != Some(PspState::Confirmed),
                    "it is completed and the provider's row says otherwise",
                );
                let returned = self.status == IntentStatus::Returned;
                let returning = !told(OutboxAction::Return);
                wrong(
                    back.is_some() != returned && !returning,
                    "whether it came back is not what the ledger says",
                );
            }
            IntentStatus::Failed => {
                let never = hold.is_none() && self.psp.is_none();
                let voided = settled == Some(T::Voided) && self.psp == Some(PspState::Failed);
                wrong(
                    !never && !voided,
                    "it has failed, and something of it stands",
                );
            }
        }
        found
    }

    fn top_up(&self) -> Vec<&'static str> {
        let [credit, fee, ..] = self.transfers;
        let mut found = Vec::new();
        let mut wrong = |is: bool, what| {
            if is {
                found.push(what);
            }
        };
        wrong(
            fee.is_some() && credit.is_none(),
            "its fee was taken and it was not credited",
        );
        wrong(self.psp.is_none(), "it has no row at the provider");
        let posting = self.pending.contains(&OutboxAction::Post);
        match self.status {
            IntentStatus::Completed => {
                wrong(credit.is_none(), "it is completed and was not credited");
                wrong(
                    self.psp != Some(PspState::Confirmed),
                    "it is completed and the provider's row says otherwise",
                );
            }
            IntentStatus::Failed => wrong(credit.is_some(), "it has failed and was credited"),
            IntentStatus::Processing | IntentStatus::ManualReview => {
                wrong(
                    credit.is_some() && !posting,
                    "the ledger has credited it, and nobody says so",
                );
                let ended = matches!(self.psp, Some(PspState::Confirmed | PspState::Failed));
                wrong(
                    ended && self.pending.is_empty(),
                    "the provider has answered, and nobody goes on with it",
                );
            }
            IntentStatus::Created | IntentStatus::Held | IntentStatus::Returned => {
                wrong(true, "a top-up is never in this status");
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Transfer as T;

    const NONE: [Option<Transfer>; 6] = [None; 6];
    const HELD: [Option<Transfer>; 6] = [Some(T::Hold), Some(T::Hold), None, None, None, None];
    const PAID: [Option<Transfer>; 6] = [
        Some(T::Hold),
        Some(T::Hold),
        Some(T::Posted),
        Some(T::Posted),
        Some(T::Moved),
        None,
    ];
    const VOIDED: [Option<Transfer>; 6] = [
        Some(T::Hold),
        Some(T::Hold),
        Some(T::Voided),
        Some(T::Voided),
        None,
        None,
    ];

    fn payout(
        status: IntentStatus,
        psp: Option<PspState>,
        transfers: [Option<Transfer>; 6],
    ) -> Standing {
        let pending = Vec::new();
        Standing {
            kind: IntentKind::Payout,
            status,
            has_fee: true,
            psp,
            pending,
            book: None,
            transfers,
        }
    }

    #[test]
    fn what_must_be_is_no_break() {
        use {IntentStatus as I, PspState as P};
        for (status, psp, transfers) in [
            (I::Created, None, NONE),
            (I::Created, None, HELD),
            (I::Held, Some(P::New), HELD),
            (I::Processing, Some(P::Inquiring), HELD),
            (I::ManualReview, Some(P::ManualReview), HELD),
            (I::Completed, Some(P::Confirmed), PAID),
            (I::Failed, None, NONE),
            (I::Failed, Some(P::Failed), VOIDED),
        ] {
            let found = payout(status, psp, transfers).breaks();
            assert!(found.is_empty(), "{status} {psp:?}: {found:?}");
        }
    }

    #[test]
    fn a_book_has_what_it_should() {
        use Reservation::{Made, None as Nothing, Released};
        use {IntentStatus as I, PspState as P};
        let book = |reservation, booked, booked_back| InBook {
            reservation,
            booked,
            booked_back,
        };
        let mut back = PAID;
        back[5] = Some(T::Moved);
        let (yes, no) = (true, false);
        for (status, psp, transfers, good, bad) in [
            (
                I::Created,
                None,
                NONE,
                book(Made, no, no),
                book(Made, yes, no),
            ),
            (
                I::Held,
                Some(P::New),
                HELD,
                book(Made, no, no),
                book(Nothing, no, no),
            ),
            (
                I::Processing,
                Some(P::Inquiring),
                HELD,
                book(Made, no, no),
                book(Released, no, no),
            ),
            (
                I::ManualReview,
                Some(P::ManualReview),
                HELD,
                book(Made, no, no),
                book(Made, yes, no),
            ),
            (
                I::Completed,
                Some(P::Confirmed),
                PAID,
                book(Made, yes, no),
                book(Made, no, no),
            ),
            (
                I::Completed,
                Some(P::Confirmed),
                PAID,
                book(Made, yes, no),
                book(Made, yes, yes),
            ),
            (
                I::Returned,
                Some(P::Confirmed),
                back,
                book(Made, yes, yes),
                book(Made, yes, no),
            ),
            (
                I::Failed,
                Some(P::Failed),
                VOIDED,
                book(Released, no, no),
                book(Made, no, no),
            ),
            (
                I::Failed,
                None,
                NONE,
                book(Nothing, no, no),
                book(Made, no, no),
            ),
        ] {
            let mut standing = payout(status, psp, transfers);
            standing.book = Some(good);
            assert!(
                standing.breaks().is_empty(),
                "{status}: {:?}",
                standing.breaks()
            );
            standing.book = Some(bad);
            assert_eq!(standing.breaks().len(), 1, "{status} {bad:?}");
        }
    }

    #[test]
    fn each_thing_that_is_missing_or_too_much_is_one() {
        use {IntentStatus as I, PspState as P};
        let good = payout(I::Completed, Some(P::Confirmed), PAID);
        for at in 0..5 {
            let mut bad = good.clone();
            bad.transfers[at] = None;
            assert!(!bad.breaks().is_empty(), "without {at}");
        }
        for (status, psp, transfers) in [
            (I::Completed, Some(P::Failed), PAID),
            (I::Completed, Some(P::Confirmed), VOIDED),
            (I::Failed, Some(P::Failed), PAID),
            (I::Failed, Some(P::Failed), HELD),
            (I::Failed, None, HELD),
            (I::Processing, None, HELD),
            (I::Processing, Some(P::Inquiring), NONE),
            (I::Processing, Some(P::Inquiring), PAID),
            (I::Processing, Some(P::Confirmed), HELD),
            (I::Created, Some(P::New), HELD),
            (I::Returned, Some(P::Confirmed), PAID),
        ] {
            let found = payout(status, psp, transfers).breaks();
            assert!(!found.is_empty(), "{status} {psp:?} {transfers:?}");
        }
        // What is under way is none.
        let mut posting = payout(I::Processing, Some(P::Confirmed), PAID);
        posting.pending = vec![OutboxAction::Post];
        assert!(posting.breaks().is_empty());
    }
}
