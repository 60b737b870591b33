//! `/v1/team`: a broker's people and programs, or the platform's own.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CACHE_CONTROL;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{Beyond, Role, Scope, actions};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ClientId, UserId};
use crate::route;
use crate::services::team::{By, Client, Member, NewClient, NewUser, TeamError};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list_users))
        .with(route!(create_user))
        .with(route!(disable_user))
        .with(route!(list_clients))
        .with(route!(create_client))
        .with(route!(disable_client))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Rows of the page, 1 to 200; 50 where it isn't there.
    limit: Option<u32>,
    /// `next_cursor` of the page before.
    cursor: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct UserView {
    #[schema(value_type = String, example = "US-0000000a5bb4")]
    id: UserId,
    login: String,
    #[schema(value_type = String, example = "broker_operator")]
    role: Role,
    /// None for the platform's own.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    /// `active`, `disabled`
    state: &'static str,
    created_at: DateTime<Utc>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateUser {
    /// 3 to 120 characters of a-z, 0-9 and . _ @ + -; upper case is taken as lower.
    login: String,
    /// 12 characters or more. It has no part in the fingerprint of the idempotency key: a
    /// digest that is kept would be a way to guess it.
    #[serde(skip_serializing)]
    #[schema(value_type = String, format = Password)]
    password: SecretString,
    /// In a broker's team `broker_admin`, `broker_operator`, `broker_viewer`; in the platform's
    /// `platform_admin`, `arbiter`.
    #[schema(value_type = String, example = "broker_operator")]
    role: Role,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ClientView {
    #[schema(value_type = String, example = "CL-0000000a5bb4")]
    id: ClientId,
    name: String,
    #[schema(value_type = String, example = "broker_operator")]
    role: Role,
    /// None for the platform's own.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    #[schema(value_type = Vec<String>)]
    scopes: BTreeSet<Scope>,
    /// The limit that an agent acts under.
    #[schema(value_type = Option<String>, required)]
    limit_digest: Option<Hash>,
    /// `active`, `disabled`
    state: &'static str,
    created_at: DateTime<Utc>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateClient {
    /// 1 to 120 characters.
    name: String,
    /// A role of the team, or `agent` in a broker's.
    #[schema(value_type = String, example = "broker_viewer")]
    role: Role,
    /// A part of the role's scopes; all of them where it isn't there.
    #[schema(value_type = Option<Vec<String>>, example = json!(["network:read"]))]
    scopes: Option<BTreeSet<Scope>>,
    /// For an `agent` the limit that it acts under, 64 hex digits; for others none.
    #[schema(value_type = Option<String>)]
    limit_digest: Option<Hash>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreatedClient {
    client: ClientView,
    /// Shown this once, and null when the request is repeated: only its digest is kept.
    #[schema(required)]
    client_secret: Option<String>,
}

/// List the team's people.
#[utoipa::path(get, path = "/v1/team/users", tag = "team", operation_id = "team_users",
    params(ListQuery), responses((status = 200, body = Page<UserView>)))]
async fn list_users(
    me: Allowed<actions::TeamRead>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<UserView>>, Problem> {
    let page = PageRequest::<Place>::read("team.users", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let rows = state.team.users(me.seat, after, page.fetch()).await?;
    Ok(Json(page.page(
        rows,
        |row| (row.created_at.into(), row.user_id.bits()),
        UserView::from,
    )))
}

/// Add a person to the team.
///
/// They log in with all that their role has, so a token can add only whom it covers: of a role
/// that may do no more than its own, and all of whose scopes it carries.
#[utoipa::path(post, path = "/v1/team/users", tag = "team", operation_id = "team_create_user",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateUser, responses((status = 201, body = UserView)))]
async fn create_user(
    me: Allowed<actions::TeamManage>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateUser>,
) -> Result<(StatusCode, Json<UserView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let team = state.team.clone();
    let new = NewUser {
        login: body.login,
        password: body.password,
        role: body.role,
    };
    let work = async move {
        let by = By::Caller(&me.principal);
        team.create_user(me.seat, new, by, &intention).await
    };
    let member = state.lifecycle.detached(work).await??;
    Ok((StatusCode::CREATED, Json(member.into())))
}

/// Disable a person's account.
///
/// Their refresh tokens end at once; an access token that is out lives for 15 minutes at most.
/// Nobody disables their own account.
#[utoipa::path(post, path = "/v1/team/users/{id}/disable", tag = "team",
    operation_id = "team_disable_user", params(("id" = String, Path)),
    responses((status = 200, body = UserView)))]
async fn disable_user(
    me: Allowed<actions::TeamManage>,
    State(state): State<AppState>,
    PathOf(user_id): PathOf<UserId>,
) -> Result<Json<UserView>, Problem> {
    let team = state.team.clone();
    let work = async move {
        team.disable_user(me.seat, user_id, me.principal.sub())
            .await
    };
    Ok(Json(state.lifecycle.detached(work).await??.into()))
}

/// List the team's API clients.
#[utoipa::path(get, path = "/v1/team/clients", tag = "team", operation_id = "team_clients",
    params(ListQuery), responses((status = 200, body = Page<ClientView>)))]
