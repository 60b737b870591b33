//! What reconciliation reads of payments, a page of intents at a time.

use std::collections::{BTreeMap, HashMap};

use sqlx::{FromRow, PgPool};
use uuid::Uuid;

use super::{PmTx, failed};
use crate::domain::payment::{OutboxAction, PspState};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// Ids of intents after one, in their order.
///
/// # Errors
/// The database's.
pub async fn page(pm: &PgPool, after: Uuid, limit: u32) -> Result<Vec<Uuid>, StoreError> {
    sqlx::query_scalar("SELECT id FROM pm.intent WHERE id > $1 ORDER BY id LIMIT $2")
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(pm)
        .await
        .map_err(failed)
}

/// The provider's side of intents.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn states(pm: &PgPool, ids: &[Uuid]) -> Result<HashMap<Uuid, PspState>, StoreError> {
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT intent_id, state FROM pm.psp_tx_map WHERE intent_id = ANY($1)")
            .bind(ids)
            .fetch_all(pm)
            .await
            .map_err(failed)?;
    let read = |(id, state): (Uuid, String)| {
        let state = PspState::parse(&state);
        let state = state.ok_or_else(|| corrupt("psp_tx_map", format!("{id}: state")))?;
        Ok((id, state))
    };
    rows.into_iter().map(read).collect()
}

/// What the ledger is yet to be told of intents.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn pending(
    pm: &PgPool,
    ids: &[Uuid],
) -> Result<HashMap<Uuid, Vec<OutboxAction>>, StoreError> {
    let rows: Vec<(Uuid, String)> = sqlx::query_as(
        "SELECT intent_id, action FROM pm.outbox_event
         WHERE intent_id = ANY($1) AND status = 'pending'",
    )
    .bind(ids)
    .fetch_all(pm)
    .await
    .map_err(failed)?;
    let mut all: HashMap<Uuid, Vec<OutboxAction>> = HashMap::new();
    for (id, action) in rows {
        let action = OutboxAction::parse(&action);
        let action = action.ok_or_else(|| corrupt("outbox_event", format!("{id}: action")))?;
        all.entry(id).or_default().push(action);
    }
    Ok(all)
}

/// Where rows name an intent; none of these outlives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trace {
    Queue,
    Outbox,
    History,
    Incoming,
    Watch,
}

impl Trace {
    pub const ALL: [Self; 5] = [
        Self::Queue,
        Self::Outbox,
        Self::History,
        Self::Incoming,
        Self::Watch,
    ];

    #[must_use]
    pub const fn table(self) -> &'static str {
        match self {
            Self::Queue => "psp_tx_map",
            Self::Outbox => "outbox_event",
            Self::History => "intent_event",
            Self::Incoming => "psp_incoming",
            Self::Watch => "psp_watch",
        }
    }

    const fn strays(self) -> &'static str {
        macro_rules! strays {
            ($table:literal) => {
                concat!(
                    "SELECT DISTINCT t.intent_id FROM ",
                    $table,
                    " t WHERE t.intent_id > $1
                      AND NOT EXISTS (SELECT 1 FROM pm.intent i WHERE i.id = t.intent_id)
                      ORDER BY t.intent_id LIMIT $2"
                )
            };
        }
        match self {
            Self::Queue => strays!("pm.psp_tx_map"),
            Self::Outbox => strays!("pm.outbox_event"),
            Self::History => strays!("pm.intent_event"),
            Self::Incoming => strays!("pm.psp_incoming"),
            Self::Watch => strays!("pm.psp_watch"),
        }
    }
}

/// A transaction for statements that read whole tables.
async fn patient(pm: &PgPool) -> Result<PmTx, StoreError> {
    let mut tx = super::begin(pm).await?;
    sqlx::query("SET LOCAL statement_timeout = '30min'")
        .execute(&mut *tx)
        .await
        .map_err(failed)?;
    Ok(tx)
}

