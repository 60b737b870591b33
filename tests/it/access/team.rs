use futures::future::join_all;
use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::{Access, PASSWORD};

fn person(login: &str, role: &str) -> Value {
    json!({"login": login, "password": PASSWORD, "role": role})
}

const USERS: &str = "/v1/team/users";
const CLIENTS: &str = "/v1/team/clients";

#[tokio::test]
async fn an_admin_keeps_their_own_team_and_no_other() {
    let access = Access::new().await;
    for (login, broker) in [("alpha", 1), ("beta", 2)] {
        access.user(login, Role::BrokerAdmin, Some(broker)).await;
    }
    access.user("root", Role::PlatformAdmin, None).await;
    let alpha = access.token("alpha").await;
    let made = access
        .post(
            USERS,
            Some(&alpha),
            Some("k1"),
            person("anna", "broker_operator"),
        )
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.body["broker_id"], 1);
    assert!(made.body.get("password").is_none());
    let anna = made.body["id"].as_str().unwrap();
    assert_eq!(access.log_in("anna", PASSWORD).await.status, 200);

    let logins = async |token: &str| -> Vec<String> {
        let page = access.get(USERS, Some(token)).await;
        let items = page.body["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| item["login"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(logins(&alpha).await.len(), 2);
    for other in ["beta", "root"] {
        let token = access.token(other).await;
        assert_eq!(logins(&token).await, [other]);
        let path = format!("{USERS}/{anna}/disable");
        let answer = access.post(&path, Some(&token), None, json!({})).await;
        assert_eq!(
            (answer.status, answer.code()),
            (404, "not_found"),
            "{other}"
        );
    }
    for id in ["US-ffffffffffff", "nonsense", "CL-000000000001"] {
        let path = format!("{USERS}/{id}/disable");
        assert_eq!(
            access
                .post(&path, Some(&alpha), None, json!({}))
                .await
                .status,
            404,
            "{id}"
        );
    }
    assert_eq!(access.log_in("anna", PASSWORD).await.status, 200);
}

#[tokio::test]
async fn bad_members_are_refused_by_field() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    access.user("root", Role::PlatformAdmin, None).await;
    let alpha = access.token("alpha").await;
    let root = access.token("root").await;
    let cases = [
        (&alpha, person("ab", "broker_viewer"), "login"),
        (&alpha, person("white space", "broker_viewer"), "login"),
        (&alpha, person(&"x".repeat(121), "broker_viewer"), "login"),
        (&alpha, person("anna", "platform_admin"), "role"),
        (&alpha, person("anna", "arbiter"), "role"),
        (&alpha, person("anna", "agent"), "role"),
        (&alpha, person("anna", "root"), "role"),
        (&root, person("anna", "broker_admin"), "role"),
        (
            &alpha,
            json!({"login": "anna", "password": "short", "role": "broker_viewer"}),
            "password",
        ),
        (
            &alpha,
            json!({"login": "anna", "password": 5, "role": "broker_viewer"}),
            "password",
        ),
        (
            &alpha,
            json!({"login": "anna", "role": "broker_viewer"}),
            "password",
        ),
        (
            &alpha,
            json!({"login": "a", "password": "p", "role": "agent", "x": 1}),
            "x",
        ),
    ];
    for (number, (token, body, field)) in cases.into_iter().enumerate() {
        let key = format!("k{number}");
        let answer = access
            .post(USERS, Some(token), Some(&key), body.clone())
            .await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
    let body = person("ALPHA", "broker_viewer");
    let answer = access.post(USERS, Some(&alpha), Some("taken"), body).await;
    assert_eq!((answer.status, answer.code()), (409, "login_taken"));

    let client = |body: Value| {
        let (access, alpha) = (&access, &alpha);
        async move { access.post(CLIENTS, Some(alpha), Some("c"), body).await }
    };
    let cases = [
        (json!({"name": "", "role": "broker_viewer"}), "name"),
        (json!({"name": "a\nb", "role": "broker_viewer"}), "name"),
        (json!({"name": "a", "role": "agent"}), "role"),
        (
            json!({"name": "a", "role": "broker_viewer", "limit_digest": "00".repeat(32)}),
            "role",
        ),
        (
            json!({"name": "a", "role": "agent", "limit_digest": "00"}),
            "limit_digest",
        ),
        (
            json!({"name": "a", "role": "broker_viewer", "scopes": ["network:write"]}),
            "scopes",
        ),
    ];
    for (body, field) in cases {
        let answer = client(body.clone()).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{body}"
        );
    }
}

