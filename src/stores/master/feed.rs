//! `feed_event`: what brokers want to know, written with its cause; the sequencer gives each
//! broker's events their positions once they are committed.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::chunks;

/// The feed of the platform itself.
pub const PLATFORM: BrokerId = 0;

/// An event for one broker's feed.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    pub broker: BrokerId,
    pub kind: String,
    pub subject: String,
    pub payload: Value,
}

/// # Errors
/// The master's.
pub async fn insert(
    tx: &mut MasterTx,
    events: &[NewEvent],
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let mut rest = events;
    for size in chunks(events.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO feed_event (broker_id, kind, subject, payload, created_at) ",
        );
        builder.push_values(chunk, |mut row, event| {
            row.push_bind(event.broker)
                .push_bind(event.kind.clone())
                .push_bind(event.subject.clone())
                .push_bind(event.payload.clone())
                .push_bind(now);
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

/// The same event for every broker that works in the network.
///
/// # Errors
/// The master's.
pub async fn insert_for_all(
    tx: &mut MasterTx,
    event: &NewEvent,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO feed_event (broker_id, kind, subject, payload, created_at)
         SELECT broker_id, ?, ?, ?, ? FROM broker
         WHERE state IN ('active', 'suspended', 'leaving')",
    )
    .bind(&event.kind)
    .bind(&event.subject)
    .bind(&event.payload)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Committed events without a position.
pub const UNSEQUENCED: &str =
    "SELECT id, broker_id FROM feed_event WHERE sequenced = 0 ORDER BY id LIMIT ?";

/// Gives positions to committed events that have none, at most `limit`. One sequencer at a time:
/// it holds the platform's head row for the transaction; a second waits and finds nothing. An
/// event that commits later gets a later position, whatever its id.
///
/// # Errors
/// The master's.
pub async fn sequence(master: &Pool, limit: u32) -> Result<usize, StoreError> {
    sqlx::query("INSERT IGNORE INTO feed_head (broker_id, position) VALUES (?, 0)")
        .bind(PLATFORM)
        .execute(master)
        .await
        .map_err(failed)?;
    let mut tx = super::begin(master).await?;
    sqlx::query("SELECT position FROM feed_head WHERE broker_id = ? FOR UPDATE")
        .bind(PLATFORM)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    let waiting: Vec<(u64, u64)> = sqlx::query_as(UNSEQUENCED)
        .bind(limit)
        .fetch_all(&mut tx)
        .await
        .map_err(failed)?;
    for (id, broker) in &waiting {
        sqlx::query(
            "INSERT INTO feed_head (broker_id, position) VALUES (?, 1)
             ON DUPLICATE KEY UPDATE position = position + 1",
        )
        .bind(broker)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
        sqlx::query(
            "UPDATE feed_event SET sequenced = 1,
                 position = (SELECT position FROM feed_head WHERE broker_id = ?)
             WHERE id = ?",
        )
        .bind(broker)
        .bind(id)
        .execute(&mut tx)
        .await
        .map_err(failed)?;
    }
    super::commit(tx).await?;
    Ok(waiting.len())
}

/// An event in its place.
#[derive(Clone, Debug, PartialEq, FromRow)]
pub struct FeedEvent {
    pub position: u64,
    pub kind: String,
    pub subject: String,
    pub payload: Value,
    pub created_at: DateTime<Utc>,
}

/// A broker's events after a position, in order: nothing that commits later gets a position
/// before one that was read.
///
/// # Errors
/// The master's.
pub async fn after(
    master: &Pool,
    broker: BrokerId,
    position: u64,
    limit: u32,
) -> Result<Vec<FeedEvent>, StoreError> {
    sqlx::query_as(
        "SELECT position, kind, subject, payload, created_at FROM feed_event
         WHERE broker_id = ? AND position > ? ORDER BY position LIMIT ?",
    )
    .bind(broker)
    .bind(position)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)
}
