//! `broker_exit`: brokers that leave; and what of the master's must be settled before they can.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySqlExecutor};
use uuid::Uuid;

use super::{MasterTx, failed};
use crate::domain::canonical::Hash;
use crate::domain::chain::Head;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::RequestStatus;
use crate::domain::saga::{SagaKind, SagaStatus};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;

/// What was kept of a broker that has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archived {
    /// Of the exported file's first line.
    pub export_digest: Hash,
    pub head: Head,
    pub by: String,
    pub at: DateTime<Utc>,
}

/// A request that has not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenRequest {
    pub id: RequestId,
    pub status: RequestStatus,
}

/// A saga that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSaga {
    pub id: Uuid,
    pub kind: SagaKind,
    pub subject: String,
    pub status: SagaStatus,
}

/// Says that a broker leaves; who said so last.
///
/// # Errors
/// The master's.
pub async fn begin(
    tx: &mut MasterTx,
    broker: BrokerId,
    by: &str,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO broker_exit (broker_id, begun_by, begun_at) VALUES (?, ?, ?)
         ON DUPLICATE KEY UPDATE begun_by = VALUES(begun_by), begun_at = VALUES(begun_at),
             number = number + 1",
    )
    .bind(broker)
    .bind(by)
    .bind(now)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// Which time a broker is leaving: whatever is done for that one is not taken for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExitNumber(u32);

/// The last time that a broker has begun to leave.
///
/// # Errors
/// The master's.
pub async fn number(
    master: impl MySqlExecutor<'_>,
    broker: BrokerId,
) -> Result<Option<ExitNumber>, StoreError> {
    let number: Option<u32> =
        sqlx::query_scalar("SELECT number FROM broker_exit WHERE broker_id = ?")
            .bind(broker)
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    Ok(number.map(ExitNumber))
}

/// Says that what was done for the last time of leaving counts no more: the book is to be written
/// again.
///
/// # Errors
/// The master's.
pub async fn renumber(master: &Pool, broker: BrokerId) -> Result<(), StoreError> {
    sqlx::query("UPDATE broker_exit SET number = number + 1 WHERE broker_id = ?")
        .bind(broker)
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Says that it has left, and what is kept of it.
///
/// # Errors
/// The master's.
pub async fn archive(
    tx: &mut MasterTx,
    broker: BrokerId,
    kept: &Archived,
) -> Result<(), StoreError> {
    sqlx::query(
        "UPDATE broker_exit SET export_digest = ?, head_seq = ?, head_hash = ?, archived_by = ?,
             archived_at = ?
         WHERE broker_id = ?",
    )
    .bind(kept.export_digest.0.to_vec())
    .bind(kept.head.seq)
    .bind(kept.head.hash.0.to_vec())
    .bind(&kept.by)
    .bind(kept.at)
    .bind(broker)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// What was kept of a broker, once it has left.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn archived(master: &Pool, broker: BrokerId) -> Result<Option<Archived>, StoreError> {
    #[derive(FromRow)]
    struct Row {
        export_digest: Vec<u8>,
        head_seq: u64,
        head_hash: Vec<u8>,
        archived_by: String,
        archived_at: DateTime<Utc>,
    }
    let row: Option<Row> = sqlx::query_as(
        "SELECT export_digest, head_seq, head_hash, archived_by, archived_at FROM broker_exit
         WHERE broker_id = ? AND archived_at IS NOT NULL",
    )
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    let Some(row) = row else {
        return Ok(None);
    };
    let hash = |bytes: Vec<u8>| {
        let bytes = bytes.try_into().map(Hash);
        bytes.map_err(|_| corrupt("broker_exit", format!("{broker}: a digest")))
    };
    Ok(Some(Archived {
        export_digest: hash(row.export_digest)?,
        head: Head {
            seq: row.head_seq,
            hash: hash(row.head_hash)?,
        },
        by: row.archived_by,
        at: row.archived_at,
    }))
}

/// How many requests of a broker have not come to their end, and the first of them.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn open_requests(
    master: &Pool,
    broker: BrokerId,
    limit: u32,
) -> Result<(u64, Vec<OpenRequest>), StoreError> {
    let count: (i64,) = sqlx::query_as(
        "SELECT (SELECT COUNT(*) FROM network_request
                 WHERE author_broker_id = ? AND closed_at IS NULL)
              + (SELECT COUNT(*) FROM network_request
                 WHERE target_broker_id = ? AND closed_at IS NULL)",
    )
    .bind(broker)
    .bind(broker)
    .fetch_one(master)
    .await
    .map_err(failed)?;
    let rows: Vec<(u64, String)> = sqlx::query_as(
        "(SELECT request_id, status FROM network_request
          WHERE author_broker_id = ? AND closed_at IS NULL LIMIT ?)
         UNION ALL
         (SELECT request_id, status FROM network_request
          WHERE target_broker_id = ? AND closed_at IS NULL LIMIT ?)
         ORDER BY request_id LIMIT ?",
    )
    .bind(broker)
    .bind(limit)
    .bind(broker)
    .bind(limit)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let requests = rows.into_iter().map(|(id, status)| {
        let id = RequestId::from_bits(id);
        let status = RequestStatus::parse(&status);
        let status = status.ok_or_else(|| corrupt("network_request", format!("{id}: status")))?;
        Ok(OpenRequest { id, status })
    });
    let requests = requests.collect::<Result<_, StoreError>>()?;
    Ok((u64::try_from(count.0).unwrap_or(0), requests))
}

/// The sagas of a broker's requests that have not ended: from the few that there are in the whole
/// network.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn open_sagas(master: &Pool, broker: BrokerId) -> Result<Vec<OpenSaga>, StoreError> {
    let rows: Vec<(Uuid, String, String, String)> = sqlx::query_as(
        "SELECT s.saga_id, s.kind, s.subject, s.status
         FROM saga s JOIN network_request r
              ON r.request_id = CAST(CONV(SUBSTRING(s.subject, 4), 16, 10) AS UNSIGNED)
                              + IF(s.subject LIKE 'OR-%', 1 << 48, 0)
         WHERE s.status IN ('running', 'compensating', 'stuck')
           AND (s.subject LIKE 'NR-%' OR s.subject LIKE 'OR-%')
           AND (r.author_broker_id = ? OR r.target_broker_id = ?)
         ORDER BY s.saga_id",
    )
    .bind(broker)
    .bind(broker)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    let sagas = rows.into_iter().map(|(id, kind, subject, status)| {
        let bad = |column: &str| corrupt("saga", format!("{id}: {column}"));
        Ok(OpenSaga {
            id,
            kind: SagaKind::parse(&kind).ok_or_else(|| bad("kind"))?,
            subject,
            status: SagaStatus::parse(&status).ok_or_else(|| bad("status"))?,
        })
    });
    sagas.collect()
}
