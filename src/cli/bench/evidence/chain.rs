//! Verifying an exported chain, beside hashing the same bytes once.

use std::time::Instant;

use anyhow::Context as _;
use chrono::DateTime;
use uuid::Uuid;

use super::super::report::Figure;
use crate::domain::account::Side;
use crate::domain::canonical::Hash;
use crate::domain::chain::{Entry, EntryKind, ExportedEntry, FORMAT, Verifier, genesis};
use crate::domain::ids::{AccountId, BrokerId};

const BROKER: BrokerId = 7;
const ENTRIES: u64 = 1_000_000;
const ENTRIES_QUICK: u64 = 50_000;
const ACCOUNTS: u64 = 500;
const REPEATS: usize = 5;

pub(super) fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let entries = if quick { ENTRIES_QUICK } else { ENTRIES };
    eprintln!("verifying a chain of {entries} entries");
    let exported = exported(entries)?;
    let per_second = |work: &dyn Fn() -> anyhow::Result<()>| -> anyhow::Result<f64> {
        let mut times = Vec::with_capacity(REPEATS);
        for _ in 0..REPEATS {
            let begun = Instant::now();
            work()?;
            times.push(begun.elapsed().as_secs_f64());
        }
        times.sort_unstable_by(f64::total_cmp);
        Ok(f64::from(u32::try_from(entries)?) / times[REPEATS / 2])
    };
    let hashed = per_second(&|| {
        std::hint::black_box(Hash::of_bytes(&exported));
        Ok(())
    })?;
    let verified = per_second(&|| {
        let mut verifier = Verifier::from_genesis(BROKER);
        verifier.lines(&mut exported.as_slice())??;
        anyhow::ensure!(verifier.finish()?.entries == entries, "entries are missing");
        Ok(())
    })?;
    let size = format!("{}k entries", entries / 1_000);
    let floor = Figure::floor(format!("SHA-256 of the file, {size}"), hashed, "1/s");
    let verified = Figure::floor(format!("chain verified, {size}"), verified, "1/s");
    Ok(vec![verified.beside(&floor, "≥ 0.33"), floor])
}

/// As `settlenet` exports a book that has worked with many accounts.
fn exported(entries: u64) -> anyhow::Result<Vec<u8>> {
    let mut lines = Vec::new();
    let mut balances = vec![0_i64; usize::try_from(ACCOUNTS)?];
    let mut prev_hash = genesis(BROKER);
    for seq in 1..=entries {
        let account = seq * 31 % ACCOUNTS;
        let amount = 100 + seq % 900;
        let balance = &mut balances[usize::try_from(account)?];
        *balance += i64::try_from(amount)?;
        let at = 1_767_225_600_000_000 + i64::try_from(seq)? * 1_234;
        let entry = Entry {
            v: FORMAT,
            broker: BROKER,
            seq,
            saga_id: Uuid::new_v5(&Uuid::NAMESPACE_OID, &seq.to_be_bytes()),
            step: 3,
            leg: 0,
            kind: EntryKind::RequestPrincipal,
            subject: format!("NR-{seq:012x}"),
            account: AccountId::from_bits(account),
            diverted_from: None,
            side: Side::Credit,
            amount,
            currency: "USD".parse()?,
            balance: *balance,
            op_digest: Hash::of_bytes(&seq.to_be_bytes()),
            reverses_seq: None,
            private_digest: None,
            booked_at: DateTime::from_timestamp_micros(at).context("a time")?,
            prev_hash,
        };
        let tx_hash = entry.hash();
        let line = ExportedEntry {
            entry: entry.canonical(),
            private: None,
            tx_hash,
        };
        lines.extend_from_slice(line.to_line()?.as_bytes());
        prev_hash = tx_hash;
    }
    Ok(lines)
}
