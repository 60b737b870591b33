use super::{Found, Served};
use crate::app::App;

/// Puts chain heads that have changed into the log, and signs it.
pub(super) async fn keep(app: &App) -> Served {
    let passed = app.checkpoints.pass().await?;
    Ok(if passed.more {
        Found::More
    } else {
        Found::Idle
    })
}
