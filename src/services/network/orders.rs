//! What only orders have: the code that opens a payout, and cities. The code is shown once, to its
//! author, and kept as passwords are.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use secrecy::{ExposeSecret, SecretString};

use super::{Actor, Answer, FieldError, NetworkError, NetworkService};
use crate::domain::ids::{BrokerId, RequestId};
use crate::domain::proof::{self, Proof};
use crate::domain::request::{Execution, Pickup, Refusal, Request, RequestStatus};
use crate::domain::text;
use crate::services::auth::password::HashError;
use crate::services::auth::secret::{CODE_DIGITS, random_code};
use crate::stores::master::{self, cities};

/// Cities that one broker may serve.
const MAX_CITIES: usize = 200;

impl NetworkService {
    /// The executor has executed an order, with proof; a payout against the code that the client
    /// shows.
    ///
    /// # Errors
    /// See [`NetworkError`]; a wrong code is [`NetworkError::PickupRefused`], and counted.
    pub async fn execute_order(
        &self,
        actor: &Actor,
        id: RequestId,
        proofs: Vec<Proof>,
        code: Option<SecretString>,
    ) -> Result<Answer, NetworkError> {
        proof::check(&proofs).map_err(|error| FieldError::new(error.field(), &error))?;
        let proofs = self.with_hashes(actor, proofs).await?;
        let confirm_within =
            chrono::Duration::from_std(self.0.rules.confirm_within).unwrap_or_default();
        let request = self.load_with_past(id).await?;
        let currency = self.currency(&request).await?;
        let pickup = self.compare(actor, &request, code).await?;
        let compared = request.pickup_hash.clone();
        let answer = self
            .transition(actor, request, |request, saga_id, now| {
                let current = request.pickup_hash == compared;
                let execution = Execution {
                    by: actor.broker,
                    proofs: &proofs,
                    // A code that has been replaced meanwhile is as good as none.
                    pickup: if current { pickup } else { Pickup::Missing },
                    saga_id,
                    confirm_within,
                };
                request.execute(&execution, &currency, now)
            })
            .await?;
        let refused = answer.request.status == RequestStatus::Accepted;
        if refused && pickup == Pickup::Wrong {
            let left = answer.request.pickups_left().unwrap_or(0);
            return Err(NetworkError::PickupRefused { left });
        }
        Ok(answer)
    }

    /// Compares a code only where the order waits for one, and tries are left: it costs a core.
    async fn compare(
        &self,
        actor: &Actor,
        request: &Request,
        code: Option<SecretString>,
    ) -> Result<Pickup, NetworkError> {
        let executor = request.target == Some(actor.broker);
        let (Some(code), Some(hash)) = (code, &request.pickup_hash) else {
            return Ok(Pickup::Missing);
        };
        if !executor || request.status != RequestStatus::Accepted {
            return Ok(Pickup::Missing);
        }
        let digits = code.expose_secret().as_bytes();
        if digits.len() != CODE_DIGITS || !digits.iter().all(u8::is_ascii_digit) {
            let rule = format!("is the {CODE_DIGITS} digits that the client shows");
            return Err(FieldError::new("pickup_code", rule).into());
        }
        request.pickups_left()?;
        let right = self.0.codes.verify(code, Some(hash.clone())).await?;
        Ok(if right { Pickup::Right } else { Pickup::Wrong })
    }

    /// A new code for a payout that has not been executed: the one before opens nothing any more.
    /// Gives the code, which is shown this once.
    ///
    /// # Errors
    /// See [`NetworkError`].
    pub async fn renew_pickup(
        &self,
        actor: &Actor,
        id: RequestId,
    ) -> Result<(Answer, SecretString), NetworkError> {
        let request = self.load_with_past(id).await?;
        // Before a core is spent on it.
        request.may_renew_pickup(actor.broker)?;
        let _turn = self.renewing(id)?;
        let (code, hash) = self.new_code().await?;
        let answer = self
            .transition(actor, request, |request, _, now| {
                request.renew_pickup(actor.broker, hash.clone(), now)
            })
            .await?;
        Ok((answer, code))
    }

    /// The turn of an order whose code is made anew: one at a time of each, since it costs a core.
    fn renewing(&self, id: RequestId) -> Result<Renewing, NetworkError> {
        let turns = Arc::clone(&self.0.renewing);
        let first = turns
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id);
        if first {
            Ok(Renewing { turns, id })
        } else {
            Err(NetworkError::Contended)
        }
    }

    /// A code and what is kept of it.
    pub(super) async fn new_code(&self) -> Result<(SecretString, String), NetworkError> {
        let code = random_code().map_err(|_| HashError::Randomness)?;
        let hash = self.0.codes.hash(code.expose_secret().into()).await?;
        Ok((code, hash))
    }

    /// An order to all goes to those who serve its city; for everybody else there is none.
    pub(super) async fn serves_city(
        &self,
        broker: BrokerId,
        request: &Request,
    ) -> Result<(), NetworkError> {
        if request.party(broker).is_some() || !request.kind.is_order() {
            return Ok(());
        }
        let serves = match &request.city_code {
            Some(city) => cities::serves(self.master(), broker, city).await?,
            None => false,
        };
        if serves {
            Ok(())
        } else {
            Err(Refusal::NotFound.into())
        }
    }

    /// The cities in which a broker executes orders.
    ///
    /// # Errors
    /// The master's.
    pub async fn cities(&self, broker: BrokerId) -> Result<Vec<String>, NetworkError> {
        Ok(cities::of_broker(self.master(), broker).await?)
    }

    /// A broker serves these cities and no others from now on. Gives them in order.
    ///
    /// # Errors
    /// See [`NetworkError`]: a code that is none, or too many.
    pub async fn set_cities(
        &self,
        broker: BrokerId,
        mut codes: Vec<String>,
    ) -> Result<Vec<String>, NetworkError> {
        for code in &codes {
            text::word(code, super::create::MAX_CITY)
                .map_err(|error| FieldError::new("city_codes", error))?;
        }
        codes.sort_unstable();
        codes.dedup();
        if codes.len() > MAX_CITIES {
            let rule = format!("has at most {MAX_CITIES} cities");
            return Err(FieldError::new("city_codes", rule).into());
        }
        let pool = self.master().clone();
        let now = self.0.systems.clock.now();
        let task = tokio::spawn(async move {
            let mut tx = master::begin(&pool).await?;
            cities::replace(&mut tx, broker, &codes, now).await?;
            master::commit(tx).await?;
            Ok::<_, NetworkError>(codes)
        });
        task.await.map_err(|_| NetworkError::Lost)?
    }
}

/// A turn; given back when it is dropped.
struct Renewing {
    turns: Arc<Mutex<HashSet<RequestId>>>,
    id: RequestId,
}

impl Drop for Renewing {
    fn drop(&mut self) {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        turns.remove(&self.id);
    }
}
