use std::collections::BTreeSet;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::join_all;

use super::{Found, Served};
use crate::app::App;
use crate::domain::broker_move::MoveState;
use crate::domain::payment::{PspName, PspState};
use crate::domain::saga::SagaStatus;
use crate::services::checkpoints::CheckpointError;
use crate::services::payments::PaymentError;

/// How long a server has to answer a connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

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
        measure_servers(app).await;
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
        metrics::gauge!("settlenet_outbox_oldest_seconds").set(age(app, oldest));
        measure_payments(app).await?;
        measure_log(app).await?;
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

async fn measure_payments(app: &App) -> Result<(), PaymentError> {
    let backlog = app.payments.backlog().await?;
    let of = |psp: &str, state: &str| {
        let mut rows = backlog.queue.iter();
        let found = rows.find(|(name, of, _)| name == psp && of == state);
        found.map_or(0, |(_, _, count)| count.unsigned_abs())
    };
    for psp in PspName::ALL {
        let open = |state: &&PspState| !matches!(state, PspState::Confirmed | PspState::Failed);
        for state in PspState::ALL.iter().filter(open) {
            let (psp, state) = (psp.as_str(), state.as_str());
            let count = float(of(psp, state));
            metrics::gauge!("settlenet_psp_queue", "psp" => psp, "state" => state).set(count);
        }
    }
    let count = float(backlog.actions.unsigned_abs());
    metrics::gauge!("settlenet_payment_actions").set(count);
    let age = age(app, backlog.oldest_action);
    metrics::gauge!("settlenet_payment_actions_oldest_seconds").set(age);
    Ok(())
}

async fn measure_log(app: &App) -> Result<(), CheckpointError> {
    let standing = match app.checkpoints.standing().await {
        // None has begun yet.
        Err(CheckpointError::NoSuch(_)) => return Ok(()),
        standing => standing?,
    };
    let signed = standing.signed.map_or(0, |signed| signed.size);
    metrics::gauge!("settlenet_log_leaves").set(float(standing.log.size));
    metrics::gauge!("settlenet_log_signed").set(float(signed));
    metrics::gauge!("settlenet_log_requests_waiting").set(float(standing.waiting));
    let age = age(app, standing.unsigned_since);
    metrics::gauge!("settlenet_log_unsigned_seconds").set(age);
    Ok(())
}

/// How long ago that was, in seconds; 0 where it was never.
fn age(app: &App, at: Option<DateTime<Utc>>) -> f64 {
    at.map_or(0.0, |at| {
        let age = app.systems.clock.now() - at;
        age.to_std().unwrap_or_default().as_secs_f64()
    })
}

/// Asks all servers at the same time, and none for long: one that stands still must not keep the
/// others from being measured.
async fn measure_servers(app: &App) {
    let router = &app.systems.router;
    let servers = router.server_use();
    let asked = servers.iter().map(|used| async {
        let answer = tokio::time::timeout(ANSWER_WITHIN, router.answers(&used.server)).await;
        answer == Ok(true)
    });
    let answers = join_all(asked).await;
    for (used, answers) in servers.into_iter().zip(answers) {
        let server = used.server;
        metrics::gauge!("settlenet_server_up", "server" => server.clone()).set(if answers {
            1.0
        } else {
            0.0
        });
        for (state, count) in [
            ("budget", used.budget),
            ("in_use", used.in_use),
            ("open", used.open),
        ] {
            metrics::gauge!(
                "settlenet_server_connections",
                "server" => server.clone(),
                "state" => state
            )
            .set(float(count as u64));
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
