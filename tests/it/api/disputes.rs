//! Disputes over REST: the sides, the arbiter, and everybody else.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::domain::access::Role;
use settlenet::domain::bundle::verify::{Trust, verify};

use super::{Answer, Api};
use crate::harness::World;

fn claim(text: &str) -> Value {
    json!({ "claim": text })
}

#[tokio::test(flavor = "multi_thread")]
async fn from_a_claim_to_a_decision() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let arbiter = api.token(Role::Arbiter, None).await;
    let other = api.token(Role::Arbiter, None).await;
    let id = world.sent(world.alpha, world.beta).await;
    let side = |what: &str| format!("/v1/disputes/{id}/{what}");
    let hears = |what: &str| format!("/v1/arbiter/disputes/{id}{what}");
    let early = api.get(&hears(""), &arbiter).await;
    assert_eq!(early.problem(), (404, "not_found"), "not disputed");

    let dispute = format!("/v1/network/requests/{id}/dispute");
    let mut body = claim("nothing came");
    body["proof"] = json!([{ "type": "transfer_ref", "value": "none" }]);
    let opened = api.post(&dispute, &as_beta, body).await;
    assert_eq!(opened.body["status"], "disputed", "{}", opened.text);
    let listed = api.get("/v1/disputes", &as_alpha).await;
    assert_eq!(listed.items()[0]["status"], "open");
    assert_eq!(listed.items()[0]["against_broker_id"], json!(world.alpha));
    let said = json!({ "text": "handed to Ahmed" });
    let answered = api.post(&side("statements"), &as_alpha, said).await;
    assert_eq!(answered.body["due_at"], Value::Null, "{}", answered.text);

    let open = api.get("/v1/arbiter/disputes?status=open", &arbiter).await;
    assert_eq!(open.items().len(), 1);
    let shown = api.get(&hears(""), &arbiter).await;
    assert_eq!(shown.status, 200, "{}", shown.text);
    assert!(shown.text.contains("nothing came") && shown.text.contains("handed to Ahmed"));
    let decision = json!({ "verdict": "adjust", "amount": "9000.00", "reason": "the slip" });
    let not_taken = api
        .post(&hears("/decide"), &arbiter, decision.clone())
        .await;
    assert_eq!(not_taken.problem(), (403, "not_your_move"));
    let taken = api.post(&hears("/assign"), &arbiter, json!({})).await;
    assert_eq!(taken.body["status"], "heard", "{}", taken.text);
    let theirs = api.post(&hears("/assign"), &other, json!({})).await;
    assert_eq!(theirs.problem(), (403, "not_your_move"));
    let asked = json!({ "broker_id": world.alpha, "text": "which courier?" });
    let asked = api.post(&hears("/ask"), &arbiter, asked).await;
    assert!(asked.body["due_at"].is_string(), "{}", asked.text);
    let decided = api.post(&hears("/decide"), &arbiter, decision).await;
    assert_eq!(decided.body["status"], "over", "{}", decided.text);
    let request = format!("/v1/network/requests/{id}");
    let request = api.get(&request, &as_alpha).await;
    assert_eq!(request.body["status"], "completed");
    assert_eq!(request.body["received_amount"], "9000.00");
    crate::harness::assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_sees_or_does_anything() {
    let api = Api::new().await;
    let world = &api.world;
    let id = world.sent(world.alpha, world.beta).await;
    let as_alpha = api.admin_of(world.alpha).await;
    let dispute = format!("/v1/network/requests/{id}/dispute");
    api.post(&dispute, &as_alpha, claim("it is there")).await;
    let stranger = api.admin_of(world.gamma).await;
    let said = json!({ "text": "me too" });
    for what in ["statements", "appeal", "withdraw"] {
        let path = format!("/v1/disputes/{id}/{what}");
        let hidden = api.post(&path, &stranger, said.clone()).await;
        assert_eq!(hidden.problem(), (404, "not_found"), "{what}");
    }
    assert!(api.get("/v1/disputes", &stranger).await.items().is_empty());
    let (platform, arbiter) = (api.platform().await, api.token(Role::Arbiter, None).await);
    let shown = format!("/v1/arbiter/disputes/{id}");
    for token in [&platform, &as_alpha] {
        let refused = api.get(&shown, token).await;
        assert_eq!(refused.problem(), (403, "role_forbidden"));
    }
    let refused = api.get("/v1/disputes", &arbiter).await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
    api.post(&format!("{shown}/assign"), &arbiter, json!({}))
        .await;
    for (body, field) in [
        (json!({ "verdict": "maybe", "reason": "x" }), "verdict"),
        (json!({ "verdict": "adjust", "reason": "x" }), "amount"),
        (
            json!({ "verdict": "adjust", "amount": "10000.00", "reason": "x" }),
            "amount",
        ),
        (
            json!({ "verdict": "cancel", "amount": "1.00", "reason": "x" }),
            "amount",
        ),
        (json!({ "verdict": "cancel", "reason": "" }), "reason"),
    ] {
        let refused = api.post(&format!("{shown}/decide"), &arbiter, body).await;
        let named = (refused.status, refused.fields());
        assert_eq!(named, (422, vec![field]), "{}", refused.text);
    }
    let asked = json!({ "broker_id": world.gamma, "text": "you?" });
    let refused = api.post(&format!("{shown}/ask"), &arbiter, asked).await;
    assert_eq!(refused.fields(), ["broker_id"]);
}

