use super::{Found, Served};
use crate::app::App;

/// Requests that are expired in one turn.
const BATCH: u32 = 100;

/// Expires requests whose deadline has passed before anything was sent.
pub(super) async fn expire(app: &App) -> Served {
    let expired = app.network.expire_overdue(BATCH).await?;
    Ok(if expired == BATCH as usize {
        Found::More
    } else {
        Found::Idle
    })
}
