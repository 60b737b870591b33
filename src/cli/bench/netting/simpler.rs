//! A simpler way of clearing than the largest total: cycle by cycle, as they are come by.

use std::collections::BTreeMap;

use crate::domain::ids::BrokerId;
use crate::domain::netting::Claim;

/// All that each owes each, in minor units.
fn debts(claims: &[Claim]) -> BTreeMap<(BrokerId, BrokerId), u128> {
    let mut debts = BTreeMap::new();
    for claim in claims {
        *debts.entry((claim.debtor, claim.creditor)).or_default() += u128::from(claim.amount);
    }
    debts
}

/// A debt that is left.
struct Debt {
    creditor: usize,
    left: u128,
}

/// What is cleared by going from debtor to creditor, to the first that is left, and taking the
/// smallest debt off every cycle that closes, until none does.
pub(super) fn greedy_cycles(claims: &[Claim]) -> u128 {
    let debts = debts(claims);
    let mut brokers: Vec<BrokerId> = debts.keys().flat_map(|(from, to)| [*from, *to]).collect();
    brokers.sort_unstable();
    brokers.dedup();
    let place = |broker| brokers.partition_point(|other| *other < broker);
    let mut owed: Vec<Vec<Debt>> = brokers.iter().map(|_| Vec::new()).collect();
    for ((debtor, creditor), left) in debts {
        let creditor = place(creditor);
        owed[place(debtor)].push(Debt { creditor, left });
    }
    // Of each broker: the debt that is looked at, and where on the path it stands. The debts before
    // that one are cleared, or lead to where no cycle is.
    let mut next = vec![0; owed.len()];
    let mut on_path = vec![None; owed.len()];
    let mut cleared = 0;
    for root in 0..owed.len() {
        let mut path = vec![root];
        on_path[root] = Some(0);
        while let Some(debtor) = path.last().copied() {
            let Some(debt) = owed[debtor].get(next[debtor]) else {
                // Nothing leads on from here, so no cycle goes through it any more.
                on_path[debtor] = None;
                path.pop();
                if let Some(before) = path.last() {
                    next[*before] += 1;
                }
                continue;
            };
            let creditor = debt.creditor;
            if debt.left == 0 || next[creditor] == owed[creditor].len() {
                next[debtor] += 1;
            } else if let Some(from) = on_path[creditor] {
                cleared += cancel(&mut owed, &next, &path[from..]);
                // Back to the first debtor whose debt is gone.
                let gone = |debtor: &usize| owed[*debtor][next[*debtor]].left == 0;
                let keep = path[from..]
                    .iter()
                    .position(gone)
                    .map_or(from, |at| from + at);
                for debtor in path.drain(keep + 1..) {
                    on_path[debtor] = None;
                }
            } else {
                on_path[creditor] = Some(path.len());
                path.push(creditor);
            }
        }
    }
    cleared
}

/// Takes the smallest debt off all debts of a cycle, each debtor's that it looks at; gives what is
/// cleared by it.
fn cancel(owed: &mut [Vec<Debt>], next: &[usize], cycle: &[usize]) -> u128 {
    let smallest = cycle.iter().map(|debtor| owed[*debtor][next[*debtor]].left);
    let smallest = smallest.min().unwrap_or(0);
    for debtor in cycle {
        owed[*debtor][next[*debtor]].left -= smallest;
    }
    smallest * cycle.len() as u128
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ObligationId;
    use crate::domain::netting::clear;
    use crate::domain::netting::measure::measure;
    use crate::domain::netting::sample::{Shape, graph};

    fn claims(edges: &[(u64, u64, u64)]) -> Vec<Claim> {
        let claim = |(id, (debtor, creditor, amount)): (u64, &(u64, u64, u64))| Claim {
            id: ObligationId::from_bits(id),
            debtor: *debtor,
            creditor: *creditor,
            amount: *amount,
        };
        (0..).zip(edges).map(claim).collect()
    }

    #[test]
    fn by_hand() {
        // A ring of three, thirty at the least, and two who owe each other.
        let claims = claims(&[(7, 8, 100), (8, 9, 50), (9, 7, 30), (8, 7, 20)]);
        assert_eq!(greedy_cycles(&claims), 40 + 90);
    }

    #[test]
    fn none_passes_the_largest_and_that_not_the_bound() {
        for seed in 1..30 {
            for shape in [Shape::Core, Shape::Skew] {
                let claims = graph(30, 250, shape, seed);
                let largest = clear(&claims).cleared();
                let measure = measure(&claims);
                assert!(measure.bilateral <= largest);
                assert!(greedy_cycles(&claims) <= largest);
                assert!(largest <= measure.bound);
            }
        }
    }
}
