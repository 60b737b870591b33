//! The queue of payments: how fast it is drained, how soon an idle one is picked up, what waking
//! costs whoever enqueues, and what grows with what has ended.

mod bare;
mod queue;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::queue::{Driven, PSP, Queue};
use super::load::{self, Timed};
use super::report::Figure;
use crate::config::Config;
use crate::services::payments::{PaymentService, PspEngine};

const GROUP: &str = "payments";
/// Rows that are picked up at once.
const BATCH: u32 = 10;
const PROBES: usize = 300;
/// Clients that enqueue at once.
const CLIENTS: usize = 16;

pub(super) async fn measure(config: &Config, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let size = |count: usize| if quick { count / 10 } else { count };
    let mut figures = Vec::new();
    let queue = Queue::set(config).await?;
    // Warm-up of both alike.
    drain(&queue, 200, 2).await?;
    bare_drain(&queue, 200, 2).await?;
    for workers in [1, 2, 4] {
        let count = size(4_000);
        eprintln!("draining {count} payouts with {workers} workers");
        let bare = bare_drain(&queue, count, workers).await?;
        let bare = rate("bare loop", workers, bare);
        let ours = rate(
            "payouts drained",
            workers,
            drain(&queue, count, workers).await?,
        );
        figures.push(ours.beside(&bare, "≥ 0.7"));
        figures.push(bare);
    }
    latencies(&queue, size(PROBES), &mut figures).await?;
    enqueueing(&queue, size(20_000), &mut figures).await?;
    flatness(&queue, size(5_000_000), size(20_000), &mut figures).await?;
    Ok(figures.into_iter().map(|figure| figure.of(GROUP)).collect())
}

fn rate(name: &str, workers: usize, per_second: f64) -> Figure {
    Figure::floor(format!("{name}, {workers} workers"), per_second, "/s")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts of a benchmark are far below 2^52"
)]
fn per_second(count: usize, began: Instant) -> f64 {
    count as f64 / began.elapsed().as_secs_f64()
}

/// Payouts per second, each with its two turns at a provider that answers at once.
async fn drain(queue: &Queue, count: usize, workers: usize) -> anyhow::Result<f64> {
    queue.fill(count).await?;
    let (driven, mut paid) = mpsc::unbounded_channel();
    let services: Vec<PaymentService> = (0..workers)
        .map(|_| queue.service(driven.clone()))
        .collect();
    let began = Instant::now();
    let stop = CancellationToken::new();
    let tasks: Vec<_> = services
        .into_iter()
        .map(|service| tokio::spawn(work_off(service.engine(), stop.clone())))
        .collect();
    let mut left = count;
    while left > 0 {
        match paid.recv().await {
            Some(Driven { is_payment, .. }) => left -= usize::from(is_payment),
            None => anyhow::bail!("the workers have ended"),
        }
    }
    stop.cancel();
    for task in tasks {
        task.await??;
    }
    Ok(per_second(count, began))
}

/// Picks up and serves, one after the other, until it is to stop and nothing is left in hand.
async fn work_off(engine: PspEngine, stop: CancellationToken) -> anyhow::Result<()> {
    loop {
        let rows = engine.pick_up(PSP, BATCH).await?;
        if rows.is_empty() {
            if stop.is_cancelled() {
                return Ok(());
            }
            tokio::task::yield_now().await;
        }
        for row in rows {
            engine.serve(row).await;
        }
    }
}

async fn bare_drain(queue: &Queue, count: usize, workers: usize) -> anyhow::Result<f64> {
    queue.fill(count).await?;
    let began = Instant::now();
    let tasks: Vec<_> = (0..workers)
        .map(|number| tokio::spawn(bare::work_off(queue.pm.clone(), format!("bare-{number}"))))
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    anyhow::ensure!(done == count, "{done} of {count} were paid");
    Ok(per_second(count, began))
}

