//! New brokers get a book, whatever happens on the way.

use std::sync::Arc;

use settlenet::domain::broker::{Broker, BrokerPlan, BrokerState, Placement};
use settlenet::services::provisioning::{Provisioning, ProvisioningError};
use settlenet::stores::master::idempotency::Intention;
use settlenet::stores::master::{self, brokers, placement};
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
    assert!(matches!(
        unknown,
        Err(ProvisioningError::NoSuchServer { .. })
    ));
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

/// A database of that name may be there, and be somebody's: nothing is done to it, and nothing
/// is left of the try that would hold up others.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_somebody_elses_never_becomes_a_shard() {
    let bare = Bare::new().await;
    bare.provisioning
        .register_server("a", 9, None, start())
        .await
        .unwrap();
    let alpha = bare.create("Alpha", BrokerPlan::Pro).await.unwrap();
    let Some(Placement::Own { database: own, .. }) = alpha.placement else {
        panic!("FULL");
    };
    let prefix = &bare.databases.prefix;
    let (strange, other) = (format!("{prefix}strange"), format!("{prefix}other"));
    let server = MySqlPool::connect(bare.databases.url("a", "").expose())
        .await
        .unwrap();
    let run = async |sql: String| {
        let done = sqlx::query(sqlx::AssertSqlSafe(sql.clone()));
        done.execute(&server).await.expect(&sql);
    };
    run(format!("CREATE DATABASE `{strange}`")).await;
    run(format!("CREATE TABLE `{strange}`.account (id INT)")).await;
    // A shard of another network, by its number.
    let url = bare.databases.url("a", &other);
    migrate::migrate(&url, Kind::Shared).await.unwrap();
    run(format!(
        "INSERT INTO `{other}`.shard_meta (only_row, shard_id, created_at) VALUES (1, 7, NOW(6))"
    ))
    .await;
    let master = bare.databases.master_url().database().unwrap().to_owned();
    let names = [
        master.as_str(),
        "mysql",
        "MySQL",
        "sys",
        "information_schema",
        "performance_schema",
        &own,
        &strange,
        &other,
    ];
    for name in names {
        let refused = bare
            .provisioning
            .create_shard("a", name, 5, None, start())
            .await;
        assert!(
            matches!(refused, Err(ProvisioningError::Occupied { .. })),
            "{name}: {refused:?}"
        );
    }
    let nowhere = bare
        .provisioning
        .create_shard("zz", &strange, 5, None, start())
        .await;
    let text = nowhere.unwrap_err().to_string();
    assert!(
        text.contains("the configuration has no server zz"),
        "{text}"
    );
    assert_eq!(bare.provisioning.shards().await.unwrap(), []);
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT CAST(table_name AS CHAR) FROM information_schema.tables WHERE table_schema = ?",
    )
    .bind(&strange)
    .fetch_all(&server)
    .await
    .unwrap();
    assert_eq!(tables, ["account"], "nothing was done to it");
    assert_eq!(
        migrate::registered(bare.databases.master_url())
            .await
            .unwrap()
            .len(),
        1
    );

    // A FULL broker's database has a name that we make, and may be there all the same.
    let next = format!("{prefix}tenant_{}", alpha.id + 1);
    run(format!("CREATE DATABASE `{next}`")).await;
    run(format!("CREATE TABLE `{next}`.theirs (id INT)")).await;
    let refused = bare.create("Beta", BrokerPlan::Pro).await;
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("theirs, which is none of ours"), "{text}");
    let registered = migrate::registered(bare.databases.master_url()).await;
    assert_eq!(
        registered.unwrap().len(),
        1,
        "what is unfinished holds up no migration"
    );
    run(format!("DROP TABLE `{next}`.theirs")).await;
    let beta = bare.provisioning.finish_broker(alpha.id + 1, start()).await;
    assert_eq!(beta.unwrap().state, BrokerState::Active);
    run(format!("DROP DATABASE `{strange}`")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_without_books_is_removed_and_may_be_made_again() {
    let bare = Bare::new().await;
    let places = &bare.provisioning;
    let number = bare.shard("s1", 5).await;
    let broker = bare.create("A", BrokerPlan::Starter).await.unwrap();
    let used = places.remove_shard(&number.to_string()).await;
    assert!(matches!(used, Err(ProvisioningError::ShardInUse { .. })));
    let none = places.remove_shard("a/nothing").await;
    assert!(matches!(none, Err(ProvisioningError::NoSuchShard { .. })));
    assert!(bare.has_book(&broker).await);

    bare.shard("s2", 5).await;
    let database = format!("{}s2", bare.databases.prefix);
    places.remove_shard(&format!("a/{database}")).await.unwrap();
    assert_eq!(places.shards().await.unwrap().len(), 1);
    let again = bare.shard("s2", 5).await;

    // As after a death while it was being made: its database has no number yet, or isn't there.
    for undo in [
        "DELETE FROM shard_meta",
        "DROP TABLE shard_meta",
        "DROP DATABASE",
    ] {
        sqlx::query(
            "UPDATE shared_shard SET state = 'making', accepts_new = FALSE WHERE shard_id = ?",
        )
        .bind(again)
        .execute(&bare.master)
        .await
        .unwrap();
        let url = bare.databases.url("a", &database);
        let pool = MySqlPool::connect(url.expose()).await.unwrap();
        let sql = match undo {
            "DROP DATABASE" => format!("{undo} `{database}`"),
            "DROP TABLE shard_meta" => format!("{undo}, _sqlx_migrations_shared"),
            _ => undo.to_owned(),
        };
        let done = sqlx::query(sqlx::AssertSqlSafe(sql)).execute(&pool).await;
        done.unwrap();
        let registered = migrate::registered(bare.databases.master_url()).await;
        assert_eq!(registered.unwrap().len(), 1, "it holds up no migration");
        assert_eq!(bare.shard("s2", 5).await, again, "{undo}");
        let shards = places.shards().await.unwrap();
        assert!(shards[1].accepts_new && shards[1].state == "open");
    }
    // One that points at what never was a shard goes too.
    sqlx::query("UPDATE shared_shard SET database_name = 'mysql' WHERE shard_id = ?")
        .bind(again)
        .execute(&bare.master)
        .await
        .unwrap();
    places.remove_shard(&again.to_string()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn making_and_removing_a_shard_at_once_leaves_what_can_be_made_and_removed() {
    let bare = Bare::new().await;
    bare.shard("s1", 5).await;
    let database = format!("{}s2", bare.databases.prefix);
    let name = format!("a/{database}");
    let make = async || {
        let made = bare
            .provisioning
            .create_shard("a", &database, 5, None, start());
        made.await
    };
    for _ in 0..4 {
        let (one, two, three, four) = tokio::join!(
            make(),
            bare.provisioning.remove_shard(&name),
            make(),
            bare.provisioning.remove_shard(&name)
        );
        // Each of them, or there was nothing to remove yet.
        drop((one, two, three, four));
        let shard = make().await.expect("it can be made, whatever came before");
        assert_eq!(shard.state, "open");
        bare.provisioning.remove_shard(&name).await.unwrap();
    }
    assert_eq!(bare.provisioning.shards().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_removal_leaves_a_shard_as_it_was_and_a_begun_one_takes_no_brokers() {
    let bare = Bare::new().await;
    let number = bare.shard("s1", 5).await;
    bare.create("A", BrokerPlan::Starter).await.unwrap();
    let before = bare.provisioning.shards().await.unwrap();
    let used = bare.provisioning.remove_shard(&number.to_string()).await;
    assert!(matches!(used, Err(ProvisioningError::ShardInUse { .. })));
    assert_eq!(bare.provisioning.shards().await.unwrap(), before);

    let other = bare.shard("s2", 5).await;
    let mut tx = master::begin(&bare.master).await.unwrap();
    assert!(placement::set_shard_removing(&mut tx, other).await.unwrap());
    assert!(
        !placement::set_shard_removing(&mut tx, number)
            .await
            .unwrap()
    );
    master::commit(tx).await.unwrap();
    for name in ["B", "C"] {
        let broker = bare.create(name, BrokerPlan::Starter).await.unwrap();
        assert_eq!(broker.placement, Some(Placement::Shard(number)));
    }
    // Whoever goes on finishes it.
    bare.provisioning
        .remove_shard(&other.to_string())
        .await
        .unwrap();
    bare.shard("s2", 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_programs_history_of_migrations_is_left_alone() {
    let bare = Bare::new().await;
    let database = format!("{}other", bare.databases.prefix);
    let url = bare.databases.url("a", &database);
    migrate::migrate(&url, Kind::Tenant).await.unwrap();
    let pool = MySqlPool::connect(url.expose()).await.unwrap();
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (77, 'theirs', FALSE, 'x', 0)",
    )
    .execute(&pool)
    .await
    .unwrap();
    let refused = bare
        .provisioning
        .create_shard("a", &database, 5, None, start());
    assert!(matches!(
        refused.await,
        Err(ProvisioningError::Occupied { .. })
    ));
    let there: i64 = sqlx::query_scalar("SELECT COUNT(*) FROM _sqlx_migrations WHERE version = 77")
        .fetch_one(&pool)
        .await
        .unwrap();
    assert_eq!(there, 1);
    assert!(bare.provisioning.shards().await.unwrap().is_empty());
}
