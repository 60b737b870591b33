//! `feed_event`: a book's feed, whose positions are given under the chain head's lock.

use chrono::{DateTime, Utc};
use serde_json::Value;

use super::rows::HeadRow;
use crate::stores::StoreError;
use crate::stores::router::{BookSql, BookTx};

const TOLD: BookSql = BookSql::new(
    "UPDATE chain_head SET feed_position = feed_position + 1, change_seq = change_seq + 1 \
     WHERE broker_id = ?",
);
const CHANGED: BookSql =
    BookSql::new("UPDATE chain_head SET change_seq = change_seq + 1 WHERE broker_id = ?");

/// An event of the book's feed, at its next position, and the end of the write.
pub(super) async fn tell(
    tx: &mut BookTx,
    head: &HeadRow,
    kind: &'static str,
    subject: String,
    payload: Value,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let position = head.feed_position + 1;
    tx.insert(
        "INSERT INTO feed_event (broker_id, position, kind, subject, payload, created_at)",
        &[payload],
        |row, payload| {
            row.push_bind(position)
                .push_bind(kind)
                .push_bind(subject.clone())
                .push_bind(payload.clone())
                .push_bind(now);
        },
        "",
    )
    .await?;
    let query = tx.sql(TOLD);
    tx.execute(query).await.map(drop)
}

/// The end of a write that nobody is told of.
pub(super) async fn changed(tx: &mut BookTx) -> Result<(), StoreError> {
    let query = tx.sql(CHANGED);
    tx.execute(query).await.map(drop)
}
