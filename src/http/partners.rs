//! `/v1/partners`: one's clients and counterparts.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};

use super::accounts::{self, AccountView};
use super::guard::Allowed;
use super::idempotency::IdempotencyKey;
use super::json::StrictJson;
use super::paging::{Page, PageRequest, Place};
use super::params::{PathOf, QueryOf};
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::ids::{BrokerId, PartnerId};
use crate::domain::partner::{
    Change, Edit, Fact, Facts, MAX_NAME, Partner, PartnerKind, PartnerState, Search,
};
use crate::domain::text;
use crate::route;
use crate::services::partners::{NewPartner, PartnerError, PartnerFilter};

pub fn routes() -> Routes {
    Routes::new()
        .with(route!(list))
        .with(route!(create))
        .with(route!(read))
        .with(route!(change))
        .with(route!(archive))
        .with(route!(restore))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    limit: Option<u32>,
    cursor: Option<String>,
    /// The beginning of a name, in any case; or of a uid, `FO-` and up to 12 hex digits.
    q: Option<String>,
    /// `online`, `offline`
    #[param(value_type = Option<String>)]
    kind: Option<PartnerKind>,
    /// `active`, `archived`
    #[param(value_type = Option<String>)]
    state: Option<PartnerState>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PartnerView {
    #[schema(value_type = String, example = "FO-0a5bb4c3d2e1")]
    id: PartnerId,
    /// `online`: another broker of the network; `offline`
    #[schema(value_type = String)]
    kind: PartnerKind,
    display_name: String,
    #[schema(required)]
    phone: Option<String>,
    #[schema(required)]
    contacts: Option<String>,
    #[schema(required)]
    note: Option<String>,
    /// Of an online one: the broker that it is.
    #[schema(required)]
    platform_broker_id: Option<BrokerId>,
    /// `active`, `archived`
    #[schema(value_type = String)]
    state: PartnerState,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct PartnerWithAccounts {
    partner: PartnerView,
    /// Those whose `owner_ref` is the partner's uid, by currency.
    accounts: Vec<AccountView>,
}

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
struct CreateBody {
    /// `online`: another broker of the network; `offline`: all others
    #[schema(value_type = String, example = "offline")]
    kind: PartnerKind,
    /// One line of 1 to 120 characters.
    #[schema(example = "Anna Ivanova")]
    display_name: String,
    /// At most 32 characters.
    phone: Option<String>,
    /// At most 1000 characters.
    contacts: Option<String>,
    /// At most 1000 characters.
    note: Option<String>,
    /// Of an online one: the number of the broker that it is.
    platform_broker_id: Option<BrokerId>,
}

/// What isn't there stays as it is; null erases.
#[derive(Deserialize, utoipa::ToSchema)]
struct ChangeBody {
    /// One line of 1 to 120 characters.
    display_name: Option<String>,
    /// At most 32 characters.
    #[serde(default, deserialize_with = "fact")]
    #[schema(value_type = Option<String>)]
    phone: Fact,
    /// At most 1000 characters.
    #[serde(default, deserialize_with = "fact")]
    #[schema(value_type = Option<String>)]
    contacts: Fact,
    /// At most 1000 characters.
    #[serde(default, deserialize_with = "fact")]
    #[schema(value_type = Option<String>)]
    note: Fact,
    /// The broker of the network that the partner is: it is online from then on, and stays so.
    platform_broker_id: Option<BrokerId>,
}

/// A field that is there, be it null.
fn fact<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Fact, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.map_or(Fact::Erased, Fact::Is))
}

/// List one's partners, newest first.
#[utoipa::path(get, path = "/v1/partners", tag = "book", operation_id = "partner_list",
    params(ListQuery), responses((status = 200, body = Page<PartnerView>)))]
async fn list(
    me: Allowed<actions::PartnerList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ListQuery>,
) -> Result<Json<Page<PartnerView>>, Problem> {
    let page = PageRequest::<Place>::read("partners", query.limit, query.cursor.as_deref())?;
    let after = page
        .after
        .map(|(at, id)| (at.at(), PartnerId::from_bits(id)));
    if let Some(typed) = &query.q
        && let Err(rule) = text::line(typed, MAX_NAME)
    {
        return Err(Problem::invalid("q", rule.to_string()));
    }
    let filter = PartnerFilter {
        search: query.q.as_deref().and_then(Search::parse),
        kind: query.kind,
        state: query.state,
    };
    let found = state
        .app
        .partners
        .list(me.seat.broker_id, filter, after, page.fetch())
        .await?;
    let place = |partner: &Partner| (partner.created_at.into(), partner.id.bits());
    Ok(Json(page.page(found, place, PartnerView::from)))
}

/// Record a partner.
///
/// Plans bound how many offline ones are active: one too many is a 403 `plan_limit` that names
/// the plan which lifts it. A broker of the network is a partner once.
#[utoipa::path(post, path = "/v1/partners", tag = "book", operation_id = "partner_create",
    params(("Idempotency-Key" = String, Header, description = "One per intended operation.")),
    request_body = CreateBody, responses((status = 201, body = PartnerView)))]
