use axum::body::Body;
use axum::http::Request;
use jsonwebtoken::{Algorithm, encode};
use serde_json::{Value, json};
use settlenet::domain::access::{Role, Scope, permits};
use settlenet::domain::canonical::Hash;
use settlenet::http::guard::Access as Through;
use settlenet::http::routes;
use settlenet::http::routes::RouteInfo;

use super::tokens::{claims, ed, header, stolen};
use super::{Access, Answer};

fn token_claims(role: Role, scopes: &[Scope]) -> Value {
    let mut claims = claims();
    claims["role"] = json!(role);
    claims["broker_id"] = if role.is_of_broker() {
        json!(1)
    } else {
        Value::Null
    };
    claims["scopes"] = json!(scopes);
    if role == Role::Agent {
        claims["limit_digest"] = json!(Hash::of_bytes(b"limit"));
    }
    claims
}

/// The route with parameters that nothing has.
fn path(route: &RouteInfo) -> String {
    let parts = route.path.split('/').map(|part| {
        if part.starts_with('{') {
            "000000000000"
        } else {
            part
        }
    });
    parts.collect::<Vec<_>>().join("/")
}

async fn call(access: &Access, route: &RouteInfo, token: Option<&str>) -> Answer {
    let mut request = Request::builder()
        .method(route.method)
        .uri(path(route))
        .header("content-type", "application/json");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    access.send(request.body(Body::from("{}")).unwrap()).await
}

/// Every route, for every role and for nobody: who gets through is what the table says.
#[tokio::test]
async fn every_route_lets_through_whom_the_table_says() {
    let access = Access::new().await;
    let (kid, key) = stolen(&access);
    let sign = |claims: &Value| encode(&header(Algorithm::EdDSA, &kid), claims, &ed(&key)).unwrap();
    let routes = routes();
    assert!(routes.registry().len() >= 13);
    for route in routes.registry() {
        let place = format!("{} {}", route.method, route.path);
        let without = call(&access, route, None).await;
        assert_ne!(without.status, 405, "{place}");
        match route.access {
            Through::Public => assert_ne!(without.code(), "token_missing", "{place}"),
            Through::Only(_) => {
                assert_eq!(
                    (without.status, without.code()),
                    (401, "token_missing"),
                    "{place}"
                );
            }
        }
        for role in Role::ALL {
            let token = sign(&token_claims(*role, Scope::ALL));
            let answer = call(&access, route, Some(&token)).await;
            let place = format!("{place} as {role}: {answer:?}");
            match route.access {
                Through::Only(action) if !permits(*role, action) => {
                    assert_eq!(
                        (answer.status, answer.code()),
                        (403, "role_forbidden"),
                        "{place}"
                    );
                }
                Through::Public | Through::Only(_) => {
                    assert!(![403, 500].contains(&answer.status), "{place}");
                    assert!(!answer.code().starts_with("token_"), "{place}");
                }
            }
            if let Through::Only(action) = route.access
                && permits(*role, action)
            {
                let others: Vec<Scope> = Scope::ALL
                    .iter()
                    .copied()
                    .filter(|scope| *scope != action.scope())
                    .collect();
                let token = sign(&token_claims(*role, &others));
                let answer = call(&access, route, Some(&token)).await;
                assert_eq!(
                    (answer.status, answer.code()),
                    (403, "scope_missing"),
                    "{place}"
                );
            }
        }
    }
}

/// Nothing is served that isn't in the registry, and so in the walk above.
#[tokio::test]
async fn the_documentation_has_every_route_and_no_other() {
    let document = serde_json::to_value(settlenet::http::openapi()).unwrap();
    assert_eq!(document["openapi"], "3.1.0");
    let mut documented: Vec<String> = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            documented.push(format!("{} {path}", method.to_uppercase()));
            let default = &operation["responses"]["default"]["content"];
            let schema = &default["application/problem+json"]["schema"]["$ref"];
            assert_eq!(schema, "#/components/schemas/Problem", "{method} {path}");
            assert!(operation["operationId"].is_string(), "{method} {path}");
        }
    }
    let routes = routes();
    let mut registered: Vec<String> = routes
        .registry()
        .iter()
        .map(|route| format!("{} {}", route.method, route.path))
        .collect();
    documented.sort();
    registered.sort();
    assert_eq!(documented, registered);
    assert!(document["components"]["schemas"]["Problem"].is_object());
    assert!(document["components"]["securitySchemes"]["bearer"].is_object());
}
