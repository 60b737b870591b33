//! `pm.psp_statement_entry`: what providers' statements say.

use std::collections::{BTreeMap, HashMap};

use chrono::{DateTime, Utc};
use sqlx::{FromRow, PgPool, Postgres, QueryBuilder};
use uuid::Uuid;

use super::{PmTx, failed, kept};
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::statement::{Entry, Line, LineStatus, Ours, payments};
use crate::domain::payment::{IntentKind, IntentStatus, PspName, PspState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// Takes lines of a file in; the same file again is as it was, and counts as the latest.
///
/// # Errors
/// The database's.
pub async fn put(tx: &mut PmTx, psp: PspName, entries: &[Entry]) -> Result<(), StoreError> {
    let mut builder = QueryBuilder::<Postgres>::new(
        "INSERT INTO pm.psp_statement_entry (import_id, line_no, psp_name, uid, response_id,
             currency_code, amount, status, paid_at, imported_at) ",
    );
    builder.push_values(entries, |mut row, entry| {
        let line = &entry.line;
        row.push_bind(entry.import)
            .push_bind(kept(entry.at))
            .push_bind(psp.as_str())
            .push_bind(&line.uid)
            .push_bind(&line.response_id)
            .push_bind(line.currency.as_str())
            .push_bind(kept(line.amount))
            .push_bind(line.status.as_str())
            .push_bind(line.paid_at)
            .push_bind(entry.imported_at);
    });
    builder
        .push(" ON CONFLICT (import_id, line_no) DO UPDATE SET imported_at = EXCLUDED.imported_at");
    builder.build().execute(&mut **tx).await.map_err(failed)?;
    Ok(())
}

#[derive(FromRow)]
struct Row {
    import_id: Uuid,
    line_no: i64,
    uid: String,
    response_id: String,
    currency_code: String,
    amount: i64,
    status: String,
    paid_at: DateTime<Utc>,
    imported_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "import_id, line_no, uid, response_id, currency_code, amount, status, paid_at, imported_at"
    };
}

impl Row {
    fn read(self) -> Result<Entry, StoreError> {
        let bad = |column: &str| corrupt("psp_statement_entry", format!("{}: {column}", self.uid));
        Ok(Entry {
            import: self.import_id,
            at: self.line_no.unsigned_abs(),
            imported_at: self.imported_at,
            line: Line {
                currency: self
                    .currency_code
                    .parse()
                    .map_err(|_| bad("currency_code"))?,
                amount: self.amount.try_into().map_err(|_| bad("amount"))?,
                status: LineStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
                paid_at: self.paid_at,
                uid: self.uid.clone(),
                response_id: self.response_id.clone(),
            },
        })
    }
}

/// Uids of a provider's statements after one, in their order.
///
/// # Errors
/// The database's.
pub async fn uids(
    pm: &PgPool,
    psp: PspName,
    after: &str,
    limit: u32,
) -> Result<Vec<String>, StoreError> {
    sqlx::query_scalar(
        "SELECT DISTINCT uid FROM pm.psp_statement_entry
         WHERE psp_name = $1 AND uid > $2 ORDER BY uid LIMIT $3",
    )
    .bind(psp.as_str())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)
}

/// The payments that a provider's statements tell of under uids, by uid.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn of(
    pm: &PgPool,
    psp: PspName,
    uids: &[String],
) -> Result<BTreeMap<String, Vec<Line>>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_statement_entry WHERE psp_name = $1 AND uid = ANY($2)"
    ))
    .bind(psp.as_str())
    .bind(uids)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let mut all: BTreeMap<String, Vec<Entry>> = BTreeMap::new();
    for row in rows {
        let entry = row.read()?;
        all.entry(entry.line.uid.clone()).or_default().push(entry);
    }
    let payments = |(uid, entries)| (uid, payments(entries));
    Ok(all.into_iter().map(payments).collect())
}

/// The payments that a provider's statements tell of under a uid.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn under(tx: &mut PmTx, psp: PspName, uid: &str) -> Result<Vec<Line>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_statement_entry WHERE psp_name = $1 AND uid = $2"
    ))
    .bind(psp.as_str())
    .bind(uid)
    .fetch_all(&mut **tx)
    .await
    .map_err(failed)?;
    let entries: Result<Vec<Entry>, _> = rows.into_iter().map(Row::read).collect();
    Ok(payments(entries?))
}

