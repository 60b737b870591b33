use serde_json::{Value, json};
use settlenet::domain::access::Role;

use super::Api;

fn partner(api: &Api, name: &str) -> Value {
    json!({"owner_kind": "partner", "owner_ref": name, "currency_code": api.world.currency})
}

fn opening(api: &Api, amount: &str) -> Value {
    json!({"kind": "opening", "side": "credit", "amount": amount,
           "currency_code": api.world.currency, "note": "counted by two"})
}

async fn open(api: &Api, token: &str, name: &str) -> String {
    let answer = api.post("/v1/accounts", token, partner(api, name)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    format!("/v1/accounts/{}", answer.body["id"].as_str().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_opened_booked_on_read_and_closed() {
    let api = Api::new().await;
    // A FULL broker's own database and a shared shard are the same here.
    for broker in [api.world.alpha, api.world.gamma] {
        let token = api.admin_of(broker).await;
        let path = open(&api, &token, "FO-1").await;
        let account = api.get(&path, &token).await;
        let expected = json!({
            "id": account.body["id"], "owner_kind": "partner", "owner_ref": "FO-1",
            "currency_code": api.world.currency, "state": "open", "balance": "0.00",
            "reserved": "0.00", "min_balance": "0.00", "available": "0.00",
            "created_at": "2026-01-01T00:00:00Z",
        });
        assert_eq!(account.body, expected);

        let entries = format!("{path}/entries");
        let booked = api.post(&entries, &token, opening(&api, "250.5")).await;
        assert_eq!(booked.status, 201, "{booked:?}");
        assert_eq!(booked.body["seq"], 1);
        assert_eq!(booked.body["amount"], "250.50");
        assert_eq!(booked.body["balance"], "250.50");
        assert_eq!(booked.body["kind"], "account.opening");
        assert_eq!(booked.body["private"]["note"], "counted by two");
        let correction = json!({"kind": "correction", "side": "debit", "amount": "0.50",
                                "currency_code": api.world.currency});
        let booked = api.post(&entries, &token, correction).await;
        assert_eq!(booked.body["balance"], "250.00");
        let account = api.get(&path, &token).await;
        assert_eq!(account.body["available"], "250.00");

        let page = api
            .get(&format!("{path}/transactions?limit=1"), &token)
            .await;
        assert_eq!(page.items().len(), 1);
        assert_eq!(page.items()[0]["seq"], 2);
        let cursor = page.body["next_cursor"].as_str().unwrap();
        let rest = format!("{path}/transactions?limit=1&cursor={cursor}");
        let rest = api.get(&rest, &token).await;
        assert_eq!(rest.items()[0]["seq"], 1);
        assert_eq!(rest.body["next_cursor"], Value::Null);

        for _ in 0..2 {
            let closed = api
                .post_as(&format!("{path}/close"), &token, None, json!({}))
                .await;
            assert_eq!(
                (closed.status, &closed.body["state"]),
                (200, &json!("closed"))
            );
        }
        // A credit is never refused: it goes to the house's suspense account.
        let diverted = api.post(&entries, &token, opening(&api, "1")).await;
        assert_eq!(diverted.status, 201, "{diverted:?}");
        assert_eq!(diverted.body["diverted_from"], account.body["id"]);
        assert_ne!(diverted.body["account_id"], account.body["id"]);
        let debit = json!({"kind": "correction", "side": "debit", "amount": "1",
                           "currency_code": api.world.currency});
        let refused = api.post(&entries, &token, debit).await;
        assert_eq!(refused.problem(), (409, "books_refused"));
        assert_eq!(refused.body["reason"]["code"], "account_closed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeat_is_the_same_operation_and_another_body_is_refused() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.gamma).await;
    let ask = async |path: &str, key: Option<&str>, body: Value| {
        api.post_as(path, &token, key, body).await
    };
    let first = ask("/v1/accounts", Some("k1"), partner(&api, "FO-1")).await;
    let again = ask("/v1/accounts", Some("k1"), partner(&api, "FO-1")).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    let other = ask("/v1/accounts", Some("k1"), partner(&api, "FO-2")).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));
    let missing = ask("/v1/accounts", None, partner(&api, "FO-2")).await;
    assert_eq!(missing.problem(), (400, "idempotency_key_missing"));

    let path = format!("/v1/accounts/{}", first.body["id"].as_str().unwrap());
    let entries = format!("{path}/entries");
    let first = ask(&entries, Some("k2"), opening(&api, "5.00")).await;
    let again = ask(&entries, Some("k2"), opening(&api, "5.00")).await;
    assert_eq!((again.status, &again.body), (201, &first.body));
    let other = ask(&entries, Some("k2"), opening(&api, "6.00")).await;
    assert_eq!(other.problem(), (422, "idempotency_key_reused"));
    let missing = ask(&entries, None, opening(&api, "5.00")).await;
    assert_eq!(missing.problem(), (400, "idempotency_key_missing"));
    assert_eq!(api.get(&path, &token).await.body["balance"], "5.00");
    // A refusal stays the answer of its key.
    let debit = json!({"kind": "correction", "side": "debit", "amount": "7.00",
                       "currency_code": api.world.currency});
    for _ in 0..2 {
        let refused = ask(&entries, Some("k3"), debit.clone()).await;
        assert_eq!(refused.problem(), (409, "books_refused"));
        assert_eq!(refused.body["reason"]["code"], "insufficient_funds");
        ask(&entries, Some("k4"), opening(&api, "10.00")).await;
    }
    assert_eq!(api.get(&path, &token).await.body["balance"], "15.00");
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_fields_are_named() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.gamma).await;
    let currency = &api.world.currency;
    for (field, value) in [
        ("owner_kind", json!("client")),
        ("owner_kind", Value::Null),
        ("owner_ref", json!("")),
        ("owner_ref", json!("a b")),
        ("owner_ref", json!("x".repeat(65))),
        ("owner_ref", json!(7)),
        ("currency_code", json!("XXX")),
        ("currency_code", json!("usd")),
        ("color", json!("red")),
    ] {
        let mut body = partner(&api, "FO-1");
        body[field] = value;
        let answer = api.post("/v1/accounts", &token, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{answer:?}"
        );
    }
    let house = json!({"owner_kind": "house", "owner_ref": "mine", "currency_code": currency});
    let answer = api.post("/v1/accounts", &token, house).await;
    assert_eq!((answer.status, answer.fields()), (422, vec!["owner_ref"]));

    let path = open(&api, &token, "FO-1").await;
    for (field, value) in [
        ("amount", json!("-1")),
        ("amount", json!("1e3")),
        ("amount", json!("0")),
        ("amount", json!("0.001")),
        ("amount", json!("1".repeat(30))),
        ("amount", json!("NaN")),
        ("amount", json!(5)),
        ("currency_code", json!("USD")),
        ("currency_code", json!("XXX")),
        ("kind", json!("request.principal")),
        ("side", json!("up")),
        ("note", json!("x".repeat(1001))),
        ("seq", json!(1)),
    ] {
        let mut body = opening(&api, "1.00");
        body[field] = value;
        let answer = api.post(&format!("{path}/entries"), &token, body).await;
        assert_eq!(
            (answer.status, answer.fields()),
            (422, vec![field]),
            "{answer:?}"
        );
    }
    let head = api.get("/v1/chain", &token).await;
    assert_eq!(head.body["head"]["seq"], 0, "nothing of it was booked");
    for query in ["limit=0", "limit=201", "cursor=x", "order=asc"] {
        let answer = api.get(&format!("/v1/accounts?{query}"), &token).await;
        assert_eq!(answer.status, 422, "{query}");
    }
}

/// Gamma and Delta have their books in one database.
#[tokio::test(flavor = "multi_thread")]
async fn a_book_is_its_brokers_alone() {
    let api = Api::new().await;
    let gamma = api.admin_of(api.world.gamma).await;
    let delta = api.admin_of(api.world.delta).await;
    let path = open(&api, &gamma, "FO-1").await;
    let entries = format!("{path}/entries");
    api.post(&entries, &gamma, opening(&api, "5.00")).await;

    for path in ["/v1/accounts", "/v1/transactions"] {
        assert_eq!(api.get(path, &gamma).await.items().len(), 1, "{path}");
        assert!(api.get(path, &delta).await.items().is_empty(), "{path}");
    }
    let chain = api.get("/v1/chain?from_seq=1", &delta).await;
    assert_eq!(chain.body["head"]["seq"], 0);
    assert_eq!(chain.body["entries"], json!([]));
    for foreign in [&path, &format!("{path}/transactions")] {
        assert_eq!(api.get(foreign, &delta).await.problem(), (404, "not_found"));
    }
    let answer = api.post(&entries, &delta, opening(&api, "1.00")).await;
    assert_eq!(answer.problem(), (404, "not_found"));
    let answer = api.post(&format!("{path}/close"), &delta, json!({})).await;
    assert_eq!(answer.problem(), (404, "not_found"));
    for unknown in ["AC-000000000001", "AC-1", "FO-1", "1"] {
        let answer = api.get(&format!("/v1/accounts/{unknown}"), &gamma).await;
        assert_eq!(answer.problem(), (404, "not_found"), "{unknown}");
    }
    // The same name in the other book is another account, and the same key another operation.
    let account = api.get(&path, &gamma).await.body;
    let others = open(&api, &delta, "FO-1").await;
    assert_ne!(others, path);
    assert_eq!(api.get(&path, &gamma).await.body, account);
    // An operator books nothing out of nothing, a viewer opens nothing.
    let operator = api.token(Role::BrokerOperator, Some(api.world.gamma)).await;
    let answer = api.post(&entries, &operator, opening(&api, "1.00")).await;
    assert_eq!(answer.problem(), (403, "role_forbidden"));
    let viewer = api.token(Role::BrokerViewer, Some(api.world.gamma)).await;
    let answer = api
        .post("/v1/accounts", &viewer, partner(&api, "FO-9"))
        .await;
    assert_eq!(answer.problem(), (403, "role_forbidden"));
    assert_eq!(api.get(&path, &viewer).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_are_listed_newest_first_and_found_by_name() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.delta).await;
    for number in 1..=5 {
        open(&api, &token, &format!("FO-{number}")).await;
        api.world.clock.advance(chrono::Duration::seconds(1));
    }
    let mut names = Vec::new();
    let mut path = "/v1/accounts?limit=2".to_owned();
    loop {
        let page = api.get(&path, &token).await;
        let found = page.items().iter().map(|item| item["owner_ref"].clone());
        names.extend(found);
        match page.body["next_cursor"].as_str() {
            Some(cursor) => path = format!("/v1/accounts?limit=2&cursor={cursor}"),
            None => break,
        }
    }
    assert_eq!(
        json!(names),
        json!(["FO-5", "FO-4", "FO-3", "FO-2", "FO-1"])
    );
    let page = api.get("/v1/accounts?owner_ref=FO-3", &token).await;
    assert_eq!(page.items().len(), 1);
    // What is promised keeps an account open.
    let promised = api.world.client(api.world.delta, "FO-3");
    let sql = "UPDATE account SET reserved = 5 WHERE owner_ref = 'FO-3'";
    let mut book = api.world.book_connection(api.world.delta).await;
    sqlx::query(sql).execute(&mut book).await.unwrap();
    let close = format!("/v1/accounts/{}/close", promised.id());
    let answer = api.post(&close, &token, json!({})).await;
    assert_eq!(answer.problem(), (409, "conflict"));
}

async fn in_currency(api: &Api, token: &str, owner: &str, currency: &str) -> String {
    let body = json!({"owner_kind": "partner", "owner_ref": owner, "currency_code": currency});
    let answer = api.post("/v1/accounts", token, body).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.body["id"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_exchanges_one_currency_for_another() {
    let api = Api::new().await;
    for broker in [api.world.alpha, api.world.gamma] {
        let token = api.admin_of(broker).await;
        let dollars = in_currency(&api, &token, "FO-1", "USD").await;
        let bitcoin = in_currency(&api, &token, "FO-1", "BTC").await;
        let foreign = in_currency(&api, &token, "FO-2", "BTC").await;
        let entries = format!("/v1/accounts/{dollars}/entries");
        let opening = json!({"kind": "opening", "side": "credit", "amount": "100.00",
                             "currency_code": "USD"});
        assert_eq!(api.post(&entries, &token, opening).await.status, 201);
        let swap = |amount: &str, rate: &str| {
            json!({"sold_account_id": dollars, "bought_account_id": bitcoin, "amount": amount,
                   "currency_code": "USD", "bought_currency_code": "BTC", "rate": rate,
                   "note": "at the desk"})
        };
        let key = uuid::Uuid::new_v4().to_string();
        let done = api
            .post_as("/v1/swaps", &token, Some(&key), swap("60.00", "0.00001030"))
            .await;
        assert_eq!(done.status, 201, "{done:?}");
        assert_eq!(done.body["rate"], "0.0000103");
        assert_eq!(done.body["note"], "at the desk");
        assert_eq!(done.body["sold"]["amount"], "60.00");
        assert_eq!(done.body["sold"]["balance"], "40.00");
        assert_eq!(done.body["bought"]["amount"], "0.00061800");
        let again = api
            .post_as("/v1/swaps", &token, Some(&key), swap("60.00", "0.00001030"))
            .await;
        assert_eq!(again.body, done.body, "once");
        let other = api
            .post_as("/v1/swaps", &token, Some(&key), swap("60.00", "0.00001031"))
            .await;
        assert_eq!(other.problem().0, 422);
        let short = api
            .post("/v1/swaps", &token, swap("40.01", "0.00001030"))
            .await;
        assert_eq!(short.problem(), (409, "books_refused"));
        let second = api
            .post("/v1/swaps", &token, swap("0.01", "0.00009999"))
            .await;
        assert_eq!(
            second.body["bought"]["amount"], "0.00000099",
            "rounded down"
        );

        let id = done.body["id"].as_str().unwrap();
        assert_eq!(
            api.get(&format!("/v1/swaps/{id}"), &token).await.body,
            done.body
        );
        let list = api.get("/v1/swaps?limit=1", &token).await;
        assert_eq!(list.items()[0], second.body);
        let cursor = list.body["next_cursor"].as_str().unwrap();
        let rest = api
            .get(&format!("/v1/swaps?limit=1&cursor={cursor}"), &token)
            .await;
        assert_eq!(rest.items()[0], done.body);
        assert_eq!(rest.body["next_cursor"], Value::Null);

        for (change, field) in [
            (json!({"rate": "0"}), "rate"),
            (json!({"rate": "1e5"}), "rate"),
            (json!({"rate": "0.000000000001"}), "amount"),
            (json!({"rate": "999999999999999999"}), "amount"),
            (json!({"amount": "0.00"}), "amount"),
            (json!({"amount": "0.001"}), "amount"),
            (json!({"currency_code": "BTC"}), "currency_code"),
            (json!({"bought_currency_code": "USD"}), "currency_code"),
            (json!({"bought_account_id": foreign}), "bought_account_id"),
            (
                json!({"bought_account_id": dollars, "bought_currency_code": "USD"}),
                "bought_account_id",
            ),
            (json!({"note": "a\u{0}b"}), "note"),
        ] {
            let mut body = swap("1.00", "0.0000103");
            for (name, value) in change.as_object().unwrap() {
                body[name] = value.clone();
            }
            let refused = api.post("/v1/swaps", &token, body).await;
            assert_eq!(refused.problem().0, 422, "{change}: {refused:?}");
            assert_eq!(refused.body["errors"][0]["field"], field, "{change}");
        }
        let stranger = api.admin_of(api.world.beta).await;
        let hidden = api.get(&format!("/v1/swaps/{id}"), &stranger).await;
        assert_eq!(hidden.status, 404);
        let hers = api
            .post("/v1/swaps", &stranger, swap("1.00", "0.0000103"))
            .await;
        assert_eq!(hers.status, 404);
    }
    crate::harness::assert_invariants(&api.world).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statements_fit_together() {
    let api = Api::new().await;
    let token = api.admin_of(api.world.gamma).await;
    let path = open(&api, &token, "FO-1").await;
    let entries = format!("{path}/entries");
    for amount in ["100.00", "20.00", "3.00"] {
        let mut body = opening(&api, amount);
        if amount == "20.00" {
            body["side"] = json!("debit");
            body["kind"] = json!("correction");
            body["note"] = json!("=1+1, \"quoted\"");
        }
        assert_eq!(api.post(&entries, &token, body).await.status, 201);
        api.world.clock.advance(chrono::Duration::minutes(1));
    }
    let statement = async |from: &str, to: &str| {
        api.get(&format!("{path}/statement?from={from}&to={to}"), &token)
            .await
    };
    let all = statement("2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z").await;
    assert_eq!(all.status, 200, "{all:?}");
    assert_eq!(all.body["opening_balance"], "0.00");
    assert_eq!(
        (&all.body["debits"], &all.body["credits"]),
        (&json!("20.00"), &json!("103.00"))
    );
    assert_eq!(all.body["closing_balance"], "83.00");
    let lines = all.body["lines"].as_array().unwrap();
    let balances: Vec<_> = lines
        .iter()
        .map(|line| line["balance"].as_str().unwrap())
        .collect();
    assert_eq!(balances, ["100.00", "80.00", "83.00"]);
    // Of the second minute alone: begins with what the first has left.
    let second = statement("2026-01-01T00:01:00Z", "2026-01-01T00:02:00Z").await;
    assert_eq!(second.body["opening_balance"], "100.00");
    assert_eq!(second.body["closing_balance"], "80.00");
    let third = statement("2026-01-01T00:02:00Z", "2026-01-01T00:03:00Z").await;
    assert_eq!(
        third.body["opening_balance"],
        second.body["closing_balance"]
    );
    let after = statement("2027-01-01T00:00:00Z", "2027-01-02T00:00:00Z").await;
    assert_eq!(after.body["lines"], json!([]));
    assert_eq!(after.body["opening_balance"], "83.00");

    let csv = api
        .get(
            &format!(
                "{path}/statement?from=2026-01-01T00:00:00Z&to=2026-01-01T00:02:00Z&format=csv"
            ),
            &token,
        )
        .await;
    let lines: Vec<_> = csv.text.lines().collect();
    assert_eq!(
        lines[0],
        "booked_at,seq,kind,subject,debit,credit,balance,currency_code,note"
    );
    assert!(
        lines[1].starts_with("2026-01-01T00:00:00.000000Z,,opening_balance,,,,0.00,"),
        "{}",
        lines[1]
    );
    assert!(
        lines[2].contains(",1,account.opening,") && lines[2].ends_with("counted by two"),
        "{}",
        lines[2]
    );
    assert!(
        lines[3].ends_with(",\"'=1+1, \"\"quoted\"\"\""),
        "no formula: {}",
        lines[3]
    );
    assert!(
        lines[4].contains("closing_balance,,,,80.00,"),
        "{}",
        lines[4]
    );
    assert_eq!(lines.len(), 5);

    for (query, field) in [
        ("from=2026-01-02T00:00:00Z&to=2026-01-02T00:00:00Z", "to"),
        ("from=yesterday&to=2026-01-02T00:00:00Z", "from"),
        ("to=2026-01-02T00:00:00Z", "from"),
        (
            "from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z&format=xml",
            "format",
        ),
    ] {
        let refused = api.get(&format!("{path}/statement?{query}"), &token).await;
        assert_eq!(refused.status, 422, "{query}: {refused:?}");
        assert_eq!(refused.body["errors"][0]["field"], field, "{query}");
    }
    let stranger = api.admin_of(api.world.alpha).await;
    let hidden = api
        .get(
            &format!("{path}/statement?from=2026-01-01T00:00:00Z&to=2026-01-02T00:00:00Z"),
            &stranger,
        )
        .await;
    assert_eq!(hidden.status, 404);
}
