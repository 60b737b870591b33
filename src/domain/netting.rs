//! Netting over many brokers: which debts of one currency can be cleared against each other so that
//! every broker's net position stays what it was, and as much as possible of them.
//!
//! [`clear`] finds the largest total there is. What it finds comes with prices, by which anybody
//! can check both: see [`certificate`] for the proof and [`verify`] for the check. [`measure`] says
//! what there is to compare a total with.

pub mod certificate;
pub mod circulation;
pub mod measure;
pub mod sample;
pub mod verify;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::certificate::Line;
use self::circulation::Arc;
use super::ids::{BrokerId, ObligationId};

/// An obligation, or as much of it as may be cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claim {
    pub id: ObligationId,
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    /// Minor units.
    pub amount: u64,
}

/// What is cleared, and the prices that prove that nothing larger can be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clearing {
    /// By id.
    pub lines: Vec<Line>,
    pub prices: BTreeMap<BrokerId, i64>,
}

impl Clearing {
    /// In minor units.
    #[must_use]
    pub fn cleared(&self) -> u128 {
        self.lines
            .iter()
            .map(|line| u128::from(line.reduction))
            .sum()
    }

    /// In minor units.
    #[must_use]
    pub fn total(&self) -> u128 {
        self.lines.iter().map(|line| u128::from(line.amount)).sum()
    }
}

/// Clears the largest total of claims in one currency. Of several claims of one creditor on one
/// debtor those that come first are cleared first.
#[must_use]
pub fn clear(claims: &[Claim]) -> Clearing {
    let mut brokers: Vec<BrokerId> = claims
        .iter()
        .flat_map(|claim| [claim.debtor, claim.creditor])
        .collect();
    brokers.sort_unstable();
    brokers.dedup();
    let node = |broker: BrokerId| {
        let place = brokers.binary_search(&broker).unwrap_or_default();
        u32::try_from(place).unwrap_or(u32::MAX)
    };
    let mut order: Vec<(u32, u32, usize)> = claims
        .iter()
        .enumerate()
        .map(|(place, claim)| (node(claim.debtor), node(claim.creditor), place))
        .collect();
    order.sort_unstable();
    let (arcs, members) = merged(claims, &order);
    let cleared = circulation::clear(brokers.len(), &arcs);
    let mut lines: Vec<Line> = Vec::with_capacity(claims.len());
    for ((arc, left), claims_of) in arcs.iter().zip(&cleared.left).zip(members) {
        let mut reduce = arc.amount - left;
        for (_, _, place) in &order[claims_of] {
            let claim = claims[*place];
            let reduction = reduce.min(claim.amount);
            reduce -= reduction;
            lines.push(Line {
                id: claim.id,
                debtor: claim.debtor,
                creditor: claim.creditor,
                amount: claim.amount,
                reduction,
            });
        }
    }
    lines.sort_unstable_by_key(|line| line.id);
    let prices = brokers.into_iter().zip(cleared.prices).collect();
    Clearing { lines, prices }
}

/// One arc for all claims of one creditor on one debtor, where their sum fits; and which they are.
fn merged(
    claims: &[Claim],
    order: &[(u32, u32, usize)],
) -> (Vec<Arc>, Vec<std::ops::Range<usize>>) {
    let mut arcs: Vec<Arc> = Vec::new();
    let mut members: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, (debtor, creditor, place)) in order.iter().enumerate() {
        let amount = claims[*place].amount;
        if let (Some(arc), Some(of)) = (arcs.last_mut(), members.last_mut())
            && (arc.debtor, arc.creditor) == (*debtor, *creditor)
            && let Some(sum) = arc.amount.checked_add(amount)
        {
            arc.amount = sum;
            of.end = at + 1;
            continue;
        }
        arcs.push(Arc {
            debtor: *debtor,
            creditor: *creditor,
            amount,
        });
        members.push(at..at + 1);
    }
    (arcs, members)
}
