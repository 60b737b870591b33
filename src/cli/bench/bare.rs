//! The bare saga: what a settlement writes, as plain SQL from a bare client on the same servers,
//! in four transactions (confirm with its outbox rows, one chained entry in each of two books,
//! completion). No engine, no ledger, no retry: the floor that the engine is held against.

use chrono::Utc;
use sha2::{Digest, Sha256};
use sqlx::{MySqlConnection, MySqlPool};
use uuid::Uuid;

use super::load::{self, Timed};

/// Rows of the outbox that a settlement has.
const STEPS: u16 = 6;

/// Makes the bare tables in a database.
pub(super) async fn prepare(pool: &MySqlPool) -> anyhow::Result<()> {
    for table in [
        "bare_commit (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, number BIGINT UNSIGNED, at DATETIME(6))",
        "bare_request (id BINARY(16) PRIMARY KEY, status VARCHAR(12), saga_id BINARY(16), at DATETIME(6))",
        "bare_event (request_id BINARY(16), seq INT, payload JSON, hash BINARY(32), PRIMARY KEY (request_id, seq))",
        "bare_saga (saga_id BINARY(16) PRIMARY KEY, status VARCHAR(12), at DATETIME(6))",
        "bare_outbox (id BIGINT UNSIGNED AUTO_INCREMENT PRIMARY KEY, saga_id BINARY(16), step SMALLINT, \
         payload JSON, status VARCHAR(8), at DATETIME(6), UNIQUE KEY (saga_id, step), KEY (status, at, id))",
        "bare_obligation (saga_id BINARY(16) PRIMARY KEY, amount BIGINT UNSIGNED, status VARCHAR(8))",
        "bare_head (broker BIGINT UNSIGNED PRIMARY KEY, seq BIGINT UNSIGNED, hash BINARY(32))",
        "bare_account (broker BIGINT UNSIGNED PRIMARY KEY, balance BIGINT)",
        "bare_entry (broker BIGINT UNSIGNED, seq BIGINT UNSIGNED, saga_id BINARY(16), amount BIGINT UNSIGNED, \
         balance BIGINT, prev_hash BINARY(32), hash BINARY(32), PRIMARY KEY (broker, seq), UNIQUE KEY (broker, saga_id))",
    ] {
        let sql = format!("CREATE TABLE IF NOT EXISTS {table} ENGINE = InnoDB");
        sqlx::query(sqlx::AssertSqlSafe(sql)).execute(pool).await?;
    }
    Ok(())
}

/// Where the bare saga writes: the master, and for each broker its database.
#[derive(Clone)]
pub(super) struct Places {
    pub(super) master: MySqlPool,
    pub(super) books: Vec<(u64, MySqlPool)>,
}

impl Places {
    pub(super) async fn open_books(&self) -> anyhow::Result<()> {
        for (broker, pool) in &self.books {
            sqlx::query("INSERT IGNORE INTO bare_head VALUES (?, 0, ?)")
                .bind(broker)
                .bind(vec![0u8; 32])
                .execute(pool)
                .await?;
            sqlx::query("INSERT IGNORE INTO bare_account VALUES (?, 0)")
                .bind(broker)
                .execute(pool)
                .await?;
        }
        Ok(())
    }

    /// Settles `count` requests between neighbours in the list of books.
    pub(super) async fn settle(&self, count: usize, at_once: usize) -> anyhow::Result<Timed> {
        let mut requests = Vec::with_capacity(count);
        for chunk in 0..count.div_ceil(500) {
            let ids: Vec<Uuid> = (0..500.min(count - chunk * 500))
                .map(|_| Uuid::now_v7())
                .collect();
            let mut rows = sqlx::QueryBuilder::new("INSERT INTO bare_request (id, status, at) ");
            rows.push_values(&ids, |mut row, id| {
                row.push_bind(*id).push_bind("sent").push_bind(Utc::now());
            });
            rows.build().execute(&self.master).await?;
            requests.extend(ids);
        }
        let places = self.clone();
        load::run(count, at_once, move |number| {
            let places = places.clone();
            let request = requests[number];
            async move { places.one(number, request).await }
        })
        .await
    }

