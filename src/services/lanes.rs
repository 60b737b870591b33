//! Work that is cheaper together: jobs for one key queue up while the group before them is under
//! way, and go as one group after it. A lone job goes at once. Where jobs have nothing to do with
//! each other, a group that takes long (a row of its is locked by a process that stands still)
//! need not hold up the next: see [`Lanes::passing`].

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::{Semaphore, oneshot};

/// Does a group: one outcome for each job, in order.
pub type GroupWork<K, J, O> = dyn Fn(K, Vec<J>) -> BoxFuture<'static, Vec<O>> + Send + Sync;

type Queue<J, O> = VecDeque<(J, oneshot::Sender<O>)>;

/// One lane per key that has work now; an idle key costs nothing.
pub struct Lanes<K, J, O> {
    queues: Arc<Mutex<HashMap<K, Queue<J, O>>>>,
    work: Arc<GroupWork<K, J, O>>,
    group_max: usize,
    passing: Option<Passing>,
}

/// When a group may be passed by the next one.
#[derive(Clone)]
struct Passing {
    after: Duration,
    /// Groups under way at once, over all lanes.
    groups: Arc<Semaphore>,
}

/// The group that a job was in ended without an outcome for it (a panic).
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the group of this work was dropped")]
pub struct Dropped;

impl<K, J, O> Lanes<K, J, O>
where
    K: Clone + Eq + Hash + Send + 'static,
    J: Send + 'static,
    O: Send + 'static,
{
    /// `group_max` bounds a group, at least 1.
    pub fn new(group_max: usize, work: Arc<GroupWork<K, J, O>>) -> Self {
        Self {
            queues: Arc::default(),
            work,
            group_max: group_max.max(1),
            passing: None,
        }
    }

    /// Lets the next group begin beside one that has not ended after a while, as long as no more
    /// than `at_once` are under way.
    #[must_use]
    pub fn passing(mut self, after: Duration, at_once: usize) -> Self {
        self.passing = Some(Passing {
            after,
            groups: Arc::new(Semaphore::new(at_once.max(1))),
        });
        self
    }

    /// Gives a job to its lane and waits for its outcome. The job is done even when the caller
    /// stops waiting.
    ///
    /// # Errors
    /// [`Dropped`], where nothing is known of the job.
    pub async fn submit(&self, key: K, job: J) -> Result<O, Dropped> {
        let (sender, receiver) = oneshot::channel();
        let first = {
            let mut queues = lock(&self.queues);
            let first = !queues.contains_key(&key);
            queues
                .entry(key.clone())
                .or_default()
                .push_back((job, sender));
            first
        };
        if first {
            tokio::spawn(drain(
                Lane {
                    queues: Arc::clone(&self.queues),
                    key,
                    closed: false,
                },
                Arc::clone(&self.work),
                self.group_max,
                self.passing.clone(),
            ));
        }
        receiver.await.map_err(|_| Dropped)
    }
}

/// A lane that is being worked on. Dropped by a panic, it takes its queue with it, so that those
/// who wait hear of it and the next job starts anew.
struct Lane<K: Eq + Hash, J, O> {
    queues: Arc<Mutex<HashMap<K, Queue<J, O>>>>,
    key: K,
    /// Closed under the queues' lock; another lane may have begun under the same key since.
    closed: bool,
}

impl<K: Eq + Hash, J, O> Drop for Lane<K, J, O> {
    fn drop(&mut self) {
        if !self.closed {
            lock(&self.queues).remove(&self.key);
        }
    }
}

impl<K: Eq + Hash, J, O> Lane<K, J, O> {
    /// The next group; an empty lane is closed in the same moment, so that a job which comes
    /// later starts a new one.
    fn next(&mut self, group_max: usize) -> Option<Queue<J, O>> {
        let mut queues = lock(&self.queues);
        let queue = queues.get_mut(&self.key)?;
        if queue.is_empty() {
            queues.remove(&self.key);
            self.closed = true;
            return None;
        }
        let count = queue.len().min(group_max);
        Some(queue.drain(..count).collect())
    }
}