/// From the insert into an idle queue to the call of the driver, by a worker that another process
/// wakes.
async fn latencies(queue: &Queue, probes: usize, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    eprintln!("{probes} times into an idle queue");
    let stop = CancellationToken::new();
    let (driven, mut called) = mpsc::unbounded_channel();
    let bare_loop = tokio::spawn(bare::wait_for_work(
        queue.pm.clone(),
        driven.clone(),
        stop.clone(),
    ));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut bare_times = Vec::with_capacity(probes);
    for _ in 0..probes {
        let intent = queue.intent().await?;
        let began = Instant::now();
        bare::enqueue(&queue.pm, intent).await?;
        bare_times.push(first_call(&mut called, began).await?);
    }
    stop.cancel();
    bare_loop.await??;

    let stop = CancellationToken::new();
    let (driven, mut called) = mpsc::unbounded_channel();
    let (worker, enqueuer) = (queue.service(driven.clone()), queue.service(driven));
    let listening = (worker.clone(), stop.clone());
    let listens = tokio::spawn(async move { listening.0.wake().listen(&listening.1).await });
    let telling = (enqueuer.clone(), stop.clone());
    let tells = tokio::spawn(async move { telling.0.wake().tell_others(&telling.1).await });
    let works = tokio::spawn(wait_for_work(worker, stop.clone()));
    tokio::time::sleep(Duration::from_millis(300)).await;
    let mut times = Vec::with_capacity(probes);
    for _ in 0..probes {
        let intent = queue.intent().await?;
        let began = Instant::now();
        queue.enqueue(intent).await?;
        enqueuer.wake().up();
        times.push(first_call(&mut called, began).await?);
    }
    stop.cancel();
    works.await??;
    listens.await?;
    tells.await?;

    let (bare, ours) = (Timed::of(bare_times), Timed::of(times));
    for (percent, target) in [(50, "≤ 1.5"), (99, "≤ 2")] {
        let bare = bare.latency("bare loop, insert to call", 1, percent);
        let ours = ours.latency("insert to driver's call, idle queue", 1, percent);
        figures.push(ours.beside(&bare, target));
        figures.push(bare);
    }
    Ok(())
}

/// When the driver was called first; the probe is over once it has paid.
async fn first_call(
    called: &mut mpsc::UnboundedReceiver<Driven>,
    began: Instant,
) -> anyhow::Result<Duration> {
    let mut first = None;
    loop {
        let call = tokio::time::timeout(Duration::from_secs(10), called.recv()).await?;
        let Some(call) = call else {
            anyhow::bail!("nobody works any more");
        };
        let first = *first.get_or_insert(call.at.saturating_duration_since(began));
        if call.is_payment {
            // The queue is idle again before the next.
            tokio::time::sleep(Duration::from_millis(20)).await;
            return Ok(first);
        }
    }
}

/// What a worker of the product does.
async fn wait_for_work(service: PaymentService, stop: CancellationToken) -> anyhow::Result<()> {
    let (engine, woken) = (service.engine(), service.wake().queue(PSP));
    loop {
        let rows = engine.pick_up(PSP, BATCH).await?;
        if rows.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = woken.notified() => {}
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
        for row in rows {
            engine.serve(row).await;
        }
    }
}

/// Inserts per second, with and without somebody to wake.
async fn enqueueing(queue: &Queue, count: usize, figures: &mut Vec<Figure>) -> anyhow::Result<()> {
    eprintln!("enqueueing {count}, {CLIENTS} clients at once");
    let stop = CancellationToken::new();
    let (driven, _called) = mpsc::unbounded_channel();
    let service = queue.service(driven);
    let telling = (service.clone(), stop.clone());
    let tells = tokio::spawn(async move { telling.0.wake().tell_others(&telling.1).await });

    let intents = queue.intents(count).await?;
    let plain = each(queue, &intents, |queue, intent| {
        Box::pin(async move { queue.enqueue(intent).await })
    });
    let plain = plain.await?.rate("inserts that wake nobody", CLIENTS);
    queue.empty().await?;

    let intents = queue.intents(count).await?;
    let notifying = each(queue, &intents, |queue, intent| {
        Box::pin(async move { bare::enqueue(&queue.pm, intent).await })
    });
    let notifying = notifying.await?;
    queue.empty().await?;

    let intents = queue.intents(count).await?;
    let waking = each(queue, &intents, move |queue, intent| {
        let service = service.clone();
        Box::pin(async move {
            queue.enqueue(intent).await?;
            service.wake().up();
            Ok(())
        })
    });
    let waking = waking.await?;
    queue.empty().await?;
    stop.cancel();
    tells.await?;

    let waking = waking.rate("enqueued, workers woken", CLIENTS);
    figures.push(waking.beside(&plain, "≈ 1"));
    let notifying = notifying.rate("… by NOTIFY in the transaction", CLIENTS);
    figures.push(notifying.beside(&plain, ""));
    figures.push(plain);
    Ok(())
}

