//! Who is on a team: a broker's people and programs, or the platform's own.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::auth::password::{HashError, Passwords};
use super::auth::{hash_of, secret};
use crate::domain::access::{
    Beyond, LOGIN_MAX, Principal, PrincipalError, Role, Scope, TeamSeat, check_role, login,
    scopes_of,
};
use crate::domain::broker::BrokerState;
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ClientId, UserId};
use crate::domain::pause::Hindrance;
use crate::domain::plan_limits::{LimitReached, PlanLimit};
use crate::domain::text;
use crate::runtime::Clock;
use crate::stores::StoreError;
use crate::stores::master::access::refresh::{self, RevokedBy};
use crate::stores::master::access::{After, LoginState, api_client, user};
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::standing;
use crate::stores::master::{self, MasterTx, brokers};
use crate::stores::pool::Pool;

/// Shortest password, in characters; NIST SP 800-63B asks for length and for nothing else.
pub const PASSWORD_MIN: usize = 12;
/// Longest password, in bytes.
pub const PASSWORD_MAX: usize = 256;
pub const CLIENT_NAME_MAX: usize = 120;

/// A person as others may see them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    pub user_id: UserId,
    pub login: String,
    pub role: Role,
    pub broker_id: Option<BrokerId>,
    pub active: bool,
    pub created_at: DateTime<Utc>,
}

/// A program as others may see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Client {
    pub client_id: ClientId,
    pub name: String,
    pub role: Role,
    pub broker_id: Option<BrokerId>,
    pub scopes: BTreeSet<Scope>,
    pub limit_digest: Option<Hash>,
    pub active: bool,
    pub created_at: DateTime<Utc>,
}

/// A person to be added.
#[derive(Clone, Debug)]
pub struct NewUser {
    pub login: String,
    pub password: SecretString,
    pub role: Role,
}

/// A program to be added.
#[derive(Clone, Debug)]
pub struct NewClient {
    pub name: String,
    pub role: Role,
    /// `None`: all that the role has.
    pub scopes: Option<BTreeSet<Scope>>,
    pub limit_digest: Option<Hash>,
}

/// On whose word a member is added.
#[derive(Clone, Copy, Debug)]
pub enum By<'a> {
    /// The operator's: from the command line, or as a part of making a broker.
    Operator,
    /// A caller's, who hands on no more than its token has.
    Caller(&'a Principal),
}

/// Why a team stays as it is.
#[derive(Debug, thiserror::Error)]
pub enum TeamError {
    #[error("a login has 3 to {LOGIN_MAX} characters of a-z, 0-9 and . _ @ + -")]
    Login,
    #[error("the login is taken")]
    LoginTaken,
    #[error("a password has at least {PASSWORD_MIN} characters and at most {PASSWORD_MAX} bytes")]
    Password,
    #[error(
        "a name has 1 to {CLIENT_NAME_MAX} characters, no control characters, invisible ones, and ones that turn the direction of writing"
    )]
    Name,
    #[error("a person can't be an agent: only a program acts under a limit")]
    PersonAsAgent,
    #[error(transparent)]
    Role(PrincipalError),
    #[error("the role {role} doesn't have the scope {scope}")]
    Scope { role: Role, scope: Scope },
    /// More than the caller has itself.
    #[error(transparent)]
    Beyond(Beyond),
    /// A broker that is not active adds nobody.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    /// The broker's plan has no room for one more of its people.
    #[error(transparent)]
    Plan(LimitReached),
    #[error("there is no such member in the team")]
    NotFound,
    #[error("nobody disables their own account")]
    Own,
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("too many passwords are being hashed")]
    Busy,
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error("a password could not be hashed")]
    Hash,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<HashError> for TeamError {
    fn from(error: HashError) -> Self {
        match error {
            HashError::Busy => Self::Busy,
            HashError::Randomness => Self::Randomness,
            HashError::Failed => Self::Hash,
        }
    }
}

/// Adds, lists and disables the members of a team. The team comes from the caller's seat, so
/// nobody reaches into another's. Cheap to clone.
#[derive(Clone)]
pub struct TeamService {
    pool: Pool,
    clock: Clock,
    passwords: Passwords,
}

impl TeamService {
    #[must_use]
    pub const fn new(pool: Pool, clock: Clock, passwords: Passwords) -> Self {
        Self {
            pool,
            clock,
            passwords,
        }
    }

