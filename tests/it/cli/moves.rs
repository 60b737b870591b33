use serde_json::json;
use settlenet::stores::migrate::{Kind, migrate};

use super::{json, run, stderr, stdout};
use crate::harness::{Child, Databases, MovedClock, SOON, World, until};

/// From the command line to the arrival, with a real worker.
#[tokio::test(flavor = "multi_thread")]
async fn a_broker_is_moved_and_waited_for() {
    let clock = MovedClock::new();
    let world = World::with_clock(clock.clock(chrono::Duration::zero())).await;
    let (databases, broker) = (&world.databases, world.gamma.to_string());
    let ask = async |args: &[&str]| json(databases, args).await;
    for server in ["a", "b"] {
        let (code, _) = ask(&["admin", "server", "add", server, "--capacity", "50"]).await;
        assert_eq!(code, Some(0));
    }
    for (to, what) in [
        ("somewhere", "it is shard, shard:NUMBER, own or own:SERVER"),
        ("shard:x", "it is shard, shard:NUMBER, own or own:SERVER"),
        ("own:", "it is shard, shard:NUMBER, own or own:SERVER"),
    ] {
        let told = run(databases, &["admin", "broker", "move", &broker, "--to", to]).await;
        assert_eq!(told.status.code(), Some(2));
        assert!(stderr(&told).contains(what), "{}", stderr(&told));
    }
    for (args, code) in [
        (["admin", "broker", "move", "7", "--to", "own"], 4),
        (["admin", "broker", "move", &broker, "--to", "shard:99"], 4),
        (["admin", "broker", "move", &broker, "--to", "shard:1"], 1),
        (["admin", "broker", "move", &broker, "--to", "own:c"], 1),
    ] {
        assert_eq!(
            run(databases, &args).await.status.code(),
            Some(code),
            "{args:?}"
        );
    }

    let (code, begun) = ask(&["admin", "broker", "move", &broker, "--to", "own:b"]).await;
    assert_eq!((code, &begun["state"]), (Some(0), &json!("preparing")));
    let id = begun["id"].as_str().unwrap();
    let (_, cancelled) = ask(&["admin", "move", "cancel", id]).await;
    assert_eq!(cancelled["id"], id);
    let _worker = Child::worker(&world, &clock, "");
    let wait = [
        "admin", "broker", "move", &broker, "--to", "own:b", "--wait",
    ];
    let mut waited = run(databases, &wait).await;
    // Until the worker has given up the one before, there is one that goes on.
    until("the one before has ended", SOON, async || {
        let goes_on = stderr(&waited).contains("goes on");
        if goes_on {
            waited = run(databases, &wait).await;
        }
        !goes_on
    })
    .await;
    let text = stdout(&waited);
    assert_eq!(waited.status.code(), Some(0), "{}", stderr(&waited));
    assert!(
        text.contains("retained") && text.contains("root before"),
        "{text}"
    );

    let (_, all) = ask(&["admin", "move", "list", "--broker", &broker]).await;
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!(all[1]["state"], "cancelled");
    let arrived = all[0]["id"].as_str().unwrap();
    let (_, shown) = ask(&["admin", "move", "show", arrived]).await;
    assert_eq!(shown["proof"]["root_before"], shown["proof"]["root_after"]);
    let back = run(databases, &["admin", "move", "reverse", arrived, "--wait"]).await;
    assert_eq!(
        back.status.code(),
        Some(1),
        "shard 1 has no number: {}",
        stdout(&back)
    );
    assert!(
        stderr(&back).contains("is not the shard"),
        "{}",
        stderr(&back)
    );
    let unsaid = run(databases, &["admin", "move", "abandon", arrived]).await;
    assert_eq!(unsaid.status.code(), Some(2), "it wants a reason");
    let because = ["admin", "move", "abandon", arrived, "--reason", "lost"];
    let refused = run(databases, &because).await;
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        stderr(&refused).contains("the move is done"),
        "{}",
        stderr(&refused)
    );
    let listed = run(databases, &["admin", "move", "list"]).await;
    assert!(stdout(&listed).starts_with("id"));
    let none = run(
        databases,
        &[
            "admin",
            "move",
            "show",
            "00000000-0000-4000-8000-000000000000",
        ],
    );
    assert_eq!(none.await.status.code(), Some(4));
}

/// A network without brokers has no moves.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_none_at_first() {
    let databases = Databases::new().await;
    migrate(databases.master_url(), Kind::Master).await.unwrap();
    let (code, none) = json(&databases, &["admin", "move", "list"]).await;
    assert_eq!((code, none), (Some(0), json!([])));
}
