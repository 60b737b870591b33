use std::time::Duration;

use serde_json::json;

use super::*;
use crate::psp::testing::{Scripted, TOKEN, endpoint, json as answer, torn};

fn post(lease: Option<Lease>) -> Request<'static> {
    Request {
        operation: "pay",
        method: Method::POST,
        path: "/pay".to_owned(),
        rq_uid: Some("uid-1"),
        body: Some(json!({ "amount": "1.00", "token": "abc" })),
        lease,
    }
}

async fn made(provider: &Scripted) -> (Result<Reply, CallError>, CallRecord) {
    let client = Client::new(&endpoint(&provider.url)).unwrap();
    let mut calls = Vec::new();
    let result = client.call(post(None), &mut calls).await;
    (result, calls.remove(0))
}

/// A port that nobody listens on.
async fn nowhere() -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn an_answer_is_read_and_kept_with_its_secrets_masked() {
    let body = json!({
        "code": "0000",
        "echo": format!("Bearer {TOKEN}!"),
        "Signature": "s",
        "list": [{ "password": "p", "name": "a\u{0}b" }],
    });
    let provider = Scripted::saying(200, &body).await;
    let (result, call) = made(&provider).await;
    assert_eq!(result.unwrap().body, body);
    assert_eq!(call.request, json!({ "amount": "1.00", "token": "***" }));
    assert_eq!(
        (call.operation, call.rq_uid.as_deref()),
        ("pay", Some("uid-1"))
    );
    assert_eq!((call.http_status, &call.error), (Some(200), &None));
    let kept = json!({
        "code": "0000",
        "echo": "Bearer ***!",
        "Signature": "***",
        "list": [{ "password": "***", "name": "a\u{fffd}b" }],
    });
    assert_eq!(call.response, Some(kept));
    let request = provider.requests().remove(0);
    assert!(request.starts_with("POST /pay HTTP/1.1\r\n"), "{request}");
    let has = |header: &str| request.to_lowercase().contains(&header.to_lowercase());
    assert!(
        has(&format!("\r\nauthorization: Bearer {TOKEN}\r\n")),
        "{request}"
    );
    // Not in chunks, which some providers don't take.
    assert!(has("\r\ncontent-length: 31\r\n"), "{request}");
}

#[tokio::test]
async fn what_is_no_answer_is_in_doubt() {
    let large = json!({ "x": "y".repeat(MAX_ANSWER) });
    for (bytes, word) in [
        (answer(500, &json!({})), "status 500"),
        (answer(503, &json!({ "code": "1001" })), "status 503"),
        (answer(302, &json!({})), "redirect"),
        (answer(200, &large), "larger than"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n<h1>".to_vec(),
            "no JSON",
        ),
        (
            b"HTTP/1.1 404 X\r\ncontent-length: 4\r\n\r\n<h1>".to_vec(),
            "no JSON",
        ),
        (torn(), ""),
        (b"HTTP/1.1 2".to_vec(), ""),
        (b"nonsense\r\n\r\n".to_vec(), ""),
        (Vec::new(), ""),
    ] {
        let provider = Scripted::new([bytes.clone()]).await;
        let (result, call) = made(&provider).await;
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(60)]).into_owned();
        let Err(CallError::InDoubt(why)) = result else {
            panic!("{text}: {result:?}");
        };
        assert!(why.contains(word), "{text}: {why}");
        assert!(call.error.unwrap().contains(word));
        // It was sent once.
        assert_eq!(provider.requests().len(), 1, "{text}");
    }
}

#[tokio::test]
async fn an_error_below_500_is_an_answer() {
    for status in [400, 401, 404, 409, 422, 429] {
        let provider = Scripted::saying(status, &json!({ "code": "1001" })).await;
        let (result, _) = made(&provider).await;
        assert_eq!(result.unwrap().status, status);
    }
}

#[tokio::test]
async fn who_does_not_answer_in_time_is_in_doubt() {
    // Takes connections into its queue, and reads nothing.
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut endpoint = endpoint(&format!("http://{}", listener.local_addr().unwrap()));
    endpoint.timeout = Duration::from_secs(2);
    let client = Client::new(&endpoint).unwrap();
    let result = client.call(post(None), &mut Vec::new()).await;
    assert!(matches!(result, Err(CallError::InDoubt(_))), "{result:?}");
}

