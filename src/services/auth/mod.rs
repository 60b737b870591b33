//! Logging in, and knowing callers again.

mod config;
mod error;
pub mod keys;
mod outside;
pub mod password;
pub mod secret;
mod throttle;
mod token;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use chrono::{DateTime, Duration, Utc};
use jsonwebtoken::{Algorithm, Header, encode};
use secrecy::{ExposeSecret, SecretString};
use uuid::Uuid;

pub use config::{ACCESS_TTL_MAX, AuthConfig, OutsideConfig};
pub use error::{AuthError, TokenError};

use self::keys::{KeyError, Keys, PublicJwk};
use self::outside::Outside;
use self::password::{HashError, Passwords};
use self::throttle::Throttle;
use self::token::{Claims, Rule, Signed};
use crate::domain::access::{self, Principal, Role, Scope, scopes_of};
use crate::domain::canonical::Hash;
use crate::domain::ids::{BrokerId, ClientId, UserId};
use crate::runtime::{Clock, Entropy};
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::access::refresh::{self, Family, RevokedBy};
use crate::stores::master::access::{LoginState, api_client, user};
use crate::stores::pool::Pool;

/// Why the service can't start.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error("the outside issuer can't be asked")]
    Outside(#[from] reqwest::Error),
    #[error(transparent)]
    Passwords(#[from] HashError),
}

/// What a log-in or a refresh gives.
#[derive(Debug)]
pub struct Granted {
    pub access_token: SecretString,
    /// Life of the access token.
    pub expires_in: Duration,
    /// None for programs: they log in again with their secret (RFC 6749, 4.4.3).
    pub refresh_token: Option<SecretString>,
    pub sub: String,
    pub role: Role,
    pub broker_id: Option<BrokerId>,
    pub scopes: BTreeSet<Scope>,
}

/// The holder of a token to be made.
struct Holder {
    sub: String,
    role: Role,
    broker_id: Option<BrokerId>,
    scopes: BTreeSet<Scope>,
    limit_digest: Option<Hash>,
}

/// Logs callers in and knows them again. Cheap to clone.
#[derive(Clone)]
pub struct AuthService(Arc<Inner>);

struct Inner {
    config: AuthConfig,
    pool: Pool,
    clock: Clock,
    entropy: Entropy,
    keys: Keys,
    outside: Option<Outside>,
    passwords: Passwords,
    throttle: Throttle,
}

impl AuthService {
    /// # Errors
    /// No usable signing key, no database.
    pub async fn open(
        config: AuthConfig,
        pool: Pool,
        clock: Clock,
        entropy: Entropy,
    ) -> Result<Self, OpenError> {
        let files = &config.signing_keys;
        let keys = Keys::open(pool.clone(), files, config.key_lead, clock.now()).await?;
        let outside = config.outside.clone().map(Outside::new).transpose()?;
        let passwords = Passwords::new(config.parallel_hashes, config.hash_wait)?;
        let throttle = Throttle::new(pool.clone(), &config);
        Ok(Self(Arc::new(Inner {
            config,
            pool,
            clock,
            entropy,
            keys,
            outside,
            passwords,
            throttle,
        })))
    }

    /// Logs a person in. `scopes` narrows what the token carries; none asks for all.
    ///
    /// # Errors
    /// [`AuthError::Credentials`] without saying what is wrong with them, and after the same
    /// work, except for what can't be a login at all; [`AuthError::Throttled`] after too many
    /// attempts for this login or address.
    pub async fn log_in(
        &self,
        login: &str,
        password: SecretString,
        scopes: Option<&BTreeSet<Scope>>,
        address: IpAddr,
    ) -> Result<Granted, AuthError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let Some(login) = access::login(login) else {
            inner.throttle.charge_address(address, now).await?;
            return Err(AuthError::Credentials);
        };
        let charged = inner.throttle.charge_login(&login, address, now).await?;
        let found = user::by_login(&inner.pool, &login).await?;
        let hash = found.as_ref().map(|user| user.password_hash.clone());
        let known = inner.passwords.verify(password, hash).await?;
        let user = found
            .filter(|user| known && user.state == LoginState::Active)
            .ok_or(AuthError::Credentials)?;
        inner.throttle.forgive(charged, now).await?;

        let family = Family {
            family: inner.entropy.uuid(now),
            user_id: user.user_id,
            scopes: narrowed(user.role, scopes)?,
            expires_at: now + inner.config.login_ttl,
            revoked: false,
        };
        let mut tx = master::begin(&inner.pool).await?;
        refresh::insert_family(&mut tx, &family, now).await?;
        let refresh_token = inner.issue_refresh(&mut tx, &family, now).await?;
        master::commit(tx).await?;
        inner.grant(
            holder_of_user(&user, family.scopes),
            Some(refresh_token),
            now,
        )
    }

    /// Logs a program in.
    ///
    /// # Errors
    /// As [`log_in`](Self::log_in). Only addresses are throttled: a secret of 256 bits can't be
    /// guessed, and a wait per client would let anybody lock it out.
    pub async fn log_in_client(
        &self,
        client_id: Option<ClientId>,
        secret: &SecretString,
        scopes: Option<&BTreeSet<Scope>>,
        address: IpAddr,
    ) -> Result<Granted, AuthError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let mut conn = inner.pool.acquire().await.map_err(master::failed)?;
        let found = match client_id {
            Some(client_id) => api_client::by_id(&mut conn, client_id).await?,
            None => None,
        };
        drop(conn);
        // Of digests, so that the time of the comparison tells nothing about the secret.
        let given = hash_of(secret);
        let client = found
            .filter(|client| client.secret_hash == given && client.state == LoginState::Active);
        let Some(client) = client else {
            inner.throttle.charge_address(address, now).await?;
            return Err(AuthError::Credentials);
        };
        let allowed = narrowed(client.role, None)?;
        let own = client.scopes.intersection(&allowed).copied().collect();
        let holder = Holder {
            sub: client.client_id.to_string(),
            role: client.role,
            broker_id: client.broker_id,
            scopes: within(own, scopes)?,
            limit_digest: client.limit_digest,
        };
        inner.grant(holder, None, now)
    }

    /// Exchanges a refresh token for a new one and an access token with what its user may do
    /// now. A token that has been exchanged before is in two hands: its family is revoked.
    ///
    /// # Errors
    /// [`AuthError::Credentials`].
    pub async fn refresh(&self, refresh_token: &SecretString) -> Result<Granted, AuthError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let given = hash_of(refresh_token);
        let mut tx = master::begin(&inner.pool).await?;
        let (family, token) = refresh::lock(&mut tx, given)
            .await?
            .ok_or(AuthError::Credentials)?;
        if family.revoked || family.expires_at <= now {
            return Err(AuthError::Credentials);
        }
        if token.rotated {
            refresh::revoke_family(&mut tx, family.family, RevokedBy::Reuse, now).await?;
            master::commit(tx).await?;
            tracing::warn!(family = %family.family, user = %family.user_id, "a refresh token was used twice");
            return Err(AuthError::Credentials);
        }
        let user = user::by_id(&mut tx, family.user_id).await?;
        let user = user
            .filter(|user| user.state == LoginState::Active && token.expires_at > now)
            .ok_or(AuthError::Credentials)?;
        refresh::mark_rotated(&mut tx, given, now).await?;
        let next = inner.issue_refresh(&mut tx, &family, now).await?;
        master::commit(tx).await?;
        let allowed = scopes_of(user.role);
        let scopes = family.scopes.intersection(&allowed).copied().collect();
        inner.grant(holder_of_user(&user, scopes), Some(next), now)
    }

    /// Ends the log-in that a refresh token belongs to. A token that nobody knows is as good as
    /// revoked (RFC 7009, 2.2).
    ///
    /// # Errors
    /// The database's.
    pub async fn revoke(&self, refresh_token: &SecretString) -> Result<(), AuthError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let mut tx = master::begin(&inner.pool).await?;
        if let Some((family, _)) = refresh::lock(&mut tx, hash_of(refresh_token)).await? {
            refresh::revoke_family(&mut tx, family.family, RevokedBy::Logout, now).await?;
        }
        master::commit(tx).await?;
        Ok(())
    }

    /// Who an access token says is calling.
    ///
    /// # Errors
    /// Each way in which a token isn't one of ours, or isn't any more.
    pub async fn authenticate(&self, token: &str) -> Result<Principal, TokenError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let header = token::header(token)?;
        let kid = header.kid.as_deref().ok_or(TokenError::UnknownKey)?;
        let leeway = inner.config.leeway;
        let audience = &inner.config.audience;
        let Some(key) = inner.keys.verifier(kid, now).await else {
            let outside = inner.outside.as_ref().ok_or(TokenError::UnknownKey)?;
            return outside.verify(token, kid, audience, leeway, now).await;
        };
        if header.alg != Algorithm::EdDSA || header.typ.as_deref() != Some(token::TYPE) {
            return Err(TokenError::Algorithm);
        }
        let rule = Rule {
            issuer: &inner.config.issuer,
            audience,
            algorithm: Algorithm::EdDSA,
            max_ttl: ACCESS_TTL_MAX,
            leeway,
        };
        let claims = token::verify(token, &key, &rule, now)?;
        let sub = claims.sub.clone();
        token::principal(&claims, sub)
    }

    /// Whether whom a token names is, in the master now, what the token says: active, of the same
    /// role and broker. Whom an outside issuer vouches for is its to say.
    ///
    /// # Errors
    /// The database's.
    pub async fn still_stands(&self, principal: &Principal) -> Result<bool, StoreError> {
        if principal.sub().starts_with(outside::PREFIX) {
            return Ok(true);
        }
        let mut conn = self.0.pool.acquire().await.map_err(master::failed)?;
        let found = if let Ok(id) = principal.sub().parse::<UserId>() {
            let row = user::by_id(&mut conn, id).await?;
            row.map(|row| (row.state, row.role, row.broker_id))
        } else if let Ok(id) = principal.sub().parse::<ClientId>() {
            let row = api_client::by_id(&mut conn, id).await?;
            row.map(|row| (row.state, row.role, row.broker_id))
        } else {
            None
        };
        let as_said = (LoginState::Active, principal.role(), principal.broker_id());
        Ok(found == Some(as_said))
    }

    /// The public keys that verify our tokens.
    #[must_use]
    pub fn public_keys(&self) -> Vec<PublicJwk> {
        self.0.keys.published(self.0.clock.now())
    }

    /// Reads again which keys there are; to be called every minute or so.
    ///
    /// # Errors
    /// The database's.
    pub async fn reload_keys(&self) -> Result<(), StoreError> {
        self.0.keys.reload(self.0.clock.now()).await
    }

    /// Retires a signing key: it signs nothing more. Tokens that it has signed are taken as
    /// long as they live, or no more at all where the key has `leaked`. False for an unknown key.
    ///
    /// # Errors
    /// The database's.
    pub async fn retire_key(&self, kid: &str, leaked: bool) -> Result<bool, StoreError> {
        let now = self.0.clock.now();
        let until = if leaked {
            now
        } else {
            now + ACCESS_TTL_MAX + self.0.config.leeway
        };
        self.0.keys.retire(kid, until, now).await
    }

    /// Deletes log-ins and attempts that can't matter any more; how many.
    ///
    /// # Errors
    /// The database's.
    pub async fn purge(&self, limit: u32) -> Result<u64, AuthError> {
        let inner = &*self.0;
        let now = inner.clock.now();
        let mut tx = master::begin(&inner.pool).await?;
        let families = refresh::purge(&mut tx, now, limit).await?;
        master::commit(tx).await?;
        Ok(families + inner.throttle.purge(now, limit).await?)
    }

    /// Counts a call of somebody who has no account, as an attempt from their address.
    ///
    /// # Errors
    /// [`AuthError::Throttled`] after too many; the database's.
    pub async fn charge_stranger(&self, address: IpAddr) -> Result<(), AuthError> {
        let now = self.0.clock.now();
        self.0.throttle.charge_address(address, now).await
    }

    /// Hashes passwords, within the same bounds as log-ins.
    #[must_use]
    pub fn passwords(&self) -> Passwords {
        self.0.passwords.clone()
    }
}

