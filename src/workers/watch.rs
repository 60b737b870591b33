use std::time::Duration;

use super::{Found, Served};
use crate::app::App;

/// Tells admins of work that does not come to its end.
pub(super) async fn watch(app: &App, patience: Duration) -> Served {
    app.alerts.watch_sagas(patience).await?;
    Ok(Found::Idle)
}
