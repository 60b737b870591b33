//! Orders, repayments and credit lines over REST: what each side sees, and bad input.

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
async fn an_order_to_all_is_seen_by_those_who_serve_its_city() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let body = api.payout(None).await;
    let created = api
        .post_as(ORDERS, &as_alpha, Some("one"), body.clone())
        .await;
    assert_eq!(created.status, 201, "{}", created.text);
    assert_eq!(created.body["status"], "created");
    let id = id_of(&created);
    assert!(id.starts_with("OR-"), "{id}");
    let code = created.body["pickup_code"].as_str().unwrap();
    assert!(code.len() == 8 && code.bytes().all(|byte| byte.is_ascii_digit()));
    let words = created.body["terms"]["words"][1].as_str().unwrap();
    let client = "The client's account in the book of";
    assert!(words.starts_with(client), "{words}");

    // Again: the same order, and its code no more.
    let again = api.post_as(ORDERS, &as_alpha, Some("one"), body).await;
    assert_eq!((again.status, id_of(&again)), (201, id.clone()));
    assert!(again.body.get("pickup_code").is_none());

    // Beta sees it once it serves the city, and not whose it is.
    let order = format!("{ORDERS}/{id}");
    assert_eq!(api.get(&order, &as_beta).await.status, 404);
    let cities = json!({ "city_codes": ["IST"] });
    let served = api.put("/v1/broker/cities", &as_beta, cities.clone()).await;
    assert_eq!((served.status, &served.body), (200, &cities));
    let seen = api.get(&order, &as_beta).await;
    let uid = &seen.body["counterpart_uid"];
    assert_eq!((seen.status, uid), (200, &Value::Null));
    assert_eq!(api.get(ORDERS, &as_beta).await.items().len(), 1);
    let requests = api.get("/v1/network/requests", &as_beta).await;
    assert!(requests.items().is_empty());
    let other = format!("/v1/network/requests/{id}");
    let other = api.get(&other, &as_alpha).await;
    assert_eq!(other.status, 404, "an order is no request");
}

#[tokio::test(flavor = "multi_thread")]
async fn cities_have_one_form() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.beta).await;
    for codes in [json!(["IST", "IST "]), json!([" X"]), json!([""])] {
        let body = json!({ "city_codes": codes });
        let refused = api.put("/v1/broker/cities", &token, body).await;
        let named = (refused.status, refused.fields());
        assert_eq!(named, (422, vec!["city_codes"]), "{}", refused.text);
    }
    let body = json!({ "city_codes": ["IST", "DXB", "IST"] });
    let served = api.put("/v1/broker/cities", &token, body).await;
    assert_eq!(served.body["city_codes"], json!(["DXB", "IST"]));
}

/// What a book has refused is told in major units.
#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_has_amounts_as_people_read_them() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let poor = world.cashier(world.beta, "poor");
    let poor = world.funded(poor, 1_500).await;
    let body = api.payout(Some(world.beta)).await;
    let id = id_of(&api.post(ORDERS, &as_alpha, body).await);
    let accept = json!({ "account_id": poor.id() });
    let refused = api.post(&path(&id, "accept"), &as_beta, accept).await;
    assert_eq!(
        refused.problem(),
        (409, "books_refused"),
        "{}",
        refused.text
    );
    let reason = &refused.body["reason"];
    assert_eq!(reason["available"], "15.00");
    assert_eq!(reason["needed"], "500.00");
    assert_eq!(refused.body["request_status"], "created");
}

