//! A book moved while its broker and its neighbours on the shard work: how long writers wait, and
//! what the neighbours feel, by the size of the book.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::client::{Client, fill};
use super::network::Bench;
use super::report::Figure;
use crate::app::App;
use crate::config::Config;
use crate::domain::broker_move::{BrokerMove, MoveState};
use crate::services::moves::Destination;
use crate::workers;

/// Entries of the books that are moved.
const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
const SIZES_QUICK: [usize; 2] = [2_000, 10_000];
const WRITERS: usize = 16;
const READERS: usize = 16;
const NEIGHBOURS: usize = 4;
/// How long it is measured before a move, to compare with.
const BEFORE: Duration = Duration::from_secs(8);
/// Between two calls of one client: people and programs, not a flood.
const THINK: Duration = Duration::from_millis(40);

pub(super) async fn measure(config: &Config, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let mut bench = Bench::set(config).await?;
    bench.config.moves.poll_ms = crate::config::Millis(50);
    let now = bench.app.systems.clock.now();
    let shard = bench.database("shard");
    let places = bench.app.provisioning.clone();
    places.register_server("a", 0, None, now).await?;
    places.register_server("b", 1_000, None, now).await?;
    places.create_shard("a", &shard, 1_000, None, now).await?;
    let mut beside = Vec::new();
    for n in 0..NEIGHBOURS {
        beside.push(Client::new(&bench.app, &format!("Neighbour {n}")).await?);
    }
    let stopping = CancellationToken::new();
    let mut background = workers::start(&bench.app, &bench.config, &stopping);
    let sizes: &[usize] = if quick { &SIZES_QUICK } else { &SIZES };
    let mut figures: Vec<Figure> = Vec::new();
    for size in sizes {
        eprintln!("filling a book with {size} entries");
        let client = Client::new(&bench.app, &format!("Mover {size}")).await?;
        fill(&bench.app, &client, *size).await?;
        eprintln!("moving it, with {WRITERS} writers and {READERS} readers");
        let moved = under_load(&bench.app, &client, &beside).await?;
        let known = figures.len();
        report(&mut figures, *size, &moved);
        // The next size may take long, and be broken off.
        for figure in &figures[known..] {
            eprintln!("  {}: {:.3} {}", figure.name, figure.value, figure.unit);
        }
    }
    stopping.cancel();
    while background.join_next().await.is_some() {}
    Ok(figures)
}

/// What a move came to under load.
struct Moved {
    arrived: BrokerMove,
    took: Duration,
    longest_write: Duration,
    longest_read: Duration,
    errors: usize,
    beside_before_p99: Duration,
    beside_during_p99: Duration,
}

/// Latencies, by what was measured.
#[derive(Default)]
struct Seen {
    own_writes: std::sync::Mutex<Vec<Duration>>,
    own_reads: std::sync::Mutex<Vec<Duration>>,
    beside: std::sync::Mutex<Vec<Duration>>,
    errors: AtomicUsize,
}

impl Seen {
    fn take(list: &std::sync::Mutex<Vec<Duration>>) -> Vec<Duration> {
        list.lock()
            .map(|mut list| std::mem::take(&mut *list))
            .unwrap_or_default()
    }
}

