//! `/v1/admin/brokers/{id}/offboard`: a broker leaves the network.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::guard::Allowed;
use super::json::StrictJson;
use super::money::exponent_of;
use super::params::PathOf;
use super::problem::{Code, Problem};
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::actions;
use crate::domain::account::OwnerKind;
use crate::domain::broker::BrokerState;
use crate::domain::canonical::Hash;
use crate::domain::ids::{AccountId, BrokerId, RequestId};
use crate::domain::money::format_minor;
use crate::domain::payment::incoming::IncomingStatus;
use crate::domain::payment::{IntentStatus, PspName};
use crate::domain::request::RequestStatus;
use crate::domain::saga::{SagaKind, SagaStatus};
use crate::route;
use crate::services::book_files::BookFileError;
use crate::services::offboarding::{Exit, ExitError, NAMED, Outstanding, Section};

pub fn routes() -> Routes {
    Routes::new().with(route!(read)).with(route!(offboard))
}

#[derive(Serialize, utoipa::ToSchema)]
struct ExitView {
    broker_id: BrokerId,
    /// `leaving` once nothing was outstanding; `archived` once its book is exported, which is
    /// done at the command line.
    #[schema(value_type = String)]
    state: BrokerState,
    /// Whether something must be settled first.
    settled: bool,
    outstanding: OutstandingView,
    /// Once it is archived.
    #[schema(required)]
    archived: Option<ArchivedView>,
}

