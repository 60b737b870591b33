//! `partner`: the clients and counterparts of a book, written under the chain head's lock.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::FromRow;

use super::intention::{Claimed, claim};
use super::limit::{self, Bound, Full};
use super::rows::{AccountColumns, HeadRow, account_columns};
use super::{AccountRow, feed};
use crate::domain::account::{AccountRef, OwnerKind};
use crate::domain::ids::{AccountId, PartnerId, is_partner_uid};
use crate::domain::partner::{Change, Facts, Partner, PartnerKind, PartnerState, Search, searched};
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::master::idempotency::Intention;
use crate::stores::router::{BookRead, BookScope, BookSql, BookTx};

macro_rules! columns {
    () => {
        "partner_id, kind, display_name, phone, contacts, note, platform_broker_id, state, \
         created_at, updated_at"
    };
}

/// A list's first page, and the page after a row.
macro_rules! pages {
    ($of:literal) => {
        [
            concat!(
                "SELECT ",
                columns!(),
                $of,
                " AND (? IS NULL OR kind = ?) AND (? IS NULL OR state = ?) \
                  ORDER BY created_at DESC, partner_id DESC LIMIT ?"
            ),
            concat!(
                "SELECT ",
                columns!(),
                $of,
                " AND (? IS NULL OR kind = ?) AND (? IS NULL OR state = ?) \
                  AND created_at <= ? AND (created_at < ? OR partner_id < ?) \
                  ORDER BY created_at DESC, partner_id DESC LIMIT ?"
            ),
        ]
    };
}

/// All partners. Values: kind twice, state twice; on the page after a row its time twice and its id;
/// the limit.
pub const NEWEST: [&str; 2] =
    pages!(" FROM partner FORCE INDEX (partner_newest) WHERE broker_id = ?");
/// Those with names from one to another, which come before the values of [`NEWEST`].
pub const NAMED: [&str; 2] = pages!(
    " FROM partner FORCE INDEX (partner_name) WHERE broker_id = ? \
      AND search_name >= ? AND search_name <= ?"
);
/// Those with uids from one to another, which come before the values of [`NEWEST`].
pub const NUMBERED: [&str; 2] = pages!(
    " FROM partner FORCE INDEX (PRIMARY) WHERE broker_id = ? \
      AND partner_id >= ? AND partner_id <= ?"
);

const NEWEST_SQL: [BookSql; 2] = [BookSql::new(NEWEST[0]), BookSql::new(NEWEST[1])];
const NAMED_SQL: [BookSql; 2] = [BookSql::new(NAMED[0]), BookSql::new(NAMED[1])];
const NUMBERED_SQL: [BookSql; 2] = [BookSql::new(NUMBERED[0]), BookSql::new(NUMBERED[1])];
const ONE: BookSql = BookSql::new(concat!(
    "SELECT ",
    columns!(),
    " FROM partner WHERE broker_id = ? AND partner_id = ?"
));
const OF_PLATFORM: BookSql =
    BookSql::new("SELECT partner_id FROM partner WHERE broker_id = ? AND platform_broker_id = ?");
const INSERT: &str = "INSERT INTO partner (broker_id, partner_id, kind, display_name, search_name, \
     phone, contacts, note, platform_broker_id, state, created_at, updated_at, change_seq)";
const OVER: &str = " ON DUPLICATE KEY UPDATE kind = VALUES(kind), \
     display_name = VALUES(display_name), search_name = VALUES(search_name), \
     phone = VALUES(phone), contacts = VALUES(contacts), note = VALUES(note), \
     platform_broker_id = VALUES(platform_broker_id), state = VALUES(state), \
     updated_at = VALUES(updated_at), change_seq = VALUES(change_seq)";
const OPEN_ACCOUNTS: BookSql = BookSql::new(
    "SELECT account_id FROM account WHERE broker_id = ? AND owner_kind = 'partner' \
     AND owner_ref = ? AND state = 'open' ORDER BY currency_code",
);
const ACCOUNTS: BookSql = BookSql::new(concat!(
    "SELECT ",
    account_columns!(),
    " FROM account WHERE broker_id = ? AND owner_kind = 'partner' AND owner_ref = ? \
      ORDER BY currency_code"
));

