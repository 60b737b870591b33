use std::path::Path;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::Api;
use crate::harness::until;

/// Every name that the program measures under stands in docs/metrics.md, and no other.
#[test]
fn all_names_are_documented() {
    fn sources(folder: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else {
                found.push(std::fs::read_to_string(path).unwrap());
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut texts = Vec::new();
    sources(&root.join("src"), &mut texts);
    let mut measured = Vec::new();
    for text in &texts {
        for kind in ["counter!(", "gauge!(", "histogram!("] {
            for part in text.split(&format!("metrics::{kind}")).skip(1) {
                let name = part.trim_start().strip_prefix('"').unwrap();
                measured.push(name.split('"').next().unwrap());
            }
        }
    }
    measured.sort_unstable();
    measured.dedup();
    let page = std::fs::read_to_string(root.join("docs/metrics.md")).unwrap();
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let mut documented: Vec<_> = rows.map(|row| row.split('`').next().unwrap()).collect();
    documented.sort_unstable();
    assert_eq!(documented, measured);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_state_of_sagas_outbox_and_pools_is_shown() {
    let api = Api::new().await;
    let world = &api.world;
    let id = world.sent(world.gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    let (mut workers, shutdown) = (JoinSet::new(), CancellationToken::new());
    settlenet::workers::measure(&mut workers, &world.app, &shutdown);
    // Other tests of this process measure too: what is looked for is this test's or anybody's.
    let pool = format!(
        "settlenet_pool_connections{{server=\"a\",database=\"{}\",state=\"idle\"}} ",
        world.databases.shard
    );
    let names = [
        &pool,
        "settlenet_sagas{status=\"stuck\"} ",
        "settlenet_outbox_depth ",
        "settlenet_outbox_oldest_seconds ",
        "settlenet_server_up{server=\"b\"} 1",
        "settlenet_server_connections{server=\"a\",state=\"in_use\"} ",
        "settlenet_server_wait_seconds_count{server=\"a\"} ",
        "settlenet_pool_connections{server=\"master\",database=\"master\",state=\"busy\"} ",
    ];
    until("all are shown", Duration::from_secs(20), async || {
        let shown = api.get("/metrics", "").await.text;
        names.iter().all(|name| shown.contains(*name))
    })
    .await;
    shutdown.cancel();
    workers.join_all().await;
}
