//! The group append: many jobs for one book under one lock of the chain's head, in one commit.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use serde_json::json;
use uuid::Uuid;

use super::intention::{Claimed, claim};
use super::rows::{
    AccountColumns, EntryRow, HeadRow, ReservationColumns, StepRow, account_columns, entry_columns,
    hash, reservation_columns,
};
use crate::domain::account::{AccountRef, HousePurpose};
use crate::domain::book::{Job, JobOutcome, Page, Work};
use crate::domain::canonical::Hash;
use crate::domain::ids::AccountId;
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::idempotency::Intention;
use crate::stores::router::{BookScope, BookSql, BookTx};

const STEPS: BookSql = BookSql::new(
    "SELECT saga_id, step, direction, outcome, reason FROM saga_step WHERE broker_id = ? AND saga_id IN ({})",
);
const ENTRIES: BookSql = BookSql::new(concat!(
    "SELECT ",
    entry_columns!(),
    " FROM transaction WHERE broker_id = ? AND saga_id IN ({}) ORDER BY seq"
));
const ACCOUNTS: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND account_id IN ({})"
));
const RESERVATIONS: BookSql = BookSql::new(concat!(
    "SELECT ",
    reservation_columns!(),
    " FROM reservation WHERE broker_id = ? AND saga_id IN ({})"
));
/// Applies jobs in order and answers each. Either all that they did is committed, or nothing.
///
/// # Errors
/// The book's database being away, busy or moving; after an error nothing is known of the
/// commit, and the same jobs may be given again.
pub async fn append(
    scope: &BookScope,
    jobs: &[Job],
    now: DateTime<Utc>,
) -> Result<Vec<JobOutcome>, StoreError> {
    // Nearly always nothing is known of a job yet. Then its outcome's row is new, which its key
    // proves at least as well as looking for it first.
    if jobs.iter().all(Job::leaves_an_outcome) {
        match apply(scope, jobs, Earlier::None, now).await {
            Err(error) if error.is_duplicate() => {}
            outcomes => return outcomes,
        }
    }
    apply(scope, jobs, Earlier::Read, now).await
}

/// Outcomes of the same jobs from before.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Earlier {
    /// None are expected: one that is there after all fails the insert of the new one.
    None,
    Read,
}

async fn apply(
    scope: &BookScope,
    jobs: &[Job],
    earlier: Earlier,
    now: DateTime<Utc>,
) -> Result<Vec<JobOutcome>, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let mut page = load(&mut tx, &head, jobs, earlier).await?;
    let outcomes = jobs.iter().map(|job| page.apply(job, now)).collect();
    match write(&mut tx, &page, &head, now).await {
        Err(error) if error.is_duplicate() => {
            tx.rollback().await?;
            return Err(error);
        }
        written => written?,
    }
    failpoint::at("book.commit.before");
    tx.commit().await?;
    failpoint::at("book.commit.after");
    Ok(outcomes)
}

/// What became of an operation of the book's own.
#[derive(Clone, Debug, PartialEq)]
pub enum Once {
    /// Now or before.
    Outcome(JobOutcome),
    /// The client's key stood for something else.
    OtherRequest,
}

/// Applies the one job of a client's intention, which is recorded in the same transaction. A
/// repeat gets the first outcome, a refusal too.
///
/// # Errors
/// As [`append`].
pub async fn append_once(
    scope: &BookScope,
    intention: &Intention,
    job: &Job,
    now: DateTime<Utc>,
) -> Result<Once, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let mut page = load(&mut tx, &head, std::slice::from_ref(job), Earlier::Read).await?;
    let subject = job.saga_id.to_string();
    let claimed = claim(&mut tx, intention, subject, head.change(), now).await?;
    if claimed == Claimed::Other {
        tx.commit().await?;
        return Ok(Once::OtherRequest);
    }
    let outcome = page.apply(job, now);
    if page.changes.is_empty() {
        if claimed == Claimed::Now {
            write_head(&mut tx, &page, &head, head.feed_position).await?;
        }
    } else {
        write(&mut tx, &page, &head, now).await?;
    }
    failpoint::at("book.once.commit.before");
    tx.commit().await?;
    failpoint::at("book.once.commit.after");
    Ok(Once::Outcome(outcome))
}

async fn load(
    tx: &mut BookTx,
    head: &HeadRow,
    jobs: &[Job],
    earlier: Earlier,
) -> Result<Page, StoreError> {
    let mut page = Page {
        broker: tx.broker(),
        head_seq: head.seq,
        head_hash: Some(hash(&head.tx_hash).ok_or_else(|| corrupt("chain_head", "tx_hash"))?),
        ..Page::default()
    };
    if earlier == Earlier::Read {
        load_earlier(tx, &mut page, jobs).await?;
    }
    load_reservations(tx, &mut page, jobs).await?;
    load_accounts(tx, &mut page, jobs).await?;
    Ok(page)
}

