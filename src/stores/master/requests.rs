//! `network_request` and its events. A change is applied only to the version that it was decided
//! on, with its event, in the caller's transaction.

mod page;
mod row;

pub use page::{Read, after, events_of, some};

use chrono::{DateTime, Utc};
use sqlx::types::Json;
use sqlx::{FromRow, MySql, QueryBuilder};

use super::{cities, failed};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::request::{Change, Request, RequestKind, RequestStatus};
use crate::domain::request_event::Event;
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::{chunks, padded, push_after};

use row::{EventRow, RequestRow, request_columns};

/// A change with its event sealed: what is written.
#[derive(Clone, Debug)]
pub struct Sealed {
    pub request: Request,
    pub event: Event,
}

/// Gives a change's event its place in the request's chain.
#[must_use]
pub fn seal(change: Change, actor: &str, now: DateTime<Utc>) -> Sealed {
    let mut request = change.request;
    let seq = request.event_seq + 1;
    let event = Event::seal(
        change.event,
        request.id,
        seq,
        request.event_hash,
        actor,
        now,
    );
    request.event_seq = seq;
    request.event_hash = event.hash();
    Sealed { request, event }
}

/// # Errors
/// The master's, or a row that can't be read.
pub async fn get(master: &Pool, id: RequestId) -> Result<Option<Request>, StoreError> {
    let row: Option<RequestRow> = sqlx::query_as(concat!(
        "SELECT ",
        request_columns!(),
        " FROM network_request WHERE request_id = ?"
    ))
    .bind(id.bits())
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    row.map(RequestRow::read).transpose()
}

/// Inserts a new request with its first event.
///
/// # Errors
/// The master's; a duplicate where the id is taken.
pub async fn insert(tx: &mut MasterTx, sealed: &Sealed) -> Result<(), StoreError> {
    let request = &sealed.request;
    sqlx::query(concat!(
        "INSERT INTO network_request (",
        request_columns!(),
        ", is_order) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
    ))
    .bind(request.id.bits())
    .bind(request.author)
    .bind(request.target)
    .bind(request.broadcast)
    .bind(request.kind.as_str())
    .bind(request.status.as_str())
    .bind(request.version)
    .bind(request.currency.as_str())
    .bind(request.amount.minor())
    .bind(request.received_amount.map(crate::domain::money::Amount::minor))
    .bind(&request.method)
    .bind(&request.city_code)
    .bind(&request.counterpart_uid)
    .bind(&request.contact)
    .bind(&request.note)
    .bind(Json(&request.terms))
    .bind(request.author_account.as_ref().map(Json))
    .bind(request.counterparty_account.as_ref().map(Json))
    .bind(request.deadline_at)
    .bind(request.confirm_by)
    .bind(request.proposal.map(|proposal| proposal.kind.as_str()))
    .bind(request.proposal.map(|proposal| proposal.by))
    .bind(request.saga_id)
    .bind(request.reservation_saga_id)
    .bind(request.proof_digest.map(bytes))
    .bind(request.event_seq)
    .bind(bytes(request.event_hash))
    .bind(request.created_at)
    .bind(request.accepted_at)
    .bind(request.sent_at)
    .bind(request.closed_at)
    .bind(request.updated_at)
    .bind(request.settles.map(Json))
    .bind(request.auto_confirm)
    .bind(&request.pickup_hash)
    .bind(request.booked_saga_id)
    .bind(request.id.is_order())
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    insert_events(tx, &[&sealed.event]).await
}

/// Writes a change where the request still has the version before it and the same saga owns it.
/// Its event is the caller's to insert, with others of the same transaction. Gives whether it
/// was applied.
///
/// # Errors
/// The master's.
pub async fn update(
    tx: &mut MasterTx,
    sealed: &Sealed,
    owner: Option<uuid::Uuid>,
) -> Result<bool, StoreError> {
    let request = &sealed.request;
    let credit = request.credit_hold();
    let done = sqlx::query(
        "UPDATE network_request SET
             target_broker_id = ?, status = ?, version = ?, received_amount = ?,
             counterparty_account = ?, confirm_by = ?, proposal = ?, proposal_by = ?, saga_id = ?,
             reservation_saga_id = ?, proof_digest = ?, event_seq = ?, event_hash = ?,
             accepted_at = ?, sent_at = ?, closed_at = ?, updated_at = ?, pickup_hash = ?, booked_saga_id = ?,
             credit_debtor_id = ?, credit_creditor_id = ?, credit_amount = ?
         WHERE request_id = ? AND version = ? AND saga_id <=> ?",
    )
    .bind(request.target)
    .bind(request.status.as_str())
    .bind(request.version)
    .bind(
        request
            .received_amount
            .map(crate::domain::money::Amount::minor),
    )
    .bind(request.counterparty_account.as_ref().map(Json))
    .bind(request.confirm_by)
    .bind(request.proposal.map(|proposal| proposal.kind.as_str()))
    .bind(request.proposal.map(|proposal| proposal.by))
    .bind(request.saga_id)
    .bind(request.reservation_saga_id)
    .bind(request.proof_digest.map(bytes))
    .bind(request.event_seq)
    .bind(bytes(request.event_hash))
    .bind(request.accepted_at)
    .bind(request.sent_at)
    .bind(request.closed_at)
    .bind(request.updated_at)
    .bind(&request.pickup_hash)
    .bind(request.booked_saga_id)
    .bind(credit.map(|owing| owing.debtor))
    .bind(credit.map(|owing| owing.creditor))
    .bind(credit.map(|owing| owing.amount))
    .bind(request.id.bits())
    .bind(request.version - 1)
    .bind(owner)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(done.rows_affected() == 1)
}

