//! A checkpoint where few of many books have changed, and proofs out of a log of many.

use std::time::Instant;

use anyhow::Context as _;

use super::super::client::Client;
use super::super::load;
use super::super::network::Bench;
use super::super::report::Figure;
use crate::domain::checkpoint::LeafKind;
use crate::domain::merkle::proof::{extends, includes};
use crate::services::checkpoints::{CheckpointService, Wanted};

const BROKERS: [usize; 2] = [100, 10_000];
const BROKERS_QUICK: [usize; 2] = [50, 300];
/// Books that have changed when a checkpoint is made.
const CHANGED: usize = 10;
const CHECKPOINTS: usize = 21;
const PROOFS: usize = 200;
const MAKERS: usize = 8;

pub(super) async fn measure(bench: &Bench, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let stages = if quick { BROKERS_QUICK } else { BROKERS };
    let service = &bench.app.checkpoints;
    let mut clients: Vec<Client> = Vec::new();
    let mut figures: Vec<Figure> = Vec::new();
    let mut first = None;
    for brokers in stages {
        eprintln!("making {brokers} brokers, each with an entry");
        clients.extend(made(bench, clients.len(), brokers).await?);
        while service.pass().await?.marked > 0 {}
        eprintln!("making {CHECKPOINTS} checkpoints of {CHANGED} changed books");
        let mut times = Vec::with_capacity(CHECKPOINTS);
        for turn in 0..CHECKPOINTS {
            for number in 0..CHANGED {
                let at = (turn * CHANGED + number * 7_919) % clients.len();
                clients[at].write(&bench.app).await?;
            }
            let begun = Instant::now();
            let passed = service.pass().await?;
            times.push(begun.elapsed().as_secs_f64() * 1_000.0);
            anyhow::ensure!(passed.signed && passed.appended > 0, "{passed:?}");
        }
        times.sort_unstable_by(f64::total_cmp);
        let name = format!("checkpoint, {CHANGED} of {brokers} changed");
        let figure = Figure::floor(name, times[CHECKPOINTS / 2], "ms");
        figures.push(match figures.first() {
            Some(floor) => figure.beside(floor, "≈ 1"),
            None => figure,
        });
        let signed = service.checkpoint(None, None).await?.signed;
        first = first.or(Some((signed.size, signed.root)));
    }
    let first = first.context("a checkpoint")?;
    figures.extend(proofs(service, &clients, first).await?);
    Ok(figures)
}

async fn made(bench: &Bench, from: usize, to: usize) -> anyhow::Result<Vec<Client>> {
    let made = std::sync::Arc::new(std::sync::Mutex::new(Vec::with_capacity(to - from)));
    let (app, list) = (bench.app.clone(), std::sync::Arc::clone(&made));
    let work = move |number| {
        let (app, list) = (app.clone(), std::sync::Arc::clone(&list));
        async move {
            let client = Client::new(&app, &format!("Broker {}", from + number)).await?;
            client.write(&app).await?;
            let mut list = list
                .lock()
                .map_err(|_| anyhow::anyhow!("a task panicked"))?;
            list.push(client);
            Ok(())
        }
    };
    load::run(to - from, MAKERS, work).await?;
    let mut made = made
        .lock()
        .map_err(|_| anyhow::anyhow!("a task panicked"))?;
    Ok(std::mem::take(&mut *made))
}

/// Proofs that books are in the last checkpoint, and that it goes on from an early one.
async fn proofs(
    service: &CheckpointService,
    clients: &[Client],
    first: (u64, crate::domain::canonical::Hash),
) -> anyhow::Result<Vec<Figure>> {
    let (mut making, mut checking, mut hashes) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..PROOFS {
        let broker = clients[number * 37 % clients.len()].broker;
        let wanted = Wanted::Last(LeafKind::Book, broker.to_string());
        let begun = Instant::now();
        let found = service.inclusion(None, None, &wanted).await?;
        making.push(begun.elapsed().as_secs_f64() * 1_000.0);
        let begun = Instant::now();
        let leaf = found.leaf.hash_in_tree();
        let holds = includes(leaf, found.index, found.size, found.root, &found.proof);
        checking.push(begun.elapsed().as_secs_f64() * 1_000_000.0);
        anyhow::ensure!(holds, "a proof of {broker} does not hold");
        hashes.push(f64::from(u32::try_from(found.proof.len())?));
    }
    let last = service.checkpoint(None, None).await?.signed;
    let begun = Instant::now();
    let (_, proof) = service.consistency(None, first.0, last.size).await?;
    let consistency = begun.elapsed().as_secs_f64() * 1_000.0;
    anyhow::ensure!(
        extends(first, (last.size, last.root), &proof),
        "no consistency"
    );
    let bytes = |hashes: f64| hashes * 32.0;
    let of = |what: &str| format!("{what}, log of {} leaves", last.size);
    let consistent = f64::from(u32::try_from(proof.len())?);
    Ok(vec![
        Figure::floor(of("inclusion proof made"), median(making), "ms"),
        Figure::floor(of("inclusion proof checked"), median(checking), "µs"),
        Figure::floor(of("inclusion proof"), bytes(median(hashes)), "bytes"),
        Figure::floor(of("consistency proof made"), consistency, "ms"),
        Figure::floor(of("consistency proof"), bytes(consistent), "bytes"),
    ])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}
