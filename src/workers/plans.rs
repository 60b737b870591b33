use super::{Found, Served};
use crate::app::App;

/// Ends changes of plans whose process died, or whose book's server was away.
pub(super) async fn finish(app: &App) -> Served {
    app.plans.see_all_through(app.systems.clock.now()).await?;
    Ok(Found::Idle)
}
