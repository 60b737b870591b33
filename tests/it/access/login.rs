use std::time::Duration;

use chrono::Duration as Span;
use futures::future::join_all;
use serde_json::json;
use settlenet::domain::access::Role;
use settlenet::http::HttpConfig;
use settlenet::services::auth::AuthError;

use super::{Access, PASSWORD};

#[tokio::test]
async fn a_person_logs_in_and_is_known_again() {
    let access = Access::new().await;
    let member = access.user("anna@alpha", Role::BrokerAdmin, Some(1)).await;
    let answer = access.log_in("Anna@Alpha", PASSWORD).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert_eq!(answer.headers["cache-control"], "no-store");
    assert_eq!(answer.body["token_type"], "Bearer");
    assert_eq!(answer.body["expires_in"], 900);
    assert_eq!(answer.body["sub"], member.user_id.to_string());
    assert_eq!(answer.body["role"], "broker_admin");
    assert_eq!(answer.body["broker_id"], 1);
    let token = answer.body["access_token"].as_str().unwrap();
    let principal = access.state.auth.authenticate(token).await.unwrap();
    assert_eq!(principal.sub(), member.user_id.to_string());
    assert_eq!(
        (principal.role(), principal.broker_id()),
        (Role::BrokerAdmin, Some(1))
    );
    assert_eq!(access.get("/v1/team/users", Some(token)).await.status, 200);
}

#[tokio::test]
async fn what_is_wrong_with_credentials_is_not_told() {
    let access = Access::new().await;
    let admin = access.user("admin", Role::BrokerAdmin, Some(1)).await;
    let gone = access.user("gone", Role::BrokerViewer, Some(1)).await;
    let token = access.token("admin").await;
    let path = format!("/v1/team/users/{}/disable", gone.user_id);
    assert_eq!(
        access
            .post(&path, Some(&token), None, json!({}))
            .await
            .status,
        200
    );

    let wrong = access.log_in("admin", "wrong horse battery").await;
    let unknown = access.log_in("nobody", PASSWORD).await;
    let disabled = access.log_in("gone", PASSWORD).await;
    assert_eq!((wrong.status, wrong.code()), (401, "credentials_invalid"));
    assert_eq!(wrong.body, unknown.body);
    assert_eq!(wrong.body, disabled.body);

    let client = |id: &str, secret: &str| json!({"grant_type": "client_credentials", "client_id": id, "client_secret": secret});
    for body in [client("CL-000000000001", "x"), client("nonsense", "x")] {
        let answer = access.post("/v1/auth/token", None, None, body).await;
        assert_eq!(answer.body, wrong.body);
    }
    let own = format!("/v1/team/users/{}/disable", admin.user_id);
    let answer = access.post(&own, Some(&token), None, json!({})).await;
    assert_eq!((answer.status, answer.code()), (409, "own_account"));
}

#[tokio::test]
async fn the_token_request_names_what_is_wrong_with_it() {
    let access = Access::new().await;
    let cases = [
        (json!({}), "grant_type"),
        (json!({"grant_type": "implicit"}), "grant_type"),
        (json!({"grant_type": "password", "login": "a"}), "password"),
        (
            json!({"grant_type": "password", "login": 1, "password": "b"}),
            "login",
        ),
        (
            json!({"grant_type": "password", "login": "a", "password": "b", "otp": 1}),
            "otp",
        ),
        (
            json!({"grant_type": "password", "login": "a", "password": "b", "client_id": "c"}),
            "client_id",
        ),
        (
            json!({"grant_type": "client_credentials", "client_id": "a"}),
            "client_secret",
        ),
        (
            json!({"grant_type": "password", "login": "a", "password": "b", "scopes": ["all"]}),
            "scopes[0]",
        ),
    ];
    for (body, field) in cases {
        let answer = access
            .post("/v1/auth/token", None, None, body.clone())
            .await;
        assert_eq!(
            (answer.status, answer.code()),
            (422, "fields_invalid"),
            "{body}"
        );
        assert_eq!(answer.fields(), [field], "{body}");
    }
}

