use super::{Found, Served};
use crate::app::App;

/// Verifies the chain of the book whose turn it is.
pub(super) async fn audit(app: &App) -> Served {
    let audited = app.audit.next().await?;
    Ok(match audited {
        Some(_) => Found::More,
        None => Found::Idle,
    })
}
