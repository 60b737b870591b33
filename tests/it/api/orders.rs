//! Orders, repayments and credit lines over REST: what each side sees, and bad input.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::{Answer, Api};
use crate::saga::shapes::client;

const ORDERS: &str = "/v1/orders";

fn id_of(answer: &Answer) -> String {
    answer.body["id"].as_str().unwrap().to_owned()
}

fn path(id: &str, action: &str) -> String {
    format!("{ORDERS}/{id}/{action}")
}

fn proof(code: Option<&str>) -> Value {
    let mut body = json!({ "proof": [{ "type": "transfer_ref", "value": "slip 7" }] });
    if let Some(code) = code {
        body["pickup_code"] = json!(code);
    }
    body
}

impl Api {
    async fn put(&self, path: &str, token: &str, body: Value) -> Answer {
        let request = Request::put(path)
            .header("authorization", format!("Bearer {token}"))
            .header("content-type", "application/json");
        self.send(request.body(Body::from(body.to_string())).unwrap())
            .await
    }

    /// A payout of 500.00 to a client of alpha's.
    async fn payout(&self, executor: Option<u64>) -> Value {
        let client = client(&self.world, self.world.alpha, 1_000_000).await;
        json!({
            "type": "payout",
            "executor_broker_id": executor,
            "counterpart_uid": client.owner_ref,
            "currency_code": self.world.currency,
            "amount": "500.00",
            "city_code": "IST",
            "contact": "+90 555",
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_by_two_brokers() {
    let api = Api::new().await;
    let world = &api.world;
    let (as_alpha, as_beta) = (
        api.admin_of(world.alpha).await,
        api.admin_of(world.beta).await,
    );
    let cashier = world
        .funded(world.cashier(world.beta, "ahmed"), 70_000)
        .await;

    let body = api.payout(None).await;
    let created = api
        .post_as(ORDERS, &as_alpha, Some("one"), body.clone())
        .await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.body["status"], "created");
    let id = id_of(&created);
    assert!(id.starts_with("OR-"), "{id}");
    let code = created.body["pickup_code"].as_str().unwrap().to_owned();
    assert!(code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_digit()));
    let words: Vec<&str> = created.body["terms"]["words"]
        .as_array()
        .unwrap()
        .iter()
        .map(|line| line.as_str().unwrap())
        .collect();
    assert!(
        words[1].contains("The client's account in the book of"),
        "{words:?}"
    );

    // Again: the same order, and its code no more.
    let again = api.post_as(ORDERS, &as_alpha, Some("one"), body).await;
    assert_eq!((again.status, id_of(&again)), (201, id.clone()));
    assert!(again.body.get("pickup_code").is_none());

    // Beta sees it once it serves the city, and not whose it is.
    assert_eq!(
        api.get(&format!("{ORDERS}/{id}"), &as_beta).await.status,
        404
    );
    let served = api
        .put(
            "/v1/broker/cities",
            &as_beta,
            json!({ "city_codes": ["IST"] }),
        )
        .await;
    assert_eq!(
        (served.status, &served.body["city_codes"]),
        (200, &json!(["IST"]))
    );
    let seen = api.get(&format!("{ORDERS}/{id}"), &as_beta).await;
    assert_eq!(
        (seen.status, &seen.body["counterpart_uid"]),
        (200, &Value::Null)
    );
    assert_eq!(api.get(ORDERS, &as_beta).await.items().len(), 1);
    assert!(
        api.get("/v1/network/requests", &as_beta)
            .await
            .items()
            .is_empty()
    );
    let other = format!("/v1/network/requests/{id}");
    assert_eq!(
        api.get(&other, &as_alpha).await.status,
        404,
        "an order is no request"
    );

    let accept = json!({ "account_id": cashier.id() });
    let accepted = api.post(&path(&id, "accept"), &as_beta, accept).await;
    assert_eq!(
        (accepted.status, &accepted.body["status"]),
        (200, &json!("accepted")),
        "{}",
        accepted.text
    );
    assert!(accepted.body["counterpart_uid"].as_str().is_some());
    let early = api.post(&path(&id, "confirm"), &as_alpha, json!({})).await;
    assert_eq!(early.problem(), (409, "wrong_status"));
    assert_eq!(early.body["detail"], "the order is accepted");

    let wrong = api
        .post(&path(&id, "execute"), &as_beta, proof(Some("12345678")))
        .await;
    assert_eq!(wrong.problem(), (422, "pickup_refused"));
    assert_eq!(
        (wrong.fields(), &wrong.body["tries_left"]),
        (vec!["pickup_code"], &json!(4))
    );
    let renewed = api
        .post(&path(&id, "pickup-code"), &as_alpha, json!({}))
        .await;
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    let new = renewed.body["pickup_code"].as_str().unwrap().to_owned();
    let old = api
        .post(&path(&id, "execute"), &as_beta, proof(Some(&code)))
        .await;
    assert_eq!(old.problem(), (422, "pickup_refused"));
    let executed = api
        .post(&path(&id, "execute"), &as_beta, proof(Some(&new)))
        .await;
    assert_eq!(
        (executed.status, &executed.body["status"]),
        (200, &json!("executed")),
        "{}",
        executed.text
    );
    let confirmed = api.post(&path(&id, "confirm"), &as_alpha, json!({})).await;
    assert_eq!(
        (confirmed.status, &confirmed.body["status"]),
        (200, &json!("completed"))
    );
    let events = api.get(&path(&id, "events"), &as_beta).await;
    let kinds: Vec<&str> = events
        .items()
        .iter()
        .map(|one| one["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "created",
            "accepting",
            "accepted",
            "pickup_refused",
            "pickup_renewed",
            "pickup_refused",
            "sent",
            "confirmed",
            "completed"
        ]
    );
    assert!(!events.text.contains(&code) && !events.text.contains(&new));
    crate::harness::assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_orders_are_named_and_only_ones_own_are_touched() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let (as_beta, as_gamma) = (
        api.admin_of(world.beta).await,
        api.admin_of(world.gamma).await,
    );
    let good = api.payout(Some(world.beta)).await;
    for (field, value, named) in [
        ("type", json!("send"), "type"),
        ("amount", json!("0"), "amount"),
        ("amount", json!(500), "amount"),
        ("currency_code", json!("NOPE"), "currency_code"),
        (
            "counterpart_uid",
            json!("FO-000000000000"),
            "counterpart_uid",
        ),
        ("counterpart_uid", json!("FO-XYZ"), "counterpart_uid"),
        (
            "executor_broker_id",
            json!(world.alpha),
            "executor_broker_id",
        ),
        ("executor_broker_id", json!(4), "executor_broker_id"),
        ("city_code", json!("TOO-LONG-FOR-A-CITY"), "city_code"),
        ("method", json!("cash"), "method"),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let refused = api.post(ORDERS, &as_alpha, body).await;
        assert_eq!(
            (refused.status, refused.fields()),
            (422, vec![named]),
            "{}",
            refused.text
        );
    }
    let mut nowhere = good.clone();
    nowhere["executor_broker_id"] = Value::Null;
    nowhere["city_code"] = Value::Null;
    let refused = api.post(ORDERS, &as_alpha, nowhere).await;
    assert_eq!(refused.fields(), ["city_code"], "{}", refused.text);
    let keyless = api.post_as(ORDERS, &as_alpha, None, good.clone()).await;
    assert_eq!(keyless.problem(), (400, "idempotency_key_missing"));

    let id = id_of(&api.post(ORDERS, &as_alpha, good).await);
    for action in ["accept", "reject", "cancel", "confirm", "pickup-code"] {
        let hidden = api.post(&path(&id, action), &as_gamma, json!({})).await;
        assert_eq!(hidden.problem(), (404, "not_found"), "{action}");
    }
    assert_eq!(
        api.post(&path(&id, "execute"), &as_gamma, proof(None))
            .await
            .status,
        404
    );
    let events = api.get(&path(&id, "events"), &as_gamma).await;
    assert_eq!(events.status, 404);
    let theirs = api
        .post(&path(&id, "pickup-code"), &as_beta, json!({}))
        .await;
    assert_eq!(theirs.problem(), (403, "not_your_move"));
    let house = api.post(&path(&id, "accept"), &as_beta, json!({})).await;
    assert_eq!((house.status, house.fields()), (422, vec!["account_id"]));
    let viewer = api.token(Role::BrokerViewer, Some(world.beta)).await;
    let refused = api.post(&path(&id, "accept"), &viewer, json!({})).await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
}

#[tokio::test(flavor = "multi_thread")]
async fn debts_are_repaid_and_credit_is_bounded() {
    let api = Api::new().await;
    let world = &api.world;
    let (as_alpha, as_beta) = (
        api.admin_of(world.alpha).await,
        api.admin_of(world.beta).await,
    );
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    let code = world.currency.to_string();

    let set = format!("/v1/credit-lines/{}/{code}", world.alpha);
    let line = api.put(&set, &as_beta, json!({ "limit": "15000" })).await;
    assert_eq!(line.status, 200, "{}", line.text);
    assert_eq!(line.body["line"]["used"], "10000.00");
    assert_eq!(line.body["line"]["free"], "5000.00");
    for (path, body, field) in [
        (set.clone(), json!({ "limit": "-1" }), "limit"),
        (set.clone(), json!({ "limit": 5 }), "limit"),
        (
            format!("/v1/credit-lines/{}/{code}", world.beta),
            json!({ "limit": "1" }),
            "debtor_broker_id",
        ),
        (
            format!("/v1/credit-lines/4/{code}"),
            json!({ "limit": "1" }),
            "debtor_broker_id",
        ),
        (
            format!("/v1/credit-lines/{}/NOPE", world.alpha),
            json!({ "limit": "1" }),
            "currency_code",
        ),
    ] {
        let refused = api.put(&path, &as_beta, body).await;
        assert_eq!(
            (refused.status, refused.fields()),
            (422, vec![field]),
            "{}",
            refused.text
        );
    }
    let request = world
        .create(world.alpha, world.send(Some(world.beta)))
        .await;
    let accept = format!("/v1/network/requests/{}/accept", request.id);
    let short = api.post(&accept, &as_beta, json!({})).await;
    assert_eq!(short.problem(), (409, "credit_short"), "{}", short.text);
    assert_eq!(short.body["available"], "5000.00");

    let repay = json!({
        "target_broker_id": world.beta,
        "type": "settlement",
        "currency_code": code,
        "amount": "4000.00",
        "method": "bank",
    });
    let mut too_much = repay.clone();
    too_much["amount"] = json!("10000.01");
    let refused = api.post("/v1/network/requests", &as_alpha, too_much).await;
    assert_eq!(
        (refused.status, refused.fields()),
        (422, vec!["amount"]),
        "{}",
        refused.text
    );
    let created = api.post("/v1/network/requests", &as_alpha, repay).await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(
        created.body["settles"]["debtor_broker_id"],
        json!(world.alpha)
    );
    let words = created.body["terms"]["words"][0].as_str().unwrap();
    assert!(
        words.ends_with("falls by 4000.00 ".to_owned().as_str())
            || words.contains("falls by 4000.00"),
        "{words}"
    );
    let repaid = id_of(&created);
    let request_path = |action: &str| format!("/v1/network/requests/{repaid}/{action}");
    api.post(&request_path("accept"), &as_beta, json!({})).await;
    let owed = api.get("/v1/obligations", &as_alpha).await;
    assert_eq!(owed.items()[0]["reserved_amount"], "4000.00");
    let sent = api
        .post(
            &request_path("sent"),
            &as_alpha,
            json!({ "proof": [{ "type": "tx_hash", "value": "0x1" }] }),
        )
        .await;
    assert_eq!(sent.status, 200, "{}", sent.text);
    let done = api
        .post(&request_path("confirm"), &as_beta, json!({}))
        .await;
    assert_eq!(
        (done.status, &done.body["status"]),
        (200, &json!("completed")),
        "{}",
        done.text
    );

    let obligation = owed.items()[0]["id"].as_str().unwrap();
    let one = api
        .get(&format!("/v1/obligations/{obligation}"), &as_beta)
        .await;
    assert_eq!(one.body["remaining_amount"], "6000.00");
    assert_eq!(one.body["settlements"][0]["subject"], json!(repaid));
    assert_eq!(one.body["settlements"][0]["settled_amount"], "4000.00");
    let positions = api.get("/v1/positions", &as_alpha).await;
    assert_eq!(positions.items()[0]["owing"], "6000.00");
    assert_eq!(positions.items()[0]["credit_taken"]["free"], "9000.00");
    assert_eq!(positions.items()[0]["credit_given"], Value::Null);
    let beta = world.beta;
    for (query, found) in [
        ("side=debtor", 1),
        ("side=creditor", 0),
        (
            &*format!("counterparty_broker_id={beta}&currency_code={code}&status=active"),
            1,
        ),
        ("counterparty_broker_id=4", 0),
    ] {
        let listed = api
            .get(&format!("/v1/obligations?{query}"), &as_alpha)
            .await;
        assert_eq!(listed.items().len(), found, "{query} {}", listed.text);
    }
    world.clock.advance(chrono::Duration::days(10));
    let as_alpha = api.admin_of(world.alpha).await;
    let ages = api.get("/v1/obligations/ageing", &as_alpha).await;
    assert_eq!(ages.items().len(), 1, "{}", ages.text);
    assert_eq!(ages.items()[0]["days_0_7"], "0.00");
    assert_eq!(ages.items()[0]["days_8_30"], "6000.00");
    assert_eq!(ages.items()[0]["total"], "6000.00");
    crate::harness::assert_invariants(world).await;
}
