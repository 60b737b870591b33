//! What plans want: books in another kind of place.

use chrono::{DateTime, Utc};

use crate::domain::broker::BrokerMode;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::{MasterTx, failed};
use crate::stores::pool::Pool;

/// Notes where a broker's plan puts its book: a worker begins the move. One that goes elsewhere is
/// given up, where it has not arrived.
///
/// # Errors
/// The master's.
pub async fn want_mode(
    tx: &mut MasterTx,
    broker: BrokerId,
    mode: BrokerMode,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE broker SET mode_wanted = NULLIF(?, broker_mode) WHERE broker_id = ?")
        .bind(mode.as_str())
        .bind(broker)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    sqlx::query(
        "UPDATE broker_move SET cancel_wanted = TRUE,
             due_at = IF(state = 'stuck' OR (leased_by IS NULL AND due_at IS NOT NULL), ?, due_at)
         WHERE open_broker_id = ? AND (to_shard_id IS NULL) = ?
           AND state IN ('preparing', 'copying', 'fencing', 'rolling_back', 'stuck')",
    )
    .bind(now)
    .bind(broker)
    .bind(mode == BrokerMode::Solo)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Brokers whose plan puts their book elsewhere, and that have no open move, after a number.
pub const WANTING: &str = "SELECT broker_id, mode_wanted FROM broker b
    WHERE mode_wanted IN ('SOLO', 'FULL') AND broker_id > ?
      AND state IN ('active', 'suspended') AND mode_wanted <> broker_mode
      AND NOT EXISTS (SELECT 1 FROM broker_move m WHERE m.open_broker_id = b.broker_id)
    ORDER BY broker_id LIMIT ?";

/// See [`WANTING`].
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn wanting(
    master: &Pool,
    after: BrokerId,
    limit: u32,
) -> Result<Vec<(BrokerId, BrokerMode)>, StoreError> {
    let rows: Vec<(u64, String)> = sqlx::query_as(WANTING)
        .bind(after)
        .bind(limit)
        .fetch_all(master)
        .await
        .map_err(failed)?;
    let read = |(id, mode): (u64, String)| {
        let mode = BrokerMode::parse(&mode);
        Ok((
            id,
            mode.ok_or_else(|| corrupt("broker", format!("{id}: mode_wanted")))?,
        ))
    };
    rows.into_iter().map(read).collect()
}