/// All that must be settled first. Of each kind all are counted, and 100 named.
#[derive(Serialize, utoipa::ToSchema)]
struct OutstandingView {
    requests: Counted<RequestLine>,
    sagas: Counted<SagaLine>,
    obligations: Counted<ObligationLine>,
    reservations: Counted<ReservationLine>,
    balances: Counted<BalanceLine>,
    /// Payments through providers that are not over.
    intents: Counted<IntentLine>,
    /// Wallets with money on them, or held.
    wallets: Counted<WalletLine>,
    /// What came in for its top-ups and is nobody's yet.
    incoming: Counted<IncomingLine>,
    /// The move of its book that goes on.
    #[schema(required)]
    move_id: Option<uuid::Uuid>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct Counted<T> {
    count: u64,
    items: Vec<T>,
}

#[derive(Serialize, utoipa::ToSchema)]
struct RequestLine {
    #[schema(value_type = String)]
    id: RequestId,
    #[schema(value_type = String)]
    status: RequestStatus,
}

#[derive(Serialize, utoipa::ToSchema)]
struct SagaLine {
    id: uuid::Uuid,
    #[schema(value_type = String)]
    kind: SagaKind,
    subject: String,
    #[schema(value_type = String)]
    status: SagaStatus,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ObligationLine {
    counterparty_broker_id: BrokerId,
    currency_code: String,
    /// The counterparty owes the broker.
    #[schema(example = "10000.00")]
    owed: String,
    /// The broker owes the counterparty.
    owing: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ReservationLine {
    #[schema(value_type = String)]
    account_id: AccountId,
    subject: String,
    /// In minor units of the account's currency.
    amount_minor: String,
}

/// An account with somebody else's money: whose it is stands in the broker's book, which the
/// platform does not see.
#[derive(Serialize, utoipa::ToSchema)]
struct BalanceLine {
    #[schema(value_type = String)]
    account_id: AccountId,
    #[schema(value_type = String)]
    owner_kind: OwnerKind,
    currency_code: String,
    balance: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct IntentLine {
    id: uuid::Uuid,
    #[schema(value_type = String)]
    channel: PspName,
    #[schema(value_type = String)]
    status: IntentStatus,
}

#[derive(Serialize, utoipa::ToSchema)]
struct WalletLine {
    #[schema(example = "merchant.7.THB")]
    wallet: String,
    currency_code: String,
    balance: String,
    /// What can be paid out of it.
    available: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct IncomingLine {
    id: uuid::Uuid,
    #[schema(value_type = String)]
    psp_name: PspName,
    #[schema(value_type = String)]
    status: IncomingStatus,
    amount: String,
    currency_code: String,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ArchivedView {
    /// SHA-256 of the first line of the exported file, which has the digests of all others.
    #[schema(value_type = String)]
    export_digest: Hash,
    head_seq: String,
    #[schema(value_type = String)]
    head_hash: Hash,
    archived_by: String,
    archived_at: DateTime<Utc>,
}

#[derive(Deserialize, utoipa::ToSchema)]
struct OffboardBody {
    /// `true` for a broker that stays after all; it can until it is archived.
    cancel: Option<bool>,
}

/// Read what must be settled before a broker can leave, and how far it is.
#[utoipa::path(get, path = "/v1/admin/brokers/{id}/offboard", tag = "admin",
    operation_id = "admin_broker_exit", params(("id" = u64, Path)),
    responses((status = 200, body = ExitView)))]
async fn read(
    _me: Allowed<actions::AdminBrokerExit>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
) -> Result<Json<ExitView>, Problem> {
    let exit = state.app.offboarding.look(id).await?;
    Ok(Json(view(&state, exit).await?))
}

/// Let a broker leave.
///
/// Where something must be settled first, that is told and nothing is changed. Else the broker is
/// `leaving`: it starts nothing new. Its book is exported and it is archived at the command line
/// (`settlenet admin broker offboard`), because the platform sees no book over REST.
#[utoipa::path(post, path = "/v1/admin/brokers/{id}/offboard", tag = "admin",
    operation_id = "admin_broker_offboard", params(("id" = u64, Path)),
    request_body = OffboardBody, responses((status = 200, body = ExitView)))]
async fn offboard(
    me: Allowed<actions::AdminBrokerOffboard>,
    State(state): State<AppState>,
    PathOf(id): PathOf<BrokerId>,
    StrictJson(body): StrictJson<OffboardBody>,
) -> Result<Json<ExitView>, Problem> {
    let (now, by) = (state.clock.now(), me.principal.sub().to_owned());
    let exits = state.app.offboarding.clone();
    let work = async move {
        if body.cancel.unwrap_or(false) {
            exits.stay(id, &by, now).await?;
            return exits.look(id).await;
        }
        exits.begin(id, &by, now).await
    };
    let exit = state.lifecycle.detached(work).await??;
    Ok(Json(view(&state, exit).await?))
}

async fn view(state: &AppState, exit: Exit) -> Result<ExitView, Problem> {
    Ok(ExitView {
        broker_id: exit.broker.id,
        state: exit.broker.state,
        settled: exit.outstanding.is_nothing(),
        outstanding: outstanding(state, exit.outstanding).await?,
        archived: exit.archived.map(|kept| ArchivedView {
            export_digest: kept.export_digest,
            head_seq: kept.head.seq.to_string(),
            head_hash: kept.head.hash,
            archived_by: kept.by,
            archived_at: kept.at,
        }),
    })
}

async fn outstanding(state: &AppState, found: Outstanding) -> Result<OutstandingView, Problem> {
    let mut obligations = Vec::with_capacity(NAMED);
    for position in found.obligations.first {
        let exponent = exponent_of(state, &position.currency_code).await?;
        let money = |minor: u64| format_minor(i128::from(minor), exponent);
        obligations.push(ObligationLine {
            counterparty_broker_id: position.counterparty,
            owed: money(position.owed),
            owing: money(position.owing),
            currency_code: position.currency_code,
        });
    }
    let mut balances = Vec::with_capacity(NAMED);
    for open in found.balances.first {
        let exponent = exponent_of(state, open.owner.currency.as_str()).await?;
        balances.push(BalanceLine {
            account_id: open.owner.id(),
            owner_kind: open.owner.owner_kind,
            balance: format_minor(i128::from(open.balance), exponent),
            currency_code: open.owner.currency.into(),
        });
    }
    let mut wallets = Vec::with_capacity(NAMED);
    for found in found.wallets.first {
        let exponent = exponent_of(state, found.wallet.currency.as_str()).await?;
        wallets.push(WalletLine {
            balance: format_minor(found.balances.posted(), exponent),
            available: format_minor(found.available(), exponent),
            wallet: found.wallet.name.to_string(),
            currency_code: found.wallet.currency.into(),
        });
    }
    let mut incoming = Vec::with_capacity(NAMED);
    for one in found.incoming.first {
        let exponent = exponent_of(state, one.currency.as_str()).await?;
        incoming.push(IncomingLine {
            id: one.id,
            psp_name: one.psp,
            status: one.status,
            amount: format_minor(i128::from(one.amount), exponent),
            currency_code: one.currency.into(),
        });
    }
    Ok(OutstandingView {
        requests: counted(found.requests, |open| RequestLine {
            id: open.id,
            status: open.status,
        }),
        sagas: counted(found.sagas, |open| SagaLine {
            id: open.id,
            kind: open.kind,
            subject: open.subject,
            status: open.status,
        }),
        obligations: Counted {
            count: found.obligations.count,
            items: obligations,
        },
        reservations: counted(found.reservations, |held| ReservationLine {
            account_id: held.account,
            subject: held.subject,
            amount_minor: held.amount.to_string(),
        }),
        balances: Counted {
            count: found.balances.count,
            items: balances,
        },
        intents: counted(found.intents, |intent| IntentLine {
            id: intent.id,
            channel: intent.channel,
            status: intent.status,
        }),
        wallets: Counted {
            count: found.wallets.count,
            items: wallets,
        },
        incoming: Counted {
            count: found.incoming.count,
            items: incoming,
        },
        move_id: found.moving,
    })
}

fn counted<R, T>(section: Section<R>, line: impl Fn(R) -> T) -> Counted<T> {
    Counted {
        count: section.count,
        items: section.first.into_iter().map(line).collect(),
    }
}

impl From<ExitError> for Problem {
    fn from(error: ExitError) -> Self {
        let detail = error.to_string();
        match error {
            ExitError::NoSuchBroker { .. } => Self::new(Code::NotFound).detail(detail),
            ExitError::State { .. } | ExitError::Outstanding | ExitError::AnotherBroker { .. } => {
                Self::new(Code::Conflict).detail(detail)
            }
            ExitError::Payments(error) => error.into(),
            ExitError::Store(error) | ExitError::File(BookFileError::Store(error)) => error.into(),
            ExitError::Fence(_) | ExitError::File(_) => Self::internal(&error),
        }
    }
}
