//! Who may call a handler, said in its signature. A handler's first parameter is a [`Guard`]:
//! [`Allowed`] with its action, or [`Public`]. Without one it can't be made into a route:
//!
//! ```compile_fail
//! #[utoipa::path(get, path = "/open")]
//! async fn open() {}
//!
//! let routes = settlenet::http::routes::Routes::new().with(settlenet::route!(open));
//! ```
//!
//! ```
//! #[utoipa::path(get, path = "/open")]
//! async fn open(_: settlenet::http::guard::Public) {}
//!
//! let routes = settlenet::http::routes::Routes::new().with(settlenet::route!(open));
//! ```

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::http::request::Parts;

use super::domains::check_site;
use super::problem::{Code, Problem};
use super::state::AppState;
use crate::domain::access::{Action, Permission, Principal, Refusal, Seat};
use crate::services::auth::TokenError;

/// A caller who may do `A`, and the seat from which it is done: 401 without a valid token or an
/// account that still stands where `A` asks for it, 403 where role or scopes don't do, or where the
/// host of the request is another broker's own.
#[derive(Clone, Debug)]
pub struct Allowed<A: Permission> {
    pub principal: Principal,
    /// For a broker's action the broker, which the caller can't choose.
    pub seat: A::Seat,
}

impl<A: Permission> FromRequestParts<AppState> for Allowed<A> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let token = bearer(&parts.headers)?;
        let principal = state.auth.authenticate(token).await?;
        let span = tracing::Span::current();
        span.record("sub", principal.sub());
        span.record("broker_id", principal.broker_id());
        check_site(state, parts, &principal).await?;
        principal.authorize(A::ACTION)?;
        if A::ACTION.asks_standing() && !state.auth.still_stands(&principal).await? {
            return Err(Problem::new(Code::CallerDisabled));
        }
        let seat = A::Seat::of(&principal).ok_or_else(|| Problem::new(Code::RoleForbidden))?;
        Ok(Self { principal, seat })
    }
}

/// Anybody: for what is open to the world.
#[derive(Clone, Copy, Debug)]
pub struct Public;

impl<S: Send + Sync> FromRequestParts<S> for Public {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(_: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self)
    }
}

/// Who gets through to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Public,
    /// Who has this action in the authorization table.
    Only(Action),
}

/// What may stand first in a handler's signature.
pub trait Guard {
    const ACCESS: Access;
}

impl<A: Permission> Guard for Allowed<A> {
    const ACCESS: Access = Access::Only(A::ACTION);
}

impl Guard for Public {
    const ACCESS: Access = Access::Public;
}

/// The parameters of a handler that has a guard, as axum's `Handler` lists them.
#[diagnostic::on_unimplemented(
    message = "the handler's first parameter must be `Allowed<actions::…>` or `Public`"
)]
pub trait Guarded {
    const ACCESS: Access;
}

macro_rules! guarded {
    ($($rest:ident),*) => {
        impl<M, G: Guard, $($rest),*> Guarded for (M, G, $($rest,)*) {
            const ACCESS: Access = G::ACCESS;
        }
    };
}

guarded!();
guarded!(T2);
guarded!(T2, T3);
guarded!(T2, T3, T4);
guarded!(T2, T3, T4, T5);
guarded!(T2, T3, T4, T5, T6);
guarded!(T2, T3, T4, T5, T6, T7);
guarded!(T2, T3, T4, T5, T6, T7, T8);

fn bearer(headers: &HeaderMap) -> Result<&str, Problem> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values
        .next()
        .ok_or_else(|| Problem::new(Code::TokenMissing))?;
    if values.next().is_some() {
        return Err(Problem::new(Code::TokenInvalid).detail("There is more than one token."));
    }
    value
        .to_str()
        .ok()
        .and_then(|value| value.split_once(' '))
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
        .map(|(_, token)| token.trim())
        .ok_or_else(|| Problem::new(Code::TokenInvalid).detail("Authorization: Bearer <token>"))
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        let code = match error {
            TokenError::Expired => Code::TokenExpired,
            TokenError::Malformed
            | TokenError::Algorithm
            | TokenError::UnknownKey
            | TokenError::Signature
            | TokenError::Issuer
            | TokenError::Audience
            | TokenError::Claims => Code::TokenInvalid,
        };
        Self::new(code).detail(error.to_string())
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let code = match refusal {
            Refusal::Role { .. } => Code::RoleForbidden,
            Refusal::Scope(_) => Code::ScopeMissing,
        };
        Self::new(code).detail(refusal.to_string())
    }
}
