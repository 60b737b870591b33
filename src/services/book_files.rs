//! A broker's book out into a file and in from one: the backup of one broker, its restore, and
//! what is kept of one that leaves. [`crate::domain::book_file`] is the format.
//!
//! An export is of one moment, while the broker works. An import verifies the whole file before
//! anything is touched, then closes the book's fence, so that nobody reads or writes it, writes the
//! rows, reads them back, and opens the fence. Its name follows from the file: a crash leaves the
//! book closed by that import, and the same file again finishes it.

use std::io::{self, BufRead, BufWriter, Read as _, Seek, SeekFrom, Write};
use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::domain::book_file::{FileFault, FileProblem, Header, Reading, Writing, import_id};
use crate::domain::book_table::{
    BOOK_TABLES, BookTable, CHAIN_HEAD, Row, TRANSACTION, Value as Cell,
};
use crate::domain::broker::BrokerState;
use crate::domain::canonical::Hash;
use crate::domain::chain::{Head, LINE_MAX};
use crate::domain::fence::{self, Fence, FenceRow, NotOurs};
use crate::domain::ids::BrokerId;
use crate::runtime::failpoint;
use crate::services::partners::bound_of;
use crate::stores::StoreError;
use crate::stores::book::{self, HeldBook};
use crate::stores::master::{self, brokers, moves, placement};
use crate::stores::pool::Pool;
use crate::stores::router::{BookRead, Router};

/// Rows that are read, or written, at once.
const PAGE: usize = 500;

/// Why a book was not exported or imported.
#[derive(Debug, thiserror::Error)]
pub enum BookFileError {
    #[error("no broker {id}")]
    NoSuchBroker { id: BrokerId },
    #[error(
        "broker {id} is {state}: a book is taken in for one that works, is suspended or is leaving"
    )]
    State { id: BrokerId, state: BrokerState },
    #[error("move {id} of this broker goes on: it must end or be cancelled first")]
    Moving { id: Uuid },
    #[error("the book of broker {id} has moved meanwhile: say it again")]
    Moved { id: BrokerId },
    /// The rows of the book do not belong together: nothing was written that is called an export.
    #[error("the book does not hold: {0}")]
    Book(#[source] FileProblem),
    #[error(transparent)]
    File(#[from] FileFault),
    #[error("broker {id} has a book, up to entry {head}, and it was not said that it may be replaced", head = at(.head))]
    NotEmpty { id: BrokerId, head: Head },
    /// Taking it in would lose what is there.
    #[error("the file does not go on from the book that is there: {why}")]
    NotExtended { why: String },
    #[error("the book is being written in: pause broker {id} first")]
    Written { id: BrokerId },
    #[error(
        "the book's fence is not as this import can have left it; another import must be finished first: {0}"
    )]
    Fence(#[from] NotOurs),
    #[error("another import into the book of broker {id} goes on")]
    Contended { id: BrokerId },
    #[error("what the book has in {table} is not what the file has")]
    Differs { table: &'static str },
    #[error("the file: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

fn at(head: &Head) -> String {
    format!("{}:{}", head.seq, head.hash)
}

/// A file that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    pub header: Header,
    /// Of the first line, which has the digests of all others.
    pub digest: Hash,
}

/// A file that was taken in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub header: Header,
    pub digest: Hash,
    /// The head of the book that was there before, where one was.
    pub replaced: Option<Head>,
    /// An earlier try had begun it.
    pub resumed: bool,
}