/// Intents that rows name and that are not there, after one, in the order of their ids.
///
/// # Errors
/// The database's.
pub async fn strays(
    pm: &PgPool,
    of: Trace,
    after: Uuid,
    limit: u32,
) -> Result<Vec<Uuid>, StoreError> {
    let mut tx = patient(pm).await?;
    sqlx::query_scalar(of.strays())
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(&mut *tx)
        .await
        .map_err(failed)
}

/// What has passed through the accounts of one currency at one provider, in minor units, as far as
/// it is certain; or with what may have passed besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Passed {
    /// Paid out.
    pub out: u128,
    /// Of that, what has come back.
    pub back: u128,
    /// Credited for top-ups, with their fees.
    pub credited: u128,
    pub fees: u128,
    /// What came in and was put aside, and what of that was given to somebody.
    pub aside: u128,
    pub given: u128,
}

/// By currency, its ledger number and the provider's name.
pub type AllPassed = BTreeMap<(String, i32, String), Passed>;

/// See [`Passed`]: `certain` leaves out what is under way.
///
/// # Errors
/// The database's, or a sum that can't be read.
pub async fn passed(pm: &PgPool, certain: bool) -> Result<AllPassed, StoreError> {
    #[derive(FromRow)]
    struct Row {
        currency_code: String,
        ledger: i32,
        psp: String,
        out: String,
        back: String,
        credited: String,
        fees: String,
        aside: String,
        given: String,
    }
    let mut tx = patient(pm).await?;
    let rows: Vec<Row> = sqlx::query_as(
        "WITH moved AS (
             SELECT i.currency_code, i.ledger, i.channel AS psp, i.kind, i.amount, i.fee_amount,
                 i.status IN ('completed', 'returned') OR (NOT $1 AND EXISTS (
                     SELECT 1 FROM pm.outbox_event o WHERE o.intent_id = i.id
                       AND o.action = 'post_pending' AND o.status IN ('pending', 'stuck'))) AS paid,
                 i.status = 'returned' OR (NOT $1 AND EXISTS (
                     SELECT 1 FROM pm.outbox_event o WHERE o.intent_id = i.id
                       AND o.action = 'return_pending' AND o.status IN ('pending', 'stuck'))) AS back
             FROM pm.intent i
         )
         SELECT currency_code, ledger, psp,
             SUM(out)::text AS out, SUM(back)::text AS back, SUM(credited)::text AS credited,
             SUM(fees)::text AS fees, SUM(aside)::text AS aside, SUM(given)::text AS given
         FROM (
             SELECT currency_code, ledger, psp,
                 CASE WHEN paid AND kind = 'payout' THEN amount ELSE 0 END AS out,
                 CASE WHEN back AND kind = 'payout' THEN amount ELSE 0 END AS back,
                 CASE WHEN paid AND kind = 'top_up' THEN amount ELSE 0 END AS credited,
                 CASE WHEN paid THEN fee_amount ELSE 0 END AS fees,
                 0 AS aside, 0 AS given
             FROM moved
             UNION ALL
             SELECT currency_code, ledger, psp_name, 0, 0, 0, 0,
                 CASE WHEN status IN ('suspense', 'assigned')
                       OR (NOT $1 AND status IN ('waiting', 'unknown')) THEN amount ELSE 0 END,
                 CASE WHEN status = 'assigned' OR (NOT $1 AND wallet IS NOT NULL)
                      THEN amount ELSE 0 END
             FROM pm.psp_incoming
         ) all_of_it
         GROUP BY currency_code, ledger, psp",
    )
    .bind(certain)
    .fetch_all(&mut *tx)
    .await
    .map_err(failed)?;
    let read = |row: Row| {
        let sum = |text: &str| {
            let sum = text.parse::<u128>();
            sum.map_err(|_| {
                corrupt(
                    "intent",
                    format!("a sum in {} is {text}", row.currency_code),
                )
            })
        };
        let passed = Passed {
            out: sum(&row.out)?,
            back: sum(&row.back)?,
            credited: sum(&row.credited)?,
            fees: sum(&row.fees)?,
            aside: sum(&row.aside)?,
            given: sum(&row.given)?,
        };
        Ok(((row.currency_code, row.ledger, row.psp), passed))
    };
    rows.into_iter().map(read).collect()
}
