//! `/v1/broker`: oneself; `/v1/admin/brokers`: the members of the network.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::{StrictJson, object};
use super::paging::{Page, PageRequest};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{Role, actions};
use crate::domain::broker::{Broker, BrokerMode, BrokerPlan, BrokerState, Placement};
use crate::domain::ids::{BrokerId, UserId};
use crate::domain::pause::Pausable;
use crate::route;
use crate::services::onboarding::{self, NewMemberBroker, OnboardingError};
use crate::services::provisioning::ProvisioningError;
use crate::services::team::{NewUser, TeamError};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(own))
        .with(route!(create))
        .with(route!(list))
        .with(route!(read))
        .with(route!(suspend))
        .with(route!(resume))
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct BrokerView {
    id: BrokerId,
    name: String,
    /// `SOLO`: the book is in a shared shard; `FULL`: in a database of its own
    #[schema(value_type = String)]
    broker_mode: BrokerMode,
    /// `starter`, `growth`, `pro`
    #[schema(value_type = String)]
    plan: BrokerPlan,
    /// While a change of plan is under way: the plan that it leads to.
    #[schema(value_type = Option<String>, required)]
    plan_wanted: Option<BrokerPlan>,
    /// `provisioning`, `active`, `suspended`, `leaving`, `archived`
    #[schema(value_type = String)]
    state: BrokerState,
    #[schema(required)]
    referred_by_broker_id: Option<BrokerId>,
    created_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct AdminBrokerView {
    id: BrokerId,
    name: String,
    /// `SOLO`, `FULL`
    #[schema(value_type = String)]
    broker_mode: BrokerMode,
    /// `starter`, `growth`, `pro`
    #[schema(value_type = String)]
    plan: BrokerPlan,
    /// While a change of plan is under way: the plan that it leads to.
    #[schema(value_type = Option<String>, required)]
    plan_wanted: Option<BrokerPlan>,
    /// `provisioning`, `active`, `suspended`, `leaving`, `archived`
    #[schema(value_type = String)]
    state: BrokerState,
    #[schema(required)]
    referred_by_broker_id: Option<BrokerId>,
    /// Of a SOLO broker.
    #[schema(required)]
    shard_id: Option<u32>,
    /// Of a FULL broker.
    #[schema(required)]
    server_name: Option<String>,
    /// Of a FULL broker.
    #[schema(required)]
    database_name: Option<String>,
    created_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreatedView {
    broker: AdminBrokerView,
    /// The first of its people, where one was asked for.
    #[schema(required)]
    admin: Option<CreatedAdminView>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct CreatedAdminView {
    #[schema(value_type = String, example = "US-0000000a5bb4")]
    id: UserId,
    login: String,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// One line of 1 to 120 characters; no other broker has it.
    name: String,
    /// `starter` or `growth`: SOLO; `pro`: FULL
    #[schema(value_type = String, example = "starter")]
    plan: BrokerPlan,
    /// Who has invited it.
    referred_by_broker_id: Option<BrokerId>,
    /// The first of its people, as a `broker_admin`.
    #[serde(default, deserialize_with = "object")]
    admin: Option<AdminBody>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct AdminBody {
    /// 3 to 120 characters of a-z, 0-9 and . _ @ + -; upper case is taken as lower.
    login: String,
    /// 12 characters or more. It has no part in the fingerprint of the idempotency key.
    #[serde(skip_serializing)]
    #[schema(value_type = String, format = Password)]
    password: SecretString,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct SuspendBody {
    /// Told to the broker: 1 to 500 characters.
    reason: String,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// `provisioning`, `active`, `suspended`, `leaving`, `archived`
    #[param(value_type = Option<String>)]
    state: Option<BrokerState>,
}

/// Read the broker that one belongs to.
#[utoipa::path(get, path = "/v1/broker", tag = "book", operation_id = "broker_read",
    responses((status = 200, body = BrokerView)))]
async fn own(
    me: Allowed<actions::BrokerRead>,
    State(state): State<AppState>,
) -> Result<Json<BrokerView>, Problem> {
    let broker = state.app.provisioning.broker(me.seat.broker_id).await?;
    Ok(Json(broker.into()))
}

/// Create a broker with its book, and the first of its people where one is given.
///
/// A SOLO broker goes to the emptiest open shard, a FULL one gets a database on the emptiest open
/// server. After a 503 the broker may be half made: the same request finishes it.
#[utoipa::path(post, path = "/v1/admin/brokers", tag = "admin", operation_id = "admin_broker_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = CreatedView)))]
async fn create(
    me: Allowed<actions::AdminBrokerCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<CreatedView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let new = NewMemberBroker {
        name: body.name,
        plan: body.plan,
        referred_by: body.referred_by_broker_id,
        first_user: body.admin.map(|admin| NewUser {
            login: admin.login,
            password: admin.password,
            role: Role::BrokerAdmin,
        }),
    };
    let here = state.clone();
    let work = async move {
        let places = &here.app.provisioning;
        let now = here.clock.now();
        onboarding::create_broker(places, &here.team, new, &intention, now).await
    };
    let (broker, member) = state.lifecycle.detached(work).await??;
    let created = CreatedView {
        broker: broker.into(),
        admin: member.map(|member| CreatedAdminView {
            id: member.user_id,
            login: member.login,
        }),
    };
    Ok((StatusCode::CREATED, Json(created)))
}

/// List brokers, newest first.
#[utoipa::path(get, path = "/v1/admin/brokers", tag = "admin", operation_id = "admin_broker_list",
    params(ListQuery), responses((status = 200, body = Page<AdminBrokerView>)))]
async fn list(
    _me: Allowed<actions::AdminBrokerList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<AdminBrokerView>>, Problem> {
    let page = PageRequest::<BrokerId>::read("brokers", query.limit, query.cursor.as_deref())?;
    let places = &state.app.provisioning;
    let found = places
        .brokers(query.state, page.after, page.fetch())
        .await?;
    Ok(Json(page.page(
        found,
        |broker| broker.id,
        AdminBrokerView::from,
    )))
}

/// Read a broker.
#[utoipa::path(get, path = "/v1/admin/brokers/{id}", tag = "admin", operation_id = "admin_broker_read",
    params(("id" = u64, Path)), responses((status = 200, body = AdminBrokerView)))]