impl Inner {
    async fn issue_refresh(
        &self,
        conn: &mut crate::stores::master::MasterTx,
        family: &Family,
        now: DateTime<Utc>,
    ) -> Result<SecretString, AuthError> {
        let token = secret::random_token("snr_").map_err(|_| AuthError::Randomness)?;
        let expires_at = (now + self.config.refresh_ttl).min(family.expires_at);
        refresh::insert_token(conn, hash_of(&token), family.family, now, expires_at).await?;
        Ok(token)
    }

    fn grant(
        &self,
        holder: Holder,
        refresh_token: Option<SecretString>,
        now: DateTime<Utc>,
    ) -> Result<Granted, AuthError> {
        let (kid, key) = self.keys.signer(now).ok_or(AuthError::NoSigningKey)?;
        let mut header = Header::new(Algorithm::EdDSA);
        header.kid = Some(kid.to_owned());
        header.typ = Some(token::TYPE.to_owned());
        let expires_in = self.config.access_ttl.min(ACCESS_TTL_MAX);
        let iat = now.timestamp();
        let signed = Signed {
            claims: Claims {
                iss: self.config.issuer.clone(),
                sub: holder.sub.clone(),
                role: holder.role,
                broker_id: holder.broker_id,
                scopes: holder.scopes.iter().map(ToString::to_string).collect(),
                limit_digest: holder.limit_digest,
                iat,
                exp: iat + expires_in.num_seconds(),
                nbf: None,
            },
            aud: &self.config.audience,
            jti: jti(&self.entropy, now),
        };
        let access_token = encode(&header, &signed, key).map_err(AuthError::Token)?;
        Ok(Granted {
            access_token: access_token.into(),
            expires_in,
            refresh_token,
            sub: holder.sub,
            role: holder.role,
            broker_id: holder.broker_id,
            scopes: holder.scopes,
        })
    }
}

fn jti(entropy: &Entropy, now: DateTime<Utc>) -> String {
    let id: Uuid = entropy.uuid(now);
    id.to_string()
}

fn holder_of_user(user: &user::User, scopes: BTreeSet<Scope>) -> Holder {
    Holder {
        sub: user.user_id.to_string(),
        role: user.role,
        broker_id: user.broker_id,
        scopes,
        limit_digest: None,
    }
}

/// What a role has, or the part of it that was asked for.
fn narrowed(role: Role, asked: Option<&BTreeSet<Scope>>) -> Result<BTreeSet<Scope>, AuthError> {
    within(scopes_of(role), asked)
}

fn within(
    own: BTreeSet<Scope>,
    asked: Option<&BTreeSet<Scope>>,
) -> Result<BTreeSet<Scope>, AuthError> {
    let Some(asked) = asked else {
        return Ok(own);
    };
    match asked.difference(&own).next() {
        Some(beyond) => Err(AuthError::Scope(*beyond)),
        None => Ok(asked.clone()),
    }
}

/// How secrets of 256 random bits are kept.
pub(super) fn hash_of(secret: &SecretString) -> Hash {
    Hash::of_bytes(secret.expose_secret().as_bytes())
}
