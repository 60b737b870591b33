//! A provider's statement beside what we say of the same payments.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use uuid::Uuid;

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
    /// The provider's name for it; empty where it has told none.
    pub response_id: String,
    pub currency: CurrencyCode,
    /// Minor units.
    pub amount: u64,
    pub status: LineStatus,
    pub paid_at: DateTime<Utc>,
}

/// A line as it stands in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Of the file; computed from what is in it.
    pub import: Uuid,
    /// In the file, its header being 1.
    pub at: u64,
    pub imported_at: DateTime<Utc>,
    pub line: Line,
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

/// The payments that the entries of one uid tell of.
///
/// One that has a name is the same in every file, and as the latest says. One that has none may be
/// one of those with a name in another file, but not in its own: so there are as many payments as
/// one file tells of, or names in all of them, whichever is more.
#[must_use]
pub fn payments(mut entries: Vec<Entry>) -> Vec<Line> {
    entries.sort_by_key(|entry| (entry.imported_at, entry.import, entry.at));
    let mut by_name: BTreeMap<String, Line> = BTreeMap::new();
    // Of each file, the latest last: its ids, and its lines without one.
    let mut files: Vec<(Uuid, BTreeSet<String>, Vec<Line>)> = Vec::new();
    for Entry { import, line, .. } in entries {
        if files.last().is_none_or(|(last, ..)| *last != import) {
            files.push((import, BTreeSet::new(), Vec::new()));
        }
        let Some((_, ids, unnamed)) = files.last_mut() else {
            continue;
        };
        if line.response_id.is_empty() {
            unnamed.push(line);
        } else {
            ids.insert(line.response_id.clone());
            by_name.insert(line.response_id.clone(), line);
        }
    }
    let most = files
        .into_iter()
        .max_by_key(|(_, ids, unnamed)| ids.len() + unnamed.len());
    let mut all: Vec<Line> = by_name.into_values().collect();
    if let Some((_, ids, unnamed)) = most {
        let more = (ids.len() + unnamed.len()).saturating_sub(all.len());
        all.extend(unnamed.into_iter().rev().take(more));
    }
    all
}

/// What does not fit together between all payments of one uid and what we say of it; nothing where all
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
            // It came back before it counted as sent: the money is where we say.
            (_, PspState::Confirmed) | (LineStatus::Returned, PspState::Failed) => {}
            (LineStatus::Paid, PspState::Failed) => {
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
    let by = ours.response_id.as_ref();
    let told_before = by.is_some_and(|by| ours.incoming.contains_key(by));
    let by_itself = ours.psp == PspState::Confirmed && by.is_some() && !told_before;
    let unnamed = ours.psp == PspState::Confirmed && by.is_none() && ours.incoming.is_empty();
    let known = ours.incoming.len() + usize::from(by_itself || unnamed);
    for line in lines {
        if line.response_id.is_empty() {
            if lines.len() > known {
                let count = lines.len();
                found.push(format!("{count} payments came in, and we know of {known}"));
            } else if known == 1 {
                found.extend(another_sum(line, ours));
            }
        } else if ours.response_id.as_deref() == Some(line.response_id.as_str()) {
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
            (back.clone(), I::Completed, P::Confirmed, 1),
            (paid(100), I::Failed, P::Failed, 1),
            (back, I::Failed, P::Failed, 0),
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
    fn a_payment_without_a_name_is_one_of_its_own_in_its_file_alone() {
        let entry = |import: u128, at, name: &str| Entry {
            import: Uuid::from_u128(import),
            at,
            imported_at: DateTime::UNIX_EPOCH
                + chrono::TimeDelta::hours(i64::try_from(import).unwrap()),
            line: line(name, at, LineStatus::Paid),
        };
        for (entries, count) in [
            (vec![entry(1, 2, "")], 1),
            // The same, before and after it had a name.
            (vec![entry(1, 2, ""), entry(2, 2, "p1")], 1),
            (vec![entry(1, 2, "p1"), entry(2, 2, "")], 1),
            (vec![entry(1, 2, ""), entry(2, 7, "")], 1),
            // Two in one file are two, whatever other files say.
            (vec![entry(1, 2, ""), entry(1, 3, "")], 2),
            (vec![entry(1, 2, ""), entry(1, 3, ""), entry(2, 2, "p1")], 2),
            (
                vec![entry(1, 2, ""), entry(1, 3, "p1"), entry(2, 2, "p1")],
                2,
            ),
            (vec![entry(1, 2, "p1"), entry(2, 2, "p2")], 2),
            (vec![entry(1, 2, "p1"), entry(1, 3, "p1")], 1),
        ] {
            assert_eq!(payments(entries.clone()).len(), count, "{entries:?}");
        }
        let [last] = payments(vec![entry(2, 9, "p1"), entry(1, 2, "p1")])
            .try_into()
            .unwrap();
        assert_eq!(last.amount, 9, "as the latest says");
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
        // What has no name is one of those that we know, as far as there are any.
        assert!(differences(&[paid("")], Some(&ours)).is_empty());
        let three = [paid("p1"), paid("p2"), paid("")];
        assert_eq!(differences(&three, Some(&ours)).len(), 1);
    }
}