/// # Errors
/// The master's; a duplicate where an event of that seq is there.
pub async fn insert_events(tx: &mut MasterTx, events: &[&Event]) -> Result<(), StoreError> {
    let mut rest = events;
    for size in chunks(events.len()) {
        let (chunk, after) = rest.split_at(size);
        rest = after;
        let mut builder = QueryBuilder::<MySql>::new(
            "INSERT INTO network_request_event (request_id, seq, kind, actor_broker_id, actor, at, \
             payload, private, prev_hash, event_hash) ",
        );
        builder.push_values(chunk, |mut row, event| {
            row.push_bind(event.request.bits())
                .push_bind(event.seq)
                .push_bind(event.kind.as_str())
                .push_bind(event.actor_broker)
                .push_bind(event.actor.clone())
                .push_bind(event.at)
                .push_bind(event.payload.clone())
                .push_bind(event.private.clone())
                .push_bind(bytes(event.prev_hash))
                .push_bind(bytes(event.hash()));
        });
        builder.build().execute(&mut *tx).await.map_err(failed)?;
    }
    Ok(())
}

/// The events of a request in order, each with the hash that is stored for it.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn events(master: &Pool, id: RequestId) -> Result<Vec<(Event, Hash)>, StoreError> {
    events_after(master, id, 0, u32::MAX).await
}

/// At most `limit` of them after a `seq`.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn events_after(
    master: &Pool,
    id: RequestId,
    after: u32,
    limit: u32,
) -> Result<Vec<(Event, Hash)>, StoreError> {
    let rows: Vec<EventRow> = sqlx::query_as(
        "SELECT request_id, seq, kind, actor_broker_id, actor, at, payload, private, prev_hash, event_hash
         FROM network_request_event WHERE request_id = ? AND seq > ? ORDER BY seq LIMIT ?",
    )
    .bind(id.bits())
    .bind(after)
    .bind(limit)
    .fetch_all(master)
    .await
    .map_err(failed)?;
    rows.into_iter().map(EventRow::read).collect()
}

/// Which requests a list shows.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter {
    /// Orders, or what is none.
    pub orders: bool,
    pub status: Option<RequestStatus>,
    pub kind: Option<RequestKind>,
}

/// Where a page of a list ended: the next begins after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct After {
    pub created_at: DateTime<Utc>,
    pub id: RequestId,
}

/// A broker's requests or orders, newest first: those it made, those made to it, and open broadcasts
/// of others, of orders those for the cities that it serves.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn list(
    master: &Pool,
    broker: BrokerId,
    filter: Filter,
    after: Option<After>,
    limit: u32,
) -> Result<Vec<Request>, StoreError> {
    let cities = if filter.orders {
        cities::of_broker(master, broker).await?
    } else {
        Vec::new()
    };
    let rows: Vec<RequestRow> = newest("", (broker, &cities), filter, after, limit)
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    rows.into_iter().map(RequestRow::read).collect()
}

