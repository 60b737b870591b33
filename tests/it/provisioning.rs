//! New brokers get a book, whatever happens on the way.

use std::sync::Arc;

use settlenet::domain::broker::{Broker, BrokerPlan, BrokerState, Placement};
use settlenet::services::provisioning::{Provisioning, ProvisioningError};
use settlenet::stores::master::idempotency::Intention;
use settlenet::stores::master::{brokers, placement};
use settlenet::stores::migrate::{self, Kind};
use settlenet::stores::pool::{Pool, PoolBounds};
use settlenet::stores::router::{PoolLimits, Router, ServerUrl};
use sqlx::MySqlPool;

use crate::harness::{Databases, World, start};

/// A migrated master with both servers registered, and nothing else.
struct Bare {
    databases: Databases,
    master: Pool,
    router: Arc<Router>,
    provisioning: Provisioning,
}

impl Bare {
    async fn new() -> Self {
        let databases = Databases::new().await;
        let url = databases.master_url();
        migrate::migrate(url, Kind::Master).await.unwrap();
        let master = Pool::new(url.expose().parse().unwrap(), PoolBounds::default());
        let servers = databases.config().servers.into_iter();
        let servers = servers.map(|(name, server)| ServerUrl {
            name,
            url: server.url.expose().to_owned(),
            max_connections: 20,
        });
        let limits = PoolLimits::default();
        let router = Arc::new(Router::new(master.clone(), servers.collect(), limits));
        let provisioning = Provisioning::new(master.clone(), router.clone(), &databases.prefix);
        Self {
            databases,
            master,
            router,
            provisioning,
        }
    }

    async fn create(&self, name: &str, plan: BrokerPlan) -> Result<Broker, ProvisioningError> {
        self.provisioning
            .create_broker(name, plan, None, None, start())
            .await
    }

    async fn shard(&self, name: &str, capacity: u32) -> u32 {
        let database = format!("{}{name}", self.databases.prefix);
        let shard = self
            .provisioning
            .create_shard("a", &database, capacity, None, start())
            .await;
        shard.unwrap().shard_id
    }

