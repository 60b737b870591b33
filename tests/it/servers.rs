//! Many databases on few connections, and a server that is away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use futures::future::join_all;
use serde_json::json;
use settlenet::app::ledger_config;
use settlenet::domain::access::Role;
use settlenet::runtime::Clock;
use settlenet::stores::book;
use settlenet::stores::ledger::Ledger;
use settlenet::stores::migrate::{Kind, migrate};
use settlenet::stores::pool::PoolBounds;
use settlenet::stores::router::{DatabaseKey, PoolLimits, Router, ServerUrl};
use sqlx::Connection as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api::Api;
use crate::harness::{Databases, World, private_stack, until};

const BUDGET: usize = 3;
const DATABASES: usize = 6;
const READERS: usize = 4;

/// More readers than connections, and more databases than pools: all are served, no more pools are
/// open than may be, and idle connections count against the server's budget. With a pool for
/// each database they could be six times as many.
#[tokio::test(flavor = "multi_thread")]
async fn many_databases_share_a_servers_budget() {
    let mut world = World::new().await;
    let master = world.app.systems.master.clone();
    let now = world.clock.now();
    let mut places = Vec::new();
    for _ in 0..DATABASES {
        let database = world.databases.tenant().await;
        let url = world.databases.url("b", &database);
        migrate(&url, Kind::Tenant).await.unwrap();
        let server = "b".to_owned();
        places.push(DatabaseKey { server, database });
    }
    let first = world.brokers[3] + 1000;
    let brokers: Vec<u64> = (0..DATABASES as u64).map(|number| first + number).collect();
    for (id, place) in brokers.iter().zip(&places) {
        sqlx::query(
            "INSERT INTO broker (broker_id, name, broker_mode, plan, state, server_name, \
             database_name, created_at) VALUES (?, ?, 'FULL', 'pro', 'active', 'b', ?, ?)",
        )
        .bind(id)
        .bind(format!("Broker {id}"))
        .bind(&place.database)
        .bind(now)
        .execute(&master)
        .await
        .unwrap();
    }
    let servers = vec![ServerUrl {
        name: "b".to_owned(),
        url: world.config.servers["b"].url.expose().to_owned(),
        max_connections: u32::try_from(BUDGET).unwrap(),
    }];
    let names: Vec<String> = places.iter().map(|place| place.database.clone()).collect();
    for pools in [2, DATABASES] {
        let limits = PoolLimits {
            max_pools: pools,
            bounds: PoolBounds {
                acquire_timeout: Duration::from_secs(20),
                ..PoolBounds::default()
            },
        };
        let router = Arc::new(Router::new(master.clone(), servers.clone(), limits));
        for (id, place) in brokers.iter().zip(&places) {
            book::create(&router, place, *id, 1, now).await.unwrap();
        }
        let over = AtomicBool::new(false);
        let readers = (0..READERS * DATABASES).map(|number| {
            let (router, broker, over) = (&router, brokers[number % DATABASES], &over);
            async move {
                let mut served = 0;
                while !over.load(Ordering::Relaxed) {
                    let scope = router.book(broker).await.unwrap();
                    let mut read = scope.read().await.unwrap();
                    assert_eq!(book::head(&mut read).await.unwrap().seq, 0);
                    read.end().await.unwrap();
                    served += 1;
                }
                served
            }
        });
        let watch = async {
            let begun = Instant::now();
            let (mut open, mut seen) = (0, 0);
            while begun.elapsed() < Duration::from_secs(3) {
                let used = router.server_use().remove(0);
                assert!(router.pool_use().len() <= pools);
                assert!(used.in_use <= BUDGET, "{used:?}");
                open = open.max(used.open);
                seen = seen.max(connections(&world, &names).await);
            }
            over.store(true, Ordering::Relaxed);
            (open, seen)
        };
        let (served, (open, seen)) = futures::future::join(join_all(readers), watch).await;
        assert!(served.iter().all(|served: &u64| *served > 0), "{served:?}");
        // Two that make room at once may both have counted before; and one that was closed is
        // still seen at the server for a moment.
        assert!(open <= 2 * BUDGET, "{pools} pools: {open} open");
        let allowed = i64::try_from(4 * BUDGET).unwrap();
        assert!(seen > 0 && seen <= allowed, "{pools} pools: {seen} seen");
    }
}

/// As the server itself counts them.
async fn connections(world: &World, databases: &[String]) -> i64 {
    let url = world.config.servers["b"].url.expose();
    let mut connection = sqlx::mysql::MySqlConnection::connect(url).await.unwrap();
    let list: Vec<String> = databases.iter().map(|name| format!("'{name}'")).collect();
    let sql = format!(
        "SELECT COUNT(*) FROM information_schema.processlist WHERE db IN ({})",
        list.join(", ")
    );
    sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
        .fetch_one(&mut connection)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_server_fails_its_own_brokers_fast_and_nobody_else() {
    let stack = private_stack().await;
    let ledger = Ledger::connect(&ledger_config(&stack.config())).unwrap();
    let databases = Databases::on(&stack).await;
    let world = World::on(databases, ledger, Clock::System, 0).await;
    let api = Api::on(world).await;
    let (on_b, on_a) = (api.world.alpha, api.world.gamma);
    let hers = api.token(Role::BrokerAdmin, Some(on_b)).await;
    let theirs = api.token(Role::BrokerAdmin, Some(on_a)).await;
    assert_eq!(api.get("/v1/accounts", &hers).await.status, 200);
    let (mut workers, shutdown) = (JoinSet::new(), CancellationToken::new());
    settlenet::workers::measure(&mut workers, &api.world.app, &shutdown);

    for down in ["kill", "pause"] {
        stack.order(format!("{down} mariadb-b")).await;
        // Whoever asks first finds it out.
        let first = api.get("/v1/accounts", &hers).await;
        assert_eq!(first.problem(), (503, "unavailable"), "{down}");
        until(
            "it is known to be away",
            Duration::from_secs(20),
            async || {
                let begun = Instant::now();
                let late = api.get("/v1/accounts", &hers).await;
                assert_eq!(late.problem(), (503, "unavailable"), "{down}");
                assert_eq!(late.headers["retry-after"], "1");
                begun.elapsed() < Duration::from_millis(100)
            },
        )
        .await;
        let begun = Instant::now();
        let account = json!({"owner_kind": "partner", "owner_ref": format!("FO-{down}"),
                             "currency_code": api.world.currency});
        let opened = api.post("/v1/accounts", &theirs, account).await;
        assert_eq!(opened.status, 201, "{down}: {opened:?}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{down}");
        until("metrics tell", Duration::from_secs(20), async || {
            // Within the moment for which a server is not asked again.
            for _ in 0..2 {
                api.get("/v1/accounts", &hers).await;
            }
            let shown = api.get("/metrics", "").await.text;
            shown.contains("settlenet_server_up{server=\"b\"} 0")
                && shown.contains("settlenet_server_up{server=\"a\"} 1")
                && shown.contains("settlenet_server_refusals_total{server=\"b\",why=\"down\"} ")
        })
        .await;
        let up = if down == "kill" { "start" } else { "resume" };
        stack.order(format!("{up} mariadb-b")).await;
        until(
            "its brokers are served again",
            Duration::from_secs(30),
            async || api.get("/v1/accounts", &hers).await.status == 200,
        )
        .await;
    }
    shutdown.cancel();
    workers.join_all().await;
}
