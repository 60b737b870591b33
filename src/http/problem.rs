//! Errors as RFC 9457 problems. This is the only place where an error becomes an answer.

use std::error::Error;

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::json;

use crate::runtime::BrokeOff;
use crate::services::StoreError;

/// All codes that a problem can have, with status and title: stable, so that programs rely on
/// them. A new one is a line here.
macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:ident, $title:literal;)+) => {
        /// What kind of problem it is.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Code { $($(#[$doc])* $variant),+ }

        impl Code {
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            #[must_use]
            pub const fn status(self) -> StatusCode {
                match self { $(Self::$variant => StatusCode::$status),+ }
            }

            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$variant => $title),+ }
            }
        }
    };
}

codes! {
    BadRequest = "bad_request", BAD_REQUEST, "The request can't be understood";
    BadJson = "bad_json", BAD_REQUEST, "The body is not JSON";
    BadUtf8 = "bad_utf8", BAD_REQUEST, "The body is not UTF-8";
    KeyMissing = "idempotency_key_missing", BAD_REQUEST, "An Idempotency-Key is needed";
    KeyInvalid = "idempotency_key_invalid", BAD_REQUEST, "The Idempotency-Key is not one";
    TokenMissing = "token_missing", UNAUTHORIZED, "An access token is needed";
    TokenInvalid = "token_invalid", UNAUTHORIZED, "The access token is not valid";
    TokenExpired = "token_expired", UNAUTHORIZED, "The access token has expired";
    CallerDisabled = "caller_disabled", UNAUTHORIZED, "The caller's account is not active any more";
    CredentialsInvalid = "credentials_invalid", UNAUTHORIZED, "The credentials are not valid";
    RoleForbidden = "role_forbidden", FORBIDDEN, "The caller's role may not do this";
    ScopeMissing = "scope_missing", FORBIDDEN, "The token lacks a scope";
    NotFound = "not_found", NOT_FOUND, "There is no such thing";
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED, "This can't be done here";
    Conflict = "conflict", CONFLICT, "The state of things doesn't allow this";
    NothingToNet = "nothing_to_net", CONFLICT, "There is nothing to net";
    TooFewBrokers = "too_few_brokers", CONFLICT, "Too few brokers are active";
    RoundOpen = "round_open", CONFLICT, "A round is open in this currency";
    TooMuch = "too_much", CONFLICT, "There is too much for one answer";
    Contended = "contended", CONFLICT, "Another request is doing this";
    NotLogged = "not_logged", CONFLICT, "The last checkpoint does not have it yet";
    WrongStatus = "wrong_status", CONFLICT, "The request is in another state";
    AlreadyTaken = "already_taken", CONFLICT, "The broadcast is not open any more";
    ProofWithdrawn = "proof_withdrawn", CONFLICT, "The proof was taken back";
    TooOften = "too_often", CONFLICT, "This was done too often";
    Paused = "paused", CONFLICT, "It is paused, and nothing new starts";
    BrokerNotActive = "broker_not_active", CONFLICT, "The broker starts nothing new";
    DeadlinePassed = "deadline_passed", CONFLICT, "The deadline has passed";
    BooksRefused = "books_refused", CONFLICT, "A book refused it, and nothing was changed";
    DisputeDecided = "dispute_decided", CONFLICT, "The dispute is decided";
    DebtShort = "debt_short", CONFLICT, "Too little of the debt is left to settle";
    CreditShort = "credit_short", CONFLICT, "The credit line has too little room";
    PickupRefused = "pickup_refused", UNPROCESSABLE_ENTITY, "It is another pickup code";
    NotYourMove = "not_your_move", FORBIDDEN, "This is the other side's to do";
    PlanLimit = "plan_limit", FORBIDDEN, "The broker's plan has no room for one more";
    PlanTooSmall = "plan_too_small", CONFLICT, "The broker has more than the plan allows";
    SignupClosed = "signup_closed", FORBIDDEN, "The network takes nobody by themselves";
    NotInvited = "not_invited", FORBIDDEN, "The invitation can't be used";
    CallbackRefused = "callback_refused", UNAUTHORIZED, "The callback is not the provider's";
    WrongSite = "wrong_site", FORBIDDEN, "The host is another broker's own";
    PartnerKnown = "partner_known", CONFLICT, "The broker is a partner already";
    HostTaken = "host_taken", CONFLICT, "The host name is another broker's";
    NameTaken = "name_taken", CONFLICT, "The name is taken";
    NoRoom = "no_room", CONFLICT, "No place with room takes what is new";
    LoginTaken = "login_taken", CONFLICT, "The login is taken";
    OwnAccount = "own_account", CONFLICT, "Nobody disables their own account";
    TooLarge = "too_large", PAYLOAD_TOO_LARGE, "The body is too large";
    MediaType = "media_type", UNSUPPORTED_MEDIA_TYPE, "The body is of another media type";
    FieldsInvalid = "fields_invalid", UNPROCESSABLE_ENTITY, "Some fields are not valid";
    KeyReused = "idempotency_key_reused", UNPROCESSABLE_ENTITY,
        "The Idempotency-Key was used for another request";
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS, "Too many requests";
    TooManyAttempts = "too_many_attempts", TOO_MANY_REQUESTS, "Too many attempts to log in";
    Internal = "internal", INTERNAL_SERVER_ERROR, "Something is wrong on our side";
    Unavailable = "unavailable", SERVICE_UNAVAILABLE, "A part of the service can't be reached";
    NotReady = "not_ready", SERVICE_UNAVAILABLE, "The service is not ready";
    TimedOut = "timed_out", GATEWAY_TIMEOUT, "The answer took too long";
}

