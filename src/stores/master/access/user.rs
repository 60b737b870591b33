//! `user`.

use chrono::{DateTime, Utc};
use sqlx::FromRow;

use super::{After, LoginState, Logins, StoreError, failed, read_role};
use crate::domain::access::{Role, TeamSeat};
use crate::domain::ids::{BrokerId, UserId};
use crate::stores::master::MasterTx;
use crate::stores::pool::Pool;

/// A person who logs in. Never shown as it is: it has the password's hash.
#[derive(Clone, Debug)]
pub struct User {
    pub user_id: UserId,
    pub login: String,
    pub password_hash: String,
    pub role: Role,
    pub broker_id: Option<BrokerId>,
    pub state: LoginState,
    pub created_at: DateTime<Utc>,
}

#[derive(FromRow)]
struct Row {
    user_id: u64,
    login: String,
    password_hash: String,
    role: String,
    broker_id: Option<u64>,
    state: String,
    created_at: DateTime<Utc>,
}

impl Row {
    fn read(self) -> Result<User, StoreError> {
        Ok(User {
            user_id: UserId::from_bits(self.user_id),
            login: self.login,
            password_hash: self.password_hash,
            role: read_role(&self.role)?,
            broker_id: self.broker_id,
            state: LoginState::read(&self.state)?,
            created_at: self.created_at,
        })
    }
}

macro_rules! columns {
    () => {
        "user_id, login, password_hash, role, broker_id, state, created_at"
    };
}

const USERS: Logins = Logins {
    table: "user",
    id: "user_id",
    columns: columns!(),
};

/// # Errors
/// A duplicate where the login is taken.
pub async fn insert(
    conn: &mut MasterTx,
    user: &User,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    sqlx::query(
        "INSERT INTO user (user_id, login, password_hash, role, broker_id, state, created_at, updated_at)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(user.user_id.bits())
    .bind(&user.login)
    .bind(&user.password_hash)
    .bind(user.role.as_str())
    .bind(user.broker_id)
    .bind(user.state.as_str())
    .bind(user.created_at)
    .bind(now)
    .execute(conn)
    .await
    .map_err(failed)?;
    Ok(())
}

/// # Errors
/// The database's.
pub async fn by_login(pool: &Pool, login: &str) -> Result<Option<User>, StoreError> {
    sqlx::query_as::<_, Row>(concat!("SELECT ", columns!(), " FROM user WHERE login = ?"))
        .bind(login)
        .fetch_optional(pool)
        .await
        .map_err(failed)?
        .map(Row::read)
        .transpose()
}

/// # Errors
/// The database's.
pub async fn by_id(conn: &mut MasterTx, user_id: UserId) -> Result<Option<User>, StoreError> {
    sqlx::query_as::<_, Row>(concat!(
        "SELECT ",
        columns!(),
        " FROM user WHERE user_id = ?"
    ))
    .bind(user_id.bits())
    .fetch_optional(conn)
    .await
    .map_err(failed)?
    .map(Row::read)
    .transpose()
}

/// A team's people, newest first.
///
/// # Errors
/// The database's.
pub async fn of_team(
    pool: &Pool,
    team: TeamSeat,
    after: After,
    limit: u32,
) -> Result<Vec<User>, StoreError> {
    let rows: Vec<Row> = USERS.of_team(pool, team, after, limit).await?;
    rows.into_iter().map(Row::read).collect()
}

/// How many of a broker's people may log in.
///
/// # Errors
/// The database's.
pub async fn count_active(conn: &mut MasterTx, broker_id: BrokerId) -> Result<u64, StoreError> {
    let (count,): (i64,) =
        sqlx::query_as("SELECT COUNT(*) FROM user WHERE broker_id = ? AND state = 'active'")
            .bind(broker_id)
            .fetch_one(conn)
            .await
            .map_err(failed)?;
    Ok(count.unsigned_abs())
}

/// Sets the state of one of a team's people; false where there is no such person in it.
///
/// # Errors
/// The database's.
pub async fn set_state(
    conn: &mut MasterTx,
    team: TeamSeat,
    user_id: UserId,
    state: LoginState,
    now: DateTime<Utc>,
) -> Result<bool, StoreError> {
    USERS
        .set_state(conn, team, user_id.bits(), state, now)
        .await
}
