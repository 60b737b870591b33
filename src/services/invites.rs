//! Invitations to join the network: the platform's, and those by which brokers bring others.

use chrono::{DateTime, Utc};
use secrecy::SecretString;

use super::auth::{hash_of, secret};
use crate::domain::ids::{BrokerId, InviteId};
use crate::domain::invite::{Terms, TermsError};
use crate::domain::pause::Hindrance;
use crate::stores::StoreError;
use crate::stores::master::idempotency::{self, Intention, Known};
use crate::stores::master::standing;
use crate::stores::master::{self, invites};
use crate::stores::pool::Pool;

pub use crate::stores::master::invites::{Invite, Whose};

/// Why there is no invitation.
#[derive(Debug, thiserror::Error)]
pub enum InviteError {
    #[error(transparent)]
    Terms(#[from] TermsError),
    /// Nothing new starts for the broker.
    #[error(transparent)]
    Hindered(#[from] Hindrance),
    #[error("there is no such invitation")]
    NotFound,
    #[error("the idempotency key was used for another request")]
    KeyReused,
    #[error("the operating system gives no randomness")]
    Randomness,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Makes, lists and ends invitations.
pub struct InviteService {
    master: Pool,
}

impl InviteService {
    #[must_use]
    pub const fn new(master: Pool) -> Self {
        Self { master }
    }

    /// Makes an invitation of a broker, which is then known as who has referred whoever comes by
    /// it; or of the platform. Its code is given this once. A repeat of the same intention gives
    /// the same invitation and no code, because only its digest is kept. `by` is the subject of
    /// who asks.
    ///
    /// # Errors
    /// See [`InviteError`].
    pub async fn create(
        &self,
        broker: Option<BrokerId>,
        by: &str,
        terms: Terms,
        intention: &Intention,
        now: DateTime<Utc>,
    ) -> Result<(Invite, Option<SecretString>), InviteError> {
        let expires_at = terms.expiry(now)?;
        if let Some(broker) = broker {
            let (standing, _) = standing::look(&self.master, [Some(broker), None], None).await?;
            standing.broker_is_open(broker, broker)?;
        }
        let code = secret::random_token("sni_").map_err(|_| InviteError::Randomness)?;
        let id = InviteId::derive(&[&intention.client, &intention.key]);
        let invite = Invite {
            id,
            broker_id: broker,
            note: terms.note,
            max_uses: terms.max_uses,
            uses: 0,
            expires_at,
            revoked_at: None,
            created_by: by.to_owned(),
            created_at: now,
        };
        let mut tx = master::begin(&self.master).await?;
        match idempotency::insert(&mut tx, intention, &id.to_string(), now).await {
            Ok(()) => {}
            Err(error) if error.is_duplicate() => {
                drop(tx);
                return Ok((self.made_before(intention, id).await?, None));
            }
            Err(error) => return Err(error.into()),
        }
        invites::insert(&mut tx, &invite, hash_of(&code)).await?;
        master::commit(tx).await?;
        Ok((invite, Some(code)))
    }

    /// Invitations, newest first; `after` is the last of the page before.
    ///
    /// # Errors
    /// The master's.
    pub async fn list(
        &self,
        whose: Whose,
        after: Option<(DateTime<Utc>, InviteId)>,
        limit: u32,
    ) -> Result<Vec<Invite>, StoreError> {
        invites::list(&self.master, whose, after, limit).await
    }

    /// Ends an invitation: its code is worth nothing from now on. Who has come by it stays.
    ///
    /// # Errors
    /// [`InviteError::NotFound`]; the master's.
    pub async fn revoke(
        &self,
        whose: Whose,
        id: InviteId,
        now: DateTime<Utc>,
    ) -> Result<Invite, InviteError> {
        self.get(whose, id).await?;
        invites::revoke(&self.master, id, now).await?;
        self.get(whose, id).await
    }

    async fn get(&self, whose: Whose, id: InviteId) -> Result<Invite, InviteError> {
        let found = invites::get(&self.master, whose, id).await?;
        found.ok_or(InviteError::NotFound)
    }

    async fn made_before(
        &self,
        intention: &Intention,
        id: InviteId,
    ) -> Result<Invite, InviteError> {
        match idempotency::find(&self.master, intention).await? {
            Some(Known::Same { subject }) if subject == id.to_string() => {
                self.get(Whose::All, id).await
            }
            Some(Known::Same { .. } | Known::Other) | None => Err(InviteError::KeyReused),
        }
    }
}