#[tokio::test]
async fn scopes_narrow_a_token_and_its_refreshes() {
    let access = Access::new().await;
    access.user("oper", Role::BrokerOperator, Some(1)).await;
    let ask = |scopes: &[&str]| json!({"grant_type": "password", "login": "oper", "password": PASSWORD, "scopes": scopes});
    let answer = access
        .post("/v1/auth/token", None, None, ask(&["team:read"]))
        .await;
    assert_eq!((answer.status, answer.fields()), (422, vec!["scopes"]));
    let answer = access
        .post("/v1/auth/token", None, None, ask(&["network:read"]))
        .await;
    assert_eq!(answer.body["scopes"], json!(["network:read"]));
    let again = access
        .refresh(answer.body["refresh_token"].as_str().unwrap())
        .await;
    assert_eq!(again.body["scopes"], json!(["network:read"]));
}

#[tokio::test]
async fn a_refresh_token_used_twice_ends_its_log_in() {
    let access = Access::new().await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let other = access.log_in("anna", PASSWORD).await.body;
    let first = access.log_in("anna", PASSWORD).await.body;
    let first = first["refresh_token"].as_str().unwrap();
    let second = access.refresh(first).await;
    assert_eq!(second.status, 200);
    let second = second.body["refresh_token"].as_str().unwrap();
    assert_ne!(first, second);

    assert_eq!(access.refresh(first).await.code(), "credentials_invalid");
    assert_eq!(
        access.refresh(second).await.status,
        401,
        "the thief's or the owner's: both end"
    );
    let other = other["refresh_token"].as_str().unwrap();
    assert_eq!(
        access.refresh(other).await.status,
        200,
        "another log-in goes on"
    );
    assert_eq!(access.refresh("snr_unknown").await.status, 401);
}

#[tokio::test]
async fn of_racing_refreshes_at_most_one_is_answered() {
    let access = Access::new().await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let token = access.log_in("anna", PASSWORD).await.body;
    let token = token["refresh_token"].as_str().unwrap();
    let answers = join_all((0..12).map(|_| access.refresh(token))).await;
    let (good, bad): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(good.len(), 1);
    assert!(
        bad.iter()
            .all(|answer| answer.code() == "credentials_invalid"),
        "{bad:?}"
    );
    let next = good[0].body["refresh_token"].as_str().unwrap();
    assert_eq!(
        access.refresh(next).await.status,
        401,
        "the token was in twelve hands"
    );
}

#[tokio::test]
async fn refresh_tokens_end_by_time_log_out_and_disabling() {
    let access = Access::with(
        |auth| {
            auth.refresh_ttl = Span::hours(2);
            auth.login_ttl = Span::hours(5);
        },
        HttpConfig::default(),
        Vec::new(),
    )
    .await;
    access.user("admin", Role::BrokerAdmin, Some(1)).await;
    let anna = access.user("anna", Role::BrokerViewer, Some(1)).await;
    let log_in = async || {
        let answer = access.log_in("anna", PASSWORD).await;
        answer.body["refresh_token"].as_str().unwrap().to_owned()
    };
    // Used often enough, it still ends with the log-in.
    let mut token = log_in().await;
    for _ in 0..4 {
        access.clock.advance(Span::hours(1));
        let answer = access.refresh(&token).await;
        assert_eq!(answer.status, 200);
        token = answer.body["refresh_token"].as_str().unwrap().to_owned();
    }
    access.clock.advance(Span::hours(1));
    assert_eq!(access.refresh(&token).await.status, 401);
    // Unused, it ends sooner.
    let token = log_in().await;
    access.clock.advance(Span::hours(2));
    assert_eq!(access.refresh(&token).await.status, 401);

    let token = log_in().await;
    let body = json!({"refresh_token": token});
    assert_eq!(
        access
            .post("/v1/auth/revoke", None, None, body)
            .await
            .status,
        204
    );
    assert_eq!(access.refresh(&token).await.status, 401);
    let body = json!({"refresh_token": "unknown"});
    assert_eq!(
        access
            .post("/v1/auth/revoke", None, None, body)
            .await
            .status,
        204
    );
    let body = json!({"refresh_token": access.token("admin").await});
    let answer = access.post("/v1/auth/revoke", None, None, body).await;
    assert_eq!(
        (answer.status, answer.fields()),
        (422, vec!["refresh_token"])
    );

    let token = log_in().await;
    let admin = access.token("admin").await;
    let path = format!("/v1/team/users/{}/disable", anna.user_id);
    let answer = access.post(&path, Some(&admin), None, json!({})).await;
    assert_eq!(
        (answer.status, &answer.body["state"]),
        (200, &json!("disabled"))
    );
    assert_eq!(access.refresh(&token).await.status, 401);

    access.clock.advance(Span::days(1));
    assert!(access.state.auth.purge(100).await.unwrap() >= 4);
    assert_eq!(access.state.auth.purge(100).await.unwrap(), 0);
}

