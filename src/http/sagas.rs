//! `/v1/admin/sagas` and `/v1/admin/alerts`: what is stuck, why, and what can be done about it.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::guard::Allowed;
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::moment::Moment;
use crate::domain::saga::{Direction, SagaKind, SagaStatus};
use crate::route;
use crate::services::alerts::{Alert, Resolved};
use crate::services::saga::{Explanation, SagaRecord};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(read))
        .with(route!(retry))
        .with(route!(compensate))
        .with(route!(list_alerts))
        .with(route!(resolve_alert))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct SagaQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `running`, `completed`, `compensating`, `compensated`, `stuck`
    #[param(value_type = Option<String>)]
    status: Option<SagaStatus>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct AlertQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// Also those that are resolved.
    all: Option<bool>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SagaView {
    id: Uuid,
    #[schema(value_type = String)]
    kind: SagaKind,
    subject: String,
    #[schema(value_type = String)]
    direction: Direction,
    #[schema(value_type = String)]
    status: SagaStatus,
    #[schema(value_type = Value, required)]
    reason: Option<Value>,
    compensation_requested: bool,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct AlertView {
    id: u64,
    kind: String,
    subject: String,
    message: String,
    #[schema(value_type = Value)]
    details: Value,
    created_at: DateTime<Utc>,
    #[schema(required)]
    resolved_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ResolvedView {
    id: u64,
    /// False where it was resolved before.
    resolved: bool,
}

/// List sagas, those that changed last first.
#[utoipa::path(get, path = "/v1/admin/sagas", tag = "admin", operation_id = "saga_list",
    params(SagaQuery), responses((status = 200, body = Page<SagaView>)))]
async fn list(
    _me: Allowed<actions::SagaList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<SagaQuery>,
) -> Result<Json<Page<SagaView>>, Problem> {
    let page = PageRequest::<(Moment, Uuid)>::read("sagas", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let sagas = &state.app.sagas;
    let found = sagas.list(query.status, after, page.fetch()).await?;
    Ok(Json(page.page(
        found,
        |saga| (saga.updated_at.into(), saga.saga_id),
        SagaView::from,
    )))
}

/// Read a saga: its steps, what each system shows of them, and what could be done.
#[utoipa::path(get, path = "/v1/admin/sagas/{id}", tag = "admin", operation_id = "saga_read",
    params(("id" = String, Path)), responses((status = 200, body = Explanation)))]
async fn read(
    _me: Allowed<actions::SagaRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<Explanation>, Problem> {
    explained(&state, id).await
}

/// Put a stuck saga back before the workers.
#[utoipa::path(post, path = "/v1/admin/sagas/{id}/retry", tag = "admin", operation_id = "saga_retry",
    params(("id" = String, Path)), responses((status = 200, body = Explanation)))]
async fn retry(
    _me: Allowed<actions::SagaRetry>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<Explanation>, Problem> {
    state.app.engine.retry(id).await?;
    explained(&state, id).await
}

/// Ask a saga to go back: it does unless the ledger has posted, which cannot be taken back.
#[utoipa::path(post, path = "/v1/admin/sagas/{id}/compensate", tag = "admin",
    operation_id = "saga_compensate", params(("id" = String, Path)),
    responses((status = 200, body = Explanation)))]
async fn compensate(
    _me: Allowed<actions::SagaCompensate>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<Explanation>, Problem> {
    state.app.engine.compensate(id).await?;
    explained(&state, id).await
}

/// List alerts, newest first: the open ones, or all.
#[utoipa::path(get, path = "/v1/admin/alerts", tag = "admin", operation_id = "alert_list",
    params(AlertQuery), responses((status = 200, body = Page<AlertView>)))]
async fn list_alerts(
    _me: Allowed<actions::AlertList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<AlertQuery>,
) -> Result<Json<Page<AlertView>>, Problem> {
    let page = PageRequest::<u64>::read("alerts", query.limit, query.cursor.as_deref())?;
    let open_only = !query.all.unwrap_or(false);
    let alerts = &state.app.alerts;
    let found = alerts.list(open_only, page.after, page.fetch()).await?;
    Ok(Json(page.page(
        found,
        |alert| alert.alert_id,
        AlertView::from,
    )))
}

/// Mark an alert resolved.
#[utoipa::path(post, path = "/v1/admin/alerts/{id}/resolve", tag = "admin", operation_id = "alert_resolve",
    params(("id" = u64, Path)), responses((status = 200, body = ResolvedView)))]
async fn resolve_alert(
    _me: Allowed<actions::AlertResolve>,
    State(state): State<AppState>,
    PathOf(id): PathOf<u64>,
) -> Result<Json<ResolvedView>, Problem> {
    let resolved = match state.app.alerts.resolve(id).await? {
        Resolved::Now => true,
        Resolved::Before => false,
        Resolved::NoSuchAlert => return Err(Problem::new(Code::NotFound)),
    };
    Ok(Json(ResolvedView { id, resolved }))
}

async fn explained(state: &AppState, id: Uuid) -> Result<Json<Explanation>, Problem> {
    let explanation = state.app.engine.explain(id).await?;
    explanation
        .map(Json)
        .ok_or_else(|| Problem::new(Code::NotFound))
}

impl From<SagaRecord> for SagaView {
    fn from(record: SagaRecord) -> Self {
        Self {
            id: record.saga_id,
            kind: record.kind,
            subject: record.subject.to_string(),
            direction: record.direction,
            status: record.status,
            reason: record.reason,
            compensation_requested: record.compensation_requested,
            created_at: record.created_at,
            updated_at: record.updated_at,
        }
    }
}

impl From<Alert> for AlertView {
    fn from(alert: Alert) -> Self {
        Self {
            id: alert.alert_id,
            kind: alert.kind,
            subject: alert.subject,
            message: alert.message,
            details: alert.details,
            created_at: alert.created_at,
            resolved_at: alert.resolved_at,
        }
    }
}
