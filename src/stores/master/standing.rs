//! Whether a broker may start something new.

use super::failed;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::pool::Pool;

/// How a broker stands in the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    Active,
    /// Finishes what is in flight and starts nothing new.
    Suspended,
    /// Its book is not there yet.
    Provisioning,
}

/// `None` for a number that no broker has.
///
/// # Errors
/// The master's.
pub async fn of(master: &Pool, broker: BrokerId) -> Result<Option<Standing>, StoreError> {
    let row: Option<(String,)> = sqlx::query_as("SELECT state FROM broker WHERE broker_id = ?")
        .bind(broker)
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    Ok(row.map(|(state,)| match state.as_str() {
        "active" => Standing::Active,
        "provisioning" => Standing::Provisioning,
        _ => Standing::Suspended,
    }))
}