/// A payout that beta has accepted: its id and its code.
async fn accepted(api: &Api, as_alpha: &str, as_beta: &str) -> (String, String) {
    let world = &api.world;
    let cashier = world.cashier(world.beta, "ahmed");
    let cashier = world.funded(cashier, 70_000).await;
    let body = api.payout(Some(world.beta)).await;
    let created = api.post(ORDERS, as_alpha, body).await;
    let id = id_of(&created);
    let accept = json!({ "account_id": cashier.id() });
    let accepted = api.post(&path(&id, "accept"), as_beta, accept).await;
    assert_eq!(accepted.status, 200, "{}", accepted.text);
    assert_eq!(accepted.body["status"], "accepted");
    assert!(accepted.body["counterpart_uid"].as_str().is_some());
    let code = created.body["pickup_code"].as_str().unwrap();
    (id, code.to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payout_by_two_brokers() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let (id, code) = accepted(&api, &as_alpha, &as_beta).await;
    let early = api.post(&path(&id, "confirm"), &as_alpha, json!({})).await;
    assert_eq!(early.problem(), (409, "wrong_status"));
    assert_eq!(early.body["detail"], "the order is accepted");

    let execute = path(&id, "execute");
    let theirs = api.post(&execute, &as_alpha, proof(None)).await;
    assert_eq!(
        theirs.body["detail"],
        "only the executor may execute the order"
    );
    let wrong = api.post(&execute, &as_beta, proof(Some("12345678"))).await;
    assert_eq!(wrong.problem(), (422, "pickup_refused"), "{}", wrong.text);
    let left = &wrong.body["tries_left"];
    assert_eq!((wrong.fields(), left), (vec!["pickup_code"], &json!(4)));
    let renew = path(&id, "pickup-code");
    let renewed = api.post(&renew, &as_alpha, json!({})).await;
    assert_eq!(renewed.status, 200, "{}", renewed.text);
    let new = renewed.body["pickup_code"].as_str().unwrap().to_owned();
    let old = api.post(&execute, &as_beta, proof(Some(&code))).await;
    assert_eq!(old.problem(), (422, "pickup_refused"));
    let executed = api.post(&execute, &as_beta, proof(Some(&new))).await;
    assert_eq!(executed.status, 200, "{}", executed.text);
    assert_eq!(executed.body["status"], "executed");
    let confirmed = api.post(&path(&id, "confirm"), &as_alpha, json!({})).await;
    assert_eq!(confirmed.status, 200, "{}", confirmed.text);
    assert_eq!(confirmed.body["status"], "completed");
    let events = api.get(&path(&id, "events"), &as_beta).await;
    let kinds = events.items().iter();
    let kinds: Vec<&str> = kinds.map(|one| one["kind"].as_str().unwrap()).collect();
    let expected = "created accepting accepted pickup_refused pickup_renewed pickup_refused \
                    sent confirmed completed";
    assert_eq!(kinds.join(" "), expected);
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
async fn credit_is_bounded() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    let code = &world.currency;
    let of = |debtor: u64, code: &str| format!("/v1/credit-lines/{debtor}/{code}");
    let set = of(world.alpha, code.as_str());
    let line = api.put(&set, &as_beta, json!({ "limit": "15000" })).await;
    assert_eq!(line.status, 200, "{}", line.text);
    assert_eq!(line.body["line"]["used"], "10000.00");
    assert_eq!(line.body["line"]["free"], "5000.00");
    for (path, limit, field) in [
        (set.clone(), json!("-1"), "limit"),
        (set.clone(), json!(""), "limit"),
        (set.clone(), json!(5), "limit"),
        (
            of(world.beta, code.as_str()),
            json!("1"),
            "debtor_broker_id",
        ),
        (of(4, code.as_str()), json!("1"), "debtor_broker_id"),
        (of(world.alpha, "NOPE"), json!("1"), "currency_code"),
    ] {
        let refused = api.put(&path, &as_beta, json!({ "limit": limit })).await;
        let named = (refused.status, refused.fields());
        assert_eq!(named, (422, vec![field]), "{}", refused.text);
    }
    // A bound is lifted by saying so, not by leaving it out.
    let left_out = api.put(&set, &as_beta, json!({})).await;
    let named = (left_out.status, left_out.fields());
    assert_eq!(named, (422, vec!["limit"]), "{}", left_out.text);
    let request = world.send(Some(world.beta));
    let request = world.create(world.alpha, request).await;
    let accept = format!("/v1/network/requests/{}/accept", request.id);
    let short = api.post(&accept, &as_beta, json!({})).await;
    assert_eq!(short.problem(), (409, "credit_short"), "{}", short.text);
    assert_eq!(short.body["available"], "5000.00");
    let positions = api.get("/v1/positions", &as_alpha).await;
    let position = &positions.items()[0];
    assert_eq!(position["owing"], "10000.00");
    assert_eq!(position["credit_taken"]["free"], "5000.00");
    assert_eq!(position["credit_given"], Value::Null);
    let lines = api.get("/v1/credit-lines", &as_alpha).await;
    assert_eq!(lines.items()[0]["limit"], "15000.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn debts_are_repaid() {
    let api = Api::new().await;
    let world = &api.world;
    let as_alpha = api.admin_of(world.alpha).await;
    let as_beta = api.admin_of(world.beta).await;
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    let repay = |amount: &str| {
        json!({
            "target_broker_id": world.beta,
            "type": "settlement",
            "currency_code": world.currency,
            "amount": amount,
            "method": "bank",
        })
    };
    let requests = "/v1/network/requests";
    let refused = api.post(requests, &as_alpha, repay("10000.01")).await;
    let named = (refused.status, refused.fields());
    assert_eq!(named, (422, vec!["amount"]), "{}", refused.text);
    let created = api.post(requests, &as_alpha, repay("4000.00")).await;
    assert_eq!(created.status, 201, "{}", created.text);
    let debtor = &created.body["settles"]["debtor_broker_id"];
    assert_eq!(debtor, &json!(world.alpha));
    let words = created.body["terms"]["words"][0].as_str().unwrap();
    assert!(words.contains("falls by 4000.00"), "{words}");
    let repaid = id_of(&created);
    let path = |action: &str| format!("{requests}/{repaid}/{action}");
    api.post(&path("accept"), &as_beta, json!({})).await;
    let owed = api.get("/v1/obligations", &as_alpha).await;
    assert_eq!(owed.items()[0]["reserved_amount"], "4000.00");
    let was_sent = api.post(&path("sent"), &as_alpha, proof(None)).await;
    assert_eq!(was_sent.status, 200, "{}", was_sent.text);
    let done = api.post(&path("confirm"), &as_beta, json!({})).await;
    assert_eq!(done.body["status"], "completed", "{}", done.text);

    let obligation = owed.items()[0]["id"].as_str().unwrap();
    let one = format!("/v1/obligations/{obligation}");
    let one = api.get(&one, &as_beta).await;
    assert_eq!(one.body["remaining_amount"], "6000.00");
    let part = &one.body["settlements"][0];
    assert_eq!(part["subject"], json!(repaid));
    assert_eq!(part["settled_amount"], "4000.00");
    crate::harness::assert_invariants(world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn debts_are_found_by_side_and_age() {
    let api = Api::new().await;
    let world = &api.world;
    let id = world.sent(world.alpha, world.beta).await;
    world.confirm(id).await.unwrap();
    world.clock.advance(chrono::Duration::days(10));
    let as_alpha = api.admin_of(world.alpha).await;
    let (beta, code) = (world.beta, &world.currency);
    let both = format!("counterparty_broker_id={beta}&currency_code={code}&status=active");
    for (query, found) in [
        ("side=debtor", 1),
        ("side=creditor", 0),
        (&*both, 1),
        ("counterparty_broker_id=4", 0),
    ] {
        let listed = api
            .get(&format!("/v1/obligations?{query}"), &as_alpha)
            .await;
        assert_eq!(listed.items().len(), found, "{query} {}", listed.text);
    }
    let ages = api.get("/v1/obligations/ageing", &as_alpha).await;
    assert_eq!(ages.items().len(), 1, "{}", ages.text);
    assert_eq!(ages.items()[0]["days_0_7"], "0.00");
    assert_eq!(ages.items()[0]["days_8_30"], "10000.00");
    assert_eq!(ages.items()[0]["total"], "10000.00");
}
