//! Path and query parameters, with the same problems as bodies.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::json::{field_error, path_of};
use super::problem::{Code, FieldError, Problem};
use crate::domain::ids::RequestId;

/// Path parameters. One that can't be the name of anything names nothing: a 404.
#[derive(Clone, Copy, Debug)]
pub struct PathOf<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for PathOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(value)| Self(value))
            .map_err(|error| Problem::new(Code::NotFound).detail(error.body_text()))
    }
}

/// The id of a request that is no order: `NR-…`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RequestId")]
pub struct PlainRequest(pub RequestId);

/// The id of an order: `OR-…`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(try_from = "RequestId")]
pub struct Order(pub RequestId);

impl TryFrom<RequestId> for PlainRequest {
    type Error = &'static str;

    fn try_from(id: RequestId) -> Result<Self, Self::Error> {
        if id.is_order() {
            return Err("it is an order's id");
        }
        Ok(Self(id))
    }
}

impl TryFrom<RequestId> for Order {
    type Error = &'static str;

    fn try_from(id: RequestId) -> Result<Self, Self::Error> {
        if !id.is_order() {
            return Err("it is no order's id");
        }
        Ok(Self(id))
    }
}

/// Query parameters: unknown, doubled and wrong ones are a 422 that names them.
#[derive(Clone, Copy, Debug)]
pub struct QueryOf<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for QueryOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn parse<T: DeserializeOwned>(query: &str) -> Result<T, Problem> {
    let pairs = form_urlencoded::parse(query.as_bytes());
    // No database keeps one in a text, so nothing has it.
    let nul = pairs.clone().find(|(_, value)| value.contains('\0'));
    if let Some((name, _)) = nul {
        return Err(Problem::invalid(name, "has no character of number 0"));
    }
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let query = serde_urlencoded::Deserializer::new(pairs);
    let tracked = serde_path_to_error::Deserializer::new(query, &mut track);
    let result: Result<T, serde_urlencoded::de::Error> =
        serde_ignored::deserialize(tracked, |path| {
            let name = path_of(&path);
            unknown.push(FieldError::new(
                name,
                "unknown",
                "There is no such parameter.",
            ));
        });
    match result {
        Ok(value) if unknown.is_empty() => Ok(value),
        Ok(_) => Err(Problem::fields(unknown)),
        Err(error) => {
            let mut errors = vec![field_error(&track.path().to_string(), &error.to_string())];
            errors.append(&mut unknown);
            Err(Problem::fields(errors))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize, PartialEq, Eq)]
    struct Filter {
        limit: Option<u32>,
        status: Option<String>,
    }

    #[test]
    fn query_parameters_are_strict() {
        let filter = parse::<Filter>("limit=5&status=a%20b").unwrap();
        assert_eq!(
            (filter.limit, filter.status.as_deref()),
            (Some(5), Some("a b"))
        );
        assert!(parse::<Filter>("").is_ok());
        let fault = |query: &str| {
            let problem = parse::<Filter>(query).unwrap_err();
            let error = &problem.errors()[0];
            (problem.code(), error.field.clone(), error.code)
        };
        let invalid = |field: &str, code| (Code::FieldsInvalid, field.to_owned(), code);
        assert_eq!(fault("limit=x"), invalid("limit", "value"));
        assert_eq!(fault("status=a%00"), invalid("status", "value"));
        assert_eq!(fault("limit=-1"), invalid("limit", "value"));
        assert_eq!(fault("sort=asc"), invalid("sort", "unknown"));
        assert_eq!(fault("limit=1&limit=2"), invalid("limit", "duplicate"));
    }
}
