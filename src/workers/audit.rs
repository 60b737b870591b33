use super::{Found, Served};
use crate::app::App;

/// Verifies the chain of the book whose turn it is.
pub(super) async fn audit(app: &App) -> Served {
    Ok(match app.audit.next().await? {
        Some(Ok(_)) => Found::More,
        Some(Err(error)) => {
            tracing::warn!(%error, "a book can't be audited now");
            Found::More
        }
        None => Found::Idle,
    })
}