    /// Adds a person. A repeat of the same intention answers with the same person. Those of a
    /// broker are bounded by its plan, whoever adds them.
    ///
    /// # Errors
    /// What is wrong with the login, password or role; [`TeamError::LoginTaken`]; what the
    /// caller may not hand on; [`TeamError::Plan`].
    pub async fn create_user(
        &self,
        team: TeamSeat,
        new: NewUser,
        by: By<'_>,
        intention: &Intention,
    ) -> Result<Member, TeamError> {
        let login = login(&new.login).ok_or(TeamError::Login)?;
        check_password(&new.password)?;
        if matches!(new.role, Role::Agent) {
            return Err(TeamError::PersonAsAgent);
        }
        check_role(new.role, team.broker_id, None).map_err(TeamError::Role)?;
        // A person logs in with all that their role has.
        self.may_add(by, team, new.role, &scopes_of(new.role))
            .await?;
        let now = self.clock.now();
        let row = self.person(login, new, intention, now).await?;
        let row = user::User {
            broker_id: team.broker_id,
            ..row
        };
        let user_id = row.user_id;
        let subject = user_id.to_string();
        let Some(mut tx) = self.claim(intention, &subject, now).await? else {
            let mut conn = self.pool.acquire().await.map_err(master::failed)?;
            let row = user::by_id(&mut conn, user_id).await?;
            return row.map(shown_user).ok_or(TeamError::NotFound);
        };
        if let Some(broker) = team.broker_id {
            room_for_one(&mut tx, broker).await?;
        }
        user::insert(&mut tx, &row, now).await.map_err(taken)?;
        master::commit(tx).await?;
        Ok(shown_user(row))
    }

    /// The row of a person with a password of their own and no broker yet, for whoever records it.
    pub(super) async fn person(
        &self,
        login: String,
        new: NewUser,
        intention: &Intention,
        now: DateTime<Utc>,
    ) -> Result<user::User, TeamError> {
        Ok(user::User {
            user_id: UserId::derive(&[&intention.client, &intention.key]),
            login,
            password_hash: self.passwords.hash(new.password).await?,
            role: new.role,
            broker_id: None,
            state: LoginState::Active,
            created_at: now,
        })
    }

    /// Whether [`Self::create_user`] would take a broker's person, for whoever makes something
    /// else first. Gives the login in its one form.
    ///
    /// # Errors
    /// As there.
    pub async fn check_new(
        &self,
        new: &NewUser,
        intention: &Intention,
    ) -> Result<String, TeamError> {
        let login = login(&new.login).ok_or(TeamError::Login)?;
        check_password(&new.password)?;
        let user_id = UserId::derive(&[&intention.client, &intention.key]);
        match user::by_login(&self.pool, &login).await? {
            Some(other) if other.user_id != user_id => Err(TeamError::LoginTaken),
            Some(_) | None => Ok(login),
        }
    }

