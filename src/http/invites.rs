//! `/v1/invites` and `/v1/admin/invites`: invitations to join the network.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, InviteId};
use crate::domain::invite::{DEFAULT_DAYS, Terms, TermsError};
use crate::route;
use crate::services::Intention;
use crate::services::invites::{Invite, InviteError, Whose};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(create))
        .with(route!(revoke))
        .with(route!(admin_list))
        .with(route!(admin_create))
        .with(route!(admin_revoke))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct InviteView {
    #[schema(value_type = String, example = "IV-0000000a5bb4")]
    id: InviteId,
    /// Who invites, and will have referred whoever comes by it; null: the platform.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    #[schema(required)]
    note: Option<String>,
    /// Brokers that may come by it.
    max_uses: u32,
    /// Brokers that have.
    uses: u32,
    expires_at: DateTime<Utc>,
    #[schema(required)]
    revoked_at: Option<DateTime<Utc>>,
    created_by: String,
    created_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreatedInvite {
    invite: InviteView,
    /// What whoever is invited signs up with. Shown this once, and null when the request is
    /// repeated: only its digest is kept.
    #[schema(required)]
    code: Option<String>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// Brokers that may come by it, 1 to 1000; 1 where it isn't there.
    max_uses: Option<u32>,
    /// Days that it lives, 1 to 365; 30 where it isn't there.
    expires_in_days: Option<u32>,
    /// For whom it is, in one line of at most 120 characters.
    note: Option<String>,
}

/// List one's own invitations.
#[utoipa::path(get, path = "/v1/invites", tag = "team", operation_id = "invite_list",
    params(ListQuery), responses((status = 200, body = Page<InviteView>)))]
async fn list(
    me: Allowed<actions::InviteList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<InviteView>>, Problem> {
    page(&state, "invites", Whose::Broker(me.seat.broker_id), &query).await
}

/// Invite somebody to become a broker of the network.
///
/// Whoever signs up with its code has this broker as the one that has referred them.
#[utoipa::path(post, path = "/v1/invites", tag = "team", operation_id = "invite_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = CreatedInvite)))]
async fn create(
    me: Allowed<actions::InviteManage>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<Response, Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let broker = Some(me.seat.broker_id);
    make(&state, broker, me.principal.sub(), body, intention).await
}

/// Revoke one of one's invitations: its code is worth nothing any more.
#[utoipa::path(post, path = "/v1/invites/{id}/revoke", tag = "team", operation_id = "invite_revoke",
    params(("id" = String, Path)), responses((status = 200, body = InviteView)))]
async fn revoke(
    me: Allowed<actions::InviteManage>,
    State(state): State<AppState>,
    PathOf(id): PathOf<InviteId>,
) -> Result<Json<InviteView>, Problem> {
    end(&state, Whose::Broker(me.seat.broker_id), id).await
}

/// List all invitations, the platform's and the brokers'.
#[utoipa::path(get, path = "/v1/admin/invites", tag = "admin", operation_id = "admin_invite_list",
    params(ListQuery), responses((status = 200, body = Page<InviteView>)))]
async fn admin_list(
    _me: Allowed<actions::AdminInviteList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<InviteView>>, Problem> {
    page(&state, "admin.invites", Whose::All, &query).await
}

/// Invite somebody to become a broker of the network, for the platform.
#[utoipa::path(post, path = "/v1/admin/invites", tag = "admin", operation_id = "admin_invite_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = CreatedInvite)))]
async fn admin_create(
    me: Allowed<actions::AdminInviteManage>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<Response, Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    make(&state, None, me.principal.sub(), body, intention).await
}

/// Revoke an invitation, whoever made it.
#[utoipa::path(post, path = "/v1/admin/invites/{id}/revoke", tag = "admin",
    operation_id = "admin_invite_revoke", params(("id" = String, Path)),
    responses((status = 200, body = InviteView)))]
async fn admin_revoke(
    _me: Allowed<actions::AdminInviteManage>,
    State(state): State<AppState>,
    PathOf(id): PathOf<InviteId>,
) -> Result<Json<InviteView>, Problem> {
    end(&state, Whose::All, id).await
}

async fn page(
    state: &AppState,
    list: &'static str,
    whose: Whose,
    query: &ListQuery,
) -> Result<Json<Page<InviteView>>, Problem> {
    let page = PageRequest::<Place>::read(list, query.limit, query.cursor.as_deref())?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), InviteId::from_bits(id)));
    let found = state.app.invites.list(whose, after, page.fetch()).await?;
    let place = |invite: &Invite| (invite.created_at.into(), invite.id.bits());
    Ok(Json(page.page(found, place, InviteView::from)))
}

async fn make(
    state: &AppState,
    broker: Option<BrokerId>,
    by: &str,
    body: CreateBody,
    intention: Intention,
) -> Result<Response, Problem> {
    let terms = Terms {
        max_uses: body.max_uses.unwrap_or(1),
        days: body.expires_in_days.unwrap_or(DEFAULT_DAYS),
        note: body.note,
    };
    let (invites, by) = (state.app.invites.clone(), by.to_owned());
    let now = state.clock.now();
    let work = async move { invites.create(broker, &by, terms, &intention, now).await };
    let (invite, code) = state.lifecycle.detached(work).await??;
    let created = CreatedInvite {
        invite: invite.into(),
        code: code.map(|code| code.expose_secret().to_owned()),
    };
    let no_store = [(CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, no_store, Json(created)).into_response())
}

async fn end(state: &AppState, whose: Whose, id: InviteId) -> Result<Json<InviteView>, Problem> {
    let invites = &state.app.invites;
    let invite = invites.revoke(whose, id, state.clock.now()).await?;
    Ok(Json(invite.into()))
}

impl From<Invite> for InviteView {
    fn from(invite: Invite) -> Self {
        Self {
            id: invite.id,
            broker_id: invite.broker_id,
            note: invite.note,
            max_uses: invite.max_uses,
            uses: invite.uses,
            expires_at: invite.expires_at,
            revoked_at: invite.revoked_at,
            created_by: invite.created_by,
            created_at: invite.created_at,
        }
    }
}

impl From<InviteError> for Problem {
    fn from(error: InviteError) -> Self {
        let detail = error.to_string();
        match error {
            InviteError::Terms(TermsError::Uses) => Self::invalid("max_uses", detail),
            InviteError::Terms(TermsError::Days) => Self::invalid("expires_in_days", detail),
            InviteError::Terms(TermsError::Note) => Self::invalid("note", detail),
            InviteError::Hindered(hindrance) => hindrance.into(),
            InviteError::NotFound => Self::new(Code::NotFound),
            InviteError::KeyReused => Self::new(Code::KeyReused),
            InviteError::Store(error) => error.into(),
            InviteError::Randomness => Self::internal(&error),
        }
    }
}
