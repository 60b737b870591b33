//! A whole file of lines, on all processors: what can be said of entries by themselves is found out
//! batch by batch, while batches before are linked, in order.

use std::collections::VecDeque;
use std::io::{self, BufRead, Read as _};
use std::num::NonZero;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use super::checked::Checked;
use super::{Fault, Problem, Verifier};
use crate::domain::chain::LINE_MAX;

/// Bytes of lines that are taken at once; a line more than that at most.
const BATCH: usize = 256 << 10;

/// Lines one after the other, and where each ends.
#[derive(Default)]
struct Batch {
    text: Vec<u8>,
    ends: Vec<usize>,
}

impl Batch {
    /// The next lines; none where there are no more. One that is too long comes cut, just long
    /// enough to be refused, and is the last of its batch.
    fn read(input: &mut impl BufRead) -> io::Result<Self> {
        let mut batch = Self::default();
        while batch.text.len() < BATCH {
            let mut bounded = input.take(LINE_MAX as u64 + 1);
            if bounded.read_until(b'\n', &mut batch.text)? == 0 {
                break;
            }
            batch.ends.push(batch.text.len());
        }
        Ok(batch)
    }

    fn lines(&self) -> impl Iterator<Item = &[u8]> {
        let begins = std::iter::once(&0).chain(&self.ends);
        let lines = begins.zip(&self.ends);
        lines.map(|(begin, end)| &self.text[*begin..*end])
    }
}

/// What came of a batch by itself.
type Found = Vec<Result<Checked, Problem>>;

/// A batch, and where what comes of it is waited for.
type Job = (Batch, SyncSender<Found>);

impl Verifier {
    /// Takes all lines of an exported chain, in the memory of a few batches.
    ///
    /// # Errors
    /// The reader's; within, the first thing that is wrong.
    pub fn lines(&mut self, input: &mut impl BufRead) -> io::Result<Result<(), Fault>> {
        let processors = thread::available_parallelism().map_or(1, NonZero::get);
        let (jobs, taken) = mpsc::channel::<Job>();
        let taken = Mutex::new(taken);
        thread::scope(|scope| {
            for _ in 0..processors {
                scope.spawn(|| work(&taken));
            }
            // Dropped on the way out, which ends the workers.
            let jobs = jobs;
            let mut ahead: VecDeque<Receiver<Found>> = VecDeque::new();
            let mut is_over = false;
            loop {
                while !is_over && ahead.len() < 2 * processors {
                    let batch = Batch::read(input)?;
                    is_over = batch.ends.is_empty();
                    let (found, waited_for) = mpsc::sync_channel(1);
                    // Workers end after this loop only, or by a panic, which the scope passes on.
                    let _ = jobs.send((batch, found));
                    ahead.push_back(waited_for);
                }
                let Some(Ok(found)) = ahead.pop_front().map(|found| found.recv()) else {
                    return Ok(Ok(()));
                };
                for entry in found {
                    if let Err(fault) = self.take(entry) {
                        return Ok(Err(fault));
                    }
                }
            }
        })
    }
}

fn work(jobs: &Mutex<Receiver<Job>>) {
    loop {
        let job = jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((batch, found)) = job else {
            return;
        };
        let lines = batch.lines();
        // Nobody waits any more where a batch before was wrong.
        let _ = found.send(lines.map(Checked::line).collect());
    }
}
