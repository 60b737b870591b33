//! Netting over many brokers: which debts of one currency can be cleared against each other so that
//! every broker's net position stays what it was, and as much as possible of them.
//!
//! [`clear`] finds the largest total there is. What it finds comes with prices, by which anybody
//! can check both: see [`certificate`] for the proof and [`verify`] for the check. [`measure`] says
//! what there is to compare a total with.

pub mod certificate;
pub mod circulation;
mod input;
pub mod measure;
pub mod sample;
mod text;
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
    let node = |broker: BrokerId| brokers.binary_search(&broker).unwrap_or_default();
    let nodes = claims
        .iter()
        .map(|claim| (node(claim.debtor), node(claim.creditor)));
    let nodes: Vec<(usize, usize)> = nodes.collect();
    let order: Vec<usize> = (0..claims.len()).collect();
    let order = sorted(&order, brokers.len(), |place| nodes[place].1);
    let order = sorted(&order, brokers.len(), |place| nodes[place].0);
    let (arcs, members) = merged(claims, &nodes, &order);
    let cleared = circulation::clear(brokers.len(), &arcs);
    let mut lines: Vec<Line> = claims.iter().map(Line::untouched).collect();
    for ((arc, left), claims_of) in arcs.iter().zip(&cleared.left).zip(members) {
        let mut reduce = arc.amount - left;
        for place in &order[claims_of] {
            let line = &mut lines[*place];
            line.reduction = reduce.min(line.amount);
            reduce -= line.reduction;
        }
    }
    lines.sort_unstable_by_key(|line| line.id);
    let prices = brokers.into_iter().zip(cleared.prices).collect();
    Clearing { lines, prices }
}

/// Places by a key below `keys`, rising; those of one key stay as they are.
fn sorted(places: &[usize], keys: usize, key: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut next = vec![0; keys + 1];
    for place in places {
        next[key(*place) + 1] += 1;
    }
    for key in 0..keys {
        next[key + 1] += next[key];
    }
    let mut sorted = vec![0; places.len()];
    for place in places {
        let at = &mut next[key(*place)];
        sorted[*at] = *place;
        *at += 1;
    }
    sorted
}

/// One arc for all claims of one creditor on one debtor, where their sum fits; and which they are,
/// as parts of `order`.
fn merged(
    claims: &[Claim],
    nodes: &[(usize, usize)],
    order: &[usize],
) -> (Vec<Arc>, Vec<std::ops::Range<usize>>) {
    let number = |node: usize| u32::try_from(node).unwrap_or(u32::MAX);
    let mut arcs: Vec<Arc> = Vec::new();
    let mut members: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, place) in order.iter().enumerate() {
        let amount = claims[*place].amount;
        let (debtor, creditor) = (number(nodes[*place].0), number(nodes[*place].1));
        if let (Some(arc), Some(of)) = (arcs.last_mut(), members.last_mut())
            && (arc.debtor, arc.creditor) == (debtor, creditor)
            && let Some(sum) = arc.amount.checked_add(amount)
        {
            arc.amount = sum;
            of.end = at + 1;
            continue;
        }
        arcs.push(Arc {
            debtor,
            creditor,
            amount,
        });
        members.push(at..at + 1);
    }
    (arcs, members)
}
