//! `/v1/checkpoints`: the signed states of the log of chain heads, and proofs, for anybody; and the
//! witnesses who cosign them.
//!
//! Whoever asks for a leaf has to know it already: that a book has so many entries, or that a request
//! is there, is shown to nobody who doesn't.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::{Allowed, Public};
use super::json::StrictJson;
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::canonical::Hash;
use crate::domain::checkpoint::{CanonicalLeaf, LeafKind};
use crate::domain::ids::BrokerId;
use crate::route;
use crate::services::checkpoints::{CheckpointError, Cosigned, Included, Log, Wanted, Witness};

/// Logs that are listed: a further one begins only where the one before was lost.
const LOGS_MAX: u32 = 100;
/// Witnesses that an admin sees, the newest first.
const WITNESSES_MAX: u32 = 1_000;

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(latest))
        .with(route!(keys))
        .with(route!(logs))
        .with(route!(consistency))
        .with(route!(inclusion))
        .with(route!(one))
        .with(route!(cosign))
        .with(route!(own_head))
        .with(route!(own_witness))
        .with(route!(set_witness))
        .with(route!(witnesses))
        .with(route!(add_witness))
        .with(route!(withdraw))
        .with(route!(begin))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// The number of the log; the last one where it isn't there.
    log: Option<u32>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ConsistencyQuery {
    log: Option<u32>,
    /// Leaves of the older state.
    from: u64,
    /// Leaves of the newer one.
    to: u64,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct InclusionQuery {
    log: Option<u32>,
    /// Of the checkpoint; the last one where it isn't there.
    size: Option<u64>,
    /// `book`, `entry`, `request`
    #[param(value_type = String)]
    kind: LeafKind,
    /// The broker, `NR-…` or `OR-…`.
    id: String,
    seq: u64,
    /// Of the entry or event: 64 hex digits.
    #[param(value_type = String)]
    hash: Hash,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LogKeysView {
    origin: String,
    /// As `NAME+ID+KEY`, the oldest first: one of them, or several while they are changed, signs.
    keys: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LogView {
    log: u32,
    origin: String,
    /// Leaves, of which the last may be in no checkpoint yet.
    size: String,
    begun_at: DateTime<Utc>,
    /// That it follows another, and why, as a signed note.
    #[schema(required)]
    statement: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LogsView {
    items: Vec<LogView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ConsistencyView {
    origin: String,
    from: String,
    to: String,
    /// Hashes of RFC 9162, section 2.1.4, in hex.
    #[schema(value_type = Vec<String>)]
    proof: Vec<Hash>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct InclusionView {
    log: u32,
    /// Of the checkpoint.
    size: String,
    #[schema(value_type = String)]
    root: Hash,
    index: String,
    leaf: CanonicalLeaf,
    /// Hashes of RFC 9162, section 2.1.3, in hex.
    #[schema(value_type = Vec<String>)]
    proof: Vec<Hash>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CosignBody {
    /// One line of a signed note.
    signature: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CosignView {
    /// Whether it was taken; else the witness had cosigned before, and that stays.
    taken: bool,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct WitnessBody {
    /// The public key, as `NAME+ID+KEY`; of algorithm 1 (Ed25519) or 4 (with the time).
    key: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct WitnessView {
    id: u64,
    /// Null for one from outside.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    key: String,
    created_by: String,
    created_at: DateTime<Utc>,
    #[schema(required)]
    withdrawn_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct OwnWitnessView {
    #[schema(required)]
    witness: Option<WitnessView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct WitnessesView {
    items: Vec<WitnessView>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct BeginBody {
    /// The number of the log that is lost. Said again, it is the same log that has begun in its
    /// place.
    after: u32,
    /// Why; it is signed, and published.
    reason: String,
}

/// The last checkpoint: a signed note, with the signatures of witnesses.
#[utoipa::path(get, path = "/v1/checkpoints/latest", tag = "checkpoints",
    operation_id = "checkpoint_latest", params(LogQuery), security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn latest(
    _: Public,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<LogQuery>,
) -> Result<Response, Problem> {
    note(&state, query.log, None).await
}

/// The checkpoint of a size.
#[utoipa::path(get, path = "/v1/checkpoints/{size}", tag = "checkpoints",
    operation_id = "checkpoint_one", params(("size" = u64, Path), LogQuery), security(()),
    responses((status = 200, body = String, content_type = "text/plain")))]
async fn one(
    _: Public,
    State(state): State<AppState>,
    PathOf(size): PathOf<u64>,
    QueryOf(query): QueryOf<LogQuery>,
) -> Result<Response, Problem> {
    note(&state, query.log, Some(size)).await
}

async fn note(state: &AppState, log: Option<u32>, size: Option<u64>) -> Result<Response, Problem> {
    let shown = state.app.checkpoints.checkpoint(log, size).await?;
    let mut response = shown.note.into_response();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    Ok(response)
}

/// The public keys that sign a log's checkpoints.
#[utoipa::path(get, path = "/v1/checkpoints/keys", tag = "checkpoints",
    operation_id = "checkpoint_keys", params(LogQuery), security(()),
    responses((status = 200, body = LogKeysView)))]
async fn keys(
    _: Public,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<LogQuery>,
) -> Result<Json<LogKeysView>, Problem> {
    let log = state.app.checkpoints.log(query.log).await?;
    let keys = state.app.checkpoints.keys(&log).await?;
    Ok(Json(LogKeysView {
        origin: log.origin,
        keys: keys.iter().map(ToString::to_string).collect(),
    }))
}

/// All logs, the last first. There is more than one where a log was lost and another begun.
#[utoipa::path(get, path = "/v1/checkpoints/logs", tag = "checkpoints",
    operation_id = "checkpoint_logs", security(()), responses((status = 200, body = LogsView)))]
async fn logs(_: Public, State(state): State<AppState>) -> Result<Json<LogsView>, Problem> {
    let logs = state.app.checkpoints.logs(LOGS_MAX).await?;
    let items = logs.into_iter().map(LogView::from).collect();
    Ok(Json(LogsView { items }))
}

/// A proof that a log's later state begins with an earlier one.
#[utoipa::path(get, path = "/v1/checkpoints/consistency", tag = "checkpoints",
    operation_id = "checkpoint_consistency", params(ConsistencyQuery), security(()),
    responses((status = 200, body = ConsistencyView)))]
async fn consistency(
    _: Public,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ConsistencyQuery>,
) -> Result<Json<ConsistencyView>, Problem> {
    let (log, proof) = state
        .app
        .checkpoints
        .consistency(query.log, query.from, query.to)
        .await?;
    Ok(Json(ConsistencyView {
        origin: log.origin,
        from: query.from.to_string(),
        to: query.to.to_string(),
        proof,
    }))
}

/// A proof that a checkpoint has a head that one knows, seq and hash.
#[utoipa::path(get, path = "/v1/checkpoints/inclusion", tag = "checkpoints",
    operation_id = "checkpoint_inclusion", params(InclusionQuery), security(()),
    responses((status = 200, body = InclusionView)))]
async fn inclusion(
    _: Public,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<InclusionQuery>,
) -> Result<Json<InclusionView>, Problem> {
    let wanted = Wanted::At(query.kind, query.id, query.seq);
    let service = &state.app.checkpoints;
    let found = service.inclusion(query.log, query.size, &wanted).await?;
    if found.leaf.hash != query.hash {
        return Err(Problem::new(Code::NotFound));
    }
    Ok(Json(found.into()))
}

/// The last head of one's own book that the log has, with the proof.
#[utoipa::path(get, path = "/v1/chain/logged", tag = "book",
    operation_id = "chain_logged", responses((status = 200, body = InclusionView)))]
async fn own_head(
    me: Allowed<actions::ChainRead>,
    State(state): State<AppState>,
) -> Result<Json<InclusionView>, Problem> {
    let wanted = Wanted::Last(LeafKind::Book, me.seat.broker_id.to_string());
    let found = state.app.checkpoints.inclusion(None, None, &wanted).await?;
    Ok(Json(found.into()))
}

/// Hand in a witness's signature of a checkpoint. Any witness may that the network knows; its
/// signature says who it is.
#[utoipa::path(post, path = "/v1/checkpoints/{size}/cosignatures", tag = "checkpoints",
    operation_id = "checkpoint_cosign", params(("size" = u64, Path), LogQuery), security(()),
    request_body = CosignBody, responses((status = 200, body = CosignView)))]
