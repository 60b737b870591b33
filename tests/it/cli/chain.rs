use serde_json::json;
use settlenet::services::books::BooksService;
use sqlx::AssertSqlSafe;

use super::{json, run, settled, stdout};

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_chain_is_verified_against_its_head() {
    let world = settled().await;
    let books: &BooksService = &world.app.books;
    let head = books.head(world.gamma).await.unwrap().to_string();
    let broker = world.gamma.to_string();
    let verify = ["verify", "chain", "--broker", &broker];
    let whole = run(&world.databases, &verify).await;
    assert_eq!(whole.status.code(), Some(0));
    let expected =
        format!("The chain of broker {broker} holds.\nEntries: 1\nAccounts: 1\nHead: {head}\n");
    assert_eq!(stdout(&whole), expected);
    let known = [&verify[..], &["--head", &head]].concat();
    assert_eq!(run(&world.databases, &known).await.status.code(), Some(0));

    // The same chain as a file says the same, with no database at all.
    let mut lines = Vec::new();
    let exported = books.export(world.gamma, |line| {
        lines.extend_from_slice(line);
        Ok(())
    });
    exported.await.unwrap();
    let path = std::env::temp_dir().join(format!("{}chain", world.databases.prefix));
    std::fs::write(&path, lines).unwrap();
    let file = [
        "verify",
        "chain",
        "--file",
        path.to_str().unwrap(),
        "--head",
        &head,
    ];
    let offline = run(&world.databases, &file).await;
    std::fs::remove_file(&path).unwrap();
    assert_eq!(
        (offline.status.code(), stdout(&offline)),
        (Some(0), expected)
    );

    // A head that somebody else has seen, and this book no longer has.
    let other = format!("1:{}", "0".repeat(64));
    let later = format!("2:{}", "0".repeat(64));
    for (known, seq, problem) in [(&other, "1", "rewritten"), (&later, "2", "cut_tail")] {
        let args = [&verify[..], &["--head", known]].concat();
        let (code, found) = json(&world.databases, &args).await;
        assert_eq!((code, &found["problem"]), (Some(4), &json!(problem)));
        assert_eq!(found["first_bad_seq"], seq);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_chain_that_was_changed_is_found() {
    let world = settled().await;
    let id = world.sent(world.gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    let broker = world.gamma.to_string();
    let mut book = world.book_connection(world.gamma).await;
    let of = format!("WHERE broker_id = {broker}");
    for (change, back, seq, problem) in [
        (
            "transaction SET amount = amount + 1",
            "transaction SET amount = amount - 1",
            "1",
            "tx_hash",
        ),
        (
            "chain_head SET seq = seq + 1",
            "chain_head SET seq = seq - 1",
            "3",
            "cut_tail",
        ),
        (
            "chain_head SET seq = seq - 1",
            "chain_head SET seq = seq + 1",
            "1",
            "rewritten",
        ),
        (
            "transaction SET kind = CONCAT('x', kind)",
            "transaction SET kind = SUBSTR(kind, 2)",
            "1",
            "unreadable",
        ),
    ] {
        for (sql, expected) in [(change, Some(4)), (back, Some(0))] {
            let sql = format!("UPDATE {sql} {of}");
            sqlx::query(AssertSqlSafe(sql))
                .execute(&mut book)
                .await
                .unwrap();
            let args = ["verify", "chain", "--broker", &broker];
            let (code, found) = json(&world.databases, &args).await;
            assert_eq!(code, expected, "{change}: {found}");
            if code == Some(4) {
                assert_eq!(
                    (&found["first_bad_seq"], &found["problem"]),
                    (&json!(seq), &json!(problem))
                );
            }
        }
    }
    let unknown = run(&world.databases, &["verify", "chain", "--broker", "7"]).await;
    assert_eq!(
        unknown.status.code(),
        Some(1),
        "a book that is not there was not checked"
    );
    for args in [
        &["verify", "chain"][..],
        &["verify", "chain", "--broker", "1", "--after", "1:x"],
    ] {
        assert_eq!(run(&world.databases, args).await.status.code(), Some(2));
    }
}
