//! Request bodies, read strictly: what we don't know is refused and named, and so is the path
//! of what we can't take.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use std::marker::PhantomData;

use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::error::Category;

use super::problem::{Code, FieldError, Problem};

/// A JSON body of one known form. Types of bodies are plain structs: `#[serde(flatten)]` and
/// tagged or untagged enums hide from this which field was at fault.
///
/// 415 for another media type, 413 over the limit, 400 for what isn't UTF-8, isn't JSON or is
/// nested deeper than 128; 422 for unknown, missing and doubled fields and wrong values.
#[derive(Clone, Copy, Debug)]
pub struct StrictJson<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for StrictJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(Code::MediaType).detail("Send application/json."));
        }
        let bytes = Bytes::from_request(request, state).await.map_err(|error| {
            if error.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Problem::new(Code::TooLarge)
            } else {
                Problem::new(Code::BadRequest).detail("The body broke off.")
            }
        })?;
        parse(&bytes).map(Self)
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
    else {
        return false;
    };
    let mut parts = value.split(';').map(str::trim);
    let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
    let json = essence == "application/json"
        || (essence.starts_with("application/") && essence.ends_with("+json"));
    // JSON is UTF-8 (RFC 8259): a body that says otherwise would be read wrongly.
    json && parts.all(|parameter| {
        parameter
            .to_ascii_lowercase()
            .strip_prefix("charset=")
            .is_none_or(|charset| charset.trim_matches('"') == "utf-8")
    })
}

/// # Errors
/// 400 or 422, as [`StrictJson`] says.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        Problem::new(Code::BadUtf8).detail(format!("Byte {} is not UTF-8.", error.valid_up_to()))
    })?;
    // serde would read a struct from a list of its fields' values too.
    if text.trim_start().starts_with('[') {
        return Err(Problem::fields(vec![FieldError::new(
            "",
            "type",
            "The body is an object.",
        )]));
    }
    let mut unknown = Vec::new();
    let mut track = serde_path_to_error::Track::new();
    let mut json = serde_json::Deserializer::from_str(text);
    let tracked = serde_path_to_error::Deserializer::new(&mut json, &mut track);
    let result: Result<T, serde_json::Error> = serde_ignored::deserialize(tracked, |path| {
        unknown.push(unknown_field(path_of(&path)));
    });
    let value = match result {
        Ok(value) => value,
        Err(error) => match error.classify() {
            // What serde_json says of a null or a number where it looks for a word.
            Category::Syntax if plain(&error) == "expected value" && whole(text).is_ok() => {
                let path = track.path().to_string();
                return Err(Problem::fields(vec![field_error(&path, "is a word")]));
            }
            Category::Syntax | Category::Eof | Category::Io => return Err(not_json(&error)),
            Category::Data => {
                // A field may be at fault before the text turns out to be none.
                whole(text).map_err(|error| not_json(&error))?;
                let mut errors = vec![field_error(&track.path().to_string(), &plain(&error))];
                errors.append(&mut unknown);
                return Err(Problem::fields(errors));
            }
        },
    };
    json.end().map_err(|error| not_json(&error))?;
    if unknown.is_empty() {
        Ok(value)
    } else {
        Err(Problem::fields(unknown))
    }
}

/// Reads an object inside a body, for `#[serde(default, deserialize_with)]`.
///
/// # Errors
/// What is neither an object nor null.
pub(super) fn object<'de, T, D>(deserializer: D) -> Result<Option<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let read = Option::<Object<T>>::deserialize(deserializer)?;
    Ok(read.map(|Object(value)| value))
}

/// Reads an object inside a body that must be there, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is no object.
pub(super) fn needed_object<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    Object::<T>::deserialize(deserializer).map(|Object(value)| value)
}

/// Reads a list of objects inside a body, for `#[serde(deserialize_with)]`.
///
/// # Errors
/// What is no list of objects.
pub(super) fn objects<'de, T, D>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    T: Deserialize<'de>,
    D: Deserializer<'de>,
{
    let read = Vec::<Object<T>>::deserialize(deserializer)?;
    Ok(read.into_iter().map(|Object(value)| value).collect())
}

/// An object, whereas serde alone would read a struct from a list of its fields' values too.
struct Object<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ObjectVisitor(PhantomData))
    }
}

struct ObjectVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ObjectVisitor<T> {
    type Value = Object<T>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(Object)
    }
}

/// Whether a text is JSON, whatever it says.
fn whole(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<serde::de::IgnoredAny>(text).map(drop)
}

fn not_json(error: &serde_json::Error) -> Problem {
    Problem::new(Code::BadJson).detail(error.to_string())
}

fn unknown_field(path: String) -> FieldError {
    FieldError::new(path, "unknown", "There is no such field.")
}

