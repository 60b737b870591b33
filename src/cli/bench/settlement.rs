//! Settlements per second over spread brokers and over one hot pair, beside the bare saga.

use std::sync::Arc;

use super::floors;
use super::load::{self, Timed};
use super::report::Figure;
use super::stage::{Stage, actor};
use crate::config::Config;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::RequestStatus;

/// Concurrency, and the number of settlements of a whole run.
const LOADS: [(usize, usize); 3] = [(1, 800), (8, 4_000), (64, 8_000)];

pub(super) async fn measure(config: &Config, quick: bool) -> anyhow::Result<Vec<Figure>> {
    eprintln!("making brokers and their databases");
    let stage = Stage::set(config).await?;
    let mut figures = Vec::new();
    floors_of_systems(&stage, quick, &mut figures).await?;
    // Warm-up: connections, statements, caches; of both alike.
    settle(&stage, 200, 16, 8).await?;
    stage.bare.settle(200, 8).await?;
    for (at_once, count) in LOADS {
        let count = if quick { count / 8 } else { count };
        eprintln!("settling {count} at ×{at_once}");
        let bare = stage.bare.settle(count, at_once).await?;
        let spread = settle(&stage, count, stage.brokers.len(), at_once).await?;
        let hot = settle(&stage, count, 2, at_once).await?;
        report(&mut figures, at_once, &bare, &spread, &hot);
    }
    Ok(figures)
}

async fn floors_of_systems(
    stage: &Stage,
    quick: bool,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    let usd = "USD".parse()?;
    for (at_once, count) in [(1, 2_000), (8, 10_000), (64, 20_000)] {
        let count = if quick { count / 8 } else { count };
        let commits = floors::commits(&stage.bare.master, count, at_once).await?;
        figures.push(commits.rate("single-row durable commits", at_once));
    }
    for (at_once, count) in [(1, 500), (64, 10_000)] {
        let count = if quick { count / 8 } else { count };
        let pairs = floors::pairs(&stage.app.systems.ledger, &usd, 1, count, at_once).await?;
        figures.push(pairs.rate("ledger two-phase pairs", at_once));
    }
    Ok(())
}

/// Confirms `count` requests of the first `brokers`, each answered `completed` in the one call.
async fn settle(
    stage: &Stage,
    count: usize,
    brokers: usize,
    at_once: usize,
) -> anyhow::Result<Timed> {
    let requests: Arc<Vec<(RequestId, BrokerId)>> = Arc::new(stage.sent(count, brokers).await?);
    let network = stage.app.network.clone();
    load::run(count, at_once, move |number| {
        let (network, requests) = (network.clone(), Arc::clone(&requests));
        async move {
            let (id, confirms) = requests[number];
            let answer = network.confirm_received(&actor(confirms), id, None).await?;
            anyhow::ensure!(
                answer.request.status == RequestStatus::Completed,
                "{id} is {} after its confirmation",
                answer.request.status
            );
            Ok(())
        }
    })
    .await
}

fn report(figures: &mut Vec<Figure>, at_once: usize, bare: &Timed, spread: &Timed, hot: &Timed) {
    let floor = bare.rate("bare saga", at_once);
    let floor_p50 = bare.latency("bare saga", at_once, 50);
    let floor_p99 = bare.latency("bare saga", at_once, 99);
    let target = if at_once == 1 { "" } else { "≥ 0.5, aim 1.0" };
    let rate = spread.rate("settlements, spread", at_once);
    let hot_rate = hot
        .rate("settlements, hot pair", at_once)
        .beside(&rate, "≥ 0.5 of spread");
    let p50_target = if at_once == 1 { "< 3" } else { "" };
    figures.extend([
        floor.clone(),
        floor_p50.clone(),
        floor_p99.clone(),
        rate.beside(&floor, target),
        spread
            .latency("settlements, spread", at_once, 50)
            .beside(&floor_p50, p50_target),
        spread
            .latency("settlements, spread", at_once, 99)
            .beside(&floor_p99, ""),
        hot_rate,
        hot.latency("settlements, hot pair", at_once, 50)
            .beside(&floor_p50, ""),
        hot.latency("settlements, hot pair", at_once, 99)
            .beside(&floor_p99, ""),
    ]);
}