/// A side has the evidence of its request, and the arbiter who hears it; nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn the_bundle_is_for_the_sides_and_for_who_hears_it() {
    let api = Api::new().await;
    let world = &api.world;
    let id = world.sent(world.alpha, world.beta).await;
    let as_alpha = api.admin_of(world.alpha).await;
    let path = format!("/v1/network/requests/{id}/bundle");
    let early = api.get(&path, &as_alpha).await;
    assert_eq!(early.problem(), (409, "not_logged"));
    let dispute = format!("/v1/network/requests/{id}/dispute");
    api.post(&dispute, &as_alpha, claim("it is there")).await;
    let (arbiter, other) = (
        api.token(Role::Arbiter, None).await,
        api.token(Role::Arbiter, None).await,
    );
    let hears = format!("/v1/arbiter/disputes/{id}/assign");
    api.post(&hears, &arbiter, json!({})).await;
    world.app.checkpoints.pass().await.unwrap();
    let log = world.app.checkpoints.log(None).await.unwrap();
    let keys = world.app.checkpoints.keys(&log).await.unwrap();
    let trust = Trust {
        keys: &keys,
        ..Trust::default()
    };
    let of_dispute = format!("/v1/arbiter/requests/{id}/bundle");
    let as_beta = api.admin_of(world.beta).await;
    for (path, token) in [
        (&path, &as_alpha),
        (&path, &as_beta),
        (&of_dispute, &arbiter),
    ] {
        let bundle = api.get(path, token).await;
        assert_eq!(bundle.status, 200, "{}", bundle.text);
        let report = verify(bundle.text.as_bytes(), &trust);
        assert!(report.holds, "{:?}", report.claims);
        assert_eq!(report.status, Some("disputed"));
    }
    let stranger = api.admin_of(world.gamma).await;
    for (path, token) in [(&path, &stranger), (&of_dispute, &other)] {
        assert_eq!(api.get(path, token).await.problem(), (404, "not_found"));
    }
    let as_order = format!("/v1/orders/{id}/bundle");
    assert_eq!(
        api.get(&as_order, &as_alpha).await.problem(),
        (404, "not_found")
    );
    for (path, token) in [(&path, &arbiter), (&of_dispute, &as_alpha)] {
        assert_eq!(
            api.get(path, token).await.problem(),
            (403, "role_forbidden")
        );
    }
}