async fn cosign(
    _: Public,
    State(state): State<AppState>,
    PathOf(size): PathOf<u64>,
    QueryOf(query): QueryOf<LogQuery>,
    StrictJson(body): StrictJson<CosignBody>,
) -> Result<Json<CosignView>, Problem> {
    let service = &state.app.checkpoints;
    let cosigned = service.cosign(query.log, size, &body.signature).await?;
    let taken = cosigned == Cosigned::Now;
    Ok(Json(CosignView { taken }))
}

/// The key by which one's broker cosigns checkpoints.
#[utoipa::path(get, path = "/v1/witness", tag = "checkpoints", operation_id = "witness_read",
    responses((status = 200, body = OwnWitnessView)))]
async fn own_witness(
    me: Allowed<actions::ChainRead>,
    State(state): State<AppState>,
) -> Result<Json<OwnWitnessView>, Problem> {
    let found = state.app.checkpoints.witness_of(me.seat.broker_id).await?;
    let witness = found.map(WitnessView::from);
    Ok(Json(OwnWitnessView { witness }))
}

/// Register the key by which one's broker cosigns checkpoints, in the place of the one before. The same
/// key again changes nothing.
#[utoipa::path(put, path = "/v1/witness", tag = "checkpoints", operation_id = "witness_set",
    request_body = WitnessBody, responses((status = 200, body = WitnessView)))]
