use super::{Found, Served};
use crate::app::App;

/// Events that get their positions in one transaction.
const BATCH: u32 = 500;

/// Gives the feeds' committed events their positions.
pub(super) async fn sequence(app: &App) -> Served {
    let sequenced = app.feeds.sequence(BATCH).await?;
    Ok(if sequenced == BATCH as usize {
        Found::More
    } else {
        Found::Idle
    })
}
