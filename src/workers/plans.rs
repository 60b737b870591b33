use super::{Found, Served};
use crate::app::App;

/// Ends changes of plans whose process died, or whose book's server was away, and begins the moves
/// that plans ask for.
pub(super) async fn finish(app: &App) -> Served {
    app.plans.see_all_through(app.systems.clock.now()).await?;
    app.moves.begin_wanted().await?;
    Ok(Found::Idle)
}
