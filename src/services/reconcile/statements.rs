//! Invariant 5, the providers' part: their statements say the same as we do.
//!
//! A statement is taken in as a CSV file, with a header and in any order of columns. What it says is
//! kept by the file, so that a review shows it and later runs compare it again; the same file once
//! more changes nothing.

use std::collections::BTreeMap;
use std::io::Read;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use uuid::Uuid;

use super::{
    BETWEEN_LOOKS, Finding, InvariantReport, LOOKS, PAGE, Progress, Reconcile, ReconcileError,
};
use crate::domain::money::{Amount, CurrencyCode};
use crate::domain::payment::statement::{Entry, Line, LineStatus, differences};
use crate::domain::payment::{PspName, is_a_time};
use crate::domain::text;
use crate::stores::pm::{self, statements};

/// Names a file by what is in it; never changes.
const STATEMENT_NS: Uuid = Uuid::from_u128(0x2d7c_94e1_5a30_5f6b_8c1e_7b93_40d2_e5a8);
/// Columns that a statement has.
const NEEDED: [&str; 6] = ["provider", "uid", "currency", "amount", "paid_at", "status"];
/// Lines that are taken in by one statement.
const LINES_AT_ONCE: usize = 500;
/// Of a provider's names for things.
const MAX_NAME: usize = 128;