async fn under_load(app: &App, own: &Client, beside: &[Client]) -> anyhow::Result<Moved> {
    let seen = Arc::new(Seen::default());
    let enough = Arc::new(AtomicBool::new(false));
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..WRITERS + READERS {
        let is_own = number % 2 == 0;
        let client = if is_own {
            own.clone()
        } else {
            beside[number / 2 % beside.len()].clone()
        };
        let (app, seen, enough) = (app.clone(), Arc::clone(&seen), Arc::clone(&enough));
        clients.spawn(async move {
            while !enough.load(Ordering::Relaxed) {
                let begun = Instant::now();
                let done = if number < WRITERS {
                    client.write(&app).await
                } else {
                    client.read(&app).await
                };
                let took = begun.elapsed();
                if let Err(error) = done {
                    tracing::warn!(%error, "a client was told of it");
                    seen.errors.fetch_add(1, Ordering::Relaxed);
                }
                let list = match (is_own, number < WRITERS) {
                    (false, _) => &seen.beside,
                    (true, true) => &seen.own_writes,
                    (true, false) => &seen.own_reads,
                };
                if let Ok(mut list) = list.lock() {
                    list.push(took);
                }
                tokio::time::sleep(THINK).await;
            }
        });
    }
    tokio::time::sleep(BEFORE).await;
    let before = Seen::take(&seen.beside);
    drop((Seen::take(&seen.own_writes), Seen::take(&seen.own_reads)));
    let begun = Instant::now();
    let id = app
        .moves
        .start(own.broker, Destination::Own(None), None)
        .await?
        .id;
    let arrived = loop {
        let now = app.moves.get(id).await?;
        match now.state {
            MoveState::Retained => break now,
            MoveState::Stuck => anyhow::bail!("the move is stuck: {:?}", now.fault),
            _ => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    };
    let took = begun.elapsed();
    let during = Seen::take(&seen.beside);
    // Those who waited for the book are still to tell.
    tokio::time::sleep(THINK * 4).await;
    enough.store(true, Ordering::Relaxed);
    while let Some(client) = clients.join_next().await {
        client?;
    }
    let longest = |list| Seen::take(list).into_iter().max().unwrap_or_default();
    Ok(Moved {
        arrived,
        took,
        longest_write: longest(&seen.own_writes),
        longest_read: longest(&seen.own_reads),
        errors: seen.errors.load(Ordering::Relaxed),
        beside_before_p99: p99(before),
        beside_during_p99: p99(during),
    })
}

fn p99(mut list: Vec<Duration>) -> Duration {
    list.sort_unstable();
    let index = (list.len() * 99 / 100).min(list.len().saturating_sub(1));
    list.get(index).copied().unwrap_or_default()
}

fn report(figures: &mut Vec<Figure>, size: usize, moved: &Moved) {
    let of = |what: &str, value: f64, unit| {
        Figure::floor(format!("{what}, {size} entries"), value, unit).of("move")
    };
    let ms = |time: Duration| time.as_secs_f64() * 1_000.0;
    let first = |figures: &[Figure], what: &str| {
        let mut all = figures.iter();
        all.find(|figure| figure.name.starts_with(what)).cloned()
    };
    let beside_first =
        |figures: &[Figure], figure: Figure, what: &str, target: &str| match first(figures, what) {
            Some(floor) => figure.beside(&floor, target),
            None => figure.aiming(target),
        };
    let write = of("longest wait of a writer", ms(moved.longest_write), "ms");
    let write = beside_first(
        figures,
        write,
        "longest wait of a writer",
        "< 1000 ms, doesn't grow",
    );
    let closed = Duration::from_micros(moved.arrived.pause_us.unwrap_or_default());
    let closed = of("book closed", ms(closed), "ms");
    let closed = beside_first(figures, closed, "book closed", "doesn't grow");
    let before = of("neighbours' p99 before", ms(moved.beside_before_p99), "ms");
    let during = of(
        "neighbours' p99 during the move",
        ms(moved.beside_during_p99),
        "ms",
    )
    .beside(&before, "≤ 2");
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a benchmark are far below 2^52"
    )]
    let (rows, errors) = (moved.arrived.rows_copied as f64, moved.errors as f64);
    figures.extend([
        of("the move took", moved.took.as_secs_f64(), "s"),
        of("rows moved", rows / moved.took.as_secs_f64(), "/s"),
        write,
        of("longest wait of a reader", ms(moved.longest_read), "ms"),
        closed,
        before,
        during,
        of("errors told to clients", errors, "").aiming("0"),
    ]);
}