    async fn one(&self, number: usize, request: Uuid) -> anyhow::Result<()> {
        let saga = Uuid::now_v7();
        let debtor = &self.books[number % self.books.len()];
        let creditor = &self.books[(number + 1) % self.books.len()];
        confirm(&self.master, request, saga).await?;
        entry(&debtor.1, debtor.0, saga, -1).await?;
        entry(&creditor.1, creditor.0, saga, 1).await?;
        complete(&self.master, request, saga).await
    }
}

async fn confirm(master: &MySqlPool, request: Uuid, saga: Uuid) -> anyhow::Result<()> {
    let mut tx = master.begin().await?;
    sqlx::query(
        "UPDATE bare_request SET saga_id = ? WHERE id = ? AND status = 'sent' AND saga_id IS NULL",
    )
    .bind(saga)
    .bind(request)
    .execute(&mut *tx)
    .await?;
    event(&mut tx, request, 1).await?;
    sqlx::query("INSERT INTO bare_saga VALUES (?, 'running', ?)")
        .bind(saga)
        .bind(Utc::now())
        .execute(&mut *tx)
        .await?;
    let mut rows =
        sqlx::QueryBuilder::new("INSERT INTO bare_outbox (saga_id, step, payload, status, at) ");
    rows.push_values(1..=STEPS, |mut row, step| {
        row.push_bind(saga)
            .push_bind(step)
            .push_bind(serde_json::json!({ "amount": "1000000", "currency": "USD", "step": step }))
            .push_bind("waiting")
            .push_bind(Utc::now());
    });
    rows.build().execute(&mut *tx).await?;
    sqlx::query("INSERT INTO bare_obligation VALUES (?, 1000000, 'pending')")
        .bind(saga)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn entry(pool: &MySqlPool, broker: u64, saga: Uuid, sign: i64) -> anyhow::Result<()> {
    let mut tx = pool.begin().await?;
    let (seq, prev): (u64, Vec<u8>) =
        sqlx::query_as("SELECT seq, hash FROM bare_head WHERE broker = ? FOR UPDATE")
            .bind(broker)
            .fetch_one(&mut *tx)
            .await?;
    let (balance,): (i64,) =
        sqlx::query_as("SELECT balance FROM bare_account WHERE broker = ? FOR UPDATE")
            .bind(broker)
            .fetch_one(&mut *tx)
            .await?;
    let balance = balance + sign * 1_000_000;
    let hash = Sha256::digest([prev.as_slice(), saga.as_bytes()].concat()).to_vec();
    sqlx::query("INSERT INTO bare_entry VALUES (?, ?, ?, 1000000, ?, ?, ?)")
        .bind(broker)
        .bind(seq + 1)
        .bind(saga)
        .bind(balance)
        .bind(prev)
        .bind(&hash)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE bare_account SET balance = ? WHERE broker = ?")
        .bind(balance)
        .bind(broker)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE bare_head SET seq = ?, hash = ? WHERE broker = ?")
        .bind(seq + 1)
        .bind(&hash)
        .bind(broker)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn complete(master: &MySqlPool, request: Uuid, saga: Uuid) -> anyhow::Result<()> {
    let mut tx = master.begin().await?;
    sqlx::query("UPDATE bare_request SET status = 'completed' WHERE id = ? AND saga_id = ?")
        .bind(request)
        .bind(saga)
        .execute(&mut *tx)
        .await?;
    event(&mut tx, request, 2).await?;
    sqlx::query("UPDATE bare_obligation SET status = 'active' WHERE saga_id = ?")
        .bind(saga)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE bare_saga SET status = 'completed' WHERE saga_id = ?")
        .bind(saga)
        .execute(&mut *tx)
        .await?;
    sqlx::query("UPDATE bare_outbox SET status = 'done' WHERE saga_id = ?")
        .bind(saga)
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

async fn event(tx: &mut MySqlConnection, request: Uuid, seq: i32) -> anyhow::Result<()> {
    sqlx::query("INSERT INTO bare_event VALUES (?, ?, ?, ?)")
        .bind(request)
        .bind(seq)
        .bind(serde_json::json!({ "kind": "confirmed", "at": Utc::now() }))
        .bind(vec![0u8; 32])
        .execute(tx)
        .await?;
    Ok(())
}
