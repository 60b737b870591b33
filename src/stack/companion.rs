//! The API server and the payment providers' simulator that a demonstration leaves running on a
//! stack: found again by files in the stack's folder, ended before the stack is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::process::ProcessId;

/// Longer than a server takes to finish what is running.
const GRACE: Duration = Duration::from_secs(25);

/// A program that runs on a stack and is ended with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Companion {
    Server,
    Providers,
}

impl Companion {
    /// In the order in which they are ended.
    const ALL: [Self; 2] = [Self::Server, Self::Providers];

    fn file(self, dir: &Path) -> PathBuf {
        dir.join(match self {
            Self::Server => "serve.pid",
            Self::Providers => "psp-sim.pid",
        })
    }

    async fn end(self, dir: &Path) -> bool {
        let file = self.file(dir);
        let running = ProcessId::read(&file).filter(|process| process.is_alive());
        let Some(process) = running else {
            return false;
        };
        process.signal(Signal::TERM);
        if !process.gone_within(GRACE).await {
            process.signal(Signal::KILL);
            process.gone_within(GRACE).await;
        }
        // What is left names a process that is gone, which is found out anyway.
        drop(std::fs::remove_file(file));
        true
    }
}

/// Records this process as a companion of the stack in `dir`.
///
/// # Errors
/// Where the file can't be written.
pub fn record_companion(dir: &Path, companion: Companion) -> std::io::Result<()> {
    let me = ProcessId::of(std::process::id())
        .ok_or_else(|| std::io::Error::other("this process is not in /proc"))?;
    me.write(&companion.file(dir))
}

/// Ends the companions of the stack in `dir` that run; gives whether one did.
pub async fn end_companions(dir: &Path) -> bool {
    let mut ran = false;
    for companion in Companion::ALL {
        ran |= companion.end(dir).await;
    }
    ran
}
