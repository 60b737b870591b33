use axum::body::Body;
use axum::http::Request;
use chrono::Duration;
use futures::future::join_all;
use serde_json::{Value, json};
use settlenet::domain::invite::SignupMode;
use settlenet::services::signup::{NewMember, SignupError, SignupService};

use super::{Answer, Api, PASSWORD};
use crate::harness::{Child, MovedClock, World};

const SIGNUP: &str = "/v1/signup";
const INVITES: &str = "/v1/invites";
const ADMIN_INVITES: &str = "/v1/admin/invites";

fn member(name: &str, login: &str, code: Option<&str>) -> Value {
    let mut body = json!({"name": name, "login": login, "password": PASSWORD});
    if let Some(code) = code {
        body["invite_code"] = json!(code);
    }
    body
}

/// Signs up as a stranger does.
async fn sign_up(api: &Api, key: &str, body: Value) -> Answer {
    let request = Request::post(SIGNUP)
        .header("content-type", "application/json")
        .header("idempotency-key", key);
    let request = request.body(Body::from(body.to_string())).unwrap();
    api.send(request).await
}

/// The code of a new invitation, and its id.
async fn invite(api: &Api, path: &str, token: &str, body: Value) -> (String, String) {
    let made = api.post(path, token, body).await;
    assert_eq!(made.status, 201, "{made:?}");
    let code = made.body["code"].as_str().unwrap().to_owned();
    let id = made.body["invite"]["id"].as_str().unwrap().to_owned();
    (code, id)
}

async fn count(api: &Api, sql: &'static str) -> i64 {
    let master = &api.world.app.systems.master;
    sqlx::query_scalar(sql).fetch_one(master).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invited_broker_works_at_once_and_is_known_as_brought() {
    let api = Api::new().await;
    let alpha = api.admin_of(api.world.alpha).await;
    let terms = json!({"note": "for Ivan", "expires_in_days": 2});
    let made = api.post_as(INVITES, &alpha, Some("k"), terms.clone()).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(made.headers["cache-control"], "no-store");
    let invite = &made.body["invite"];
    assert_eq!(
        (&invite["broker_id"], &invite["max_uses"]),
        (&json!(api.world.alpha), &json!(1))
    );
    let code = made.body["code"].as_str().unwrap();
    let again = api.post_as(INVITES, &alpha, Some("k"), terms).await;
    assert_eq!((again.status, &again.body["invite"]), (201, invite));
    assert_eq!(again.body["code"], Value::Null, "only its digest is kept");
    let other = api
        .post_as(INVITES, &alpha, Some("k"), json!({"max_uses": 2}))
        .await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));

    let joined = sign_up(&api, "first", member(" Ivan's desk ", "Ivan", Some(code))).await;
    assert_eq!(joined.status, 201, "{joined:?}");
    let id = &joined.body["broker_id"];
    assert_eq!(joined.body["name"], "Ivan's desk");
    assert_eq!(
        (&joined.body["plan"], &joined.body["state"]),
        (&json!("starter"), &json!("active"))
    );
    assert_eq!(
        (&joined.body["login"], &joined.body["referred_by_broker_id"]),
        (&json!("ivan"), &json!(api.world.alpha))
    );
    let ivan = api.log_in("ivan").await;
    let own = api.get("/v1/broker", &ivan).await;
    assert_eq!(
        (&own.body["id"], &own.body["broker_mode"]),
        (id, &json!("SOLO"))
    );
    assert_eq!(api.get("/v1/chain", &ivan).await.body["head"]["seq"], 0);
    let partner = super::partners::offline("Anna");
    assert_eq!(api.post("/v1/partners", &ivan, partner).await.status, 201);

    // The same request is the same broker; another finds the code used up.
    let again = sign_up(&api, "first", member(" Ivan's desk ", "Ivan", Some(code))).await;
    assert_eq!((again.status, &again.body), (201, &joined.body));
    let late = sign_up(&api, "second", member("Petr", "petr", Some(code))).await;
    assert_eq!(late.problem(), (403, "not_invited"));
    let listed = api.get(INVITES, &alpha).await;
    assert_eq!(
        (listed.items().len(), &listed.items()[0]["uses"]),
        (1, &json!(1))
    );
    assert_eq!(
        api.get(INVITES, &ivan).await.items().len(),
        0,
        "another's are not seen"
    );
    let revoke = format!("{INVITES}/{}/revoke", invite["id"].as_str().unwrap());
    assert_eq!(
        api.post(&revoke, &ivan, json!({})).await.problem(),
        (404, "not_found")
    );
}