/// What earlier tries of these jobs came to, and the entries that they have booked.
async fn load_earlier(tx: &mut BookTx, page: &mut Page, jobs: &[Job]) -> Result<(), StoreError> {
    let sagas: BTreeSet<Uuid> = jobs.iter().map(|job| job.saga_id).collect();
    let sagas: Vec<Uuid> = sagas.into_iter().collect();
    for row in tx.fetch_all::<StepRow>(tx.sql_list(STEPS, &sagas)).await? {
        let (key, record) = row.read()?;
        page.steps.insert(key, record);
    }
    let known: BTreeSet<Uuid> = page.steps.keys().map(|(saga_id, _, _)| *saga_id).collect();
    if known.is_empty() {
        return Ok(());
    }
    let known: Vec<Uuid> = known.into_iter().collect();
    for row in tx
        .fetch_all::<EntryRow>(tx.sql_list(ENTRIES, &known))
        .await?
    {
        let stored = row.read()?;
        page.entries
            .entry((stored.entry.saga_id, stored.entry.step))
            .or_default()
            .push((stored.entry, stored.tx_hash));
    }
    Ok(())
}

async fn load_reservations(
    tx: &mut BookTx,
    page: &mut Page,
    jobs: &[Job],
) -> Result<(), StoreError> {
    let sagas: BTreeSet<Uuid> = jobs.iter().filter_map(Job::reservations).collect();
    if sagas.is_empty() {
        return Ok(());
    }
    let sagas: Vec<Uuid> = sagas.into_iter().collect();
    let rows = tx
        .fetch_all::<ReservationColumns>(tx.sql_list(RESERVATIONS, &sagas))
        .await?;
    for row in rows {
        let (key, reservation) = row.read()?;
        page.reservations.insert(key, reservation);
    }
    Ok(())
}

