//! Lists that are put together of several reads go on where a page has ended.

use chrono::Duration;
use serde_json::Value;

use super::Api;

/// Every id of a list, a row at a time.
async fn walk(api: &Api, list: &str, token: &str) -> Vec<Value> {
    let mut ids = Vec::new();
    let mut path = format!("{list}?limit=1");
    loop {
        let page = api.get(&path, token).await;
        assert_eq!(page.status, 200, "{path} {}", page.text);
        ids.extend(page.items().iter().map(|item| item["id"].clone()));
        match page.body["next_cursor"].as_str() {
            Some(cursor) => path = format!("{list}?limit=1&cursor={cursor}"),
            None => return ids,
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_a_list_whatever_was_made_in_one_moment() {
    let api = Api::new().await;
    let world = &api.world;
    for number in 0..4 {
        // Two in one moment, so that their ids decide.
        if number == 2 {
            world.clock.advance(Duration::microseconds(1));
        }
        let id = world.sent(world.alpha, world.beta).await;
        world.confirm(id).await.unwrap();
    }
    let (alpha, platform) = (api.admin_of(world.alpha).await, api.platform().await);
    for (list, token) in [
        ("/v1/network/requests", &alpha),
        ("/v1/obligations", &alpha),
        ("/v1/admin/sagas", &platform),
    ] {
        let whole = api.get(list, token).await;
        let ids: Vec<Value> = whole
            .items()
            .iter()
            .map(|item| item["id"].clone())
            .collect();
        assert_eq!(ids.len(), 4, "{list} {}", whole.text);
        assert_eq!(walk(&api, list, token).await, ids, "{list}");
    }
}
