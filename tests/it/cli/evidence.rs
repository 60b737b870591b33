//! What an operator does for evidence: the log, its witnesses, arbiters' ties.

use ed25519_dalek::SigningKey;
use serde_json::Value;
use settlenet::domain::note::{Algorithm, NoteKey};

use super::{json, run, run_with, settled, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn the_log_and_its_witnesses() {
    let world = settled().await;
    world.clock.advance(chrono::Duration::seconds(20));
    world.app.checkpoints.pass().await.unwrap();
    let (code, shown) = json(&world.databases, &["admin", "log", "show"]).await;
    assert_eq!(code, Some(0), "{shown}");
    assert_eq!(shown["checkpoint"]["size"], shown["log"]["size"]);
    assert_eq!(shown["requests_waiting"], 0);
    let human = stdout(&run(&world.databases, &["admin", "log", "show"]).await);
    assert!(
        human.contains("last checkpoint") && human.contains("key "),
        "{human}"
    );
    let early = ["admin", "log", "begin", "--after", "7", "--reason", "lost"];
    assert_eq!(run(&world.databases, &early).await.status.code(), Some(2));

    let name = &world.databases.prefix;
    let public = SigningKey::from_bytes(&[4; 32]).verifying_key().to_bytes();
    let key = NoteKey::new(&format!("witness.{name}"), Algorithm::Ed25519, &public).unwrap();
    let key = key.to_string();
    let (code, added) = json(&world.databases, &["admin", "witness", "add", &key]).await;
    assert_eq!(
        (code, &added["key"]),
        (Some(0), &key.clone().into()),
        "{added}"
    );
    let id = added["id"].to_string();
    let withdrawn = json(&world.databases, &["admin", "witness", "withdraw", &id]).await;
    assert!(withdrawn.1["withdrawn_at"].is_string(), "{withdrawn:?}");
    let listed = json(&world.databases, &["admin", "witness", "list"])
        .await
        .1;
    assert_eq!(listed.as_array().unwrap().len(), 1);
    let nobody = ["admin", "witness", "withdraw", "999"];
    assert_eq!(run(&world.databases, &nobody).await.status.code(), Some(4));
    let badly = ["admin", "witness", "add", "x"];
    assert_eq!(run(&world.databases, &badly).await.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread")]
async fn arbiters_ties() {
    let world = settled().await;
    let made = [
        "admin", "user", "create", "judge", "--role", "arbiter", "--json",
    ];
    let made = run_with(&world.databases, &made, "correct horse battery\n").await;
    let user: Value = serde_json::from_slice(&made.stdout).unwrap();
    let user = user["id"].as_str().unwrap();
    let broker = world.alpha.to_string();
    let tie = [
        "admin",
        "arbiter",
        "tie",
        user,
        &broker,
        "--reason",
        "was its clerk",
    ];
    let (code, tied) = json(&world.databases, &tie).await;
    assert_eq!((code, &tied["user_id"]), (Some(0), &user.into()), "{tied}");
    let listed = json(&world.databases, &["admin", "arbiter", "ties"])
        .await
        .1;
    assert_eq!(listed[0]["reason"], "was its clerk");
    let id = tied["id"].to_string();
    let ended = json(&world.databases, &["admin", "arbiter", "untie", &id])
        .await
        .1;
    assert!(ended["ended_by"].is_string(), "{ended}");
    let nobody = [
        "admin",
        "arbiter",
        "tie",
        "US-000000000001",
        &broker,
        "--reason",
        "x",
    ];
    assert_eq!(run(&world.databases, &nobody).await.status.code(), Some(4));
}