#[tokio::test]
async fn guessing_a_password_gets_slow_for_known_and_unknown_logins_alike() {
    let access = Access::with(
        |auth| auth.login_attempts = 3,
        HttpConfig {
            token_rate_burst: 1000,
            ..HttpConfig::default()
        },
        Vec::new(),
    )
    .await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    for login in ["anna", "nobody"] {
        for _ in 0..4 {
            assert_eq!(
                access.log_in(login, "wrong horse battery").await.status,
                401
            );
        }
        let answer = access.log_in(login, PASSWORD).await;
        assert_eq!(
            (answer.status, answer.code()),
            (429, "too_many_attempts"),
            "{login}"
        );
        assert_eq!(answer.headers["retry-after"], "3");
    }
    access.clock.advance(Span::seconds(3));
    assert_eq!(access.log_in("anna", PASSWORD).await.status, 200);
    // Having proved itself, the login starts afresh.
    for _ in 0..3 {
        assert_eq!(
            access.log_in("anna", "wrong horse battery").await.status,
            401
        );
    }
    assert_eq!(access.log_in("anna", PASSWORD).await.status, 200);
}

/// A database may take a login with spaces at its end for the one without them.
#[tokio::test]
async fn no_spelling_of_a_login_gets_round_its_waits() {
    let access = Access::with(
        |auth| auth.login_attempts = 1,
        HttpConfig::default(),
        Vec::new(),
    )
    .await;
    access.user("victim-a", Role::BrokerViewer, Some(1)).await;
    for spelling in ["victim-a ", " victim-a", "victim-a\t", "victim-a\u{a0}", ""] {
        let answer = access.log_in(spelling, PASSWORD).await;
        assert_eq!(
            (answer.status, answer.code()),
            (401, "credentials_invalid"),
            "{spelling:?}"
        );
    }
    for spelling in ["victim-a", "VICTIM-A"] {
        let answer = access.log_in(spelling, "wrong horse battery").await;
        assert_eq!(answer.status, 401);
    }
    assert_eq!(access.log_in("Victim-A", PASSWORD).await.status, 429);
}

