use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::{Api, PASSWORD};

const BROKERS: &str = "/v1/admin/brokers";

fn broker(name: &str, plan: &str) -> Value {
    json!({"name": name, "plan": plan})
}

/// With servers and room for brokers of both kinds.
async fn roomy() -> (Api, String) {
    let api = Api::new().await;
    let token = api.platform().await;
    let server = json!({"server_name": "b", "capacity": 100});
    let answer = api.post("/v1/admin/servers", &token, server).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    (api, token)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_is_made_with_somebody_who_can_log_in() {
    let (api, token) = roomy().await;
    for (plan, mode) in [("starter", "SOLO"), ("pro", "FULL")] {
        let login = format!("admin-of-{plan}");
        let mut body = broker(&format!(" Office {plan} "), plan);
        body["admin"] = json!({"login": login, "password": PASSWORD});
        body["referred_by_broker_id"] = json!(api.world.alpha);
        let made = api.post_as(BROKERS, &token, Some(plan), body.clone()).await;
        assert_eq!(made.status, 201, "{made:?}");
        let again = api.post_as(BROKERS, &token, Some(plan), body.clone()).await;
        assert_eq!((again.status, &again.body), (201, &made.body));
        let view = &made.body["broker"];
        assert_eq!(view["name"], format!("Office {plan}"));
        assert_eq!(
            (&view["broker_mode"], &view["state"]),
            (&json!(mode), &json!("active"))
        );
        assert_eq!(view["referred_by_broker_id"], api.world.alpha);
        assert_eq!(view["shard_id"].is_null(), mode == "FULL");
        assert_eq!(view["server_name"].is_null(), mode == "SOLO");
        let path = format!("{BROKERS}/{}", view["id"]);
        assert_eq!(&api.get(&path, &token).await.body, view);

        // Its first user works at once, in an empty book.
        let admin = api.log_in(&login).await;
        let own = api.get("/v1/broker", &admin).await;
        assert_eq!((own.status, &own.body["id"]), (200, &view["id"]));
        assert!(
            own.body.get("database_name").is_none(),
            "where it is kept is not its affair"
        );
        assert_eq!(api.get("/v1/chain", &admin).await.body["head"]["seq"], 0);

        body["name"] = json!("Another");
        let reused = api.post_as(BROKERS, &token, Some(plan), body).await;
        assert_eq!(reused.problem(), (422, "idempotency_key_reused"));
    }
    let refused = api.post(BROKERS, &token, broker("Office pro", "pro")).await;
    assert_eq!(refused.problem(), (409, "name_taken"));
    assert!(refused.body["broker_id"].is_u64());
}

/// What can be refused is refused before anything is made.
#[tokio::test(flavor = "multi_thread")]
async fn bad_brokers_are_refused_by_field_and_leave_nothing() {
    let (api, token) = roomy().await;
    api.token(Role::BrokerViewer, Some(api.world.alpha)).await;
    let admin = |login: &str, password: &str| json!({"login": login, "password": password});
    for (field, value, named) in [
        ("name", json!(""), "name"),
        ("name", json!("a\nb"), "name"),
        ("name", json!("x".repeat(121)), "name"),
        ("plan", json!("gold"), "plan"),
        ("plan", Value::Null, "plan"),
        ("referred_by_broker_id", json!(7), "referred_by_broker_id"),
        ("referred_by_broker_id", json!("1"), "referred_by_broker_id"),
        ("admin", admin("ab", PASSWORD), "admin.login"),
        ("admin", admin("long-enough", "short"), "admin.password"),
        ("admin", json!({"login": "long-enough"}), "admin.password"),
        ("broker_mode", json!("FULL"), "broker_mode"),
    ] {
        let mut body = broker("Nobody", "starter");
        body[field] = value;
        let answer = api.post(BROKERS, &token, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![named]),
            "{answer:?}"
        );
    }
    let mut body = broker("First", "starter");
    body["admin"] = admin("taken-login", PASSWORD);
    assert_eq!(api.post(BROKERS, &token, body).await.status, 201);
    let mut body = broker("Nobody", "starter");
    body["admin"] = admin("Taken-Login", PASSWORD);
    let refused = api.post(BROKERS, &token, body).await;
    assert_eq!(refused.problem(), (409, "login_taken"));
    let listed = api.get(BROKERS, &token).await;
    assert!(listed.items().iter().all(|item| item["name"] != "Nobody"));

    let missing = api.post_as(BROKERS, &token, None, broker("B", "pro")).await;
    assert_eq!(missing.problem(), (400, "idempotency_key_missing"));
    for nobody in ["0", "7", "x", "-1"] {
        let answer = api.get(&format!("{BROKERS}/{nobody}"), &token).await;
        assert_eq!(answer.problem(), (404, "not_found"), "{nobody}");
        let path = format!("{BROKERS}/{nobody}/suspend");
        assert_eq!(
            api.post(&path, &token, json!({"reason": "x"}))
                .await
                .problem(),
            (404, "not_found")
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn brokers_are_listed_suspended_and_resumed() {
    let (api, token) = roomy().await;
    let page = api.get(&format!("{BROKERS}?limit=3"), &token).await;
    let ids: Vec<_> = page.items().iter().map(|item| &item["id"]).collect();
    let (beta, gamma, delta) = (api.world.beta, api.world.gamma, api.world.delta);
    assert_eq!(json!(ids), json!([delta, gamma, beta]));
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let rest = api
        .get(&format!("{BROKERS}?limit=3&cursor={cursor}"), &token)
        .await;
    assert_eq!(rest.items().len(), 1);

    for (verb, state) in [("suspend", "suspended"), ("resume", "active")] {
        for _ in 0..2 {
            let path = format!("{BROKERS}/{gamma}/{verb}");
            let body = json!({"reason": "an audit"});
            let answer = api.post_as(&path, &token, None, body).await;
            assert_eq!((answer.status, &answer.body["state"]), (200, &json!(state)));
        }
        let listed = api.get(&format!("{BROKERS}?state=suspended"), &token).await;
        assert_eq!(listed.items().len(), usize::from(verb == "suspend"));
    }
    // A broker's people see themselves and nobody else.
    let alpha = api.admin_of(api.world.alpha).await;
    assert_eq!(api.get("/v1/broker", &alpha).await.body["name"], "Alpha");
    let path = format!("{BROKERS}/{}", api.world.alpha);
    for path in [BROKERS, &path] {
        assert_eq!(
            api.get(path, &alpha).await.problem(),
            (403, "role_forbidden")
        );
    }
    assert_eq!(
        api.get("/v1/broker", &token).await.problem(),
        (403, "role_forbidden")
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_and_shards() {
    let (api, token) = roomy().await;
    let (servers, shards) = ("/v1/admin/servers", "/v1/admin/shards");
    let listed = api.get(servers, &token).await;
    let expected = json!([{"name": "b", "capacity": 100, "accepts_new": true, "databases": 2}]);
    assert_eq!(listed.body["items"], expected);
    let body = json!({"server_name": "b", "capacity": 2, "accepts_new": false});
    let answer = api.post_as(servers, &token, None, body).await;
    assert_eq!(
        (answer.status, &answer.body["accepts_new"]),
        (201, &json!(false))
    );
    let full = api.post(BROKERS, &token, broker("No room", "pro")).await;
    assert_eq!(full.problem(), (409, "no_room"));

    let database = format!("{}second", api.world.databases.prefix);
    let body = json!({"server_name": "a", "database_name": database, "capacity": 5});
    for _ in 0..2 {
        let made = api.post_as(shards, &token, None, body.clone()).await;
        assert_eq!(made.status, 201, "{made:?}");
        assert_eq!(
            (&made.body["brokers"], &made.body["accepts_new"]),
            (&json!(0), &json!(true))
        );
    }
    let listed = api.get(shards, &token).await;
    assert_eq!(listed.items().len(), 2);
    assert_eq!(listed.items()[0]["brokers"], 2);
    let made = api
        .post(BROKERS, &token, broker("Newcomer", "growth"))
        .await;
    assert_eq!(made.body["broker"]["shard_id"], listed.items()[1]["id"]);

    for (path, field, value) in [
        (servers, "server_name", json!("nowhere")),
        (servers, "capacity", json!(0)),
        (servers, "capacity", json!(1_000_001)),
        (servers, "url", json!("mysql://")),
        (shards, "server_name", json!("nowhere")),
        (shards, "database_name", json!("a`b")),
        (shards, "database_name", json!("x".repeat(65))),
        (shards, "capacity", json!("many")),
    ] {
        let mut bad = if path == servers {
            json!({"server_name": "b", "capacity": 2})
        } else {
            body.clone()
        };
        bad[field] = value;
        let answer = api.post(path, &token, bad).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{answer:?}"
        );
    }
    assert_eq!(api.get(shards, &token).await.items().len(), 2);
}

/// What begins something is refused; what finishes, keeps books or takes rights away goes on.
#[tokio::test(flavor = "multi_thread")]
async fn the_staff_of_a_suspended_broker_starts_nothing_new() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.gamma).await;
    let operator = api.token(Role::BrokerOperator, Some(api.world.gamma)).await;
    let account = json!({"owner_kind": "partner", "owner_ref": "FO-1",
                         "currency_code": api.world.currency});
    let opened = api.post("/v1/accounts", &token, account.clone()).await;
    assert_eq!(opened.status, 201, "{opened:?}");
    let platform = api.platform().await;
    let path = format!("{BROKERS}/{}/suspend", api.world.gamma);
    let body = json!({"reason": "an audit"});
    assert_eq!(api.post(&path, &platform, body).await.status, 200);

    let user =
        json!({"login": "eve", "password": "correct horse battery", "role": "broker_viewer"});
    let client = json!({"name": "x", "role": "broker_viewer"});
    let other = json!({"owner_kind": "partner", "owner_ref": "FO-2",
                       "currency_code": api.world.currency});
    for (path, body) in [
        ("/v1/team/users", user),
        ("/v1/team/clients", client),
        ("/v1/accounts", other),
    ] {
        let answer = api.post(path, &token, body).await;
        assert_eq!(answer.problem(), (409, "paused"), "{path}");
    }
    let users = api.get("/v1/team/users", &token).await;
    assert_eq!(users.status, 200);
    let path = format!(
        "/v1/accounts/{}/entries",
        opened.body["id"].as_str().unwrap()
    );
    let correction = json!({"kind": "correction", "side": "credit", "amount": "1.00",
                            "currency_code": api.world.currency});
    assert_eq!(api.post(&path, &token, correction).await.status, 201);
    let mine = |row: &&Value| row["role"] == "broker_operator";
    let items = users.items();
    let id = items.iter().find(mine).unwrap()["id"].as_str().unwrap();
    let path = format!("/v1/team/users/{id}/disable");
    assert_eq!(api.post(&path, &token, json!({})).await.status, 200);
    assert_eq!(api.get("/v1/accounts", &operator).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_is_removed_once_it_holds_no_books() {
    let api = Api::new().await;
    let token = api.platform().await;
    let database = format!("{}more", api.world.databases.prefix);
    let body = json!({"server_name": "a", "database_name": database, "capacity": 5});
    let made = api.post("/v1/admin/shards", &token, body).await;
    assert_eq!(
        (made.status, &made.body["state"]),
        (201, &json!("open")),
        "{made:?}"
    );
    let remove = async |id: &Value| {
        let path = format!("/v1/admin/shards/{id}");
        let request = Request::delete(path).header("authorization", format!("Bearer {token}"));
        api.send(request.body(Body::empty()).unwrap()).await
    };
    assert_eq!(
        remove(&json!(1)).await.problem(),
        (409, "conflict"),
        "it has brokers"
    );
    assert_eq!(remove(&made.body["id"]).await.status, 200);
    assert_eq!(remove(&made.body["id"]).await.problem(), (404, "not_found"));

    for (body, expected) in [
        (
            json!({"server_name": "a", "database_name": "mysql", "capacity": 5}),
            409,
        ),
        (
            json!({"server_name": "zz", "database_name": database, "capacity": 5}),
            422,
        ),
    ] {
        let answer = api.post("/v1/admin/shards", &token, body).await;
        assert_eq!(answer.status, expected, "{answer:?}");
    }
    let shards = api.get("/v1/admin/shards", &token).await;
    assert_eq!(shards.items().len(), 1);
}