#[tokio::test]
async fn one_key_makes_one_member() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    let alpha = access.token("alpha").await;
    let post =
        async |key: Option<&str>, body: Value| access.post(USERS, Some(&alpha), key, body).await;
    let answer = post(None, person("anna", "broker_viewer")).await;
    assert_eq!(
        (answer.status, answer.code()),
        (400, "idempotency_key_missing")
    );
    let answer = post(Some("a b"), person("anna", "broker_viewer")).await;
    assert_eq!(
        (answer.status, answer.code()),
        (400, "idempotency_key_invalid")
    );

    let answers = join_all((0..6).map(|_| post(Some("k"), person("anna", "broker_viewer")))).await;
    for answer in &answers {
        assert_eq!(answer.status, 201, "{answer:?}");
        assert_eq!(answer.body, answers[0].body);
    }
    let quoted = post(Some("\"k\""), person("anna", "broker_viewer")).await;
    assert_eq!(quoted.body, answers[0].body);
    let answer = post(Some("k"), person("anna", "broker_admin")).await;
    assert_eq!(
        (answer.status, answer.code()),
        (422, "idempotency_key_reused")
    );
    let (count,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM user WHERE login = 'anna'")
        .fetch_one(&access.pool)
        .await
        .unwrap();
    assert_eq!(count, 1);
    // A refused request takes no key.
    let answer = post(Some("n"), person("alpha", "broker_viewer")).await;
    assert_eq!(answer.status, 409);
    assert_eq!(
        post(Some("n"), person("beth", "broker_viewer"))
            .await
            .status,
        201
    );
}

#[tokio::test]
async fn a_program_logs_in_with_its_secret_until_it_is_disabled() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    let alpha = access.token("alpha").await;
    let limit = "ab".repeat(32);
    let body = json!({"name": "bot", "role": "agent", "limit_digest": limit});
    let made = access
        .post(CLIENTS, Some(&alpha), Some("k"), body.clone())
        .await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.headers["cache-control"], "no-store");
    let id = made.body["client"]["id"].as_str().unwrap().to_owned();
    let secret = made.body["client_secret"].as_str().unwrap();
    let again = access.post(CLIENTS, Some(&alpha), Some("k"), body).await;
    assert_eq!(
        (again.status, &again.body["client"]),
        (201, &made.body["client"])
    );
    assert_eq!(
        again.body["client_secret"],
        Value::Null,
        "only its digest is kept"
    );

    let log_in = async |secret: &str| {
        let body = json!({
            "grant_type": "client_credentials", "client_id": id, "client_secret": secret,
        });
        access.post("/v1/auth/token", None, None, body).await
    };
    let answer = log_in(secret).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(answer.body.get("refresh_token").is_none());
    let token = answer.body["access_token"].as_str().unwrap();
    let principal = access.state.auth.authenticate(token).await.unwrap();
    assert_eq!(
        (principal.sub(), principal.role()),
        (id.as_str(), Role::Agent)
    );
    assert_eq!(principal.limit_digest().unwrap().to_hex(), limit);
    assert_eq!(log_in("sns_wrong").await.status, 401);

    let page = access.get(CLIENTS, Some(&alpha)).await;
    assert_eq!(page.body["items"].as_array().unwrap().len(), 1);
    let path = format!("{CLIENTS}/{id}/disable");
    let answer = access.post(&path, Some(&alpha), None, json!({})).await;
    assert_eq!(
        (answer.status, &answer.body["state"]),
        (200, &json!("disabled"))
    );
    assert_eq!(log_in(secret).await.status, 401);
}

