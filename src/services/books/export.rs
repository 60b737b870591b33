//! A chain as a file, for whoever verifies it elsewhere: one line per entry.

use super::{BooksError, BooksService};
use crate::domain::chain_export::ExportedEntry;
use crate::domain::chain_verify::Head;
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::book;

/// Entries that are read at once.
const PAGE: u32 = 500;

/// Why an export has stopped.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Book(#[from] BooksError),
    /// Whoever takes the lines can't.
    #[error("the export can't be written: {0}")]
    Sink(#[from] std::io::Error),
}

impl BooksService {
    /// Writes a whole chain as of one moment, line by line, without the free text beside it, and
    /// gives its head. Memory does not grow with the chain.
    ///
    /// # Errors
    /// See [`ExportError`]; what was written until then is no whole chain.
    pub async fn export(
        &self,
        broker: BrokerId,
        mut line: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<Head, ExportError> {
        let store = |error: StoreError| ExportError::Book(error.into());
        let scope = self.router.book(broker).await.map_err(store)?;
        let mut read = scope.read().await.map_err(store)?;
        let (seq, hash) = book::head(&mut read).await.map_err(store)?;
        let mut last = 0;
        loop {
            let page = book::entries_after(&mut read, last, PAGE)
                .await
                .map_err(store)?;
            for stored in &page {
                last = stored.entry.seq;
                let exported = ExportedEntry {
                    entry: stored.entry.canonical(),
                    private: None,
                    tx_hash: stored.tx_hash,
                };
                let text = exported.to_line().map_err(std::io::Error::other)?;
                line(text.as_bytes())?;
            }
            if page.len() < PAGE as usize {
                break;
            }
        }
        read.end().await.map_err(store)?;
        Ok(Head { seq, hash })
    }
}
