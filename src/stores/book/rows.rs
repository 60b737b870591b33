use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::FromRow;
use uuid::Uuid;

use crate::domain::account::{AccountRef, Balance, OwnerKind, Side};
use crate::domain::book::{AccountState, Reservation, ReservationState, StepRecord};
use crate::domain::canonical::Hash;
use crate::domain::chain::{Entry, EntryKind, ExportedEntry};
use crate::domain::ids::{AccountId, BrokerId};
use crate::domain::money::CurrencyCode;
use crate::domain::saga::{Outcome, StepDirection};
use crate::stores::StoreError;
use crate::stores::error::corrupt;

/// An entry as it is stored, with the hash that was stored beside it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredEntry {
    pub entry: Entry,
    pub tx_hash: Hash,
    pub private: Option<Value>,
}

impl StoredEntry {
    /// The form in which it is given out and verified.
    #[must_use]
    pub fn exported(&self) -> ExportedEntry {
        ExportedEntry {
            entry: self.entry.canonical(),
            private: self.private.clone(),
            tx_hash: self.tx_hash,
        }
    }
}

macro_rules! entry_columns {
    () => {
        "broker_id, seq, v, saga_id, step, leg, kind, subject, \
    account_id, diverted_from, side, amount, currency_code, balance, op_digest, reverses_seq, \
    private_digest, private, booked_at, prev_hash, tx_hash"
    };
}
pub(super) use entry_columns;

#[derive(FromRow)]
pub(super) struct HeadRow {
    pub(super) seq: u64,
    pub(super) tx_hash: Vec<u8>,
    pub(super) feed_position: u64,
    /// Of the last write.
    change_seq: u64,
}

impl HeadRow {
    /// The number of the write that has locked the head.
    pub(super) const fn change(&self) -> u64 {
        self.change_seq + 1
    }
}

#[derive(FromRow)]
pub(super) struct EntryRow {
    broker_id: u64,
    seq: u64,
    v: u16,
    saga_id: Uuid,
    step: u16,
    leg: u16,
    kind: String,
    subject: String,
    account_id: u64,
    diverted_from: Option<u64>,
    side: String,
    amount: u64,
    currency_code: String,
    balance: i64,
    op_digest: Vec<u8>,
    reverses_seq: Option<u64>,
    private_digest: Option<Vec<u8>>,
    private: Option<Value>,
    booked_at: DateTime<Utc>,
    prev_hash: Vec<u8>,
    tx_hash: Vec<u8>,
}

impl EntryRow {
    pub(super) fn read(self) -> Result<StoredEntry, StoreError> {
        let bad = |what: &str| {
            corrupt(
                "transaction",
                format!("broker {} seq {}: {what}", self.broker_id, self.seq),
            )
        };
        let entry = Entry {
            v: self.v,
            broker: self.broker_id,
            seq: self.seq,
            saga_id: self.saga_id,
            step: self.step,
            leg: self.leg,
            kind: EntryKind::parse(&self.kind).ok_or_else(|| bad("kind"))?,
            subject: self.subject.clone(),
            account: AccountId::from_bits(self.account_id),
            diverted_from: self.diverted_from.map(AccountId::from_bits),
            side: Side::parse(&self.side).ok_or_else(|| bad("side"))?,
            amount: self.amount,
            currency: self
                .currency_code
                .parse()
                .map_err(|_| bad("currency_code"))?,
            balance: self.balance,
            op_digest: hash(&self.op_digest).ok_or_else(|| bad("op_digest"))?,
            reverses_seq: self.reverses_seq,
            private_digest: self
                .private_digest
                .as_deref()
                .map(|bytes| hash(bytes).ok_or_else(|| bad("private_digest")))
                .transpose()?,
            booked_at: self.booked_at,
            prev_hash: hash(&self.prev_hash).ok_or_else(|| bad("prev_hash"))?,
        };
        Ok(StoredEntry {
            entry,
            tx_hash: hash(&self.tx_hash).ok_or_else(|| bad("tx_hash"))?,
            private: self.private,
        })
    }
}

#[derive(FromRow)]
pub(super) struct StepRow {
    saga_id: Uuid,
    step: u16,
    direction: String,
    outcome: String,
    reason: Option<Value>,
}

impl StepRow {
    pub(super) fn read(self) -> Result<((Uuid, u16, StepDirection), StepRecord), StoreError> {
        let bad = |what: &str| {
            corrupt(
                "saga_step",
                format!("saga {} step {}: {what}", self.saga_id, self.step),
            )
        };
        let direction = StepDirection::parse(&self.direction).ok_or_else(|| bad("direction"))?;
        let outcome = Outcome::parse(&self.outcome).ok_or_else(|| bad("outcome"))?;
        let record = StepRecord {
            outcome,
            reason: self.reason,
        };
        Ok(((self.saga_id, self.step, direction), record))
    }
}

#[derive(FromRow)]
pub(super) struct AccountColumns {
    account_id: u64,
    owner_kind: String,
    owner_ref: String,
    currency_code: String,
    state: String,
    balance: i64,
    reserved: i64,
    min_balance: Option<i64>,
    created_at: DateTime<Utc>,
}

macro_rules! account_columns {
    () => {
        "account_id, owner_kind, owner_ref, currency_code, state, balance, reserved, min_balance, created_at"
    };
}
pub(super) use account_columns;

impl AccountColumns {
    pub(super) fn read(self, broker: BrokerId) -> Result<(AccountId, AccountState), StoreError> {
        let id = AccountId::from_bits(self.account_id);
        let bad = |what: &str| corrupt("account", format!("broker {broker} {id}: {what}"));
        let owner = AccountRef {
            broker,
            owner_kind: OwnerKind::parse(&self.owner_kind).ok_or_else(|| bad("owner_kind"))?,
            owner_ref: self.owner_ref,
            currency: self
                .currency_code
                .parse::<CurrencyCode>()
                .map_err(|_| bad("currency_code"))?,
        };
        let state = AccountState {
            owner,
            open: self.state == "open",
            balance: Balance {
                balance: self.balance,
                reserved: self.reserved,
                min_balance: self.min_balance,
            },
            created_at: self.created_at,
        };
        Ok((id, state))
    }
}

#[derive(FromRow)]
pub(super) struct ReservationColumns {
    saga_id: Uuid,
    leg: u16,
    account_id: u64,
    subject: String,
    amount: u64,
    state: String,
    created_at: DateTime<Utc>,
}

macro_rules! reservation_columns {
    () => {
        "saga_id, leg, account_id, subject, amount, state, created_at"
    };
}
pub(super) use reservation_columns;

impl ReservationColumns {
    pub(super) fn read(self) -> Result<((Uuid, u16), Reservation), StoreError> {
        let state = ReservationState::parse(&self.state)
            .ok_or_else(|| corrupt("reservation", format!("saga {}: state", self.saga_id)))?;
        let reservation = Reservation {
            account: AccountId::from_bits(self.account_id),
            subject: self.subject,
            amount: self.amount,
            state,
            created_at: self.created_at,
        };
        Ok(((self.saga_id, self.leg), reservation))
    }
}

pub(super) fn hash(bytes: &[u8]) -> Option<Hash> {
    bytes.try_into().ok().map(Hash)
}
