//! `/v1/transactions` and `/v1/chain`: the entries of one's own book, to look at and to verify.

use axum::Json;
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, VARY};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::guard::Allowed;
use super::money::exponent_of;
use super::paging::{Page, PageRequest};
use super::params::QueryOf;
use super::problem::Problem;
use super::routes::Routes;
use super::state::AppState;
use crate::domain::access::{BrokerSeat, actions};
use crate::domain::account::Side;
use crate::domain::canonical::Hash;
use crate::domain::chain::{ExportedEntry, Head};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::format_minor;
use crate::route;
use crate::services::books::StoredEntry;

/// Entries of a part where the caller doesn't say.
const PART_DEFAULT: u32 = 100;
/// Most entries of a part.
const PART_MAX: u32 = 1_000;

/// The lines of `docs/formats.md`.
pub(super) const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");
/// Where the chain ends, as `SEQ:HASH`, beside lines that can't say it.
const HEAD: HeaderName = HeaderName::from_static("settlenet-chain-head");

pub fn routes() -> Routes {
    Routes::new().with(route!(transactions)).with(route!(chain))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct EntriesQuery {
    limit: Option<u32>,
    cursor: Option<String>,
}

#[derive(Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
struct ChainQuery {
    /// Also give entries, in order from this seq.
    from_seq: Option<u64>,
    /// How many of them, 1 to 1000; 100 where it isn't there.
    limit: Option<u32>,
}

#[derive(Serialize, utoipa::ToSchema)]
pub(super) struct TransactionView {
    seq: u64,
    /// What it books: `request.principal`, `request.commission`, `account.opening`,
    /// `account.correction`
    kind: String,
    /// What it is about: `NR-…`, `AC-…`
    subject: String,
    #[schema(value_type = String)]
    account_id: AccountId,
    /// The closed account that this credit was meant for.
    #[schema(value_type = Option<String>, required)]
    diverted_from: Option<AccountId>,
    /// `debit`, `credit`
    #[schema(value_type = String)]
    side: Side,
    #[schema(example = "10000.00")]
    amount: String,
    currency_code: String,
    /// Of the account, after it.
    balance: String,
    #[schema(required)]
    reverses_seq: Option<u64>,
    /// The operation that booked it; the entries of one stand in several books.
    saga_id: Uuid,
    step: u16,
    leg: u16,
    booked_at: DateTime<Utc>,
    /// Free text beside the chain; null where there is none, or it was erased.
    #[schema(value_type = Value, required)]
    private: Option<Value>,
    #[schema(value_type = String)]
    op_digest: Hash,
    #[schema(value_type = String)]
    prev_hash: Hash,
    #[schema(value_type = String)]
    tx_hash: Hash,
}

#[derive(Serialize, utoipa::ToSchema)]
struct HeadView {
    /// 0 in an empty chain.
    seq: u64,
    /// The genesis hash in an empty chain.
    #[schema(value_type = String)]
    hash: Hash,
}

#[derive(Serialize, utoipa::ToSchema)]
struct ChainView {
    broker_id: BrokerId,
    head: HeadView,
    /// Entries as docs/formats.md describes them, with numbers as strings and amounts in minor
    /// units; null where `from_seq` wasn't asked for.
    #[schema(value_type = Option<Vec<Value>>, required)]
    entries: Option<Vec<ExportedEntry>>,
    /// `from_seq` for what follows; null at the head.
    #[schema(required)]
    next_seq: Option<u64>,
}

/// List the entries of one's book, newest first.
#[utoipa::path(get, path = "/v1/transactions", tag = "book", operation_id = "transaction_list",
    params(EntriesQuery), responses((status = 200, body = Page<TransactionView>)))]
async fn transactions(
    me: Allowed<actions::TransactionList>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<EntriesQuery>,
) -> Result<Json<Page<TransactionView>>, Problem> {
    transaction_page(&state, me.seat, None, &query).await
}

/// Read the head of one's chain, and its entries for verifying them.
///
/// The entries come oldest first. With `Accept: application/x-ndjson` they come as the lines of
/// an exported chain, from seq 1 where `from_seq` isn't there, and the head in the header
/// `settlenet-chain-head`: joined, the parts are what `settlenet verify chain --file` reads.
#[utoipa::path(get, path = "/v1/chain", tag = "book", operation_id = "chain_read",
    params(ChainQuery), responses((status = 200, content(
        (ChainView = "application/json"), (String = "application/x-ndjson")))))]
