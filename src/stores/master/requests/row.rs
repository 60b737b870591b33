use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;
use sqlx::types::Json;
use uuid::Uuid;

use crate::domain::account::AccountRef;
use crate::domain::canonical::Hash;
use crate::domain::ids::RequestId;
use crate::domain::money::Amount;
use crate::domain::request::{
    Proposal, ProposalKind, Request, RequestKind, RequestStatus, Settles,
};
use crate::domain::request_event::{Event, EventKind};
use crate::domain::terms::Terms;
use crate::stores::StoreError;
use crate::stores::error::corrupt;

macro_rules! request_columns {
    () => {
        "request_id, author_broker_id, target_broker_id, broadcast, type, status, version, \
         currency_code, amount, received_amount, method, city_code, counterpart_uid, contact, note, \
         terms, author_account, counterparty_account, deadline_at, confirm_by, proposal, \
         proposal_by, saga_id, reservation_saga_id, proof_digest, event_seq, event_hash, \
         created_at, accepted_at, sent_at, closed_at, updated_at, settles, auto_confirm, pickup_hash, \
         booked_saga_id"
    };
}
pub(super) use request_columns;

#[derive(FromRow)]
pub(super) struct RequestRow {
    request_id: u64,
    author_broker_id: u64,
    target_broker_id: Option<u64>,
    broadcast: bool,
    #[sqlx(rename = "type")]
    kind: String,
    status: String,
    version: u32,
    currency_code: String,
    amount: u64,
    received_amount: Option<u64>,
    method: String,
    city_code: Option<String>,
    counterpart_uid: Option<String>,
    contact: Option<String>,
    note: Option<String>,
    terms: Json<Terms>,
    author_account: Option<Json<AccountRef>>,
    counterparty_account: Option<Json<AccountRef>>,
    deadline_at: Option<DateTime<Utc>>,
    confirm_by: Option<DateTime<Utc>>,
    proposal: Option<String>,
    proposal_by: Option<u64>,
    saga_id: Option<Uuid>,
    reservation_saga_id: Option<Uuid>,
    proof_digest: Option<Vec<u8>>,
    event_seq: u32,
    event_hash: Vec<u8>,
    created_at: DateTime<Utc>,
    accepted_at: Option<DateTime<Utc>>,
    sent_at: Option<DateTime<Utc>>,
    closed_at: Option<DateTime<Utc>>,
    updated_at: DateTime<Utc>,
    settles: Option<Json<Settles>>,
    auto_confirm: bool,
    pickup_hash: Option<String>,
    booked_saga_id: Option<Uuid>,
}

impl RequestRow {
    pub(super) fn read(self) -> Result<Request, StoreError> {
        let id = RequestId::from_bits(self.request_id);
        let bad = |column: &str| corrupt("network_request", format!("{id}: {column}"));
        let amount = |minor, column| Amount::from_minor(minor).map_err(|_| bad(column));
        let proposal_kind = self
            .proposal
            .as_deref()
            .map(|text| ProposalKind::parse(text).ok_or_else(|| bad("proposal")))
            .transpose()?;
        Ok(Request {
            id,
            author: self.author_broker_id,
            target: self.target_broker_id,
            broadcast: self.broadcast,
            kind: RequestKind::parse(&self.kind).ok_or_else(|| bad("type"))?,
            status: RequestStatus::parse(&self.status).ok_or_else(|| bad("status"))?,
            version: self.version,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            amount: amount(self.amount, "amount")?,
            received_amount: self
                .received_amount
                .map(|minor| amount(minor, "received_amount"))
                .transpose()?,
            method: self.method,
            city_code: self.city_code,
            counterpart_uid: self.counterpart_uid,
            contact: self.contact,
            note: self.note,
            terms: self.terms.0,
            settles: self.settles.map(|json| json.0),
            auto_confirm: self.auto_confirm,
            pickup_hash: self.pickup_hash,
            author_account: self.author_account.map(|json| json.0),
            counterparty_account: self.counterparty_account.map(|json| json.0),
            deadline_at: self.deadline_at,
            confirm_by: self.confirm_by,
            proposal: proposal_kind
                .zip(self.proposal_by)
                .map(|(kind, by)| Proposal { kind, by }),
            saga_id: self.saga_id,
            reservation_saga_id: self.reservation_saga_id,
            booked_saga_id: self.booked_saga_id,
            proof_digest: self
                .proof_digest
                .map(|bytes| hash(&bytes).ok_or_else(|| bad("proof_digest")))
                .transpose()?,
            event_seq: self.event_seq,
            event_hash: hash(&self.event_hash).ok_or_else(|| bad("event_hash"))?,
            past: Box::default(),
            created_at: self.created_at,
            accepted_at: self.accepted_at,
            sent_at: self.sent_at,
            closed_at: self.closed_at,
            updated_at: self.updated_at,
        })
    }
}

#[derive(FromRow)]
pub(super) struct EventRow {
    request_id: u64,
    seq: u32,
    kind: String,
    actor_broker_id: Option<u64>,
    actor: String,
    at: DateTime<Utc>,
    payload: Value,
    private: Option<Value>,
    prev_hash: Vec<u8>,
    event_hash: Vec<u8>,
}

impl EventRow {
    pub(super) fn read(self) -> Result<(Event, Hash), StoreError> {
        let request = RequestId::from_bits(self.request_id);
        let bad = |column: &str| {
            corrupt(
                "network_request_event",
                format!("{request} seq {}: {column}", self.seq),
            )
        };
        let event = Event {
            request,
            seq: self.seq,
            kind: EventKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            actor_broker: self.actor_broker_id,
            actor: self.actor.clone(),
            at: self.at,
            payload: self.payload.clone(),
            private: self.private.clone(),
            prev_hash: hash(&self.prev_hash).ok_or_else(|| bad("prev_hash"))?,
        };
        let stored = hash(&self.event_hash).ok_or_else(|| bad("event_hash"))?;
        Ok((event, stored))
    }
}

fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}
