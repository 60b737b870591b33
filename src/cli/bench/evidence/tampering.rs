//! How long it takes to find out that a row was tampered with: once the audit comes to the book, and of
//! what a book has grown by.

use std::time::Instant;

use anyhow::Context as _;
use futures::TryStreamExt as _;
use sqlx::{AssertSqlSafe, MySqlPool};

use super::super::client::{Client, fill};
use super::super::network::Bench;
use super::super::report::Figure;
use crate::services::audit::Audited;

const ENTRIES: usize = 100_000;
const ENTRIES_QUICK: usize = 5_000;

pub(super) async fn measure(bench: &Bench, quick: bool) -> anyhow::Result<Vec<Figure>> {
    let entries = if quick { ENTRIES_QUICK } else { ENTRIES };
    let app = &bench.app;
    let server = bench.config.servers.get("a").context("servers.a")?;
    let database = server.url.with_database(&bench.database("shard"));
    let database = MySqlPool::connect(database.expose()).await?;
    eprintln!("filling a book with {entries} entries");
    let client = Client::new(app, "Tampered").await?;
    fill(app, &client, entries).await?;
    let broker = client.broker;
    while app.checkpoints.pass().await?.marked > 0 {}

    let begun = Instant::now();
    let rows = read(&database, broker).await?;
    let reading = begun.elapsed().as_secs_f64() * 1_000.0;
    anyhow::ensure!(rows == entries, "{rows} rows");
    let begun = Instant::now();
    let sound = app.audit.audit(broker).await?;
    let auditing = begun.elapsed().as_secs_f64() * 1_000.0;
    anyhow::ensure!(sound.fault.is_none(), "{:?}", sound.fault);

    // One that has just been booked, by somebody who has the database.
    client.write(app).await?;
    let last = entries + 1;
    tamper(&database, broker, last).await?;
    let begun = Instant::now();
    app.checkpoints.pass().await?;
    let found = growth(bench, &client).await?;
    let grown = begun.elapsed().as_secs_f64() * 1_000.0;
    named(&found, last)?;

    tamper(&database, broker, entries / 2).await?;
    let begun = Instant::now();
    let found = app.audit.audit(broker).await?;
    let old = begun.elapsed().as_secs_f64() * 1_000.0;
    named(&found, entries / 2)?;

    let size = format!("{}k entries", entries / 1_000);
    let floor = Figure::floor(format!("rows read, {size}"), reading, "ms");
    let audit = Figure::floor(format!("book audited, {size}"), auditing, "ms");
    let grown_name = format!("new row found tampered with, {size}");
    Ok(vec![
        audit.beside(&floor, ""),
        Figure::floor(grown_name, grown, "ms"),
        Figure::floor(format!("row in the middle found, {size}"), old, "ms"),
        floor,
    ])
}

/// The audit of what the book has grown by, when its turn comes.
async fn growth(bench: &Bench, client: &Client) -> anyhow::Result<Audited> {
    while let Some(audited) = bench.app.audit.next().await? {
        let audited = audited?;
        if audited.broker == client.broker {
            return Ok(audited);
        }
    }
    anyhow::bail!("the book is not due")
}

fn named(found: &Audited, seq: usize) -> anyhow::Result<()> {
    let fault = found.fault.as_ref().context("nothing was found")?;
    anyhow::ensure!(fault.seq == u64::try_from(seq)?, "{fault}");
    Ok(())
}

async fn tamper(database: &MySqlPool, broker: u64, seq: usize) -> anyhow::Result<()> {
    let sql = "UPDATE transaction SET amount = amount + 1 WHERE broker_id = ? AND seq = ?";
    let query = sqlx::query(sql).bind(broker).bind(u64::try_from(seq)?);
    let done = query.execute(database).await?;
    anyhow::ensure!(done.rows_affected() == 1, "no entry {seq}");
    Ok(())
}

/// Rows as the server gives them, none of them looked into.
async fn read(database: &MySqlPool, broker: u64) -> anyhow::Result<usize> {
    let sql = format!("SELECT * FROM transaction WHERE broker_id = {broker} ORDER BY seq");
    let mut rows = sqlx::query(AssertSqlSafe(sql)).fetch(database);
    let mut count = 0;
    while rows.try_next().await?.is_some() {
        count += 1;
    }
    Ok(count)
}
