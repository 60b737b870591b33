use axum::body::Body;
use axum::http::Request;
use serde_json::json;
use settlenet::http::{HttpConfig, ReadyCheck, serve};
use tokio::sync::oneshot;

use super::Access;

fn json_post(body: impl Into<Body>) -> Request<Body> {
    Request::post("/v1/auth/refresh")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap()
}

#[tokio::test]
async fn whatever_goes_wrong_is_a_problem() {
    let access = Access::new().await;
    let cases = [
        (
            Request::get("/nothing").body(Body::empty()).unwrap(),
            404,
            "not_found",
        ),
        (
            Request::get("/v1/auth/token").body(Body::empty()).unwrap(),
            405,
            "method_not_allowed",
        ),
        (
            Request::post("/v1/auth/token")
                .body(Body::from("{}"))
                .unwrap(),
            415,
            "media_type",
        ),
        (json_post("{"), 400, "bad_json"),
        (json_post(""), 400, "bad_json"),
        (json_post(vec![b'"', 0xff, b'"']), 400, "bad_utf8"),
        (json_post("[".repeat(100_000)), 422, "fields_invalid"),
        (
            json_post(format!(
                r#"{{"refresh_token":{}{}}}"#,
                "[".repeat(1000),
                "]".repeat(1000)
            )),
            422,
            "fields_invalid",
        ),
        (
            json_post(format!(r#"{{"refresh_token":{}"#, "[".repeat(1000))),
            400,
            "bad_json",
        ),
        (json_post(vec![b' '; 2 << 20]), 413, "too_large"),
        (
            json_post(r#"{"refresh_token":"a","b":1}"#),
            422,
            "fields_invalid",
        ),
    ];
    for (request, status, code) in cases {
        let place = format!("{} {}", request.method(), request.uri());
        let answer = access.send(request).await;
        assert_eq!((answer.status, answer.code()), (status, code), "{place}");
        assert_eq!(
            answer.headers["content-type"], "application/problem+json",
            "{place}"
        );
        assert_eq!(answer.body["status"], status);
        assert!(answer.headers.contains_key("x-request-id"));
    }
    let request = Request::get("/v1/auth/token").body(Body::empty()).unwrap();
    assert_eq!(access.send(request).await.headers["allow"], "POST");
}

#[tokio::test]
async fn a_plain_request_id_is_kept_and_an_odd_one_is_not() {
    let access = Access::new().await;
    let ask = async |id: &str| {
        let request = Request::get("/healthz").header("x-request-id", id);
        let answer = access.send(request.body(Body::empty()).unwrap()).await;
        answer.headers["x-request-id"].to_str().unwrap().to_owned()
    };
    assert_eq!(ask("my-id_1.2").await, "my-id_1.2");
    for odd in ["a b", "a\"b", &"x".repeat(65), ""] {
        let given = ask(odd).await;
        assert!(uuid::Uuid::parse_str(&given).is_ok(), "{given}");
    }
}

#[tokio::test]
async fn readiness_names_what_is_down() {
    let checks = vec![
        ReadyCheck::new("master", || async { true }),
        ReadyCheck::new("ledger", || async { false }),
        ReadyCheck::new("postgres", std::future::pending),
    ];
    let config = HttpConfig {
        ready_wait: std::time::Duration::from_millis(50),
        ..HttpConfig::default()
    };
    let access = Access::with(|_| {}, config, checks).await;
    let answer = access.get("/readyz", None).await;
    assert_eq!((answer.status, answer.code()), (503, "not_ready"));
    assert_eq!(answer.fields(), ["ledger", "postgres"]);
    assert_eq!(access.get("/healthz", None).await.status, 200);

    let access = Access::new().await;
    assert_eq!(
        access.get("/readyz", None).await.body,
        json!({"status": "ok"})
    );
    access.state.lifecycle.stop();
    assert_eq!(access.get("/readyz", None).await.status, 503);
}

#[tokio::test]
async fn measurements_are_by_route() {
    let access = Access::new().await;
    access
        .post(
            "/v1/team/users/US-000000000001/disable",
            None,
            None,
            json!({}),
        )
        .await;
    let answer = access.get("/metrics", None).await;
    let text = answer.body.as_str().unwrap();
    let line = text.lines().find(|line| {
        line.starts_with("http_request_duration_seconds_count")
            && line.contains(r#"route="/v1/team/users/{id}/disable""#)
    });
    assert!(line.unwrap().contains(r#"status="4xx""#), "{text}");
}

#[tokio::test]
async fn documentation_is_served_and_browsers_elsewhere_are_not_let_in() {
    let access = Access::new().await;
    assert_eq!(
        access.get("/openapi.json", None).await.body["openapi"],
        "3.1.0"
    );
    assert_eq!(access.get("/docs/", None).await.status, 200);
    let ask = async |access: &Access| {
        let request = Request::get("/healthz").header("origin", "https://a.example");
        let answer = access.send(request.body(Body::empty()).unwrap()).await;
        answer.headers.get("access-control-allow-origin").cloned()
    };
    assert_eq!(ask(&access).await, None);
    let config = HttpConfig {
        cors_origins: vec!["https://a.example".into()],
        ..HttpConfig::default()
    };
    let access = Access::with(|_| {}, config, Vec::new()).await;
    assert_eq!(ask(&access).await.unwrap(), "https://a.example");
}

#[tokio::test]
async fn stopping_ends_the_server_and_finishes_what_runs() {
    let access = Access::new().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = tokio::spawn(serve(listener, access.state.clone(), async {
        stopped.await.ok();
    }));
    let answer = reqwest::get(format!("http://{address}/healthz"))
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);

    // Work whose client has hung up is waited for.
    let (finish, wait) = oneshot::channel::<()>();
    let (done, seen) = oneshot::channel::<()>();
    let lifecycle = access.state.lifecycle.clone();
    let client = tokio::spawn(async move {
        let work = async move {
            wait.await.ok();
            done.send(()).ok();
        };
        lifecycle.detached(work).await
    });
    tokio::task::yield_now().await;
    client.abort();
    stop.send(()).unwrap();
    access.state.lifecycle.stopping().cancelled().await;
    assert!(!server.is_finished());
    finish.send(()).unwrap();
    server.await.unwrap();
    assert!(seen.await.is_ok());
    assert!(
        reqwest::get(format!("http://{address}/healthz"))
            .await
            .is_err()
    );
}
