use axum::body::Body;
use axum::http::Request;
use chrono::Duration;
use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::partners::on_plan;
use super::{Answer, Api};

const OWN: &str = "/v1/broker/domain";

impl Api {
    async fn call(
        &self,
        method: &str,
        path: &str,
        token: Option<&str>,
        host: &str,
        body: Option<Value>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", host);
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let body = match body {
            None => Body::empty(),
            Some(body) => {
                request = request.header("content-type", "application/json");
                Body::from(body.to_string())
            }
        };
        self.send(request.body(body).unwrap()).await
    }

    /// The status of reading one's broker under a host.
    async fn read_under(&self, host: &str, token: &str) -> u16 {
        let answer = self.call("GET", "/v1/broker", Some(token), host, None);
        answer.await.status
    }

    async fn claim(&self, token: &str, host: &str) -> Answer {
        self.call(
            "PUT",
            OWN,
            Some(token),
            "localhost:8080",
            Some(json!({"host": host})),
        )
        .await
    }

    async fn activate(&self, broker: u64, host: &str) -> Answer {
        let platform = self.platform().await;
        let path = format!("/v1/admin/brokers/{broker}/domain/activate");
        self.post_as(&path, &platform, None, json!({"host": host}))
            .await
    }

    async fn site(&self, host: &str) -> Value {
        let answer = self.call("GET", "/v1/site", None, host, None).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.body["broker"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_leads_to_its_broker_and_to_nobody_else() {
    let api = Api::new().await;
    let world = &api.world;
    let [alpha, beta] = [
        api.admin_of(world.alpha).await,
        api.admin_of(world.beta).await,
    ];
    let platform = api.platform().await;
    assert_eq!(
        api.call("GET", OWN, Some(&alpha), "x", None)
            .await
            .problem(),
        (404, "not_found")
    );

    // Claiming proves nothing: it leads nowhere, and others may claim it too.
    let claimed = api.claim(&alpha, "Desk.Example").await;
    assert_eq!(claimed.status, 200, "{claimed:?}");
    assert_eq!(
        (&claimed.body["host"], &claimed.body["state"]),
        (&json!("desk.example"), &json!("claimed"))
    );
    assert_eq!(
        api.claim(&alpha, "desk.example").await.body,
        claimed.body,
        "the proof stays"
    );
    let rival = api.claim(&beta, "desk.example").await;
    assert_ne!(rival.body["proof"], claimed.body["proof"]);
    assert_eq!(api.site("desk.example").await, Value::Null);
    assert_eq!(api.read_under("desk.example", &beta).await, 200);

    let wrong = api.activate(world.alpha, "other.example").await;
    assert_eq!(wrong.problem(), (409, "conflict"), "not what was looked at");
    for _ in 0..2 {
        let active = api.activate(world.alpha, "desk.example").await;
        assert_eq!(
            (active.status, &active.body["state"]),
            (200, &json!("active")),
            "{active:?}"
        );
    }
    assert_eq!(
        api.activate(world.beta, "desk.example").await.problem(),
        (409, "host_taken")
    );
    assert_eq!(
        api.activate(world.gamma, "desk.example").await.problem(),
        (404, "not_found")
    );
    let delta = api.admin_of(world.delta).await;
    assert_eq!(
        api.claim(&delta, "desk.example").await.problem(),
        (409, "host_taken")
    );

    for host in ["desk.example", "DESK.example:8443", "desk.example."] {
        assert_eq!(
            api.site(host).await,
            json!({"id": world.alpha, "name": "Alpha"}),
            "{host}"
        );
        let own = api
            .call("GET", "/v1/broker", Some(&alpha), host, None)
            .await;
        assert_eq!((own.status, &own.body["id"]), (200, &json!(world.alpha)));
        for token in [&beta, &platform] {
            for (method, path) in [
                ("GET", "/v1/broker"),
                ("GET", "/v1/admin/brokers"),
                ("POST", "/v1/partners"),
            ] {
                let answer = api.call(method, path, Some(token), host, None).await;
                assert_eq!(
                    answer.problem(),
                    (403, "wrong_site"),
                    "{method} {path} {host}"
                );
            }
        }
    }
    for host in [
        "other.example",
        "sub.desk.example",
        "127.0.0.1:8080",
        "localhost",
        "desk.example:x",
    ] {
        assert_eq!(api.site(host).await, Value::Null, "{host}");
        assert_eq!(api.read_under(host, &beta).await, 200);
    }
    // Where the request's own address names a host, that one counts.
    let whole = api
        .call(
            "GET",
            "http://desk.example/v1/site",
            None,
            "other.example",
            None,
        )
        .await;
    assert_eq!(whole.body["broker"]["id"], world.alpha);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_is_claimed_by_many_and_passes_from_one_to_another() {
    let api = Api::new().await;
    let world = &api.world;
    let [alpha, beta] = [
        api.admin_of(world.alpha).await,
        api.admin_of(world.beta).await,
    ];
    let platform = api.platform().await;
    for token in [&alpha, &beta] {
        assert_eq!(api.claim(token, "desk.example").await.status, 200);
    }
    assert_eq!(api.activate(world.alpha, "desk.example").await.status, 200);
    let listed = api.get("/v1/admin/domains", &platform).await;
    assert_eq!(listed.items().len(), 2);
    let waiting = api.get("/v1/admin/domains?active=false", &platform).await;
    assert_eq!(
        (waiting.items().len(), &waiting.items()[0]["broker_id"]),
        (1, &json!(world.beta))
    );

    // Another name takes its place; what was given up is free for the rival.
    let moved = api.claim(&alpha, "новый.example").await;
    assert_eq!(
        (moved.status, moved.fields()),
        (422, vec!["host"]),
        "punycode"
    );
    let moved = api.claim(&alpha, "xn--b1amarcd.example").await;
    assert_eq!(moved.body["state"], "claimed", "{moved:?}");
    assert_eq!(api.site("desk.example").await, Value::Null);
    assert_eq!(api.activate(world.beta, "desk.example").await.status, 200);
    assert_eq!(api.site("desk.example").await["id"], world.beta);
    let admin = format!("/v1/admin/brokers/{}/domain", world.beta);
    let gone = api.call("DELETE", &admin, Some(&platform), "x", None).await;
    assert_eq!(gone.status, 204, "{gone:?}");
    assert_eq!(api.site("desk.example").await, Value::Null);
    assert_eq!(
        api.call("DELETE", &admin, Some(&platform), "x", None)
            .await
            .status,
        404
    );
    assert_eq!(
        api.call("DELETE", OWN, Some(&alpha), "x", None)
            .await
            .status,
        204
    );

    for (host, token) in [
        ("", &alpha),
        ("localhost", &alpha),
        ("10.0.0.1", &alpha),
        ("desk.example:80", &alpha),
    ] {
        let answer = api.claim(token, host).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec!["host"]),
            "{host}"
        );
    }
    let operator = api.token(Role::BrokerOperator, Some(world.alpha)).await;
    assert_eq!(
        api.claim(&operator, "a.example").await.problem(),
        (403, "role_forbidden")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_goes_with_the_plan_and_outlasts_a_suspension() {
    let api = Api::new().await;
    let (world, broker) = (&api.world, api.world.gamma);
    let gamma = api.admin_of(broker).await;
    on_plan(&api, broker, "growth").await;
    let refused = api.claim(&gamma, "desk.example").await;
    assert_eq!(refused.problem(), (403, "plan_limit"));
    assert_eq!(
        (&refused.body["limit"], &refused.body["lifted_by"]),
        (&json!("custom_domains"), &json!("pro"))
    );

    on_plan(&api, broker, "pro").await;
    assert_eq!(api.claim(&gamma, "desk.example").await.status, 200);
    let down = api
        .post("/v1/broker/plan", &gamma, json!({"plan": "growth"}))
        .await;
    assert_eq!(
        down.problem(),
        (409, "plan_too_small"),
        "a claim counts, proven or not"
    );
    assert!(
        down.body["detail"]
            .as_str()
            .unwrap()
            .contains("release the domain desk.example")
    );
    assert_eq!(api.activate(broker, "desk.example").await.status, 200);

    // Suspended, its people still finish what they have begun, under their own name.
    let platform = api.platform().await;
    let path = format!("/v1/admin/brokers/{broker}/suspend");
    assert_eq!(
        api.post(&path, &platform, json!({ "reason": "an audit" }))
            .await
            .status,
        200
    );
    world.clock.advance(Duration::seconds(10));
    assert_eq!(api.site("desk.example").await["id"], broker);
    assert_eq!(
        api.call("GET", "/v1/accounts", Some(&gamma), "desk.example", None)
            .await
            .status,
        200
    );
    let refused = api.claim(&gamma, "new.example").await;
    assert_eq!(refused.problem(), (409, "paused"));
    assert_eq!(
        api.call("DELETE", OWN, Some(&gamma), "x", None)
            .await
            .status,
        204
    );

    // What another process has changed is seen within seconds.
    let sql =
        "INSERT INTO broker_domain (broker_id, host, active_host, proof, claimed_at, activated_at)
               VALUES (?, 'late.example', 'late.example', 'x', ?, ?)";
    assert_eq!(api.site("late.example").await, Value::Null);
    let row = sqlx::query(sql)
        .bind(world.alpha)
        .bind(world.clock.now())
        .bind(world.clock.now());
    row.execute(&world.app.systems.master).await.unwrap();
    assert_eq!(api.site("late.example").await, Value::Null);
    world.clock.advance(Duration::seconds(5));
    assert_eq!(api.site("late.example").await["id"], world.alpha);
}
