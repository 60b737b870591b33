//! Clearing many brokers' debts: how long it takes to find the largest total, to prove it and to
//! check the proof, beside OR-tools' min-cost flow on the same graph; and how much is cleared
//! beside what simpler ways clear.

mod floor;
mod simpler;

use std::time::Instant;

use self::floor::OrTools;
use super::report::Figure;
use crate::domain::netting::certificate::{Format, write};
use crate::domain::netting::sample::{Shape, graph};
use crate::domain::netting::verify::verify;
use crate::domain::netting::{self, Claim, Clearing, clear};

pub(super) const GROUP: &str = "netting";

/// A graph that is measured.
struct Size {
    brokers: u64,
    obligations: u64,
    /// How often each thing is measured; the median counts.
    repeats: usize,
    name: &'static str,
}

const SIZES: [Size; 4] = [
    size(100, 1_000, 201, "100/1k"),
    size(1_000, 20_000, 51, "1k/20k"),
    size(10_000, 200_000, 11, "10k/200k"),
    size(10_000, 1_000_000, 5, "10k/1M"),
];

const fn size(brokers: u64, obligations: u64, repeats: usize, name: &'static str) -> Size {
    Size {
        brokers,
        obligations,
        repeats,
        name,
    }
}

/// Needs no servers. Without OR-tools there are figures and no floor.
///
/// # Errors
/// A result that is not OR-tools' own, or does not verify.
pub(super) fn measure(quick: bool) -> anyhow::Result<Vec<Figure>> {
    let ortools = OrTools::find();
    if ortools.is_none() {
        eprintln!("OR-tools is not here, so netting has no floor: scripts/ortools.sh fetches it");
    }
    let mut figures = Vec::new();
    for size in &SIZES[..SIZES.len() - usize::from(quick)] {
        let Size {
            brokers,
            obligations,
            ..
        } = size;
        eprintln!("clearing {obligations} obligations of {brokers} brokers");
        let claims = graph(*brokers, *obligations, Shape::Core, 1);
        let (times, cleared) = times(size, &claims, ortools.as_ref())?;
        figures.extend(times);
        figures.extend(shares(size.name, &claims, cleared));
    }
    Ok(figures.into_iter().map(|figure| figure.of(GROUP)).collect())
}

/// How long it takes, in milliseconds; and what is cleared, in minor units.
fn times(
    size: &Size,
    claims: &[Claim],
    ortools: Option<&OrTools>,
) -> anyhow::Result<(Vec<Figure>, u128)> {
    let name = size.name;
    let timed = |what, work: &dyn Fn() -> anyhow::Result<u128>| timed(size, what, work);
    let (solving, cleared) = timed("solved", &|| Ok(clear(claims).cleared()))?;
    let (proving, _) = timed("solved and certified", &|| {
        Ok(certificate(&clear(claims))?.len() as u128)
    })?;
    let certificate = certificate(&clear(claims))?;
    let (verifying, proved) = timed("certificate verified", &|| {
        Ok(verify(certificate.as_slice())?.cleared)
    })?;
    anyhow::ensure!(
        proved == cleared,
        "{name}: the certificate is of {proved}, not {cleared}"
    );
    let Some(ortools) = ortools else {
        return Ok((vec![solving, proving, verifying], cleared));
    };
    let floor = ortools.measure(claims, size.repeats)?;
    anyhow::ensure!(
        floor.optimum == cleared,
        "{name}: {cleared} is cleared, but OR-tools clears {}",
        floor.optimum
    );
    let floor_of = |what: &str, ms| Figure::floor(format!("OR-tools {what}, {name}"), ms, "ms");
    let floor_solving = floor_of("solving", floor.solving_ms);
    let floor_both = floor_of("building and solving", floor.both_ms);
    let figures = vec![
        solving.beside(&floor_solving, "≤ 2"),
        proving.beside(&floor_both, "< 1"),
        verifying,
        floor_of("building", floor.building_ms),
        floor_solving,
        floor_both,
    ];
    Ok((figures, cleared))
}

fn certificate(clearing: &Clearing) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let currency = "USD".parse()?;
    let (prices, lines) = (&clearing.prices, &clearing.lines);
    write(
        &mut bytes,
        Format::NEW,
        "NT-000000000001",
        &currency,
        prices,
        lines,
    )?;
    Ok(bytes)
}

/// The median time of a piece of work in milliseconds, each after the other; and what it gives.
fn timed(
    size: &Size,
    what: &str,
    work: &dyn Fn() -> anyhow::Result<u128>,
) -> anyhow::Result<(Figure, u128)> {
    let mut times = Vec::with_capacity(size.repeats);
    let mut given = 0;
    for _ in 0..size.repeats {
        let begun = Instant::now();
        given = work()?;
        times.push(begun.elapsed().as_secs_f64() * 1_000.0);
    }
    times.sort_unstable_by(f64::total_cmp);
    let name = format!("{what}, {}", size.name);
    Ok((Figure::floor(name, times[times.len() / 2], "ms"), given))
}

/// How much of the total is cleared, in percent, beside simpler ways and what can't be passed.
fn shares(name: &str, claims: &[Claim], cleared: u128) -> Vec<Figure> {
    let total = claims.iter().map(|claim| u128::from(claim.amount)).sum();
    let share = |what: &str, of: u128| {
        Figure::floor(format!("cleared {what}, {name}"), percent(of, total), "%")
    };
    let measured = netting::measure::measure(claims);
    let bound = share("at most (net positions)", measured.bound);
    let ours = share("of the total", cleared);
    let bilateral = share("bilaterally", measured.bilateral);
    let greedy = share("by greedy cycles", simpler::greedy_cycles(claims));
    vec![
        bilateral.beside(&ours, ""),
        greedy.beside(&ours, ""),
        ours.beside(&bound, "≤ 1"),
        bound,
    ]
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sums of a benchmark are far below 2^52"
)]
fn percent(part: u128, of: u128) -> f64 {
    part as f64 / of as f64 * 100.0
}
