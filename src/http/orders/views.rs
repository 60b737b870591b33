//! How an order looks on the wire: a request with the words of orders.

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use crate::domain::access::BrokerSeat;
use crate::domain::account::AccountRef;
use crate::domain::ids::{AccountId, BrokerId, RequestId};
use crate::domain::money::format_minor;
use crate::domain::request::{Request, RequestKind, RequestStatus};
use crate::domain::words::words;
use crate::http::problem::Problem;
use crate::http::requests::views::{ProposalView, TermsView};
use crate::http::state::AppState;

words!(
    /// The states of an order: those of a request, in an order's words.
    OrderStatus {
        Created = "created",
        Accepting = "accepting",
        Accepted = "accepted",
        Executed = "executed",
        Completed = "completed",
        Rejected = "rejected",
        Cancelled = "cancelled",
        Expired = "expired",
        Disputed = "disputed",
    }
);

impl From<RequestStatus> for OrderStatus {
    fn from(status: RequestStatus) -> Self {
        match status {
            RequestStatus::Pending => Self::Created,
            RequestStatus::Accepting => Self::Accepting,
            RequestStatus::Accepted => Self::Accepted,
            RequestStatus::Sent => Self::Executed,
            RequestStatus::Completed => Self::Completed,
            RequestStatus::Rejected => Self::Rejected,
            RequestStatus::Cancelled => Self::Cancelled,
            RequestStatus::Expired => Self::Expired,
            RequestStatus::Disputed => Self::Disputed,
        }
    }
}

impl From<OrderStatus> for RequestStatus {
    fn from(status: OrderStatus) -> Self {
        match status {
            OrderStatus::Created => Self::Pending,
            OrderStatus::Accepting => Self::Accepting,
            OrderStatus::Accepted => Self::Accepted,
            OrderStatus::Executed => Self::Sent,
            OrderStatus::Completed => Self::Completed,
            OrderStatus::Rejected => Self::Rejected,
            OrderStatus::Cancelled => Self::Cancelled,
            OrderStatus::Expired => Self::Expired,
            OrderStatus::Disputed => Self::Disputed,
        }
    }
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct OrderView {
    #[schema(value_type = String, example = "OR-0a5bb4c3d2e1")]
    id: RequestId,
    /// `collect`, `payout`
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: RequestKind,
    author_broker_id: BrokerId,
    #[schema(required)]
    executor_broker_id: Option<BrokerId>,
    broadcast: bool,
    #[schema(value_type = String)]
    status: OrderStatus,
    version: u32,
    currency_code: String,
    amount: String,
    /// What the author says the client got or gave, where it is less.
    #[schema(required)]
    received_amount: Option<String>,
    #[schema(required)]
    city_code: Option<String>,
    /// The author's client. Null for everybody but the parties.
    #[schema(required)]
    counterpart_uid: Option<String>,
    /// Null for everybody but the parties.
    #[schema(required)]
    contact: Option<String>,
    /// Null for everybody but the parties.
    #[schema(required)]
    note: Option<String>,
    terms: TermsView,
    /// Executed is confirmed.
    auto_confirm: bool,
    /// Whether the executor needs the code that the client shows.
    needs_pickup_code: bool,
    /// Of a payout that was created just now, or whose code was made anew: shown this once, for
    /// the client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pickup_code: Option<String>,
    /// The caller's own account: the client's or the cashier's.
    #[schema(value_type = Option<String>, required)]
    account_id: Option<AccountId>,
    #[schema(required)]
    deadline_at: Option<DateTime<Utc>>,
    #[schema(required)]
    confirm_by: Option<DateTime<Utc>>,
    #[schema(required)]
    proposal: Option<ProposalView>,
    /// The saga that works on it now; nothing else changes it meanwhile.
    #[schema(required)]
    saga_id: Option<uuid::Uuid>,
    created_at: DateTime<Utc>,
    #[schema(required)]
    accepted_at: Option<DateTime<Utc>>,
    #[schema(required)]
    executed_at: Option<DateTime<Utc>>,
    #[schema(required)]
    closed_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
}

/// An order as a broker may see it; with its code where that has just been made.
pub(super) async fn view(
    state: &AppState,
    seat: BrokerSeat,
    order: Request,
    code: Option<SecretString>,
) -> Result<OrderView, Problem> {
    let currency = state.app.currencies.get(&order.currency).await?;
    let exponent = currency.map_or(0, |currency| currency.exponent);
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    let shown = order.shows_contact_to(seat.broker_id);
    let party = order.party(seat.broker_id);
    Ok(OrderView {
        id: order.id,
        kind: order.kind,
        author_broker_id: order.author,
        executor_broker_id: order.target,
        broadcast: order.broadcast,
        status: order.status.into(),
        version: order.version,
        currency_code: order.currency.to_string(),
        amount: money(order.amount.minor()),
        received_amount: order.received_amount.map(|amount| money(amount.minor())),
        terms: TermsView::of(&order, exponent),
        auto_confirm: order.auto_confirm,
        needs_pickup_code: order.pickup_hash.is_some(),
        pickup_code: code.map(|code| code.expose_secret().to_owned()),
        account_id: party
            .and_then(|party| order.account_of(party))
            .map(AccountRef::id),
        city_code: order.city_code,
        counterpart_uid: order.counterpart_uid.filter(|_| shown),
        contact: order.contact.filter(|_| shown),
        note: order.note.filter(|_| shown),
        deadline_at: order.deadline_at,
        confirm_by: order.confirm_by,
        proposal: order.proposal.map(ProposalView::from),
        saga_id: order.saga_id,
        created_at: order.created_at,
        accepted_at: order.accepted_at,
        executed_at: order.sent_at,
        closed_at: order.closed_at,
        updated_at: order.updated_at,
    })
}
