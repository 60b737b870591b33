//! `/v1/psp/{name}/callbacks`: what payment providers send of themselves.

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::HeaderMap;
use serde::Serialize;
use uuid::Uuid;

use super::guard::Public;
use super::json::{field_error, plain};
use super::params::PathOf;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::{AppState, ClientAddr};
use crate::domain::payment::PspName;
use crate::domain::payment::incoming::IncomingStatus;

use crate::route;
use crate::services::payments::{CallbackError, WordError};

/// A callback is small.
const MAX_BODY: usize = 64 * 1024;

pub fn routes() -> Routes {
    Routes::new().with(route!(take))
}

#[derive(Serialize, utoipa::ToSchema)]
struct TakenView {
    /// Our name for the payment.
    id: Uuid,
    /// `waiting`, `credited`, `suspense`, `unknown`, `assigned`
    #[schema(value_type = String)]
    status: IncomingStatus,
}

/// Take a provider's word that somebody has paid.
///
/// Signed by the provider: `x-qp-timestamp` and `x-qp-signature`. It moves no money by itself: the
/// provider is asked about the top-up, and that credits it. The same word again changes nothing;
/// what is paid twice, late, or under a reference of nobody waits for a person.
#[utoipa::path(post, path = "/v1/psp/{name}/callbacks", tag = "service", operation_id = "psp_callback",
    params(("name" = String, Path, description = "In lower case: `qp`.")),
    request_body(content = Vec<u8>, content_type = "application/json"),
    responses((status = 200, body = TakenView)))]
async fn take(
    _: Public,
    State(state): State<AppState>,
    ClientAddr(address): ClientAddr,
    PathOf(name): PathOf<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<TakenView>, Problem> {
    let psp = PspName::ALL.iter().find(|psp| psp.nostro() == name);
    let psp = *psp.ok_or_else(|| Problem::new(Code::NotFound))?;
    if body.len() > MAX_BODY {
        let detail = format!("A callback has at most {MAX_BODY} bytes.");
        return Err(Problem::new(Code::TooLarge).detail(detail));
    }
    let payments = state.app.payments.clone();
    let here = state.clone();
    let work = async move {
        let taken = payments.callback(psp, &headers, &body).await;
        let Err(WordError::Refused(error)) = &taken else {
            return taken.map_err(Problem::from);
        };
        // Anybody can send one, so what is not the provider's is kept within bounds.
        if let Err(wait) = here.callback_rate.check(address) {
            return Err(Problem::new(Code::TooManyRequests).retry_after(wait.as_secs() + 1));
        }
        payments.keep_refused(psp, error, &body).await?;
        taken.map_err(Problem::from)
    };
    let taken = state.lifecycle.detached(work).await??;
    Ok(Json(TakenView {
        id: taken.id,
        status: taken.status,
    }))
}

impl From<WordError> for Problem {
    fn from(error: WordError) -> Self {
        let detail = error.to_string();
        match error {
            WordError::NoSuchProvider => Self::new(Code::NotFound).detail(detail),
            WordError::Refused(CallbackError::Body { at, source }) => {
                Self::fields(vec![field_error(&at, &plain(&source))])
            }
            WordError::Refused(_) => Self::new(Code::CallbackRefused).detail(detail),
            WordError::NotUnderstood { field, what } => Self::invalid(field, what),
            WordError::Contradicts(_) => Self::new(Code::Conflict).detail(detail),
            WordError::Payment(error) => error.into(),
        }
    }
}
