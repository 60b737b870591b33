//! `book_limit`: how many active offline partners a book may have. It stands in the book, so that
//! whoever adds one counts and compares under one lock.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::feed;
use super::rows::HeadRow;
use crate::stores::StoreError;
use crate::stores::router::{BookRead, BookScope, BookSql, BookTx};

const LIMIT: BookSql = BookSql::new(
    "SELECT offline_partners, plan_number, refused_at FROM book_limit WHERE broker_id = ?",
);
const COUNT: BookSql = BookSql::new(
    "SELECT COUNT(*) FROM partner WHERE broker_id = ? AND kind = 'offline' AND state = 'active'",
);

/// What a change of a broker's plan bounds its book to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// Of the change; the changes of a broker are counted by the master.
    pub number: u64,
    /// Active offline partners; `None`: any number.
    pub most: Option<u32>,
}

/// A book's answer to a change of its bound, once for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoundSet {
    Set,
    /// More than the new bound are there, so the old one stays.
    Refused {
        there: u64,
    },
    /// A later change was answered already.
    Superseded,
}

/// The book has no room for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    pub most: u32,
    pub there: u64,
}

#[derive(FromRow)]
struct Row {
    offline_partners: Option<u32>,
    plan_number: u64,
    refused_at: Option<u64>,
}

/// Holds a book to a new bound. One `to_less` is refused where more are there; `before` is what the
/// book is held to where it has no bound of its own yet. Asked again, the answer is the first one.
///
/// # Errors
/// The book's database being away, busy or moving.
pub async fn bound_partners(
    scope: &BookScope,
    bound: Bound,
    before: Option<u32>,
    to_less: bool,
    now: DateTime<Utc>,
) -> Result<BoundSet, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let present = find(&mut tx).await?;
    let answered = present.as_ref().and_then(|row| answer(row, bound.number));
    if let Some(answer) = answered {
        tx.commit().await?;
        return Ok(answer);
    }
    let there = count(&mut tx).await?;
    let over = bound.most.is_some_and(|most| there > u64::from(most));
    let (most, refused_at) = if to_less && over {
        (
            present.map_or(before, |row| row.offline_partners),
            Some(there),
        )
    } else {
        (bound.most, None)
    };
    let number = bound.number;
    put(&mut tx, &head, Bound { number, most }, refused_at, now).await?;
    feed::changed(&mut tx).await?;
    tx.commit().await?;
    Ok(refused_at.map_or(BoundSet::Set, |there| BoundSet::Refused { there }))
}

/// Holds a book to a bound whatever it said before: for one that was taken in from a file, which
/// has the bound of another day.
///
/// # Errors
/// The book's database being away, busy or moving.
pub async fn rebound_partners(
    scope: &BookScope,
    bound: Bound,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    // One that has none yet gets it with its first partner.
    let present = find(&mut tx).await?;
    let other = present
        .is_some_and(|row| (row.offline_partners, row.plan_number) != (bound.most, bound.number));
    if other {
        put(&mut tx, &head, bound, None, now).await?;
        feed::changed(&mut tx).await?;
    }
    tx.commit().await
}

/// What a book has said to a change.
fn answer(row: &Row, number: u64) -> Option<BoundSet> {
    match row.plan_number.cmp(&number) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(
            row.refused_at
                .map_or(BoundSet::Set, |there| BoundSet::Refused { there }),
        ),
        std::cmp::Ordering::Greater => Some(BoundSet::Superseded),
    }
}

/// Active offline partners of a book.
///
/// # Errors
/// The database's.
pub async fn offline_partners(book: &mut BookRead) -> Result<u64, StoreError> {
    let query = book.sql(COUNT);
    let count: Option<(i64,)> = book.fetch_optional(query).await?;
    Ok(count.map_or(0, |(count,)| count.unsigned_abs()))
}

/// What keeps one more out, under the head's lock. A book that has no bound yet gets `bound`: any
/// change of the plan since that was read has left one.
pub(super) async fn room_for_one(
    tx: &mut BookTx,
    head: &HeadRow,
    bound: Bound,
    now: DateTime<Utc>,
) -> Result<Option<Full>, StoreError> {
    let most = if let Some(row) = find(tx).await? {
        row.offline_partners
    } else {
        put(tx, head, bound, None, now).await?;
        bound.most
    };
    let Some(most) = most else {
        return Ok(None);
    };
    let there = count(tx).await?;
    Ok((there >= u64::from(most)).then_some(Full { most, there }))
}

async fn find(tx: &mut BookTx) -> Result<Option<Row>, StoreError> {
    let query = tx.sql(LIMIT);
    tx.fetch_optional(query).await
}

async fn count(tx: &mut BookTx) -> Result<u64, StoreError> {
    let query = tx.sql(COUNT);
    let count: Option<(i64,)> = tx.fetch_optional(query).await?;
    Ok(count.map_or(0, |(count,)| count.unsigned_abs()))
}

async fn put(
    tx: &mut BookTx,
    head: &HeadRow,
    bound: Bound,
    refused_at: Option<u64>,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    tx.insert(
        "INSERT INTO book_limit (broker_id, offline_partners, plan_number, refused_at, updated_at, \
         change_seq)",
        &[bound],
        |row, bound| {
            row.push_bind(bound.most)
                .push_bind(bound.number)
                .push_bind(refused_at)
                .push_bind(now)
                .push_bind(head.change());
        },
        " ON DUPLICATE KEY UPDATE offline_partners = VALUES(offline_partners), \
         plan_number = VALUES(plan_number), refused_at = VALUES(refused_at), \
         updated_at = VALUES(updated_at), change_seq = VALUES(change_seq)",
    )
    .await
}
