//! `/v1/admin/servers` and `/v1/admin/shards`: where books may be.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::json::StrictJson;
use super::params::PathOf;
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::route;
use crate::services::provisioning::{CAPACITY_MAX, Server, Shard};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list_servers))
        .with(route!(add_server))
        .with(route!(list_shards))
        .with(route!(create_shard))
        .with(route!(remove_shard))
}

#[derive(Serialize, utoipa::ToSchema)]
struct ServerView {
    /// As in the configuration, where its address is.
    name: String,
    /// Databases that it may hold.
    capacity: u32,
    /// Whether it takes new ones.
    accepts_new: bool,
    /// Databases that it holds: shards and FULL brokers' own.
    databases: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ServersView {
    /// All of them, by name.
    items: Vec<ServerView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ShardView {
    id: u32,
    server_name: String,
    database_name: String,
    /// Brokers that it may hold.
    capacity: u32,
    /// Whether it takes new ones.
    accepts_new: bool,
    /// `making`, `open`
    state: String,
    brokers: u64,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ShardsView {
    /// All of them, by number.
    items: Vec<ShardView>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct AddServerBody {
    /// A name of the configuration: `servers.NAME`.
    server_name: String,
    /// Databases that it may hold, 1 to 1000000.
    capacity: u32,
    /// Whether it takes new databases; as it is where this isn't there, and at first yes.
    accepts_new: Option<bool>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct CreateShardBody {
    /// A name of the configuration: `servers.NAME`.
    server_name: String,
    /// 1 to 64 letters, digits, `_` and `-`.
    database_name: String,
    /// Brokers that it may hold, 1 to 1000000.
    capacity: u32,
    /// Whether it takes new brokers; as it is where this isn't there, and at first yes.
    accepts_new: Option<bool>,
}

/// List the database servers.
#[utoipa::path(get, path = "/v1/admin/servers", tag = "admin", operation_id = "admin_server_list",
    responses((status = 200, body = ServersView)))]
async fn list_servers(
    _me: Allowed<actions::AdminServerList>,
    State(state): State<AppState>,
) -> Result<Json<ServersView>, Problem> {
    let servers = state.app.provisioning.servers().await?;
    let items = servers.into_iter().map(ServerView::from).collect();
    Ok(Json(ServersView { items }))
}

/// Register a server of the configuration for books, or set what it may hold.
///
/// It is identified by its name, so a repeat changes nothing and needs no Idempotency-Key.
#[utoipa::path(post, path = "/v1/admin/servers", tag = "admin", operation_id = "admin_server_add",
    request_body = AddServerBody, responses((status = 201, body = ServerView)))]
async fn add_server(
    _me: Allowed<actions::AdminServerAdd>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<AddServerBody>,
) -> Result<(StatusCode, Json<ServerView>), Problem> {
    check_capacity(body.capacity)?;
    let now = state.clock.now();
    let places = state.app.provisioning.clone();
    let work = async move {
        places
            .register_server(&body.server_name, body.capacity, body.accepts_new, now)
            .await
    };
    let server = state.lifecycle.detached(work).await??;
    Ok((StatusCode::CREATED, Json(server.into())))
}

/// List the shards.
#[utoipa::path(get, path = "/v1/admin/shards", tag = "admin", operation_id = "admin_shard_list",
    responses((status = 200, body = ShardsView)))]
async fn list_shards(
    _me: Allowed<actions::AdminShardList>,
    State(state): State<AppState>,
) -> Result<Json<ShardsView>, Problem> {
    let shards = state.app.provisioning.shards().await?;
    let items = shards.into_iter().map(ShardView::from).collect();
    Ok(Json(ShardsView { items }))
}

/// Create a shard: a database for the books of many SOLO brokers.
///
/// It is identified by server and database, so a repeat finishes what was begun, or sets what it may
/// hold, and needs no Idempotency-Key.
#[utoipa::path(post, path = "/v1/admin/shards", tag = "admin", operation_id = "admin_shard_create",
    request_body = CreateShardBody, responses((status = 201, body = ShardView)))]
async fn create_shard(
    _me: Allowed<actions::AdminShardCreate>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<CreateShardBody>,
) -> Result<(StatusCode, Json<ShardView>), Problem> {
    check_capacity(body.capacity)?;
    let now = state.clock.now();
    let places = state.app.provisioning.clone();
    let work = async move {
        let (server, database) = (&body.server_name, &body.database_name);
        places
            .create_shard(server, database, body.capacity, body.accepts_new, now)
            .await
    };
    let shard = state.lifecycle.detached(work).await??;
    Ok((StatusCode::CREATED, Json(shard.into())))
}

/// Remove a shard that holds no book: one that was never finished, or that nobody needs.
///
/// Its database stays, for its server's admin to drop.
#[utoipa::path(delete, path = "/v1/admin/shards/{id}", tag = "admin",
    operation_id = "admin_shard_remove", params(("id" = u32, Path)),
    responses((status = 200, body = ShardView)))]
async fn remove_shard(
    _me: Allowed<actions::AdminShardRemove>,
    State(state): State<AppState>,
    PathOf(id): PathOf<u32>,
) -> Result<Json<ShardView>, Problem> {
    let places = state.app.provisioning.clone();
    let work = async move { places.remove_shard(&id.to_string()).await };
    let shard = state.lifecycle.detached(work).await??;
    Ok(Json(shard.into()))
}

fn check_capacity(capacity: u32) -> Result<(), Problem> {
    if (1..=CAPACITY_MAX).contains(&capacity) {
        Ok(())
    } else {
        Err(Problem::invalid("capacity", format!("1 to {CAPACITY_MAX}")))
    }
}

impl From<Server> for ServerView {
    fn from(server: Server) -> Self {
        Self {
            name: server.name,
            capacity: server.capacity,
            accepts_new: server.accepts_new,
            databases: u64::try_from(server.held).unwrap_or(0),
        }
    }
}

impl From<Shard> for ShardView {
    fn from(shard: Shard) -> Self {
        Self {
            id: shard.shard_id,
            server_name: shard.server_name,
            database_name: shard.database_name,
            capacity: shard.capacity,
            accepts_new: shard.accepts_new,
            state: shard.state,
            brokers: u64::try_from(shard.brokers).unwrap_or(0),
        }
    }
}