/// An arbiter who is tied to a side sees nothing of its dispute and decides nothing in it, and what it
/// was hearing another takes over.
#[tokio::test(flavor = "multi_thread")]
async fn a_tied_arbiter_is_refused() {
    let api = Api::new().await;
    let world = &api.world;
    let platform = api.platform().await;
    let (first, second) = (
        api.token(Role::Arbiter, None).await,
        api.token(Role::Arbiter, None).await,
    );
    let id = world.sent(world.alpha, world.beta).await;
    let alpha = World::actor(world.alpha);
    let opened = world
        .app
        .network
        .dispute_request(&alpha, id, World::said("not so"));
    opened.await.unwrap();
    let at = |what: &str| format!("/v1/arbiter/disputes/{id}{what}");
    let taken = api.post(&at("/assign"), &first, json!({})).await;
    let me = taken.body["arbiter"].as_str().unwrap().to_owned();

    let body = json!({ "user_id": me, "broker_id": world.beta, "reason": "her brother's" });
    for _ in 0..2 {
        let tied = api
            .post("/v1/admin/arbiter-ties", &platform, body.clone())
            .await;
        assert_eq!(tied.status, 200, "{}", tied.text);
        assert_eq!(tied.body["reason"], "her brother's");
    }
    let list = api.get("/v1/admin/arbiter-ties", &platform).await;
    assert_eq!(list.items().len(), 1);
    let tie = list.items()[0]["id"].as_u64().unwrap();
    let decision = json!({ "verdict": "complete", "reason": "the slip says so" });
    for refused in [
        api.get(&at(""), &first).await,
        api.get(&format!("/v1/arbiter/requests/{id}/bundle"), &first)
            .await,
        api.post(&at("/assign"), &first, json!({})).await,
        api.post(&at("/decide"), &first, decision.clone()).await,
        api.post(
            &at("/ask"),
            &first,
            json!({ "broker_id": world.beta, "text": "?" }),
        )
        .await,
    ] {
        assert_eq!(
            refused.problem(),
            (403, "not_your_move"),
            "{}",
            refused.text
        );
    }
    let over = api.post(&at("/assign"), &second, json!({})).await;
    assert_eq!(over.status, 200, "{}", over.text);
    let decided = api.post(&at("/decide"), &second, decision.clone()).await;
    assert_eq!(decided.body["status"], "over", "{}", decided.text);

    // Of others' disputes it may hear; and of its broker's again once the tie has ended.
    let other = world.sent(world.gamma, world.delta).await;
    let gamma = World::actor(world.gamma);
    let opened = world
        .app
        .network
        .dispute_request(&gamma, other, World::said("not so"));
    opened.await.unwrap();
    let hears = format!("/v1/arbiter/disputes/{other}/assign");
    assert_eq!(api.post(&hears, &first, json!({})).await.status, 200);
    assert_eq!(api.post(&hears, &second, json!({})).await.problem().0, 403);
    let end = format!("/v1/admin/arbiter-ties/{tie}/end");
    for _ in 0..2 {
        let ended = api.post(&end, &platform, json!({})).await;
        assert!(ended.body["ended_at"].is_string(), "{}", ended.text);
    }
    assert_eq!(
        api.get("/v1/admin/arbiter-ties", &platform)
            .await
            .items()
            .len(),
        0
    );
    let all = api.get("/v1/admin/arbiter-ties?all=true", &platform).await;
    assert_eq!(all.items().len(), 1);
    assert_eq!(api.get(&at(""), &first).await.status, 200);

    for (field, wrong) in [
        (
            "user_id",
            json!({ "user_id": "US-000000000001", "broker_id": world.beta, "reason": "x" }),
        ),
        (
            "broker_id",
            json!({ "user_id": me, "broker_id": 3, "reason": "x" }),
        ),
        (
            "reason",
            json!({ "user_id": me, "broker_id": world.beta, "reason": " " }),
        ),
    ] {
        let refused = api.post("/v1/admin/arbiter-ties", &platform, wrong).await;
        assert_eq!((refused.status, refused.fields()), (422, vec![field]));
    }
    let nobody = api
        .post("/v1/admin/arbiter-ties/999999/end", &platform, json!({}))
        .await;
    assert_eq!(nobody.status, 404);
}