/// Who guesses at a login makes it wait where the guesses come from. Elsewhere its owner waits
/// for seconds at most, and not at all where the login has proved itself.
#[tokio::test]
async fn strangers_do_not_keep_a_logins_owner_out() {
    let access = Access::with(
        |auth| {
            auth.login_attempts = 2;
            auth.address_attempts = 1000;
        },
        HttpConfig::default(),
        Vec::new(),
    )
    .await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let from = async |place: u8, password: &str| {
        let address = std::net::Ipv4Addr::new(192, 0, 2, place).into();
        let auth = &access.state.auth;
        auth.log_in("anna", password.into(), None, address).await
    };
    from(1, PASSWORD).await.unwrap();
    // Guesses from one place: that place waits longer and longer, others not at all.
    for _ in 0..6 {
        let _ = from(2, "wrong horse battery").await;
        access.clock.advance(Span::seconds(20));
    }
    let _ = from(2, "wrong horse battery").await;
    assert!(matches!(
        from(2, PASSWORD).await,
        Err(AuthError::Throttled { wait }) if wait > Span::seconds(20)
    ));
    from(3, PASSWORD).await.unwrap();
    // From many: beyond what is free each further guess is waited for, wherever from.
    for place in 10..40 {
        let _ = from(place, "wrong horse battery").await;
    }
    let Err(AuthError::Throttled { wait }) = from(4, PASSWORD).await else {
        panic!("a new place waits");
    };
    assert!(wait <= Span::seconds(10), "{wait}");
    for place in [1, 3] {
        from(place, PASSWORD).await.unwrap();
    }
    access.clock.advance(wait);
    from(4, PASSWORD).await.unwrap();
}

#[tokio::test]
async fn guesses_made_at_once_are_counted_before_they_are_looked_at() {
    let access = Access::with(
        |auth| auth.login_attempts = 3,
        HttpConfig {
            token_rate_burst: 1000,
            ..HttpConfig::default()
        },
        Vec::new(),
    )
    .await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    let guesses = (0..20).map(|_| access.log_in("anna", "wrong horse battery"));
    let answers = join_all(guesses).await;
    let looked_at = answers.iter().filter(|answer| answer.status == 401).count();
    assert_eq!(looked_at, 4);
    assert!(
        answers
            .iter()
            .all(|answer| [401, 429].contains(&answer.status)),
        "{answers:?}"
    );
}

#[tokio::test]
async fn one_address_cannot_try_many_logins() {
    let access = Access::with(
        |auth| auth.address_attempts = 5,
        HttpConfig {
            token_rate_burst: 1000,
            ..HttpConfig::default()
        },
        Vec::new(),
    )
    .await;
    access.user("anna", Role::BrokerViewer, Some(1)).await;
    for number in 0..3 {
        access.log_in(&format!("login{number}"), PASSWORD).await;
        // A success gives back its own attempt, not the others'.
        assert_eq!(access.log_in("anna", PASSWORD).await.status, 200);
    }
    for number in 3..6 {
        assert_eq!(
            access
                .log_in(&format!("login{number}"), PASSWORD)
                .await
                .status,
            401
        );
    }
    assert_eq!(access.log_in("login6", PASSWORD).await.status, 429);
    assert_eq!(access.log_in("anna", PASSWORD).await.status, 429);
}

#[tokio::test]
async fn token_endpoints_are_rate_limited_per_address() {
    let config = HttpConfig {
        token_rate_burst: 3,
        token_rate_per_minute: 6,
        ..HttpConfig::default()
    };
    let access = Access::with(|_| {}, config, Vec::new()).await;
    for _ in 0..3 {
        assert_eq!(access.refresh("x").await.status, 401);
    }
    let answer = access.refresh("x").await;
    assert_eq!((answer.status, answer.code()), (429, "too_many_requests"));
    assert_eq!(answer.headers["content-type"], "application/problem+json");
    assert_eq!(answer.headers["retry-after"], "10");
    access.clock.advance(Span::seconds(10));
    assert_eq!(access.refresh("x").await.status, 401);
}

#[tokio::test]
async fn a_flood_of_log_ins_is_turned_away_and_nobody_is_blamed() {
    let access = Access::with(
        |auth| {
            auth.parallel_hashes = 1;
            auth.hash_wait = Duration::ZERO;
            auth.login_attempts = 1000;
        },
        HttpConfig {
            token_rate_burst: 1000,
            ..HttpConfig::default()
        },
        Vec::new(),
    )
    .await;
    let answers = join_all((0..8).map(|_| access.log_in("anna", PASSWORD))).await;
    assert!(
        answers
            .iter()
            .all(|answer| [401, 503].contains(&answer.status)),
        "{answers:?}"
    );
    assert!(answers.iter().any(|answer| answer.status == 503));
}