#[tokio::test]
async fn a_token_hands_on_no_more_than_it_has() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    let alpha = access.token("alpha").await;
    let body =
        json!({"name": "bot", "role": "broker_admin", "scopes": ["team:write", "book:read"]});
    let made = access.post(CLIENTS, Some(&alpha), Some("bot"), body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let body = json!({
        "grant_type": "client_credentials",
        "client_id": made.body["client"]["id"], "client_secret": made.body["client_secret"],
    });
    let answer = access.post("/v1/auth/token", None, None, body).await;
    let bot = answer.body["access_token"].as_str().unwrap();

    let client = |scopes: Value| json!({"name": "x", "role": "broker_admin", "scopes": scopes});
    for (number, (path, body)) in [
        (CLIENTS, json!({"name": "x", "role": "broker_admin"})),
        (CLIENTS, client(json!(["team:write", "book:write"]))),
        (CLIENTS, json!({"name": "x", "role": "broker_viewer"})),
        (USERS, person("eve", "broker_admin")),
        (USERS, person("eve", "broker_viewer")),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("more-{number}");
        let answer = access.post(path, Some(bot), Some(&key), body.clone()).await;
        assert_eq!(
            (answer.status, answer.code()),
            (403, "scope_missing"),
            "{body}"
        );
    }
    let body = client(json!(["book:read"]));
    let answer = access.post(CLIENTS, Some(bot), Some("less"), body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// A token lives for minutes after its holder was disabled: it reads, and hands nothing on.
#[tokio::test]
async fn who_was_disabled_manages_nobody() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    let second = access.user("second", Role::BrokerAdmin, Some(1)).await;
    access.user("root", Role::PlatformAdmin, None).await;
    let other_root = access.user("root2", Role::PlatformAdmin, None).await;
    let [alpha, late, root, late_root] = [
        access.token("alpha").await,
        access.token("second").await,
        access.token("root").await,
        access.token("root2").await,
    ];
    for (token, id) in [(&alpha, second.user_id), (&root, other_root.user_id)] {
        let path = format!("{USERS}/{id}/disable");
        let answer = access.post(&path, Some(token), None, json!({})).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let disable = format!("{USERS}/{}/disable", second.user_id);
    let client = json!({"name": "x", "role": "broker_viewer"});
    let server = json!({"server_name": "b", "capacity": 1});
    for (token, path, body) in [
        (&late, USERS, person("eve", "broker_viewer")),
        (&late, CLIENTS, client),
        (&late, disable.as_str(), json!({})),
        (&late_root, USERS, person("eve", "arbiter")),
        (&late_root, "/v1/admin/servers", server),
    ] {
        let answer = access.post(path, Some(token), Some("late"), body).await;
        assert_eq!(
            (answer.status, answer.code()),
            (401, "caller_disabled"),
            "{path}"
        );
    }
    assert_eq!(access.get(USERS, Some(&late)).await.status, 200);
}

#[tokio::test]
async fn lists_are_paged() {
    let access = Access::new().await;
    access.user("alpha", Role::BrokerAdmin, Some(1)).await;
    for number in 0..4 {
        if number == 2 {
            access.clock.advance(chrono::Duration::microseconds(1));
        }
        access
            .user(&format!("user{number}"), Role::BrokerViewer, Some(1))
            .await;
    }
    let token = access.token("alpha").await;
    let mut seen = Vec::new();
    let mut path = format!("{USERS}?limit=2");
    loop {
        let page = access.get(&path, Some(&token)).await;
        assert_eq!(page.status, 200, "{page:?}");
        let items = page.body["items"].as_array().unwrap().clone();
        seen.extend(
            items
                .iter()
                .map(|item| item["id"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page.body["next_cursor"].as_str() else {
            break;
        };
        path = format!("{USERS}?limit=2&cursor={cursor}");
    }
    assert_eq!(seen.len(), 5);
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 5);
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("cursor=x", "cursor"),
        ("sort=a", "sort"),
    ] {
        let answer = access.get(&format!("{USERS}?{query}"), Some(&token)).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{query}"
        );
    }
    let cursor = path.rsplit('=').next().unwrap();
    let answer = access
        .get(&format!("{CLIENTS}?cursor={cursor}"), Some(&token))
        .await;
    assert_eq!(answer.fields(), ["cursor"], "a cursor is of one list");
}
