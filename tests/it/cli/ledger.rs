//! An auditor's view of the ledger.

use settlenet::domain::ledger::{AccountName, account_id, transfer_id};
use sqlx::Row as _;
use uuid::Uuid;

use super::{json, run, run_env, settled, stderr, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_transfers_are_read_by_names_and_ids_alone() {
    let world = settled().await;
    let databases = &world.databases;
    let name = AccountName::position(world.gamma, &world.currency);
    let (code, found) = json(databases, &["ledger", "account", &name.to_string()]).await;
    assert_eq!(code, Some(0));
    assert_eq!(found["id"], account_id(&name).to_string());
    assert_eq!(
        (found["code"].as_u64(), &found["wrong"]),
        (Some(1), &serde_json::Value::Null)
    );
    assert_ne!(found["balance"], "0");
    assert_eq!(found["history"], true);
    let saga: Uuid = sqlx::query("SELECT saga_id FROM saga WHERE kind = 'confirm' LIMIT 1")
        .fetch_one(&world.app.systems.master)
        .await
        .unwrap()
        .get(0);
    let (code, hold) = json(databases, &["ledger", "transfer", &saga.to_string(), "0"]).await;
    assert_eq!((code, &hold["kind"]), (Some(0), &"hold".into()));
    assert_eq!(hold["operation"], saga.to_string());
    // By its own id, in both forms, and with an address and no configuration.
    let id = transfer_id(saga, 1);
    let uuid = Uuid::from_u128(id.get()).to_string();
    let address = world.config.tigerbeetle.addresses[0].to_string();
    let alone = [
        "ledger",
        "transfer",
        &id.to_string(),
        "--address",
        &address,
        "--json",
    ]
    .map(str::to_owned);
    let alone: Vec<&str> = alone.iter().map(String::as_str).collect();
    let nowhere = [
        ("SETTLENET_CONFIG", "/nonexistent"),
        ("SETTLENET_MASTER__URL", ""),
    ];
    let post = run_env(databases, &alone, &nowhere).await;
    assert_eq!(post.status.code(), Some(0), "{}", stderr(&post));
    let post: serde_json::Value = serde_json::from_slice(&post.stdout).unwrap();
    assert_eq!(
        (&post["kind"], &post["of"]),
        (&"post".into(), &transfer_id(saga, 0).to_string().into())
    );
    let (_, same) = json(databases, &["ledger", "transfer", &uuid]).await;
    assert_eq!(same, post);

    let shown = run(databases, &["ledger", "account", &name.to_string()]).await;
    assert!(
        stdout(&shown).contains("as its name says"),
        "{}",
        stdout(&shown)
    );
    for missing in [
        vec!["ledger", "account", "user.nobody.USD"],
        vec!["ledger", "transfer", "12345"],
    ] {
        let told = run(databases, &missing).await;
        assert_eq!(told.status.code(), Some(4), "{}", stderr(&told));
    }
    for wrong in [
        vec!["ledger", "account", "user.USD"],
        vec!["ledger", "transfer", "x"],
        vec!["ledger", "transfer", "0"],
        vec![
            "ledger",
            "transfer",
            "340282366920938463463374607431768211455",
        ],
        vec!["ledger", "account", "user.a.b.USD"],
    ] {
        assert_eq!(
            run(databases, &wrong).await.status.code(),
            Some(2),
            "{wrong:?}"
        );
    }
}
