//! A statement: what an account had, what was booked on it within a period, and what it has then.
//!
//! An entry is of the period in which it was booked, by its `booked_at`. The balance before the
//! period is the sum of all entries that were booked before, so statements of periods that follow on
//! one another fit together to the unit.

use chrono::{DateTime, Utc};

use super::{BooksError, BooksService};
use crate::domain::account::Side;
use crate::domain::book::AccountState;
use crate::domain::ids::{AccountId, BrokerId};
use crate::stores::book::{self, StoredEntry};

/// The most entries of one statement.
pub const MOST: u32 = 10_000;

/// A line: an entry, and the balance after it within the statement.
#[derive(Clone, Debug, PartialEq)]
pub struct StatementLine {
    pub stored: StoredEntry,
    pub balance: i128,
}

/// Minor units of the account's currency.
#[derive(Clone, Debug, PartialEq)]
pub struct Statement {
    pub account: AccountState,
    pub opening: i128,
    /// In the order of the chain.
    pub lines: Vec<StatementLine>,
    pub debits: i128,
    pub credits: i128,
    pub closing: i128,
}

impl BooksService {
    /// What was booked on an account from a time on and before another.
    ///
    /// # Errors
    /// A period that ends before it begins, or has more than [`MOST`] entries; no such account.
    pub async fn statement(
        &self,
        broker: BrokerId,
        id: AccountId,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Statement, BooksError> {
        if from >= to {
            return Err(BooksError::Unfit {
                field: "to",
                rule: "is later than from".to_owned(),
            });
        }
        let found = self
            .read(broker, move |read| {
                Box::pin(async move {
                    let Some((_, account)) = book::account(read, id).await? else {
                        return Ok(None);
                    };
                    let opening = book::booked_before(read, id, from).await?;
                    let entries = book::entries_within(read, id, (from, to), MOST + 1).await?;
                    Ok(Some((account, opening, entries)))
                })
            })
            .await?;
        let (account, opening, entries) = found.ok_or(BooksError::NoSuchAccount)?;
        if entries.len() > MOST as usize {
            return Err(BooksError::Unfit {
                field: "to",
                rule: format!("a statement has at most {MOST} entries: choose a shorter period"),
            });
        }
        Ok(stated(account, opening, entries))
    }
}

fn stated(account: AccountState, opening: i128, entries: Vec<StoredEntry>) -> Statement {
    let (mut balance, mut debits, mut credits) = (opening, 0, 0);
    let mut lines = Vec::with_capacity(entries.len());
    for stored in entries {
        let amount = i128::from(stored.entry.amount);
        match stored.entry.side {
            Side::Debit => {
                debits += amount;
                balance -= amount;
            }
            Side::Credit => {
                credits += amount;
                balance += amount;
            }
        }
        lines.push(StatementLine { stored, balance });
    }
    Statement {
        account,
        opening,
        lines,
        debits,
        credits,
        closing: balance,
    }
}