/// Whoever hears a dispute reads its files and sees whether the sides' books hold; nobody else does, and
/// of nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn who_hears_it_looks_at_files_and_chains() {
    let api = Api::new().await;
    let world = &api.world;
    let as_beta = api.admin_of(world.beta).await;
    let (arbiter, other) = (
        api.token(Role::Arbiter, None).await,
        api.token(Role::Arbiter, None).await,
    );
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    let upload = async |key: &'static str, content: &'static str| {
        let request = Request::post("/v1/uploads")
            .header("authorization", format!("Bearer {as_beta}"))
            .header("idempotency-key", key)
            .header("content-type", "application/pdf");
        api.send(request.body(Body::from(content)).unwrap()).await
    };
    let slip = upload("slip", "%PDF-1.7 counterfeit").await;
    let secret = upload("secret", "%PDF-1.7 of another matter").await;
    let mut body = claim("counterfeit notes");
    body["proof"] = json!([{ "type": "document", "url": slip.body["url"] }]);
    let dispute = format!("/v1/network/requests/{id}/dispute");
    let opened = api.post(&dispute, &as_beta, body).await;
    assert_eq!(opened.status, 200, "{}", opened.text);

    let file_of = |upload: &Answer| {
        let upload = upload.body["id"].as_str().unwrap();
        format!("/v1/arbiter/requests/{id}/files/{upload}")
    };
    let evidence = format!("/v1/arbiter/requests/{id}/evidence");
    let chain_of = |broker| format!("/v1/arbiter/brokers/{broker}/chain?request={id}");
    let all = [evidence.clone(), file_of(&slip), chain_of(world.beta)];
    for path in &all {
        let early = api.get(path, &arbiter).await;
        assert_eq!(early.problem(), (404, "not_found"), "{path}");
    }
    let hears = format!("/v1/arbiter/disputes/{id}/assign");
    assert_eq!(api.post(&hears, &arbiter, json!({})).await.status, 200);
    let shown = api.get(&evidence, &arbiter).await;
    assert_eq!(
        shown.body["dispute"]["id"],
        id.to_string(),
        "{}",
        shown.text
    );
    let read = api.get(&file_of(&slip), &arbiter).await;
    assert_eq!(
        (read.status, read.text.as_str()),
        (200, "%PDF-1.7 counterfeit")
    );
    assert_eq!(read.headers["x-content-type-options"], "nosniff");
    assert_eq!(api.get(&file_of(&secret), &arbiter).await.status, 404);

    let sound = api.get(&chain_of(world.beta), &arbiter).await;
    assert_eq!(sound.body["holds"], true, "{}", sound.text);
    let head = world.app.books.head(world.beta).await.unwrap();
    assert_eq!(sound.body["holds_to"], head.to_string());
    let pool = world.databases.url("b", &world.databases.tenants[1]);
    let pool = sqlx::MySqlPool::connect(pool.expose()).await.unwrap();
    sqlx::query("UPDATE transaction SET amount = amount + 1")
        .execute(&pool)
        .await
        .unwrap();
    let changed = api.get(&chain_of(world.beta), &arbiter).await;
    assert_eq!(
        (&changed.body["holds"], &changed.body["first_bad_seq"]),
        (&json!(false), &json!("1")),
        "{}",
        changed.text
    );
    for path in &all {
        let refused = api.get(path, &other).await;
        assert_eq!(refused.problem(), (404, "not_found"), "{path}");
        let refused = api.get(path, &as_beta).await;
        assert_eq!(refused.problem(), (403, "role_forbidden"), "{path}");
    }
    let stranger = api.get(&chain_of(world.gamma), &arbiter).await;
    assert_eq!(stranger.problem(), (404, "not_found"));
    let no_request = format!("/v1/arbiter/brokers/{}/chain", world.beta);
    assert_eq!(api.get(&no_request, &arbiter).await.fields(), ["request"]);
}