async fn drain<K, J, O>(
    mut lane: Lane<K, J, O>,
    work: Arc<GroupWork<K, J, O>>,
    group_max: usize,
    passing: Option<Passing>,
) where
    K: Clone + Eq + Hash,
    J: Send + 'static,
    O: Send + 'static,
{
    while let Some(group) = lane.next(group_max) {
        let (jobs, senders): (Vec<J>, Vec<_>) = group.into_iter().unzip();
        let outcomes = work(lane.key.clone(), jobs);
        let done = async move {
            for (sender, outcome) in senders.into_iter().zip(outcomes.await) {
                // Whoever asked may have gone; the work is done all the same.
                drop(sender.send(outcome));
            }
        };
        let Some(Passing { after, groups }) = &passing else {
            done.await;
            continue;
        };
        // Never closed; without a permit the group would only go unbounded.
        let permit = Arc::clone(groups).acquire_owned().await.ok();
        let group = tokio::spawn(async move {
            done.await;
            drop(permit);
        });
        // Passed, ended or panicked (its senders are gone then): the next one begins.
        drop(tokio::time::timeout(*after, group).await);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use tokio::sync::Semaphore;

    #[tokio::test]
    async fn jobs_that_come_meanwhile_go_as_one_group() {
        let gate = Arc::new(Semaphore::new(0));
        let inner = Arc::clone(&gate);
        let work: Arc<GroupWork<u8, u32, usize>> = Arc::new(move |_, jobs: Vec<u32>| {
            let gate = Arc::clone(&inner);
            async move {
                let size = jobs.len();
                gate.acquire().await.unwrap().forget();
                vec![size; size]
            }
            .boxed()
        });
        let lanes = Arc::new(Lanes::new(4, work));
        let submit = |job| {
            let lanes = Arc::clone(&lanes);
            tokio::spawn(async move { lanes.submit(1, job).await.unwrap() })
        };
        let first = submit(0);
        tokio::task::yield_now().await;
        let rest: Vec<_> = (1..=5).map(submit).collect();
        while lock(&lanes.queues).get(&1).map_or(0, VecDeque::len) < 5 {
            tokio::task::yield_now().await;
        }
        gate.add_permits(10);
        assert_eq!(first.await.unwrap(), 1);
        let sizes: Vec<usize> = futures::future::join_all(rest)
            .await
            .into_iter()
            .map(Result::unwrap)
            .collect();
        assert_eq!(sizes, [4, 4, 4, 4, 1]);
        assert!(lock(&lanes.queues).is_empty());
    }

    #[tokio::test]
    async fn a_group_that_stands_still_is_passed_where_that_is_allowed() {
        let stuck = Arc::new(Semaphore::new(0));
        let gate = Arc::clone(&stuck);
        let work: Arc<GroupWork<u8, bool, ()>> = Arc::new(move |_, jobs: Vec<bool>| {
            let gate = Arc::clone(&gate);
            async move {
                if jobs[0] {
                    gate.acquire().await.unwrap().forget();
                }
                vec![(); jobs.len()]
            }
            .boxed()
        });
        let lanes = Arc::new(Lanes::new(1, work).passing(Duration::from_millis(20), 2));
        let submit = |stands_still| {
            let lanes = Arc::clone(&lanes);
            tokio::spawn(async move { lanes.submit(1, stands_still).await.unwrap() })
        };
        let (first, second) = (submit(true), submit(false));
        second.await.unwrap();
        assert!(!first.is_finished());
        // As many as may be at once: the next one waits for one of them.
        let third = submit(true);
        tokio::time::sleep(Duration::from_millis(60)).await;
        let fourth = submit(false);
        tokio::time::sleep(Duration::from_millis(60)).await;
        assert!(!third.is_finished() && !fourth.is_finished());
        stuck.add_permits(2);
        for submitted in [first, third, fourth] {
            submitted.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_panic_is_told_and_the_next_job_goes_on() {
        let work: Arc<GroupWork<u8, bool, ()>> = Arc::new(|_, jobs: Vec<bool>| {
            async move {
                assert!(!jobs[0], "asked to panic");
                vec![()]
            }
            .boxed()
        });
        let lanes = Lanes::new(1, work);
        assert!(lanes.submit(1, true).await.is_err());
        assert!(lanes.submit(1, false).await.is_ok());
    }
}
