use std::net::IpAddr;

use chrono::{DateTime, Utc};

use super::config::AuthConfig;
use super::error::AuthError;
use crate::domain::canonical::Hash;
use crate::domain::throttle::{ThrottlePolicy, charge};
use crate::stores::StoreError;
use crate::stores::master;
use crate::stores::master::access::throttle as store;
use crate::stores::pool::Pool;

/// Log-in attempts, counted in the master for all processes together.
pub(super) struct Throttle {
    pool: Pool,
    login: ThrottlePolicy,
    address: ThrottlePolicy,
}

impl Throttle {
    pub(super) fn new(pool: Pool, config: &AuthConfig) -> Self {
        Self {
            pool,
            login: config.login_policy(),
            address: config.address_policy(),
        }
    }

    /// Logins that don't exist are counted like those that do: a wait tells nothing.
    pub(super) async fn charge_login(
        &self,
        login: &str,
        now: DateTime<Utc>,
    ) -> Result<(), AuthError> {
        self.charge(of_login(login), self.login, now).await
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

    /// After a success: the login starts afresh. The address only gets this attempt back, or
    /// one account of one's own would buy any number of guesses at others.
    pub(super) async fn forgive(&self, login: &str, address: IpAddr) -> Result<(), StoreError> {
        store::forget(&self.pool, of_login(login)).await?;
        store::refund(&self.pool, of_address(address)).await
    }

    pub(super) async fn purge(&self, now: DateTime<Utc>, limit: u32) -> Result<u64, StoreError> {
        let before = now - self.login.window - self.login.longest_wait;
        store::purge(&self.pool, before, limit).await
    }
}

fn of_login(login: &str) -> Hash {
    Hash::of_bytes(format!("login:{login}").as_bytes())
}

/// A home or an office has a whole /64 of IPv6 to itself, so that is what counts as one address.
fn of_address(address: IpAddr) -> Hash {
    let network = match address.to_canonical() {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("{:x}/64", v6.to_bits() >> 64),
    };
    Hash::of_bytes(format!("address:{network}").as_bytes())
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
