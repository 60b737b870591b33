use serde_json::{Value, json};
use settlenet::stores::master::feed;

use super::Api;

const PAUSES: &str = "/v1/admin/pauses";
const REQUESTS: &str = "/v1/network/requests";

fn send_to(api: &Api, target: u64) -> Value {
    json!({"target_broker_id": target, "type": "send", "currency_code": api.world.currency,
           "amount": "10000.00", "method": "cash"})
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_paused_is_said_with_the_reason() {
    let api = Api::new().await;
    let (alpha, beta) = (api.world.alpha, api.world.beta);
    let (as_alpha, as_beta) = (api.admin_of(alpha).await, api.admin_of(beta).await);
    let platform = api.platform().await;
    let currency = api.world.currency.to_string();
    let waiting = api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await;
    let accept = format!("{REQUESTS}/{}/accept", waiting.body["id"].as_str().unwrap());
    for (body, scope, told_to_beta) in [
        (
            json!({"scope": "network"}),
            json!({"scope": "network"}),
            true,
        ),
        (
            json!({"scope": "currency", "currency_code": currency}),
            json!({"scope": "currency", "currency_code": currency}),
            true,
        ),
        (
            json!({"scope": "broker", "broker_id": alpha}),
            json!({"scope": "broker", "broker_id": alpha}),
            false,
        ),
    ] {
        let mut body = body;
        body["reason"] = json!("the rates are wrong");
        let paused = api.post(PAUSES, &platform, body.clone()).await;
        assert_eq!(
            (paused.status, &paused.body["state"]),
            (201, &json!("open"))
        );
        let again = api.post(PAUSES, &platform, body).await;
        assert_eq!((again.status, &again.body), (200, &paused.body));

        let mut told = scope.clone();
        told["reason"] = json!("the rates are wrong");
        told["since"] = paused.body["paused_at"].clone();
        let new = api.post(REQUESTS, &as_alpha, send_to(&api, beta)).await;
        assert_eq!(new.problem(), (409, "paused"), "{scope}");
        assert_eq!(new.body["paused"], told);
        assert!(
            new.body["detail"]
                .as_str()
                .unwrap()
                .contains("the rates are wrong")
        );
        assert!(new.headers.get("retry-after").is_none(), "nobody knows");
        let theirs = if told_to_beta { &told } else { &scope };
        let late = api.post(&accept, &as_beta, json!({})).await;
        assert_eq!(
            (late.problem(), &late.body["paused"]),
            ((409, "paused"), theirs)
        );
        let to_it = api.post(REQUESTS, &as_beta, send_to(&api, alpha)).await;
        assert_eq!(
            (to_it.problem(), &to_it.body["paused"]),
            ((409, "paused"), theirs)
        );

        let lift = format!("{PAUSES}/{}/lift", paused.body["id"]);
        for _ in 0..2 {
            let lifted = api
                .post_as(&lift, &platform, None, json!({"reason": "put right"}))
                .await;
            assert_eq!(
                (lifted.status, &lifted.body["state"]),
                (200, &json!("lifted"))
            );
            assert_eq!(lifted.body["lift_reason"], "put right");
        }
    }
    let open = api.get(PAUSES, &platform).await;
    assert!(open.items().is_empty());
    let all = api
        .get(&format!("{PAUSES}?all=true&limit=2"), &platform)
        .await;
    assert_eq!(all.items().len(), 2);
    let by = all.items()[0]["paused_by"].as_str().unwrap();
    assert!(by.starts_with("US-"), "{by}");
    assert!(all.body["next_cursor"].is_string());
    assert_eq!(api.post(&accept, &as_beta, json!({})).await.status, 200);

    // Whom it concerns finds it in the feed, with the platform.
    let master = &api.world.app.systems.master;
    while api.world.app.feeds.sequence(100).await.unwrap() > 0 {}
    let told = async |broker| -> Vec<String> {
        let events = feed::after(master, broker, 0, 100).await.unwrap();
        let pauses = events.into_iter().map(|event| event.kind);
        pauses
            .filter(|kind| kind.ends_with("ed") && !kind.starts_with("request"))
            .collect()
    };
    let everybody = [
        "network.paused",
        "network.resumed",
        "currency.paused",
        "currency.resumed",
    ];
    let own = ["broker.paused", "broker.resumed"];
    assert_eq!(told(beta).await, everybody);
    assert_eq!(told(alpha).await, [&everybody[..], &own].concat());
    assert_eq!(told(feed::PLATFORM).await, [&everybody[..], &own].concat());
    let alerts = api.get("/v1/admin/alerts", &platform).await;
    assert!(alerts.items().is_empty(), "a pause is no alarm");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_repeat_pauses_nothing_anew() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let body = json!({"scope": "network", "reason": "a fire"});
    let first = api
        .post_as(PAUSES, &platform, Some("k1"), body.clone())
        .await;
    let lift = format!("{PAUSES}/{}/lift", first.body["id"]);
    assert_eq!(api.post(&lift, &platform, json!({})).await.status, 200);
    let late = api
        .post_as(PAUSES, &platform, Some("k1"), body.clone())
        .await;
    assert_eq!((late.status, &late.body["state"]), (200, &json!("lifted")));
    assert!(api.get(PAUSES, &platform).await.items().is_empty());

    // Nor does a late lift end another pause than its own.
    let second = api.post_as(PAUSES, &platform, Some("k2"), body).await;
    assert_eq!(second.status, 201);
    assert_eq!(api.post(&lift, &platform, json!({})).await.status, 200);
    assert_eq!(api.get(PAUSES, &platform).await.items().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_broker_joins_a_paused_network() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let body = json!({"scope": "network", "reason": "a fire"});
    let pause = api.post(PAUSES, &platform, body).await;
    let new = json!({"name": "New", "plan": "starter"});
    let refused = api.post("/v1/admin/brokers", &platform, new.clone()).await;
    assert_eq!(refused.problem(), (409, "paused"));
    let lift = format!("{PAUSES}/{}/lift", pause.body["id"]);
    api.post(&lift, &platform, json!({})).await;
    let made = api.post("/v1/admin/brokers", &platform, new).await;
    assert_eq!(made.status, 201, "{made:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_pause_is_refused() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let currency = api.world.currency.to_string();
    let long = "x".repeat(501);
    for (body, field) in [
        (json!({"scope": "network"}), "reason"),
        (json!({"scope": "network", "reason": " "}), "reason"),
        (json!({"scope": "network", "reason": long}), "reason"),
        (json!({"scope": "network", "reason": "a\u{7}"}), "reason"),
        (json!({"scope": "planet", "reason": "x"}), "scope"),
        (
            json!({"scope": "network", "reason": "x", "until": "y"}),
            "until",
        ),
        (
            json!({"scope": "network", "broker_id": 1, "reason": "x"}),
            "broker_id",
        ),
        (json!({"scope": "broker", "reason": "x"}), "broker_id"),
        (json!({"scope": "currency", "reason": "x"}), "currency_code"),
        (
            json!({"scope": "currency", "currency_code": "usd", "reason": "x"}),
            "currency_code",
        ),
        (
            json!({"scope": "currency", "currency_code": "NONE", "reason": "x"}),
            "currency_code",
        ),
        (
            json!({"scope": "broker", "broker_id": 1, "currency_code": currency, "reason": "x"}),
            "currency_code",
        ),
    ] {
        let answer = api.post(PAUSES, &platform, body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
    let nobody = json!({"scope": "broker", "broker_id": 7, "reason": "x"});
    let nobody = api.post(PAUSES, &platform, nobody).await;
    assert_eq!(nobody.problem(), (404, "not_found"));
    let lift = api
        .post(&format!("{PAUSES}/7/lift"), &platform, json!({}))
        .await;
    assert_eq!(lift.problem(), (404, "not_found"));
    let body = json!({"scope": "network", "reason": "x"});
    let keyless = api.post_as(PAUSES, &platform, None, body).await;
    assert_eq!(keyless.problem(), (400, "idempotency_key_missing"));
    // Only an active broker can be paused.
    let master = &api.world.app.systems.master;
    sqlx::query("UPDATE broker SET state = 'provisioning' WHERE broker_id = ?")
        .bind(api.world.gamma)
        .execute(master)
        .await
        .unwrap();
    let body = json!({"scope": "broker", "broker_id": api.world.gamma, "reason": "x"});
    let early = api.post(PAUSES, &platform, body).await;
    assert_eq!(early.problem(), (409, "conflict"));
    assert!(api.get(PAUSES, &platform).await.items().is_empty());
}
