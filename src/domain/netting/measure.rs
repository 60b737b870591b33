//! What a cleared total can be compared with: what clearing between each two brokers alone would
//! come to, and what no clearing can exceed.

use std::collections::BTreeMap;

use super::Claim;
use crate::domain::ids::BrokerId;

/// Of a set of claims in one currency, in minor units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// All claims together.
    pub total: u128,
    /// What is cleared where each two brokers net what they owe each other, and nobody else is
    /// asked.
    pub bilateral: u128,
    /// No clearing is larger: whoever owes on balance owes that much afterwards too, so half the
    /// sum of all net positions, taken without their signs, always remains.
    pub bound: u128,
}

/// Measures claims in one pass.
#[must_use]
pub fn measure(claims: &[Claim]) -> Measure {
    let mut total = 0_u128;
    let mut nets: BTreeMap<BrokerId, i128> = BTreeMap::new();
    let mut pairs: BTreeMap<(BrokerId, BrokerId), [u128; 2]> = BTreeMap::new();
    for claim in claims {
        total += u128::from(claim.amount);
        *nets.entry(claim.creditor).or_default() += i128::from(claim.amount);
        *nets.entry(claim.debtor).or_default() -= i128::from(claim.amount);
        let backwards = claim.debtor > claim.creditor;
        let pair = if backwards {
            (claim.creditor, claim.debtor)
        } else {
            (claim.debtor, claim.creditor)
        };
        pairs.entry(pair).or_default()[usize::from(backwards)] += u128::from(claim.amount);
    }
    let owed: u128 = nets
        .values()
        .filter_map(|net| u128::try_from(*net).ok())
        .sum();
    Measure {
        total,
        bilateral: pairs.values().map(|[one, other]| 2 * one.min(other)).sum(),
        bound: total - owed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::clear;
    use super::super::sample::{Shape, graph};
    use super::*;
    use crate::domain::ids::ObligationId;

    fn measured(claims: &[(BrokerId, BrokerId, u64)]) -> Measure {
        let claims: Vec<Claim> = (1..)
            .zip(claims)
            .map(|(id, (debtor, creditor, amount))| Claim {
                id: ObligationId::from_bits(id),
                debtor: *debtor,
                creditor: *creditor,
                amount: *amount,
            })
            .collect();
        measure(&claims)
    }

    #[test]
    fn small_ones_by_hand() {
        let of = |total, bilateral, bound| Measure {
            total,
            bilateral,
            bound,
        };
        assert_eq!(measured(&[]), Measure::default());
        assert_eq!(measured(&[(1, 2, 10)]), of(10, 0, 0));
        // Ten against seven: seven of each.
        assert_eq!(measured(&[(1, 2, 10), (2, 1, 7)]), of(17, 14, 14));
        // Two debts of one on the other count together.
        assert_eq!(measured(&[(1, 2, 4), (2, 1, 7), (1, 2, 5)]), of(16, 14, 14));
        // A ring has nothing for two alone, and may be cleared whole.
        assert_eq!(measured(&[(1, 2, 5), (2, 3, 5), (3, 1, 5)]), of(15, 0, 15));
        // The bound is above what there is: nothing leads back to 1.
        assert_eq!(measured(&[(1, 2, 5), (2, 3, 5)]), of(10, 0, 5));
    }

    #[test]
    fn a_clearing_lies_between() {
        for seed in 0..40 {
            for shape in [Shape::Core, Shape::Skew] {
                let claims = graph(30, 300, shape, seed);
                let (measure, clearing) = (measure(&claims), clear(&claims));
                assert_eq!(measure.total, clearing.total());
                assert!(measure.bilateral <= clearing.cleared(), "{seed}");
                assert!(clearing.cleared() <= measure.bound, "{seed}");
            }
        }
    }
}
