//! `netting_setting`: what brokers have set for rounds of netting.

use chrono::{DateTime, Utc};

use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::failed;
use crate::stores::pool::Pool;

/// Whether rounds that touch a broker are approved without it being asked.
///
/// # Errors
/// The master's.
pub async fn auto_approve(master: &Pool, broker: BrokerId) -> Result<bool, StoreError> {
    let set: Option<bool> =
        sqlx::query_scalar("SELECT auto_approve FROM netting_setting WHERE broker_id = ?")
            .bind(broker)
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    Ok(set.unwrap_or(false))
}

/// # Errors
/// The master's.
pub async fn set_auto_approve(
    master: &Pool,
    broker: BrokerId,
    on: bool,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO netting_setting (broker_id, auto_approve, changed_by, changed_at)
         VALUES (?, ?, ?, ?)
         ON DUPLICATE KEY UPDATE auto_approve = VALUES(auto_approve),
             changed_by = VALUES(changed_by), changed_at = VALUES(changed_at)",
    )
    .bind(broker)
    .bind(on)
    .bind(by)
    .bind(now)
    .execute(master)
    .await
    .map_err(failed)?;
    Ok(())
}
