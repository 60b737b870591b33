//! A payment manager of the run's own, with a provider that answers at once.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use futures::future::BoxFuture;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres};
use tokio::sync::mpsc::UnboundedSender;
use uuid::Uuid;

use crate::app::App;
use crate::cli::bench::network::Bench;
use crate::config::Config;
use crate::domain::money::CurrencyCode;
use crate::domain::payment::outcome::{Progress, PspOutcome};
use crate::domain::payment::{PspName, PspState};
use crate::psp::{Driver, PspTask, Registry, Turn};
use crate::services::payments::{PaymentParts, PaymentRules, PaymentService};
use crate::stores::migrate;

pub(super) const PSP: PspName = PspName::Ipps;
const CONNECTIONS: u32 = 32;
/// Rows of one statement, which has its time.
const AT_ONCE: usize = 100_000;

/// A call of the driver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driven {
    pub(super) at: Instant,
    pub(super) is_payment: bool,
}

#[derive(Clone)]
pub(super) struct Queue {
    pub(super) pm: PgPool,
    app: App,
}

struct AtOnce {
    currencies: Vec<CurrencyCode>,
    calls: UnboundedSender<Driven>,
}

impl Driver for AtOnce {
    fn name(&self) -> PspName {
        PSP
    }

    fn currencies(&self) -> &[CurrencyCode] {
        &self.currencies
    }

    fn process<'a>(&'a self, task: &'a PspTask) -> BoxFuture<'a, Turn> {
        let is_payment = task.state == PspState::ConfirmPending;
        let at = Instant::now();
        // Whoever measures may have heard enough.
        let _ = self.calls.send(Driven { at, is_payment });
        let facts = task.facts.clone();
        let outcome = if is_payment {
            PspOutcome::Confirmed { facts }
        } else {
            let (progress, why) = (Progress::LookedUp, None);
            PspOutcome::InProgress {
                progress,
                why,
                facts,
            }
        };
        let calls = Vec::new();
        Box::pin(async move { Turn { outcome, calls } })
    }
}

