//! Export and import as an operator runs them, killed between any two of their steps.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _};

use super::{json, run, run_env, stderr};
use crate::harness::{World, assert_invariants};

/// A folder of the test's own, removed with what is in it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("book-files-{}", uuid::Uuid::new_v4());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap().flatten();
        entries
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

async fn lose(world: &World) {
    let url = world.databases.shard_url();
    let mut database = sqlx::MySqlConnection::connect(url.expose()).await.unwrap();
    for table in [
        "book_fence",
        "chain_head",
        "account",
        "reservation",
        "saga_step",
        "idempotency_key",
        "feed_event",
        "transaction",
    ] {
        let sql = format!("DELETE FROM {table} WHERE broker_id = {}", world.gamma);
        sqlx::query(AssertSqlSafe(sql))
            .execute(&mut database)
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_book_goes_out_and_in_whoever_is_killed() {
    let world = super::settled().await;
    let folder = Folder::new();
    let (file, id) = (folder.file("gamma.jsonl"), world.gamma.to_string());
    let export = ["admin", "broker", "export", &id, "--out", &file];
    let killed = run_env(
        &world.databases,
        &export,
        &[("SETTLENET_FAILPOINTS", "export.lines=kill")],
    )
    .await;
    assert_eq!(killed.status.signal(), Some(9), "{}", stderr(&killed));
    assert_eq!(
        folder.names(),
        ["gamma.jsonl.part"],
        "nothing is called by the name"
    );
    let (code, exported) = json(&world.databases, &export).await;
    assert_eq!((code, &exported["head"]["seq"]), (Some(0), &json!("1")));
    assert_eq!(folder.names(), ["gamma.jsonl"]);
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "personal data");
    let again = run(&world.databases, &export).await;
    assert!(
        stderr(&again).contains("is there already"),
        "{}",
        stderr(&again)
    );
    let check = ["admin", "broker", "import", &file, "--check"];
    assert_eq!(
        json(&world.databases, &check).await,
        (Some(0), exported.clone())
    );

    let import = ["admin", "broker", "import", &file];
    for told in [
        "import.closed=kill",
        "import.cleared=kill",
        "import.written=kill",
        // Closing and opening the book.
        "fence.before=1*kill",
        "fence.after=1*kill",
        "fence.before=2*kill",
        "fence.after=2*kill",
    ] {
        lose(&world).await;
        let env = [("SETTLENET_FAILPOINTS", told)];
        let killed = run_env(&world.databases, &import, &env).await;
        assert_eq!(
            killed.status.signal(),
            Some(9),
            "{told}: {}",
            stderr(&killed)
        );
        let (code, imported) = json(&world.databases, &import).await;
        assert_eq!(
            (code, &imported["digest"]),
            (Some(0), &exported["digest"]),
            "{told}"
        );
        assert_invariants(&world).await;
    }
    let nobody = ["admin", "broker", "export", "7", "--out", &folder.file("x")];
    let nobody = run(&world.databases, &nobody).await;
    assert_eq!(nobody.status.code(), Some(4), "{}", stderr(&nobody));
    assert_eq!(folder.names(), ["gamma.jsonl"], "and nothing is left of it");
}