#[derive(FromRow)]
struct Row {
    partner_id: u64,
    kind: String,
    display_name: String,
    phone: Option<String>,
    contacts: Option<String>,
    note: Option<String>,
    platform_broker_id: Option<u64>,
    state: String,
    created_at: DateTime<Utc>,
    updated_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<Partner, StoreError> {
        let id = PartnerId::from_bits(self.partner_id);
        let bad = |what: &str| corrupt("partner", format!("{id}: {what}"));
        Ok(Partner {
            id,
            kind: PartnerKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            facts: Facts {
                display_name: self.display_name,
                phone: self.phone,
                contacts: self.contacts,
                note: self.note,
            },
            platform_broker_id: self.platform_broker_id,
            state: PartnerState::parse(&self.state).ok_or_else(|| bad("state"))?,
            created_at: self.created_at,
            updated_at: self.updated_at,
        })
    }
}

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// Now or before.
    Done(Partner),
    NoPartner,
    /// The book has no room for one more offline partner.
    Full(Full),
    /// The broker of the network is this partner already.
    Known(PartnerId),
    /// These accounts of the partner are open.
    HasAccounts(Vec<AccountId>),
    /// The client's key stood for something else.
    OtherRequest,
}

/// Records a partner with the client's intention; repeating it gives the partner as it is by then.
/// `bound` is what the book is held to where it has no bound of its own yet.
///
/// # Errors
/// The book's database being away, busy or moving.
pub async fn create(
    scope: &BookScope,
    intention: &Intention,
    partner: &Partner,
    bound: Bound,
    now: DateTime<Utc>,
) -> Result<Written, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let subject = partner.id.to_string();
    match claim(&mut tx, intention, subject, head.change(), now).await? {
        Claimed::Now => {}
        Claimed::Before => {
            let found = find(&mut tx, partner.id).await?;
            tx.commit().await?;
            return Ok(found.map_or(Written::NoPartner, Written::Done));
        }
        Claimed::Other => {
            tx.commit().await?;
            return Ok(Written::OtherRequest);
        }
    }
    if let Some(refused) = refused(&mut tx, None, partner, &head, bound, now).await? {
        // What was refused uses up no key.
        tx.rollback().await?;
        return Ok(refused);
    }
    end(tx, head, "", "partner.created", partner, now).await
}

/// Changes a partner; one that is so already is given as it is.
///
/// # Errors
/// As [`create`].
pub async fn change(
    scope: &BookScope,
    id: PartnerId,
    change: &Change,
    bound: Bound,
    now: DateTime<Utc>,
) -> Result<Written, StoreError> {
    let (mut tx, head) = super::begin(scope).await?;
    let Some(old) = find(&mut tx, id).await? else {
        tx.commit().await?;
        return Ok(Written::NoPartner);
    };
    let Some(new) = old.after(change, now) else {
        tx.commit().await?;
        return Ok(Written::Done(old));
    };
    if let Some(refused) = refused(&mut tx, Some(&old), &new, &head, bound, now).await? {
        tx.rollback().await?;
        return Ok(refused);
    }
    end(tx, head, OVER, change.event(), &new, now).await
}

/// What is in the way of a partner's becoming `new`.
async fn refused(
    tx: &mut BookTx,
    old: Option<&Partner>,
    new: &Partner,
    head: &HeadRow,
    bound: Bound,
    now: DateTime<Utc>,
) -> Result<Option<Written>, StoreError> {
    if old.is_some() && new.state == PartnerState::Archived {
        let open = open_accounts(tx, new.id).await?;
        if !open.is_empty() {
            return Ok(Some(Written::HasAccounts(open)));
        }
    }
    if let Some(broker) = new.platform_broker_id {
        let query = tx.sql(OF_PLATFORM).bind(broker);
        let known: Option<(u64,)> = tx.fetch_optional(query).await?;
        let known = known.map(|(bits,)| PartnerId::from_bits(bits));
        if let Some(other) = known.filter(|known| *known != new.id) {
            return Ok(Some(Written::Known(other)));
        }
    }
    if new.takes_place() && !old.is_some_and(Partner::takes_place) {
        let full = limit::room_for_one(tx, head, bound, now).await?;
        return Ok(full.map(Written::Full));
    }
    Ok(None)
}

