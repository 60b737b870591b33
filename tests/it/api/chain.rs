use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use settlenet::domain::chain::{ExportedEntry, Verifier, genesis};

use super::{Answer, Api};

/// Alpha's book with three entries of requests, and one of its own.
async fn busy() -> (Api, String) {
    let api = Api::new().await;
    let world = &api.world;
    for _ in 0..3 {
        let id = world.sent(world.alpha, world.beta).await;
        world.confirm(id).await.unwrap();
    }
    let token = api.admin_of(world.alpha).await;
    let house =
        json!({"owner_kind": "house", "owner_ref": "main", "currency_code": world.currency});
    let account = api.post("/v1/accounts", &token, house).await;
    assert_eq!(account.body["balance"], "-30000.00");
    assert_eq!(
        account.body["available"],
        Value::Null,
        "the house has no floor"
    );
    let path = format!(
        "/v1/accounts/{}/entries",
        account.body["id"].as_str().unwrap()
    );
    let opening = json!({"kind": "opening", "side": "credit", "amount": "0.01",
                         "currency_code": world.currency, "note": "ждём"});
    assert_eq!(api.post(&path, &token, opening).await.status, 201);
    (api, token)
}

async fn lines(api: &Api, token: &str, query: &str) -> Answer {
    let request = Request::get(format!("/v1/chain{query}"))
        .header("authorization", format!("Bearer {token}"))
        .header("accept", "application/json;q=0.1, application/x-ndjson");
    api.send(request.body(Body::empty()).unwrap()).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_verifies_the_chain_by_itself() {
    let (api, token) = busy().await;
    let head = api.get("/v1/chain", &token).await;
    assert_eq!(head.body["broker_id"], api.world.alpha);
    assert_eq!(head.body["head"]["seq"], 4);
    assert_eq!(head.body["entries"], Value::Null);

    let mut verifier = Verifier::from_genesis(api.world.alpha);
    let mut next = json!(1);
    while next != Value::Null {
        let part = api
            .get(&format!("/v1/chain?from_seq={next}&limit=3"), &token)
            .await;
        for entry in part.body["entries"].as_array().unwrap() {
            let entry: ExportedEntry = serde_json::from_value(entry.clone()).unwrap();
            verifier.exported(&entry).unwrap();
        }
        next = part.body["next_seq"].clone();
    }
    let whole = verifier.finish().unwrap();
    assert_eq!(whole.entries, 4);
    assert_eq!(json!(whole.head.hash), head.body["head"]["hash"]);

    let beyond = api.get("/v1/chain?from_seq=5", &token).await;
    assert_eq!(beyond.body["entries"], json!([]));
    assert_eq!(beyond.body["next_seq"], Value::Null);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_as_lines_of_an_exported_chain() {
    let (api, token) = busy().await;
    let whole = lines(&api, &token, "").await;
    assert_eq!(whole.headers["content-type"], "application/x-ndjson");
    let first = lines(&api, &token, "?limit=3").await;
    let second = lines(&api, &token, "?from_seq=4").await;
    assert_eq!(first.text + &second.text, whole.text);
    assert!(whole.text.contains(r#""private":{"note":"ждём""#));
    let head = whole.headers["settlenet-chain-head"].to_str().unwrap();
    let mut verifier = Verifier::from_genesis(api.world.alpha).ending_at(head.parse().unwrap());
    for line in whole.text.split_inclusive('\n') {
        verifier.line(line.as_bytes()).unwrap();
    }
    assert_eq!(verifier.finish().unwrap().entries, 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn transactions_and_an_empty_chain() {
    let (api, token) = busy().await;
    let page = api.get("/v1/transactions?limit=3", &token).await;
    let seqs: Vec<_> = page.items().iter().map(|item| &item["seq"]).collect();
    assert_eq!(seqs, [4, 3, 2]);
    assert_eq!(page.items()[1]["kind"], "request.principal");
    assert_eq!(page.items()[1]["amount"], "10000.00");
    assert_eq!(page.items()[1]["balance"], "-30000.00");
    let cursor = page.body["next_cursor"].as_str().unwrap();
    let rest = format!("/v1/transactions?limit=3&cursor={cursor}");
    assert_eq!(api.get(&rest, &token).await.items().len(), 1);

    let gamma = api.admin_of(api.world.gamma).await;
    let chain = api.get("/v1/chain?from_seq=1", &gamma).await;
    assert_eq!(chain.body["head"]["hash"], json!(genesis(api.world.gamma)));
    assert_eq!(lines(&api, &gamma, "").await.text, "");
    for (query, field) in [
        ("from_seq=0", "from_seq"),
        ("from_seq=-1", "from_seq"),
        ("from_seq=1&limit=0", "limit"),
        ("from_seq=1&limit=1001", "limit"),
        ("limit=5", "limit"),
        ("after=5", "after"),
    ] {
        let answer = api.get(&format!("/v1/chain?{query}"), &token).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{query}"
        );
    }
}