/// Whatever is wrong with a code is one answer, and comes before any about names and logins.
#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_that_cannot_be_used_tells_nothing() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let beta = api.admin_of(api.world.beta).await;
    api.token(
        settlenet::domain::access::Role::BrokerViewer,
        Some(api.world.alpha),
    )
    .await;
    let (revoked, id) = invite(&api, ADMIN_INVITES, &platform, json!({})).await;
    let path = format!("{ADMIN_INVITES}/{id}/revoke");
    for _ in 0..2 {
        let answer = api.post_as(&path, &platform, None, json!({})).await;
        assert!(answer.body["revoked_at"].is_string(), "{answer:?}");
    }
    let (expired, _) = invite(
        &api,
        ADMIN_INVITES,
        &platform,
        json!({"expires_in_days": 1}),
    )
    .await;
    let (of_beta, _) = invite(
        &api,
        INVITES,
        &beta,
        json!({"expires_in_days": 9, "max_uses": 5}),
    )
    .await;
    api.world.clock.advance(Duration::days(1));
    let (platform, beta) = (api.platform().await, api.admin_of(api.world.beta).await);
    let suspend = format!("/v1/admin/brokers/{}/suspend", api.world.beta);
    assert_eq!(
        api.post(&suspend, &platform, json!({ "reason": "an audit" }))
            .await
            .status,
        200
    );
    for (number, code) in ["sni_nonsense", "", &revoked, &expired, &of_beta]
        .into_iter()
        .enumerate()
    {
        for (name, login) in [("New", "new-login"), ("Alpha", "new-login"), ("New", "ab")] {
            let key = format!("{number}-{name}-{login}");
            let answer = sign_up(&api, &key, member(name, login, Some(code))).await;
            assert_eq!(answer.problem(), (403, "not_invited"), "{code} {answer:?}");
            assert!(answer.body.get("errors").is_none());
        }
    }
    let none = sign_up(&api, "none", member("Alpha", "ab", None)).await;
    assert_eq!((none.status, none.fields()), (422, vec!["invite_code"]));
    let refused = api.post(INVITES, &beta, json!({})).await;
    assert_eq!(refused.problem(), (409, "paused"));

    assert_eq!(api.get(ADMIN_INVITES, &platform).await.items().len(), 3);
    assert_eq!(
        count(&api, "SELECT CAST(SUM(uses) AS SIGNED) FROM invite").await,
        0
    );
    assert_eq!(api.get(INVITES, &beta).await.items().len(), 1);
}

