//! What decides whether something new may start, and the gate that makes the decision hold until
//! the commit.
//!
//! Whoever starts something looks first, without a lock, and then begins its transaction with the
//! gate held in share mode: where its version is still the one that was looked at, nothing has
//! changed meanwhile and nothing changes before the commit. It is read in the round trip that
//! begins the transaction, so it costs none of its own. Whoever changes what may start raises the
//! version, which waits for those that hold the gate. The gate is always the first lock of a
//! transaction.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySqlExecutor, SqlSafeStr};

use super::{MasterTx, failed};
use crate::domain::broker::BrokerState;
use crate::domain::ids::BrokerId;
use crate::domain::money::CurrencyCode;
use crate::domain::pause::{Because, BrokerStanding, PauseScope, Standing};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;

/// The state of the gate when somebody looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GateVersion(u64);

#[derive(FromRow)]
struct Row {
    version: u64,
    broker_id: Option<u64>,
    state: Option<String>,
    broker_reason: Option<String>,
    broker_paused_at: Option<DateTime<Utc>>,
    scope: Option<String>,
    reason: Option<String>,
    paused_at: Option<DateTime<Utc>>,
}

/// How the network, a currency and at most two brokers stand, as of one moment.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn look(
    master: impl MySqlExecutor<'_>,
    brokers: [Option<BrokerId>; 2],
    currency: Option<&CurrencyCode>,
) -> Result<(Standing, GateVersion), StoreError> {
    // At most two brokers, each beside at most two pauses.
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT g.version, b.broker_id, b.state, own.reason AS broker_reason,
                own.paused_at AS broker_paused_at, p.scope, p.reason, p.paused_at
         FROM pause_gate g
         LEFT JOIN broker b ON b.broker_id IN (?, ?)
         LEFT JOIN pause own ON own.scope = 'broker' AND own.broker_id = b.broker_id
              AND own.currency_code = '' AND own.is_open = 1
         LEFT JOIN pause p ON p.scope IN ('network', 'currency') AND p.broker_id = 0
              AND p.currency_code IN ('', ?) AND p.is_open = 1
         WHERE g.gate = 1",
    )
    .bind(brokers[0].unwrap_or(0))
    .bind(brokers[1].unwrap_or(0))
    .bind(currency.map_or("", CurrencyCode::as_str))
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let version = rows.first().map(|row| GateVersion(row.version));
    let version = version.ok_or_else(|| corrupt("pause_gate", "its row is missing"))?;
    let mut standing = Standing::default();
    for row in rows {
        if let (Some(id), Some(state)) = (row.broker_id, row.state) {
            let state = BrokerState::parse(&state);
            let state = state.ok_or_else(|| corrupt("broker", format!("{id}: state")))?;
            let paused = because(row.broker_reason, row.broker_paused_at);
            let broker = BrokerStanding { state, paused };
            standing.brokers.insert(id, broker);
        }
        let why = because(row.reason, row.paused_at);
        match row.scope.as_deref().map(PauseScope::parse) {
            None => {}
            Some(Some(PauseScope::Network)) => standing.network = why,
            Some(Some(PauseScope::Currency)) => standing.currency = currency.cloned().zip(why),
            Some(Some(PauseScope::Broker) | None) => return Err(corrupt("pause", "scope")),
        }
    }
    Ok((standing, version))
}

fn because(reason: Option<String>, since: Option<DateTime<Utc>>) -> Option<Because> {
    reason
        .zip(since)
        .map(|(reason, since)| Because { reason, since })
}

/// Begins a transaction that may let something new in, and gives the gate's version, which stays
/// as it is until the transaction ends. Run it in a task of its own where the caller may be
/// dropped.
///
/// # Errors
/// The master being away or busy.
pub async fn begin(master: &Pool) -> Result<(MasterTx, GateVersion), StoreError> {
    let mut tx = master.acquire().await.map_err(failed)?;
    let begin = "START TRANSACTION; \
                 SELECT version FROM pause_gate WHERE gate = 1 LOCK IN SHARE MODE";
    let sets = tx.begin(begin.into_sql_str()).await.map_err(failed)?;
    let row = sets.iter().flatten().next();
    let row = row.ok_or_else(|| corrupt("pause_gate", "its row is missing"))?;
    let (version,) = FromRow::from_row(row).map_err(failed)?;
    Ok((tx, GateVersion(version)))
}

/// Raises the version, as the first thing of a transaction that changes what may start: waits for
/// everybody who holds the gate, and holds up everybody else until the commit.
///
/// # Errors
/// The master's; busy where somebody holds the gate for too long.
pub async fn turn(tx: &mut MasterTx) -> Result<(), StoreError> {
    sqlx::query("UPDATE pause_gate SET version = version + 1 WHERE gate = 1")
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}
