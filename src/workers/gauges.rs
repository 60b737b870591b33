use std::collections::BTreeSet;

use super::{Found, Served};
use crate::app::App;
use crate::domain::broker_move::MoveState;
use crate::domain::saga::SagaStatus;

/// Measures what is only seen by looking: see docs/metrics.md.
#[derive(Default)]
pub(super) struct Gauges {
    /// Server and database of every pool that was ever open here: one that has closed is shown
    /// with 0 connections.
    pools: BTreeSet<(String, String)>,
}

impl Gauges {
    pub(super) async fn measure(&mut self, app: &App) -> Served {
        self.measure_pools(app);
        let counts = app.sagas.counts().await?;
        // A saga that has ended is counted by settlenet_saga_seconds.
        for status in [
            SagaStatus::Running,
            SagaStatus::Compensating,
            SagaStatus::Stuck,
        ] {
            let count = counts.iter().find(|(of, _)| *of == status);
            let count = count.map_or(0, |(_, count)| *count);
            metrics::gauge!("settlenet_sagas", "status" => status.as_str()).set(float(count));
        }
        let moves = app.moves.counts().await?;
        for state in MoveState::ALL.iter().filter(|state| state.is_open()) {
            let count = moves.iter().find(|(of, _)| of == state.as_str());
            let count = count.map_or(0, |(_, count)| *count);
            let count = float(count.try_into().unwrap_or(0));
            metrics::gauge!("settlenet_moves", "state" => state.as_str()).set(count);
        }
        let (depth, oldest) = app.sagas.backlog().await?;
        metrics::gauge!("settlenet_outbox_depth").set(float(depth));
        let age = oldest.map_or(0.0, |at| {
            let age = app.systems.clock.now() - at;
            age.to_std().unwrap_or_default().as_secs_f64()
        });
        metrics::gauge!("settlenet_outbox_oldest_seconds").set(age);
        Ok(Found::Idle)
    }

    fn measure_pools(&mut self, app: &App) {
        let master = &app.systems.master;
        master.sweep();
        let (open, idle) = master.in_use();
        show("master", "master", open, idle);
        let mut gone = self.pools.clone();
        for pool in app.systems.router.pool_use() {
            let key = (pool.database.server, pool.database.database);
            show(&key.0, &key.1, pool.open, pool.idle);
            gone.remove(&key);
            self.pools.insert(key);
        }
        for (server, database) in gone {
            show(&server, &database, 0, 0);
        }
    }
}

fn show(server: &str, database: &str, open: usize, idle: usize) {
    for (state, count) in [("idle", idle), ("busy", open.saturating_sub(idle))] {
        metrics::gauge!(
            "settlenet_pool_connections",
            "server" => server.to_owned(),
            "database" => database.to_owned(),
            "state" => state
        )
        .set(float(count as u64));
    }
}

/// A count as a gauge has it; beyond four billion it only says that it is large.
fn float(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