/// What is wrong is said to whoever is invited, and uses nothing up.
#[tokio::test(flavor = "multi_thread")]
async fn the_invited_are_told_what_is_wrong() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let (good, _) = invite(&api, ADMIN_INVITES, &platform, json!({"max_uses": 5})).await;
    for (key, body, status, what) in [
        ("a", member("", "new-login", Some(&good)), 422, "name"),
        ("b", member("New", "ab", Some(&good)), 422, "login"),
        (
            "c",
            json!({"name": "New", "login": "new-login", "password": "short", "invite_code": good}),
            422,
            "password",
        ),
        (
            "d",
            json!({"name": "New", "login": "new-login", "password": PASSWORD, "invite_code": good, "plan": "pro"}),
            422,
            "plan",
        ),
        (
            "e",
            member("Alpha", "new-login", Some(&good)),
            409,
            "name_taken",
        ),
    ] {
        let answer = sign_up(&api, key, body).await;
        assert_eq!(answer.status, status, "{answer:?}");
        if status == 422 {
            assert_eq!(answer.fields(), [what]);
        } else {
            assert_eq!(answer.problem().1, what);
            assert!(
                answer.body.get("broker_id").is_none(),
                "whose it is, is not told"
            );
        }
    }
    let login: String = sqlx::query_scalar("SELECT login FROM user LIMIT 1")
        .fetch_one(&api.world.app.systems.master)
        .await
        .unwrap();
    let taken = sign_up(&api, "f", member("New", &login, Some(&good))).await;
    assert_eq!(taken.problem(), (409, "login_taken"));
    assert_eq!(
        count(&api, "SELECT CAST(SUM(uses) AS SIGNED) FROM invite").await,
        0
    );
    let missing = Request::post(SIGNUP).header("content-type", "application/json");
    let missing = missing
        .body(Body::from(member("N", "nnn", None).to_string()))
        .unwrap();
    assert_eq!(
        api.send(missing).await.problem(),
        (400, "idempotency_key_missing")
    );

    for (body, field) in [
        (json!({"max_uses": 0}), "max_uses"),
        (json!({"max_uses": 1001}), "max_uses"),
        (json!({"expires_in_days": 366}), "expires_in_days"),
        (json!({"note": "a\nb"}), "note"),
        (json!({"code": "mine"}), "code"),
    ] {
        let answer = api.post(ADMIN_INVITES, &platform, body).await;
        assert_eq!((answer.status, answer.fields()), (422, vec![field]));
    }
}

