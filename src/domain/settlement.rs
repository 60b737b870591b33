//! Which obligations a repayment or a netting takes from: the oldest first, of each only what
//! nothing else has reserved.

use super::ids::ObligationId;
use super::words::words;

/// Obligations that one settlement may span. A debt in more pieces is settled in several.
pub const MAX_PARTS: usize = 10_000;

words!(
    /// What has become of a part of an obligation.
    PartStatus {
        /// Promised to a settlement under way: nothing else can take it.
        Reserved = "reserved",
        Settled = "settled",
        /// The settlement came to nothing, or needed less.
        Released = "released",
    }
);

/// An active obligation and what of it is neither settled nor reserved, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Open {
    pub obligation: ObligationId,
    pub free: u64,
}

/// What is taken of one obligation, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub obligation: ObligationId,
    pub amount: u64,
}

/// There is less to settle than was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("only {available} minor units are left that nothing has reserved")]
pub struct Short {
    pub available: u64,
    /// More is owed, in more obligations than one settlement may span ([`MAX_PARTS`]).
    pub spans: bool,
}

/// All that is free.
#[must_use]
pub fn available(open: &[Open]) -> u64 {
    open.iter().fold(0, |sum, one| sum.saturating_add(one.free))
}

/// Takes `amount` from the first to the last, as much of each as there is. `open` is in the order
/// in which obligations are settled.
///
/// # Errors
/// Less than `amount` is free.
pub fn allocate(open: &[Open], amount: u64) -> Result<Vec<Part>, Short> {
    let mut left = amount;
    let mut parts = Vec::new();
    for one in open {
        if left == 0 {
            break;
        }
        let taken = one.free.min(left);
        if taken > 0 {
            left -= taken;
            parts.push(Part {
                obligation: one.obligation,
                amount: taken,
            });
        }
    }
    match left {
        0 => Ok(parts),
        _ => Err(Short {
            available: available(open),
            spans: open.len() >= MAX_PARTS,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(free: &[u64]) -> Vec<Open> {
        (1..)
            .zip(free)
            .map(|(id, free)| Open {
                obligation: ObligationId::from_bits(id),
                free: *free,
            })
            .collect()
    }

    fn taken(free: &[u64], amount: u64) -> Result<Vec<(u64, u64)>, Short> {
        let parts = allocate(&open(free), amount)?;
        let pairs = parts
            .iter()
            .map(|part| (part.obligation.bits(), part.amount));
        Ok(pairs.collect())
    }

    const fn short(available: u64) -> Short {
        Short {
            available,
            spans: false,
        }
    }

    #[test]
    fn the_oldest_first_and_no_more_than_is_free() {
        assert_eq!(taken(&[5, 0, 7], 9), Ok(vec![(1, 5), (3, 4)]));
        assert_eq!(taken(&[5, 0, 7], 12), Ok(vec![(1, 5), (3, 7)]));
        assert_eq!(taken(&[5, 0, 7], 13), Err(short(12)));
        assert_eq!(taken(&[], 1), Err(short(0)));
        assert_eq!(taken(&[5], 0), Ok(vec![]));
    }

    #[test]
    fn more_may_be_owed_than_one_settlement_spans() {
        let parts = vec![1; MAX_PARTS];
        let spanned = Short {
            available: MAX_PARTS as u64,
            spans: true,
        };
        assert_eq!(taken(&parts, MAX_PARTS as u64 + 1), Err(spanned));
        assert_eq!(taken(&parts, MAX_PARTS as u64).unwrap().len(), MAX_PARTS);
    }

    /// A million repayments of random parts in random amounts: every unit is somewhere.
    #[test]
    fn no_unit_is_unaccounted_for() {
        use rand::rngs::StdRng;
        use rand::{RngExt, SeedableRng};
        let mut random = StdRng::seed_from_u64(7);
        for _ in 0..200_000 {
            let mut debts = open(&[
                random.random_range(0..50),
                random.random_range(0..50),
                random.random_range(0..50),
            ]);
            let before = available(&debts);
            let mut settled = 0;
            for _ in 0..5 {
                let amount = random.random_range(0..60);
                let Ok(parts) = allocate(&debts, amount) else {
                    assert!(amount > available(&debts));
                    continue;
                };
                assert_eq!(parts.iter().map(|part| part.amount).sum::<u64>(), amount);
                settled += amount;
                for part in parts {
                    let of = debts
                        .iter_mut()
                        .find(|one| one.obligation == part.obligation);
                    of.unwrap().free -= part.amount;
                }
            }
            assert_eq!(before, available(&debts) + settled);
        }
    }
}
