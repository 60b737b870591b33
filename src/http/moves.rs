//! `/v1/admin/moves`: books that go from one database to another.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::{StrictJson, object};
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::broker_move::{BookPlace, BrokerMove, MoveCause, MoveProof, MoveState};
use crate::domain::ids::BrokerId;
use crate::domain::moment::Moment;
use crate::route;
use crate::services::moves::{Destination, MoveError};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(start))
        .with(route!(list))
        .with(route!(read))
        .with(route!(cancel))
        .with(route!(retry))
        .with(route!(reverse))
        .with(route!(purge))
        .with(route!(abandon))
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct StartBody {
    /// A shard. Without an `id`: the emptiest other one that takes brokers.
    #[serde(default, deserialize_with = "object")]
    shard: Option<ShardBody>,
    /// A database of its own. Without a `server_name`: on the emptiest other server.
    #[serde(default, deserialize_with = "object")]
    own: Option<OwnBody>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct ShardBody {
    id: Option<u32>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct OwnBody {
    server_name: Option<String>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct AbandonBody {
    /// Kept with the move: 1 to 500 characters.
    #[schema(example = "The disk of server b is gone.")]
    reason: String,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Only those of one broker.
    broker_id: Option<BrokerId>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PlaceView {
    /// Of a shard.
    #[schema(required)]
    shard_id: Option<u32>,
    server_name: String,
    database_name: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ProofView {
    /// The last entry of the chain that was moved, as `SEQ:HASH`; seq 0 for an empty chain.
    head: String,
    /// Merkle root over every row, as read from the source.
    root_before: String,
    /// As read back from the target: the same.
    root_after: String,
    /// Rows by table.
    #[schema(value_type = Value)]
    rows: Value,
}

#[derive(Serialize, utoipa::ToSchema)]
struct MoveView {
    id: Uuid,
    broker_id: BrokerId,
    /// `preparing`, `copying`, `fencing`, `rolling_back`, `flipped`, `retained`, `purging`, `done`,
    /// `kept`, `stuck`, `cancelling`, `cancelled`, `abandoned`
    #[schema(value_type = String)]
    state: MoveState,
    /// `admin`, `plan`, `reverse`
    #[schema(value_type = String)]
    cause: MoveCause,
    from: PlaceView,
    to: PlaceView,
    /// Rows in the source when the copy began, and those copied since.
    rows_total: u64,
    rows_copied: u64,
    /// How often the book was closed for it.
    fencings: u32,
    /// How long the book was closed when it moved, in microseconds; not known where the process
    /// that closed it has died.
    #[schema(required)]
    pause_us: Option<u64>,
    #[schema(required)]
    proof: Option<ProofView>,
    /// What the last try has failed with.
    #[schema(required)]
    fault: Option<String>,
    created_at: DateTime<Utc>,
    #[schema(required)]
    flipped_at: Option<DateTime<Utc>>,
    /// When what was left behind is deleted, once it has been verified again.
    #[schema(required)]
    purge_at: Option<DateTime<Utc>>,
    #[schema(required)]
    ended_at: Option<DateTime<Utc>>,
    /// Why what it has left was given up.
    #[schema(required)]
    abandoned_because: Option<String>,
}

/// Move a broker's book to another database, while the broker works.
///
/// It goes on by itself: `GET /v1/admin/moves/{id}` says how far it is. One move of a broker goes
/// on at a time.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/move", tag = "admin",
    operation_id = "admin_broker_move",
    params(("id" = u64, Path),
        ("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = StartBody, responses((status = 202, body = MoveView)))]
async fn start(
    me: Allowed<actions::AdminBrokerMove>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<StartBody>,
) -> Result<(StatusCode, Json<MoveView>), Problem> {
    let intention = key.intention(me.principal.sub(), &(id, &body));
    let to = match (body.shard, body.own) {
        (Some(shard), None) => Destination::Shard(shard.id),
        (None, Some(own)) => Destination::Own(own.server_name),
        (None, None) | (Some(_), Some(_)) => {
            return Err(Problem::invalid(
                "shard",
                "either `shard` or `own` says where the book is to go",
            ));
        }
    };
    let begun = state.app.moves.start(id, to, Some(&intention)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun.into())))
}

/// List moves, newest first.
#[utoipa::path(get, path = "/v1/admin/moves", tag = "admin", operation_id = "admin_move_list",
    params(ListQuery), responses((status = 200, body = Page<MoveView>)))]
async fn list(
    _me: Allowed<actions::AdminMoveList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<MoveView>>, Problem> {
    let page = PageRequest::<(Moment, Uuid)>::read("moves", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let moves = &state.app.moves;
    let found = moves.list(query.broker_id, after, page.fetch()).await?;
    Ok(Json(page.page(
        found,
        |found| (found.created_at.into(), found.id),
        MoveView::from,
    )))
}

/// Read a move: its state, how far it is, and what it has shown.
#[utoipa::path(get, path = "/v1/admin/moves/{id}", tag = "admin", operation_id = "admin_move_read",
    params(("id" = String, Path)), responses((status = 200, body = MoveView)))]
async fn read(
    _me: Allowed<actions::AdminMoveRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<MoveView>, Problem> {
    Ok(Json(state.app.moves.get(id).await?.into()))
}

/// Give a move up. The book stays where it is; once it has arrived, `reverse` brings it back.
#[utoipa::path(post, path = "/v1/admin/moves/{id}/cancel", tag = "admin",
    operation_id = "admin_move_cancel", params(("id" = String, Path)),
    responses((status = 200, body = MoveView)))]
async fn cancel(
    _me: Allowed<actions::AdminMoveChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<MoveView>, Problem> {
    Ok(Json(state.app.moves.cancel(id).await?.into()))
}

/// Let a move go on that is stuck, or verify again what was kept.
#[utoipa::path(post, path = "/v1/admin/moves/{id}/retry", tag = "admin",
    operation_id = "admin_move_retry", params(("id" = String, Path)),
    responses((status = 200, body = MoveView)))]
async fn retry(
    _me: Allowed<actions::AdminMoveChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<MoveView>, Problem> {
    Ok(Json(state.app.moves.retry(id).await?.into()))
}

/// Move a book back to where it came from, while what was left there is retained.
#[utoipa::path(post, path = "/v1/admin/moves/{id}/reverse", tag = "admin",
    operation_id = "admin_move_reverse",
    params(("id" = String, Path),
        ("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    responses((status = 202, body = MoveView)))]
async fn reverse(
    me: Allowed<actions::AdminBrokerMove>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
    key: IdempotencyKey,
) -> Result<(StatusCode, Json<MoveView>), Problem> {
    let intention = key.intention(me.principal.sub(), &("reverse", id));
    let begun = state.app.moves.reverse(id, Some(&intention)).await?;
    Ok((StatusCode::ACCEPTED, Json(begun.into())))
}

/// Give up what a move has left, or its copy, in a database that is lost: nobody waits for it to be
/// deleted any more, and the broker may move elsewhere. Should the database come back, `purge`
/// deletes it.
#[utoipa::path(post, path = "/v1/admin/moves/{id}/abandon", tag = "admin",
    operation_id = "admin_move_abandon", params(("id" = String, Path)),
    request_body = AbandonBody, responses((status = 200, body = MoveView)))]
async fn abandon(
    _me: Allowed<actions::AdminMoveChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
    StrictJson(body): StrictJson<AbandonBody>,
) -> Result<Json<MoveView>, Problem> {
    let abandoned = state.app.moves.abandon(id, &body.reason).await?;
    Ok(Json(abandoned.into()))
}

/// Delete now what a move has left behind, once it has been verified again; what was abandoned,
/// as soon as its database answers.
#[utoipa::path(post, path = "/v1/admin/moves/{id}/purge", tag = "admin",
    operation_id = "admin_move_purge", params(("id" = String, Path)),
    responses((status = 200, body = MoveView)))]
