//! Starting a supervisor that outlives its caller.

use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::control::{Control, ControlError};
use super::description::Description;
use super::layout::{Layout, LayoutError};
use super::server::last_lines;

/// Longer than any server's own limit, so that its reason is heard first.
const LIMIT: Duration = Duration::from_secs(150);
const PERIOD: Duration = Duration::from_millis(50);

#[derive(Debug, thiserror::Error)]
pub enum DetachError {
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("{path}: {source}")]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("the supervisor ended ({status}); the end of {log}:\n{tail}")]
    Ended {
        status: ExitStatus,
        log: PathBuf,
        tail: String,
    },
    #[error("the stack in {dir} is not ready after {} s; see {log}", LIMIT.as_secs())]
    NotReady { dir: PathBuf, log: PathBuf },
}

/// Whose supervisor it is that a caller found ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartedBy {
    ThisCall,
    SomebodyElse,
}

/// Makes sure that a stack is up in `dir` and returns a connection that holds
/// it. If none is, starts `program dev` in the background (its output goes to
/// `supervisor.log`) and waits until it is ready; if one is closing, waits for
/// its end first. Blocks for seconds.
///
/// # Errors
/// When the supervisor does not come up, with the end of its log.
pub fn start_detached(
    program: &Path,
    dir: &Path,
    linger: Option<Duration>,
) -> Result<(Description, Control, StartedBy), DetachError> {
    let layout = Layout::open(dir)?;
    let dir = layout.dir();
    let log = dir.join("supervisor.log");
    let failed = |source| DetachError::Io {
        path: log.clone(),
        source,
    };
    let deadline = Instant::now() + LIMIT;
    let mut child = None;
    while Instant::now() < deadline {
        if let Some((description, control)) = held(dir).map_err(failed)? {
            let started_by = if child.is_some() {
                StartedBy::ThisCall
            } else {
                StartedBy::SomebodyElse
            };
            return Ok((description, control, started_by));
        }
        match &mut child {
            None => match layout.lock() {
                Ok(lock) => {
                    drop(lock);
                    child = Some(spawn(program, dir, linger, &log).map_err(failed)?);
                }
                // Starting up or closing down: either way soon another state.
                Err(LayoutError::InUse { .. }) => {}
                Err(error) => return Err(error.into()),
            },
            Some(process) => {
                if let Some(status) = process.try_wait().map_err(failed)? {
                    // Lost a race against another caller's supervisor?
                    if matches!(layout.lock(), Err(LayoutError::InUse { .. })) {
                        child = None;
                    } else {
                        let text = std::fs::read_to_string(&log).unwrap_or_default();
                        return Err(DetachError::Ended {
                            status,
                            log,
                            tail: last_lines(&text),
                        });
                    }
                }
            }
        }
        std::thread::sleep(PERIOD);
    }
    Err(DetachError::NotReady {
        dir: dir.into(),
        log,
    })
}

/// A held connection to a ready stack, or `None` if there is none (yet).
fn held(dir: &Path) -> std::io::Result<Option<(Description, Control)>> {
    let attempt = || -> Result<Option<Control>, ControlError> {
        let mut control = Control::connect(dir)?;
        control.hold()?;
        Ok(control.status()?.ready.then_some(control))
    };
    match attempt() {
        Ok(Some(control)) => Ok(Description::read(dir)?.map(|d| (d, control))),
        // Not there, closing, or gone while we asked.
        Ok(None) | Err(_) => Ok(None),
    }
}

fn spawn(
    program: &Path,
    dir: &Path,
    linger: Option<Duration>,
    log: &Path,
) -> std::io::Result<std::process::Child> {
    let output = File::create(log)?;
    let mut command = Command::new(program);
    command.arg("dev").arg("--dir").arg(dir);
    if let Some(linger) = linger {
        command.arg("--linger").arg(linger.as_secs().to_string());
    }
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        // A Ctrl-C in the caller's terminal is not for the stack.
        .process_group(0)
        .spawn()
}
