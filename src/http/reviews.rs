//! `/v1/admin/psp/reviews`: payments of which only a person can tell whether they were made.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::guard::Allowed;
use super::json::StrictJson;
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::payments::{IntentEventView, IntentHistoryView, IntentView, history, view};
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::BrokerId;
use crate::domain::moment::Moment;
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::outcome::Facts;
use crate::domain::payment::statement::LineStatus;
use crate::domain::payment::{OutboxAction, PspName, PspState};
use crate::route;
use crate::services::payments::{
    Evidence, Finding, Incoming, Intent, PspCallRow, PspTx, StatementLine, Stuck, Verdict,
};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(read))
        .with(route!(resolve))
        .with(route!(retry))
        .with(route!(stuck))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct ResolveBody {
    /// `CONFIRMED`: the provider has paid; `FAILED`: it has not, and will not.
    #[schema(value_type = String, example = "CONFIRMED")]
    verdict: Verdict,
    /// What was found out, and where: 1 to 500 characters.
    #[schema(example = "Their statement of 5 May has it, line 118.")]
    reason: String,
    /// With `CONFIRMED`, the provider's name for the payment where it is known (WISE's transfer,
    /// QP's payment): a payment that comes back is known again by it.
    payment_id: Option<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PspView {
    #[schema(value_type = String)]
    psp_name: PspName,
    #[schema(value_type = String)]
    state: PspState,
    /// What the lookup and the payment are known by at the provider.
    #[schema(required)]
    query_rq_uid: Option<String>,
    #[schema(required)]
    confirm_rq_uid: Option<String>,
    /// What the provider has told.
    #[schema(value_type = Value)]
    facts: Facts,
    retry_count: i32,
    #[schema(required)]
    last_error: Option<String>,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ReviewView {
    intent_id: Uuid,
    #[schema(required)]
    broker_id: Option<BrokerId>,
    #[schema(required)]
    intent: Option<IntentView>,
    psp: PspView,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CallView {
    operation: String,
    #[schema(required)]
    rq_uid: Option<String>,
    #[schema(value_type = Value)]
    request: Value,
    #[schema(required)]
    http_status: Option<i32>,
    #[schema(required, value_type = Option<Value>)]
    response: Option<Value>,
    #[schema(required)]
    error: Option<String>,
    took_us: i64,
    at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct EvidenceView {
    /// Missing, as the intent, where this database was restored to an older time.
    #[schema(required)]
    broker_id: Option<BrokerId>,
    #[schema(required)]
    intent: Option<IntentView>,
    psp: PspView,
    events: Vec<IntentEventView>,
    /// The newest calls to the provider and their answers, secrets masked, in their order.
    calls: Vec<CallView>,
    /// What the provider has said came in for it, by itself; amounts are in minor units.
    incoming: Vec<CameInView>,
    /// What the provider's statements say of it; amounts are in minor units.
    statement: Vec<LineView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CameInView {
    id: Uuid,
    /// The provider's name for it.
    payment_id: String,
    currency_code: String,
    amount_minor: u64,
    paid_at: DateTime<Utc>,
    /// `waiting`, `credited`, `suspense`, `unknown`, `assigned`
    #[schema(value_type = String)]
    status: IncomingStatus,
}

#[derive(Serialize, utoipa::ToSchema)]
struct LineView {
    uid: String,
    /// Empty where the statement has none.
    payment_id: String,
    currency_code: String,
    amount_minor: u64,
    paid_at: DateTime<Utc>,
    /// `paid`, `returned`
    #[schema(value_type = String)]
    status: LineStatus,
}

#[derive(Serialize, utoipa::ToSchema)]
struct StuckView {
    intent_id: Uuid,
    /// What can't be done: `hold_pending`, `post_pending`, `void_pending`, `return_pending`
    #[schema(value_type = String)]
    action: OutboxAction,
    /// What the last try came to.
    #[schema(required)]
    error: Option<String>,
    created_at: DateTime<Utc>,
    /// Since when nobody tries it any more.
    stuck_since: DateTime<Utc>,
}

/// List the payments that wait for a person, the oldest first.
#[utoipa::path(get, path = "/v1/admin/psp/reviews", tag = "admin", operation_id = "admin_review_list",
    params(ListQuery), responses((status = 200, body = Page<ReviewView>)))]
async fn list(
    _me: Allowed<actions::AdminReviewList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<ReviewView>>, Problem> {
    let page =
        PageRequest::<(Moment, Uuid)>::read("reviews", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let found = state.app.payments.reviews(after, page.fetch()).await?;
    let page = page.page_asking(
        found,
        |(psp, _)| (psp.created_at.into(), psp.id),
        async |(psp, intent)| {
            let broker_id = intent.as_ref().map(|intent| intent.broker);
            let intent_id = psp.intent;
            Ok(ReviewView {
                intent_id,
                broker_id,
                intent: shown(&state, intent).await?,
                psp: psp.into(),
            })
        },
    );
    Ok(Json(page.await?))
}

/// Read all that is known of a payment: its history, its row at the provider, every call made.
#[utoipa::path(get, path = "/v1/admin/psp/reviews/{id}", tag = "admin",
    operation_id = "admin_review_read", params(("id" = String, Path)),
    responses((status = 200, body = EvidenceView)))]
async fn read(
    _me: Allowed<actions::AdminReviewRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<EvidenceView>, Problem> {
    let found = state.app.payments.evidence(id).await?;
    Ok(Json(evidence(&state, found).await?))
}

/// Say what was found out at the provider: the money is posted or given back by that.
///
/// The same verdict again changes nothing. A payment that another intent has is a 409; a top-up of
/// which anything says that another amount came in is not `CONFIRMED`: a 422.
#[utoipa::path(post, path = "/v1/admin/psp/reviews/{id}/resolve", tag = "admin",
    operation_id = "admin_review_resolve", params(("id" = String, Path)),
    request_body = ResolveBody, responses((status = 200, body = EvidenceView)))]
async fn resolve(
    me: Allowed<actions::AdminReviewResolve>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
    StrictJson(body): StrictJson<ResolveBody>,
) -> Result<Json<EvidenceView>, Problem> {
    let payments = &state.app.payments;
    let finding = Finding {
        verdict: body.verdict,
        payment_id: body.payment_id.as_deref(),
        reason: &body.reason,
        by: me.principal.sub(),
    };
    let resolved = payments.resolve(id, &finding).await?;
    Ok(Json(evidence(&state, resolved).await?))
}

/// Try again what is stuck of a payment, once what was wrong is mended.
///
/// A 409 where nothing is stuck.
#[utoipa::path(post, path = "/v1/admin/psp/reviews/{id}/retry", tag = "admin",
    operation_id = "admin_payment_retry", params(("id" = String, Path)),
    responses((status = 200, body = IntentHistoryView)))]