    /// A team's people, newest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn users(
        &self,
        team: TeamSeat,
        after: After,
        limit: u32,
    ) -> Result<Vec<Member>, TeamError> {
        let rows = user::of_team(&self.pool, team, after, limit).await?;
        Ok(rows.into_iter().map(shown_user).collect())
    }

    /// Disables a person: no more log-ins, no more refreshes; a token that is out lives on for
    /// its 15 minutes at most. `caller` is the subject of who asks.
    ///
    /// # Errors
    /// [`TeamError::Own`], so that a team can't lock itself out; [`TeamError::NotFound`].
    pub async fn disable_user(
        &self,
        team: TeamSeat,
        user_id: UserId,
        caller: &str,
    ) -> Result<Member, TeamError> {
        if user_id.to_string() == caller {
            return Err(TeamError::Own);
        }
        let now = self.clock.now();
        let mut tx = master::begin(&self.pool).await?;
        if !user::set_state(&mut tx, team, user_id, LoginState::Disabled, now).await? {
            return Err(TeamError::NotFound);
        }
        refresh::revoke_user(&mut tx, user_id, RevokedBy::Disabled, now).await?;
        let member = user::by_id(&mut tx, user_id)
            .await?
            .ok_or(TeamError::NotFound)?;
        master::commit(tx).await?;
        Ok(shown_user(member))
    }

    /// Adds a program; its secret is given this once. A repeat of the same intention answers
    /// with the same program and no secret, because only its digest is kept.
    ///
    /// # Errors
    /// What is wrong with the name, role, scopes or limit.
    pub async fn create_client(
        &self,
        team: TeamSeat,
        new: NewClient,
        by: By<'_>,
        intention: &Intention,
    ) -> Result<(Client, Option<SecretString>), TeamError> {
        let name = check_name(&new.name)?;
        check_role(new.role, team.broker_id, new.limit_digest).map_err(TeamError::Role)?;
        let allowed = scopes_of(new.role);
        let scopes = new.scopes.unwrap_or_else(|| allowed.clone());
        if let Some(scope) = scopes.difference(&allowed).next() {
            let (role, scope) = (new.role, *scope);
            return Err(TeamError::Scope { role, scope });
        }
        self.may_add(by, team, new.role, &scopes).await?;
        let client_secret = secret::random_token("sns_").map_err(|_| TeamError::Randomness)?;
        let now = self.clock.now();
        let client_id = ClientId::derive(&[&intention.client, &intention.key]);
        let row = api_client::ApiClient {
            client_id,
            name,
            secret_hash: hash_of(&client_secret),
            role: new.role,
            broker_id: team.broker_id,
            scopes,
            limit_digest: new.limit_digest,
            state: LoginState::Active,
            created_at: now,
        };
        let subject = client_id.to_string();
        let Some(mut tx) = self.claim(intention, &subject, now).await? else {
            let mut conn = self.pool.acquire().await.map_err(master::failed)?;
            let row = api_client::by_id(&mut conn, client_id).await?;
            let row = row.ok_or(TeamError::NotFound)?;
            return Ok((shown_client(row), None));
        };
        api_client::insert(&mut tx, &row, now).await?;
        master::commit(tx).await?;
        Ok((shown_client(row), Some(client_secret)))
    }

    /// A team's programs, newest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn clients(
        &self,
        team: TeamSeat,
        after: After,
        limit: u32,
    ) -> Result<Vec<Client>, TeamError> {
        let rows = api_client::of_team(&self.pool, team, after, limit).await?;
        Ok(rows.into_iter().map(shown_client).collect())
    }

    /// Disables a program: it can't log in any more.
    ///
    /// # Errors
    /// [`TeamError::NotFound`], [`TeamError::Own`].
    pub async fn disable_client(
        &self,
        team: TeamSeat,
        client_id: ClientId,
        caller: &str,
    ) -> Result<Client, TeamError> {
        if client_id.to_string() == caller {
            return Err(TeamError::Own);
        }
        let now = self.clock.now();
        let mut tx = master::begin(&self.pool).await?;
        if !api_client::set_state(&mut tx, team, client_id, LoginState::Disabled, now).await? {
            return Err(TeamError::NotFound);
        }
        let row = api_client::by_id(&mut tx, client_id).await?;
        let row = row.ok_or(TeamError::NotFound)?;
        master::commit(tx).await?;
        Ok(shown_client(row))
    }

    /// Whether a member may be added to a team, with a role and scopes.
    async fn may_add(
        &self,
        by: By<'_>,
        team: TeamSeat,
        role: Role,
        scopes: &BTreeSet<Scope>,
    ) -> Result<(), TeamError> {
        if let By::Caller(principal) = by {
            principal.hand_on(role, scopes).map_err(TeamError::Beyond)?;
        }
        let Some(broker) = team.broker_id else {
            return Ok(());
        };
        let (standing, _) = standing::look(&self.pool, [Some(broker), None], None).await?;
        let Err(hindrance) = standing.broker_is_open(broker, broker) else {
            return Ok(());
        };
        let state = standing.brokers.get(&broker).map(|broker| broker.state);
        match by {
            // The operator knows what they do, but nobody is added to a broker that has left.
            By::Operator if state != Some(BrokerState::Archived) => Ok(()),
            By::Operator | By::Caller(_) => Err(hindrance.into()),
        }
    }

    /// Takes the intention's key for `subject`, in a transaction for the caller to go on in;
    /// none where the same intention has made it before.
    async fn claim(
        &self,
        intention: &Intention,
        subject: &str,
        now: DateTime<Utc>,
    ) -> Result<Option<MasterTx>, TeamError> {
        let mut tx = master::begin(&self.pool).await?;
        match idempotency::insert(&mut tx, intention, subject, now).await {
            Ok(()) => return Ok(Some(tx)),
            Err(error) if error.is_duplicate() => {}
            Err(error) => return Err(error.into()),
        }
        drop(tx);
        match idempotency::find(&self.pool, intention).await? {
            Some(Known::Same { subject: made }) if made == subject => Ok(None),
            Some(Known::Same { .. } | Known::Other) | None => Err(TeamError::KeyReused),
        }
    }
}

/// Whether a broker's plan has room for one more of its people; nobody else adds one, and its plan
/// stays, until the transaction ends.
async fn room_for_one(tx: &mut MasterTx, id: BrokerId) -> Result<(), TeamError> {
    let broker = brokers::lock(tx, id).await?.ok_or(TeamError::NotFound)?;
    let there = user::count_active(tx, id).await?;
    let plan = broker.plan_to_fit();
    plan.room_for_one(PlanLimit::TeamMembers, there)
        .map_err(TeamError::Plan)
}

/// The key itself and the id derived from it were claimed first, so a duplicate is the login.
pub(super) fn taken(error: StoreError) -> TeamError {
    if error.is_duplicate() {
        TeamError::LoginTaken
    } else {
        TeamError::Store(error)
    }
}

fn check_password(password: &SecretString) -> Result<(), TeamError> {
    use secrecy::ExposeSecret;
    let password = password.expose_secret();
    if password.chars().count() < PASSWORD_MIN || password.len() > PASSWORD_MAX {
        return Err(TeamError::Password);
    }
    Ok(())
}

fn check_name(name: &str) -> Result<String, TeamError> {
    let name = name.trim();
    text::line(name, CLIENT_NAME_MAX).map_err(|_| TeamError::Name)?;
    Ok(name.to_owned())
}

fn shown_user(user: user::User) -> Member {
    Member {
        user_id: user.user_id,
        login: user.login,
        role: user.role,
        broker_id: user.broker_id,
        active: user.state == LoginState::Active,
        created_at: user.created_at,
    }
}

fn shown_client(client: api_client::ApiClient) -> Client {
    Client {
        client_id: client.client_id,
        name: client.name,
        role: client.role,
        broker_id: client.broker_id,
        scopes: client.scopes,
        limit_digest: client.limit_digest,
        active: client.state == LoginState::Active,
        created_at: client.created_at,
    }
}
