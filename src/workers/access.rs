use super::{Found, Served};
use crate::services::auth::AuthService;

/// Log-ins deleted in one transaction.
const BATCH: u32 = 200;

/// Reads again which signing keys there are, and deletes what has expired.
pub(super) async fn keep(auth: &AuthService) -> Served {
    auth.reload_keys().await?;
    if auth.purge(BATCH).await? >= u64::from(BATCH) {
        return Ok(Found::More);
    }
    Ok(Found::Idle)
}