async fn retry(
    me: Allowed<actions::AdminPaymentRetry>,
    State(state): State<AppState>,
    PathOf(id): PathOf<Uuid>,
) -> Result<Json<IntentHistoryView>, Problem> {
    let by = me.principal.sub();
    let retried = state.app.payments.retry(id, by).await?;
    Ok(Json(history(&state, retried).await?))
}

/// List what is stuck of payments: what the ledger or a book has can't be, and nothing mends it by
/// itself. The oldest come first.
#[utoipa::path(get, path = "/v1/admin/psp/stuck", tag = "admin", operation_id = "admin_stuck_list",
    params(ListQuery), responses((status = 200, body = Page<StuckView>)))]
async fn stuck(
    _me: Allowed<actions::AdminReviewList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<StuckView>>, Problem> {
    let page = PageRequest::<(Moment, Uuid)>::read("stuck", query.limit, query.cursor.as_deref())?;
    let after = page.after.map(|(at, id)| (at.at(), id));
    let found = state.app.payments.stuck(after, page.fetch()).await?;
    let place = |one: &Stuck| (one.created_at.into(), one.id);
    let page = page.page_asking(found, place, async |one| {
        Ok(StuckView {
            intent_id: one.intent,
            action: one.action,
            error: one.error,
            created_at: one.created_at,
            stuck_since: one.updated_at,
        })
    });
    Ok(Json(page.await?))
}

async fn shown(state: &AppState, intent: Option<Intent>) -> Result<Option<IntentView>, Problem> {
    match intent {
        Some(intent) => Ok(Some(view(state, intent).await?)),
        None => Ok(None),
    }
}

async fn evidence(state: &AppState, found: Evidence) -> Result<EvidenceView, Problem> {
    let broker_id = found.intent.as_ref().map(|intent| intent.broker);
    Ok(EvidenceView {
        broker_id,
        intent: shown(state, found.intent).await?,
        psp: found.psp.into(),
        events: found
            .events
            .into_iter()
            .map(IntentEventView::from)
            .collect(),
        calls: found.calls.into_iter().map(CallView::from).collect(),
        incoming: found.incoming.into_iter().map(CameInView::from).collect(),
        statement: found.lines.into_iter().map(LineView::from).collect(),
    })
}

impl From<PspTx> for PspView {
    fn from(psp: PspTx) -> Self {
        Self {
            psp_name: psp.psp,
            state: psp.state,
            query_rq_uid: psp.query_rq_uid,
            confirm_rq_uid: psp.confirm_rq_uid,
            facts: psp.facts,
            retry_count: psp.retry_count,
            last_error: psp.last_error,
            created_at: psp.created_at,
            updated_at: psp.updated_at,
        }
    }
}

impl From<Incoming> for CameInView {
    fn from(one: Incoming) -> Self {
        Self {
            id: one.id,
            payment_id: one.payment_id,
            currency_code: one.currency.to_string(),
            amount_minor: one.amount,
            paid_at: one.paid_at,
            status: one.status,
        }
    }
}

impl From<StatementLine> for LineView {
    fn from(line: StatementLine) -> Self {
        Self {
            uid: line.uid,
            payment_id: line.response_id,
            currency_code: line.currency.to_string(),
            amount_minor: line.amount,
            paid_at: line.paid_at,
            status: line.status,
        }
    }
}

impl From<PspCallRow> for CallView {
    fn from(call: PspCallRow) -> Self {
        Self {
            operation: call.operation,
            rq_uid: call.rq_uid,
            request: call.request,
            http_status: call.http_status,
            response: call.response,
            error: call.error,
            took_us: call.took_us,
            at: call.called_at,
        }
    }
}
