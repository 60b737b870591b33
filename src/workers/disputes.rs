use super::{Found, Served};
use crate::app::App;

/// Disputes that are gone on with in one turn.
const BATCH: u32 = 50;

/// Decides against who is silent, and does what is decided for good.
pub(super) async fn go_on(app: &App) -> Served {
    let found = app.network.go_on_with_disputes(BATCH).await?;
    Ok(if found == BATCH as usize {
        Found::More
    } else {
        Found::Idle
    })
}
