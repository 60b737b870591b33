//! `broker_city`: where brokers execute orders.

use chrono::{DateTime, Utc};
use sqlx::{MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// The cities that a broker serves, by code.
///
/// # Errors
/// The master's.
pub async fn of_broker(master: &Pool, broker: BrokerId) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar("SELECT city_code FROM broker_city WHERE broker_id = ? ORDER BY city_code")
        .bind(broker)
        .fetch_all(master)
        .await
        .map_err(failed)
}

/// Whether a broker serves a city.
///
/// # Errors
/// The master's.
pub async fn serves(master: &Pool, broker: BrokerId, city: &str) -> Result<bool, StoreError> {
    let found: Option<(u64,)> =
        sqlx::query_as("SELECT broker_id FROM broker_city WHERE broker_id = ? AND city_code = ?")
            .bind(broker)
            .bind(city)
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    Ok(found.is_some())
}

/// A broker serves these cities and no others from now on.
///
/// # Errors
/// The master's.
pub async fn replace(
    tx: &mut MasterTx,
    broker: BrokerId,
    cities: &[String],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("DELETE FROM broker_city WHERE broker_id = ?")
        .bind(broker)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    if cities.is_empty() {
        return Ok(());
    }
    let mut builder =
        QueryBuilder::<MySql>::new("INSERT INTO broker_city (broker_id, city_code, created_at) ");
    builder.push_values(cities, |mut row, city| {
        row.push_bind(broker).push_bind(city.clone()).push_bind(now);
    });
    builder.build().execute(tx).await.map_err(failed)?;
    Ok(())
}