/// Every account that the jobs can touch, each with the suspense account that its credits would
/// be diverted to.
async fn load_accounts(tx: &mut BookTx, page: &mut Page, jobs: &[Job]) -> Result<(), StoreError> {
    let named = jobs
        .iter()
        .flat_map(Job::accounts)
        .map(|account| account.id());
    let reserved = page
        .reservations
        .values()
        .map(|reservation| reservation.account);
    let mut wanted: BTreeSet<AccountId> = named.chain(reserved).collect();
    if jobs
        .iter()
        .any(|job| matches!(job.work, Work::UndoBook { .. }))
    {
        let booked = page.entries.values().flatten();
        for (entry, _) in booked {
            let suspense = AccountRef::house(page.broker, HousePurpose::Suspense, &entry.currency);
            wanted.extend([entry.account, suspense.id()]);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let ids: Vec<u64> = wanted.into_iter().map(AccountId::bits).collect();
    for row in tx
        .fetch_all::<AccountColumns>(tx.sql_list(ACCOUNTS, &ids))
        .await?
    {
        let (id, state) = row.read(page.broker)?;
        page.accounts.insert(id, state);
    }
    Ok(())
}

async fn write(
    tx: &mut BookTx,
    page: &Page,
    head: &HeadRow,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let changes = &page.changes;
    if changes.is_empty() {
        return Ok(());
    }
    let change = head.change();
    tx.insert(
        "INSERT INTO saga_step (broker_id, saga_id, step, direction, outcome, reason, created_at, \
         change_seq)",
        &changes.steps,
        |row, ((saga_id, step, direction), record)| {
            row.push_bind(*saga_id)
                .push_bind(*step)
                .push_bind(direction.as_str())
                .push_bind(record.outcome.as_str())
                .push_bind(record.reason.clone())
                .push_bind(now)
                .push_bind(change);
        },
        "",
    )
    .await?;
    write_accounts(tx, page, change).await?;
    write_reservations(tx, page, change, now).await?;
    write_entries(tx, page).await?;
    let feed = write_feed(tx, page, head.feed_position, now).await?;
    write_head(tx, page, head, feed).await
}

async fn write_head(
    tx: &mut BookTx,
    page: &Page,
    head: &HeadRow,
    feed: u64,
) -> Result<(), StoreError> {
    let head_hash = page.head_hash.map_or_else(Vec::new, |hash| hash.0.to_vec());
    tx.insert(
        "INSERT INTO chain_head (broker_id, seq, tx_hash, feed_position, change_seq)",
        &[(page.head_seq, head_hash)],
        |row, (seq, hash)| {
            row.push_bind(*seq)
                .push_bind(hash.clone())
                .push_bind(feed)
                .push_bind(head.change());
        },
        " ON DUPLICATE KEY UPDATE seq = VALUES(seq), tx_hash = VALUES(tx_hash), \
         feed_position = VALUES(feed_position), change_seq = VALUES(change_seq)",
    )
    .await
}

/// New accounts by a plain insert, so that one which is there after all is an error and never
/// overwritten; known ones by their new sums.
async fn write_accounts(tx: &mut BookTx, page: &Page, change: u64) -> Result<(), StoreError> {
    let changes = &page.changes;
    let (opened, known): (Vec<_>, Vec<_>) = changes
        .accounts
        .iter()
        .filter_map(|id| page.accounts.get(id).map(|state| (*id, state)))
        .partition(|(id, _)| changes.opened.contains(id));
    for (accounts, on_duplicate) in [
        (opened, ""),
        (
            known,
            " ON DUPLICATE KEY UPDATE balance = VALUES(balance), reserved = VALUES(reserved), \
             change_seq = VALUES(change_seq)",
        ),
    ] {
        tx.insert(
            "INSERT INTO account (broker_id, account_id, owner_kind, owner_ref, currency_code, state, \
             balance, reserved, min_balance, created_at, change_seq)",
            &accounts,
            |row, (id, state)| {
                row.push_bind(id.bits())
                    .push_bind(state.owner.owner_kind.as_str())
                    .push_bind(state.owner.owner_ref.clone())
                    .push_bind(state.owner.currency.to_string())
                    .push_bind(if state.open { "open" } else { "closed" })
                    .push_bind(state.balance.balance)
                    .push_bind(state.balance.reserved)
                    .push_bind(state.balance.min_balance)
                    .push_bind(state.created_at)
                    .push_bind(change);
            },
            on_duplicate,
        )
        .await?;
    }
    Ok(())
}

async fn write_reservations(
    tx: &mut BookTx,
    page: &Page,
    change: u64,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    let changed: Vec<_> = page
        .changes
        .reservations
        .iter()
        .filter_map(|key| {
            page.reservations
                .get(key)
                .map(|reservation| (*key, reservation))
        })
        .collect();
    tx.insert(
        "INSERT INTO reservation (broker_id, saga_id, leg, account_id, subject, amount, state, \
         created_at, updated_at, change_seq)",
        &changed,
        |row, ((saga_id, leg), reservation)| {
            row.push_bind(*saga_id)
                .push_bind(*leg)
                .push_bind(reservation.account.bits())
                .push_bind(reservation.subject.clone())
                .push_bind(reservation.amount)
                .push_bind(reservation.state.as_str())
                .push_bind(reservation.created_at)
                .push_bind(now)
                .push_bind(change);
        },
        " ON DUPLICATE KEY UPDATE state = VALUES(state), updated_at = VALUES(updated_at), \
         change_seq = VALUES(change_seq)",
    )
    .await
}

async fn write_entries(tx: &mut BookTx, page: &Page) -> Result<(), StoreError> {
    let bytes = |hash: Hash| hash.0.to_vec();
    tx.insert(
        concat!("INSERT INTO transaction (", entry_columns!(), ")"),
        &page.changes.entries,
        |row, (entry, tx_hash, private)| {
            row.push_bind(entry.seq)
                .push_bind(entry.v)
                .push_bind(entry.saga_id)
                .push_bind(entry.step)
                .push_bind(entry.leg)
                .push_bind(entry.kind.as_str())
                .push_bind(entry.subject.clone())
                .push_bind(entry.account.bits())
                .push_bind(entry.diverted_from.map(AccountId::bits))
                .push_bind(entry.side.as_str())
                .push_bind(entry.amount)
                .push_bind(entry.currency.to_string())
                .push_bind(entry.balance)
                .push_bind(bytes(entry.op_digest))
                .push_bind(entry.reverses_seq)
                .push_bind(entry.private_digest.map(bytes))
                .push_bind(private.clone())
                .push_bind(entry.booked_at)
                .push_bind(bytes(entry.prev_hash))
                .push_bind(bytes(*tx_hash));
        },
        "",
    )
    .await
}

/// What people want to know beyond the entries themselves, which are a feed of their own by seq.
/// Gives the feed's new position.
async fn write_feed(
    tx: &mut BookTx,
    page: &Page,
    position: u64,
    now: DateTime<Utc>,
) -> Result<u64, StoreError> {
    let opened = page.changes.opened.iter().map(|id| {
        let owner = page.accounts.get(id).map(|state| &state.owner);
        ("account.opened", id.to_string(), json!({ "owner": owner }))
    });
    let diverted = page.changes.diverted.iter().map(|(seq, meant_for)| {
        let facts = json!({ "seq": seq.to_string(), "meant_for": meant_for });
        ("credit.diverted", meant_for.to_string(), facts)
    });
    let events: Vec<_> = (position + 1..).zip(opened.chain(diverted)).collect();
    tx.insert(
        "INSERT INTO feed_event (broker_id, position, kind, subject, payload, created_at)",
        &events,
        |row, (position, (kind, subject, payload))| {
            row.push_bind(*position)
                .push_bind(*kind)
                .push_bind(subject.clone())
                .push_bind(payload.clone())
                .push_bind(now);
        },
        "",
    )
    .await?;
    Ok(events.last().map_or(position, |(position, _)| *position))
}
