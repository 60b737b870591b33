use std::fs::{File, OpenOptions};
use std::io::{BufReader, IsTerminal as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::json;

use super::{Failure, Shown, no_such};
use crate::app::Stores;
use crate::cli::table::facts;
use crate::config::Config;
use crate::domain::book_file::Header;
use crate::domain::canonical::{self, Hash};
use crate::domain::ids::BrokerId;
use crate::runtime::Clock;
use crate::services::book_files::{BookFileError, BookFiles, Exported};

/// Progress is told this often.
const TELL_EVERY: Duration = Duration::from_millis(500);

pub(super) async fn export(id: BrokerId, out: &Path, config: &Config) -> Result<Shown, Failure> {
    let files = Stores::open(config)?.book_files();
    let exported = export_to(&files, id, out).await?;
    Ok(shown(
        &exported.header,
        exported.digest,
        &[("file", out.display().to_string())],
    ))
}

/// Writes under another name, so that nothing incomplete is ever called by this one. Only its
/// owner may read it: it has personal data.
pub(super) async fn export_to(
    files: &BookFiles,
    id: BrokerId,
    out: &Path,
) -> Result<Exported, Failure> {
    if out.exists() {
        return Err(anyhow::anyhow!("{} is there already", out.display()).into());
    }
    let mut name = out.as_os_str().to_owned();
    name.push(".part");
    let part = PathBuf::from(name);
    let named = || part.display().to_string();
    // One that was left there may have another's rights.
    match std::fs::remove_file(&part) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(anyhow::Error::from(error).context(named()).into());
        }
        Ok(()) | Err(_) => {}
    }
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&part)
        .with_context(named)?;
    let told = Told::default();
    let now = Clock::from_env().now();
    let progress = |what: &'static str, done, of| told.tell(what, done, of);
    let exported = match files.export(id, &file, now, &progress).await {
        Ok(exported) => exported,
        Err(error) => {
            drop(std::fs::remove_file(&part));
            return Err(failure(error));
        }
    };
    file.sync_all().with_context(named)?;
    std::fs::rename(&part, out).with_context(|| out.display().to_string())?;
    let folder = out.parent().filter(|folder| !folder.as_os_str().is_empty());
    File::open(folder.unwrap_or_else(|| Path::new(".")))
        .and_then(|folder| folder.sync_all())
        .with_context(|| out.display().to_string())?;
    Ok(exported)
}

pub(super) async fn import(
    file: &Path,
    replace: bool,
    check: bool,
    config: &Config,
) -> Result<Shown, Failure> {
    let told = Told::default();
    let progress = |what: &'static str, done, of| told.tell(what, done, of);
    let open = || Ok(BufReader::new(File::open(file)?));
    if check {
        let found = BookFiles::verify(open()?, &progress).map_err(failure)?;
        return Ok(shown(&found.header, found.digest, &[]));
    }
    let files = Stores::open(config)?.book_files();
    let now = Clock::from_env().now();
    let imported = files.import(open, replace, now, &progress).await;
    let imported = imported.map_err(failure)?;
    let before = match (imported.replaced, imported.resumed) {
        (_, true) => "an earlier try of this import, which is finished".to_owned(),
        (Some(head), false) => format!("the book up to entry {head}, from which the file goes on"),
        (None, false) => "nothing".to_owned(),
    };
    Ok(shown(
        &imported.header,
        imported.digest,
        &[("was there", before)],
    ))
}

fn shown(header: &Header, digest: Hash, more: &[(&'static str, String)]) -> Shown {
    let rows = header.total().to_string();
    let mut all = vec![
        ("broker", header.broker.to_string()),
        ("of", canonical::time(header.at)),
        ("head", header.head.to_string()),
        ("rows", rows.clone()),
        ("digest", digest.to_string()),
    ];
    all.extend(more.iter().cloned());
    Shown {
        text: facts(&all),
        json: json!({
            "broker_id": header.broker,
            "at": canonical::time(header.at),
            "head": { "seq": header.head.seq.to_string(), "hash": header.head.hash },
            "rows": rows,
            "digest": digest,
        }),
    }
}

pub(super) fn failure(error: BookFileError) -> Failure {
    match error {
        BookFileError::NoSuchBroker { id } => no_such(format!("broker {id}")),
        error => error.into(),
    }
}

/// Progress on a terminal, in one line that is written over.
#[derive(Default)]
struct Told(Mutex<Option<Instant>>);

impl Told {
    fn tell(&self, what: &str, done: u64, of: u64) {
        if !std::io::stderr().is_terminal() {
            return;
        }
        let Ok(mut last) = self.0.lock() else { return };
        let due = last.is_none_or(|last| last.elapsed() >= TELL_EVERY);
        if done == of {
            eprintln!("\r{done} of {of} rows {what}   ");
            *last = None;
        } else if due {
            eprint!("\r{done} of {of} rows {what}   ");
            *last = Some(Instant::now());
        }
    }
}
