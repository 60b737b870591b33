//! Ending what runs in a folder, whoever is or is not left to ask.

use std::path::Path;
use std::time::Duration;

use tokio::time::Instant;

use super::companion::end_companions;
use super::control::{Control, ControlError};
use super::description::Description;
use super::keeper::end_leftover;
use super::layout::{FolderLock, Layout, LayoutError};
use super::server::ServerName;

/// Between the last thing that a supervisor says and its end.
const LOCK_LIMIT: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum DownError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error(transparent)]
    Control(#[from] ControlError),
}

/// Ends the stack in `dir`: through its supervisor, or, where that has died,
/// server by server. With `delete` the folder goes too, with all its data.
/// Returns whether anything ran.
///
/// # Errors
/// When the supervisor does not end, or something cannot be deleted.
pub async fn take_down(dir: &Path, delete: bool) -> Result<bool, DownError> {
    if !dir.exists() {
        return Ok(false);
    }
    let mut ran = end_companions(dir).await;
    ran |= match Control::connect(dir) {
        Ok(control) => {
            // Waits for the servers to end: not on a thread that others need.
            match tokio::task::spawn_blocking(|| control.shutdown()).await {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
            true
        }
        Err(ControlError::NotRunning { .. }) => false,
        Err(error) => return Err(error.into()),
    };
    let layout = Layout::open(dir)?;
    let lock = lock_soon(&layout).await?;
    for name in ServerName::ALL {
        ran |= end_leftover(name, &layout.dir().join(name.as_str())).await;
    }
    Description::withdraw(&layout);
    if delete {
        layout.delete(&lock)?;
    }
    Ok(ran)
}

/// The folder's lock, once a supervisor on its way out has let go of it.
async fn lock_soon(layout: &Layout) -> Result<FolderLock, LayoutError> {
    let deadline = Instant::now() + LOCK_LIMIT;
    loop {
        match layout.lock() {
            Err(LayoutError::InUse { .. }) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            outcome => return outcome,
        }
    }
}
