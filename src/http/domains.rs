//! `/v1/broker/domain` and `/v1/admin/…/domain`: host names of brokers' own; `/v1/site`: what the
//! host of a request leads to.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::http::request::Parts;
use axum::http::uri::Authority;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::{Allowed, Public};
use super::json::StrictJson;
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{Principal, actions};
use crate::domain::host::HostName;
use crate::domain::ids::BrokerId;
use crate::route;
use crate::services::domains::{Domain, DomainError, Site};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(site))
        .with(route!(read))
        .with(route!(claim))
        .with(route!(release))
        .with(route!(admin_list))
        .with(route!(admin_activate))
        .with(route!(admin_release))
}

/// The host that a request names: in its address where it has one there, else in `Host`.
#[derive(Clone, Debug)]
struct Host(Option<HostName>);

impl<S: Send + Sync> axum::extract::FromRequestParts<S> for Host {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        host_of(parts).map(Self)
    }
}

/// # Errors
/// 400 for more than one `Host` (RFC 9112, section 3.2): what stands before us may go by another
/// one than we do.
fn host_of(parts: &Parts) -> Result<Option<HostName>, Problem> {
    let mut headers = parts.headers.get_all(HOST).iter();
    let header = headers.next().and_then(|host| host.to_str().ok());
    if headers.next().is_some() {
        return Err(Problem::new(Code::BadRequest).detail("more than one Host header"));
    }
    let named = parts.uri.authority().map(Authority::as_str);
    Ok(named.or(header).and_then(HostName::of_header))
}

/// Whether a caller may act where the request has come to: on a host of one broker's own, only
/// those of that broker may.
///
/// # Errors
/// 403 `wrong_site`; 400 for more than one `Host`; the master's.
pub(super) async fn check_site(
    state: &AppState,
    parts: &Parts,
    caller: &Principal,
) -> Result<(), Problem> {
    let Some(host) = host_of(parts)? else {
        return Ok(());
    };
    match state.app.domains.site(&host).await? {
        Some(site) if caller.broker_id() != Some(site.broker_id) => {
            Err(Problem::new(Code::WrongSite).detail(format!("{host} is another's.")))
        }
        Some(_) | None => Ok(()),
    }
}

#[derive(Serialize, utoipa::ToSchema)]
struct SiteView {
    /// Whose the host of the request is; null on the platform's own.
    #[schema(required)]
    broker: Option<SiteBrokerView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SiteBrokerView {
    id: BrokerId,
    name: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct DomainView {
    broker_id: BrokerId,
    #[schema(example = "desk.example")]
    host: String,
    /// `claimed`: it leads nowhere yet; `active`
    state: &'static str,
    /// What the owner of the name publishes as a TXT record of `_settlenet.` and the host.
    proof: String,
    claimed_at: DateTime<Utc>,
    #[schema(required)]
    activated_at: Option<DateTime<Utc>>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct HostBody {
    /// A full host name without a port; other scripts as punycode. Upper case is taken as lower.
    #[schema(example = "desk.example")]
    host: String,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Only those that are active, or only those that are not.
    active: Option<bool>,
}

/// Whose dashboard belongs on the host that the request names.
#[utoipa::path(get, path = "/v1/site", tag = "auth", operation_id = "site",
    responses((status = 200, body = SiteView)))]
async fn site(
    _: Public,
    State(state): State<AppState>,
    Host(host): Host,
) -> Result<Json<SiteView>, Problem> {
    let site = match host {
        Some(host) => state.app.domains.site(&host).await?,
        None => None,
    };
    let broker = site.map(
        |Site {
             broker_id, name, ..
         }| SiteBrokerView {
            id: broker_id,
            name,
        },
    );
    Ok(Json(SiteView { broker }))
}

/// Read the host name that one has claimed.
#[utoipa::path(get, path = "/v1/broker/domain", tag = "book", operation_id = "domain_read",
    responses((status = 200, body = DomainView)))]
async fn read(
    me: Allowed<actions::DomainRead>,
    State(state): State<AppState>,
) -> Result<Json<DomainView>, Problem> {
    let domain = state.app.domains.of_broker(me.seat.broker_id).await?;
    Ok(Json(domain.into()))
}