/// What a provider's statements say of a payment by its own name, under whatever uid.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn named(tx: &mut PmTx, psp: PspName, payment: &str) -> Result<Vec<Line>, StoreError> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM pm.psp_statement_entry WHERE psp_name = $1 AND response_id = $2 LIMIT 100"
    ))
    .bind(psp.as_str())
    .bind(payment)
    .fetch_all(&mut **tx)
    .await
    .map_err(failed)?;
    let line = |row: Row| row.read().map(|entry| entry.line);
    rows.into_iter().map(line).collect()
}

/// What we say of the payments of uids, by uid: of payouts the confirmation's, of top-ups the
/// lookup's.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn ours(
    pm: &PgPool,
    psp: PspName,
    uids: &[String],
) -> Result<HashMap<String, (Uuid, Ours)>, StoreError> {
    #[derive(FromRow)]
    struct Found {
        id: Uuid,
        kind: String,
        status: String,
        state: String,
        query_rq_uid: Option<String>,
        confirm_rq_uid: Option<String>,
        response_id: Option<String>,
        currency_code: String,
        amount: i64,
    }
    let rows: Vec<Found> = sqlx::query_as(
        "SELECT i.id, i.kind, i.status, t.state, t.query_rq_uid, t.confirm_rq_uid, t.response_id,
             i.currency_code, i.amount
         FROM pm.psp_tx_map t JOIN pm.intent i ON i.id = t.intent_id
         WHERE t.psp_name = $1 AND (t.confirm_rq_uid = ANY($2) OR t.query_rq_uid = ANY($2))",
    )
    .bind(psp.as_str())
    .bind(uids)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let ids: Vec<Uuid> = rows.iter().map(|row| row.id).collect();
    let mut incoming = incoming_of(pm, &ids).await?;
    let mut all = HashMap::new();
    for row in rows {
        let bad = |column: &str| corrupt("intent", format!("{}: {column}", row.id));
        let kind = IntentKind::parse(&row.kind).ok_or_else(|| bad("kind"))?;
        let uid = match kind {
            IntentKind::Payout => row.confirm_rq_uid,
            IntentKind::TopUp => row.query_rq_uid,
        };
        let ours = Ours {
            kind,
            status: IntentStatus::parse(&row.status).ok_or_else(|| bad("status"))?,
            psp: PspState::parse(&row.state).ok_or_else(|| bad("state"))?,
            currency: row
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            amount: row.amount.try_into().map_err(|_| bad("amount"))?,
            response_id: row.response_id,
            incoming: incoming.remove(&row.id).unwrap_or_default(),
        };
        if let Some(uid) = uid {
            all.insert(uid, (row.id, ours));
        }
    }
    Ok(all)
}

type IncomingOf = HashMap<Uuid, BTreeMap<String, IncomingStatus>>;

async fn incoming_of(pm: &PgPool, intents: &[Uuid]) -> Result<IncomingOf, StoreError> {
    let rows: Vec<(Uuid, String, String)> = sqlx::query_as(
        "SELECT intent_id, payment_id, status FROM pm.psp_incoming WHERE intent_id = ANY($1)",
    )
    .bind(intents)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let mut all: IncomingOf = HashMap::new();
    for (intent, payment, status) in rows {
        let status = IncomingStatus::parse(&status);
        let status = status.ok_or_else(|| corrupt("psp_incoming", format!("{payment}: status")))?;
        all.entry(intent).or_default().insert(payment, status);
    }
    Ok(all)
}

/// Payments that we have as made wholly within what a provider's statements cover, and that none of
/// its lines has; after one, in the order of their ids.
///
/// # Errors
/// The database's.
pub async fn unlisted(
    pm: &PgPool,
    psp: PspName,
    after: Uuid,
    limit: u32,
) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar(
        "SELECT t.intent_id FROM pm.psp_tx_map t
         JOIN pm.intent i ON i.id = t.intent_id
         JOIN (SELECT min(paid_at) AS since, max(paid_at) AS until
               FROM pm.psp_statement_entry WHERE psp_name = $1) s
           ON t.created_at >= s.since AND t.updated_at <= s.until
         WHERE t.psp_name = $1 AND t.state = 'CONFIRMED' AND t.intent_id > $2
           AND NOT EXISTS (
               SELECT 1 FROM pm.psp_statement_entry l
               WHERE l.psp_name = $1
                 AND l.uid = CASE i.kind WHEN 'payout' THEN t.confirm_rq_uid
                                         ELSE t.query_rq_uid END)
         ORDER BY t.intent_id LIMIT $3",
    )
    .bind(psp.as_str())
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(pm)
    .await
    .map_err(failed)
}
