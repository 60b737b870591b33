//! The network that is measured: brokers with databases of their own, requests brought to where
//! only the confirmation is missing, and the API in front.

use std::sync::Arc;

use anyhow::Context as _;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{ConnectOptions as _, MySqlPool};
use uuid::Uuid;

use super::bare::{self, Places};
use super::network::Bench;
use crate::app::App;
use crate::config::{Config, SecretUrl};
use crate::domain::broker::BrokerPlan;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::proof::{Proof, ProofType};
use crate::domain::request::RequestKind;
use crate::services::Intention;
use crate::services::network::{Actor, CreateRequest};

/// Brokers that the spread load goes over.
const BROKERS: usize = 16;
/// Connections of the bare client, as many as the measured process may have.
const CONNECTIONS: u32 = 64;

pub(super) struct Stage {
    pub(super) app: App,
    pub(super) brokers: Vec<BrokerId>,
    /// The same databases for the bare saga.
    pub(super) bare: Places,
}

impl Stage {
    /// Databases of this run only: what an earlier one left has no part in it.
    pub(super) async fn set(config: &Config) -> anyhow::Result<Self> {
        let mut config = config.clone();
        config.master.max_connections = CONNECTIONS;
        config.pools.per_pool_connections = 8;
        let Bench { app, config } = Bench::set(&config).await?;
        let systems = &app.systems;
        let now = systems.clock.now();
        let provisioning = &app.provisioning;
        provisioning.register_server("a", 0, None, now).await?;
        provisioning.register_server("b", 1_000, None, now).await?;
        let server = &config.servers.get("b").context("servers.b")?.url;
        let mut brokers = Vec::new();
        let mut books = Vec::new();
        // One pool for all books of the bare saga would mix databases; one each is what it needs.
        for number in 0..BROKERS {
            let name = format!("Broker {number}");
            let broker = provisioning
                .create_broker(&name, BrokerPlan::Pro, None, None, now)
                .await?;
            let route = systems.router.book(broker.id).await?.route().clone();
            let pool = pool(
                &server.with_database(&route.database.database),
                CONNECTIONS / 8,
            )?;
            bare::prepare(&pool).await?;
            books.push((broker.id, pool));
            brokers.push(broker.id);
        }
        let master = pool(&config.master.url, CONNECTIONS)?;
        bare::prepare(&master).await?;
        let bare = Places { master, books };
        bare.open_books().await?;
        Ok(Self { app, brokers, bare })
    }

    /// Requests of neighbours among the first `brokers`, sent and not confirmed, with who is to
    /// confirm each.
    pub(super) async fn sent(
        &self,
        count: usize,
        brokers: usize,
    ) -> anyhow::Result<Vec<(RequestId, BrokerId)>> {
        let app = self.app.clone();
        let ids: Vec<BrokerId> = self.brokers[..brokers].to_vec();
        let made = Arc::new(std::sync::Mutex::new(vec![None; count]));
        let slots = Arc::clone(&made);
        super::load::run(count, 32, move |number| {
            let (app, slots) = (app.clone(), Arc::clone(&slots));
            let author = ids[number % ids.len()];
            let target = ids[(number + 1) % ids.len()];
            async move {
                let id = bring_to_sent(&app, author, target).await?;
                let mut slots = slots
                    .lock()
                    .map_err(|_| anyhow::anyhow!("a task panicked"))?;
                slots[number] = Some((id, target));
                Ok(())
            }
        })
        .await?;
        let made = made
            .lock()
            .map_err(|_| anyhow::anyhow!("a task panicked"))?;
        made.iter()
            .copied()
            .collect::<Option<Vec<_>>>()
            .context("every request was made")
    }
}

pub(super) fn actor(broker: BrokerId) -> Actor {
    Actor {
        broker,
        subject: format!("bench-{broker}"),
    }
}

async fn bring_to_sent(app: &App, author: BrokerId, target: BrokerId) -> anyhow::Result<RequestId> {
    let key = Uuid::now_v7().to_string();
    let intention = Intention {
        client: "bench".to_owned(),
        fingerprint: Hash::of_bytes(key.as_bytes()),
        key,
    };
    let input = CreateRequest {
        target_broker_id: Some(target),
        kind: RequestKind::Send,
        currency_code: "USD".to_owned(),
        amount: "10000.00".to_owned(),
        method: "cash".to_owned(),
        city_code: None,
        counterpart_uid: None,
        contact: None,
        note: None,
        obligation: None,
        commission: None,
        account_id: None,
        deadline_at: None,
        obligation_id: None,
        debtor: None,
        auto_confirm: false,
    };
    let proof = Proof {
        kind: ProofType::TransferRef,
        url: None,
        value: Some("receipt".to_owned()),
        note: None,
        sha256: None,
    };
    let answer = app
        .network
        .create_request(&actor(author), intention, input)
        .await?;
    let id = answer.request.id;
    app.network.accept_request(&actor(target), id, None).await?;
    app.network
        .mark_sent(&actor(author), id, vec![proof])
        .await?;
    Ok(id)
}

fn pool(url: &SecretUrl, connections: u32) -> anyhow::Result<MySqlPool> {
    let options: MySqlConnectOptions = url.expose().parse()?;
    Ok(MySqlPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .connect_lazy_with(options.disable_statement_logging()))
}