/// The message without the position in the text, which the path tells better, and without the names
/// of our types.
pub(super) fn plain(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let text = match text.rfind(" at line ") {
        Some(end) => &text[..end],
        None => &text,
    };
    let Some((said, expected)) = text.split_once(", expected ") else {
        return text.to_owned();
    };
    let first = expected.split(' ').next().unwrap_or_default();
    let expected = match first {
        "struct" | "enum" | "internally" | "adjacently" | "map" => "an object",
        "u8" | "u16" | "u32" | "u64" | "usize" | "i8" | "i16" | "i32" | "i64" => "a whole number",
        _ => expected,
    };
    format!("{said}, expected {expected}")
}

/// What serde says, as an error of a field: for a field that is missing, doubled or unknown it
/// gives the path of the object and names the field in its message.
pub(super) fn field_error(path: &str, message: &str) -> FieldError {
    let of_field = [
        ("missing field `", "missing", "The field is needed."),
        (
            "duplicate field `",
            "duplicate",
            "The field is there twice.",
        ),
        ("unknown field `", "unknown", "There is no such field."),
    ];
    for (start, code, detail) in of_field {
        let name = message
            .strip_prefix(start)
            .and_then(|rest| rest.split('`').next());
        if let Some(name) = name {
            let inside = path == "." || path.is_empty();
            // For a doubled or unknown field the path may already end with it.
            let named = path == name || path.ends_with(&format!(".{name}"));
            let field = match (inside, named) {
                (true, _) => name.to_owned(),
                (false, true) => path.to_owned(),
                (false, false) => format!("{path}.{name}"),
            };
            return FieldError::new(field, code, detail);
        }
    }
    let code = if message.starts_with("invalid type") {
        "type"
    } else {
        "value"
    };
    FieldError::new(if path == "." { "" } else { path }, code, message)
}

