//! No statement and no route reaches a neighbour's rows: two brokers on one shard, their data
//! interleaved.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use settlenet::domain::book_table::{BOOK_TABLES, Row};
use settlenet::domain::ids::BrokerId;
use settlenet::http;
use settlenet::http::guard::Access;
use settlenet::http::routes::RouteInfo;
use settlenet::stores::book::HeldBook;
use settlenet::stores::router::DatabaseKey;

use crate::api::Api;
use crate::harness::assert_invariants;

/// Tables that only books have; the master has its own of the other names.
fn tables_of_books() -> Vec<&'static str> {
    let of_both = ["idempotency_key", "feed_event"];
    let all = BOOK_TABLES
        .iter()
        .map(|table| table.name)
        .chain(["book_fence"]);
    all.filter(|name| !of_both.contains(name)).collect()
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Where a statement names a table: after a word that a table follows.
fn places(text: &str, table: &str) -> Vec<usize> {
    let mut found = Vec::new();
    for word in ["FROM ", "INTO ", "UPDATE ", "JOIN ", "TABLE "] {
        for name in [table.to_owned(), format!("`{table}`")] {
            let named = format!("{word}{name}");
            let ends = |at: usize| {
                let next = text[at + named.len()..].chars().next();
                next.is_none_or(|next| !next.is_alphanumeric() && next != '_')
            };
            found.extend(
                text.match_indices(&named)
                    .map(|(at, _)| at)
                    .filter(|at| ends(*at)),
            );
        }
    }
    found
}