impl Code {
    /// The code of a bare status, for answers that were not made here.
    #[must_use]
    pub fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::UNAUTHORIZED => Self::TokenInvalid,
            StatusCode::FORBIDDEN => Self::RoleForbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::MediaType,
            StatusCode::UNPROCESSABLE_ENTITY => Self::FieldsInvalid,
            StatusCode::TOO_MANY_REQUESTS => Self::TooManyRequests,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => Self::TimedOut,
            other if other.is_client_error() => Self::BadRequest,
            _ => Self::Internal,
        }
    }
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct FieldError {
    /// Path in the body (`terms.commission.payer`, `proof[0].type`), or the parameter's name.
    pub field: String,
    /// `unknown`, `missing`, `type`, `value`, `duplicate`; or one of the route's own.
    pub code: &'static str,
    /// For people.
    pub detail: String,
}

impl FieldError {
    pub fn new(field: impl Into<String>, code: &'static str, detail: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            code,
            detail: detail.into(),
        }
    }

    /// A value that isn't allowed.
    pub fn value(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(field, "value", detail)
    }
}

/// An error as the caller sees it.
#[derive(Clone, Debug)]
pub struct Problem {
    code: Code,
    detail: Option<String>,
    errors: Vec<FieldError>,
    retry_after: Option<u64>,
    extensions: serde_json::Map<String, serde_json::Value>,
}

/// How a problem looks on the wire (`application/problem+json`, RFC 9457).
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub struct ProblemBody {
    /// `urn:settlenet:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: &'static str,
    /// The HTTP status.
    pub status: u16,
    /// Stable; what programs decide by.
    pub code: &'static str,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The fields it is about.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldError>,
    /// Where a status is in the way, a request's, a netting proposal's or a round's: the present one.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "accepted")]
    pub request_status: Option<serde_json::Value>,
    /// Where a book refused: `code` and, for a request, `book`; with amounts and the account where
    /// it is the caller's own book.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({ "book": "1", "code": "insufficient_funds" }))]
    pub reason: Option<serde_json::Value>,
    /// Where there is too little: what there is, a decimal string in major units.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, example = "3000.00")]
    pub available: Option<serde_json::Value>,
    /// What is paused (`scope`, with `broker_id` or `currency_code`), why and since when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>, example = json!({ "scope": "network", "reason": "maintenance", "since": "2026-01-01T10:00:00Z" }))]
    pub paused: Option<serde_json::Value>,
    #[serde(flatten)]
    #[schema(ignore)]
    pub extensions: serde_json::Map<String, serde_json::Value>,
}

