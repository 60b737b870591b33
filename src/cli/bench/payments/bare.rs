//! The plain way beside which ours is measured: a loop that picks up ten rows by the same statement,
//! and one transaction for each job that writes the same rows; waking by `NOTIFY` in the transaction
//! that inserts.

use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgListener;
use sqlx::{FromRow, PgPool};
use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::queue::Driven;
use crate::stores::pm::queue::PICK_UP;

const CHANNEL: &str = "bench_bare";

#[derive(FromRow)]
struct Picked {
    id: Uuid,
    intent_id: Uuid,
    state: String,
    leased_by: String,
    leased_at: DateTime<Utc>,
}

impl Picked {
    fn is_payment(&self) -> bool {
        self.state == "CONFIRM_PENDING"
    }
}

async fn pick_up(pm: &PgPool, by: &str) -> anyhow::Result<Vec<Picked>> {
    let now = Utc::now();
    let rows = sqlx::query_as(PICK_UP)
        .bind("IPPS")
        .bind(now)
        .bind(30.0_f64)
        .bind(300.0_f64)
        .bind(1.0_f64)
        .bind(300.0_f64)
        .bind(10_i64)
        .bind(by)
        .bind(DateTime::UNIX_EPOCH)
        .bind(None::<DateTime<Utc>>)
        .fetch_all(pm)
        .await?;
    Ok(rows)
}

/// What a turn comes to, in one transaction.
async fn end(pm: &PgPool, picked: &Picked) -> anyhow::Result<()> {
    let now = Utc::now();
    let to = if picked.is_payment() {
        "CONFIRMED"
    } else {
        "QUERIED"
    };
    let mut tx = pm.begin().await?;
    sqlx::query(
        "UPDATE pm.psp_tx_map SET state = $1, leased_by = NULL, leased_at = NULL, updated_at = $2,
             retry_count = 0
         WHERE id = $3 AND state = $4 AND leased_by = $5 AND leased_at = $6",
    )
    .bind(to)
    .bind(now)
    .bind(picked.id)
    .bind(&picked.state)
    .bind(&picked.leased_by)
    .bind(picked.leased_at)
    .execute(&mut *tx)
    .await?;
    sqlx::query(
        "INSERT INTO pm.intent_event (intent_id, status_from, status_to, payload, created_at)
         VALUES ($1, 'processing', 'processing', $2, $3)",
    )
    .bind(picked.intent_id)
    .bind(serde_json::json!({ "psp": { "state_from": picked.state, "state_to": to } }))
    .bind(now)
    .execute(&mut *tx)
    .await?;
    if picked.is_payment() {
        sqlx::query(
            "INSERT INTO pm.outbox_event (id, intent_id, action, created_at, updated_at)
             VALUES ($1, $2, 'post_pending', $3, $3)",
        )
        .bind(Uuid::now_v7())
        .bind(picked.intent_id)
        .bind(now)
        .execute(&mut *tx)
        .await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Works until nothing is left; gives how many were paid.
pub(super) async fn work_off(pm: PgPool, by: String) -> anyhow::Result<usize> {
    let mut paid = 0;
    loop {
        let rows = pick_up(&pm, &by).await?;
        if rows.is_empty() {
            return Ok(paid);
        }
        for row in rows {
            end(&pm, &row).await?;
            paid += usize::from(row.is_payment());
        }
    }
}

/// Works as it is woken, until it is to stop.
pub(super) async fn wait_for_work(
    pm: PgPool,
    driven: UnboundedSender<Driven>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let mut listener = PgListener::connect_with(&pm).await?;
    listener.listen(CHANNEL).await?;
    loop {
        let rows = pick_up(&pm, "bare").await?;
        if rows.is_empty() {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                heard = listener.recv() => drop(heard?),
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
        for row in rows {
            let (at, is_payment) = (Instant::now(), row.is_payment());
            driven.send(Driven { at, is_payment })?;
            end(&pm, &row).await?;
        }
    }
}

/// Inserts and notifies, in one transaction.
pub(super) async fn enqueue(pm: &PgPool, intent: Uuid) -> anyhow::Result<()> {
    let mut tx = pm.begin().await?;
    sqlx::query(
        "INSERT INTO pm.psp_tx_map (intent_id, psp_name, created_at, updated_at)
         VALUES ($1, 'IPPS', $2, $2)",
    )
    .bind(intent)
    .bind(Utc::now())
    .execute(&mut *tx)
    .await?;
    sqlx::query("SELECT pg_notify($1, '')")
        .bind(CHANNEL)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}
