//! A new broker with the first of its people, so that somebody can log in for it.

use chrono::{DateTime, Utc};

use super::provisioning::{Provisioning, ProvisioningError};
use super::team::{By, Member, NewUser, TeamError, TeamService};
use crate::domain::access::TeamSeat;
use crate::domain::broker::{Broker, BrokerPlan};
use crate::domain::canonical::Hash;
use crate::domain::ids::BrokerId;
use crate::stores::master::idempotency::Intention;

/// A broker that is to be.
#[derive(Clone, Debug)]
pub struct NewMemberBroker {
    pub name: String,
    pub plan: BrokerPlan,
    pub referred_by: Option<BrokerId>,
    /// The first of its people, with the role that is given here.
    pub first_user: Option<NewUser>,
}

/// Why a broker was not made, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum OnboardingError {
    #[error(transparent)]
    Broker(#[from] ProvisioningError),
    #[error(transparent)]
    User(#[from] TeamError),
}

/// Creates a broker with its book, and its first user where one is given. A repeat of the same
/// intention gives both as they are, finished where they were not. What can be refused is refused
/// before anything is made.
///
/// # Errors
/// See [`OnboardingError`].
pub async fn create_broker(
    provisioning: &Provisioning,
    team: &TeamService,
    new: NewMemberBroker,
    intention: &Intention,
    now: DateTime<Utc>,
) -> Result<(Broker, Option<Member>), OnboardingError> {
    let of_user = of_user(intention);
    if let Some(user) = &new.first_user {
        team.check_new(user, &of_user).await?;
    }
    let broker = provisioning
        .create_broker(
            &new.name,
            new.plan,
            new.referred_by,
            Some(intention.clone()),
            now,
        )
        .await?;
    let member = match new.first_user {
        None => None,
        Some(user) => {
            let seat = TeamSeat {
                broker_id: Some(broker.id),
            };
            Some(team.create_user(seat, user, By::Operator, &of_user).await?)
        }
    };
    Ok((broker, member))
}

/// The user's part of an intention: a key of its own, that follows from the whole's.
fn of_user(whole: &Intention) -> Intention {
    let name = format!("first user\0{}", whole.key);
    Intention {
        key: Hash::of_bytes(name.as_bytes()).to_hex(),
        ..whole.clone()
    }
}
