//! Naming and signalling processes so that a recycled pid is never mistaken
//! for the server that once had it.

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// A pid together with its start time, which the kernel never gives twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessId {
    pub pid: i32,
    /// In clock ticks since boot (`/proc/PID/stat`, field 22).
    pub started: u64,
}

/// What `/proc/PID/stat` tells about a process.
struct Stat {
    state: char,
    parent: i32,
    started: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the name in brackets and may itself hold spaces.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_ascii_whitespace().collect();
    Some(Stat {
        state: fields.first()?.chars().next()?,
        parent: fields.get(1)?.parse().ok()?,
        started: fields.get(19)?.parse().ok()?,
    })
}

impl ProcessId {
    /// The process that has `pid` now, if there is one.
    pub fn of(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        stat(pid).map(|stat| Self {
            pid,
            started: stat.started,
        })
    }

    /// Whether this very process still runs (a zombie does not).
    pub fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && stat.state != 'Z')
    }

    /// Sends `signal`; a process that is gone already is not an error.
    pub fn signal(self, signal: Signal) {
        if let Some(pid) = Pid::from_raw(self.pid).filter(|_| self.is_alive()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// The process and everything it started, itself first. `PostgreSQL` is a
    /// family of processes; pausing or killing its head alone would leave the
    /// rest at work.
    pub fn family(self) -> Vec<Self> {
        let everyone: Vec<(Self, i32)> = std::fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter_map(|pid| {
                stat(pid).map(|s| {
                    (
                        Self {
                            pid,
                            started: s.started,
                        },
                        s.parent,
                    )
                })
            })
            .collect();
        let mut family = vec![self];
        let mut next = 0;
        while let Some(parent) = family.get(next).copied() {
            next += 1;
            family.extend(
                everyone
                    .iter()
                    .filter(|(_, p)| *p == parent.pid)
                    .map(|(id, _)| *id),
            );
        }
        family
    }

    /// Waits until the process is gone; false if it still lives after `limit`.
    pub async fn gone_within(self, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        while self.is_alive() {
            if tokio::time::Instant::now() >= deadline {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        true
    }

    /// Records the process in `file`, for a supervisor that comes after this one.
    pub fn write(self, file: &Path) -> std::io::Result<()> {
        std::fs::write(file, serde_json::to_vec(&self)?)
    }

    /// What [`ProcessId::write`] recorded, if anything readable is there.
    pub fn read(file: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(file).ok()?).ok()
    }
}
