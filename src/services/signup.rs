//! Brokers that join the network by themselves: on the cheapest plan, with the first of their
//! people, and by an invitation where the network asks for one.
//!
//! | it dies | what is there | who goes on |
//! |---|---|---|
//! | before the master's commit | nothing; the invitation is as it was | the same request |
//! | after it | broker `provisioning`, its person, the invitation's use, the key | the same request |
//! | after its book was made | all of it | nobody needs to |

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::auth::hash_of;
use super::provisioning::{Provisioning, ProvisioningError};
use super::team::{NewUser, TeamError, TeamService, taken};
use crate::domain::access::Role;
use crate::domain::broker::{self, Broker, BrokerPlan};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::domain::invite::SignupMode;
use crate::runtime::failpoint;
use crate::stores::StoreError;
use crate::stores::master::access::user;
use crate::stores::master::brokers::{self, NewBroker};
use crate::stores::master::idempotency::{self, Intention};
use crate::stores::master::{self, invites, standing};
use crate::stores::pool::Pool;

/// The plan that everybody begins with.
const PLAN: BrokerPlan = BrokerPlan::Starter;

/// Who wants to join.
#[derive(Clone, Debug)]
pub struct NewMember {
    pub name: String,
    pub login: String,
    pub password: SecretString,
    /// Of an invitation.
    pub code: Option<SecretString>,
}

/// Why nobody has joined. Nothing is half done.
#[derive(Debug, thiserror::Error)]
pub enum SignupError {
    #[error("this network takes nobody by themselves: ask its operator")]
    Closed,
    #[error("the code of an invitation is needed")]
    CodeMissing,
    /// Without saying which: that would tell a guesser of codes.
    #[error("the invitation is not one, or is used up, expired or revoked")]
    NotInvited,
    #[error(transparent)]
    Broker(#[from] ProvisioningError),
    #[error(transparent)]
    User(#[from] TeamError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes brokers in.
pub struct SignupService {
    master: Pool,
    provisioning: Provisioning,
    mode: SignupMode,
}

impl SignupService {
    #[must_use]
    pub const fn new(master: Pool, provisioning: Provisioning, mode: SignupMode) -> Self {
        Self {
            master,
            provisioning,
            mode,
        }
    }

    /// Makes a broker with its first person and its book. A repeat of the same intention gives the
    /// same broker, finished where it was not. What can be refused is refused before anything is
    /// made, and an invitation before a login or a name, so that strangers learn of none.
    ///
    /// # Errors
    /// See [`SignupError`]. After a fault of a database the same intention goes on.
    pub async fn sign_up(
        &self,
        team: &TeamService,
        new: NewMember,
        intention: &Intention,
        now: DateTime<Utc>,
    ) -> Result<Broker, SignupError> {
        let id = match self.provisioning.known(Some(intention)).await? {
            Some(id) => id,
            None => self.join(team, new, intention, now).await?,
        };
        Ok(self.provisioning.finish_broker(id, now).await?)
    }

    async fn join(
        &self,
        team: &TeamService,
        new: NewMember,
        intention: &Intention,
        now: DateTime<Utc>,
    ) -> Result<BrokerId, SignupError> {
        let code = new.code.as_ref().map(hash_of);
        match (self.mode, code) {
            (SignupMode::Closed, _) => return Err(SignupError::Closed),
            (SignupMode::Invite, None) => return Err(SignupError::CodeMissing),
            (SignupMode::Invite | SignupMode::Open, Some(code)) => {
                if !invites::is_usable(&self.master, code, now).await? {
                    return Err(SignupError::NotInvited);
                }
            }
            (SignupMode::Open, None) => {}
        }
        let name = broker::name(&new.name).ok_or(ProvisioningError::InvalidName)?;
        let first = NewUser {
            login: new.login,
            password: new.password,
            role: Role::BrokerAdmin,
        };
        let login = team.check_new(&first, intention).await?;
        if let Some(other) = brokers::by_name(&self.master, name).await? {
            return Err(ProvisioningError::NameTaken { id: other.id }.into());
        }
        let person = team.person(login, first, intention, now).await?;
        let recorded = self.record(name, code, person, intention, now).await;
        failpoint::at("signup.recorded");
        match recorded {
            Ok(id) => Ok(id),
            // A twin of this request may have been first, with the last use of the code too.
            Err(error) => match self.provisioning.known(Some(intention)).await? {
                Some(id) => Ok(id),
                None => Err(error),
            },
        }
    }

    /// Broker, person, the invitation's use and the key: all or nothing.
    async fn record(
        &self,
        name: &str,
        code: Option<Hash>,
        person: user::User,
        intention: &Intention,
        now: DateTime<Utc>,
    ) -> Result<BrokerId, SignupError> {
        let (mut tx, _) = standing::begin(&self.master).await?;
        let invite = match code {
            None => None,
            Some(code) => {
                let taken = invites::take(&mut tx, code, now).await?;
                Some(taken.ok_or(SignupError::NotInvited)?)
            }
        };
        let new = NewBroker {
            name: name.to_owned(),
            plan: PLAN,
            referred_by: invite.as_ref().and_then(|invite| invite.broker_id),
        };
        let id = match self.provisioning.record_in(&mut tx, &new, now).await {
            Err(ProvisioningError::Store(error)) if error.is_duplicate() => {
                let other = brokers::by_name(&self.master, name).await?;
                let id = other.ok_or(error)?.id;
                return Err(ProvisioningError::NameTaken { id }.into());
            }
            recorded => recorded?,
        };
        let person = user::User {
            broker_id: Some(id),
            ..person
        };
        user::insert(&mut tx, &person, now).await.map_err(taken)?;
        if let Some(invite) = invite {
            invites::record_use(&mut tx, invite.id, id, now).await?;
        }
        idempotency::insert(&mut tx, intention, &id.to_string(), now).await?;
        master::commit(tx).await?;
        Ok(id)
    }
}