async fn list_clients(
    me: Allowed<actions::TeamRead>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<ClientView>>, Problem> {
    let page = PageRequest::<Place>::read("team.clients", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let rows = state.team.clients(me.seat, after, page.fetch()).await?;
    Ok(Json(page.page(
        rows,
        |row| (row.created_at.into(), row.client_id.bits()),
        ClientView::from,
    )))
}

/// Add an API client to the team.
///
/// A token hands on no more than it has: neither a role that may do more, nor a scope that it
/// does not carry.
#[utoipa::path(post, path = "/v1/team/clients", tag = "team", operation_id = "team_create_client",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateClient, responses((status = 201, body = CreatedClient)))]
async fn create_client(
    me: Allowed<actions::TeamManage>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateClient>,
) -> Result<Response, Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let team = state.team.clone();
    let new = NewClient {
        name: body.name,
        role: body.role,
        scopes: body.scopes,
        limit_digest: body.limit_digest,
    };
    let work = async move {
        let by = By::Caller(&me.principal);
        team.create_client(me.seat, new, by, &intention).await
    };
    let (client, secret) = state.lifecycle.detached(work).await??;
    let created = CreatedClient {
        client: client.into(),
        client_secret: secret.map(|secret| secret.expose_secret().to_owned()),
    };
    let no_store = [(CACHE_CONTROL, "no-store")];
    Ok((StatusCode::CREATED, no_store, Json(created)).into_response())
}

/// Disable an API client.
#[utoipa::path(post, path = "/v1/team/clients/{id}/disable", tag = "team",
    operation_id = "team_disable_client", params(("id" = String, Path)),
    responses((status = 200, body = ClientView)))]
async fn disable_client(
    me: Allowed<actions::TeamManage>,
    State(state): State<AppState>,
    PathOf(client_id): PathOf<ClientId>,
) -> Result<Json<ClientView>, Problem> {
    let team = state.team.clone();
    let work = async move {
        team.disable_client(me.seat, client_id, me.principal.sub())
            .await
    };
    Ok(Json(state.lifecycle.detached(work).await??.into()))
}

const fn state_of(active: bool) -> &'static str {
    if active { "active" } else { "disabled" }
}

impl From<Member> for UserView {
    fn from(member: Member) -> Self {
        Self {
            id: member.user_id,
            login: member.login,
            role: member.role,
            broker_id: member.broker_id,
            state: state_of(member.active),
            created_at: member.created_at,
        }
    }
}

impl From<Client> for ClientView {
    fn from(client: Client) -> Self {
        Self {
            id: client.client_id,
            name: client.name,
            role: client.role,
            broker_id: client.broker_id,
            scopes: client.scopes,
            limit_digest: client.limit_digest,
            state: state_of(client.active),
            created_at: client.created_at,
        }
    }
}

impl From<TeamError> for Problem {
    fn from(error: TeamError) -> Self {
        let detail = error.to_string();
        match error {
            TeamError::Login => Self::invalid("login", detail),
            TeamError::LoginTaken => Self::new(Code::LoginTaken),
            TeamError::Password => Self::invalid("password", detail),
            TeamError::Name => Self::invalid("name", detail),
            TeamError::PersonAsAgent | TeamError::Role(_) => Self::invalid("role", detail),
            TeamError::Scope { .. } => Self::invalid("scopes", detail),
            TeamError::Beyond(Beyond::Role { .. }) => Self::new(Code::RoleForbidden).detail(detail),
            TeamError::Beyond(Beyond::Scope(_)) => Self::new(Code::ScopeMissing).detail(detail),
            TeamError::Hindered(hindrance) => hindrance.into(),
            TeamError::Plan(reached) => reached.into(),
            TeamError::NotFound => Self::new(Code::NotFound),
            TeamError::Own => Self::new(Code::OwnAccount),
            TeamError::KeyReused => Self::new(Code::KeyReused),
            TeamError::Busy => Self::new(Code::Unavailable).retry_after(1),
            TeamError::Store(error) => error.into(),
            TeamError::Randomness | TeamError::Hash => Self::internal(&error),
        }
    }
}
