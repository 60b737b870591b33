//! `invite` and `invite_use`: who may join the network, and who came by which invitation.

use chrono::{DateTime, Utc};
use sqlx::{FromRow, MySql, QueryBuilder};

use super::failed;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, InviteId};
use crate::stores::StoreError;
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

/// An invitation; its code is not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invite {
    pub id: InviteId,
    /// Who invites; `None`: the platform.
    pub broker_id: Option<BrokerId>,
    pub note: Option<String>,
    pub max_uses: u32,
    pub uses: u32,
    pub expires_at: DateTime<Utc>,
    pub revoked_at: Option<DateTime<Utc>>,
    pub created_by: String,
    pub created_at: DateTime<Utc>,
}

/// Whose invitations are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// The platform's and all brokers'.
    All,
    Broker(BrokerId),
}

#[derive(FromRow)]
struct Row {
    invite_id: u64,
    broker_id: Option<u64>,
    note: Option<String>,
    max_uses: u32,
    uses: u32,
    expires_at: DateTime<Utc>,
    revoked_at: Option<DateTime<Utc>>,
    created_by: String,
    created_at: DateTime<Utc>,
}

impl From<Row> for Invite {
    fn from(row: Row) -> Self {
        Self {
            id: InviteId::from_bits(row.invite_id),
            broker_id: row.broker_id,
            note: row.note,
            max_uses: row.max_uses,
            uses: row.uses,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
            created_by: row.created_by,
            created_at: row.created_at,
        }
    }
}

macro_rules! columns {
    () => {
        "invite_id, broker_id, note, max_uses, uses, expires_at, revoked_at, created_by, created_at"
    };
}

/// What makes an invitation one that can be used at a time, the first value: neither used up,
/// expired nor revoked, and of somebody who may start something new.
macro_rules! usable {
    () => {
        "expires_at > ? AND revoked_at IS NULL AND uses < max_uses
         AND (broker_id IS NULL OR EXISTS (
             SELECT 1 FROM broker b WHERE b.broker_id = invite.broker_id AND b.state = 'active'))"
    };
}

/// # Errors
/// The master's.
pub async fn insert(tx: &mut MasterTx, invite: &Invite, code: Hash) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO invite (invite_id, code_hash, broker_id, note, max_uses, expires_at,
             created_by, created_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(invite.id.bits())
    .bind(code.0.to_vec())
    .bind(invite.broker_id)
    .bind(&invite.note)
    .bind(invite.max_uses)
    .bind(invite.expires_at)
    .bind(&invite.created_by)
    .bind(invite.created_at)
    .execute(tx)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The master's.
pub async fn get(master: &Pool, whose: Whose, id: InviteId) -> Result<Option<Invite>, StoreError> {
    let mut builder = QueryBuilder::<MySql>::new(concat!(
        "SELECT ",
        columns!(),
        " FROM invite WHERE invite_id = "
    ));
    builder.push_bind(id.bits());
    push_whose(&mut builder, whose);
    let row: Option<Row> = builder
        .build_query_as()
        .fetch_optional(master)
        .await
        .map_err(failed)?;
    Ok(row.map(Invite::from))
}

/// Invitations, newest first; `after` is the last of the page before.
///
/// # Errors
/// The master's.
pub async fn list(
    master: &Pool,
    whose: Whose,
    after: Option<(DateTime<Utc>, InviteId)>,
    limit: u32,
) -> Result<Vec<Invite>, StoreError> {
    let mut builder =
        QueryBuilder::<MySql>::new(concat!("SELECT ", columns!(), " FROM invite WHERE TRUE"));
    push_whose(&mut builder, whose);
    if let Some((at, id)) = after {
        push_after(&mut builder, ("created_at", "invite_id"), (at, id.bits()));
    }
    builder
        .push(" ORDER BY created_at DESC, invite_id DESC LIMIT ")
        .push_bind(limit);
    let rows: Vec<Row> = builder
        .build_query_as()
        .fetch_all(master)
        .await
        .map_err(failed)?;
    Ok(rows.into_iter().map(Invite::from).collect())
}

fn push_whose(builder: &mut QueryBuilder<MySql>, whose: Whose) {
    match whose {
        Whose::All => {}
        Whose::Broker(broker) => {
            builder.push(" AND broker_id = ").push_bind(broker);
        }
    }
}

/// Ends an invitation; one that has ended so stays as it is.
///
/// # Errors
/// The master's.
pub async fn revoke(master: &Pool, id: InviteId, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::query("UPDATE invite SET revoked_at = ? WHERE invite_id = ? AND revoked_at IS NULL")
        .bind(now)
        .bind(id.bits())
        .execute(master)
        .await
        .map_err(failed)?;
    Ok(())
}

/// Whether a code could be used now.
///
/// # Errors
/// The master's.
pub async fn is_usable(master: &Pool, code: Hash, now: DateTime<Utc>) -> Result<bool, StoreError> {
    let found: Option<(i32,)> = sqlx::query_as(concat!(
        "SELECT 1 FROM invite WHERE code_hash = ? AND ",
        usable!()
    ))
    .bind(code.0.to_vec())
    .bind(now)
    .fetch_optional(master)
    .await
    .map_err(failed)?;
    Ok(found.is_some())
}

/// Uses a code once: gives the invitation, or nothing where the code can't be used. Whoever comes
/// at the same time waits for the transaction's end.
///
/// # Errors
/// The master's.
pub async fn take(
    tx: &mut MasterTx,
    code: Hash,
    now: DateTime<Utc>,
) -> Result<Option<Invite>, StoreError> {
    let taken = sqlx::query(concat!(
        "UPDATE invite SET uses = uses + 1 WHERE code_hash = ? AND ",
        usable!()
    ))
    .bind(code.0.to_vec())
    .bind(now)
    .execute(&mut *tx)
    .await
    .map_err(failed)?;
    if taken.rows_affected() == 0 {
        return Ok(None);
    }
    let row: Option<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM invite WHERE code_hash = ?"
    ))
    .bind(code.0.to_vec())
    .fetch_optional(tx)
    .await
    .map_err(failed)?;
    Ok(row.map(Invite::from))
}

/// Records who has come by an invitation.
///
/// # Errors
/// The master's.
pub async fn record_use(
    tx: &mut MasterTx,
    id: InviteId,
    broker: BrokerId,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query("INSERT INTO invite_use (broker_id, invite_id, used_at) VALUES (?, ?, ?)")
        .bind(broker)
        .bind(id.bits())
        .bind(now)
        .execute(tx)
        .await
        .map_err(failed)?;
    Ok(())
}