/// Why a file is no statement. Nothing of it is taken in.
#[derive(Debug, thiserror::Error)]
pub enum StatementError {
    #[error("line {line}: {what}")]
    Line { line: u64, what: String },
    #[error("it is no statement: its first line lacks the columns {0}")]
    Columns(String),
    #[error("it is no CSV: {0}")]
    Csv(#[from] csv::Error),
    #[error("it can't be read: {0}")]
    Read(#[from] std::io::Error),
    #[error(transparent)]
    Reconcile(#[from] ReconcileError),
}

impl From<crate::stores::StoreError> for StatementError {
    fn from(error: crate::stores::StoreError) -> Self {
        Self::Reconcile(error.into())
    }
}

/// A line as it stands in the file; other columns say nothing to us.
#[derive(Debug, Deserialize)]
struct Record {
    provider: PspName,
    uid: String,
    #[serde(default)]
    response_id: String,
    currency: CurrencyCode,
    /// Major units.
    amount: String,
    paid_at: DateTime<Utc>,
    status: LineStatus,
}

impl Reconcile {
    /// Takes a statement in, all of it or nothing; gives how many lines of each provider there were.
    ///
    /// # Errors
    /// See [`StatementError`].
    pub async fn take_statement(
        &self,
        mut file: impl Read + Send,
    ) -> Result<BTreeMap<PspName, usize>, StatementError> {
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let (import, now) = (Uuid::new_v5(&STATEMENT_NS, &text), self.systems.clock.now());
        let mut counts = BTreeMap::new();
        let mut waiting: BTreeMap<PspName, Vec<Entry>> = BTreeMap::new();
        let mut tx = pm::begin(&self.systems.pm).await?;
        let mut reader = csv::ReaderBuilder::new()
            .trim(csv::Trim::All)
            .from_reader(text.as_slice());
        let header = reader.headers()?.clone();
        let missing = NEEDED
            .iter()
            .filter(|name| !header.iter().any(|has| has == **name));
        let missing: Vec<&str> = missing.copied().collect();
        if !missing.is_empty() {
            return Err(StatementError::Columns(missing.join(", ")));
        }
        for record in reader.records() {
            let record = record?;
            let at = record.position().map_or(0, csv::Position::line);
            let record: Record = record.deserialize(Some(&header))?;
            let psp = record.provider;
            let line = self
                .line(record)
                .await?
                .map_err(|what| StatementError::Line { line: at, what })?;
            *counts.entry(psp).or_default() += 1;
            let entries = waiting.entry(psp).or_default();
            entries.push(Entry {
                import,
                at,
                imported_at: now,
                line,
            });
            if entries.len() == LINES_AT_ONCE {
                statements::put(&mut tx, psp, entries).await?;
                entries.clear();
            }
        }
        for (psp, entries) in &waiting {
            if !entries.is_empty() {
                statements::put(&mut tx, *psp, entries).await?;
            }
        }
        pm::commit(tx).await?;
        Ok(counts)
    }

    /// A line in our terms; the inner error says what of it can't be.
    async fn line(&self, record: Record) -> Result<Result<Line, String>, ReconcileError> {
        let checked = |name: &str, value: &str| {
            text::line(value, MAX_NAME).map_err(|error| format!("{name} {error}"))
        };
        let mut names = checked("uid", &record.uid);
        if !record.response_id.is_empty() {
            names = names.and(checked("response_id", &record.response_id));
        }
        if let Err(what) = names {
            return Ok(Err(what));
        }
        if !is_a_time(record.paid_at) {
            return Ok(Err(format!(
                "paid_at {} is no time of a payment",
                record.paid_at
            )));
        }
        let Some(currency) = self.currencies.get(&record.currency).await? else {
            return Ok(Err(format!("currency {} is none of ours", record.currency)));
        };
        let amount = match Amount::parse(&record.amount, &currency) {
            Ok(amount) => amount.minor(),
            Err(error) => return Ok(Err(format!("amount {error}"))),
        };
        Ok(Ok(Line {
            uid: record.uid,
            response_id: record.response_id,
            currency: currency.code,
            amount,
            status: record.status,
            paid_at: record.paid_at,
        }))
    }

    /// Compares all that was taken in with what we say, and the other way round.
    ///
    /// # Errors
    /// The payment manager's database's.
    pub async fn statements(
        &self,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<InvariantReport, ReconcileError> {
        let mut report = InvariantReport::new(5, "the providers' statements say the same");
        for psp in PspName::ALL {
            self.listed(*psp, &mut report, progress).await?;
            self.unlisted(*psp, &mut report).await?;
        }
        Ok(report)
    }

    async fn listed(
        &self,
        psp: PspName,
        report: &mut InvariantReport,
        progress: &(dyn Fn(Progress) + Sync),
    ) -> Result<(), ReconcileError> {
        let mut last = String::new();
        loop {
            let uids = statements::uids(&self.systems.pm, psp, &last, PAGE).await?;
            let Some(end) = uids.last() else {
                return Ok(());
            };
            last.clone_from(end);
            let mut wrong = self.wrong_lines(psp, &uids).await?;
            // A payment may be under way.
            for _ in 1..LOOKS {
                if wrong.is_empty() {
                    break;
                }
                tokio::time::sleep(BETWEEN_LOOKS).await;
                let again: Vec<String> = wrong.keys().cloned().collect();
                let next = self.wrong_lines(psp, &again).await?;
                wrong.retain(|uid, what| next.get(uid) == Some(what));
            }
            for (uid, what) in wrong {
                for what in what {
                    report.broken(Finding::new(format!("{psp} {uid}"), what));
                }
            }
            for _ in &uids {
                report.count(progress);
            }
        }
    }

    async fn wrong_lines(
        &self,
        psp: PspName,
        uids: &[String],
    ) -> Result<BTreeMap<String, Vec<String>>, ReconcileError> {
        let lines = statements::of(&self.systems.pm, psp, uids).await?;
        let ours = statements::ours(&self.systems.pm, psp, uids).await?;
        let mut wrong = BTreeMap::new();
        for (uid, lines) in lines {
            let known = ours.get(&uid);
            let mut what = differences(&lines, known.map(|(_, ours)| ours));
            if what.is_empty() {
                continue;
            }
            if let Some((intent, _)) = known {
                for what in &mut what {
                    *what = format!("intent {intent}: {what}");
                }
            }
            wrong.insert(uid, what);
        }
        Ok(wrong)
    }

    async fn unlisted(
        &self,
        psp: PspName,
        report: &mut InvariantReport,
    ) -> Result<(), ReconcileError> {
        let mut last = Uuid::nil();
        loop {
            let found = statements::unlisted(&self.systems.pm, psp, last, PAGE).await?;
            let Some(end) = found.last() else {
                return Ok(());
            };
            last = *end;
            for intent in found {
                let what = format!("we have it as paid, and no statement of {psp} has it");
                report.broken(Finding::new(format!("intent {intent}"), what));
            }
        }
    }
}
