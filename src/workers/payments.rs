//! Payments: what the ledger and books are told, and turns at providers.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{Found, Served, turn, woken};
use crate::app::App;
use crate::config::Config;
use crate::domain::payment::PspName;
use crate::services::payments::{PaymentOutbox, PaymentService, PspEngine};

/// Starts the work on payments. Where no provider is configured there is none but what was begun
/// before.
pub(super) fn start(
    workers: &mut JoinSet<()>,
    app: &App,
    config: &Config,
    shutdown: &CancellationToken,
) {
    let poll = config.payments.poll_ms.duration();
    let wake = app.payments.wake();
    let (outbox, batch) = (app.payments.outbox(), config.payments.batch);
    workers.spawn(woken(
        "payments",
        poll,
        wake.outbox(),
        shutdown.clone(),
        move || {
            let outbox = outbox.clone();
            async move { tell(&outbox, batch).await }
        },
    ));
    let outbox = app.payments.outbox();
    workers.spawn(woken(
        "incoming",
        poll,
        wake.incoming(),
        shutdown.clone(),
        move || {
            let outbox = outbox.clone();
            async move { take_in(&outbox, batch).await }
        },
    ));
    let (payments, stopping) = (app.payments.clone(), shutdown.clone());
    workers.spawn(async move { seed(&payments, &stopping).await });
    let engine = app.payments.engine();
    let reminded = engine.clone();
    workers.spawn(turn(
        "reviews",
        REMIND_PERIOD,
        shutdown.clone(),
        move || {
            let engine = reminded.clone();
            async move { remind(&engine).await }
        },
    ));
    let forgetting = engine.clone();
    workers.spawn(turn(
        "old calls",
        FORGET_PERIOD,
        shutdown.clone(),
        move || {
            let engine = forgetting.clone();
            async move { forget(&engine).await }
        },
    ));
    for psp in engine.providers() {
        if engine.is_watched(psp) {
            let engine = engine.clone();
            workers.spawn(turn("watch", WATCH_PERIOD, shutdown.clone(), move || {
                let engine = engine.clone();
                async move { watch(&engine, psp, batch).await }
            }));
        }
        let turns = Turns {
            engine: engine.clone(),
            psp,
            room: Arc::new(Semaphore::new(config.payments.concurrency)),
        };
        let woken_by = wake.queue(psp);
        workers.spawn(woken(
            psp.as_str(),
            poll,
            woken_by,
            shutdown.clone(),
            move || {
                let turns = turns.clone();
                async move { turns.pick_up().await }
            },
        ));
    }
    let (telling, stopping) = (wake.clone(), shutdown.clone());
    workers.spawn(async move { telling.tell_others(&stopping).await });
    let (listening, stopping) = (wake.clone(), shutdown.clone());
    workers.spawn(async move { listening.listen(&stopping).await });
}

/// Reviews are told of when they begin; this is for what was not.
const REMIND_PERIOD: Duration = Duration::from_secs(30);
/// Reviews that are told of again, the oldest first.
const REMINDED: u32 = 100;
/// Old calls are looked for.
const FORGET_PERIOD: Duration = Duration::from_mins(10);
/// Deleted at once.
const FORGOTTEN: u32 = 1_000;
/// What comes back has been on its way for days.
const WATCH_PERIOD: Duration = Duration::from_secs(15);
/// Before accounts that could not be made are tried again.
const SEED_AGAIN: Duration = Duration::from_secs(2);

/// Makes the network's own accounts, once: they are made with what first needs them too, but nobody
/// who looks at them before should find none.
async fn seed(payments: &PaymentService, stopping: &CancellationToken) {
    loop {
        match payments.seed_accounts().await {
            Ok(accounts) => {
                tracing::debug!(accounts, "the network's own accounts are there");
                return;
            }
            Err(error) => tracing::warn!(%error, "the network's own accounts are tried again"),
        }
        tokio::select! {
            () = stopping.cancelled() => return,
            () = tokio::time::sleep(SEED_AGAIN) => {}
        }
    }
}

async fn remind(engine: &PspEngine) -> Served {
    engine.remind(REMINDED).await?;
    Ok(Found::Idle)
}

async fn forget(engine: &PspEngine) -> Served {
    let forgotten = engine.forget(FORGOTTEN).await?;
    Ok(found(forgotten, FORGOTTEN))
}

async fn take_in(outbox: &PaymentOutbox, batch: u32) -> Served {
    let taken = outbox.take_in(batch).await?;
    Ok(found(taken, batch))
}

async fn watch(engine: &PspEngine, psp: PspName, batch: u32) -> Served {
    let watched = engine.watch(psp, batch).await?;
    Ok(found(watched, batch))
}

const fn found(count: usize, batch: u32) -> Found {
    if count >= batch as usize {
        Found::More
    } else {
        Found::Idle
    }
}

async fn tell(outbox: &PaymentOutbox, batch: u32) -> Served {
    let served = outbox.serve(batch).await?;
    Ok(found(served, batch))
}

/// Turns at one provider, so many at once.
#[derive(Clone)]
struct Turns {
    engine: PspEngine,
    psp: PspName,
    room: Arc<Semaphore>,
}

impl Turns {
    async fn pick_up(&self) -> Served {
        // Nothing is taken on that would have to wait here: its lease runs.
        let first = Arc::clone(&self.room).acquire_owned().await?;
        let room = u32::try_from(self.room.available_permits()).unwrap_or(u32::MAX);
        let picked_up = self
            .engine
            .pick_up(self.psp, room.saturating_add(1))
            .await?;
        drop(first);
        let found = if picked_up.is_empty() {
            Found::Idle
        } else {
            Found::More
        };
        for row in picked_up {
            let permit = Arc::clone(&self.room).acquire_owned().await?;
            let engine = self.engine.clone();
            tokio::spawn(async move {
                engine.serve(row).await;
                drop(permit);
            });
        }
        Ok(found)
    }
}
