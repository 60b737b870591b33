//! `idempotency_key` of a book: which intention of which client did what here.

use chrono::{DateTime, Utc};

use crate::stores::StoreError;
use crate::stores::master::idempotency::Intention;
use crate::stores::router::{BookSql, BookTx};

const FIND: BookSql = BookSql::new(
    "SELECT fingerprint FROM idempotency_key WHERE broker_id = ? AND client = ? AND idempotency_key = ?",
);
const INSERT: BookSql = BookSql::new(
    "INSERT INTO idempotency_key (broker_id, client, idempotency_key, fingerprint, subject, created_at, change_seq) \
     VALUES (?, ?, ?, ?, ?, ?, ?)",
);

/// What is known of an intention.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Claimed {
    /// Nothing until now.
    Now,
    /// It was here before.
    Before,
    /// The key stood for something else.
    Other,
}

/// Records an intention for `subject` as part of the write `change`, or finds it. Under the head's
/// lock, so that nobody else claims it meanwhile.
pub(super) async fn claim(
    tx: &mut BookTx,
    intention: &Intention,
    subject: String,
    change: u64,
    now: DateTime<Utc>,
) -> Result<Claimed, StoreError> {
    let query = tx
        .sql(FIND)
        .bind(intention.client.clone())
        .bind(intention.key.clone());
    match tx.fetch_optional::<(Vec<u8>,)>(query).await? {
        Some((fingerprint,)) if fingerprint == intention.fingerprint.0 => Ok(Claimed::Before),
        Some(_) => Ok(Claimed::Other),
        None => {
            let query = tx
                .sql(INSERT)
                .bind(intention.client.clone())
                .bind(intention.key.clone())
                .bind(intention.fingerprint.0.to_vec())
                .bind(subject)
                .bind(now)
                .bind(change);
            tx.execute(query).await?;
            Ok(Claimed::Now)
        }
    }
}
