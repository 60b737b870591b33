//! `upload`: files that prove something, with their SHA-256.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySqlConnection, MySqlPool};
use uuid::Uuid;

use super::failed;
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

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
pub async fn insert(
    tx: &mut MySqlConnection,
    upload: &Upload,
    content: &[u8],
) -> Result<(), StoreError> {
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
pub async fn get(master: &MySqlPool, id: Uuid) -> Result<Option<Upload>, StoreError> {
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
pub async fn content(master: &MySqlPool, id: Uuid) -> Result<Option<Vec<u8>>, StoreError> {
    sqlx::query_scalar("SELECT content FROM upload WHERE upload_id = ?")
        .bind(id)
        .fetch_optional(master)
        .await
        .map_err(failed)
}