/// A code for three brings three, however many come at once; and a request that comes many times
/// brings one.
#[tokio::test(flavor = "multi_thread")]
async fn racing_sign_ups_use_an_invitation_as_often_as_it_says() {
    let api = Api::new().await;
    let platform = api.platform().await;
    let (code, _) = invite(&api, ADMIN_INVITES, &platform, json!({"max_uses": 3})).await;
    let before = count(&api, "SELECT COUNT(*) FROM broker").await;
    let answers = join_all((0..12).map(|number| {
        let body = member(
            &format!("Desk {number}"),
            &format!("desk-{number}"),
            Some(&code),
        );
        let (api, key) = (&api, format!("key-{number}"));
        async move { sign_up(api, &key, body).await }
    }))
    .await;
    let made = answers.iter().filter(|answer| answer.status == 201).count();
    assert_eq!(made, 3);
    for answer in answers.iter().filter(|answer| answer.status != 201) {
        assert_eq!(answer.problem(), (403, "not_invited"), "{answer:?}");
    }
    let (code, _) = invite(&api, ADMIN_INVITES, &platform, json!({})).await;
    let answers =
        join_all((0..6).map(|_| sign_up(&api, "same", member("Same", "same", Some(&code))))).await;
    for answer in &answers {
        assert_eq!((answer.status, &answer.body), (201, &answers[0].body));
    }
    assert_eq!(count(&api, "SELECT COUNT(*) FROM broker").await, before + 4);
    assert_eq!(
        count(&api, "SELECT CAST(SUM(uses) AS SIGNED) FROM invite").await,
        4
    );
    assert_eq!(count(&api, "SELECT COUNT(*) FROM invite_use").await, 4);
    let orphans = "SELECT COUNT(*) FROM user u LEFT JOIN broker b ON b.broker_id = u.broker_id
                   WHERE u.broker_id IS NOT NULL AND b.broker_id IS NULL";
    assert_eq!(count(&api, orphans).await, 0);
    assert_eq!(
        count(
            &api,
            "SELECT COUNT(*) FROM broker WHERE state = 'provisioning'"
        )
        .await,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_up_that_dies_is_finished_by_the_same_request() {
    let clock = MovedClock::new();
    let api = Api::on(World::with_clock(clock.clock(Duration::zero())).await).await;
    let platform = api.platform().await;
    let (code, _) = invite(&api, ADMIN_INVITES, &platform, json!({})).await;
    let (mut server, address) = Child::serve(
        &api.world,
        &clock,
        &["--no-workers"],
        "signup.recorded=kill",
    )
    .await;
    let body = member("Desk", "desk", Some(&code));
    let http = reqwest::Client::new();
    let asked = http
        .post(format!("{address}{SIGNUP}"))
        .header("idempotency-key", "k");
    let answer = asked.json(&body).send().await;
    assert!(answer.is_err(), "{answer:?}");
    server.killed("signup.recorded").await;
    let state = "SELECT COUNT(*) FROM broker WHERE name = 'Desk' AND state = 'provisioning'";
    assert_eq!(count(&api, state).await, 1);

    let stolen = sign_up(&api, "other", member("Desk 2", "desk2", Some(&code))).await;
    assert_eq!(stolen.problem(), (403, "not_invited"));
    let joined = sign_up(&api, "k", body).await;
    assert_eq!(
        (joined.status, &joined.body["state"]),
        (201, &json!("active")),
        "{joined:?}"
    );
    let desk = api.log_in("desk").await;
    assert_eq!(api.get("/v1/chain", &desk).await.body["head"]["seq"], 0);
    assert_eq!(
        count(&api, "SELECT CAST(SUM(uses) AS SIGNED) FROM invite").await,
        1
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_network_may_take_anybody_or_nobody() {
    let api = Api::new().await;
    let app = &api.world.app;
    let service =
        |mode| SignupService::new(app.systems.master.clone(), app.provisioning.clone(), mode);
    let new = |name: &str| NewMember {
        name: name.to_owned(),
        login: name.to_owned(),
        password: PASSWORD.into(),
        code: None,
    };
    let now = api.world.clock.now();
    let of = async |mode, name: &str| {
        let intention = World::intention();
        service(mode)
            .sign_up(&api.state.team, new(name), &intention, now)
            .await
    };
    assert!(matches!(
        of(SignupMode::Closed, "closed").await,
        Err(SignupError::Closed)
    ));
    assert!(matches!(
        of(SignupMode::Invite, "invite").await,
        Err(SignupError::CodeMissing)
    ));
    let joined = of(SignupMode::Open, "open").await.unwrap();
    assert_eq!(joined.referred_by, None);
    // An invitation counts all the same: who brought whom is known, and a bad one is refused.
    let alpha = api.admin_of(api.world.alpha).await;
    let (code, _) = invite(&api, INVITES, &alpha, json!({})).await;
    for (code, good) in [(code, true), ("sni_wrong".to_owned(), false)] {
        let new = NewMember {
            code: Some(code.into()),
            ..new("brought")
        };
        let joined = service(SignupMode::Open)
            .sign_up(&api.state.team, new, &World::intention(), now)
            .await;
        match joined {
            Ok(broker) => assert!(good && broker.referred_by == Some(api.world.alpha)),
            Err(error) => assert!(
                !good && matches!(error, SignupError::NotInvited),
                "{error:?}"
            ),
        }
    }
}

/// Guessing at codes and logins costs a wait, as guessing at passwords does.
#[tokio::test(flavor = "multi_thread")]
async fn guessing_is_slowed_down() {
    let api = Api::new().await;
    let mut answers = Vec::new();
    for number in 0..110 {
        // The clock stands still but for what the bound per minute asks.
        api.world.clock.advance(Duration::seconds(1));
        let answer = sign_up(
            &api,
            &format!("k{number}"),
            member("N", "nnn", Some("sni_guess")),
        )
        .await;
        answers.push(answer.problem().0);
    }
    assert_eq!(answers[..100], [403; 100]);
    assert!(answers[100..].contains(&429), "{answers:?}");
    let burst = join_all((0..80).map(|number| {
        let (api, key) = (&api, format!("b{number}"));
        async move { sign_up(api, &key, member("N", "nnn", None)).await }
    }))
    .await;
    assert!(
        burst
            .iter()
            .any(|answer| answer.problem() == (429, "too_many_requests"))
    );
}
