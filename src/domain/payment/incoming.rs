//! Money that comes in: what a provider's word of it is worth, and where the money goes.
//!
//! | status | what is true | what comes next |
//! |---|---|---|
//! | `waiting` | the provider says that it was paid; its row says nothing final yet | `credited`, where the row says that this payment made it `CONFIRMED`; `suspense`, where it was not this one; stays, where it was and the amount is another |
//! | `credited` | the top-up has it | – |
//! | `suspense` | nobody waits for it any more: the code had expired, or was paid before. It is on `system.suspense` | a person finds whose it is: `assigned` |
//! | `unknown` | no top-up of ours has that reference. Nothing has moved | the same |
//! | `assigned` | a person has given it to a wallet | – |

use super::PspState;
use crate::domain::words::words;

words!(
    IncomingStatus {
        Waiting = "waiting",
        Credited = "credited",
        Suspense = "suspense",
        Unknown = "unknown",
        Assigned = "assigned",
    }
);

words!(
    /// What was made of a provider's word.
    CallbackVerdict {
        /// It tells of a payment that we had not heard of.
        Taken = "taken",
        /// We had.
        Repeated = "repeated",
        /// We had, with another amount, currency or reference: a person must look.
        Contradicts = "contradicts",
        NotSigned = "not_signed",
        /// It was sent too long ago, or is yet to be.
        OutOfTime = "out_of_time",
        /// Signed, and nothing that we could read.
        NotUnderstood = "not_understood",
    }
);

/// Where a payment goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goes {
    /// Nothing can be said yet.
    Nowhere,
    /// It is what the top-up was credited for.
    Credited,
    /// The top-up was confirmed by a person who did not say by which payment: by this one, if it is
    /// of the right amount and no other was before it.
    Claims,
    Suspense,
    /// The top-up was credited for it, and the provider's word has another amount: a person must
    /// look, and nothing is moved.
    Disputed,
}

/// Where a payment for a top-up goes. `by` is the payment that the provider's row was confirmed by.
#[must_use]
pub fn goes(row: PspState, by: Option<&str>, payment: &str, is_amount: bool) -> Goes {
    match (row, by) {
        (PspState::Confirmed, Some(by)) if by == payment && is_amount => Goes::Credited,
        (PspState::Confirmed, Some(by)) if by == payment => Goes::Disputed,
        (PspState::Confirmed, None) if is_amount => Goes::Claims,
        (PspState::Confirmed | PspState::Failed, _) => Goes::Suspense,
        (
            PspState::New
            | PspState::QueryPending
            | PspState::Queried
            | PspState::ConfirmPending
            | PspState::Inquiring
            | PspState::ManualReview,
            _,
        ) => Goes::Nowhere,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_payment_goes_to_one_place_and_none_before_its_row_has_ended() {
        use PspState as S;
        for (row, by, is_amount, expected) in [
            (S::Inquiring, None, true, Goes::Nowhere),
            (S::ManualReview, None, true, Goes::Nowhere),
            (S::Confirmed, Some("p1"), true, Goes::Credited),
            (S::Confirmed, Some("p1"), false, Goes::Disputed),
            (S::Confirmed, Some("p2"), true, Goes::Suspense),
            (S::Confirmed, Some("p2"), false, Goes::Suspense),
            (S::Confirmed, None, true, Goes::Claims),
            (S::Confirmed, None, false, Goes::Suspense),
            (S::Failed, None, true, Goes::Suspense),
            (S::Failed, Some("p1"), true, Goes::Suspense),
        ] {
            assert_eq!(goes(row, by, "p1", is_amount), expected, "{row} {by:?}");
        }
        for state in PspState::ALL {
            let ended = matches!(state, S::Confirmed | S::Failed);
            assert_eq!(
                goes(*state, None, "p1", true) != Goes::Nowhere,
                ended,
                "{state}"
            );
        }
    }
}