async fn create(
    me: Allowed<actions::PartnerCreate>,
    State(state): State<AppState>,
    key: IdempotencyKey,
    StrictJson(body): StrictJson<CreateBody>,
) -> Result<(StatusCode, Json<PartnerView>), Problem> {
    let intention = key.intention(me.principal.sub(), &body);
    let new = NewPartner {
        kind: body.kind,
        facts: Facts {
            display_name: body.display_name,
            phone: body.phone,
            contacts: body.contacts,
            note: body.note,
        },
        platform_broker_id: body.platform_broker_id,
    };
    let (partners, now) = (state.app.partners.clone(), state.clock.now());
    let work = async move {
        partners
            .create(me.seat.broker_id, &intention, new, now)
            .await
    };
    let partner = state.lifecycle.detached(work).await??;
    Ok((StatusCode::CREATED, Json(partner.into())))
}

/// Read a partner, with its accounts.
#[utoipa::path(get, path = "/v1/partners/{id}", tag = "book", operation_id = "partner_read",
    params(("id" = String, Path)), responses((status = 200, body = PartnerWithAccounts)))]
async fn read(
    me: Allowed<actions::PartnerRead>,
    State(state): State<AppState>,
    PathOf(id): PathOf<PartnerId>,
) -> Result<Json<PartnerWithAccounts>, Problem> {
    let (partner, found) = state.app.partners.get(me.seat.broker_id, id).await?;
    let mut accounts = Vec::with_capacity(found.len());
    for account in found {
        accounts.push(accounts::view(&state, account).await?);
    }
    Ok(Json(PartnerWithAccounts {
        partner: partner.into(),
        accounts,
    }))
}

/// Change what is known of a partner.
///
/// Name, phone, contacts and note stand in this record only: what is erased here is gone.
#[utoipa::path(post, path = "/v1/partners/{id}", tag = "book", operation_id = "partner_change",
    params(("id" = String, Path)), request_body = ChangeBody,
    responses((status = 200, body = PartnerView)))]
async fn change(
    me: Allowed<actions::PartnerChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<PartnerId>,
    StrictJson(body): StrictJson<ChangeBody>,
) -> Result<Json<PartnerView>, Problem> {
    let edit = Edit {
        display_name: body.display_name,
        phone: body.phone,
        contacts: body.contacts,
        note: body.note,
        platform_broker_id: body.platform_broker_id,
    };
    changed(&state, me.seat.broker_id, id, Change::Edit(edit)).await
}

/// Archive a partner without open accounts: it takes no place of the plan any more.
#[utoipa::path(post, path = "/v1/partners/{id}/archive", tag = "book",
    operation_id = "partner_archive", params(("id" = String, Path)),
    responses((status = 200, body = PartnerView)))]
async fn archive(
    me: Allowed<actions::PartnerChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<PartnerId>,
) -> Result<Json<PartnerView>, Problem> {
    changed(&state, me.seat.broker_id, id, Change::Archive).await
}

/// Bring an archived partner back, where the plan has room for it.
#[utoipa::path(post, path = "/v1/partners/{id}/restore", tag = "book",
    operation_id = "partner_restore", params(("id" = String, Path)),
    responses((status = 200, body = PartnerView)))]
async fn restore(
    me: Allowed<actions::PartnerChange>,
    State(state): State<AppState>,
    PathOf(id): PathOf<PartnerId>,
) -> Result<Json<PartnerView>, Problem> {
    changed(&state, me.seat.broker_id, id, Change::Restore).await
}

async fn changed(
    state: &AppState,
    broker: BrokerId,
    id: PartnerId,
    change: Change,
) -> Result<Json<PartnerView>, Problem> {
    let (partners, now) = (state.app.partners.clone(), state.clock.now());
    let work = async move { partners.change(broker, id, change, now).await };
    Ok(Json(state.lifecycle.detached(work).await??.into()))
}

impl From<Partner> for PartnerView {
    fn from(partner: Partner) -> Self {
        Self {
            id: partner.id,
            kind: partner.kind,
            display_name: partner.facts.display_name,
            phone: partner.facts.phone,
            contacts: partner.facts.contacts,
            note: partner.facts.note,
            platform_broker_id: partner.platform_broker_id,
            state: partner.state,
            created_at: partner.created_at,
            updated_at: partner.updated_at,
        }
    }
}

impl From<PartnerError> for Problem {
    fn from(error: PartnerError) -> Self {
        let detail = error.to_string();
        match error {
            PartnerError::Facts(wrong) => Self::invalid(wrong.field, detail),
            PartnerError::PlatformAccount | PartnerError::NoSuchBroker { .. } => {
                Self::invalid("platform_broker_id", detail)
            }
            PartnerError::Known { partner, .. } => Self::new(Code::PartnerKnown)
                .detail(detail)
                .with("partner_id", partner.to_string()),
            PartnerError::Plan(reached) => reached.into(),
            PartnerError::HasAccounts { .. } => Self::new(Code::Conflict).detail(detail),
            PartnerError::Hindered(hindrance) => hindrance.into(),
            PartnerError::NoSuchPartner => Self::new(Code::NotFound),
            PartnerError::KeyReused => Self::new(Code::KeyReused),
            PartnerError::Book(error) => error.into(),
            PartnerError::Change(error) => error.into(),
            PartnerError::Store(error) => error.into(),
        }
    }
}
