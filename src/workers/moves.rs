use tokio_util::sync::CancellationToken;

use super::{Found, Served};
use crate::app::App;

/// Opens the books that whoever closed them does not open. On a hand of its own: nobody waits for
/// a book because another is being copied.
pub(super) async fn open(app: &App) -> Served {
    app.move_engine.open_books().await?;
    Ok(Found::Idle)
}

/// Works on one move that nobody works on, to where it waits or rests.
pub(super) async fn go_on(app: &App, stopping: &CancellationToken) -> Served {
    let claimed = app.move_engine.claim(1).await?;
    let Some(claim) = claimed.into_iter().next() else {
        return Ok(Found::Idle);
    };
    app.move_engine.run(claim, stopping).await;
    Ok(Found::More)
}
