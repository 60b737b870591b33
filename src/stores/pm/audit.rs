//! What reconciliation reads of payments, a page of intents at a time.

use std::collections::HashMap;

use sqlx::PgPool;
use uuid::Uuid;

use super::failed;
use crate::domain::payment::{OutboxAction, PspState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// Ids of intents after one, in their order.
///
/// # Errors
/// The database's.
pub async fn page(pm: &PgPool, after: Uuid, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar("SELECT id FROM pm.intent WHERE id > $1 ORDER BY id LIMIT $2")
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(pm)
        .await
        .map_err(failed)
}

/// The provider's side of intents.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn states(pm: &PgPool, ids: &[Uuid]) -> Result<HashMap<Uuid, PspState>, StoreError> {
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT intent_id, state FROM pm.psp_tx_map WHERE intent_id = ANY($1)")
            .bind(ids)
            .fetch_all(pm)
            .await
            .map_err(failed)?;
    let read = |(id, state): (Uuid, String)| {
        let state = PspState::parse(&state);
        let state = state.ok_or_else(|| corrupt("psp_tx_map", format!("{id}: state")))?;
        Ok((id, state))
    };
    rows.into_iter().map(read).collect()
}

/// What the ledger is yet to be told of intents.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn pending(
    pm: &PgPool,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<OutboxAction>>, StoreError> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT intent_id, action FROM pm.outbox_event
         WHERE intent_id = ANY($1) AND status = 'pending'",
    )
    .bind(ids)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let mut all: HashMap<Uuid, Vec<OutboxAction>> = HashMap::new();
    for (id, action) in rows {
        let action = OutboxAction::parse(&action);
        let action = action.ok_or_else(|| corrupt("outbox_event", format!("{id}: action")))?;
        all.entry(id).or_default().push(action);
    }
    Ok(all)
}
