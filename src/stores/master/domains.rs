//! `broker_domain`: host names under which dashboards are brokers' own.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

/// A name that a broker has claimed.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Domain {
    pub broker_id: BrokerId,
    pub host: String,
    /// What the owner of the name publishes, to prove that it is theirs.
    pub proof: String,
    pub claimed_at: DateTime<Utc>,
    /// `None` until it was proven: it leads nowhere.
    pub activated_at: Option<DateTime<Utc>>,
}

/// A broker whose dashboard has a name of its own.
#[derive(Clone, Debug, PartialEq, Eq, FromRow)]
pub struct Site {
    pub host: String,
    pub broker_id: BrokerId,
    pub name: String,
}

macro_rules! columns {
    () => {
        "broker_id, host, proof, claimed_at, activated_at"
    };
}

/// # Errors
/// The master's.
pub async fn of_broker(tx: &mut MasterTx, broker: BrokerId) -> Result<Option<Domain>, StoreError> {
    sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM broker_domain WHERE broker_id = ?"
    ))
    .bind(broker)
    .fetch_optional(tx)
    .await
    .map_err(failed)
}

/// The broker that has a name.
///
/// # Errors
/// The master's.
pub async fn holder(tx: &mut MasterTx, host: &str) -> Result<Option<BrokerId>, StoreError> {
    sqlx::query_scalar("SELECT broker_id FROM broker_domain WHERE active_host = ?")
        .bind(host)
        .fetch_optional(tx)
        .await
        .map_err(failed)
}

/// Records a claim of a broker that has none.
///
/// # Errors
/// The master's; a duplicate where it has one.
pub async fn claim(tx: &mut MasterTx, domain: &Domain) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO broker_domain (broker_id, host, proof, claimed_at) VALUES (?, ?, ?, ?)",
    )
    .bind(domain.broker_id)
    .bind(&domain.host)
    .bind(&domain.proof)
    .bind(domain.claimed_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Makes a claimed name the broker's.
///
/// # Errors
/// The master's; a duplicate where it is another's.
pub async fn activate(
    tx: &mut MasterTx,
    broker: BrokerId,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE broker_domain SET active_host = host, activated_at = ?, activated_by = ?
         WHERE broker_id = ?",
    )
    .bind(now)
    .bind(by)
    .bind(broker)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Gives up a broker's name; gives whether it had one.
///
/// # Errors
/// The master's.
pub async fn release(tx: &mut MasterTx, broker: BrokerId) -> Result<bool, StoreError> {
    let done = sqlx::query("DELETE FROM broker_domain WHERE broker_id = ?")
        .bind(broker)
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Claims, newest first, active ones or the others or all; `after` is the last of the page before.
///
/// # Errors
/// The master's.
pub async fn list(
    master: &Pool,
    active: Option<bool>,
    after: Option<(DateTime<Utc>, BrokerId)>,
    limit: u32,
) -> Result<Vec<Domain>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM broker_domain WHERE TRUE"
    ));
    if let Some(active) = active {
        builder
            .push(" AND (activated_at IS NOT NULL) = ")
            .push_bind(active);
    }
    if let Some(last) = after {
        push_after(&mut builder, ("claimed_at", "broker_id"), last);
    }
    builder
        .push(" ORDER BY claimed_at DESC, broker_id DESC LIMIT ")
        .push_bind(limit);
    builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)
}

/// Every name that leads to a broker.
///
/// # Errors
/// The master's.
pub async fn sites(master: &Pool) -> Result<Vec<Site>, StoreError> {
    sqlx::query_as(
        "SELECT d.active_host AS host, d.broker_id, b.name
         FROM broker_domain d JOIN broker b ON b.broker_id = d.broker_id
         WHERE d.active_host IS NOT NULL",
    )
    .fetch_all(master)
    .await
    .map_err(failed)
}