/// Whatever names a book's table is a [`settlenet::stores::router::BookSql`], which is checked
/// for its broker when it is compiled, or an insert through a scope, which puts the broker in
/// itself; or it is in the router. What works on whole databases is listed here.
#[test]
fn every_statement_on_a_books_table_is_a_scopes() {
    const WHOLE: [(&str, usize); 5] = [
        // The measurement plays somebody who has the whole database, and tampers with it.
        ("cli/bench/evidence/tampering.rs", 2),
        // A book's making, before there is one to have a scope of.
        ("stores/book.rs", 2),
        // Reconciliation's look at a whole database.
        ("stores/book/census.rs", 1),
        // The log's look at all heads of a database.
        ("stores/book/logged.rs", 5),
        // Texts that a test explains; each is made a `BookSql` beside them.
        ("stores/book/partners.rs", 3),
    ];
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut scoped, mut wrong) = (0, Vec::new());
    for file in sources(&src) {
        let name = file
            .strip_prefix(&src)
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if name.starts_with("stores/router") || name.starts_with("cli/bench/bare") {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        let mut whole = 0;
        for at in tables_of_books()
            .iter()
            .flat_map(|table| places(code, table))
        {
            let before = &code[..at];
            let last = |what: &str| before.rfind(what);
            let by_scope = last("BookSql::new(").max(last(".insert("));
            let by_hand = [
                "sqlx::query",
                "raw_sql(",
                "query_scalar(",
                "query_as(",
                "QueryBuilder",
            ]
            .iter()
            .filter_map(|what| last(what))
            .max();
            if by_scope > by_hand {
                scoped += 1;
            } else {
                whole += 1;
            }
        }
        let allowed = WHOLE
            .iter()
            .find(|(file, _)| *file == name)
            .map_or(0, |(_, count)| *count);
        if whole != allowed {
            wrong.push(format!(
                "{name}: {whole} statements past the router, {allowed} are known"
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        scoped > 25,
        "only {scoped} statements were found: the test sees too little"
    );
}

/// Everything of a broker's book, as it is stored.
async fn rows(api: &Api, broker: BrokerId) -> Vec<Row> {
    let database = DatabaseKey {
        server: "a".to_owned(),
        database: api.world.databases.shard.clone(),
    };
    let book = HeldBook::new(&api.world.app.systems.router, broker, &database).unwrap();
    let mut read = book.read().await.unwrap();
    let mut all = Vec::new();
    for table in BOOK_TABLES {
        all.extend(read.rows(table, None, 10_000).await.unwrap());
    }
    read.end().await.unwrap();
    all
}

/// What is only one broker's: names, ids, hashes.
struct Secrets {
    ids: Vec<String>,
    words: Vec<String>,
}

/// A broker with accounts, entries, requests with others, and a team.
async fn furnish(api: &Api, broker: BrokerId, marker: &str, round: usize) {
    let world = &api.world;
    let admin = api.admin_of(broker).await;
    let account = json!({ "owner_kind": "partner", "owner_ref": format!("{marker}-{round}"),
                          "currency_code": world.currency });
    let opened = api.post("/v1/accounts", &admin, account).await;
    assert!(opened.status < 300, "{}", opened.text);
    let id = opened.body["id"].as_str().unwrap();
    let entry = json!({ "kind": "opening", "side": "credit", "amount": "12.34", "currency_code": world.currency,
                        "note": format!("{marker} note") });
    let booked = api
        .post(&format!("/v1/accounts/{id}/entries"), &admin, entry)
        .await;
    assert!(booked.status < 300, "{}", booked.text);
    let id = world.sent(broker, world.alpha).await;
    world.confirm(id).await.unwrap();
    world.sent(world.alpha, broker).await;
}

/// The strings of an answer that could name something.
fn strings(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::String(text) => {
            into.insert(text.clone());
        }
        Value::Array(list) => list.iter().for_each(|value| strings(value, into)),
        Value::Object(object) => object.values().for_each(|value| strings(value, into)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// All lists of a broker, with a cursor of each.
async fn lists(api: &Api, token: &str) -> Vec<List> {
    let mut found = Vec::new();
    for route in http::routes().registry() {
        let of_broker = matches!(route.access, Access::Only(action) if action.as_str().split('.').next() != Some("admin"));
        if route.method == "GET" && !route.path.contains('{') && of_broker {
            let all = api.get(&route.path, token).await;
            if all.status == 200 {
                let one = api.get(&format!("{}?limit=1", route.path), token).await;
                let cursor = one.body["next_cursor"].as_str().map(str::to_owned);
                found.push((route.path.clone(), all.body, cursor));
            }
        }
    }
    found
}

async fn secrets(api: &Api, theirs: &str, ours: &str) -> Secrets {
    let gathered = async |token: &str| {
        let mut all = BTreeSet::new();
        for (_, body, _) in lists(api, token).await {
            strings(&body, &mut all);
        }
        all
    };
    let (theirs, ours) = (gathered(theirs).await, gathered(ours).await);
    let only: Vec<String> = theirs.difference(&ours).cloned().collect();
    // Short words and times say nothing of whose they are.
    let telling = |text: &&String| text.len() >= 8 && !text.starts_with("20");
    let telling: Vec<String> = only.iter().filter(telling).cloned().collect();
    let is_id = |text: &&String| {
        let form = text.split_once('-');
        form.is_some_and(|(kind, rest)| kind.len() == 2 && rest.len() == 12)
    };
    Secrets {
        ids: telling.iter().filter(is_id).cloned().collect(),
        words: telling,
    }
}

/// Bodies that do something where the path is one's own.
fn body(path: &str, api: &Api) -> Value {
    let last = path.rsplit('/').next().unwrap_or_default();
    match last {
        "entries" => {
            json!({ "kind": "opening", "side": "credit", "amount": "1.00", "currency_code": api.world.currency })
        }
        "sent" => json!({ "proof": [{ "type": "transfer_ref", "value": "x" }] }),
        "reject" | "cancel" | "dispute" => json!({ "reason": "none" }),
        "accounts" => json!({ "owner_kind": "partner", "owner_ref": "gamma-own",
                              "currency_code": api.world.currency }),
        _ => json!({}),
    }
}

type List = (String, Value, Option<String>);

/// What is asked of a route, with what of it may be named in the answer: the neighbour's ids,
/// cursors and filters.
fn paths_of(
    route: &RouteInfo,
    known: &Secrets,
    theirs: &[List],
    delta: BrokerId,
) -> Vec<(String, Vec<String>)> {
    let mut paths = Vec::new();
    if route.path.contains('{') {
        for id in &known.ids {
            let parts = route.path.split('/');
            let parts: Vec<&str> = parts
                .map(|part| {
                    if part.starts_with('{') {
                        id.as_str()
                    } else {
                        part
                    }
                })
                .collect();
            paths.push((parts.join("/"), vec![id.clone()]));
        }
        paths.push((route.path.replace("{id}", &delta.to_string()), vec![]));
    } else {
        paths.push((route.path.clone(), vec![]));
        let (_, _, cursor) = theirs
            .iter()
            .find(|(path, ..)| *path == route.path)
            .cloned()
            .unwrap_or_default();
        if let Some(cursor) = cursor {
            paths.push((format!("{}?cursor={cursor}", route.path), vec![cursor]));
        }
    }
    let filters = [
        "owner_ref=delta-secret-1",
        "q=delta",
        "account_id=",
        "status=completed",
        "state=open",
        "broker_id=",
        "after=1",
        "limit=200",
    ];
    for (path, sent) in paths.clone() {
        for filter in filters
            .into_iter()
            .filter(|_| route.method == "GET" && !path.contains('?'))
        {
            let filter = match filter {
                "account_id=" => format!("account_id={}", known.ids[0]),
                "broker_id=" => format!("broker_id={delta}"),
                other => other.to_owned(),
            };
            let mut sent = sent.clone();
            sent.push(filter.rsplit('=').next().unwrap_or_default().to_owned());
            paths.push((format!("{path}?{filter}"), sent));
        }
    }
    paths
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_reaches_the_neighbours_rows() {
    let api = Api::new().await;
    let (gamma, delta) = (api.world.gamma, api.world.delta);
    for round in 0..3 {
        furnish(&api, gamma, "gamma-own", round).await;
        furnish(&api, delta, "delta-secret", round).await;
    }
    let (token, other) = (api.admin_of(gamma).await, api.admin_of(delta).await);
    let known = secrets(&api, &other, &token).await;
    assert!(known.ids.len() > 8, "{:?}", known.ids);
    assert!(known.words.iter().any(|word| word.contains("delta-secret")));
    let before = rows(&api, delta).await;
    assert!(before.len() > 20);
    let theirs = lists(&api, &other).await;
    let routes = http::routes();
    let (mut asked, mut not_there) = (0, 0);
    for route in routes.registry() {
        let paths = paths_of(route, &known, &theirs, delta);
        for (path, sent) in paths {
            let answer = match route.method {
                "GET" => api.get(&path, &token).await,
                _ => api.post(&path, &token, body(&path, &api)).await,
            };
            asked += 1;
            not_there += usize::from(answer.status == 404);
            let mut told = BTreeSet::new();
            strings(&answer.body, &mut told);
            for text in &told {
                // What was asked for may be named in saying that it isn't there.
                let echo = sent
                    .iter()
                    .any(|sent| !sent.is_empty() && text.contains(sent.as_str()));
                let leak = known.words.iter().find(|word| text.contains(word.as_str()));
                assert!(
                    echo || leak.is_none(),
                    "{} {path} tells {leak:?}: {}",
                    route.method,
                    answer.text
                );
            }
            assert!(
                answer.status < 500,
                "{} {path}: {}",
                route.method,
                answer.text
            );
        }
    }
    assert!(asked > 200 && not_there > 50, "{asked} {not_there}");
    assert_eq!(
        rows(&api, delta).await,
        before,
        "the neighbour's book was touched"
    );
    assert_invariants(&api.world).await;
}