/// Writes a partner, tells the feed without saying who it is, and commits.
async fn end(
    mut tx: BookTx,
    head: HeadRow,
    over: &'static str,
    event: &'static str,
    partner: &Partner,
    now: DateTime<Utc>,
) -> Result<Written, StoreError> {
    let change = head.change();
    tx.insert(
        INSERT,
        std::slice::from_ref(partner),
        |row, partner| {
            row.push_bind(partner.id.bits())
                .push_bind(partner.kind.as_str())
                .push_bind(partner.facts.display_name.clone())
                .push_bind(searched(&partner.facts.display_name))
                .push_bind(partner.facts.phone.clone())
                .push_bind(partner.facts.contacts.clone())
                .push_bind(partner.facts.note.clone())
                .push_bind(partner.platform_broker_id)
                .push_bind(partner.state.as_str())
                .push_bind(partner.created_at)
                .push_bind(partner.updated_at)
                .push_bind(change);
        },
        over,
    )
    .await?;
    let payload = json!({ "kind": partner.kind, "state": partner.state });
    feed::tell(&mut tx, &head, event, partner.id.to_string(), payload, now).await?;
    tx.commit().await?;
    Ok(Written::Done(partner.clone()))
}

async fn find(tx: &mut BookTx, id: PartnerId) -> Result<Option<Partner>, StoreError> {
    let query = tx.sql(ONE).bind(id.bits());
    let row: Option<Row> = tx.fetch_optional(query).await?;
    row.map(Row::read).transpose()
}

async fn open_accounts(tx: &mut BookTx, id: PartnerId) -> Result<Vec<AccountId>, StoreError> {
    let query = tx.sql(OPEN_ACCOUNTS).bind(id.to_string());
    let rows: Vec<(u64,)> = tx.fetch_all(query).await?;
    let ids = rows.into_iter().map(|(bits,)| AccountId::from_bits(bits));
    Ok(ids.collect())
}

/// Whether an account's owner is a partner that was archived.
pub(super) async fn is_archived(tx: &mut BookTx, owner: &AccountRef) -> Result<bool, StoreError> {
    let id = match owner.owner_kind {
        OwnerKind::Partner if is_partner_uid(&owner.owner_ref) => owner.owner_ref.parse().ok(),
        OwnerKind::Partner | OwnerKind::House | OwnerKind::Cashier => None,
    };
    let Some(id) = id else {
        return Ok(false);
    };
    let partner = find(tx, id).await?;
    Ok(partner.is_some_and(|partner| partner.state == PartnerState::Archived))
}

/// # Errors
/// The database's, or a row that can't be read.
pub async fn partner(book: &mut BookRead, id: PartnerId) -> Result<Option<Partner>, StoreError> {
    let query = book.sql(ONE).bind(id.bits());
    let row: Option<Row> = book.fetch_optional(query).await?;
    row.map(Row::read).transpose()
}

/// The accounts of a partner: those whose owner is its uid, by currency.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn accounts_of_partner(
    book: &mut BookRead,
    id: PartnerId,
) -> Result<Vec<AccountRow>, StoreError> {
    let broker = book.broker();
    let query = book.sql(ACCOUNTS).bind(id.to_string());
    let rows: Vec<AccountColumns> = book.fetch_all(query).await?;
    rows.into_iter().map(|row| row.read(broker)).collect()
}

/// Which partners are asked for.
#[derive(Clone, Debug, Default)]
pub struct PartnerFilter {
    pub search: Option<Search>,
    pub kind: Option<PartnerKind>,
    pub state: Option<PartnerState>,
}

/// Partners, newest first; `after` is the last of the page before.
///
/// # Errors
/// The database's, or a row that can't be read.
pub async fn partners(
    book: &mut BookRead,
    filter: &PartnerFilter,
    after: Option<(DateTime<Utc>, PartnerId)>,
    limit: u32,
) -> Result<Vec<Partner>, StoreError> {
    let page = usize::from(after.is_some());
    let query = match &filter.search {
        None => book.sql(NEWEST_SQL[page]),
        Some(Search::Uids(first, last)) => {
            let query = book.sql(NUMBERED_SQL[page]);
            query.bind(first.bits()).bind(last.bits())
        }
        Some(Search::Name(name)) => {
            let query = book.sql(NAMED_SQL[page]).bind(name.clone());
            // Nothing that begins with the name is greater than this.
            query.bind(format!("{name}{}", char::MAX))
        }
    };
    let kind = filter.kind.map(PartnerKind::as_str);
    let state = filter.state.map(PartnerState::as_str);
    let mut query = query.bind(kind).bind(kind).bind(state).bind(state);
    if let Some((at, id)) = after {
        query = query.bind(at).bind(at).bind(id.bits());
    }
    let query = query.bind(limit);
    let rows: Vec<Row> = book.fetch_all(query).await?;
    rows.into_iter().map(Row::read).collect()
}
