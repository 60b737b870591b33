//! A chain as a file, for whoever verifies it elsewhere: a line that says what follows, then one
//! line per entry.

use serde::{Deserialize, Serialize};

use super::{BooksError, BooksService};
use crate::domain::chain::{ExportedEntry, Head};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::book;

/// Entries that are read at once.
const PAGE: u32 = 500;

/// The first line of an exported chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportHeader {
    /// `settlenet-chain`.
    pub format: String,
    pub v: u16,
    /// As a string, as in the entries.
    pub broker: String,
    pub head: Head,
}

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
    /// Writes a whole chain as of one moment, line by line, without the free text beside it.
    /// Memory does not grow with the chain.
    ///
    /// # Errors
    /// See [`ExportError`]; what was written until then is no whole chain, which its header
    /// shows.
    pub async fn export(
        &self,
        broker: BrokerId,
        mut line: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<Head, ExportError> {
        let store = |error: StoreError| ExportError::Book(error.into());
        let scope = self.router.book(broker).await.map_err(store)?;
        let mut read = scope.read().await.map_err(store)?;
        let (seq, tx_hash) = book::head(&mut read).await.map_err(store)?;
        let head = Head { seq, tx_hash };
        write(
            &mut line,
            &ExportHeader {
                format: "settlenet-chain".to_owned(),
                v: crate::domain::chain::FORMAT,
                broker: broker.to_string(),
                head,
            },
        )?;
        let mut last = 0;
        loop {
            let page = book::entries_after(&mut read, last, PAGE)
                .await
                .map_err(store)?;
            for stored in &page {
                last = stored.entry.seq;
                let exported = ExportedEntry {
                    entry: stored.entry.canonical(),
                    tx_hash: stored.tx_hash,
                };
                write(&mut line, &exported)?;
            }
            if page.len() < PAGE as usize {
                break;
            }
        }
        read.end().await.map_err(store)?;
        Ok(head)
    }
}

fn write(
    line: &mut impl FnMut(&[u8]) -> std::io::Result<()>,
    value: &impl Serialize,
) -> std::io::Result<()> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    line(&text)
}