impl Problem {
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self {
            code,
            detail: None,
            errors: Vec::new(),
            retry_after: None,
            extensions: serde_json::Map::new(),
        }
    }

    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = Some(detail.into());
        self
    }

    /// One more field that it is about.
    #[must_use]
    pub fn field(mut self, error: FieldError) -> Self {
        self.errors.push(error);
        self
    }

    /// Fields that are not valid: a 422.
    #[must_use]
    pub fn fields(errors: Vec<FieldError>) -> Self {
        Self {
            errors,
            ..Self::new(Code::FieldsInvalid)
        }
    }

    /// One field that is not valid: a 422.
    #[must_use]
    pub fn invalid(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::fields(vec![FieldError::value(field, detail)])
    }

    /// Another member of the problem, such as the present status of a request. The name has
    /// three or more letters, digits or `_`.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<serde_json::Value>) -> Self {
        self.extensions.insert(name.to_owned(), value.into());
        self
    }

    /// When trying again may help, in seconds.
    #[must_use]
    pub const fn retry_after(mut self, seconds: u64) -> Self {
        self.retry_after = Some(seconds);
        self
    }

    /// With a field under the name that it has where the caller is.
    #[must_use]
    pub fn renamed(mut self, from: &str, to: &str) -> Self {
        for error in self.errors.iter_mut().filter(|error| error.field == from) {
            to.clone_into(&mut error.field);
        }
        self
    }

    /// A fault of ours: its causes go into the log, with the request's id, and not to the caller.
    pub fn internal(error: &(dyn Error + 'static)) -> Self {
        tracing::error!(error = %causes(error), "a request failed");
        Self::new(Code::Internal).detail("The request's id is in the answer's x-request-id.")
    }

    #[must_use]
    pub const fn code(&self) -> Code {
        self.code
    }

    #[must_use]
    pub fn errors(&self) -> &[FieldError] {
        &self.errors
    }
}

/// An error and what caused it, in one line.
fn causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.code.status();
        let mut extensions = self.extensions;
        let body = ProblemBody {
            kind: format!("urn:settlenet:problem:{}", self.code.as_str()),
            title: self.code.title(),
            status: status.as_u16(),
            code: self.code.as_str(),
            detail: self.detail,
            errors: self.errors,
            request_status: extensions.remove("request_status"),
            reason: extensions.remove("reason"),
            available: extensions.remove("available"),
            paused: extensions.remove("paused"),
            extensions,
        };
        let mut response = (status, json!(body).to_string()).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, PROBLEM_JSON);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, challenge(self.code));
        }
        response
    }
}

pub const PROBLEM_JSON: HeaderValue = HeaderValue::from_static("application/problem+json");

/// RFC 6750, 3: no error code where there was no token.
const fn challenge(code: Code) -> HeaderValue {
    match code {
        Code::TokenInvalid | Code::TokenExpired => {
            HeaderValue::from_static(r#"Bearer realm="settlenet", error="invalid_token""#)
        }
        _ => HeaderValue::from_static(r#"Bearer realm="settlenet""#),
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Unavailable { .. }
            | StoreError::Outdated { .. }
            | StoreError::Moving { .. } => {
                tracing::warn!(error = %causes(&error), "a database can't be used now");
                Self::new(Code::Unavailable).retry_after(1)
            }
            StoreError::Busy { .. } => Self::new(Code::Contended).retry_after(1),
            StoreError::NoBook { .. }
            | StoreError::UnknownServer { .. }
            | StoreError::Corrupt { .. }
            | StoreError::Database { .. } => Self::internal(&error),
        }
    }
}

impl From<BrokeOff> for Problem {
    fn from(error: BrokeOff) -> Self {
        Self::internal(&error)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_are_unique_and_name_their_status() {
        let mut seen = BTreeSet::new();
        for code in Code::ALL {
            assert!(seen.insert(code.as_str()));
            assert!(code.status().is_client_error() || code.status().is_server_error());
            // What a bare status becomes keeps that status.
            assert_eq!(Code::of_status(code.status()).status(), code.status());
        }
    }

    #[tokio::test]
    async fn looks_as_rfc_9457_says() {
        let problem = Problem::invalid("amount", "must be positive")
            .with("present_status", "sent")
            .retry_after(3);
        let response = problem.into_response();
        assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
        assert_eq!(response.headers()[RETRY_AFTER], "3");
        let body = axum::body::to_bytes(response.into_body(), 4096)
            .await
            .unwrap();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(
            body,
            json!({
                "type": "urn:settlenet:problem:fields_invalid",
                "title": "Some fields are not valid",
                "status": 422,
                "code": "fields_invalid",
                "errors": [{"field": "amount", "code": "value", "detail": "must be positive"}],
                "present_status": "sent",
            })
        );
    }
}
