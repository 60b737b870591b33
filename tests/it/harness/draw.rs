//! Numbers drawn so widely that tests share one ledger without meeting.

use std::ops::Range;

/// `count` broker ids in a row that no other test has, in practice.
pub fn broker_ids(count: u64) -> Range<u64> {
    let first = rand::random_range(1 << 20..(1 << 47) - count);
    first..first + count
}

/// A TigerBeetle ledger number (one per currency) of this test's own. The
/// registry's real currencies have numbers below 1000.
pub fn ledger() -> u32 {
    rand::random_range(1_000..1 << 31)
}
