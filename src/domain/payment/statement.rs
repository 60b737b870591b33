//! A provider's statement beside what we say of the same payments.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::incoming::IncomingStatus;
use super::{IntentKind, IntentStatus, PspState};
use crate::domain::money::CurrencyCode;
use crate::domain::words::words;

words!(
    /// What a statement says of a payment.
    LineStatus {
        Paid = "paid",
        /// It was paid, and has come back.
        Returned = "returned",
    }
);

/// One payment of a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What we had called it: of a payout the confirmation's uid, of a top-up the code's.
    pub uid: String,
    /// The provider's name for it.
    pub response_id: String,
    pub currency: CurrencyCode,
    /// Minor units.
    pub amount: u64,
    pub status: LineStatus,
    pub paid_at: DateTime<Utc>,
}

/// What we say of a payment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ours {
    pub kind: IntentKind,
    pub status: IntentStatus,
    pub psp: PspState,
    /// The payment that it was confirmed by.
    pub response_id: Option<String>,
    pub currency: CurrencyCode,
    /// Minor units.
    pub amount: u64,
    /// Payments that we were told of for it, by the provider's names for them.
    pub incoming: BTreeMap<String, IncomingStatus>,
}

/// What does not fit together between all lines of one uid and what we say of it; nothing where all
/// is as it must be.
#[must_use]
pub fn differences(lines: &[Line], ours: Option<&Ours>) -> Vec<String> {
    let Some(ours) = ours else {
        return lines
            .iter()
            .map(|line| {
                format!(
                    "{} {} were paid, and we know no such payment",
                    line.amount, line.currency
                )
            })
            .collect();
    };
    match ours.kind {
        IntentKind::Payout => payout(lines, ours),
        IntentKind::TopUp => top_up(lines, ours),
    }
}

fn payout(lines: &[Line], ours: &Ours) -> Vec<String> {
    let mut found = Vec::new();
    if lines.len() > 1 {
        found.push(format!("it was paid {} times", lines.len()));
    }
    for line in lines {
        found.extend(another_sum(line, ours));
        let returned = ours.status == IntentStatus::Returned;
        match (line.status, ours.psp) {
            (LineStatus::Paid, PspState::Confirmed) if returned => {
                found.push("it was paid and not sent back, and we have it as returned".to_owned());
            }
            (LineStatus::Returned, PspState::Confirmed) if !returned => {
                found.push("it was sent back, and we have it as paid".to_owned());
            }
            (_, PspState::Confirmed) => {}
            (_, PspState::Failed) => {
                found.push("it was paid, and we gave the money back to the wallet".to_owned());
            }
            (_, PspState::ManualReview) => {
                found.push("it was paid, and its review is not resolved".to_owned());
            }
            (
                _,
                PspState::New
                | PspState::QueryPending
                | PspState::Queried
                | PspState::ConfirmPending
                | PspState::Inquiring,
            ) => found.push("it was paid, and we do not know that yet".to_owned()),
        }
    }
    found
}

fn top_up(lines: &[Line], ours: &Ours) -> Vec<String> {
    let mut found = Vec::new();
    for line in lines {
        if ours.response_id.as_deref() == Some(line.response_id.as_str()) {
            found.extend(another_sum(line, ours));
        } else if !ours.incoming.contains_key(&line.response_id) {
            let id = &line.response_id;
            found.push(format!("{id} came in, and we were never told of it"));
        }
    }
    found
}

fn another_sum(line: &Line, ours: &Ours) -> Option<String> {
    let same = line.amount == ours.amount && line.currency == ours.currency;
    (!same).then(|| {
        format!(
            "{} {} were paid, and we have {} {}",
            line.amount, line.currency, ours.amount, ours.currency
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(response_id: &str, amount: u64, status: LineStatus) -> Line {
        Line {
            uid: "u".to_owned(),
            response_id: response_id.to_owned(),
            currency: "THB".parse().unwrap(),
            amount,
            status,
            paid_at: DateTime::UNIX_EPOCH,
        }
    }

    fn ours(kind: IntentKind, status: IntentStatus, psp: PspState) -> Ours {
        Ours {
            kind,
            status,
            psp,
            response_id: Some("p1".to_owned()),
            currency: "THB".parse().unwrap(),
            amount: 100,
            incoming: [("p2".to_owned(), IncomingStatus::Suspense)].into(),
        }
    }

    #[test]
    fn a_payout_is_paid_once_and_known_as_paid() {
        use {IntentStatus as I, LineStatus as L, PspState as P};
        let paid = |amount| vec![line("p1", amount, L::Paid)];
        let back = vec![line("p1", 100, L::Returned)];
        let twice = vec![line("p1", 100, L::Paid), line("p2", 100, L::Paid)];
        for (lines, status, psp, count) in [
            (paid(100), I::Completed, P::Confirmed, 0),
            (paid(100), I::Processing, P::Confirmed, 0),
            (back.clone(), I::Returned, P::Confirmed, 0),
            (paid(101), I::Completed, P::Confirmed, 1),
            (paid(100), I::Returned, P::Confirmed, 1),
            (back, I::Completed, P::Confirmed, 1),
            (paid(100), I::Failed, P::Failed, 1),
            (paid(100), I::ManualReview, P::ManualReview, 1),
            (paid(100), I::Processing, P::Inquiring, 1),
            (twice, I::Completed, P::Confirmed, 1),
        ] {
            let found = differences(&lines, Some(&ours(IntentKind::Payout, status, psp)));
            assert_eq!(found.len(), count, "{status} {psp}: {found:?}");
        }
        assert_eq!(differences(&paid(1), None).len(), 1);
    }

    #[test]
    fn each_payment_that_came_in_is_known() {
        let ours = ours(
            IntentKind::TopUp,
            IntentStatus::Completed,
            PspState::Confirmed,
        );
        let paid = |id| line(id, 100, LineStatus::Paid);
        assert!(differences(&[paid("p1"), paid("p2")], Some(&ours)).is_empty());
        assert_eq!(differences(&[paid("p3")], Some(&ours)).len(), 1);
        let more = line("p1", 200, LineStatus::Paid);
        assert_eq!(differences(&[more], Some(&ours)).len(), 1);
    }
}