async fn read(
    _me: Allowed<actions::AdminBrokerRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
) -> Result<Json<AdminBrokerView>, Problem> {
    Ok(Json(state.app.provisioning.broker(id).await?.into()))
}

/// Suspend a broker: it finishes what is in flight and starts nothing new.
///
/// It is a pause of the broker, and listed with the others.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/suspend", tag = "admin",
    operation_id = "admin_broker_suspend", params(("id" = u64, Path)), request_body = SuspendBody,
    responses((status = 200, body = AdminBrokerView)))]
async fn suspend(
    me: Allowed<actions::AdminBrokerSuspend>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
    StrictJson(body): StrictJson<SuspendBody>,
) -> Result<Json<AdminBrokerView>, Problem> {
    let (now, by) = (state.clock.now(), me.principal.sub());
    let what = Pausable::Broker(id);
    let pauses = &state.app.pauses;
    pauses.pause(what, &body.reason, by, None, now).await?;
    Ok(Json(state.app.provisioning.broker(id).await?.into()))
}

/// Lift a broker's suspension.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/resume", tag = "admin",
    operation_id = "admin_broker_resume", params(("id" = u64, Path)),
    responses((status = 200, body = AdminBrokerView)))]
async fn resume(
    me: Allowed<actions::AdminBrokerResume>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
) -> Result<Json<AdminBrokerView>, Problem> {
    let (now, by) = (state.clock.now(), me.principal.sub());
    let pauses = &state.app.pauses;
    pauses.resume(Pausable::Broker(id), None, by, now).await?;
    Ok(Json(state.app.provisioning.broker(id).await?.into()))
}

impl From<Broker> for BrokerView {
    fn from(broker: Broker) -> Self {
        Self {
            id: broker.id,
            name: broker.name,
            broker_mode: broker.mode,
            plan: broker.plan,
            plan_wanted: broker.plan_wanted,
            state: broker.state,
            referred_by_broker_id: broker.referred_by,
            created_at: broker.created_at,
        }
    }
}

impl From<Broker> for AdminBrokerView {
    fn from(broker: Broker) -> Self {
        let (shard_id, server_name, database_name) = match broker.placement {
            Some(Placement::Shard(shard)) => (Some(shard), None, None),
            Some(Placement::Own { server, database }) => (None, Some(server), Some(database)),
            None => (None, None, None),
        };
        Self {
            id: broker.id,
            name: broker.name,
            broker_mode: broker.mode,
            plan: broker.plan,
            plan_wanted: broker.plan_wanted,
            state: broker.state,
            referred_by_broker_id: broker.referred_by,
            shard_id,
            server_name,
            database_name,
            created_at: broker.created_at,
        }
    }
}

impl From<OnboardingError> for Problem {
    fn from(error: OnboardingError) -> Self {
        let detail = error.to_string();
        match error {
            OnboardingError::Broker(error) => error.into(),
            // The fields of the user are inside `admin` here.
            OnboardingError::User(TeamError::Login) => Self::invalid("admin.login", detail),
            OnboardingError::User(TeamError::Password) => Self::invalid("admin.password", detail),
            OnboardingError::User(error) => error.into(),
        }
    }
}

impl From<ProvisioningError> for Problem {
    fn from(error: ProvisioningError) -> Self {
        let detail = error.to_string();
        match error {
            ProvisioningError::InvalidName => Self::invalid("name", detail),
            ProvisioningError::InvalidDatabase => Self::invalid("database_name", detail),
            ProvisioningError::NameTaken { id } => Self::new(Code::NameTaken)
                .detail(detail)
                .with("broker_id", id),
            ProvisioningError::KeyReused => Self::new(Code::KeyReused),
            ProvisioningError::NoSuchBroker { .. } | ProvisioningError::NoSuchShard { .. } => {
                Self::new(Code::NotFound)
            }
            ProvisioningError::NoSuchReferrer { .. } => {
                Self::invalid("referred_by_broker_id", detail)
            }
            ProvisioningError::NoShard | ProvisioningError::NoServer => {
                Self::new(Code::NoRoom).detail(detail)
            }
            ProvisioningError::AnotherShard { .. }
            | ProvisioningError::Occupied { .. }
            | ProvisioningError::ShardInUse { .. } => Self::new(Code::Conflict).detail(detail),
            ProvisioningError::NoSuchServer { .. } => Self::invalid("server_name", detail),
            ProvisioningError::Hindered(hindrance) => hindrance.into(),
            ProvisioningError::Store(error) => error.into(),
            ProvisioningError::Migration { .. } => {
                tracing::error!(error = %detail, "a database could not be migrated");
                Self::new(Code::Unavailable)
                    .detail("The database could not be made ready; the same request goes on.")
                    .retry_after(5)
            }
            ProvisioningError::BrokenOff => Self::internal(&error),
        }
    }
}
