//! The certificate of a netting round: everything that somebody needs to check, offline and in one
//! pass, that nobody's net position moved and that no larger total could have been cleared.
//!
//! One JSON object a line, each in canonical form (RFC 8785); all numbers are strings.
//!
//! | line | fields | |
//! |---|---|---|
//! | the first | `format`, `round`, `currency`, `brokers`, `obligations`, `total`, `cleared`, `root` | how many lines follow, their sums in minor units, and the Merkle root (RFC 6962) over the input |
//! | one a broker | `broker`, `price` | by broker, rising |
//! | one an obligation | `id`, `debtor`, `creditor`, `amount`, `reduction` | by id, rising; `amount` is what might be cleared of it |
//! | the last | `sha256` | of all bytes before it |
//!
//! A leaf of the root is the canonical JSON of an obligation's line without its `reduction`.
//!
//! **Why it proves that.** Let `p` be the prices. For any circulation `r` (one that moves nobody's
//! net position) the sum of `r × (p[debtor] − p[creditor])` over all obligations is nothing, since
//! each broker's price counts as often with plus as with minus. So the total of `r` is the sum of
//! `r × (1 + p[debtor] − p[creditor])`, which is largest where `r` is the whole amount wherever the
//! bracket is above zero and nothing wherever it is below. The certificate's reductions are just
//! that; where the bracket is zero it does not matter. So no circulation has a larger total.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::num::NonZero;
use std::thread;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Claim, text};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::merkle;
use crate::domain::money::CurrencyCode;

/// The format that this program writes and reads.
pub const FORMAT: &str = "settlenet-netting-v1";

/// An obligation as it goes into a round, in minor units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    pub id: ObligationId,
    pub debtor: BrokerId,
    pub creditor: BrokerId,
    /// What may be cleared of it.
    pub amount: u64,
    pub reduction: u64,
}

impl Line {
    /// Of which nothing is cleared.
    pub(super) const fn untouched(claim: &Claim) -> Self {
        Self {
            id: claim.id,
            debtor: claim.debtor,
            creditor: claim.creditor,
            amount: claim.amount,
            reduction: 0,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HeaderLine {
    pub(super) brokers: String,
    pub(super) cleared: String,
    pub(super) currency: String,
    pub(super) format: String,
    pub(super) obligations: String,
    pub(super) root: Hash,
    pub(super) round: String,
    pub(super) total: String,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BrokerLine {
    pub(super) broker: String,
    pub(super) price: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ObligationLine<'a> {
    pub(super) amount: &'a str,
    pub(super) creditor: &'a str,
    pub(super) debtor: &'a str,
    pub(super) id: &'a str,
    pub(super) reduction: &'a str,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EndLine {
    pub(super) sha256: Hash,
}

pub(super) fn canonical<T: Serialize>(value: &T) -> io::Result<Vec<u8>> {
    serde_json_canonicalizer::to_vec(value).map_err(io::Error::other)
}

/// The leaf that a line is in the root.
#[must_use]
pub fn leaf(line: &Line) -> Hash {
    let mut bytes = Vec::new();
    text::leaf(&mut bytes, line);
    merkle::leaf(&bytes)
}

/// Leaves of a part of the root's tree that is made by itself. A power of two, so that the parts'
/// roots are leaves of the rest of the tree.
const PART: usize = 256;

/// The Merkle root over a round's input, by id. Made on all processors, where there is enough of it.
#[must_use]
pub fn root(lines: &[Line]) -> Hash {
    let roots = on_all_processors(lines, |lines| {
        let mut text = Vec::new();
        let root_of_part = |lines: &[Line]| {
            let leaf = |line| {
                text::leaf(&mut text, line);
                merkle::leaf(&text)
            };
            lines.iter().map(leaf).collect::<merkle::Growing>().root()
        };
        lines.chunks(PART).map(root_of_part).collect::<Vec<_>>()
    });
    let roots = roots.into_iter().flatten();
    roots.collect::<merkle::Growing>().root()
}

/// Lines as the certificate has them, and the roots of their parts.
struct Written {
    text: Vec<u8>,
    roots: Vec<Hash>,
}

/// Makes the text of each line once, for the certificate and for the root.
fn written(lines: &[Line]) -> Written {
    let mut text = Vec::with_capacity(lines.len() * 112);
    let mut root_of_part = |lines: &[Line]| {
        let leaf = |line| {
            let input = text.len();
            text::input(&mut text, line);
            let leaf = merkle::leaf_of([&text[input..], b"}"]);
            text::reduction(&mut text, line);
            leaf
        };
        lines.iter().map(leaf).collect::<merkle::Growing>().root()
    };
    let roots = lines.chunks(PART).map(&mut root_of_part).collect();
    Written { text, roots }
}

/// Does a piece of work on all lines, a share of them on each processor; in their order.
fn on_all_processors<T: Send>(lines: &[Line], work: impl Fn(&[Line]) -> T + Sync) -> Vec<T> {
    let processors = thread::available_parallelism().map_or(1, NonZero::get);
    let share = lines.len().div_ceil(PART).div_ceil(processors).max(1) * PART;
    let mut shares = lines.chunks(share);
    let Some(first) = shares.next() else {
        return Vec::new();
    };
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = shares
            .map(|lines| scope.spawn(move || work(lines)))
            .collect();
        let mut done = vec![work(first)];
        done.extend(workers.into_iter().map(|worker| {
            let given = worker.join();
            given.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }));
        done
    })
}

/// Writes the certificate of a round, in memory for all of it. Lines are by id, prices by broker,
/// both rising.
///
/// # Errors
/// The writer's.
pub fn write(
    mut out: impl Write,
    round: &str,
    currency: &CurrencyCode,
    prices: &BTreeMap<BrokerId, i64>,
    lines: &[Line],
) -> io::Result<()> {
    let sum = |of: fn(&Line) -> u64| lines.iter().map(|line| u128::from(of(line))).sum::<u128>();
    let shares = on_all_processors(lines, written);
    let roots = shares.iter().flat_map(|share| share.roots.iter().copied());
    let header = HeaderLine {
        brokers: prices.len().to_string(),
        cleared: sum(|line| line.reduction).to_string(),
        currency: currency.to_string(),
        format: FORMAT.to_owned(),
        obligations: lines.len().to_string(),
        root: roots.collect::<merkle::Growing>().root(),
        round: round.to_owned(),
        total: sum(|line| line.amount).to_string(),
    };
    let mut sha256 = Sha256::new();
    let mut put = |line: &[u8]| {
        sha256.update(line);
        out.write_all(line)
    };
    let mut text = canonical(&header)?;
    text.push(b'\n');
    put(&text)?;
    for (broker, price) in prices {
        text::broker(&mut text, *broker, *price);
        put(&text)?;
    }
    for share in &shares {
        put(&share.text)?;
    }
    let sha256 = Hash(sha256.finalize().into());
    out.write_all(&canonical(&EndLine { sha256 })?)?;
    out.write_all(b"\n")
}
