use serde_json::json;
use settlenet::domain::access::Role;
use settlenet::domain::ids::BrokerId;
use settlenet::domain::netting::verify::verify;

use super::{Answer, Api};
use crate::harness::World;
use crate::netting::{debts, network};

const PROPOSALS: &str = "/v1/netting/proposals";
const ROUNDS: &str = "/v1/netting/rounds";
const ADMIN: &str = "/v1/admin/netting/rounds";

async fn say(api: &Api, path: &str, token: &str) -> Answer {
    api.post_as(path, token, None, json!({})).await
}

fn id_of(answer: &Answer) -> &str {
    answer.body["id"].as_str().unwrap()
}

/// Alpha owes Beta ten, Beta owes Alpha seven.
async fn two() -> (Api, BrokerId, BrokerId) {
    let world = World::new().await;
    let (alpha, beta) = (world.alpha, world.beta);
    debts(&world, &[(alpha, beta, 1_000), (beta, alpha, 700)]).await;
    (Api::on(world).await, alpha, beta)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_brokers_net_what_they_owe_each_other() {
    let (api, alpha, beta) = two().await;
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let currency = api.world.currency.to_string();
    let body = json!({"counterparty_broker_id": beta, "currency_code": currency});
    let made = api
        .post_as(PROPOSALS, &as_alpha, Some("k1"), body.clone())
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    assert!(id_of(&made).starts_with("NP-"));
    assert_eq!(
        made.body["effect"],
        format!(
            "What broker {alpha} owes broker {beta} falls by up to 7.00 {currency}, what broker \
             {beta} owes broker {alpha} falls by the same; your net position stays."
        )
    );
    let again = api
        .post_as(PROPOSALS, &as_alpha, Some("k1"), body.clone())
        .await;
    assert_eq!((again.status, &again.body), (201, &made.body));
    let mut other = body.clone();
    other["amount"] = json!("1.00");
    let reused = api.post_as(PROPOSALS, &as_alpha, Some("k1"), other).await;
    assert_eq!(reused.problem(), (422, "idempotency_key_reused"));
    let keyless = api.post_as(PROPOSALS, &as_alpha, None, body.clone()).await;
    assert_eq!(keyless.problem(), (400, "idempotency_key_missing"));

    let path = format!("{PROPOSALS}/{}", id_of(&made));
    for token in [&as_alpha, &as_beta] {
        assert_eq!(api.get(&path, token).await.body, made.body);
        assert_eq!(api.get(PROPOSALS, token).await.items().len(), 1);
    }
    let gamma = api.admin_of(api.world.gamma).await;
    assert!(api.get(PROPOSALS, &gamma).await.items().is_empty());
    assert_eq!(api.get(&path, &gamma).await.problem(), (404, "not_found"));
    for act in ["approve", "decline", "cancel"] {
        let foreign = say(&api, &format!("{path}/{act}"), &gamma).await;
        assert_eq!(foreign.problem(), (404, "not_found"));
    }
    let own = say(&api, &format!("{path}/approve"), &as_alpha).await;
    assert_eq!(own.problem(), (403, "not_your_move"));
    let viewer = api.token(Role::BrokerViewer, Some(beta)).await;
    let approve = format!("{path}/approve");
    assert_eq!(
        say(&api, &approve, &viewer).await.problem(),
        (403, "role_forbidden")
    );
    assert_eq!(api.get(&path, &viewer).await.status, 200);
    let operator = api.token(Role::BrokerOperator, Some(beta)).await;
    for token in [&operator, &as_beta] {
        let applied = say(&api, &approve, token).await;
        assert_eq!(
            (applied.status, &applied.body["status"]),
            (200, &json!("applied"))
        );
        assert_eq!(applied.body["netted_amount"], "7.00");
    }
    let late = say(&api, &format!("{path}/cancel"), &as_alpha).await;
    assert_eq!(late.problem(), (409, "wrong_status"));
    assert_eq!(late.body["request_status"], "applied");
    let positions = api.get("/v1/positions", &as_alpha).await;
    assert_eq!(positions.items()[0]["owing"], "3.00");

    let nothing = api.post(PROPOSALS, &as_alpha, body).await;
    assert_eq!(nothing.problem(), (409, "nothing_to_net"));
    assert_eq!(
        nothing.body["owes"],
        json!([
            {"debtor_broker_id": alpha, "creditor_broker_id": beta, "amount": "3.00"},
            {"debtor_broker_id": beta, "creditor_broker_id": alpha, "amount": "0.00"},
        ])
    );
    let done = api
        .get(&format!("{PROPOSALS}?status=applied"), &as_beta)
        .await;
    assert_eq!(done.items().len(), 1);
    let open = api
        .get(&format!("{PROPOSALS}?status=proposed"), &as_beta)
        .await;
    assert!(open.items().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_proposal_is_refused() {
    let (api, alpha, beta) = two().await;
    let token = api.admin_of(alpha).await;
    let currency = api.world.currency.to_string();
    let good = json!({"counterparty_broker_id": beta, "currency_code": currency});
    for (field, value) in [
        ("counterparty_broker_id", json!(alpha)),
        ("counterparty_broker_id", json!(7)),
        ("counterparty_broker_id", json!("x")),
        ("currency_code", json!("NONE")),
        ("currency_code", json!("usd")),
        ("amount", json!("0")),
        ("amount", json!("1.001")),
        ("amount", json!("-1")),
        ("expires_at", json!("2025-12-31T00:00:00Z")),
        ("expires_at", json!("2026-12-31T00:00:00Z")),
        ("expires_at", json!("soon")),
        ("until", json!(1)),
    ] {
        let mut body = good.clone();
        body[field] = value;
        let answer = api.post(PROPOSALS, &token, body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
    for id in ["NP-000000000001", "NP-1", "OB-000000000001"] {
        let none = api.get(&format!("{PROPOSALS}/{id}"), &token).await;
        assert_eq!(none.problem(), (404, "not_found"));
    }
    let platform = api.platform().await;
    let body = json!({"scope": "network", "reason": "a fire"});
    api.post("/v1/admin/pauses", &platform, body).await;
    let paused = api.post(PROPOSALS, &token, good).await;
    assert_eq!(paused.problem(), (409, "paused"));
    assert_eq!(paused.body["paused"]["reason"], "a fire");
}

/// Three whose debts go round, and two beside them; with their tokens, and one of the fourth.
struct Ring {
    api: Api,
    brokers: Vec<BrokerId>,
    platform: String,
    one: String,
    two: String,
    three: String,
    outside: String,
}

async fn going_round() -> Ring {
    let world = network().await;
    let brokers = world.brokers.clone();
    debts(
        &world,
        &[
            (brokers[0], brokers[1], 500),
            (brokers[1], brokers[2], 300),
            (brokers[2], brokers[0], 400),
            (brokers[3], brokers[4], 100),
        ],
    )
    .await;
    let api = Api::on(world).await;
    Ring {
        platform: api.platform().await,
        one: api.admin_of(brokers[0]).await,
        two: api.admin_of(brokers[1]).await,
        three: api.admin_of(brokers[2]).await,
        outside: api.admin_of(brokers[3]).await,
        brokers,
        api,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_round_would_clear() {
    let Ring {
        api,
        brokers,
        platform,
        one,
        outside,
        ..
    } = going_round().await;
    let currency = api.world.currency.to_string();
    let preview = format!("/v1/netting/preview?currency_code={currency}");
    let seen = api.get(&preview, &one).await;
    assert_eq!(seen.body["debts_fall"], "3.00");
    assert_eq!(seen.body["offered"], true);
    assert_eq!(
        api.get(&preview, &outside).await.body["claims_fall"],
        "0.00"
    );
    let seen = format!(
        "/v1/admin/netting/preview?currency_code={currency}&without={}",
        brokers[1]
    );
    let seen = api.get(&seen, &platform).await;
    assert_eq!(seen.body["clearing"]["cleared"], "9.00");
    assert_eq!(seen.body["clearing"]["bilateral"], "0.00");
    assert_eq!(seen.body["without"]["adds"], "9.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_broker_sees_its_own_of_a_round() {
    let Ring {
        api,
        brokers,
        platform,
        one,
        two,
        outside,
        ..
    } = going_round().await;
    let currency = api.world.currency.to_string();
    let body = json!({ "currency_code": currency });
    let made = api
        .post_as(ADMIN, &platform, Some("k1"), body.clone())
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    let again = api
        .post_as(ADMIN, &platform, Some("k1"), body.clone())
        .await;
    assert_eq!(again.body, made.body);
    let second = api.post(ADMIN, &platform, body.clone()).await;
    assert_eq!(second.problem(), (409, "round_open"));
    assert_eq!(second.body["round_id"], made.body["id"]);
    assert_eq!(made.body["answers"]["asked"], 3);
    let id = id_of(&made);

    let (path, admin) = (format!("{ROUNDS}/{id}"), format!("{ADMIN}/{id}"));
    let mine = api.get(&path, &one).await;
    assert_eq!(
        mine.body["effect"],
        format!(
            "Your debts fall by 3.00 {currency}, your claims fall by 3.00 {currency}; your net \
             position stays -1.00 {currency}."
        )
    );
    let lines = api.get(&format!("{path}/lines?limit=1"), &one).await;
    let cursor = lines.body["next_cursor"].as_str().unwrap();
    let rest = api
        .get(&format!("{path}/lines?cursor={cursor}"), &one)
        .await;
    for line in lines.items().iter().chain(rest.items()) {
        assert!(line["debtor_broker_id"] == brokers[0] || line["creditor_broker_id"] == brokers[0]);
        assert_eq!(line["reduction"], "3.00");
    }
    assert_eq!(lines.items().len() + rest.items().len(), 2);
    // Nobody else's, and not for whom it does not touch.
    for path in [path.clone(), format!("{path}/lines")] {
        assert_eq!(api.get(&path, &outside).await.problem(), (404, "not_found"));
    }
    let foreign = say(&api, &format!("{path}/approve"), &outside).await;
    assert_eq!(foreign.problem(), (404, "not_found"));
    assert!(api.get(ROUNDS, &outside).await.items().is_empty());
    assert_eq!(api.get(ROUNDS, &two).await.items().len(), 1);
    assert_eq!(
        api.get(&admin, &one).await.problem(),
        (403, "role_forbidden")
    );
    assert_eq!(
        api.get(&path, &platform).await.problem(),
        (403, "role_forbidden")
    );
    let parties = api
        .get(&format!("{admin}/parties?limit=2"), &platform)
        .await;
    assert_eq!(parties.items().len(), 2);
    assert!(parties.body["next_cursor"].is_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_round_from_its_answers_to_its_certificate() {
    let Ring {
        api,
        platform,
        one,
        two,
        three,
        ..
    } = going_round().await;
    let currency = api.world.currency.to_string();
    let body = json!({ "currency_code": currency });
    let made = api.post(ADMIN, &platform, body.clone()).await;
    let id = id_of(&made);
    let (path, admin) = (format!("{ROUNDS}/{id}"), format!("{ADMIN}/{id}"));
    for token in [&one, &two] {
        for _ in 0..2 {
            let approved = say(&api, &format!("{path}/approve"), token).await;
            assert_eq!(approved.body["answer"], "approved", "{approved:?}");
            assert_eq!(approved.body["status"], "proposed");
        }
    }
    let last = say(&api, &format!("{path}/approve"), &three).await;
    assert_eq!(last.body["status"], "applied");
    assert!(
        last.body["effect"]
            .as_str()
            .unwrap()
            .contains("have fallen by 3.00")
    );
    let late = say(&api, &format!("{path}/decline"), &two).await;
    assert_eq!(late.problem(), (409, "wrong_status"));
    assert_eq!(late.body["request_status"], "applied");
    let cancel = say(&api, &format!("{admin}/cancel"), &platform).await;
    assert_eq!(cancel.problem(), (409, "wrong_status"));

    let certificate = api.get(&format!("{admin}/certificate"), &platform).await;
    assert_eq!(certificate.headers["content-type"], "application/x-ndjson");
    let verified = verify(certificate.text.as_bytes()).unwrap();
    assert_eq!((verified.cleared, verified.obligations), (900, 4));
    let again = api
        .get(&format!("{admin}/certificate?revision=1"), &platform)
        .await;
    assert_eq!(again.text, certificate.text);
    let none = api
        .get(&format!("{admin}/certificate?revision=2"), &platform)
        .await;
    assert_eq!(none.problem(), (404, "not_found"));
    assert_eq!(api.get(ADMIN, &platform).await.items().len(), 1);
    let nothing = api.post(ADMIN, &platform, body).await;
    assert_eq!(nothing.problem(), (409, "nothing_to_net"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_round_is_refused() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let currency = api.world.currency.to_string();
    for (field, value) in [
        ("currency_code", json!("NONE")),
        ("expires_at", json!("2025-12-31T00:00:00Z")),
        ("expires_at", json!("2026-12-31T00:00:00Z")),
        ("brokers", json!(3)),
    ] {
        let mut body = json!({ "currency_code": currency });
        body[field] = value;
        let answer = api.post(ADMIN, &platform, body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
    let few = api
        .post(ADMIN, &platform, json!({ "currency_code": currency }))
        .await;
    assert_eq!(few.problem(), (409, "too_few_brokers"));
    assert_eq!(
        (&few.body["there"], &few.body["needed"]),
        (&json!(4), &json!(10))
    );
    for id in ["MN-000000000001", "MN-1"] {
        for path in [
            format!("{ADMIN}/{id}"),
            format!("{ADMIN}/{id}/certificate"),
            format!("{ADMIN}/{id}/parties"),
        ] {
            assert_eq!(
                api.get(&path, &platform).await.problem(),
                (404, "not_found")
            );
        }
        let cancel = say(&api, &format!("{ADMIN}/{id}/cancel"), &platform).await;
        assert_eq!(cancel.problem(), (404, "not_found"));
    }
    let without = format!("/v1/admin/netting/preview?currency_code={currency}&without=7");
    assert_eq!(api.get(&without, &platform).await.fields(), ["without"]);
    let token = api.admin_of(api.world.alpha).await;
    let preview = api
        .get("/v1/netting/preview?currency_code=NONE", &token)
        .await;
    assert_eq!(preview.fields(), ["currency_code"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_sets_that_it_is_not_asked() {
    let api = Api::new().await;
    let path = "/v1/netting/settings";
    let token = api.admin_of(api.world.alpha).await;
    let operator = api.token(Role::BrokerOperator, Some(api.world.alpha)).await;
    assert_eq!(
        api.get(path, &operator).await.body,
        json!({ "auto_approve": false })
    );
    let on = json!({ "auto_approve": true });
    let refused = api.put(path, &operator, on.clone()).await;
    assert_eq!(refused.problem(), (403, "role_forbidden"));
    let set = api.put(path, &token, on.clone()).await;
    assert_eq!((set.status, &set.body), (200, &on));
    assert_eq!(api.get(path, &operator).await.body, on);
    let other = api.admin_of(api.world.beta).await;
    assert_eq!(
        api.get(path, &other).await.body,
        json!({ "auto_approve": false })
    );
    assert_eq!(
        api.put(path, &token, json!({})).await.fields(),
        ["auto_approve"]
    );
}
