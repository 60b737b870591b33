//! A client's exchange at a stated rate, in its broker's own book: what is sold is debited and what
//! is bought is credited, in one commit.

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::own_entry::{STEP, note_of, operation};
use super::{BooksError, BooksService};
use crate::domain::account::{AccountRef, Side};
use crate::domain::book::{Job, JobOutcome, Work};
use crate::domain::chain::{self, EntryKind, PlannedEntry};
use crate::domain::ids::{AccountId, BrokerId, SwapId};
use crate::domain::money::{Amount, Currency};
use crate::domain::swap::Rate;
use crate::stores::book::{self, Once, StoredEntry};
use crate::stores::master::idempotency::Intention;

/// Names the operation of a client's key; never changes.
const SWAP_NS: Uuid = Uuid::from_u128(0x8f21_b7c4_6d3e_5a90_b1e7_04c8_52da_937f);

/// An exchange as it is asked for.
#[derive(Clone, Debug)]
pub struct SwapInput {
    pub sold_account: AccountId,
    pub bought_account: AccountId,
    pub sold: Amount,
    pub from: Currency,
    pub to: Currency,
    pub rate: Rate,
    /// Stands beside the chain with the rate, and can be erased.
    pub note: Option<String>,
}

/// An exchange that was booked: its two entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Swap {
    pub id: SwapId,
    pub sold: StoredEntry,
    pub bought: StoredEntry,
}

impl Swap {
    /// The rate that was stated; nothing where it was erased.
    #[must_use]
    pub fn rate(&self) -> Option<&str> {
        self.private("rate")
    }

    #[must_use]
    pub fn note(&self) -> Option<&str> {
        self.private("note")
    }

    fn private(&self, name: &str) -> Option<&str> {
        self.sold.private.as_ref()?.get(name)?.as_str()
    }
}

impl BooksService {
    /// Exchanges what is on one account of an owner for another currency on another account of
    /// the same owner. A repeat of the same intention gives the same exchange, or the same refusal.
    ///
    /// # Errors
    /// Accounts of two owners or of other currencies than are stated; an amount that comes to
    /// nothing at the rate. A debit that the account can't bear is [`BooksError::Refused`].
    pub async fn swap(
        &self,
        broker: BrokerId,
        intention: &Intention,
        input: SwapInput,
        now: DateTime<Utc>,
    ) -> Result<Swap, BooksError> {
        let note = note_of(input.note.as_deref())?;
        let sold_from = self
            .swapped(broker, input.sold_account, &input.from)
            .await?;
        let bought_on = self
            .swapped(broker, input.bought_account, &input.to)
            .await?;
        let of = |account: &AccountRef| (account.owner_kind, account.owner_ref.clone());
        if of(&sold_from) != of(&bought_on) {
            return Err(invalid(
                "bought_account_id",
                "is an account of the same owner",
            ));
        }
        if sold_from.currency == bought_on.currency {
            return Err(invalid("bought_account_id", "is in another currency"));
        }
        let exchanged = input
            .rate
            .exchange(input.sold, &input.from, &input.to)
            .map_err(|error| BooksError::Unfit {
                field: "amount",
                rule: error.to_string(),
            })?;
        let saga_id = operation(SWAP_NS, broker, intention);
        let id = SwapId::derive(&[&saga_id.to_string()]);
        let entry = |leg, account, side, amount: Amount, kind| PlannedEntry {
            leg,
            account,
            side,
            amount: amount.minor(),
            kind,
        };
        let entries = vec![
            entry(0, sold_from, Side::Debit, input.sold, EntryKind::SwapSold),
            entry(
                1,
                bought_on,
                Side::Credit,
                exchanged.bought,
                EntryKind::SwapBought,
            ),
        ];
        let subject = id.to_string();
        let op_digest = chain::op_digest(saga_id, &subject, entries.iter().map(|e| (STEP, e)));
        let private = json!({
            "rate": input.rate.to_string(),
            "note": note,
            "salt": Uuid::new_v4().simple().to_string(),
        });
        let job = Job {
            saga_id,
            step: STEP,
            subject,
            work: Work::Book {
                entries,
                op_digest,
                consumes: None,
                private: Some(private),
            },
        };
        let intention = intention.clone();
        let once = self
            .write(broker, move |scope| {
                let (intention, job) = (intention.clone(), job.clone());
                async move { book::append_once(&scope, &intention, &job, now).await }
            })
            .await?;
        match once {
            Once::OtherRequest | Once::Outcome(JobOutcome::Tombstone) => Err(BooksError::KeyReused),
            Once::Outcome(JobOutcome::Refused(reason)) => Err(BooksError::Refused { reason }),
            Once::Outcome(JobOutcome::Done { .. }) => self.swap_of(broker, id).await,
        }
    }

    /// An account that takes part in a swap.
    async fn swapped(
        &self,
        broker: BrokerId,
        id: AccountId,
        currency: &Currency,
    ) -> Result<AccountRef, BooksError> {
        let state = self.account(broker, id).await?;
        if state.owner.currency != currency.code {
            return Err(BooksError::Unfit {
                field: "currency_code",
                rule: format!("the account {id} is in {}", state.owner.currency),
            });
        }
        Ok(state.owner)
    }

    /// An exchange.
    ///
    /// # Errors
    /// [`BooksError::NoSuchSwap`]; the book's database's.
    pub async fn swap_of(&self, broker: BrokerId, id: SwapId) -> Result<Swap, BooksError> {
        let mut found = self.swaps_of(broker, vec![id]).await?;
        found.pop().ok_or(BooksError::NoSuchSwap)
    }

    /// Exchanges, newest first; `before` is the seq of the sold entry of the last of the page
    /// before.
    ///
    /// # Errors
    /// The book's database's.
    pub async fn swaps(
        &self,
        broker: BrokerId,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<Swap>, BooksError> {
        let before = before.unwrap_or(u64::MAX);
        let kind = EntryKind::SwapSold;
        let sold = self
            .read(broker, move |read| {
                Box::pin(book::entries_of_kind(read, kind, before, limit))
            })
            .await?;
        let ids = sold
            .iter()
            .filter_map(|stored| stored.entry.subject.parse().ok());
        let mut found = self.swaps_of(broker, ids.collect()).await?;
        found.sort_by_key(|swap| std::cmp::Reverse(swap.sold.entry.seq));
        Ok(found)
    }

    async fn swaps_of(&self, broker: BrokerId, ids: Vec<SwapId>) -> Result<Vec<Swap>, BooksError> {
        let subjects: Vec<String> = ids.iter().map(ToString::to_string).collect();
        let entries = self
            .read(broker, move |read| {
                let subjects = subjects.clone();
                Box::pin(async move { book::entries_of(read, &subjects).await })
            })
            .await?;
        let mut found = Vec::with_capacity(ids.len());
        for id in ids {
            let subject = id.to_string();
            let of = |kind: EntryKind| {
                entries
                    .iter()
                    .find(|stored| stored.entry.subject == subject && stored.entry.kind == kind)
                    .cloned()
            };
            if let (Some(sold), Some(bought)) = (of(EntryKind::SwapSold), of(EntryKind::SwapBought))
            {
                found.push(Swap { id, sold, bought });
            }
        }
        Ok(found)
    }
}

const fn invalid(field: &'static str, rule: &'static str) -> BooksError {
    BooksError::Invalid { field, rule }
}
