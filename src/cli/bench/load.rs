//! Runs a piece of work many times at a given concurrency, and keeps how long each took.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::report::Figure;

/// What a run came to.
pub(super) struct Timed {
    pub(super) per_second: f64,
    latencies: Vec<Duration>,
}

/// Does `count` pieces of work, numbered from 0, at most `at_once` at a time.
pub(super) async fn run<F, W>(count: usize, at_once: usize, work: W) -> anyhow::Result<Timed>
where
    W: Fn(usize) -> F + Send + Sync + 'static,
    F: Future<Output = anyhow::Result<()>> + Send,
{
    let work = Arc::new(work);
    let next = Arc::new(AtomicUsize::new(0));
    let start = Instant::now();
    let mut tasks = Vec::with_capacity(at_once);
    for _ in 0..at_once {
        let (work, next) = (Arc::clone(&work), Arc::clone(&next));
        tasks.push(tokio::spawn(async move {
            let mut latencies = Vec::new();
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, anyhow::Error>(latencies);
                }
                let begin = Instant::now();
                work(number).await?;
                latencies.push(begin.elapsed());
            }
        }));
    }
    let mut latencies = Vec::with_capacity(count);
    for task in tasks {
        latencies.extend(task.await??);
    }
    let took = start.elapsed().as_secs_f64();
    latencies.sort_unstable();
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts of a benchmark are far below 2^52"
    )]
    let per_second = latencies.len() as f64 / took;
    Ok(Timed {
        per_second,
        latencies,
    })
}

impl Timed {
    /// Of times that were measured elsewhere, one after the other.
    pub(super) fn of(mut latencies: Vec<Duration>) -> Self {
        latencies.sort_unstable();
        let sum: Duration = latencies.iter().sum();
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts of a benchmark are far below 2^52"
        )]
        let per_second = latencies.len() as f64 / sum.as_secs_f64();
        Self {
            per_second,
            latencies,
        }
    }

    pub(super) fn rate(&self, name: &str, at_once: usize) -> Figure {
        Figure::floor(format!("{name} ×{at_once}"), self.per_second, "/s")
    }

    /// The latency that `percent` of the work stayed below, in milliseconds.
    pub(super) fn latency(&self, name: &str, at_once: usize, percent: usize) -> Figure {
        let index =
            (self.latencies.len() * percent / 100).min(self.latencies.len().saturating_sub(1));
        let value = self.latencies.get(index).copied().unwrap_or_default();
        Figure::floor(
            format!("{name} ×{at_once} p{percent}"),
            value.as_secs_f64() * 1_000.0,
            "ms",
        )
    }
}