async fn set_witness(
    me: Allowed<actions::WitnessSet>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<WitnessBody>,
) -> Result<Json<WitnessView>, Problem> {
    let (broker, by) = (Some(me.seat.broker_id), me.principal.sub());
    let service = &state.app.checkpoints;
    let witness = service.register_witness(broker, &body.key, by).await?;
    Ok(Json(witness.into()))
}

/// All witnesses, newest first.
#[utoipa::path(get, path = "/v1/admin/witnesses", tag = "admin", operation_id = "admin_witnesses",
    responses((status = 200, body = WitnessesView)))]
async fn witnesses(
    _me: Allowed<actions::AdminWitnessRead>,
    State(state): State<AppState>,
) -> Result<Json<WitnessesView>, Problem> {
    let found = state.app.checkpoints.witnesses(None, WITNESSES_MAX).await?;
    let items = found.into_iter().map(WitnessView::from).collect();
    Ok(Json(WitnessesView { items }))
}

/// Register a witness from outside. The same key again changes nothing.
#[utoipa::path(post, path = "/v1/admin/witnesses", tag = "admin", operation_id = "admin_witness_add",
    request_body = WitnessBody, responses((status = 200, body = WitnessView)))]
async fn add_witness(
    me: Allowed<actions::AdminWitnessWrite>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<WitnessBody>,
) -> Result<Json<WitnessView>, Problem> {
    let by = me.principal.sub();
    let service = &state.app.checkpoints;
    let witness = service.register_witness(None, &body.key, by).await?;
    Ok(Json(witness.into()))
}

/// Take no more signatures of a witness; what it has signed stays.
#[utoipa::path(post, path = "/v1/admin/witnesses/{id}/withdraw", tag = "admin",
    operation_id = "admin_witness_withdraw", params(("id" = u64, Path)),
    responses((status = 200, body = WitnessView)))]
async fn withdraw(
    _me: Allowed<actions::AdminWitnessWrite>,
    State(state): State<AppState>,
    PathOf(id): PathOf<u64>,
) -> Result<Json<WitnessView>, Problem> {
    let witness = state.app.checkpoints.withdraw_witness(id).await?;
    Ok(Json(witness.into()))
}

/// Begin a log in the place of the one before, which a restored master can't go on with. It is said
/// aloud, signed, and never taken back.
#[utoipa::path(post, path = "/v1/admin/checkpoints/begin", tag = "admin",
    operation_id = "admin_log_begin", request_body = BeginBody,
    responses((status = 200, body = LogView)))]
async fn begin(
    me: Allowed<actions::AdminLogBegin>,
    State(state): State<AppState>,
    StrictJson(body): StrictJson<BeginBody>,
) -> Result<Json<LogView>, Problem> {
    let service = &state.app.checkpoints;
    let by = me.principal.sub();
    let log = service.begin_new(body.after, &body.reason, by).await?;
    Ok(Json(log.into()))
}

impl From<Log> for LogView {
    fn from(log: Log) -> Self {
        Self {
            log: log.number,
            origin: log.origin,
            size: log.size.to_string(),
            begun_at: log.begun_at,
            statement: log.statement,
        }
    }
}

impl From<Included> for InclusionView {
    fn from(found: Included) -> Self {
        Self {
            log: found.log,
            size: found.size.to_string(),
            root: found.root,
            index: found.index.to_string(),
            leaf: found.leaf.canonical(),
            proof: found.proof,
        }
    }
}

impl From<Witness> for WitnessView {
    fn from(witness: Witness) -> Self {
        Self {
            id: witness.id,
            broker_id: witness.broker_id,
            key: witness.key.to_string(),
            created_by: witness.created_by,
            created_at: witness.created_at,
            withdrawn_at: witness.withdrawn_at,
        }
    }
}

impl From<CheckpointError> for Problem {
    fn from(error: CheckpointError) -> Self {
        let text = error.to_string();
        match error {
            CheckpointError::NoSuch(_) => Self::new(Code::NotFound).detail(text),
            CheckpointError::Range(_) => Self::invalid("to", text),
            CheckpointError::Note(_) => Self::invalid("key", text),
            CheckpointError::UnknownWitness | CheckpointError::WrongSignature => {
                Self::invalid("signature", text)
            }
            CheckpointError::Reason(_) => Self::invalid("reason", text),
            CheckpointError::NotTheLast { .. } => Self::invalid("after", text),
            CheckpointError::NameTaken { .. } => Self::new(Code::NameTaken).detail(text),
            CheckpointError::Full => Self::new(Code::TooOften).detail(text),
            CheckpointError::NoKeys | CheckpointError::NothingSigned => {
                Self::new(Code::Conflict).detail(text)
            }
            CheckpointError::Key(_) => Self::internal(&error),
            CheckpointError::Store(error) => error.into(),
        }
    }
}
