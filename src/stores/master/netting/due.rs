//! What of netting nobody has in hand: proposals and rounds whose time has run out, and rounds
//! that whoever had them has left behind.

use chrono::{DateTime, Utc};

use crate::domain::ids::{NettingProposalId, NettingRoundId};
use crate::stores::StoreError;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;

/// Proposals whose time has run out, the longest ago first.
///
/// # Errors
/// The master's.
pub async fn overdue_proposals(
    master: &Pool,
    now: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<NettingProposalId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(
        "SELECT proposal_id FROM netting_proposal
         WHERE status = 'proposed' AND expires_at <= ?
         ORDER BY expires_at, proposal_id LIMIT ?",
    )
    .bind(now)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(ids.into_iter().map(NettingProposalId::from_bits).collect())
}

/// Leaves a round that could not be gone on with for later.
///
/// # Errors
/// The master's.
pub async fn put_off(
    tx: &mut MasterTx,
    id: NettingRoundId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE netting_round SET touched_at = ? WHERE round_id = ?")
        .bind(now)
        .bind(id.bits())
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Rounds that are to be recomputed or applied and that nobody has touched since a time.
///
/// # Errors
/// The master's.
pub async fn left_behind(
    master: &Pool,
    since: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<NettingRoundId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(
        "SELECT round_id FROM netting_round
         WHERE status IN ('recomputing', 'approved') AND touched_at <= ?
         ORDER BY touched_at, round_id LIMIT ?",
    )
    .bind(since)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(ids.into_iter().map(NettingRoundId::from_bits).collect())
}

/// Rounds whose time to answer has run out.
///
/// # Errors
/// The master's.
pub async fn overdue_rounds(
    master: &Pool,
    now: DateTime<Utc>,
    limit: u32,
) -> Result<Vec<NettingRoundId>, StoreError> {
    let ids: Vec<u64> = sqlx::query_scalar(
        "SELECT round_id FROM netting_round
         WHERE status IN ('proposed', 'recomputing') AND expires_at <= ?
         ORDER BY expires_at, round_id LIMIT ?",
    )
    .bind(now)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    Ok(ids.into_iter().map(NettingRoundId::from_bits).collect())
}
