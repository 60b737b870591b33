use serde_json::json;

use super::{json, run, settled, stderr, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn a_sound_network_ends_with_0_and_a_break_with_1() {
    let world = settled().await;
    let sound = run(&world.databases, &["reconcile"]).await;
    assert_eq!(sound.status.code(), Some(0), "{}", stdout(&sound));
    let text = stdout(&sound);
    assert!(text.ends_with("Nothing is wrong.\n"), "{text}");
    assert!(
        text.contains(": 1 checked, 0 wrong, 0 could not be checked"),
        "{text}"
    );
    assert!(
        stderr(&sound).contains("invariant 7: 3 checked"),
        "{}",
        stderr(&sound)
    );

    let mut book = world.book_connection(world.gamma).await;
    let sql = "UPDATE account SET balance = balance + 1";
    sqlx::query(sql).execute(&mut book).await.unwrap();
    let broken = run(&world.databases, &["reconcile"]).await;
    assert_eq!(broken.status.code(), Some(1));
    let text = stdout(&broken);
    assert!(
        text.contains(&format!("   wrong: broker {}: account AC-", world.gamma)),
        "{text}"
    );
    assert!(text.ends_with("Not all is right.\n"), "{text}");
    let (code, report) = json(&world.databases, &["reconcile", "--only", "2"]).await;
    assert_eq!((code, &report["clean"]), (Some(1), &json!(false)));
    assert_eq!(report["invariants"].as_array().unwrap().len(), 1);
    assert_eq!(report["invariants"][0]["breaks_count"], 2);
    let (code, _) = json(&world.databases, &["reconcile", "--only", "1"]).await;
    assert_eq!(code, Some(0));
    let wrong = run(&world.databases, &["reconcile", "--only", "4"]).await;
    assert_eq!(wrong.status.code(), Some(2));
}
