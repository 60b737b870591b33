//! Routes with who may call them: what is served, documented and tested comes from one list.

use axum::handler::Handler;
use utoipa::openapi::path::Operation;
use utoipa::openapi::{ContentBuilder, Ref, RefOr, ResponseBuilder, SecurityRequirement};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use super::guard::{Access, Guarded};
use super::state::AppState;

/// A route and who gets through to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteInfo {
    pub method: &'static str,
    /// With parameters in braces.
    pub path: String,
    pub access: Access,
}

/// The routes of one resource, or of all of them.
#[derive(Default)]
pub struct Routes {
    router: OpenApiRouter<AppState>,
    registry: Vec<RouteInfo>,
}

/// One handler with its documentation and guard, as [`Routes::with`] takes it.
#[macro_export]
macro_rules! route {
    ($handler:ident) => {
        (
            utoipa_axum::routes!($handler),
            $crate::http::routes::access_of(&$handler),
        )
    };
}

/// Who may call a handler: read off its signature, so that it can't be said differently here.
pub fn access_of<H, T>(_: &H) -> Access
where
    H: Handler<T, AppState>,
    T: Guarded,
{
    T::ACCESS
}

impl Routes {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds what [`route!`](crate::route) made of a handler.
    #[must_use]
    pub fn with(self, route: (UtoipaMethodRouter<AppState>, Access)) -> Self {
        self.with_layered(route, |router| router)
    }

    /// The same with layers around the handler, such as a larger body limit.
    #[must_use]
    pub fn with_layered(
        mut self,
        ((schemas, mut paths, router), access): (UtoipaMethodRouter<AppState>, Access),
        layers: impl FnOnce(
            axum::routing::MethodRouter<AppState>,
        ) -> axum::routing::MethodRouter<AppState>,
    ) -> Self {
        for (path, item) in &mut paths.paths {
            let operations = [
                ("GET", &mut item.get),
                ("POST", &mut item.post),
                ("PUT", &mut item.put),
                ("PATCH", &mut item.patch),
                ("DELETE", &mut item.delete),
            ];
            for (method, operation) in operations {
                if let Some(operation) = operation {
                    document(operation, access);
                    self.registry.push(RouteInfo {
                        method,
                        path: path.clone(),
                        access,
                    });
                }
            }
        }
        self.router = self.router.routes((schemas, paths, layers(router)));
        self
    }

    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.router = self.router.merge(other.router);
        self.registry.extend(other.registry);
        self
    }

    /// Every route and who gets through to it.
    #[must_use]
    pub fn registry(&self) -> &[RouteInfo] {
        &self.registry
    }

    pub(super) fn into_router(self) -> OpenApiRouter<AppState> {
        self.router
    }
}

/// What every operation has in common.
fn document(operation: &mut Operation, access: Access) {
    match access {
        Access::Public => operation.security = Some(Vec::new()),
        Access::Only(action) => {
            let scope = action.scope();
            operation.security = Some(vec![SecurityRequirement::new("bearer", [scope.as_str()])]);
            let needs = format!("Needs the scope `{scope}` and a role that may do `{action}`.");
            operation.description = Some(match operation.description.take() {
                Some(description) => format!("{description}\n\n{needs}"),
                None => needs,
            });
        }
    }
    let problem = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name("Problem")))
        .build();
    let response = ResponseBuilder::new()
        .description("A problem (RFC 9457)")
        .content("application/problem+json", problem)
        .build();
    operation
        .responses
        .responses
        .entry("default".to_owned())
        .or_insert_with(|| RefOr::T(response));
}
