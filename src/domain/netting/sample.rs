//! Seeded graphs of obligations, for measurements and tests: few brokers owe and are owed most, as
//! in any network. Integers only, so any language can make the same.

use super::Claim;
use crate::domain::ids::ObligationId;

/// What a graph is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Large debtors are the large creditors too: much can be cleared.
    Core,
    /// They are not, so little can.
    Skew,
}

/// Numbers of splitmix64.
struct Numbers(u64);

impl Numbers {
    const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// So many obligations between so many brokers (0 and up), whose weights fall as 1 / (number + 10).
/// Each is of 1 to 10^2 … 10^6 minor units. Ids are in the order in which they are made.
#[must_use]
pub fn graph(brokers: u64, obligations: u64, shape: Shape, seed: u64) -> Vec<Claim> {
    let mut weights = Vec::new();
    let mut all = 0_u64;
    for number in 0..brokers {
        all += 1_000_000_000 / (number + 10);
        weights.push(all);
    }
    let mut numbers = Numbers(seed);
    let mut claims = Vec::new();
    let pick = |numbers: &mut Numbers| {
        let at = numbers.next() % all;
        weights.partition_point(|upto| *upto <= at) as u64
    };
    for number in 0..obligations {
        let debtor = pick(&mut numbers);
        let creditor = loop {
            let picked = pick(&mut numbers);
            let creditor = match shape {
                Shape::Core => picked,
                Shape::Skew => (picked * 7_919 + 13) % brokers,
            };
            if creditor != debtor {
                break creditor;
            }
        };
        let digits = u32::try_from(numbers.next() % 5).unwrap_or_default();
        let amount = 1 + numbers.next() % 10_u64.pow(2 + digits);
        claims.push(Claim {
            id: ObligationId::from_bits(number),
            debtor,
            creditor,
            amount,
        });
    }
    claims
}