/// The statement of a list, after `prefix`: a range of an index for what the broker made, one for
/// what was made to it, and for open broadcasts one, of orders one for each city. Each gives at most
/// a page of ids; they are merged, and only the rows of the page are read whole. So without a status
/// or a kind to filter by a page costs the same however many there are. Broadcasts are read past
/// where the broker made them itself.
#[must_use]
pub fn newest(
    prefix: &'static str,
    (broker, cities): (BrokerId, &[String]),
    filter: Filter,
    after: Option<After>,
    limit: u32,
) -> QueryBuilder<MySql> {
    let mut parts = vec![Mine::Author, Mine::Target];
    let open = RequestStatus::Pending;
    if filter.status.is_none_or(|status| status == open) {
        if filter.orders {
            // Filled up with cities that are none, so that the statement stays prepared.
            let places = if cities.is_empty() {
                0
            } else {
                padded(cities.len())
            };
            let cities = cities.iter().map(|city| Some(city.as_str()));
            let cities = cities.chain(std::iter::repeat(None)).take(places);
            parts.extend(cities.map(Mine::OpenIn));
        } else {
            parts.push(Mine::Open);
        }
    }
    let mut builder = QueryBuilder::<MySql>::new(prefix);
    builder.push(concat!("SELECT ", request_columns!(), " FROM ("));
    for (number, mine) in parts.into_iter().enumerate() {
        builder.push(if number == 0 { "(" } else { " UNION ALL (" });
        builder
            .push(
                "SELECT request_id AS id, created_at AS made_at FROM network_request FORCE INDEX (",
            )
            .push(mine.index())
            .push(") WHERE is_order = ")
            .push_bind(filter.orders);
        match mine {
            Mine::Author => builder.push(" AND author_broker_id = ").push_bind(broker),
            Mine::Target => builder.push(" AND target_broker_id = ").push_bind(broker),
            Mine::Open | Mine::OpenIn(_) => builder
                .push(" AND broadcast = 1 AND status = 'pending' AND author_broker_id <> ")
                .push_bind(broker),
        };
        if let Mine::OpenIn(city) = mine {
            builder
                .push(" AND city_code = ")
                .push_bind(city.map(str::to_owned));
        }
        if let Some(status) = filter.status {
            builder.push(" AND status = ").push_bind(status.as_str());
        }
        if let Some(kind) = filter.kind {
            builder.push(" AND type = ").push_bind(kind.as_str());
        }
        if let Some(after) = after {
            let last = (after.created_at, after.id.bits());
            push_after(&mut builder, ("created_at", "request_id"), last);
        }
        builder
            .push(" ORDER BY created_at DESC, request_id DESC LIMIT ")
            .push_bind(limit)
            .push(")");
    }
    builder
        .push(" ORDER BY made_at DESC, id DESC LIMIT ")
        .push_bind(limit)
        .push(
            ") AS page STRAIGHT_JOIN network_request ON request_id = id
             ORDER BY created_at DESC, request_id DESC",
        );
    builder
}

/// Why a request is in a broker's list.
#[derive(Clone, Copy)]
enum Mine<'a> {
    Author,
    Target,
    /// A broadcast that nobody has accepted.
    Open,
    /// The same for a city; none is no city.
    OpenIn(Option<&'a str>),
}

impl Mine<'_> {
    const fn index(self) -> &'static str {
        match self {
            Self::Author => "request_author_orders",
            Self::Target => "request_target_orders",
            Self::Open => "request_open",
            Self::OpenIn(_) => "request_open_orders",
        }
    }
}

/// Two ranges of the index on (status, `deadline_at`, `request_id`), merged.
pub const OVERDUE: &str = "(SELECT request_id, deadline_at FROM network_request
      WHERE status = 'pending' AND saga_id IS NULL AND deadline_at >= ? AND deadline_at <= ?
        AND (deadline_at > ? OR request_id > ?)
      ORDER BY deadline_at, request_id LIMIT ?)
     UNION ALL
     (SELECT request_id, deadline_at FROM network_request
      WHERE status = 'accepted' AND saga_id IS NULL AND sent_at IS NULL
        AND deadline_at >= ? AND deadline_at <= ? AND (deadline_at > ? OR request_id > ?)
      ORDER BY deadline_at, request_id LIMIT ?)
     ORDER BY deadline_at, request_id LIMIT ?";

/// A request whose deadline has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overdue {
    pub deadline_at: DateTime<Utc>,
    pub id: RequestId,
}

/// Requests whose deadline has passed before anything was sent, oldest deadline first, after one
/// that was given before. Only such as may expire: a date that is none (0000-00-00) is no
/// deadline, and what a saga owns is the saga's.
///
/// # Errors
/// The master's, or a row that can't be read.
pub async fn overdue(
    master: &Pool,
    now: DateTime<Utc>,
    after: Option<Overdue>,
    limit: u32,
) -> Result<Vec<Overdue>, StoreError> {
    #[derive(FromRow)]
    struct Row {
        request_id: u64,
        deadline_at: DateTime<Utc>,
    }
    let (from, id) = after.map_or((DateTime::UNIX_EPOCH, 0), |after| {
        (after.deadline_at, after.id.bits())
    });
    let mut query = sqlx::query_as(OVERDUE);
    for _ in 0..2 {
        query = query.bind(from).bind(now).bind(from).bind(id).bind(limit);
    }
    let rows: Vec<Row> = query.bind(limit).fetch_all(master).await.map_err(failed)?;
    Ok(rows
        .into_iter()
        .map(|row| Overdue {
            deadline_at: row.deadline_at,
            id: RequestId::from_bits(row.request_id),
        })
        .collect())
}

fn bytes(hash: Hash) -> Vec<u8> {
    hash.0.to_vec()
}
