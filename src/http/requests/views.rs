//! How a request and its events look on the wire.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::access::BrokerSeat;
use crate::domain::account::AccountRef;
use crate::domain::canonical::Hash;
use crate::domain::ids::{AccountId, BrokerId, ObligationId, RequestId};
use crate::domain::money::format_minor;
use crate::domain::request::{Proposal, Request, RequestKind, RequestStatus};
use crate::domain::request_event::Event;
use crate::domain::terms::{CommissionSize, ObligationTerm, Party};
use crate::http::problem::Problem;
use crate::http::state::AppState;

#[derive(Deserialize, Serialize, utoipa::ToSchema)]
pub(in crate::http) struct CommissionBody {
    /// `author`, `counterparty`
    #[schema(value_type = String)]
    pub(in crate::http) payer: Party,
    /// Decimal string in major units; or `basis_points`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::http) amount: Option<String>,
    /// Hundredths of a percent, 1 to 9999; rounded half up to the minor unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::http) basis_points: Option<u32>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(in crate::http) struct RequestView {
    #[schema(value_type = String, example = "NR-0a5bb4c3d2e1")]
    id: RequestId,
    author_broker_id: BrokerId,
    #[schema(required)]
    target_broker_id: Option<BrokerId>,
    broadcast: bool,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    kind: RequestKind,
    #[schema(value_type = String)]
    status: RequestStatus,
    version: u32,
    currency_code: String,
    amount: String,
    #[schema(required)]
    received_amount: Option<String>,
    method: String,
    #[schema(required)]
    city_code: Option<String>,
    /// Null for everybody but the parties.
    #[schema(required)]
    counterpart_uid: Option<String>,
    /// Null for everybody but the parties.
    #[schema(required)]
    contact: Option<String>,
    /// Null for everybody but the parties: it may say how to reach somebody.
    #[schema(required)]
    note: Option<String>,
    terms: TermsView,
    /// The caller's own account; the other side's is not shown.
    #[schema(value_type = Option<String>, required)]
    account_id: Option<AccountId>,
    /// Of a settlement: what it repays.
    #[schema(required)]
    settles: Option<SettlesView>,
    #[schema(required)]
    deadline_at: Option<DateTime<Utc>>,
    #[schema(required)]
    confirm_by: Option<DateTime<Utc>>,
    /// What one side has proposed and the other may agree to.
    #[schema(required)]
    proposal: Option<ProposalView>,
    /// The saga that works on it now; nothing else changes it meanwhile.
    #[schema(required)]
    saga_id: Option<uuid::Uuid>,
    created_at: DateTime<Utc>,
    #[schema(required)]
    accepted_at: Option<DateTime<Utc>>,
    #[schema(required)]
    sent_at: Option<DateTime<Utc>>,
    #[schema(required)]
    closed_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
}

#[derive(Serialize, utoipa::ToSchema)]
#[expect(clippy::struct_field_names, reason = "the names on the wire")]
struct SettlesView {
    debtor_broker_id: BrokerId,
    creditor_broker_id: BrokerId,
    /// The one obligation that it repays; null: the oldest first.
    #[schema(value_type = Option<String>, required)]
    obligation_id: Option<ObligationId>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(in crate::http) struct TermsView {
    #[schema(value_type = String)]
    obligation: ObligationTerm,
    #[schema(required)]
    commission: Option<CommissionBody>,
    /// The same, for people.
    words: Vec<String>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(in crate::http) struct ProposalView {
    /// `cancel`, `resend`
    kind: String,
    by_broker_id: BrokerId,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(in crate::http) struct EventView {
    seq: u32,
    kind: String,
    #[schema(required)]
    actor_broker_id: Option<BrokerId>,
    actor: String,
    at: DateTime<Utc>,
    /// In the hash.
    #[schema(value_type = Value)]
    payload: Value,
    /// Beside the hash, its digest in the payload. Null where there is none, it has been erased, or
    /// it is of the other side's book.
    #[schema(value_type = Value, required)]
    private: Option<Value>,
    #[schema(value_type = String)]
    prev_hash: Hash,
    #[schema(value_type = String)]
    event_hash: Hash,
}

impl TermsView {
    pub(in crate::http) fn of(request: &Request, exponent: u8) -> Self {
        let commission = request.terms.commission.map(|commission| {
            let (amount, basis_points) = match commission.size {
                CommissionSize::Amount(amount) => {
                    let minor = i128::from(amount.minor());
                    (Some(format_minor(minor, exponent)), None)
                }
                CommissionSize::BasisPoints(points) => (None, Some(points)),
            };
            CommissionBody {
                payer: commission.payer,
                amount,
                basis_points,
            }
        });
        Self {
            obligation: request.terms.obligation,
            commission,
            words: request.terms_in_words(exponent),
        }
    }
}

impl From<Proposal> for ProposalView {
    fn from(proposal: Proposal) -> Self {
        Self {
            kind: proposal.kind.to_string(),
            by_broker_id: proposal.by,
        }
    }
}

/// A request as a broker may see it.
pub(in crate::http) async fn view(
    state: &AppState,
    seat: BrokerSeat,
    request: Request,
) -> Result<RequestView, Problem> {
    let currency = state.app.currencies.get(&request.currency).await?;
    let exponent = currency.map_or(0, |currency| currency.exponent);
    let money = |minor: u64| format_minor(i128::from(minor), exponent);
    let shown = request.shows_contact_to(seat.broker_id);
    let party = request.party(seat.broker_id);
    Ok(RequestView {
        id: request.id,
        author_broker_id: request.author,
        target_broker_id: request.target,
        broadcast: request.broadcast,
        kind: request.kind,
        status: request.status,
        version: request.version,
        currency_code: request.currency.to_string(),
        amount: money(request.amount.minor()),
        received_amount: request.received_amount.map(|amount| money(amount.minor())),
        terms: TermsView::of(&request, exponent),
        settles: request.settles.and_then(|settles| {
            Some(SettlesView {
                debtor_broker_id: request.broker_of(settles.debtor)?,
                creditor_broker_id: request.broker_of(settles.debtor.other())?,
                obligation_id: settles.obligation,
            })
        }),
        account_id: party
            .and_then(|party| request.account_of(party))
            .map(AccountRef::id),
        method: request.method,
        city_code: request.city_code,
        counterpart_uid: request.counterpart_uid.filter(|_| shown),
        contact: request.contact.filter(|_| shown),
        note: request.note.filter(|_| shown),
        deadline_at: request.deadline_at,
        confirm_by: request.confirm_by,
        proposal: request.proposal.map(ProposalView::from),
        saga_id: request.saga_id,
        created_at: request.created_at,
        accepted_at: request.accepted_at,
        sent_at: request.sent_at,
        closed_at: request.closed_at,
        updated_at: request.updated_at,
    })
}

/// An event as a party of the request may see it.
pub(in crate::http) fn event_view(
    seat: BrokerSeat,
    (event, event_hash): (Event, Hash),
) -> EventView {
    let private = event.private_for(seat.broker_id).cloned();
    EventView {
        seq: event.seq,
        kind: event.kind.to_string(),
        actor_broker_id: event.actor_broker,
        actor: event.actor,
        at: event.at,
        payload: event.payload,
        private,
        prev_hash: event.prev_hash,
        event_hash,
    }
}
