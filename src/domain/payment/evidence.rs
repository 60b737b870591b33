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

/// What is known of one intent, as of one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    pub kind: IntentKind,
    pub status: IntentStatus,
    pub has_fee: bool,
    pub psp: Option<PspState>,
    /// What the ledger is yet to be told.
    pub pending: Vec<OutboxAction>,
    /// By index, from 0.
    pub transfers: [Option<Transfer>; 6],
}

impl Standing {
    /// What does not fit together; nothing for an intent that is as it must be.
    #[must_use]
    pub fn breaks(&self) -> Vec<&'static str> {
        match self.kind {
            IntentKind::Payout => self.payout(),
            IntentKind::TopUp => self.top_up(),
        }
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
