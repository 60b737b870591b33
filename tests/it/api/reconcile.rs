use serde_json::json;

use super::Api;

const PATH: &str = "/v1/admin/reconcile";

#[tokio::test(flavor = "multi_thread")]
async fn an_admin_reconciles_and_sees_what_is_wrong() {
    let api = Api::new().await;
    let world = &api.world;
    let id = world.sent(world.gamma, world.delta).await;
    world.confirm(id).await.unwrap();
    let token = api.platform().await;
    let sound = api.get(PATH, &token).await;
    assert_eq!(
        (sound.status, &sound.body["clean"]),
        (200, &json!(true)),
        "{sound:?}"
    );
    let invariants = sound.body["invariants"].as_array().unwrap();
    let numbers: Vec<_> = invariants.iter().map(|one| &one["invariant"]).collect();
    assert_eq!(numbers, [1, 2, 3, 5, 7]);

    let mut book = world.book_connection(world.gamma).await;
    let change = "UPDATE account SET balance = balance + 1";
    sqlx::query(change).execute(&mut book).await.unwrap();
    let broken = api
        .get(&format!("{PATH}?invariant=2&findings=1"), &token)
        .await;
    assert_eq!(broken.body["clean"], false);
    let one = &broken.body["invariants"][0];
    assert_eq!(one["breaks_count"], 2);
    assert_eq!(one["breaks"].as_array().unwrap().len(), 1);
    assert!(
        one["breaks"][0]["subject"]
            .as_str()
            .unwrap()
            .starts_with("broker ")
    );

    for (query, field) in [
        ("invariant=4", "invariant"),
        ("findings=1001", "findings"),
        ("x=1", "x"),
    ] {
        let answer = api.get(&format!("{PATH}?{query}"), &token).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{query}"
        );
    }
    let alpha = api.admin_of(world.alpha).await;
    assert_eq!(
        api.get(PATH, &alpha).await.problem(),
        (403, "role_forbidden")
    );

    let turn = world.app.reconcile.turn().unwrap();
    let second = api.get(PATH, &token).await;
    assert_eq!(second.problem(), (409, "contended"));
    drop(turn);
    assert_eq!(api.get(PATH, &token).await.status, 200);
}

/// A real network's is the command line's: whoever asks is told at once.
#[tokio::test(flavor = "multi_thread")]
async fn a_network_too_large_for_an_answer_is_told_so() {
    let api = Api::new().await;
    let (world, token) = (&api.world, api.platform().await);
    assert!(world.app.reconcile.is_within(0, 4).await.unwrap());
    world.create(world.alpha, world.send(None)).await;
    assert!(world.app.reconcile.is_within(1, 4).await.unwrap());
    assert!(!world.app.reconcile.is_within(0, 4).await.unwrap());
    assert!(!world.app.reconcile.is_within(1, 3).await.unwrap());
    sqlx::query(
        "INSERT INTO broker (name, broker_mode, plan, state, created_at)
         SELECT CONCAT('crowd ', seq), 'SOLO', 'starter', 'active', NOW(6) FROM seq_1_to_500",
    )
    .execute(&world.app.systems.master)
    .await
    .unwrap();
    let answer = api.get(PATH, &token).await;
    assert_eq!(answer.problem(), (409, "too_much"));
}