/// How far it is: what is being done, rows done, rows in all.
pub type FileProgress<'a> = &'a (dyn Fn(&'static str, u64, u64) + Sync);

/// Exports and imports. Clones share everything.
#[derive(Clone)]
pub struct BookFiles {
    master: Pool,
    router: Arc<Router>,
}

/// What is in the place of a book.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Present {
    head: Head,
    /// Of the last write.
    change: u64,
    rows: u64,
}

impl Present {
    /// As a book is made.
    const fn is_empty(&self) -> bool {
        self.head.seq == 0 && self.rows <= 1
    }
}

impl BookFiles {
    #[must_use]
    pub const fn new(master: Pool, router: Arc<Router>) -> Self {
        Self { master, router }
    }

    /// Writes a book as of one moment, verifying it from genesis on the way. The first line is
    /// written once more at the end, when the digests are known, so a file that was broken off is
    /// none. Memory grows with the number of accounts only.
    ///
    /// # Errors
    /// See [`BookFileError`]; what was written until then is no export.
    pub async fn export(
        &self,
        broker: BrokerId,
        out: impl Write + Seek,
        now: DateTime<Utc>,
        progress: FileProgress<'_>,
    ) -> Result<Exported, BookFileError> {
        let found = brokers::get(&self.master, broker).await?;
        found.ok_or(BookFileError::NoSuchBroker { id: broker })?;
        let mut out = BufWriter::new(out);
        let scope = self.router.book(broker).await?;
        let mut read = scope.read().await?;
        let mut counts = Vec::with_capacity(BOOK_TABLES.len());
        for table in BOOK_TABLES {
            counts.push(read.count(table).await?);
        }
        let head = book::head(&mut read).await?;
        let mut writing = Writing::begin(broker, now, head, &counts);
        out.write_all(header_line(writing.header())?.as_bytes())?;
        let total = writing.header().total();
        let mut done = 0;
        let mut pages = Pages::default();
        while let Some((table, rows)) = pages.next(&mut read).await? {
            for row in &rows {
                let line = writing.row(table, row).map_err(BookFileError::Book)?;
                out.write_all(line.as_bytes())?;
            }
            done += rows.len() as u64;
            progress("exported", done, total);
        }
        read.end().await?;
        let header = writing.finish().map_err(BookFileError::Book)?;
        failpoint::at("export.lines");
        out.seek(SeekFrom::Start(0))?;
        let line = header_line(&header)?;
        out.write_all(line.as_bytes())?;
        out.flush()?;
        Ok(Exported {
            header,
            digest: Hash::of_bytes(line.as_bytes()),
        })
    }

    /// Verifies a whole file: the chain from genesis to the head, balances, promises, counts and
    /// digests. Needs no database.
    ///
    /// # Errors
    /// What is wrong, and in which line.
    pub fn verify(
        file: impl BufRead,
        progress: FileProgress<'_>,
    ) -> Result<Exported, BookFileError> {
        let mut reader = Lines::new(file);
        let mut reading = reader.begin()?;
        let digest = reader.digest;
        while let Some(line) = reader.next()? {
            reading.line(line)?;
            reader.tell("verified", reading.header().total(), progress);
        }
        let header = reading.finish()?.clone();
        Ok(Exported { header, digest })
    }

    /// Takes a book in from a file, which `open` opens from its beginning, several times. The book
    /// that is there is empty or absent; or, where `replace` says so, one that the file goes on
    /// from, so that nothing is lost. Called again after a crash, with the same file, it finishes.
    ///
    /// # Errors
    /// See [`BookFileError`]. A file that is refused changes nothing.
    pub async fn import<R: BufRead>(
        &self,
        open: impl Fn() -> io::Result<R>,
        replace: bool,
        now: DateTime<Utc>,
        progress: FileProgress<'_>,
    ) -> Result<Imported, BookFileError> {
        let file = Self::verify(open()?, progress)?;
        let broker = file.header.broker;
        self.may_import(broker).await?;
        // One at a time: a second one, of the same file too, would write under the first.
        let name = broker.to_string();
        let kept = placement::keep(&self.master, "import", &name).await?;
        let kept = kept.ok_or(BookFileError::Contended { id: broker })?;
        let done = self.take_in(file, open, replace, now, progress).await;
        placement::give_back(kept, "import", &name).await?;
        done
    }

    async fn take_in<R: BufRead>(
        &self,
        Exported { header, digest }: Exported,
        open: impl Fn() -> io::Result<R>,
        replace: bool,
        now: DateTime<Utc>,
        progress: FileProgress<'_>,
    ) -> Result<Imported, BookFileError> {
        let broker = header.broker;
        let scope = self.router.book(broker).await?;
        let route = scope.route().clone();
        let held = HeldBook::new(&self.router, broker, &route.database)?;
        let id = import_id(broker, digest);
        let closed = fence::closed_for_import(id, route.epoch);

        let found = fence_of(&held, now).await?;
        let begun = found == Some(closed);
        let before = present(&held).await?;
        // An earlier try that died with its answer.
        let opened = FenceRow {
            state: Fence::Open,
            ..closed
        };
        if found == Some(opened) && read_back(&held, &header, progress).await.is_ok() {
            self.rebound(broker, now).await?;
            return Ok(Imported {
                header,
                digest,
                replaced: None,
                resumed: true,
            });
        }
        if !begun {
            fits(&open, &header, before.as_ref(), replace)?;
        }
        self.close(&held, closed, now).await?;
        // Nobody writes any more. What was looked at before may have grown until then.
        if !begun && present(&held).await? != before {
            open_again(&held, closed, before.is_some(), now).await?;
            return Err(BookFileError::Written { id: broker });
        }
        failpoint::at("import.closed");
        self.write(&held, &open, closed, progress).await?;
        failpoint::at("import.written");
        read_back(&held, &header, progress).await?;
        let turned = held.turn(now, |found| fence::open_after_import(closed, found));
        turned.await??;
        self.router.forget(broker);
        self.rebound(broker, now).await?;
        Ok(Imported {
            header,
            digest,
            replaced: before
                .filter(|before| !begun && !before.is_empty())
                .map(|before| before.head),
            resumed: begun,
        })
    }

    /// Whether a file has just the rows that the book has now.
    ///
    /// # Errors
    /// [`BookFileError::Differs`]; the book's.
    pub async fn same(&self, header: &Header) -> Result<(), BookFileError> {
        let scope = self.router.book(header.broker).await?;
        let held = HeldBook::new(&self.router, header.broker, &scope.route().database)?;
        read_back(&held, header, &|_, _, _| {}).await
    }

    /// Closes the book while no move of it can begin: one that begins later finds it closed, and
    /// waits.
    async fn close(
        &self,
        held: &HeldBook,
        closed: FenceRow,
        now: DateTime<Utc>,
    ) -> Result<(), BookFileError> {
        let broker = held.broker();
        let mut tx = master::begin(&self.master).await?;
        let found = brokers::lock(&mut tx, broker).await?;
        // It may have moved while the file was read.
        if found.is_none_or(|found| found.route_epoch != closed.epoch) {
            return Err(BookFileError::Moved { id: broker });
        }
        if let Some(open) = moves::open_of(&self.master, broker).await? {
            return Err(BookFileError::Moving { id: open.id });
        }
        let turned = held.turn(now, |found| fence::close_for_import(closed, found));
        turned.await??;
        Ok(master::commit(tx).await?)
    }

    /// The bound of partners is of the plan that is in force, not of that of the file's day.
    async fn rebound(&self, id: BrokerId, now: DateTime<Utc>) -> Result<(), BookFileError> {
        let broker = brokers::get(&self.master, id).await?;
        let broker = broker.ok_or(BookFileError::NoSuchBroker { id })?;
        let scope = self.router.book(id).await?;
        Ok(book::rebound_partners(&scope, bound_of(&broker), now).await?)
    }

    async fn may_import(&self, id: BrokerId) -> Result<(), BookFileError> {
        let broker = brokers::get(&self.master, id).await?;
        let broker = broker.ok_or(BookFileError::NoSuchBroker { id })?;
        match broker.state {
            BrokerState::Active | BrokerState::Suspended | BrokerState::Leaving => {}
            state @ (BrokerState::Provisioning | BrokerState::Archived) => {
                return Err(BookFileError::State { id, state });
            }
        }
        match moves::open_of(&self.master, id).await? {
            Some(open) => Err(BookFileError::Moving { id: open.id }),
            None => Ok(()),
        }
    }

    /// Empties the place, and writes the rows of the file.
    async fn write<R: BufRead>(
        &self,
        held: &HeldBook,
        open: &impl Fn() -> io::Result<R>,
        closed: FenceRow,
        progress: FileProgress<'_>,
    ) -> Result<(), BookFileError> {
        let id = closed.move_id.unwrap_or_default();
        for table in BOOK_TABLES {
            let most = u32::try_from(PAGE).unwrap_or(u32::MAX);
            while held.clear(id, closed.epoch, table, most).await? == u64::from(most) {}
        }
        failpoint::at("import.cleared");
        let mut reader = Lines::new(open()?);
        let mut reading = reader.begin()?;
        let mut batch: Vec<(&'static BookTable, Vec<Row>)> = Vec::new();
        let mut rows = 0;
        while let Some(line) = reader.next()? {
            let (table, row) = reading.line(line)?;
            match batch.last_mut() {
                Some((last, rows)) if *last == table => rows.push(row),
                Some(_) | None => batch.push((table, vec![row])),
            }
            rows += 1;
            if rows == PAGE {
                held.put(id, closed.epoch, &batch).await?;
                failpoint::at("import.page");
                batch.clear();
                rows = 0;
            }
            reader.tell("written", reading.header().total(), progress);
        }
        reading.finish()?;
        if !batch.is_empty() {
            held.put(id, closed.epoch, &batch).await?;
        }
        Ok(())
    }
}

/// Every row of a book, a page of a table at a time.
#[derive(Default)]
struct Pages {
    table: usize,
    after: Option<crate::domain::book_table::Place>,
}

impl Pages {
    async fn next(
        &mut self,
        read: &mut BookRead,
    ) -> Result<Option<(&'static BookTable, Vec<Row>)>, StoreError> {
        while let Some(table) = BOOK_TABLES.get(self.table).copied() {
            let rows = read.rows(table, self.after.as_ref(), PAGE).await?;
            let Some(last) = rows.last() else {
                self.table += 1;
                self.after = None;
                continue;
            };
            self.after = Some(table.place(last));
            return Ok(Some((table, rows)));
        }
        Ok(None)
    }
}

/// The fence as it is.
async fn fence_of(held: &HeldBook, now: DateTime<Utc>) -> Result<Option<FenceRow>, BookFileError> {
    let seen = Mutex::new(None);
    let looked = held.turn(now, |found| {
        *seen.lock().unwrap_or_else(PoisonError::into_inner) = found;
        Ok(None)
    });
    looked.await??;
    Ok(seen.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What is there now, whatever the fence says; nothing where there is no book at all.
async fn present(held: &HeldBook) -> Result<Option<Present>, StoreError> {
    let mut read = held.read().await?;
    let mut rows = 0;
    for table in BOOK_TABLES {
        rows += read.count(table).await?;
    }
    let last = read.rows(&CHAIN_HEAD, None, 1).await?;
    read.end().await?;
    Ok(last.first().and_then(|row| match row.0.as_slice() {
        [
            Cell::Unsigned(seq),
            Cell::Bytes(hash),
            _,
            Cell::Unsigned(change),
        ] => Some(Present {
            head: Head {
                seq: *seq,
                hash: Hash(hash.as_slice().try_into().ok()?),
            },
            change: *change,
            rows,
        }),
        _ => None,
    }))
}

/// Whether a file may take the place of what is there.
fn fits<R: BufRead>(
    open: &impl Fn() -> io::Result<R>,
    header: &Header,
    there: Option<&Present>,
    replace: bool,
) -> Result<(), BookFileError> {
    let Some(there) = there.filter(|there| !there.is_empty()) else {
        return Ok(());
    };
    if !replace {
        let (id, head) = (header.broker, there.head);
        return Err(BookFileError::NotEmpty { id, head });
    }
    let not = |why: String| Err(BookFileError::NotExtended { why });
    if there.head.seq > header.head.seq {
        return not(format!(
            "it ends with entry {}, and the book with {}",
            header.head.seq, there.head.seq
        ));
    }
    let mut reader = Lines::new(open()?);
    let mut reading = reader.begin()?;
    let (mut known, mut change) = (there.head.seq == 0, 0);
    while let Some(line) = reader.next()? {
        let (table, row) = reading.line(line)?;
        if table == &CHAIN_HEAD {
            change = table.place(&row).change;
        }
        if table == &TRANSACTION && row.0.first() == Some(&Cell::Unsigned(there.head.seq)) {
            known = row.0.last() == Some(&Cell::Bytes(there.head.hash.0.to_vec()));
        }
    }
    if !known {
        return not(format!("its entry {} is another", there.head.seq));
    }
    if change < there.change {
        return not(format!(
            "it has the book as of its {change}th write, and the book has had {} since",
            there.change - change
        ));
    }
    Ok(())
}

/// As it was before this import.
async fn open_again(
    held: &HeldBook,
    closed: FenceRow,
    was_there: bool,
    now: DateTime<Utc>,
) -> Result<(), BookFileError> {
    if was_there {
        let turned = held.turn(now, |found| fence::open_after_import(closed, found));
        return Ok(turned.await??);
    }
    Ok(held
        .remove_fence(closed.move_id.unwrap_or_default())
        .await?)
}

/// Reads all that was written, and compares it with the file.
async fn read_back(
    held: &HeldBook,
    header: &Header,
    progress: FileProgress<'_>,
) -> Result<(), BookFileError> {
    let mut read = held.read().await?;
    let counts: Vec<u64> = header.tables.iter().map(|table| table.rows).collect();
    let mut writing = Writing::begin(header.broker, header.at, header.head, &counts);
    let (mut done, mut pages) = (0, Pages::default());
    while let Some((table, rows)) = pages.next(&mut read).await? {
        for row in &rows {
            writing.row(table, row).map_err(BookFileError::Book)?;
        }
        done += rows.len() as u64;
        progress("read back", done, header.total());
    }
    read.end().await?;
    let found = writing.finish().map_err(BookFileError::Book)?;
    let pairs = found.tables.iter().zip(&header.tables).zip(BOOK_TABLES);
    for ((found, said), table) in pairs {
        if found.sha256 != said.sha256 {
            return Err(BookFileError::Differs { table: table.name });
        }
    }
    Ok(())
}

fn header_line(header: &Header) -> io::Result<String> {
    Ok(header.to_line()?)
}

/// Lines with their line feeds. One that is too long comes cut, just long enough to be refused.
struct Lines<R> {
    file: R,
    line: Vec<u8>,
    /// Of the first line.
    digest: Hash,
    rows: u64,
}

impl<R: BufRead> Lines<R> {
    const fn new(file: R) -> Self {
        Self {
            file,
            line: Vec::new(),
            digest: Hash([0; 32]),
            rows: 0,
        }
    }

    fn begin(&mut self) -> Result<Reading, BookFileError> {
        let reading = Reading::begin(self.next()?)?;
        self.digest = Hash::of_bytes(&self.line);
        self.rows = 0;
        Ok(reading)
    }

    fn next(&mut self) -> io::Result<Option<&[u8]>> {
        self.line.clear();
        let mut bounded = (&mut self.file).take(LINE_MAX as u64 + 1);
        let read = bounded.read_until(b'\n', &mut self.line)?;
        self.rows += 1;
        Ok((read > 0).then_some(&self.line))
    }

    fn tell(&self, what: &'static str, of: u64, progress: FileProgress<'_>) {
        if self.rows.is_multiple_of(PAGE as u64) || self.rows == of {
            progress(what, self.rows, of);
        }
    }
}
