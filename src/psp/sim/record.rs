//! What the simulator has paid, as lines of JSON that are only ever added. A line is on disk before
//! anybody hears of what it says; lines that come while the disk is busy go together.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::SimError;
use super::book::Entry;

/// Why a record can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    #[error("the record {path:?} can't be opened")]
    Open {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("the record {path:?} is in use by another simulator")]
    InUse { path: PathBuf },
    #[error("line {line} of the record {path:?} is none of a simulator's")]
    Line {
        path: PathBuf,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
}

/// Lines to be written, and who waits for that.
struct Write {
    lines: String,
    done: oneshot::Sender<()>,
}

/// The way to the one thread that writes.
pub(super) struct Record {
    writes: mpsc::Sender<Write>,
    broken: CancellationToken,
}

impl Record {
    /// Opens a record for oneself alone and reads it. What a crash has left of a line at its end was
    /// never told to anybody, and is cut off.
    pub(super) fn open(path: &Path) -> Result<(Self, Vec<Entry>), RecordError> {
        let failed = |source| RecordError::Open {
            path: path.to_owned(),
            source,
        };
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        let mut file = options.open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let path = path.to_owned();
                return Err(RecordError::InUse { path });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(failed)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = whole.map_or(0, |at| at + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(failed)?;
            file.seek(SeekFrom::End(0)).map_err(failed)?;
        }
        let mut entries = Vec::new();
        let lines = bytes[..whole].split(|byte| *byte == b'\n');
        for (at, line) in lines.enumerate().filter(|(_, line)| !line.is_empty()) {
            let entry = serde_json::from_slice(line).map_err(|source| RecordError::Line {
                path: path.to_owned(),
                line: at + 1,
                source,
            })?;
            entries.push(entry);
        }
        sync_folder(path).map_err(failed)?;
        let (writes, taken) = mpsc::channel();
        let broken = CancellationToken::new();
        let told = broken.clone();
        std::thread::spawn(move || write_all(&file, &taken, &told));
        Ok((Self { writes, broken }, entries))
    }

    /// Hands entries to the writer, after all that were handed before. What is given ends when all of
    /// them are on disk, and fails where they can't be.
    pub(super) fn write(&self, entries: &[Entry]) -> Result<oneshot::Receiver<()>, SimError> {
        let mut lines = String::new();
        for entry in entries {
            lines += &serde_json::to_string(entry).map_err(|_| SimError::Broken)?;
            lines.push('\n');
        }
        let (done, written) = oneshot::channel();
        let write = Write { lines, done };
        self.writes.send(write).map_err(|_| SimError::Broken)?;
        Ok(written)
    }

    /// Cancelled once the record can't be written.
    pub(super) const fn broken(&self) -> &CancellationToken {
        &self.broken
    }
}

/// Writes until nobody is left who could ask for it, or until it fails: then those who wait hear
/// that by nobody answering them.
fn write_all(mut file: &File, taken: &mpsc::Receiver<Write>, broken: &CancellationToken) {
    while let Ok(first) = taken.recv() {
        let group: Vec<_> = std::iter::once(first).chain(taken.try_iter()).collect();
        let lines: String = group.iter().map(|write| write.lines.as_str()).collect();
        if !lines.is_empty() {
            let written = file.write_all(lines.as_bytes());
            if let Err(error) = written.and_then(|()| file.sync_data()) {
                tracing::error!(%error, "the record can't be written");
                broken.cancel();
                return;
            }
        }
        for write in group {
            // Whoever has gone does not need to know.
            let _ = write.done.send(());
        }
    }
}

/// So that a new file's name survives too.
fn sync_folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::payment::PspName;

    struct TempFile(PathBuf);

    impl TempFile {
        fn new() -> Self {
            let name = format!("settlenet-record-{}", uuid::Uuid::new_v4());
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for TempFile {
        fn drop(&mut self) {
            drop(std::fs::remove_file(&self.0));
        }
    }

    fn refused(uid: &str) -> Entry {
        Entry::Refused {
            provider: PspName::Ipps,
            uid: uid.to_owned(),
            code: "1001".to_owned(),
            pending_asks: 0,
        }
    }

    async fn write(record: &Record, uids: &[&str]) {
        let entries: Vec<_> = uids.iter().map(|uid| refused(uid)).collect();
        record.write(&entries).unwrap().await.unwrap();
    }

    /// Once the writer has let go of the file.
    fn reopened(path: &Path) -> (Record, Vec<Entry>) {
        loop {
            match Record::open(path) {
                Err(RecordError::InUse { .. }) => std::thread::yield_now(),
                opened => return opened.unwrap(),
            }
        }
    }

    #[tokio::test]
    async fn what_was_written_is_read_and_goes_on() {
        let file = TempFile::new();
        let (record, entries) = Record::open(&file.0).unwrap();
        assert!(entries.is_empty());
        write(&record, &["a", "b"]).await;
        write(&record, &[]).await;
        drop(record);
        let (record, entries) = reopened(&file.0);
        assert_eq!(entries, [refused("a"), refused("b")]);
        write(&record, &["c"]).await;
        drop(record);
        assert_eq!(
            reopened(&file.0).1,
            [refused("a"), refused("b"), refused("c")]
        );
    }

    #[tokio::test]
    async fn half_a_line_is_cut_off_and_a_bad_line_is_told_of() {
        let file = TempFile::new();
        let (record, _) = Record::open(&file.0).unwrap();
        write(&record, &["a", "b"]).await;
        drop(record);
        drop(reopened(&file.0));
        let whole = std::fs::read_to_string(&file.0).unwrap();
        for cut in 1..whole.len() / 2 {
            std::fs::write(&file.0, &whole[..whole.len() - cut]).unwrap();
            let (record, entries) = reopened(&file.0);
            assert_eq!(entries, [refused("a")], "{cut}");
            write(&record, &["c"]).await;
            drop(record);
            assert_eq!(reopened(&file.0).1, [refused("a"), refused("c")], "{cut}");
        }
        std::fs::write(&file.0, format!("{whole}nonsense\n")).unwrap();
        let error = loop {
            match Record::open(&file.0) {
                Err(RecordError::InUse { .. }) => std::thread::yield_now(),
                Err(error) => break error,
                Ok(_) => panic!("nonsense was read"),
            }
        };
        assert!(
            matches!(error, RecordError::Line { line: 3, .. }),
            "{error}"
        );
    }

    #[tokio::test]
    async fn one_has_it_at_a_time() {
        let file = TempFile::new();
        let first = Record::open(&file.0).unwrap();
        let second = Record::open(&file.0);
        assert!(matches!(second, Err(RecordError::InUse { .. })));
        drop(first);
    }
}
