//! Files that prove something: kept as they came, named by what they are and not by what they
//! are said to be.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::{self, uploads};
use crate::stores::pool::Pool;

pub use crate::stores::master::uploads::Upload;

pub use crate::domain::proof::UPLOADS as PATH;

/// Kinds of files that are taken: their first bytes, and what they are.
const KINDS: [(&[u8], &str); 5] = [
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
];

#[derive(Debug, thiserror::Error)]
pub enum UploadError {
    #[error("the file is empty")]
    Empty,
    #[error("the file is none of JPEG, PNG, GIF, WebP and PDF by its content")]
    Kind,
    #[error("this Idempotency-Key was used for another upload")]
    KeyReused,
    #[error("no such upload")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Files that are in memory at once, as they come in: more wait.
const AT_ONCE: usize = 16;

/// Uploads. One per process; clones share it.
#[derive(Clone)]
pub struct UploadService {
    master: Pool,
    clock: Clock,
    room: Arc<Semaphore>,
}

impl UploadService {
    #[must_use]
    pub fn new(master: Pool, clock: Clock) -> Self {
        Self {
            master,
            clock,
            room: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Room in memory for one file, to be held from before it is read until it is stored.
    ///
    /// # Panics
    /// Never: nobody closes the semaphore.
    pub async fn room(&self) -> OwnedSemaphorePermit {
        let room = Arc::clone(&self.room).acquire_owned().await;
        room.expect("the semaphore is never closed")
    }

    /// Keeps a file; the same intention again gives the upload that it made. The size is bounded
    /// before it comes here.
    ///
    /// # Errors
    /// An empty file, or one of another kind than [`KINDS`] knows.
    pub async fn store(
        &self,
        broker: BrokerId,
        intention: &Intention,
        content: &[u8],
    ) -> Result<Upload, UploadError> {
        if let Some(upload) = self.known(intention).await? {
            return Ok(upload);
        }
        let upload = Upload {
            id: Uuid::new_v5(
                &Uuid::NAMESPACE_URL,
                format!("{PATH}{}\0{}", intention.client, intention.key).as_bytes(),
            ),
            broker,
            sha256: Hash::of_bytes(content),
            content_type: kind_of(content)?.to_owned(),
            size: u32::try_from(content.len()).map_err(|_| UploadError::Kind)?,
            created_at: self.clock.now(),
        };
        match self.insert(&upload, intention, content).await {
            Ok(()) => Ok(upload),
            Err(error) if error.is_duplicate() => self
                .known(intention)
                .await?
                .ok_or(UploadError::Store(error)),
            Err(error) => Err(error.into()),
        }
    }

    /// A file and its content, for who may read it.
    ///
    /// # Errors
    /// [`UploadError::NotFound`] for everybody else.
    pub async fn read(&self, broker: BrokerId, id: Uuid) -> Result<(Upload, Vec<u8>), UploadError> {
        if !uploads::readable_by(&self.master, id, broker).await? {
            return Err(UploadError::NotFound);
        }
        self.content(id).await
    }

    /// A file that proves something for a request, whoever asks: the caller has seen to it that they
    /// may.
    ///
    /// # Errors
    /// There is no such file of that request, or the master's.
    pub async fn of_request(
        &self,
        request: RequestId,
        id: Uuid,
    ) -> Result<(Upload, Vec<u8>), UploadError> {
        if !uploads::is_used_for(&self.master, id, request).await? {
            return Err(UploadError::NotFound);
        }
        self.content(id).await
    }

    async fn content(&self, id: Uuid) -> Result<(Upload, Vec<u8>), UploadError> {
        let upload = uploads::get(&self.master, id)
            .await?
            .ok_or(UploadError::NotFound)?;
        let content = uploads::content(&self.master, id)
            .await?
            .ok_or(UploadError::NotFound)?;
        Ok((upload, content))
    }

    async fn known(&self, intention: &Intention) -> Result<Option<Upload>, UploadError> {
        match idempotency::find(&self.master, intention).await? {
            None => Ok(None),
            Some(Known::Other) => Err(UploadError::KeyReused),
            Some(Known::Same { subject }) => {
                let id = subject.parse().map_err(|_| UploadError::KeyReused)?;
                Ok(uploads::get(&self.master, id).await?)
            }
        }
    }

    async fn insert(
        &self,
        upload: &Upload,
        intention: &Intention,
        content: &[u8],
    ) -> Result<(), StoreError> {
        let mut tx = master::begin(&self.master).await?;
        idempotency::insert(
            &mut tx,
            intention,
            &upload.id.to_string(),
            upload.created_at,
        )
        .await?;
        uploads::insert(&mut tx, upload, content).await?;
        master::commit(tx).await
    }
}

fn kind_of(content: &[u8]) -> Result<&'static str, UploadError> {
    if content.is_empty() {
        return Err(UploadError::Empty);
    }
    if content.starts_with(b"RIFF") && content.get(8..12) == Some(b"WEBP") {
        return Ok("image/webp");
    }
    KINDS
        .into_iter()
        .find(|(magic, _)| content.starts_with(magic))
        .map(|(_, kind)| kind)
        .ok_or(UploadError::Kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_its_content_says() {
        assert_eq!(kind_of(b"%PDF-1.7 ...").unwrap(), "application/pdf");
        assert_eq!(kind_of(b"\xff\xd8\xff\xe0..JFIF").unwrap(), "image/jpeg");
        assert_eq!(kind_of(b"RIFF\x10\0\0\0WEBPVP8 ").unwrap(), "image/webp");
        for other in [
            &b"<html>"[..],
            b"MZ\x90",
            b"#!/bin/sh",
            b"RIFF\x10\0\0\0WAVE",
            b"\x89PN",
        ] {
            assert!(matches!(kind_of(other), Err(UploadError::Kind)));
        }
        assert!(matches!(kind_of(b""), Err(UploadError::Empty)));
    }
}
