//! Requests over REST: the main job, what each side sees, and bad input.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::{Answer, Api};

const REQUESTS: &str = "/v1/network/requests";

/// The smallest good body for a direct send.
fn send_to(api: &Api, target: u64) -> Value {
    json!({
        "target_broker_id": target,
        "type": "send",
        "currency_code": api.world.currency,
        "amount": "10000.00",
        "method": "cash",
    })
}

fn with(mut body: Value, field: &str, value: Value) -> Value {
    body[field] = value;
    body
}

fn proof() -> Value {
    json!({ "proof": [{ "type": "transfer_ref", "value": "7741", "note": "to Ahmed" }] })
}

fn path(id: &str, action: &str) -> String {
    format!("{REQUESTS}/{id}/{action}")
}

fn id_of(answer: &Answer) -> String {
    answer.body["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_main_job_by_two_brokers() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);

    let created = api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.body["status"], "pending");
    assert_eq!(created.body["amount"], "10000.00");
    let words = created.body["terms"]["words"][0].as_str().unwrap();
    assert_eq!(
        words,
        format!(
            "When this completes, broker {alpha} owes broker {beta} 10000.00 {}.",
            api.world.currency
        )
    );
    let id = id_of(&created);

    let accepted = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!(
        (accepted.status, &accepted.body["status"]),
        (200, &json!("accepted"))
    );
    let sent = api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    assert_eq!(
        (sent.status, &sent.body["status"]),
        (200, &json!("sent")),
        "{}",
        sent.text
    );
    let confirmed = api.post(&path(&id, "confirm"), &as_beta, json!({})).await;
    assert_eq!(
        (confirmed.status, &confirmed.body["status"]),
        (200, &json!("completed"))
    );

    // Again, by both: the same answer, and nothing more.
    let again = api.post(&path(&id, "confirm"), &as_beta, json!({})).await;
    assert_eq!((again.status, &again.body), (200, &confirmed.body));
    let again = api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    assert_eq!(
        (again.status, &again.body["status"]),
        (200, &json!("completed"))
    );

    let owed = api.get("/v1/obligations", &as_alpha).await;
    assert_eq!(owed.items().len(), 1);
    assert_eq!(owed.items()[0]["subject"], json!(id));
    assert_eq!(owed.items()[0]["remaining_amount"], "10000.00");
    let positions = api.get("/v1/positions", &as_beta).await;
    assert_eq!(positions.items()[0]["owed"], "10000.00");
    assert_eq!(positions.items()[0]["net"], "10000.00");

    let events = api.get(&path(&id, "events"), &as_beta).await;
    let kinds: Vec<&str> = events
        .items()
        .iter()
        .map(|event| event["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["created", "accepted", "sent", "confirmed", "completed"]
    );
    for pair in events.items().windows(2) {
        assert_eq!(pair[0]["event_hash"], pair[1]["prev_hash"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_there_for_its_parties_only() {
    let api = Api::new().await;
    let (alpha, beta, gamma) = (api.world.alpha, api.world.beta, api.world.gamma);
    let as_alpha = api.admin_of(alpha).await;
    let (as_beta, as_gamma) = (api.admin_of(beta).await, api.admin_of(gamma).await);
    let direct = api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await;
    let id = id_of(&direct);
    for answer in [
        api.get(&format!("{REQUESTS}/{id}"), &as_gamma).await,
        api.get(&path(&id, "events"), &as_gamma).await,
        api.post(&path(&id, "accept"), &as_gamma, json!({})).await,
        api.post(&path(&id, "cancel"), &as_gamma, json!({})).await,
        api.post(&path(&id, "confirm"), &as_gamma, json!({})).await,
        api.get(&format!("{REQUESTS}/NR-000000000000"), &as_alpha)
            .await,
        api.get(&format!("{REQUESTS}/OB-000000000000"), &as_alpha)
            .await,
    ] {
        assert_eq!(answer.problem(), (404, "not_found"));
    }
    assert!(api.get(REQUESTS, &as_gamma).await.items().is_empty());

    // A broadcast is everybody's, without whom it is for, until somebody has accepted.
    let mut body = send_to(&api, 0);
    body.as_object_mut().unwrap().remove("target_broker_id");
    body["counterpart_uid"] = json!("FO-7a3f8b2c4d1e");
    body["contact"] = json!("+971 50 000 0000");
    body["note"] = json!("call Ahmed,\n+971 50 000 0000");
    let broadcast = api.post(REQUESTS, &as_alpha, body).await;
    assert_eq!(broadcast.body["contact"], "+971 50 000 0000");
    let id = id_of(&broadcast);
    let seen = api.get(&format!("{REQUESTS}/{id}"), &as_gamma).await;
    assert_eq!(seen.status, 200);
    assert_eq!(
        (&seen.body["contact"], &seen.body["counterpart_uid"]),
        (&Value::Null, &Value::Null)
    );
    assert_eq!(seen.body["note"], Value::Null, "it may say the same");
    assert_eq!(api.get(&path(&id, "events"), &as_gamma).await.status, 404);
    // Beta has no account of that client, and names one of its own instead.
    let refused = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!(refused.fields(), ["account_id"]);
    assert!(!refused.text.contains("FO-"), "{}", refused.text);
    let cashier = json!({ "owner_kind": "cashier", "owner_ref": "desk", "currency_code": api.world.currency });
    let cashier = api.post("/v1/accounts", &as_beta, cashier).await;
    let named = json!({ "account_id": cashier.body["id"] });
    let refused = api.post(&path(&id, "accept"), &as_beta, named).await;
    assert_eq!(
        refused.fields(),
        ["account_id"],
        "another than the client's"
    );
    assert!(!refused.text.contains("FO-"), "{}", refused.text);

    // Once it is another's, a stranger learns no more than that, whatever becomes of it.
    let mut body = send_to(&api, 0);
    body.as_object_mut().unwrap().remove("target_broker_id");
    let id = id_of(&api.post(REQUESTS, &as_alpha, body).await);
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    let taken = api.post(&path(&id, "accept"), &as_gamma, json!({})).await;
    assert_eq!(taken.problem(), (409, "already_taken"));
    api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    api.post(&path(&id, "confirm"), &as_beta, json!({})).await;
    let still = api.post(&path(&id, "accept"), &as_gamma, json!({})).await;
    assert_eq!(still.body, taken.body);
    assert_eq!(
        api.get(&format!("{REQUESTS}/{id}"), &as_gamma).await.status,
        404
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_state_or_side_is_named() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    let wrong = |answer: Answer, status: &str| {
        assert_eq!(answer.problem(), (409, "wrong_status"), "{}", answer.text);
        assert_eq!(answer.body["request_status"], status);
    };
    wrong(
        api.post(&path(&id, "sent"), &as_alpha, proof()).await,
        "pending",
    );
    wrong(
        api.post(&path(&id, "confirm"), &as_beta, json!({})).await,
        "pending",
    );
    let own = api.post(&path(&id, "accept"), &as_alpha, json!({})).await;
    assert_eq!(own.problem(), (403, "not_your_move"));
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    wrong(
        api.post(&path(&id, "reject"), &as_beta, json!({})).await,
        "accepted",
    );
    let not_sender = api.post(&path(&id, "sent"), &as_beta, proof()).await;
    assert_eq!(not_sender.problem(), (403, "not_your_move"));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_key_makes_one_request() {
    let api = Api::new().await;
    let as_alpha = api.admin_of(api.world.alpha).await;
    let body = send_to(&api, api.world.beta);
    let post = |key: Option<&'static str>, body: Value| api.post_as(REQUESTS, &as_alpha, key, body);
    let first = post(Some("k1"), body.clone()).await;
    let repeated = post(Some("\"k1\""), body.clone()).await;
    assert_eq!(first.body, repeated.body);
    let second = post(Some("k2"), body.clone()).await;
    assert_ne!(first.body["id"], second.body["id"]);
    let other = post(Some("k1"), with(body.clone(), "amount", json!("1.00"))).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));
    assert_eq!(
        post(None, body.clone()).await.problem(),
        (400, "idempotency_key_missing")
    );
    let racing = futures::future::join_all((0..20).map(|_| post(Some("k3"), body.clone()))).await;
    assert!(
        racing
            .iter()
            .all(|answer| answer.status == 201 && answer.body["id"] == racing[0].body["id"])
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_fields_are_named() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let as_alpha = api.admin_of(alpha).await;
    let good = send_to(&api, beta);
    let long = "x".repeat(2_000);
    let cases = [
        ("amount", json!("-1")),
        ("amount", json!("1e3")),
        ("amount", json!("0")),
        ("amount", json!("0.001")),
        ("amount", json!("123456789012345678901234567890")),
        ("amount", json!("NaN")),
        ("amount", json!("")),
        ("amount", json!(10_000)),
        ("currency_code", json!("XYZ")),
        ("currency_code", json!("usd")),
        ("target_broker_id", json!(alpha)),
        ("target_broker_id", json!(1)),
        ("target_broker_id", json!("2")),
        ("deadline_at", json!("2020-01-01T00:00:00Z")),
        ("deadline_at", json!("tomorrow")),
        ("deadline_at", json!("+10000-01-01T00:00:00Z")),
        ("deadline_at", json!("+200000-01-01T00:00:00Z")),
        ("deadline_at", json!("9999-12-31T23:59:59-12:00")),
        ("deadline_at", json!("9999-12-31T23:59:59.9999999Z")),
        ("deadline_at", json!("2027-06-30T23:59:60Z")),
        ("deadline_at", json!("2031-01-01T00:00:00.000001Z")),
        ("type", json!("gift")),
        ("method", json!("")),
        ("method", json!(long)),
        ("city_code", json!(long)),
        ("counterpart_uid", json!(long)),
        ("contact", json!(long)),
        ("note", json!(long)),
        ("account_id", json!("AC-000000000000")),
        ("account_id", json!("AC-1")),
        ("colour", json!("red")),
    ];
    for (field, value) in cases {
        let answer = api
            .post(
                REQUESTS,
                &as_alpha,
                with(good.clone(), field, value.clone()),
            )
            .await;
        assert_eq!(
            answer.problem(),
            (422, "fields_invalid"),
            "{field}: {value}: {}",
            answer.text
        );
        assert_eq!(answer.fields(), [field], "{value}");
    }
    for field in ["type", "currency_code", "amount", "method"] {
        let mut body = good.clone();
        body.as_object_mut().unwrap().remove(field);
        assert_eq!(api.post(REQUESTS, &as_alpha, body).await.fields(), [field]);
    }
    assert!(
        api.get(REQUESTS, &as_alpha).await.items().is_empty(),
        "nothing was made"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_terms_are_named() {
    let api = Api::new().await;
    let as_alpha = api.admin_of(api.world.alpha).await;
    let good = send_to(&api, api.world.beta);
    let answer = api
        .post(
            REQUESTS,
            &as_alpha,
            with(good.clone(), "terms", json!(["author_owes", null])),
        )
        .await;
    assert_eq!((answer.status, answer.fields()), (422, vec!["terms"]));
    for (commission, field) in [
        (json!({ "payer": "author" }), "terms.commission"),
        (json!(["author", "1.00", null]), "terms.commission"),
        (
            json!({ "payer": { "author": null }, "amount": "1.00" }),
            "terms.commission.payer",
        ),
        (
            json!({ "payer": "author", "amount": "1.00", "basis_points": 5 }),
            "terms.commission",
        ),
        (
            json!({ "payer": "author", "amount": "10000.00" }),
            "terms.commission",
        ),
        (
            json!({ "payer": "author", "basis_points": 10_000 }),
            "terms.commission",
        ),
        (
            json!({ "payer": "author", "amount": "-5" }),
            "terms.commission.amount",
        ),
        (
            json!({ "payer": "nobody", "basis_points": 5 }),
            "terms.commission.payer",
        ),
    ] {
        let body = with(good.clone(), "terms", json!({ "commission": commission }));
        let answer = api.post(REQUESTS, &as_alpha, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{}",
            answer.text
        );
    }
    assert!(
        api.get(REQUESTS, &as_alpha).await.items().is_empty(),
        "nothing was made"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_proofs_and_claims_are_named() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    let foreign = format!("/v1/uploads/{}", uuid::Uuid::new_v4());
    for (body, field) in [
        (json!({}), "proof"),
        (json!({ "proof": [] }), "proof"),
        (json!({ "proof": [{ "type": "photo" }] }), "proof.url"),
        (
            json!({ "proof": [{ "type": "tx_hash", "value": " " }] }),
            "proof.value",
        ),
        (
            json!({ "proof": [{ "type": "selfie", "url": "x" }] }),
            "proof[0].type",
        ),
        (
            json!({ "proof": [{ "type": "photo", "url": foreign }] }),
            "proof.url",
        ),
        (
            json!({ "proof": [{ "type": "photo", "url": "javascript:alert(1)" }] }),
            "proof.url",
        ),
        (
            json!({ "proof": [{ "type": "photo", "url": "/v1/uploads/1" }] }),
            "proof.url",
        ),
        (
            json!({ "proof": [{ "type": "transfer_ref", "value": "77\u{202e}41" }] }),
            "proof.value",
        ),
        (
            json!({ "proof": [{ "type": "transfer_ref", "value": "7", "note": "a\0b" }] }),
            "proof.note",
        ),
    ] {
        let answer = api.post(&path(&id, "sent"), &as_alpha, body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}: {}",
            answer.text
        );
    }
    api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    for amount in ["10000.01", "0", "-1", "1.001"] {
        let body = json!({ "received_amount": amount });
        let answer = api.post(&path(&id, "confirm"), &as_beta, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec!["received_amount"])
        );
    }
    let answer = api
        .post(&path(&id, "dispute"), &as_beta, json!({ "claim": "" }))
        .await;
    assert_eq!(answer.fields(), ["claim"]);
    let claim = json!({ "claim": "half\u{1b}[2J" });
    let answer = api.post(&path(&id, "dispute"), &as_beta, claim).await;
    assert_eq!(answer.fields(), ["claim"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn less_received_is_agreed_on_before_it_is_booked() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    let less = json!({ "received_amount": "9990.00" });
    let claimed = api
        .post(&path(&id, "confirm"), &as_beta, less.clone())
        .await;
    assert_eq!(
        (claimed.status, &claimed.body["status"]),
        (200, &json!("sent"))
    );
    assert_eq!(claimed.body["received_amount"], "9990.00");
    let agreed = api.post(&path(&id, "confirm"), &as_alpha, less).await;
    assert_eq!(
        (agreed.status, &agreed.body["status"]),
        (200, &json!("completed")),
        "{}",
        agreed.text
    );
    let owed = api.get("/v1/obligations", &as_alpha).await;
    assert_eq!(owed.items()[0]["amount"], "9990.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspended_broker_finishes_and_starts_nothing() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    let waiting = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    let suspend = format!("/v1/admin/brokers/{alpha}/suspend");
    let platform = api.platform().await;
    let suspended = api
        .post(&suspend, &platform, json!({"reason": "an audit"}))
        .await;
    assert_eq!(suspended.body["state"], "suspended");
    let new = api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await;
    assert_eq!(new.problem(), (409, "paused"));
    assert_eq!(new.body["paused"]["reason"], "an audit");
    let late = api
        .post(&path(&waiting, "accept"), &as_beta, json!({}))
        .await;
    assert_eq!(late.problem(), (409, "paused"));
    assert_eq!(
        late.body["paused"],
        json!({"scope": "broker", "broker_id": alpha})
    );
    let again = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!(again.status, 200, "it was accepted before");
    let to_it = api.post(REQUESTS, &as_beta, send_to(&api, alpha)).await;
    assert_eq!(to_it.problem(), (409, "paused"));
    api.post(&path(&id, "sent"), &as_alpha, proof()).await;
    let confirmed = api.post(&path(&id, "confirm"), &as_beta, json!({})).await;
    assert_eq!(confirmed.body["status"], "completed");
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_are_what_their_content_is_and_the_parties_to_read() {
    let api = Api::new().await;
    let (alpha, beta, gamma) = (api.world.alpha, api.world.beta, api.world.gamma);
    let as_alpha = api.admin_of(alpha).await;
    let (as_beta, as_gamma) = (api.admin_of(beta).await, api.admin_of(gamma).await);
    let upload = |token: String, key: &'static str, content: Vec<u8>| {
        let request = Request::post("/v1/uploads")
            .header("authorization", format!("Bearer {token}"))
            .header("idempotency-key", key)
            .header("content-type", "image/png");
        api.send(request.body(Body::from(content)).unwrap())
    };
    let png = b"\x89PNG\r\n\x1a\n the rest".to_vec();
    let kept = upload(as_alpha.clone(), "u1", png.clone()).await;
    assert_eq!(
        (kept.status, &kept.body["content_type"]),
        (201, &json!("image/png"))
    );
    let repeated = upload(as_alpha.clone(), "u1", png.clone()).await;
    assert_eq!(kept.body, repeated.body);
    assert_eq!(
        upload(as_alpha.clone(), "u1", b"%PDF-1.7".to_vec())
            .await
            .status,
        422
    );
    assert_eq!(
        upload(as_alpha.clone(), "u2", b"<script>".to_vec())
            .await
            .fields(),
        ["body"]
    );
    assert_eq!(
        upload(as_alpha.clone(), "u3", Vec::new()).await.fields(),
        ["body"]
    );
    let large = [png.clone(), vec![0; 10 << 20]].concat();
    assert_eq!(
        upload(as_alpha.clone(), "u4", large).await.problem(),
        (413, "too_large")
    );

    let url = kept.body["url"].as_str().unwrap().to_owned();
    assert_eq!(
        api.get(&url, &as_beta).await.status,
        404,
        "not a party of anything yet"
    );
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    let wrong = json!({ "proof": [{ "type": "photo", "url": url, "sha256": "0".repeat(64) }] });
    assert_eq!(
        api.post(&path(&id, "sent"), &as_alpha, wrong)
            .await
            .fields(),
        ["proof.sha256"]
    );
    let proof = json!({ "proof": [{ "type": "photo", "url": url }] });
    assert_eq!(
        api.post(&path(&id, "sent"), &as_alpha, proof).await.status,
        200
    );
    let events = api.get(&path(&id, "events"), &as_beta).await;
    let sent = events
        .items()
        .iter()
        .find(|event| event["kind"] == "sent")
        .unwrap();
    assert_eq!(
        sent["payload"]["files_sha256"],
        json!([kept.body["sha256"]])
    );
    assert_eq!(api.get(&url, &as_gamma).await.status, 404);
    let read = Request::get(&url).header("authorization", format!("Bearer {as_beta}"));
    let response = {
        use tower::ServiceExt;
        api.router
            .clone()
            .oneshot(read.body(Body::empty()).unwrap())
            .await
            .unwrap()
    };
    assert_eq!(response.headers()["content-type"], "image/png");
    assert_eq!(response.headers()["x-content-type-options"], "nosniff");
    let content = axum::body::to_bytes(response.into_body(), 1 << 20)
        .await
        .unwrap();
    assert_eq!(content.to_vec(), png);
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_no_bodies() {
    let api = Api::new().await;
    let token = api.token(Role::BrokerOperator, Some(api.world.alpha)).await;
    let raw = |body: Vec<u8>, content_type: &'static str| {
        let request = Request::post(REQUESTS)
            .header("authorization", format!("Bearer {token}"))
            .header("idempotency-key", "b1")
            .header("content-type", content_type);
        api.send(request.body(Body::from(body)).unwrap())
    };
    let json = "application/json";
    assert_eq!(raw(b"{".to_vec(), json).await.problem(), (400, "bad_json"));
    assert_eq!(
        raw(b"\xff\xfe{}".to_vec(), json).await.problem(),
        (400, "bad_utf8")
    );
    assert_eq!(
        raw(b"{}".to_vec(), "text/plain").await.problem(),
        (415, "media_type")
    );
    assert_eq!(
        raw(vec![b' '; 2 << 20], json).await.problem(),
        (413, "too_large")
    );
    let deep = [vec![b'['; 10_000], vec![b']'; 10_000]].concat();
    assert!(matches!(raw(deep, json).await.status, 400 | 422));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_reads_the_same_wherever_it_is_read() {
    let api = Api::new().await;
    let as_alpha = api.admin_of(api.world.alpha).await;
    let good = send_to(&api, api.world.beta);
    for (stated, kept) in [
        (
            "2026-12-31T23:59:59.9999999Z",
            "2026-12-31T23:59:59.999999Z",
        ),
        ("2026-07-01T03:00:00+03:00", "2026-07-01T00:00:00Z"),
        ("2031-01-01T00:00:00Z", "2031-01-01T00:00:00Z"),
    ] {
        let body = with(good.clone(), "deadline_at", json!(stated));
        let created = api.post(REQUESTS, &as_alpha, body).await;
        assert_eq!(created.status, 201, "{}", created.text);
        assert_eq!(created.body["deadline_at"], kept);
        let id = id_of(&created);
        let read = api.get(&format!("{REQUESTS}/{id}"), &as_alpha).await;
        assert_eq!(read.body["deadline_at"], kept);
        let events = api.get(&path(&id, "events"), &as_alpha).await;
        let chained = events.items()[0]["payload"]["deadline_at"]
            .as_str()
            .unwrap();
        let at = |text: &str| text.parse::<chrono::DateTime<chrono::Utc>>().unwrap();
        assert_eq!(at(chained), at(kept));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_are_not_what_they_seem_are_named() {
    let api = Api::new().await;
    let as_alpha = api.admin_of(api.world.alpha).await;
    let good = send_to(&api, api.world.beta);
    for (field, value) in [
        ("method", json!("ca\u{200b}sh")),
        ("method", json!("ca\nsh")),
        ("city_code", json!("D\u{202e}XB")),
        ("city_code", json!("D\0XB")),
        ("counterpart_uid", json!("FO-1")),
        ("counterpart_uid", json!("FO-7A3F8B2C4D1E")),
        ("counterpart_uid", json!("FO-7a3f8b2c4d1\u{200b}")),
        ("contact", json!("+971\0")),
        ("note", json!("one\u{7f}")),
    ] {
        let body = with(good.clone(), field, value.clone());
        let answer = api.post(REQUESTS, &as_alpha, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{value}"
        );
    }
    let body = with(good, "note", json!("one\n\ttwo – три"));
    assert_eq!(api.post(REQUESTS, &as_alpha, body).await.status, 201);
}

/// A cursor as a server makes it, with a place of somebody's own invention.
fn forged(list: &str, place: &Value) -> String {
    use base64::Engine;
    use sha2::Digest;
    let place = place.to_string();
    let digest = sha2::Sha256::digest([list.as_bytes(), &[0], place.as_bytes()].concat());
    let bytes = [&digest[..6], place.as_bytes()].concat();
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cursor_that_nobody_gave_is_named() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.alpha).await;
    let good = forged("requests", &json!(["2026-01-01T00:00:00Z", 5]));
    let page = api.get(&format!("{REQUESTS}?cursor={good}"), &token).await;
    assert_eq!(page.status, 200, "{}", page.text);
    for (list, address) in [
        ("requests", REQUESTS),
        ("accounts", "/v1/accounts"),
        ("obligations", "/v1/obligations"),
        ("team.users", "/v1/team/users"),
        ("team.clients", "/v1/team/clients"),
    ] {
        for at in [
            "+262000-01-01T00:00:00Z",
            "-0001-01-01T00:00:00Z",
            "9999-12-31T23:59:60Z",
        ] {
            let cursor = forged(list, &json!([at, 5]));
            let answer = api.get(&format!("{address}?cursor={cursor}"), &token).await;
            assert_eq!(
                (answer.status, answer.fields()),
                (422, vec!["cursor"]),
                "{list} {at}"
            );
        }
    }
}

/// The books of the two sides are theirs: what one refuses, the other learns in one word.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_shows_a_balance_to_its_broker_only() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let client = json!({ "owner_kind": "partner", "owner_ref": "FO-7a3f8b2c4d1e", "currency_code": api.world.currency });
    let client = api.post("/v1/accounts", &as_alpha, client).await;
    let body = with(send_to(&api, beta), "account_id", client.body["id"].clone());
    let id = id_of(&api.post(REQUESTS, &as_alpha, body).await);
    let refused = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!(
        refused.problem(),
        (409, "books_refused"),
        "{}",
        refused.text
    );
    assert_eq!(refused.body["request_status"], "pending");
    let shown = json!({ "book": alpha.to_string(), "code": "insufficient_funds" });
    assert_eq!(refused.body["reason"], shown);
    let account = client.body["id"].as_str().unwrap();
    for text in [
        refused.text,
        api.get(&path(&id, "events"), &as_beta).await.text,
    ] {
        assert!(
            !text.contains(account) && !text.contains("available"),
            "{text}"
        );
    }
    let events = api.get(&path(&id, "events"), &as_alpha).await;
    let failed = events.items().last().unwrap();
    assert_eq!(failed["kind"], "accept_failed");
    assert_eq!(failed["payload"]["reason"], shown);
    assert_eq!(failed["private"]["reason"]["account"], account);
    assert_eq!(failed["private"]["reason"]["available"], "0");

    // And not without end.
    for _ in 1..10 {
        let again = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
        assert_eq!(again.problem(), (409, "books_refused"));
    }
    let again = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!(again.problem(), (409, "too_often"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_again_is_told_from_what_is_new() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    let act = |action: &'static str, token: &String, body: Value| {
        let (address, token) = (path(&id, action), token.clone());
        let api = &api;
        async move { api.post(&address, &token, body).await }
    };
    act("accept", &as_beta, json!({})).await;
    let account = json!({ "owner_kind": "cashier", "owner_ref": "desk", "currency_code": api.world.currency });
    let account = api.post("/v1/accounts", &as_beta, account).await;
    let other = act(
        "accept",
        &as_beta,
        json!({ "account_id": account.body["id"] }),
    )
    .await;
    assert_eq!(other.fields(), ["account_id"], "{}", other.text);

    act("sent", &as_alpha, proof()).await;
    for token in [&as_beta, &as_alpha] {
        act("cancel", token, json!({ "to": "accepted" })).await;
    }
    let late = act("sent", &as_alpha, proof()).await;
    assert_eq!(late.problem(), (409, "proof_withdrawn"));
    assert_eq!(late.body["request_status"], "accepted");
    let anew = json!({ "proof": [{ "type": "transfer_ref", "value": "7742" }] });
    let sent = act("sent", &as_alpha, anew).await;
    assert_eq!((sent.status, &sent.body["status"]), (200, &json!("sent")));

    for number in 0..21 {
        let body = json!({ "received_amount": format!("{}.00", 9_000 + number) });
        let stated = act("confirm", &as_beta, body).await;
        match number {
            20 => assert_eq!(stated.problem(), (409, "too_often")),
            _ => assert_eq!(stated.status, 200, "{}", stated.text),
        }
    }
    let first = act("dispute", &as_beta, json!({ "claim": "half of it" })).await;
    assert_eq!(first.body["status"], "disputed");
    let again = act("dispute", &as_beta, json!({ "claim": "half of it" })).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    let other = act("dispute", &as_alpha, json!({ "claim": "all was there" })).await;
    assert_eq!(other.problem(), (409, "wrong_status"));
    assert_eq!(other.body["request_status"], "disputed");

    // The whole chain in pages, oldest first.
    let (mut seen, mut cursor) = (Vec::new(), String::new());
    loop {
        let address = format!("{}?limit=10{cursor}", path(&id, "events"));
        let page = api.get(&address, &as_alpha).await;
        assert!(page.items().len() <= 10);
        seen.extend(page.items().to_vec());
        match page.body["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    let seqs: Vec<u64> = seen
        .iter()
        .map(|event| event["seq"].as_u64().unwrap())
        .collect();
    assert_eq!(seqs, (1..=27).collect::<Vec<_>>());
    for pair in seen.windows(2) {
        assert_eq!(pair[0]["event_hash"], pair[1]["prev_hash"]);
    }

    // What the author cancelled alone, the target did not.
    let id = id_of(&api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await);
    api.post(&path(&id, "cancel"), &as_alpha, json!({})).await;
    let again = api.post(&path(&id, "cancel"), &as_alpha, json!({})).await;
    assert_eq!(again.status, 200);
    let others = api.post(&path(&id, "cancel"), &as_beta, json!({})).await;
    assert_eq!(others.problem(), (409, "wrong_status"));
}