#[tokio::test]
async fn what_nobody_took_was_certainly_not_sent() {
    let client = Client::new(&endpoint(&nowhere().await)).unwrap();
    let mut calls = Vec::new();
    for _ in 0..3 {
        let result = client.call(post(None), &mut calls).await;
        assert!(matches!(result, Err(CallError::NotSent(_))), "{result:?}");
    }
    assert_eq!(calls.len(), 3);
    // The breaker is open: nobody is called any more.
    let result = client.call(post(None), &mut calls).await;
    let Err(CallError::NotSent(why)) = result else {
        panic!("{result:?}");
    };
    assert!(why.contains("left alone"), "{why}");
    assert_eq!(calls.len(), 3);
}

#[tokio::test]
async fn a_provider_that_refuses_is_not_left_alone() {
    let refusals = (0..10).map(|_| answer(422, &json!({ "code": "1001" })));
    let provider = Scripted::new(refusals).await;
    let client = Client::new(&endpoint(&provider.url)).unwrap();
    for _ in 0..10 {
        client.call(post(None), &mut Vec::new()).await.unwrap();
    }
}

#[tokio::test]
async fn nothing_is_sent_when_too_little_of_the_lease_is_left() {
    let provider = Scripted::saying(200, &json!({})).await;
    let client = Client::new(&endpoint(&provider.url)).unwrap();
    let mut calls = Vec::new();
    let short = Lease::lasting(Duration::from_millis(11_900));
    let result = client.call(post(Some(short)), &mut calls).await;
    assert_eq!(result.unwrap_err(), CallError::TooLate);
    assert!(calls.is_empty());
    let long = Lease::lasting(Duration::from_millis(12_500));
    client.call(post(Some(long)), &mut calls).await.unwrap();
    assert_eq!(provider.requests().len(), 1);
}

/// A process that is stopped between the decision to send and the sending.
#[tokio::test]
async fn a_body_is_kept_back_when_the_lease_has_run_out_meanwhile() {
    let fate = Arc::new(OnceLock::new());
    let short = Guarded {
        bytes: Some("body".into()),
        lease: Some(Lease::lasting(Duration::from_millis(1_900))),
        fate: Arc::clone(&fate),
    };
    let provider = Scripted::saying(200, &json!({})).await;
    let sent = reqwest::Client::new().post(&provider.url);
    let result = sent.body(reqwest::Body::wrap(short)).send().await;
    assert!(result.is_err());
    assert!(matches!(fate.get(), Some(Fate::Late)), "{fate:?}");
    let requests = provider.requests();
    assert!(
        requests.iter().all(|request| !request.contains("body")),
        "{requests:?}"
    );
}

/// The wait for the answer is over before the connection has come to the body.
#[tokio::test]
async fn a_body_that_was_taken_back_is_not_given_later() {
    let fate = Arc::new(OnceLock::new());
    let mut body = Guarded {
        bytes: Some("body".into()),
        lease: None,
        fate: Arc::clone(&fate),
    };
    fate.get_or_init(|| Fate::Withdrawn);
    let frame =
        std::future::poll_fn(|context| hyper::body::Body::poll_frame(Pin::new(&mut body), context));
    assert!(matches!(frame.await, Some(Err(KeptBack))));
}

#[tokio::test]
async fn endpoints_that_are_none() {
    for url in [
        "",
        "provider",
        "ftp://a",
        "file:///a",
        "https://a/?b=c",
        "https://a/#b",
    ] {
        let error = Client::new(&endpoint(url)).err();
        assert!(matches!(error, Some(EndpointError::Url { .. })), "{url}");
    }
    assert!(Client::new(&endpoint("https://a/api/")).is_ok());
}

#[test]
fn texts_of_an_answer_can_be_kept() {
    let body = json!({
        "number": 12.5,
        "dirty": "a\u{0}b\nc",
        "long": "x".repeat(1_000),
        "empty": "",
        "none": null,
        "deep": { "list": ["one"] },
    });
    let of = |pointer: &str| text_at(&body, pointer);
    assert_eq!(of("/number").as_deref(), Some("12.5"));
    assert_eq!(of("/dirty").as_deref(), Some("abc"));
    assert_eq!(of("/long").unwrap().len(), 140);
    assert_eq!(of("/deep/list/0").as_deref(), Some("one"));
    for nothing in ["/empty", "/none", "/deep", "/missing"] {
        assert_eq!(of(nothing), None, "{nothing}");
    }
}
