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
//! | the last | `sha256` | of the first line and the brokers', and of each reduction with a line feed |
//!
//! A leaf of the root is up to 32 obligations, each as four numbers of eight bytes, the highest
//! first: `id`, `debtor`, `creditor`, `amount`. Together the root and the digest cover each byte
//! once: see [`Format`] for what they covered before.
//!
//! **Why it proves that.** Let `p` be the prices. For any circulation `r` (one that moves nobody's
//! net position) the sum of `r × (p[debtor] − p[creditor])` over all obligations is nothing, since
//! each broker's price counts as often with plus as with minus. So the total of `r` is the sum of
//! `r × (1 + p[debtor] − p[creditor])`, which is largest where `r` is the whole amount wherever the
//! bracket is above zero and nothing wherever it is below. The certificate's reductions are just
//! that; where the bracket is zero it does not matter. So no circulation has a larger total.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Claim, input, text};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ObligationId};
use crate::domain::merkle;
use crate::domain::money::CurrencyCode;

pub use super::input::{Format, Input, root};

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

/// Lines as the certificate has them, what its digest covers of them, and the roots of their parts.
struct Written {
    text: Vec<u8>,
    reductions: Vec<u8>,
    roots: Vec<Hash>,
}

fn written(format: Format, lines: &[Line]) -> Written {
    let mut text = Vec::with_capacity(lines.len() * 112);
    let mut reductions = Vec::new();
    for line in lines {
        text::whole(&mut text, line);
        if format == Format::V2 {
            text::reduced(&mut reductions, line);
        }
    }
    let roots = input::roots(format, lines);
    Written {
        text,
        reductions,
        roots,
    }
}

/// Writes the certificate of a round, in memory for all of it. Lines are by id, prices by broker,
/// both rising.
///
/// # Errors
/// The writer's.
pub fn write(
    mut out: impl Write,
    format: Format,
    round: &str,
    currency: &CurrencyCode,
    prices: &BTreeMap<BrokerId, i64>,
    lines: &[Line],
) -> io::Result<()> {
    let sum = |of: fn(&Line) -> u64| lines.iter().map(|line| u128::from(of(line))).sum::<u128>();
    let shares = input::on_all_processors(lines, |lines| written(format, lines));
    let roots = shares.iter().flat_map(|share| share.roots.iter().copied());
    let header = HeaderLine {
        brokers: prices.len().to_string(),
        cleared: sum(|line| line.reduction).to_string(),
        currency: currency.to_string(),
        format: format.as_str().to_owned(),
        obligations: lines.len().to_string(),
        root: roots.collect::<merkle::Growing>().root(),
        round: round.to_owned(),
        total: sum(|line| line.amount).to_string(),
    };
    let mut head = canonical(&header)?;
    head.push(b'\n');
    for (broker, price) in prices {
        text::broker(&mut head, *broker, *price);
    }
    let mut sha256 = Sha256::new();
    sha256.update(&head);
    out.write_all(&head)?;
    for share in &shares {
        sha256.update(match format {
            Format::V1 => &share.text,
            Format::V2 => &share.reductions,
        });
        out.write_all(&share.text)?;
    }
    let sha256 = Hash(sha256.finalize().into());
    out.write_all(&canonical(&EndLine { sha256 })?)?;
    out.write_all(b"\n")
}