impl Queue {
    pub(super) async fn set(config: &Config) -> anyhow::Result<Self> {
        let mut config = config.clone();
        let name = format!("bench_pm_{}", Uuid::now_v7().simple());
        let mut server = PgConnection::connect(config.postgres.url.expose()).await?;
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        sqlx::query(create).execute(&mut server).await?;
        server.close().await?;
        config.postgres.url = config.postgres.url.with_database(&name);
        migrate::migrate_postgres(&config.postgres.url).await?;
        let Bench { app, config } = Bench::set(&config).await?;
        let options: PgConnectOptions = config.postgres.url.expose().parse()?;
        let pm = PgPoolOptions::new()
            .max_connections(CONNECTIONS)
            .test_before_acquire(false)
            .connect_lazy_with(options.disable_statement_logging());
        sqlx::query(
            "INSERT INTO pm.tb_account_map (account_name, tb_account_id, ledger, code, broker_id,
                 user_id, currency_code, ipps_wallet_id, created_at)
             VALUES ('merchant.1.USD', gen_random_uuid(), 1, 1, 1, '1', 'USD', 'bench', now())",
        )
        .execute(&pm)
        .await?;
        Ok(Self { pm, app })
    }

    /// A process's payments.
    pub(super) fn service(&self, calls: UnboundedSender<Driven>) -> PaymentService {
        let systems = &self.app.systems;
        let driver = AtOnce {
            currencies: Vec::new(),
            calls,
        };
        PaymentService::new(PaymentParts {
            pm: self.pm.clone(),
            master: systems.master.clone(),
            ledger: systems.ledger.clone(),
            currencies: Arc::clone(&self.app.currencies),
            books: self.app.books.clone(),
            providers: Registry::new([Arc::new(driver) as Arc<dyn Driver>]),
            rules: PaymentRules::default(),
            clock: systems.clock.clone(),
            entropy: systems.entropy.clone(),
            process: Uuid::now_v7().to_string(),
        })
    }

    /// Intents whose money is held and that are not queued.
    pub(super) async fn intents(&self, count: usize) -> anyhow::Result<Vec<Uuid>> {
        let ids = sqlx::query_scalar(
            "INSERT INTO pm.intent (id, kind, broker_id, user_id, wallet, currency_code, ledger,
                 amount, fee_amount, channel, receiver, status, created_by, created_at, updated_at)
             SELECT gen_random_uuid(), 'payout', 1, '1', 'merchant.1.USD', 'USD', 1, 1000, 0, 'IPPS',
                 '{\"type\": \"prompt_pay\", \"proxy\": \"0801234567\"}', 'held', 'bench', now(), now()
             FROM generate_series(1, $1) RETURNING id",
        )
        .bind(i64::try_from(count)?)
        .fetch_all(&self.pm)
        .await?;
        Ok(ids)
    }

    pub(super) async fn intent(&self) -> anyhow::Result<Uuid> {
        let one = self.intents(1).await?;
        one.first().copied().context("one was inserted")
    }

    /// Queues an intent, as a commit of its own.
    pub(super) async fn enqueue(&self, intent: Uuid) -> anyhow::Result<()> {
        sqlx::query(
            "INSERT INTO pm.psp_tx_map (intent_id, psp_name, created_at, updated_at)
             VALUES ($1, 'IPPS', $2, $2)",
        )
        .bind(intent)
        .bind(self.app.systems.clock.now())
        .execute(&self.pm)
        .await?;
        Ok(())
    }

    /// Queues many, a moment after each other.
    pub(super) async fn fill(&self, count: usize) -> anyhow::Result<()> {
        let intents = self.intents(count).await?;
        sqlx::query(
            "INSERT INTO pm.psp_tx_map (intent_id, psp_name, created_at, updated_at)
             SELECT id, 'IPPS', $2 - (array_length($1::uuid[], 1) - n) * interval '10 microseconds', $2
             FROM unnest($1) WITH ORDINALITY AS given (id, n)",
        )
        .bind(&intents)
        .bind(self.app.systems.clock.now())
        .execute(&self.pm)
        .await?;
        Ok(())
    }

    /// Rows that have ended, with all that they had.
    pub(super) async fn end_many(&self, count: usize) -> anyhow::Result<()> {
        for first in (0..count).step_by(AT_ONCE) {
            let last = count.min(first + AT_ONCE);
            sqlx::query(
                "INSERT INTO pm.psp_tx_map (intent_id, psp_name, state, query_rq_uid,
                     confirm_rq_uid, response_id, created_at, updated_at)
                 SELECT gen_random_uuid(), 'IPPS', 'CONFIRMED', gen_random_uuid()::text,
                     gen_random_uuid()::text, 'R' || n, now() - n * interval '1 second', now()
                 FROM generate_series($1 + 1, $2) n",
            )
            .bind(i64::try_from(first)?)
            .bind(i64::try_from(last)?)
            .execute(&self.pm)
            .await?;
        }
        self.tidy().await
    }

    /// What is queued is gone; it is not done.
    pub(super) async fn forget_work(&self) -> anyhow::Result<()> {
        // By the index of what is work: a walk over all that has ended would be what is measured.
        sqlx::query(
            "DELETE FROM pm.psp_tx_map
             WHERE state IN ('NEW', 'QUERY_PENDING', 'QUERIED', 'CONFIRM_PENDING', 'INQUIRING')",
        )
        .execute(&self.pm)
        .await?;
        Ok(())
    }

    pub(super) async fn empty(&self) -> anyhow::Result<()> {
        let all = "TRUNCATE pm.psp_tx_map, pm.intent, pm.intent_event, pm.outbox_event";
        sqlx::query(all).execute(&self.pm).await?;
        self.tidy().await
    }

    async fn tidy(&self) -> anyhow::Result<()> {
        // It takes its time, which a worker's session has not.
        let mut session = self.pm.acquire().await?;
        for sql in [
            "SET statement_timeout = 0",
            "VACUUM ANALYZE pm.psp_tx_map",
            "RESET statement_timeout",
        ] {
            sqlx::query(sql).execute(&mut *session).await?;
        }
        Ok(())
    }

    /// A transaction that has seen the database as it is now, and stays.
    pub(super) async fn hold_open(&self) -> anyhow::Result<sqlx::Transaction<'static, Postgres>> {
        let mut tx = self
            .pm
            .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ")
            .await?;
        // A worker's session would not be left to stand still.
        for sql in [
            "SET LOCAL idle_in_transaction_session_timeout = 0",
            "SELECT count(*) FROM pm.tb_account_map",
        ] {
            sqlx::query(sql).execute(&mut *tx).await?;
        }
        Ok(tx)
    }
}