async fn each(
    queue: &Queue,
    intents: &[uuid::Uuid],
    work: impl Fn(Queue, uuid::Uuid) -> futures::future::BoxFuture<'static, anyhow::Result<()>>
    + Send
    + Sync
    + 'static,
) -> anyhow::Result<Timed> {
    let (queue, intents): (Queue, Arc<[uuid::Uuid]>) = (queue.clone(), intents.into());
    load::run(intents.len(), CLIENTS, move |number| {
        work(queue.clone(), intents[number])
    })
    .await
}

/// What a pickup of ten takes: in an empty database, behind many rows that have ended, and while a
/// transaction stays open elsewhere, so that nothing dead is cleared up.
async fn flatness(
    queue: &Queue,
    ended: usize,
    churned: usize,
    figures: &mut Vec<Figure>,
) -> anyhow::Result<()> {
    queue.empty().await?;
    let before = pick_ups(queue).await?.latency("pickup of ten", 1, 50);
    eprintln!("{ended} rows that have ended");
    queue.end_many(ended).await?;
    let behind = pick_ups(queue).await?;
    let name = format!("pickup of ten, {ended} rows have ended");
    figures.push(behind.latency(&name, 1, 50).beside(&before, "≈ 1"));

    eprintln!("{churned} more under a transaction that stays open");
    let held = queue.hold_open().await?;
    drain(queue, churned, 4).await?;
    let open = pick_ups(queue).await?;
    let name = format!("… and {churned} more since a transaction began that is open yet");
    figures.push(open.latency(&name, 1, 50).beside(&before, "≈ 1"));
    let swept = pick_ups_from_the_beginning(queue).await?;
    let name = "… and looked for from the beginning, as once a second";
    figures.push(swept.latency(name, 1, 50).beside(&before, ""));
    held.rollback().await?;
    figures.push(before);
    Ok(())
}

const PICK_UPS: usize = 50;

/// As a worker does that goes on picking up: what is there is taken from where it was.
async fn pick_ups(queue: &Queue) -> anyhow::Result<Timed> {
    let (driven, _called) = mpsc::unbounded_channel();
    let engine = queue.service(driven).engine();
    let mut times = Vec::with_capacity(PICK_UPS);
    // From the beginning once, which is not counted: a worker's first look, and then one a second.
    engine.pick_up(PSP, BATCH).await?;
    for _ in 0..PICK_UPS {
        queue.fill(BATCH as usize).await?;
        let began = Instant::now();
        let rows = engine.pick_up(PSP, BATCH).await?;
        let took = began.elapsed();
        anyhow::ensure!(rows.len() == BATCH as usize, "{} rows", rows.len());
        times.push(took);
        queue.forget_work().await?;
    }
    Ok(Timed::of(times))
}

async fn pick_ups_from_the_beginning(queue: &Queue) -> anyhow::Result<Timed> {
    let mut times = Vec::with_capacity(PICK_UPS);
    for _ in 0..PICK_UPS {
        queue.fill(BATCH as usize).await?;
        let (driven, _called) = mpsc::unbounded_channel();
        let engine = queue.service(driven).engine();
        let began = Instant::now();
        engine.pick_up(PSP, BATCH).await?;
        times.push(began.elapsed());
        queue.forget_work().await?;
    }
    Ok(Timed::of(times))
}
