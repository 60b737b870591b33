use std::net::IpAddr;

use chrono::{DateTime, Duration, Utc};

use super::config::AuthConfig;
use super::error::AuthError;
use crate::domain::canonical::Hash;
use crate::domain::throttle::{ThrottlePolicy, charge, network};
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::access::throttle as store;
use crate::stores::pool::Pool;

/// Log-in attempts, counted in the master for all processes together, three times over:
///
/// | of | bounds | after the free ones |
/// |---|---|---|
/// | an address block | guesses at many logins from one place | waits, up to minutes |
/// | a login from an address block | guesses at one login from one place | the same |
/// | a login, wherever from | guesses at one login from many places | short waits |
///
/// The last would let any stranger keep a login's owner out, so its waits are short, and it isn't
/// asked at all where the login has proved itself within [`PROOF_LASTS`].
pub(super) struct Throttle {
    pool: Pool,
    from_one_place: ThrottlePolicy,
    from_anywhere: ThrottlePolicy,
    address: ThrottlePolicy,
}

/// How long an address block from which a login has succeeded is taken for its owner's.
const PROOF_LASTS: Duration = Duration::days(30);

/// An attempt that was counted, to be taken back where it succeeds.
pub(super) struct Charged {
    address: Hash,
    from_one_place: Hash,
    /// Where it was counted against all of the login's.
    from_anywhere: Option<Hash>,
}

impl Throttle {
    pub(super) fn new(pool: Pool, config: &AuthConfig) -> Self {
        Self {
            pool,
            from_one_place: config.login_policy(),
            from_anywhere: config.login_anywhere_policy(),
            address: config.address_policy(),
        }
    }

    /// Counts an attempt at a login. Logins that don't exist are counted like those that do: a
    /// wait tells nothing.
    pub(super) async fn charge_login(
        &self,
        login: &str,
        address: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<Charged, AuthError> {
        self.charge_address(address, now).await?;
        let charged = of_login_at(login, address);
        self.charge(charged, self.from_one_place, now).await?;
        let since = now - PROOF_LASTS;
        let from_anywhere = if store::is_proved(&self.pool, charged, since).await? {
            None
        } else {
            let subject = of_login(login);
            self.charge(subject, self.from_anywhere, now).await?;
            Some(subject)
        };
        Ok(Charged {
            address: of_address(address),
            from_one_place: charged,
            from_anywhere,
        })
    }

    pub(super) async fn charge_address(
        &self,
        address: IpAddr,
        now: DateTime<Utc>,
    ) -> Result<(), AuthError> {
        self.charge(of_address(address), self.address, now).await
    }

    async fn charge(
        &self,
        subject: Hash,
        policy: ThrottlePolicy,
        now: DateTime<Utc>,
    ) -> Result<(), AuthError> {
        let mut tx = master::begin(&self.pool).await?;
        let record = store::lock(&mut tx, subject, now).await?;
        let record = charge(Some(record), now, policy).map_err(|blocked| AuthError::Throttled {
            wait: blocked.until - now,
        })?;
        store::save(&mut tx, subject, record, now).await?;
        master::commit(tx).await?;
        Ok(())
    }

    /// After a success: the login starts afresh here, and is known here from now on. Address and
    /// login as a whole only get this attempt back, or one account of one's own would buy any
    /// number of guesses at others, and an owner's log-in a stranger's.
    pub(super) async fn forgive(
        &self,
        charged: Charged,
        now: DateTime<Utc>,
    ) -> Result<(), StoreError> {
        store::forget(&self.pool, charged.from_one_place).await?;
        store::prove(&self.pool, charged.from_one_place, now).await?;
        store::refund(&self.pool, charged.address).await?;
        match charged.from_anywhere {
            Some(subject) => store::refund(&self.pool, subject).await,
            None => Ok(()),
        }
    }

    pub(super) async fn purge(&self, now: DateTime<Utc>, limit: u32) -> Result<u64, StoreError> {
        let before = now - self.from_one_place.window - self.from_one_place.longest_wait;
        let attempts = store::purge(&self.pool, before, limit).await?;
        let proofs = store::purge_proofs(&self.pool, now - PROOF_LASTS, limit).await?;
        Ok(attempts + proofs)
    }
}

fn of_login(login: &str) -> Hash {
    Hash::of_bytes(format!("login:{login}").as_bytes())
}

fn of_login_at(login: &str, address: IpAddr) -> Hash {
    Hash::of_bytes(format!("login:{login} at {}", network(address)).as_bytes())
}

fn of_address(address: IpAddr) -> Hash {
    Hash::of_bytes(format!("address:{}", network(address)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_count_by_network() {
        let of = |text: &str| of_address(text.parse().unwrap());
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:192.0.2.1"), of("192.0.2.1"));
        assert_ne!(of("192.0.2.1"), of("192.0.2.2"));
    }
}
