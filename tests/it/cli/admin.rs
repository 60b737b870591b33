use serde_json::{Value, json};
use settlenet::stores::migrate::{Kind, migrate};

use super::{json, run, run_with, stderr, stdout};
use crate::harness::{Databases, World};

/// From a master with nothing in it to a network with people, by the commands of the help.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_is_set_up() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let ask = async |args: &[&str]| json(&databases, args).await;

    let (code, _) = ask(&["admin", "broker", "create", "Early"]).await;
    assert_eq!(code, Some(1), "there is no shard yet");
    let server = ["admin", "server", "add", "b", "--capacity", "5"];
    for _ in 0..2 {
        let (code, server) = ask(&server).await;
        assert_eq!((code, &server["databases"]), (Some(0), &json!(0)));
    }
    let database = format!("{}shard_1", databases.prefix);
    let shard = [
        "admin",
        "shard",
        "create",
        "--server",
        "a",
        "--database",
        &database,
        "--capacity",
        "5",
    ];
    for _ in 0..2 {
        let (code, shard) = ask(&shard).await;
        assert_eq!((code, &shard["accepts_new"]), (Some(0), &json!(true)));
    }

    let (_, alpha) = ask(&["admin", "broker", "create", "Alpha", "--plan", "pro"]).await;
    let place = format!("{}tenant_{}", databases.prefix, alpha["id"]);
    assert_eq!(alpha["database_name"], place);
    let again = ask(&["admin", "broker", "create", " Alpha ", "--plan", "pro"]).await;
    assert_eq!(again, (Some(0), alpha.clone()));
    let other = run(&databases, &["admin", "broker", "create", "Alpha"]).await;
    assert_eq!(other.status.code(), Some(1));
    assert!(stderr(&other).contains("there is a broker of this name"));
    let id = alpha["id"].to_string();
    let gamma = ["admin", "broker", "create", "Gamma", "--referred-by", &id];
    let (_, gamma) = ask(&gamma).await;
    assert_eq!(
        (&gamma["broker_mode"], &gamma["referred_by_broker_id"]),
        (&json!("SOLO"), &alpha["id"])
    );

    let listed = run(&databases, &["admin", "broker", "list"]).await;
    let listed = stdout(&listed);
    assert!(listed.starts_with("id"), "{listed}");
    assert_eq!(listed.lines().count(), 3);
    for (verb, state) in [("pause", "suspended"), ("resume", "active")] {
        let reason = ["admin", verb, "broker", &id, "--reason", "an audit"];
        let (code, pause) = ask(&reason).await;
        assert_eq!((code, &pause["broker_id"]), (Some(0), &alpha["id"]));
        let (_, broker) = ask(&["admin", "broker", "show", &id]).await;
        assert_eq!(broker["state"], state);
    }
    let (_, shards) = ask(&["admin", "shard", "list"]).await;
    assert_eq!(shards[0]["brokers"], 1);
    let (_, servers) = ask(&["admin", "server", "list"]).await;
    assert_eq!(servers[0]["databases"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_network_is_paused_and_resumed() {
    let world = World::new().await;
    let ask = async |args: &[&str]| json(&world.databases, args).await;
    let currency = world.currency.as_str();
    for what in [&["network"][..], &["currency", currency]] {
        let pause = [&["admin", "pause"], what, &["--reason", "a drill"]].concat();
        let (code, paused) = ask(&pause).await;
        assert_eq!((code, &paused["reason"]), (Some(0), &json!("a drill")));
        assert!(paused["paused_by"].as_str().unwrap().starts_with("cli"));
        let again = run(&world.databases, &pause).await;
        assert!(stderr(&again).contains("was paused already"));
        let (_, listed) = ask(&["admin", "pause", "list"]).await;
        assert_eq!(listed[0], paused);
        let resume = [&["admin", "resume"], what, &["--reason", "over"]].concat();
        let (code, ended) = ask(&resume).await;
        assert_eq!((code, &ended["lift_reason"]), (Some(0), &json!("over")));
        assert_eq!(ask(&resume).await, (Some(0), Value::Null));
    }
    assert_eq!(ask(&["admin", "pause", "list"]).await.1, json!([]));
    let (_, all) = ask(&["admin", "pause", "list", "--all"]).await;
    assert_eq!(all.as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn people_get_their_password_from_standard_input() {
    let world = World::new().await;
    let broker = world.alpha.to_string();
    let of_alpha = [
        "admin",
        "user",
        "create",
        "Anna",
        "--role",
        "broker_admin",
        "--broker",
        &broker,
    ];
    let made = run_with(&world.databases, &of_alpha, "correct horse battery\n").await;
    assert!(made.status.success(), "{}", stderr(&made));
    assert!(stdout(&made).contains("login   anna"), "{}", stdout(&made));
    let again = run_with(&world.databases, &of_alpha, "correct horse battery\n").await;
    assert_eq!(again.status.code(), Some(1));
    assert!(stderr(&again).contains("the login is taken"));
    let root = [
        "admin",
        "user",
        "create",
        "root",
        "--role",
        "platform_admin",
    ];
    for (input, what) in [("", "first line"), ("short\n", "at least 12")] {
        let refused = run_with(&world.databases, &root, input).await;
        assert_eq!(refused.status.code(), Some(1));
        assert!(stderr(&refused).contains(what), "{}", stderr(&refused));
    }
    let made = run_with(&world.databases, &root, "correct horse battery\r\n").await;
    assert!(made.status.success(), "{}", stderr(&made));

    // A role goes with a broker or without one.
    let wrong = ["admin", "user", "create", "bob", "--role", "broker_admin"];
    let wrong = run_with(&world.databases, &wrong, "correct horse battery").await;
    assert!(
        stderr(&wrong).contains("belongs to a broker"),
        "{}",
        stderr(&wrong)
    );
    let logins: Vec<String> = sqlx::query_scalar("SELECT login FROM user ORDER BY login")
        .fetch_all(&world.app.systems.master)
        .await
        .unwrap();
    assert_eq!(logins, ["anna", "root"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_there_is_not_and_what_is_wrong() {
    let world = World::new().await;
    let nobody = "00000000-0000-0000-0000-000000000001";
    for args in [
        &["admin", "broker", "show", "7"][..],
        &["admin", "pause", "broker", "7", "--reason", "x"],
        &["admin", "resume", "broker", "7"],
        &["admin", "pause", "currency", "NONE", "--reason", "x"],
        &["admin", "broker", "create", "New", "--referred-by", "7"],
        &[
            "admin",
            "user",
            "create",
            "anna",
            "--role",
            "broker_admin",
            "--broker",
            "7",
        ],
        &["admin", "broker", "plan", "7", "pro"],
        &["admin", "invite", "create", "--broker", "7"],
        &["admin", "invite", "revoke", "IV-000000000001"],
        &["admin", "domain", "activate", "7", "desk.example"],
        &["admin", "domain", "release", "7"],
        &["admin", "saga", "show", nobody],
        &["admin", "saga", "retry", nobody],
        &["admin", "alert", "resolve", "7"],
    ] {
        let output = run(&world.databases, args).await;
        assert_eq!(
            output.status.code(),
            Some(4),
            "{args:?} {}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("there is no "), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    for args in [
        &["admin", "broker", "show", "x"][..],
        &["admin", "broker", "create", "New", "--plan", "gold"],
        &["admin", "broker", "plan", "1", "gold"],
        &["admin", "invite", "revoke", "NR-000000000001"],
        &["admin", "saga", "list", "--status", "lost"],
        &["admin", "server", "add", "b", "--capacity", "0"],
        &["admin", "pause", "network"],
        &["admin", "pause", "currency", "usd", "--reason", "x"],
        &["admin", "user", "create", "anna"],
        &["admin", "saga", "show", "NR-1"],
        &["admin"],
    ] {
        let output = run(&world.databases, args).await;
        assert_eq!(output.status.code(), Some(2), "{args:?}");
    }
    let unknown = ["admin", "server", "add", "nowhere", "--capacity", "1"];
    let unknown = run(&world.databases, &unknown).await;
    assert_eq!(unknown.status.code(), Some(1));
    assert!(stderr(&unknown).contains("servers.nowhere.url"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_saga_is_shown_and_put_back() {
    let world = super::settled().await;
    let master = &world.app.systems.master;
    let (_, sagas) = json(&world.databases, &["admin", "saga", "list"]).await;
    let saga = &sagas[0];
    assert_eq!(
        (sagas.as_array().unwrap().len(), &saga["status"]),
        (1, &json!("completed"))
    );
    let id = saga["id"].as_str().unwrap();

    let (code, shown) = json(&world.databases, &["admin", "saga", "show", id]).await;
    assert_eq!((code, &shown["saga_id"]), (Some(0), &saga["id"]));
    assert_eq!(shown["compensate_would"], "nothing: the saga has ended");
    let steps = shown["steps"].as_array().unwrap();
    let posted = steps
        .iter()
        .any(|step| step["shows"]["transfer"] == "posted");
    assert!(posted, "{shown}");
    let text = run(&world.databases, &["admin", "saga", "show", id]).await;
    assert!(
        stdout(&text).contains("\nretry would       nothing"),
        "{}",
        stdout(&text)
    );
    for verb in ["retry", "compensate"] {
        let ended = run(&world.databases, &["admin", "saga", verb, id]).await;
        assert!(ended.status.success());
        assert!(stderr(&ended).contains("nothing has changed"));
    }

    let sql = "UPDATE saga SET status = 'stuck', direction = 'undecided'";
    sqlx::query(sql).execute(master).await.unwrap();
    let (_, stuck) = json(
        &world.databases,
        &["admin", "saga", "list", "--status", "stuck"],
    )
    .await;
    assert_eq!(stuck[0]["id"], saga["id"]);
    let (code, shown) = json(&world.databases, &["admin", "saga", "retry", id]).await;
    assert_eq!((code, &shown["status"]), (Some(0), &json!("running")));
    let (_, shown) = json(&world.databases, &["admin", "saga", "compensate", id]).await;
    assert!(
        shown["compensate_would"]
            .as_str()
            .unwrap()
            .starts_with("ask the ledger")
    );
    let (_, sagas) = json(&world.databases, &["admin", "saga", "list"]).await;
    assert_eq!(sagas[0]["compensation_requested"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_are_listed_and_resolved() {
    let world = World::new().await;
    let sql = "INSERT INTO alert (kind, subject, message, details, created_at) \
               VALUES ('saga_stuck', 'NR-000000000001', 'look', '{}', '2026-01-01')";
    let master = &world.app.systems.master;
    sqlx::query(sql).execute(master).await.unwrap();
    let (_, alerts) = json(&world.databases, &["admin", "alert", "list"]).await;
    assert_eq!(alerts[0]["message"], "look");
    let id = alerts[0]["id"].to_string();
    for resolved in [true, false] {
        let (code, answer) = json(&world.databases, &["admin", "alert", "resolve", &id]).await;
        assert_eq!((code, &answer["resolved"]), (Some(0), &json!(resolved)));
    }
    let (_, open) = json(&world.databases, &["admin", "alert", "list"]).await;
    assert_eq!(open, json!([]));
    let (_, all) = json(&world.databases, &["admin", "alert", "list", "--all"]).await;
    assert_ne!(all[0]["resolved_at"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn plans_are_changed_or_what_is_in_the_way_is_said() {
    let world = World::new().await;
    let (gamma, ask) = (world.gamma.to_string(), async |args: &[&str]| {
        json(&world.databases, args).await
    });
    let plan = ["admin", "broker", "plan", &gamma];
    for to in ["growth", "starter", "starter", "pro"] {
        let (code, broker) = ask(&[&plan[..], &[to]].concat()).await;
        assert_eq!((code, &broker["plan"]), (Some(0), &json!(to)));
        assert_eq!(broker["plan_wanted"], Value::Null);
        assert_eq!(broker["broker_mode"], "SOLO", "its book has not moved");
    }
    world
        .app
        .domains
        .claim(world.gamma, "desk.example")
        .await
        .unwrap();
    let refused = run(&world.databases, &[&plan[..], &["growth"]].concat()).await;
    assert_eq!(refused.status.code(), Some(1));
    let said = stderr(&refused);
    assert!(
        said.contains("for the plan growth: release the domain desk.example"),
        "{said}"
    );

    let (_, waiting) = ask(&["admin", "domain", "list", "--waiting"]).await;
    assert_eq!(waiting[0]["host"], "desk.example");
    let other = ["admin", "domain", "activate", &gamma, "other.example"];
    assert_eq!(run(&world.databases, &other).await.status.code(), Some(1));
    let (code, active) = ask(&["admin", "domain", "activate", &gamma, "desk.example"]).await;
    assert_eq!((code, &active["state"]), (Some(0), &json!("active")));
    let (_, waiting) = ask(&["admin", "domain", "list", "--waiting"]).await;
    assert_eq!(waiting, json!([]));
    let listed = run(&world.databases, &["admin", "domain", "list"]).await;
    assert!(
        stdout(&listed).contains("desk.example  active"),
        "{}",
        stdout(&listed)
    );
    assert_eq!(
        ask(&["admin", "domain", "release", &gamma]).await.0,
        Some(0)
    );
    let (code, broker) = ask(&[&plan[..], &["growth"]].concat()).await;
    assert_eq!((code, &broker["plan"]), (Some(0), &json!("growth")));
}

#[tokio::test(flavor = "multi_thread")]
async fn invitations_are_made_listed_and_revoked() {
    let world = World::new().await;
    let ask = async |args: &[&str]| json(&world.databases, args).await;
    let alpha = world.alpha.to_string();
    let of_alpha = [
        "admin", "invite", "create", "--broker", &alpha, "--uses", "2", "--note", "for Ivan",
    ];
    let (code, made) = ask(&of_alpha).await;
    assert_eq!((code, &made["broker_id"]), (Some(0), &json!(world.alpha)));
    assert!(made["code"].as_str().unwrap().starts_with("sni_"));
    let (_, other) = ask(&of_alpha).await;
    assert_ne!(
        (&other["id"], &other["code"]),
        (&made["id"], &made["code"]),
        "another one"
    );
    assert_eq!(
        ask(&["admin", "invite", "create", "--days", "1"]).await.0,
        Some(0)
    );
    for bad in ["--uses", "--days"] {
        let refused = run(&world.databases, &["admin", "invite", "create", bad, "0"]).await;
        assert_eq!(refused.status.code(), Some(1));
        assert!(
            stderr(&refused).contains("an invitation"),
            "{}",
            stderr(&refused)
        );
    }
    assert_eq!(
        ask(&["admin", "invite", "list"])
            .await
            .1
            .as_array()
            .unwrap()
            .len(),
        3
    );
    let (_, own) = ask(&["admin", "invite", "list", "--broker", &alpha]).await;
    assert_eq!(own.as_array().unwrap().len(), 2);
    assert!(own[0].get("code").is_none());
    let id = made["id"].as_str().unwrap();
    let (code, revoked) = ask(&["admin", "invite", "revoke", id]).await;
    assert!(
        code == Some(0) && revoked["revoked_at"].is_string(),
        "{revoked}"
    );
    let text = run(&world.databases, &["admin", "invite", "list"]).await;
    assert!(stdout(&text).contains("0 of 2"), "{}", stdout(&text));
}

/// What is no amount and what is no key is the command line's fault, before anything is asked.
#[tokio::test(flavor = "multi_thread")]
async fn a_funding_that_can_not_be_meant_is_a_wrong_command_line() {
    let world = World::new().await;
    let wallet = format!("merchant.{}.{}", world.alpha, world.currency);
    let fund = ["admin", "wallet", "fund", wallet.as_str()];
    let long = "x".repeat(129);
    for (amount, key) in [
        ("x", "k"),
        ("-1", "k"),
        ("1.001", "k"),
        ("1.00", ""),
        ("1.00", "a b"),
        ("1.00", long.as_str()),
    ] {
        let amount = format!("--amount={amount}");
        let args = [&fund[..], &[amount.as_str(), "--key", key]].concat();
        let told = run(&world.databases, &args).await;
        assert_eq!(told.status.code(), Some(2), "{args:?}: {}", stderr(&told));
    }
}
