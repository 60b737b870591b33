//! `upload`: files that prove something, with their SHA-256.

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use uuid::Uuid;

use super::failed;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// What is known of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upload {
    pub id: Uuid,
    /// Who uploaded it.
    pub broker: BrokerId,
    pub sha256: Hash,
    /// Found from the content, not claimed.
    pub content_type: String,
    /// Bytes.
    pub size: u32,
    pub created_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct Row {
    broker_id: u64,
    sha256: Vec<u8>,
    content_type: String,
    size: u32,
    created_at: DateTime<Utc>,
}

impl Row {
    fn read(self, id: Uuid) -> Result<Upload, StoreError> {
        let sha256 = self.sha256.try_into().map(Hash);
        Ok(Upload {
            id,
            broker: self.broker_id,
            sha256: sha256.map_err(|_| corrupt("upload", format!("{id}: sha256")))?,
            content_type: self.content_type,
            size: self.size,
            created_at: self.created_at,
        })
    }
}

/// # Errors
/// The master's; a duplicate where the id is there.
pub async fn insert(tx: &mut MasterTx, upload: &Upload, content: &[u8]) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO upload (upload_id, broker_id, sha256, content_type, size, content, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(upload.id)
    .bind(upload.broker)
    .bind(upload.sha256.0.to_vec())
    .bind(&upload.content_type)
    .bind(upload.size)
    .bind(content)
    .bind(upload.created_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// What is known of a file, without its content.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: Uuid) -> Result<Option<Upload>, StoreError> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT broker_id, sha256, content_type, size, created_at FROM upload WHERE upload_id = ?",
    )
    .bind(id)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(|row| row.read(id)).transpose()
}

/// # Errors
/// The master's.
pub async fn content(master: &Pool, id: Uuid) -> Result<Option<Vec<u8>>, StoreError> {
    sqlx::query_scalar("SELECT content FROM upload WHERE upload_id = ?")
        .bind(id)
        .fetch_optional(master)
        .await
        .map_err(failed)
}

/// Records that files prove something for a request.
///
/// # Errors
/// The master's.
pub async fn use_for(
    tx: &mut MasterTx,
    uploads: &[Uuid],
    request: RequestId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for upload in uploads {
        sqlx::query(
            "INSERT IGNORE INTO upload_use (upload_id, request_id, created_at) VALUES (?, ?, ?)",
        )
        .bind(upload)
        .bind(request.bits())
        .bind(now)
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    }
    Ok(())
}

/// Whether a broker may read a file: its own, or one that proves something for a request of
/// which it is a party.
///
/// # Errors
/// The master's.
pub async fn readable_by(master: &Pool, id: Uuid, broker: BrokerId) -> Result<bool, StoreError> {
    let found: Option<i32> = sqlx::query_scalar(
        "SELECT 1 FROM upload u WHERE u.upload_id = ? AND (u.broker_id = ? OR EXISTS (
             SELECT 1 FROM upload_use uu JOIN network_request r ON r.request_id = uu.request_id
             WHERE uu.upload_id = u.upload_id AND (r.author_broker_id = ? OR r.target_broker_id = ?)))",
    )
    .bind(id)
    .bind(broker)
    .bind(broker)
    .bind(broker)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(found.is_some())
}

/// Whether a file proves something for a request.
///
/// # Errors
/// The master's.
pub async fn is_used_for(master: &Pool, id: Uuid, request: RequestId) -> Result<bool, StoreError> {
    let found: Option<i32> =
        sqlx::query_scalar("SELECT 1 FROM upload_use WHERE upload_id = ? AND request_id = ?")
            .bind(id)
            .bind(request.bits())
            .fetch_optional(master)
            .await
            .map_err(failed)?;
    Ok(found.is_some())
}
