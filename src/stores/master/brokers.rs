//! `broker`: the members of the network.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, MySqlExecutor, QueryBuilder};

use super::failed;
use crate::domain::broker::{Broker, BrokerMode, BrokerPlan, BrokerState, Placement};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::{padded, placeholders};

/// A broker that is to be, its name already checked for form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewBroker {
    pub name: String,
    pub plan: BrokerPlan,
    pub referred_by: Option<BrokerId>,
}

#[derive(FromRow)]
struct Row {
    broker_id: u64,
    name: String,
    broker_mode: String,
    plan: String,
    plan_wanted: Option<String>,
    plan_number: u64,
    state: String,
    shared_shard_id: Option<u32>,
    server_name: Option<String>,
    database_name: Option<String>,
    route_epoch: u64,
    referred_by_broker_id: Option<u64>,
    created_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Broker, StoreError> {
        let bad = |column: &str| corrupt("broker", format!("{}: {column}", self.broker_id));
        let mode = BrokerMode::parse(&self.broker_mode).ok_or_else(|| bad("broker_mode"))?;
        let placement = match mode {
            BrokerMode::Solo => self.shared_shard_id.map(Placement::Shard),
            BrokerMode::Full => self
                .server_name
                .clone()
                .zip(self.database_name.clone())
                .map(|(server, database)| Placement::Own { server, database }),
        };
        let plan = |text: &str| BrokerPlan::parse(text).ok_or_else(|| bad("plan"));
        Ok(Broker {
            id: self.broker_id,
            mode,
            plan: plan(&self.plan)?,
            plan_wanted: self.plan_wanted.as_deref().map(plan).transpose()?,
            plan_number: self.plan_number,
            state: BrokerState::parse(&self.state).ok_or_else(|| bad("state"))?,
            placement,
            route_epoch: self.route_epoch,
            referred_by: self.referred_by_broker_id,
            created_at: self.created_at,
            name: self.name,
        })
    }
}

macro_rules! columns {
    () => {
        "broker_id, name, broker_mode, plan, plan_wanted, plan_number, state, shared_shard_id, server_name, \
         database_name, route_epoch, referred_by_broker_id, created_at"
    };
}

/// Inserts a broker that has no place yet.
///
/// # Errors
/// The master's; a duplicate where the name is taken.
pub async fn insert(
    tx: &mut MasterTx,
    new: &NewBroker,
    now: DateTime<Utc>,
) -> Result<BrokerId, StoreError> {
    let done = sqlx::query(
        "INSERT INTO broker (name, broker_mode, plan, state, referred_by_broker_id, created_at)
         VALUES (?, ?, ?, ?, ?, ?)",
    )
    .bind(&new.name)
    .bind(new.plan.mode().as_str())
    .bind(new.plan.as_str())
    .bind(BrokerState::Provisioning.as_str())
    .bind(new.referred_by)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.last_insert_id())
}

/// Says where the book of a broker that is being provisioned will be.
///
/// # Errors
/// The master's.
pub async fn place(
    tx: &mut MasterTx,
    id: BrokerId,
    placement: &Placement,
) -> Result<(), StoreError> {
    let (shard, server, database) = match placement {
        Placement::Shard(shard) => (Some(*shard), None, None),
        Placement::Own { server, database } => (None, Some(server), Some(database)),
    };
    sqlx::query(
        "UPDATE broker SET shared_shard_id = ?, server_name = ?, database_name = ?
         WHERE broker_id = ? AND state = 'provisioning'",
    )
    .bind(shard)
    .bind(server)
    .bind(database)
    .bind(id)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: BrokerId) -> Result<Option<Broker>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM broker WHERE broker_id = ?"
    ))
    .bind(id)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Reads a broker and keeps its row locked until the transaction ends: whoever counts what its plan
/// bounds, and whoever changes its plan, take turns on it.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn lock(tx: &mut MasterTx, id: BrokerId) -> Result<Option<Broker>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM broker WHERE broker_id = ? FOR UPDATE"
    ))
    .bind(id)
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Records that a change of plan is under way, the row being locked: the plan in force until it
/// ends, the one that it leads to, and its number.
///
/// # Errors
/// The master's.
pub async fn begin_plan(
    tx: &mut MasterTx,
    id: BrokerId,
    plan: BrokerPlan,
    wanted: BrokerPlan,
    number: u64,
) -> Result<(), StoreError> {
    sqlx::query("UPDATE broker SET plan = ?, plan_wanted = ?, plan_number = ? WHERE broker_id = ?")
        .bind(plan.as_str())
        .bind(wanted.as_str())
        .bind(number)
        .bind(id)
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Ends the change of that number with a plan in force; gives whether it was still under way.
///
/// # Errors
/// The master's.
pub async fn end_plan(
    tx: &mut MasterTx,
    id: BrokerId,
    number: u64,
    plan: BrokerPlan,
) -> Result<bool, StoreError> {
    let done = sqlx::query(
        "UPDATE broker SET plan = ?, plan_wanted = NULL
         WHERE broker_id = ? AND plan_number = ? AND plan_wanted IS NOT NULL",
    )
    .bind(plan.as_str())
    .bind(id)
    .bind(number)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// Brokers that work and whose change of plan is under way, after a number, in order.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn with_plan_wanted(
    master: &Pool,
    after: BrokerId,
    limit: u32,
) -> Result<Vec<Broker>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM broker WHERE plan_wanted IS NOT NULL AND broker_id > ?
          AND state IN ('active', 'suspended')
          ORDER BY broker_id LIMIT ?"
    ))
    .bind(after)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn by_name(master: &Pool, name: &str) -> Result<Option<Broker>, StoreError> {
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM broker WHERE name = ?"
    ))
    .bind(name)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(Row::read).transpose()
}

/// Brokers, the newest first; `before` is the last of the page before.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    state: Option<BrokerState>,
    before: Option<BrokerId>,
    limit: u32,
) -> Result<Vec<Broker>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM broker WHERE broker_id < "
    ));
    builder.push_bind(before.unwrap_or(u64::MAX));
    if let Some(state) = state {
        builder.push(" AND state = ").push_bind(state.as_str());
    }
    builder
        .push(" ORDER BY broker_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(Row::read).collect()
}

/// Moves a broker from one state to another; gives whether it was in the first.
///
/// # Errors
/// The master's.
pub async fn set_state(
    master: impl MySqlExecutor<'_>,
    id: BrokerId,
    from: BrokerState,
    to: BrokerState,
) -> Result<bool, StoreError> {
    let done = sqlx::query("UPDATE broker SET state = ? WHERE broker_id = ? AND state = ?")
        .bind(to.as_str())
        .bind(id)
        .bind(from.as_str())
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// The names of brokers, by number; a number that no broker has is missing.
///
/// # Errors
/// The master's.
pub async fn names(
    master: &Pool,
    ids: &[BrokerId],
) -> Result<HashMap<BrokerId, String>, StoreError> {
    let Some(first) = ids.first() else {
        return Ok(HashMap::new());
    };
    let count = padded(ids.len());
    let sql = format!(
        "SELECT broker_id, name FROM broker WHERE broker_id IN ({})",
        placeholders(count)
    );
    let mut query = sqlx::query_as::<_, (u64, String)>(sqlx::AssertSqlSafe(sql));
    for id in ids.iter().chain(std::iter::repeat(first)).take(count) {
        query = query.bind(*id);
    }
    let rows = query.fetch_all(master).await.map_err(failed)?;
    Ok(rows.into_iter().collect())
}
