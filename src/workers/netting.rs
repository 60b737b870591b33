use super::{Found, Served};
use crate::app::App;

/// Proposals that are expired, and rounds that are taken up, in one turn.
const BATCH: u32 = 100;

/// Ends proposals and rounds that nobody has answered in time, and goes on with rounds whose
/// process died before they were recomputed or applied.
pub(super) async fn go_on(app: &App) -> Served {
    let netting = &app.netting;
    let expired = netting.expire_proposals(BATCH).await?;
    netting.expire_rounds(BATCH).await?;
    netting.go_on(BATCH).await?;
    Ok(if expired == BATCH as usize {
        Found::More
    } else {
        Found::Idle
    })
}
