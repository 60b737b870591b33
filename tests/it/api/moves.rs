//! Moves over REST.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{Answer, Api};

/// The servers of a world are there, and one more shard on `b`.
async fn with_places(api: &Api) -> u32 {
    let world = &api.world;
    let (places, now) = (&world.app.provisioning, world.clock.now());
    for server in ["a", "b"] {
        places
            .register_server(server, 100, None, now)
            .await
            .unwrap();
    }
    let database = format!("{}second", world.databases.prefix);
    let made = Box::pin(places.create_shard("b", &database, 100, None, now)).await;
    made.unwrap().shard_id
}

async fn turn(api: &Api) {
    let engine = &api.world.app.move_engine;
    for claim in engine.claim(10).await.unwrap() {
        engine.run(claim, &CancellationToken::new()).await;
    }
}

fn id(answer: &Answer) -> String {
    answer.body["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_move_is_begun_followed_reversed_and_purged() {
    let api = Api::new().await;
    let second = with_places(&api).await;
    let (admin, gamma) = (api.platform().await, api.world.gamma);
    let path = format!("/v1/admin/brokers/{gamma}/move");
    let key = Uuid::new_v4().to_string();
    let body = json!({ "shard": { "id": second } });
    let begun = api.post_as(&path, &admin, Some(&key), body.clone()).await;
    assert_eq!(begun.status, 202, "{}", begun.text);
    assert_eq!(begun.body["state"], "preparing");
    assert_eq!(begun.body["to"]["shard_id"], second);
    let again = api.post_as(&path, &admin, Some(&key), body).await;
    assert_eq!((again.status, id(&again)), (202, id(&begun)));
    let other = api
        .post_as(&path, &admin, Some(&key), json!({ "own": {} }))
        .await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));
    let goes_on = api.post(&path, &admin, json!({ "own": {} })).await;
    assert_eq!(goes_on.problem(), (409, "conflict"));
    assert_eq!(goes_on.body["move_id"], begun.body["id"]);

    turn(&api).await;
    let this = format!("/v1/admin/moves/{}", id(&begun));
    let arrived = api.get(&this, &admin).await;
    assert_eq!(arrived.body["state"], "retained", "{}", arrived.text);
    let proof = &arrived.body["proof"];
    assert_eq!(proof["root_before"], proof["root_after"]);
    assert!(proof["head"].as_str().unwrap().starts_with("0:"));
    assert!(arrived.body["pause_us"].as_u64().unwrap() > 0);
    assert!(arrived.body["purge_at"].is_string());
    let placed = api.get(&format!("/v1/admin/brokers/{gamma}"), &admin).await;
    assert_eq!(placed.body["shard_id"], second);
    let late = api.post(&format!("{this}/cancel"), &admin, json!({})).await;
    assert_eq!(late.problem(), (409, "conflict"));

    // FULL next; what it left in the shard is deleted at once.
    let own = api
        .post(&path, &admin, json!({ "own": { "server_name": "b" } }))
        .await;
    turn(&api).await;
    let own = format!("/v1/admin/moves/{}", id(&own));
    let placed = api.get(&format!("/v1/admin/brokers/{gamma}"), &admin).await;
    assert_eq!(placed.body["broker_mode"], "FULL");
    let purged = api.post(&format!("{own}/purge"), &admin, json!({})).await;
    assert_eq!(purged.status, 200, "{}", purged.text);
    turn(&api).await;
    assert_eq!(api.get(&own, &admin).await.body["state"], "done");
    let gone = api.post(&format!("{own}/reverse"), &admin, json!({})).await;
    assert_eq!(gone.problem(), (409, "conflict"));

    // What the first has left is given up, with the reason kept; deleted, it is gone.
    let abandon = format!("{this}/abandon");
    let lost = json!({ "reason": "its disk is gone" });
    let unsaid = api.post(&abandon, &admin, json!({ "reason": "" })).await;
    assert_eq!((unsaid.status, unsaid.fields()), (422, vec!["reason"]));
    let given_up = api.post(&abandon, &admin, lost.clone()).await;
    assert_eq!(given_up.body["state"], "abandoned", "{}", given_up.text);
    assert_eq!(given_up.body["abandoned_because"], lost["reason"]);
    let purged = api.post(&format!("{this}/purge"), &admin, json!({})).await;
    assert_eq!(purged.status, 200, "{}", purged.text);
    turn(&api).await;
    assert_eq!(api.get(&this, &admin).await.body["state"], "done");
    let late = api.post(&abandon, &admin, lost).await;
    assert_eq!(late.problem(), (409, "conflict"));

    let all = api.get("/v1/admin/moves", &admin).await;
    assert_eq!(all.items().len(), 2);
    let page = api.get("/v1/admin/moves?limit=1", &admin).await;
    let next = page.body["next_cursor"].as_str().unwrap();
    let next = api
        .get(&format!("/v1/admin/moves?limit=1&cursor={next}"), &admin)
        .await;
    assert_eq!(next.items()[0]["id"], all.items()[1]["id"]);
    let none = api
        .get(
            &format!("/v1/admin/moves?broker_id={}", api.world.alpha),
            &admin,
        )
        .await;
    assert!(none.items().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_move_is_told_by_field() {
    let api = Api::new().await;
    with_places(&api).await;
    let (admin, gamma) = (api.platform().await, api.world.gamma);
    let path = format!("/v1/admin/brokers/{gamma}/move");
    for (body, field) in [
        (json!({}), "shard"),
        (json!({ "shard": {}, "own": {} }), "shard"),
        (json!({ "shard": { "id": 99 } }), "shard.id"),
        (json!({ "own": { "server_name": "c" } }), "own.server_name"),
        (json!({ "own": { "server": "b" } }), "own.server"),
        (json!({ "shard": { "id": -1 } }), "shard.id"),
        (json!({ "shard": [] }), "shard"),
    ] {
        let told = api.post(&path, &admin, body.clone()).await;
        assert_eq!(told.status, 422, "{body}: {}", told.text);
        assert_eq!(told.fields(), [field], "{body}");
    }
    let same = api
        .post(&path, &admin, json!({ "shard": { "id": 1 } }))
        .await;
    assert_eq!(same.problem(), (409, "conflict"));
    let unknown = api
        .post("/v1/admin/brokers/7/move", &admin, json!({ "own": {} }))
        .await;
    assert_eq!(unknown.problem(), (404, "not_found"));
    let without = api.post_as(&path, &admin, None, json!({ "own": {} })).await;
    assert_eq!(without.problem(), (400, "idempotency_key_missing"));
    for what in ["", "/cancel", "/retry", "/reverse", "/purge", "/abandon"] {
        let path = format!("/v1/admin/moves/{}{what}", Uuid::new_v4());
        let told = match what {
            "" => api.get(&path, &admin).await,
            "/abandon" => api.post(&path, &admin, json!({ "reason": "lost" })).await,
            _ => api.post(&path, &admin, Value::Null).await,
        };
        assert_eq!(told.problem(), (404, "not_found"), "{path}");
    }
    assert!(api.get("/v1/admin/moves", &admin).await.items().is_empty());
}
