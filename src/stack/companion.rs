//! The API server that a demonstration leaves running on a stack: found again by a file in the
//! stack's folder, ended before the stack is.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use super::process::ProcessId;

/// Longer than a server takes to finish what is running.
const GRACE: Duration = Duration::from_secs(25);

fn file(dir: &Path) -> PathBuf {
    dir.join("serve.pid")
}

/// Records this process as the API server of the stack in `dir`.
///
/// # Errors
/// Where the file can't be written.
pub fn record_companion(dir: &Path) -> std::io::Result<()> {
    let me = ProcessId::of(std::process::id())
        .ok_or_else(|| std::io::Error::other("this process is not in /proc"))?;
    me.write(&file(dir))
}

/// Ends the API server of the stack in `dir`, if one runs; gives whether one did.
pub async fn end_companion(dir: &Path) -> bool {
    let Some(server) = ProcessId::read(&file(dir)).filter(|server| server.is_alive()) else {
        return false;
    };
    server.signal(Signal::TERM);
    if !server.gone_within(GRACE).await {
        server.signal(Signal::KILL);
        server.gone_within(GRACE).await;
    }
    // What is left names a process that is gone, which is found out anyway.
    drop(std::fs::remove_file(file(dir)));
    true
}
