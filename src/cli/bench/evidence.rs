//! What evidence costs: verifying a chain, a checkpoint of many books of which few have changed, a
//! proof, and finding out that a row was tampered with.

mod chain;
mod log;
mod tampering;

use super::network::Bench;
use super::report::Figure;
use crate::config::{Config, Seconds};

pub(super) const GROUP: &str = "evidence";

pub(super) async fn measure(config: &Config, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let mut figures = tokio::task::spawn_blocking(move || chain::measure(quick)).await??;
    let mut config = config.clone();
    // Each pass is due at once.
    config.checkpoints.interval_s = Seconds(0);
    config.audit.growth_s = Seconds(0);
    let bench = Bench::set(&config).await?;
    let now = bench.app.systems.clock.now();
    let places = &bench.app.provisioning;
    places.register_server("a", 0, None, now).await?;
    let shard = bench.database("shard");
    places.create_shard("a", &shard, 20_000, None, now).await?;
    figures.extend(Box::pin(log::measure(&bench, quick)).await?);
    figures.extend(Box::pin(tampering::measure(&bench, quick)).await?);
    Ok(figures.into_iter().map(|figure| figure.of(GROUP)).collect())
}
