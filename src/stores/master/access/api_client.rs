//! `api_client`.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::FromRow;
use sqlx::types::Json;

use super::{
    After, LoginState, Logins, StoreError, corrupt, failed, read_role, read_scopes, write_scopes,
};
use crate::domain::access::{Role, Scope, TeamSeat};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ClientId};
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// A program that logs in. Never shown as it is: it has the secret's hash.
#[derive(Clone, Debug)]
pub struct ApiClient {
    pub client_id: ClientId,
    pub name: String,
    pub secret_hash: Hash,
    pub role: Role,
    pub broker_id: Option<BrokerId>,
    pub scopes: BTreeSet<Scope>,
    pub limit_digest: Option<Hash>,
    pub state: LoginState,
    pub created_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct Row {
    client_id: u64,
    name: String,
    secret_hash: Vec<u8>,
    role: String,
    broker_id: Option<u64>,
    scopes: Json<Vec<String>>,
    limit_digest: Option<Vec<u8>>,
    state: String,
    created_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<ApiClient, StoreError> {
        Ok(ApiClient {
            client_id: ClientId::from_bits(self.client_id),
            name: self.name,
            secret_hash: read_hash(&self.secret_hash)?,
            role: read_role(&self.role)?,
            broker_id: self.broker_id,
            scopes: read_scopes(&self.scopes),
            limit_digest: self.limit_digest.as_deref().map(read_hash).transpose()?,
            state: LoginState::read(&self.state)?,
            created_at: self.created_at,
        })
    }
}

fn read_hash(bytes: &[u8]) -> Result<Hash, StoreError> {
    bytes
        .try_into()
        .map(Hash)
        .map_err(|_| corrupt("api_client", "a hash of another length"))
}

macro_rules! columns {
    () => {
        "client_id, name, secret_hash, role, broker_id, scopes, limit_digest, state, created_at"
    };
}

const CLIENTS: Logins = Logins {
    table: "api_client",
    id: "client_id",
    columns: columns!(),
};

/// # Errors
/// A duplicate where the id is taken.
pub async fn insert(
    conn: &mut MasterTx,
    client: &ApiClient,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO api_client
           (client_id, name, secret_hash, role, broker_id, scopes, limit_digest, state, created_at, updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(client.client_id.bits())
    .bind(&client.name)
    .bind(client.secret_hash.0.as_slice())
    .bind(client.role.as_str())
    .bind(client.broker_id)
    .bind(write_scopes(&client.scopes))
    .bind(client.limit_digest.as_ref().map(|digest| digest.0.as_slice()))
    .bind(client.state.as_str())
    .bind(client.created_at)
    .bind(now)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's.
pub async fn by_id(
    conn: &mut MasterTx,
    client_id: ClientId,
) -> Result<Option<ApiClient>, StoreError> {
    sqlx::query_as::<_, Row>(concat!(
        "SELECT ",
        columns!(),
        " FROM api_client WHERE client_id = ?"
    ))
    .bind(client_id.bits())
    .fetch_optional(conn)
    .await
    .map_err(failed)?
    .map(Row::read)
    .transpose()
}

/// A team's programs, newest first.
///
/// # Errors
/// The database's.
pub async fn of_team(
    pool: &Pool,
    team: TeamSeat,
    after: After,
    limit: u32,
) -> Result<Vec<ApiClient>, StoreError> {
    let rows: Vec<Row> = CLIENTS.of_team(pool, team, after, limit).await?;
    rows.into_iter().map(Row::read).collect()
}

/// Sets the state of one of a team's programs; false where there is no such program in it.
///
/// # Errors
/// The database's.
pub async fn set_state(
    conn: &mut MasterTx,
    team: TeamSeat,
    client_id: ClientId,
    state: LoginState,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    CLIENTS
        .set_state(conn, team, client_id.bits(), state, now)
        .await
}