    async fn has_book(&self, broker: &Broker) -> bool {
        match self.router.book(broker.id).await {
            Ok(scope) => match scope.read().await {
                Ok(read) => read.end().await.is_ok(),
                Err(_) => false,
            },
            Err(_) => false,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_broker_gets_a_database_of_its_own() {
    let bare = Bare::new().await;
    let refused = bare.create("Alpha", BrokerPlan::Pro).await;
    assert!(matches!(refused, Err(ProvisioningError::NoServer)));
    assert_eq!(brokers::by_name(&bare.master, "Alpha").await.unwrap(), None);

    bare.provisioning
        .register_server("b", 1, None, start())
        .await
        .unwrap();
    let alpha = bare.create(" Alpha ", BrokerPlan::Pro).await.unwrap();
    assert_eq!(alpha.state, BrokerState::Active);
    let expected = Placement::Own {
        server: "b".to_owned(),
        database: format!("{}tenant_{}", bare.databases.prefix, alpha.id),
    };
    assert_eq!(alpha.placement, Some(expected));
    assert!(bare.has_book(&alpha).await);

    let full = bare.create("Beta", BrokerPlan::Pro).await;
    assert!(matches!(full, Err(ProvisioningError::NoServer)), "no room");
    let taken = bare.create("Alpha", BrokerPlan::Starter).await;
    assert!(matches!(taken, Err(ProvisioningError::NoShard)));
    let unknown = bare
        .provisioning
        .register_server("c", 1, None, start())
        .await;
    assert!(matches!(unknown, Err(ProvisioningError::Store(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn solo_brokers_go_to_the_emptiest_open_shard() {
    let bare = Bare::new().await;
    let first = bare.shard("s1", 2).await;
    let second = bare.shard("s2", 2).await;
    let mut shards = Vec::new();
    for name in ["A", "B", "C", "D"] {
        let broker = bare.create(name, BrokerPlan::Starter).await.unwrap();
        assert!(bare.has_book(&broker).await);
        match broker.placement {
            Some(Placement::Shard(shard)) => shards.push(shard),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(shards, [first, second, first, second]);
    let full = bare.create("E", BrokerPlan::Growth).await;
    assert!(matches!(full, Err(ProvisioningError::NoShard)));

    bare.shard("s3", 2).await;
    let taken = bare.create("A", BrokerPlan::Starter).await;
    assert!(matches!(taken, Err(ProvisioningError::NameTaken { .. })));
    let listed = brokers::list(&bare.master, None, None, 2).await.unwrap();
    let names: Vec<_> = listed.iter().map(|broker| broker.name.as_str()).collect();
    assert_eq!(names, ["D", "C"]);
    let others = brokers::list(&bare.master, None, Some(listed[1].id), 9).await;
    assert_eq!(others.unwrap().len(), 2);
    let ids: Vec<u64> = listed.iter().map(|broker| broker.id).collect();
    let by_id = brokers::names(&bare.master, &[ids[0], ids[1], 999_999]).await;
    assert_eq!(by_id.unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_that_come_at_once_do_not_overfill_a_shard() {
    let bare = Arc::new(Bare::new().await);
    bare.shard("s1", 3).await;
    let tasks = (0..8).map(|number| {
        let bare = bare.clone();
        tokio::spawn(async move {
            bare.create(&format!("broker {number}"), BrokerPlan::Starter)
                .await
        })
    });
    let outcomes = futures::future::join_all(tasks).await;
    let made = outcomes.iter().filter(|o| matches!(o, Ok(Ok(_)))).count();
    assert_eq!(made, 3);
    let shards = placement::shards(&bare.master).await.unwrap();
    assert_eq!(shards[0].brokers, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_left_is_finished() {
    let bare = Bare::new().await;
    bare.provisioning
        .register_server("b", 5, None, start())
        .await
        .unwrap();
    let intention = World::intention();
    let create = |intention: Intention| {
        bare.provisioning
            .create_broker("Alpha", BrokerPlan::Pro, None, Some(intention), start())
    };
    let made = create(intention.clone()).await.unwrap();
    assert_eq!(create(intention.clone()).await.unwrap(), made, "a repeat");
    let other = Intention {
        fingerprint: settlenet::domain::canonical::Hash::of_bytes(b"other"),
        ..intention.clone()
    };
    assert!(matches!(
        create(other).await,
        Err(ProvisioningError::KeyReused)
    ));

    // As after a death before the last step, before the book, and before its database.
    for undo in [
        None,
        Some(("DELETE FROM book_fence", false)),
        Some(("DROP DATABASE", true)),
    ] {
        let (active, provisioning) = (BrokerState::Active, BrokerState::Provisioning);
        brokers::set_state(&bare.master, made.id, active, provisioning)
            .await
            .unwrap();
        let Some(Placement::Own { server, database }) = &made.placement else {
            panic!("FULL");
        };
        if let Some((sql, whole)) = undo {
            let url = bare.databases.url(server, database);
            let pool = MySqlPool::connect(url.expose()).await.unwrap();
            let sql = if whole {
                format!("{sql} `{database}`")
            } else {
                sql.to_owned()
            };
            sqlx::query(sqlx::AssertSqlSafe(sql))
                .execute(&pool)
                .await
                .unwrap();
        }
        let finished = create(intention.clone()).await.unwrap();
        assert_eq!(finished, made);
        assert!(bare.has_book(&finished).await);
    }
    let again = bare.provisioning.finish_broker(made.id, start()).await;
    assert_eq!(again.unwrap(), made);
    let nobody = bare.provisioning.finish_broker(424_242, start()).await;
    assert!(matches!(
        nobody,
        Err(ProvisioningError::NoSuchBroker { .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_made_once_and_stays_as_its_admin_left_it() {
    let bare = Bare::new().await;
    let number = bare.shard("s1", 5).await;
    placement::set_shard_open(&bare.master, number, false)
        .await
        .unwrap();
    assert_eq!(bare.shard("s1", 5).await, number);
    let refused = bare.create("A", BrokerPlan::Starter).await;
    assert!(matches!(refused, Err(ProvisioningError::NoShard)));

    let database = format!("{}s1", bare.databases.prefix);
    sqlx::query("UPDATE shared_shard SET shard_id = 77")
        .execute(&bare.master)
        .await
        .unwrap();
    let another = bare
        .provisioning
        .create_shard("a", &database, 5, None, start())
        .await;
    assert!(matches!(
        another,
        Err(ProvisioningError::AnotherShard { expected: 77, .. })
    ));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspension_is_lifted_again() {
    let bare = Bare::new().await;
    bare.shard("s1", 5).await;
    let broker = bare.create("A", BrokerPlan::Starter).await.unwrap();
    for _ in 0..2 {
        let suspended = bare.provisioning.suspend(broker.id).await.unwrap();
        assert_eq!(suspended.state, BrokerState::Suspended);
    }
    let back = bare.provisioning.reinstate(broker.id).await.unwrap();
    assert_eq!(back.state, BrokerState::Active);
}
