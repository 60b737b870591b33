use serde_json::json;

use super::{json, run, stderr, stdout};
use crate::harness::World;
use crate::netting::{approve_all, debts, network};

#[tokio::test(flavor = "multi_thread")]
async fn a_round_from_the_command_line() {
    let world = network().await;
    let brokers = &world.brokers;
    debts(
        &world,
        &[
            (brokers[0], brokers[1], 500),
            (brokers[1], brokers[2], 300),
            (brokers[2], brokers[0], 400),
        ],
    )
    .await;
    let (databases, code) = (&world.databases, world.currency.as_str());
    let netting =
        async |args: &[&str]| json(databases, &[&["admin", "netting"], args].concat()).await;
    let without = brokers[2].to_string();
    let args = ["preview", "--currency", code, "--without", &without];
    let (ended, preview) = netting(&args).await;
    assert_eq!(ended, Some(0));
    assert_eq!(preview["clearing"]["cleared"], "9.00");
    assert_eq!(preview["without"]["adds"], "9.00");
    let (ended, proposed) = netting(&["propose", "--currency", code]).await;
    assert_eq!((ended, &proposed["status"]), (Some(0), &json!("proposed")));
    assert_eq!(proposed["answers"]["asked"], 3);
    let id = proposed["id"].as_str().unwrap();
    let twice = run(
        databases,
        &["admin", "netting", "propose", "--currency", code],
    )
    .await;
    assert_eq!(twice.status.code(), Some(1));
    assert!(stderr(&twice).contains(id), "{}", stderr(&twice));
    approve_all(&world, id.parse().unwrap()).await;
    let (_, shown) = netting(&["show", id]).await;
    assert_eq!(shown["status"], "applied");
    let (_, list) = netting(&["list"]).await;
    assert_eq!(list.as_array().unwrap().len(), 1);
    let text = stdout(&run(databases, &["admin", "netting", "list"]).await);
    assert!(text.contains("applied") && text.contains("9.00"), "{text}");

    let file = std::env::temp_dir().join(format!("{id}.netting"));
    let path = file.to_str().unwrap();
    let (ended, _) = netting(&["certificate", id, "--out", path]).await;
    assert_eq!(ended, Some(0));
    let (ended, verified) = json(databases, &["verify", "netting", path]).await;
    assert_eq!((ended, &verified["holds"]), (Some(0), &json!(true)));
    assert_eq!(verified["round"], id);
    let printed = run(databases, &["admin", "netting", "certificate", id]).await;
    assert_eq!(printed.stdout, std::fs::read(&file).unwrap());
    std::fs::remove_file(&file).unwrap();

    let (ended, _) = netting(&["cancel", id]).await;
    assert_eq!(ended, Some(1), "it is applied");
    for args in [
        &["show", "MN-000000000001"][..],
        &["cancel", "MN-000000000001"],
        &["certificate", id, "--revision", "9"],
    ] {
        assert_eq!(netting(args).await.0, Some(4), "{args:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_said_why_there_is_no_round() {
    let world = World::new().await;
    let code = world.currency.as_str();
    let args = ["admin", "netting", "propose", "--currency", code];
    let few = run(&world.databases, &args).await;
    assert_eq!(few.status.code(), Some(1));
    assert!(
        stderr(&few).contains("once 10 brokers are active; 4 are"),
        "{}",
        stderr(&few)
    );
    let args = ["admin", "netting", "preview", "--currency", code];
    let text = stdout(&run(&world.databases, &args).await);
    assert!(
        text.contains("no: 4 brokers are active, 10 must be"),
        "{text}"
    );
}