pub(super) fn path_of(path: &serde_ignored::Path<'_>) -> String {
    use serde_ignored::Path;
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", path_of(parent)),
        Path::Map { parent, key } => {
            let parent = path_of(parent);
            if parent.is_empty() {
                key.clone()
            } else {
                format!("{parent}.{key}")
            }
        }
        Path::Some { parent }
        | Path::NewtypeStruct { parent }
        | Path::NewtypeVariant { parent } => path_of(parent),
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use axum::body::Body;
    use axum::extract::DefaultBodyLimit;
    use axum::http::Request;
    use axum::routing::post;
    use serde::Deserialize;
    use tower::ServiceExt;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read into")]
    struct Inner {
        payer: String,
        points: Option<u32>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only read into")]
    struct Outer {
        amount: String,
        inner: Option<Inner>,
        #[serde(default)]
        list: Vec<Inner>,
        #[serde(default)]
        free: serde_json::Value,
    }

    fn fault(body: &str) -> (u16, Vec<(String, &'static str)>) {
        let problem = parse::<Outer>(body.as_bytes()).unwrap_err();
        let errors = problem.errors().iter();
        let errors = errors
            .map(|error| (error.field.clone(), error.code))
            .collect();
        (problem.code().status().as_u16(), errors)
    }

    fn one(field: &str, code: &'static str) -> (u16, Vec<(String, &'static str)>) {
        (422, vec![(field.to_owned(), code)])
    }

    #[test]
    fn names_the_field_at_fault() {
        assert!(parse::<Outer>(br#"{"amount":"1","inner":{"payer":"a"}}"#).is_ok());
        assert_eq!(fault("{}"), one("amount", "missing"));
        assert_eq!(fault(r#"{"amount":1}"#), one("amount", "type"));
        assert_eq!(
            fault(r#"{"amount":"1","amount":"2"}"#),
            one("amount", "duplicate")
        );
        assert_eq!(
            fault(r#"{"amount":"1","inner":{}}"#),
            one("inner.payer", "missing")
        );
        let doubled = r#"{"amount":"1","inner":{"payer":"a","payer":"b"}}"#;
        assert_eq!(fault(doubled), one("inner.payer", "duplicate"));
        let wrong = r#"{"amount":"1","list":[{"payer":"a"},{"payer":"a","points":"x"}]}"#;
        assert_eq!(fault(wrong), one("list[1].points", "type"));
        let negative = r#"{"amount":"1","inner":{"payer":"a","points":-1}}"#;
        assert_eq!(fault(negative), one("inner.points", "value"));
        assert_eq!(fault(r#"["1", null, [], null]"#), one("", "type"));
        assert_eq!(fault("5"), one("", "type"));
    }

    #[test]
    fn says_what_is_wrong_without_the_names_of_our_types() {
        for body in [
            "5",
            "\"x\"",
            r#"{"amount":"1","inner":5}"#,
            r#"{"amount":"1","inner":{"payer":"a","points":"x"}}"#,
        ] {
            let problem = parse::<Outer>(body.as_bytes()).unwrap_err();
            let shown = format!("{:?}", problem.errors());
            for word in ["struct", "enum", "Outer", "Inner", "u32"] {
                assert!(!shown.contains(word), "{body}: {shown}");
            }
        }
    }

    #[test]
    fn names_the_field_that_is_no_word() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only read into")]
        struct Entry {
            sides: Vec<crate::domain::account::Side>,
        }
        assert!(parse::<Entry>(br#"{"sides":["debit"]}"#).is_ok());
        for wrong in ["null", "7", "\"up\"", "true", "[]", "{}"] {
            let body = format!(r#"{{"sides":["debit",{wrong}]}}"#);
            let problem = parse::<Entry>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.code(), Code::FieldsInvalid, "{wrong}");
            assert_eq!(problem.errors()[0].field, "sides[1]", "{wrong}");
        }
        let broken = parse::<Entry>(br#"{"sides":[null}"#).unwrap_err();
        assert_eq!(broken.code(), Code::BadJson);
    }

    #[test]
    fn an_object_is_not_read_from_a_list_nor_a_word_from_an_object() {
        #[derive(Debug, Deserialize)]
        #[expect(dead_code, reason = "only read into")]
        struct Body {
            side: crate::domain::account::Side,
            #[serde(default, deserialize_with = "object")]
            inner: Option<Inner>,
            #[serde(default, deserialize_with = "objects")]
            list: Vec<Inner>,
        }
        let fault = |body: &str| {
            let problem = parse::<Body>(body.as_bytes()).unwrap_err();
            assert_eq!(problem.code(), Code::FieldsInvalid, "{body}");
            problem.errors()[0].field.clone()
        };
        let good = r#"{"side":"debit","inner":{"payer":"a"},"list":[{"payer":"a"}]}"#;
        assert!(parse::<Body>(good.as_bytes()).is_ok());
        assert_eq!(fault(r#"{"side":{"debit":null}}"#), "side");
        assert_eq!(fault(r#"{"side":"debit","inner":["a",1]}"#), "inner");
        assert_eq!(fault(r#"{"side":"debit","list":[["a",1]]}"#), "list[0]");
        let unknown = r#"{"side":"debit","inner":{"payer":"a","x":1}}"#;
        assert_eq!(fault(unknown), "inner.x");
        let wrong = r#"{"side":"debit","list":[{"payer":1}]}"#;
        assert_eq!(fault(wrong), "list[0].payer");
    }

    #[test]
    fn names_every_unknown_field() {
        let body =
            r#"{"amount":"1","x":1,"inner":{"payer":"a","y":{}},"list":[{"payer":"a","z":0}]}"#;
        let (status, errors) = fault(body);
        assert_eq!(status, 422);
        let unknown = |field: &str| (field.to_owned(), "unknown");
        assert_eq!(
            errors,
            [unknown("x"), unknown("inner.y"), unknown("list[0].z")]
        );
    }

    #[test]
    fn what_is_not_json_is_another_matter() {
        for body in [
            "",
            "{",
            "{'a':1}",
            r#"{"amount":"1"} x"#,
            "{\"amount\":\"1\",}",
            "NaN",
        ] {
            assert_eq!(fault(body), (400, vec![]), "{body}");
        }
        let deep = format!(
            r#"{{"amount":"1","free":{}{}}}"#,
            "[".repeat(200),
            "]".repeat(200)
        );
        assert_eq!(fault(&deep).0, 400);
        let unknown = format!(
            r#"{{"amount":"1","else":{}{}}}"#,
            "[".repeat(9000),
            "]".repeat(9000)
        );
        assert_eq!(fault(&unknown).0, 422);
        let problem = parse::<Outer>(b"{\"amount\":\"\xff\"}").unwrap_err();
        assert_eq!(problem.code(), Code::BadUtf8);
    }

    #[tokio::test]
    async fn media_type_and_size() {
        let app = Router::new()
            .route("/", post(|StrictJson(_): StrictJson<Outer>| async {}))
            .layer(DefaultBodyLimit::max(64));
        let send = async |media: Option<&str>, body: String| {
            let mut request = Request::post("/");
            if let Some(media) = media {
                request = request.header(CONTENT_TYPE, media);
            }
            let request = request.body(Body::from(body)).unwrap();
            app.clone()
                .oneshot(request)
                .await
                .unwrap()
                .status()
                .as_u16()
        };
        let good = || r#"{"amount":"1"}"#.to_owned();
        for media in [
            "application/json",
            "application/json; charset=UTF-8",
            "application/x+json",
        ] {
            assert_eq!(send(Some(media), good()).await, 200, "{media}");
        }
        for media in [
            "text/plain",
            "application/json; charset=latin1",
            "application/jsonx",
            "",
        ] {
            assert_eq!(send(Some(media), good()).await, 415, "{media}");
        }
        assert_eq!(send(None, good()).await, 415);
        assert_eq!(send(Some("application/json"), "x".repeat(65)).await, 413);
    }
}
