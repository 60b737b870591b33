//! The tables of who may log in, all in the master.

pub mod api_client;
pub mod refresh;
pub mod signing_key;
pub mod throttle;
pub mod user;

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::types::Json;
use sqlx::{AssertSqlSafe, FromRow, MySql, QueryBuilder};

use self::refresh::RevokedBy;
use super::{MasterTx, failed};
use crate::domain::access::{Role, Scope, TeamSeat};
use crate::domain::ids::BrokerId;
use crate::stores::StoreError;
use crate::stores::error::corrupt;
use crate::stores::pool::Pool;
use crate::stores::sql::push_after;

/// Whether somebody may log in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginState {
    Active,
    Disabled,
}

impl LoginState {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Disabled => "disabled",
        }
    }

    fn read(text: &str) -> Result<Self, StoreError> {
        match text {
            "active" => Ok(Self::Active),
            "disabled" => Ok(Self::Disabled),
            _ => Err(corrupt("user, api_client", format!("state {text}"))),
        }
    }
}

/// The place after which a list goes on, newest first.
pub type After = Option<(DateTime<Utc>, u64)>;

/// A table of those who log in, people or programs: what a team sees and changes of its own.
struct Logins {
    table: &'static str,
    id: &'static str,
    columns: &'static str,
}

impl Logins {
    /// A team's rows, newest first.
    async fn of_team<R>(
        &self,
        pool: &Pool,
        team: TeamSeat,
        after: After,
        limit: u32,
    ) -> Result<Vec<R>, StoreError>
    where
        R: for<'r> FromRow<'r, MySqlRow> + Send + Unpin,
    {
        let Self { table, id, columns } = self;
        let mut builder = QueryBuilder::<MySql>::new(format!(
            "SELECT {columns} FROM {table} WHERE broker_id <=> "
        ));
        builder.push_bind(team.broker_id);
        if let Some(last) = after {
            push_after(&mut builder, ("created_at", id), last);
        }
        builder
            .push(format!(" ORDER BY created_at DESC, {id} DESC LIMIT "))
            .push_bind(limit);
        let rows = builder.build_query_as().fetch_all(pool).await;
        rows.map_err(failed)
    }

    /// Sets the state of one of a team; false where there is no such in it.
    async fn set_state(
        &self,
        conn: &mut MasterTx,
        team: TeamSeat,
        who: u64,
        state: LoginState,
        now: DateTime<Utc>,
    ) -> Result<bool, StoreError> {
        let Self { table, id, .. } = self;
        let sql = format!(
            "UPDATE {table} SET state = ?, updated_at = ? WHERE {id} = ? AND broker_id <=> ?"
        );
        let done = sqlx::query(AssertSqlSafe(sql))
            .bind(state.as_str())
            .bind(now)
            .bind(who)
            .bind(team.broker_id)
            .execute(conn)
            .await
            .map_err(failed)?;
        Ok(done.rows_affected() == 1)
    }
}

/// Disables everybody of a broker, people and programs, and ends their log-ins.
///
/// # Errors
/// The database's.
pub async fn disable_all(
    conn: &mut MasterTx,
    broker: BrokerId,
    by: RevokedBy,
    now: DateTime<Utc>,
) -> Result<(), StoreError> {
    for table in ["user", "api_client"] {
        let sql = format!(
            "UPDATE {table} SET state = ?, updated_at = ? WHERE broker_id = ? AND state = ?"
        );
        sqlx::query(AssertSqlSafe(sql))
            .bind(LoginState::Disabled.as_str())
            .bind(now)
            .bind(broker)
            .bind(LoginState::Active.as_str())
            .execute(&mut *conn)
            .await
            .map_err(failed)?;
    }
    refresh::revoke_broker(conn, broker, by, now).await
}

fn read_role(text: &str) -> Result<Role, StoreError> {
    Role::parse(text).ok_or_else(|| corrupt("user, api_client", format!("role {text}")))
}

/// Scopes that this version doesn't know are left out: they grant nothing here.
fn read_scopes(names: &Json<Vec<String>>) -> BTreeSet<Scope> {
    names
        .0
        .iter()
        .filter_map(|name| Scope::parse(name))
        .collect()
}

fn write_scopes(scopes: &BTreeSet<Scope>) -> Json<Vec<&'static str>> {
    Json(scopes.iter().map(|scope| scope.as_str()).collect())
}
