//! A bound on how often an address calls the token endpoints of this process. Attempts at
//! passwords are counted in the master besides, for all processes.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use governor::clock::{Clock as _, Reference};
use governor::middleware::NoOpMiddleware;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota, RateLimiter};

use super::problem::{Code, Problem};
use super::state::{AppState, ClientAddr, HttpConfig};
use crate::domain::throttle::network;
use crate::runtime::Clock;

/// Our clock, as the limiter wants it: time since the epoch.
#[derive(Clone, Debug)]
struct RateClock(Clock);

impl governor::clock::Clock for RateClock {
    type Instant = Duration;

    fn now(&self) -> Duration {
        let micros = u64::try_from(self.0.now().timestamp_micros()).unwrap_or(0);
        Duration::from_micros(micros)
    }
}

type Limiter = RateLimiter<IpAddr, DashMapStateStore<IpAddr>, RateClock, NoOpMiddleware<Duration>>;

/// The limiter itself, one per process.
pub struct TokenRate {
    limiter: Limiter,
    clock: RateClock,
    calls: AtomicU32,
}

/// After so many calls, addresses that have been quiet are forgotten.
const SWEEP_EVERY: u32 = 4096;

impl TokenRate {
    #[must_use]
    pub fn new(config: &HttpConfig, clock: Clock) -> Self {
        let at_least_one = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        let quota = Quota::per_minute(at_least_one(config.token_rate_per_minute))
            .allow_burst(at_least_one(config.token_rate_burst));
        let clock = RateClock(clock);
        Self {
            limiter: RateLimiter::new(quota, DashMapStateStore::default(), clock.clone()),
            clock,
            calls: AtomicU32::new(0),
        }
    }

    /// Counts a call.
    ///
    /// # Errors
    /// How long to wait, where there have been too many.
    pub fn check(&self, address: IpAddr) -> Result<(), Duration> {
        if self.calls.fetch_add(1, Ordering::Relaxed) % SWEEP_EVERY == SWEEP_EVERY - 1 {
            self.limiter.retain_recent();
        }
        self.limiter
            .check_key(&network(address))
            .map_err(|refusal| {
                let earliest = refusal.earliest_possible();
                Reference::duration_since(&earliest, self.clock.now()).into()
            })
    }
}

/// In a handler's signature: the call is counted, and refused where there are too many.
#[derive(Clone, Copy, Debug)]
pub struct RateLimited;

impl FromRequestParts<AppState> for RateLimited {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let Ok(ClientAddr(address)) = ClientAddr::from_request_parts(parts, state).await;
        state.token_rate.check(address).map_err(|wait| {
            Problem::new(Code::TooManyRequests).retry_after(wait.as_secs().max(1))
        })?;
        Ok(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate_per_address() {
        let clock = Clock::manual(chrono::DateTime::from_timestamp(1_700_000_000, 0).unwrap());
        let config = HttpConfig {
            token_rate_per_minute: 6,
            token_rate_burst: 3,
            ..HttpConfig::default()
        };
        let rate = TokenRate::new(&config, clock.clone());
        let [one, two] = ["192.0.2.1", "192.0.2.2"].map(|text| text.parse().unwrap());
        for _ in 0..3 {
            assert_eq!(rate.check(one), Ok(()));
        }
        assert_eq!(rate.check(one), Err(Duration::from_secs(10)));
        assert_eq!(rate.check(two), Ok(()));
        for host in 1..=3 {
            let address = format!("2001:db8::{host}").parse().unwrap();
            assert_eq!(rate.check(address), Ok(()));
        }
        assert!(
            rate.check("2001:db8::4".parse().unwrap()).is_err(),
            "one home"
        );
        clock.advance(chrono::Duration::seconds(10));
        assert_eq!(rate.check(one), Ok(()));
        assert!(rate.check(one).is_err());
    }
}