/// Claim a host name for one's dashboard (plan `pro`), in the place of the one before.
///
/// Publish `proof` as a TXT record of `_settlenet.` and the host; the platform looks there and
/// makes the name active. Until then it leads nowhere.
#[utoipa::path(put, path = "/v1/broker/domain", tag = "book", operation_id = "domain_claim",
    request_body = HostBody, responses((status = 200, body = DomainView)))]
async fn claim(
    me: Allowed<actions::DomainManage>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<HostBody>,
) -> Result<Json<DomainView>, Problem> {
    let domains = state.app.domains.clone();
    let work = async move { domains.claim(me.seat.broker_id, &body.host).await };
    Ok(Json(state.lifecycle.detached(work).await??.into()))
}

/// Give up one's host name: it leads nowhere within seconds.
#[utoipa::path(delete, path = "/v1/broker/domain", tag = "book", operation_id = "domain_release",
    responses((status = 204)))]
async fn release(
    me: Allowed<actions::DomainManage>,
    State(state): State<AppState>,
) -> Result<StatusCode, Problem> {
    give_up(&state, me.seat.broker_id).await
}

/// List host names that brokers have claimed, newest first.
#[utoipa::path(get, path = "/v1/admin/domains", tag = "admin", operation_id = "admin_domain_list",
    params(ListQuery), responses((status = 200, body = Page<DomainView>)))]
async fn admin_list(
    _me: Allowed<actions::AdminDomainList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<DomainView>>, Problem> {
    let page = PageRequest::<Place>::read("domains", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let domains = &state.app.domains;
    let found = domains.list(query.active, after, page.fetch()).await?;
    let place = |domain: &Domain| (domain.claimed_at.into(), domain.broker_id);
    Ok(Json(page.page(found, place, DomainView::from)))
}

/// Make a broker's host name active, once its `proof` was found published.
///
/// `host` is the name that was looked at: where the broker has claimed another one meanwhile,
/// nothing happens.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/domain/activate", tag = "admin",
    operation_id = "admin_domain_activate", params(("id" = u64, Path)), request_body = HostBody,
    responses((status = 200, body = DomainView)))]
async fn admin_activate(
    me: Allowed<actions::AdminDomainManage>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
    StrictJson(body): StrictJson<HostBody>,
) -> Result<Json<DomainView>, Problem> {
    let domains = state.app.domains.clone();
    let work = async move { domains.activate(id, &body.host, me.principal.sub()).await };
    Ok(Json(state.lifecycle.detached(work).await??.into()))
}

/// Take a broker's host name away: it leads nowhere within seconds.
#[utoipa::path(delete, path = "/v1/admin/brokers/{id}/domain", tag = "admin",
    operation_id = "admin_domain_release", params(("id" = u64, Path)),
    responses((status = 204)))]
async fn admin_release(
    _me: Allowed<actions::AdminDomainManage>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
) -> Result<StatusCode, Problem> {
    give_up(&state, id).await
}

async fn give_up(state: &AppState, id: BrokerId) -> Result<StatusCode, Problem> {
    let domains = state.app.domains.clone();
    state
        .lifecycle
        .detached(async move { domains.release(id).await })
        .await??;
    Ok(StatusCode::NO_CONTENT)
}

impl From<Domain> for DomainView {
    fn from(domain: Domain) -> Self {
        let active = domain.activated_at.is_some();
        Self {
            broker_id: domain.broker_id,
            host: domain.host,
            state: if active { "active" } else { "claimed" },
            proof: domain.proof,
            claimed_at: domain.claimed_at,
            activated_at: domain.activated_at,
        }
    }
}

impl From<DomainError> for Problem {
    fn from(error: DomainError) -> Self {
        let detail = error.to_string();
        match error {
            DomainError::Host(_) => Self::invalid("host", detail),
            DomainError::Plan(reached) => reached.into(),
            DomainError::Hindered(hindrance) => hindrance.into(),
            DomainError::Taken { .. } => Self::new(Code::HostTaken).detail(detail),
            DomainError::NotClaimed { .. } => Self::new(Code::Conflict).detail(detail),
            DomainError::NotFound => Self::new(Code::NotFound),
            DomainError::Store(error) => error.into(),
            DomainError::Randomness => Self::internal(&error),
        }
    }
}
