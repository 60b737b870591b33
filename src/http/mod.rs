//! REST: one file per resource, each with its handlers, their types and their documentation.
//!
//! To add a resource: a file with `pub fn routes() -> Routes`, each handler's first parameter
//! an [`guard::Allowed`] of its action (a new action is a line in `domain::access` and a row of
//! the table), and a line in [`routes`] here.

mod accounts;
mod arbiters;
mod auth;
mod brokers;
mod bundles;
mod callbacks;
mod chain;
mod checkpoints;
mod credit_lines;
mod disputes;
mod domains;
pub mod guard;
mod health;
mod hearing;
pub mod idempotency;
mod incoming;
mod invites;
pub mod json;
mod layers;
mod money;
mod moves;
mod netting;
mod obligations;
mod offboarding;
mod orders;
pub mod paging;
pub mod params;
mod partners;
mod pauses;
mod payments;
mod plans;
pub mod problem;
mod qr;
mod rate;
mod reconcile;
mod requests;
mod reviews;
pub mod routes;
mod sagas;
mod serve;
mod servers;
mod signup;
mod state;
mod statements;
mod swaps;
mod team;
mod uploads;
mod wallets;

use axum::Router;
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_swagger_ui::SwaggerUi;

pub use health::{ReadyCheck, recorder};
pub use rate::{RateLimited, TokenRate};
pub use serve::serve;
pub use state::{AppState, ClientAddr, HttpConfig, Services};

use self::problem::{Code, FieldError, Problem, ProblemBody};
use self::routes::Routes;

/// All routes.
#[must_use]
pub fn routes() -> Routes {
    Routes::new()
        .merge(health::routes())
        .merge(auth::routes())
        .merge(signup::routes())
        .merge(team::routes())
        .merge(requests::routes())
        .merge(orders::routes())
        .merge(disputes::routes())
        .merge(arbiters::routes())
        .merge(bundles::routes())
        .merge(hearing::routes())
        .merge(checkpoints::routes())
        .merge(uploads::routes())
        .merge(obligations::routes())
        .merge(netting::routes())
        .merge(credit_lines::routes())
        .merge(wallets::routes())
        .merge(payments::routes())
        .merge(reviews::routes())
        .merge(incoming::routes())
        .merge(callbacks::routes())
        .merge(accounts::routes())
        .merge(statements::routes())
        .merge(swaps::routes())
        .merge(partners::routes())
        .merge(chain::routes())
        .merge(brokers::routes())
        .merge(plans::routes())
        .merge(domains::routes())
        .merge(invites::routes())
        .merge(servers::routes())
        .merge(pauses::routes())
        .merge(offboarding::routes())
        .merge(moves::routes())
        .merge(sagas::routes())
        .merge(reconcile::routes())
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "settlenet",
        description = "A network of brokers that settle with each other. Errors are RFC 9457 \
            problems with a stable `code`; lists are newest first, a page at a time; unknown \
            fields are refused; times are RFC 3339 UTC."
    ),
    components(schemas(ProblemBody, FieldError))
)]
struct Document;

/// The API's description (`OpenAPI` 3.1).
#[must_use]
pub fn openapi() -> utoipa::openapi::OpenApi {
    described(routes()).1
}

fn described(all: Routes) -> (Router<AppState>, utoipa::openapi::OpenApi) {
    let (router, paths) = all.into_router().split_for_parts();
    let mut document = Document::openapi();
    document.merge(paths);
    // Taken from the package, which has none: better no licence than an empty one.
    document.info.license = None;
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .build();
    document
        .components
        .get_or_insert_default()
        .add_security_scheme("bearer", SecurityScheme::Http(bearer));
    (router, document)
}

/// The whole application: routes, documentation, and the layers around them.
pub fn app(state: AppState) -> Router {
    // Before the first request, or what is measured until then is lost.
    let _ = recorder();
    let (router, document) = described(routes());
    let router = router
        .merge(SwaggerUi::new("/docs").url("/openapi.json", document))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_this_method);
    layers::around(
        router,
        &state.config,
        state.clock.clone(),
        state.entropy.clone(),
    )
    .with_state(state)
}

async fn nothing_here() -> Problem {
    Problem::new(Code::NotFound).detail("There is no such route; /docs lists them.")
}

async fn not_this_method() -> Problem {
    Problem::new(Code::MethodNotAllowed)
}
