//! What goes on by itself. All workers have one shape: wake up, claim, serve, and again at once
//! while there is more; a fault waits for the next waking.

mod access;
mod audit;
mod checkpoints;
mod disputes;
mod expiry;
mod gauges;
mod moves;
mod netting;
mod payments;
mod plans;
mod sagas;
mod sequencer;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::app::App;
use crate::config::Config;
use crate::services::auth::AuthService;

/// Starts every worker of the product; they end when `shutdown` is cancelled, each after what it
/// has in hand.
pub fn start(app: &App, config: &Config, shutdown: &CancellationToken) -> JoinSet<()> {
    let poll = config.saga.poll_ms.duration();
    let mut workers = JoinSet::new();
    let sagas = sagas::SagaWorker::new(app.clone(), &config.saga);
    workers.spawn(turn("sagas", poll, shutdown.clone(), move || {
        let sagas = sagas.clone();
        async move { sagas.claim().await }
    }));
    let expiry = app.clone();
    workers.spawn(turn("expiry", poll, shutdown.clone(), move || {
        let app = expiry.clone();
        async move { expiry::expire(&app).await }
    }));
    let rounds = app.clone();
    workers.spawn(turn("netting", poll, shutdown.clone(), move || {
        let app = rounds.clone();
        async move { netting::go_on(&app).await }
    }));
    let disputed = app.clone();
    workers.spawn(turn("disputes", poll, shutdown.clone(), move || {
        let app = disputed.clone();
        async move { disputes::go_on(&app).await }
    }));
    let logged = app.clone();
    workers.spawn(turn("checkpoints", poll, shutdown.clone(), move || {
        let app = logged.clone();
        async move { checkpoints::keep(&app).await }
    }));
    let audited = app.clone();
    workers.spawn(turn("audit", AUDIT_PERIOD, shutdown.clone(), move || {
        let app = audited.clone();
        async move { audit::audit(&app).await }
    }));
    let feeds = app.clone();
    workers.spawn(turn("sequencer", poll, shutdown.clone(), move || {
        let app = feeds.clone();
        async move { sequencer::sequence(&app).await }
    }));
    let changed = app.clone();
    workers.spawn(turn("plans", PLANS_PERIOD, shutdown.clone(), move || {
        let app = changed.clone();
        async move { plans::finish(&app).await }
    }));
    let (watched, patience) = (app.clone(), config.saga.alert_after_ms.duration());
    workers.spawn(turn("watch", WATCH_PERIOD, shutdown.clone(), move || {
        let app = watched.clone();
        async move { watch::watch(&app, patience).await }
    }));
    let poll = config.moves.poll_ms.duration();
    let closed = app.clone();
    workers.spawn(turn("fences", poll, shutdown.clone(), move || {
        let app = closed.clone();
        async move { moves::open(&app).await }
    }));
    for _ in 0..config.moves.concurrency {
        let (app, stopping) = (app.clone(), shutdown.clone());
        workers.spawn(turn("moves", poll, shutdown.clone(), move || {
            let (app, stopping) = (app.clone(), stopping.clone());
            async move { moves::go_on(&app, &stopping).await }
        }));
    }
    payments::start(&mut workers, app, config, shutdown);
    workers
}

/// Keeps a serving process informed of the signing keys, and clears up after log-ins. Needed by
/// every process that serves, also where the rest of the work is left to others.
pub fn keep_access(workers: &mut JoinSet<()>, auth: &AuthService, shutdown: &CancellationToken) {
    let auth = auth.clone();
    workers.spawn(turn("access", ACCESS_PERIOD, shutdown.clone(), move || {
        let auth = auth.clone();
        async move { access::keep(&auth).await }
    }));
}

/// Measures what `/metrics` shows of the network's state, in every process that serves it.
pub fn measure(workers: &mut JoinSet<()>, app: &App, shutdown: &CancellationToken) {
    let app = app.clone();
    let gauges = Arc::new(Mutex::new(gauges::Gauges::default()));
    workers.spawn(turn(
        "gauges",
        MEASURE_PERIOD,
        shutdown.clone(),
        move || {
            let (app, gauges) = (app.clone(), Arc::clone(&gauges));
            async move { gauges.lock().await.measure(&app).await }
        },
    ));
}

/// What has waited for a minute can wait a little longer for being told of.
const AUDIT_PERIOD: Duration = Duration::from_secs(10);
/// How often sagas are looked at.
const WATCH_PERIOD: Duration = Duration::from_secs(10);

/// A broker that has paid for a book of its own sees it move.
const PLANS_PERIOD: Duration = Duration::from_secs(2);

/// As often as it is worth being asked.
const MEASURE_PERIOD: Duration = Duration::from_secs(5);

/// Within this a retired key is no longer taken anywhere.
const ACCESS_PERIOD: Duration = Duration::from_mins(1);

/// Whether a worker found all that it may take at once, so that there may be more.
enum Found {
    More,
    Idle,
}

type Served = Result<Found, Box<dyn std::error::Error + Send + Sync>>;

async fn turn<F, W>(name: &'static str, period: Duration, shutdown: CancellationToken, work: W)
where
    W: FnMut() -> F,
    F: Future<Output = Served> + Send,
{
    // Nobody wakes it.
    woken(name, period, Arc::new(Notify::new()), shutdown, work).await;
}

/// The same for work that somebody tells of; the period is for what was not told.
async fn woken<F, W>(
    name: &'static str,
    period: Duration,
    wake: Arc<Notify>,
    shutdown: CancellationToken,
    mut work: W,
) where
    W: FnMut() -> F,
    F: Future<Output = Served> + Send,
{
    let span = tracing::info_span!("worker", worker = name);
    async {
        loop {
            let served = work().await;
            metrics::counter!("settlenet_worker_turns_total", "worker" => name, "ok" => if served.is_ok() { "1" } else { "0" })
                .increment(1);
            match served {
                Ok(Found::More) if !shutdown.is_cancelled() => continue,
                Ok(Found::More | Found::Idle) => {}
                Err(error) => tracing::warn!(%error, "this turn has failed; the next one tries again"),
            }
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(period) => {}
                () = wake.notified() => {}
            }
        }
    }
    .instrument(span)
    .await;
}