async fn purge(
    _me: Allowed<actions::AdminMoveChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<MoveView>, Problem> {
    Ok(Json(state.app.moves.purge(id).await?.into()))
}

impl From<BookPlace> for PlaceView {
    fn from(place: BookPlace) -> Self {
        Self {
            shard_id: place.shard_id,
            server_name: place.server,
            database_name: place.database,
        }
    }
}

impl From<MoveProof> for ProofView {
    fn from(proof: MoveProof) -> Self {
        Self {
            head: proof.head.to_string(),
            root_before: proof.root_before.to_hex(),
            root_after: proof.root_after.to_hex(),
            rows: proof.rows,
        }
    }
}

impl From<BrokerMove> for MoveView {
    fn from(this: BrokerMove) -> Self {
        Self {
            id: this.id,
            broker_id: this.broker,
            purge_at: this.purge_at(),
            state: this.state,
            cause: this.cause,
            from: this.from.into(),
            to: this.to.into(),
            rows_total: this.rows_total,
            rows_copied: this.rows_copied,
            fencings: this.fencings,
            pause_us: this.pause_us,
            proof: this.proof.map(ProofView::from),
            fault: this.fault,
            created_at: this.created_at,
            flipped_at: this.flipped_at,
            ended_at: this.ended_at,
            abandoned_because: this.abandoned_because,
        }
    }
}

impl From<MoveError> for Problem {
    fn from(error: MoveError) -> Self {
        let detail = error.to_string();
        match error {
            MoveError::NoSuchBroker { .. } | MoveError::NoSuchMove { .. } => {
                Self::new(Code::NotFound)
            }
            MoveError::KeyReused => Self::new(Code::KeyReused),
            MoveError::GoesOn { id } => Self::new(Code::Conflict)
                .detail(detail)
                .with("move_id", id.to_string()),
            MoveError::NotMovable { .. }
            | MoveError::ThereAlready { .. }
            | MoveError::State { .. } => Self::new(Code::Conflict).detail(detail),
            MoveError::Reason(_) => Self::invalid("reason", detail),
            MoveError::NoSuchShard { .. } => Self::invalid("shard.id", detail),
            MoveError::NoSuchServer { .. } => Self::invalid("own.server_name", detail),
            MoveError::ShardFull { .. }
            | MoveError::ServerFull { .. }
            | MoveError::NoShard
            | MoveError::NoServer => Self::new(Code::NoRoom).detail(detail),
            MoveError::Provisioning(error) => error.into(),
            MoveError::Store(error) => error.into(),
        }
    }
}