async fn chain(
    me: Allowed<actions::ChainRead>,
    State(state): State<AppState>,
    QueryOf(query): QueryOf<ChainQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let lines = asks_for_lines(&headers);
    if query.from_seq == Some(0) {
        return Err(Problem::invalid("from_seq", "the first entry has seq 1"));
    }
    let from_seq = query.from_seq.or(lines.then_some(1));
    if query
        .limit
        .is_some_and(|limit| !(1..=PART_MAX).contains(&limit))
    {
        return Err(Problem::invalid("limit", format!("1 to {PART_MAX}")));
    }
    let broker = me.seat.broker_id;
    let Some(from_seq) = from_seq else {
        if query.limit.is_some() {
            return Err(Problem::invalid("limit", "goes with from_seq"));
        }
        let head = state.app.books.head(broker).await?;
        return Ok(Json(chain_view(broker, head, None)).into_response());
    };
    let limit = query.limit.unwrap_or(PART_DEFAULT);
    let (head, entries) = state
        .app
        .books
        .entries_after(broker, from_seq - 1, limit)
        .await?;
    let entries: Vec<_> = entries.iter().map(StoredEntry::exported).collect();
    if !lines {
        return Ok(Json(chain_view(broker, head, Some(entries))).into_response());
    }
    let mut text = String::new();
    for entry in &entries {
        text.push_str(&entry.to_line().map_err(|error| Problem::internal(&error))?);
    }
    let mut response = text.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, NDJSON);
    headers.insert(VARY, HeaderValue::from_static("accept"));
    if let Ok(head) = HeaderValue::from_str(&head.to_string()) {
        headers.insert(HEAD, head);
    }
    Ok(response)
}

fn chain_view(broker_id: BrokerId, head: Head, entries: Option<Vec<ExportedEntry>>) -> ChainView {
    let last = entries
        .as_ref()
        .and_then(|entries| entries.last()?.entry.seq.parse::<u64>().ok());
    ChainView {
        broker_id,
        next_seq: last.filter(|last| *last < head.seq).map(|last| last + 1),
        head: HeadView {
            seq: head.seq,
            hash: head.hash,
        },
        entries,
    }
}

fn asks_for_lines(headers: &HeaderMap) -> bool {
    headers
        .get_all(ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next() == Some("application/x-ndjson");
            let refused = parts.any(|part| {
                let weight = part.strip_prefix("q=");
                weight.and_then(|weight| weight.parse().ok()) == Some(0.0)
            });
            named && !refused
        })
}

/// A page of entries of one account or of all.
pub(super) async fn transaction_page(
    state: &AppState,
    seat: BrokerSeat,
    account: Option<AccountId>,
    query: &EntriesQuery,
) -> Result<Json<Page<TransactionView>>, Problem> {
    let page = PageRequest::<u64>::read("transactions", query.limit, query.cursor.as_deref())?;
    let found = state
        .app
        .books
        .transactions(seat.broker_id, account, page.after, page.fetch())
        .await?;
    let seq = |stored: &StoredEntry| stored.entry.seq;
    let page = page.page_asking(found, seq, |stored| transaction_view(state, stored));
    Ok(Json(page.await?))
}

/// An entry as its broker sees it.
pub(super) async fn transaction_view(
    state: &AppState,
    stored: StoredEntry,
) -> Result<TransactionView, Problem> {
    let entry = stored.entry;
    let exponent = exponent_of(state, entry.currency.as_str()).await?;
    Ok(TransactionView {
        seq: entry.seq,
        kind: entry.kind.as_str().to_owned(),
        subject: entry.subject,
        account_id: entry.account,
        diverted_from: entry.diverted_from,
        side: entry.side,
        amount: format_minor(i128::from(entry.amount), exponent),
        currency_code: entry.currency.into(),
        balance: format_minor(i128::from(entry.balance), exponent),
        reverses_seq: entry.reverses_seq,
        saga_id: entry.saga_id,
        step: entry.step,
        leg: entry.leg,
        booked_at: entry.booked_at,
        private: stored.private,
        op_digest: entry.op_digest,
        prev_hash: entry.prev_hash,
        tx_hash: stored.tx_hash,
    })
}
