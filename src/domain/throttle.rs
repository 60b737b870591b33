//! How often somebody may try to log in.

use std::net::{IpAddr, Ipv6Addr};

use chrono::{DateTime, Duration, Utc};

/// The rule for one kind of key (a login, an address).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottlePolicy {
    /// Attempts within a window that cost nothing.
    pub free_attempts: u32,
    /// How long attempts are remembered.
    pub window: Duration,
    /// The wait after the first attempt too many; it doubles with each further one.
    pub first_wait: Duration,
    pub longest_wait: Duration,
}

/// What is remembered of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThrottleRecord {
    /// Attempts in the window that have not succeeded.
    pub attempts: u32,
    pub window_started_at: DateTime<Utc>,
    pub blocked_until: Option<DateTime<Utc>>,
}

/// Too many attempts: none is looked at before `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many attempts")]
pub struct Blocked {
    pub until: DateTime<Utc>,
}

/// Counts an attempt before its password is looked at, so that attempts made at the same time
/// can't all slip through before the first of them has failed.
///
/// # Errors
/// [`Blocked`] while a wait lasts; the record stays as it is then, so that waiting always ends.
pub fn charge(
    record: Option<ThrottleRecord>,
    now: DateTime<Utc>,
    policy: ThrottlePolicy,
) -> Result<ThrottleRecord, Blocked> {
    let fresh = ThrottleRecord {
        attempts: 0,
        window_started_at: now,
        blocked_until: None,
    };
    let mut record = record.unwrap_or(fresh);
    if let Some(until) = record.blocked_until.filter(|until| *until > now) {
        return Err(Blocked { until });
    }
    let last = record.blocked_until.unwrap_or(record.window_started_at);
    if now - last.max(record.window_started_at) >= policy.window {
        record = fresh;
    }
    record.attempts = record.attempts.saturating_add(1);
    record.blocked_until = record
        .attempts
        .checked_sub(policy.free_attempts.saturating_add(1))
        .map(|beyond| now + wait(beyond, policy));
    Ok(record)
}

/// The wait that follows the attempt that is `beyond` (from 0) past the free ones.
fn wait(beyond: u32, policy: ThrottlePolicy) -> Duration {
    let factor = 1i32.checked_shl(beyond).filter(|factor| *factor > 0);
    factor
        .and_then(|factor| policy.first_wait.checked_mul(factor))
        .map_or(policy.longest_wait, |wait| wait.min(policy.longest_wait))
}

/// What counts as one address: a home or an office has a whole /64 of IPv6 to itself.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: ThrottlePolicy = ThrottlePolicy {
        free_attempts: 3,
        window: Duration::minutes(15),
        first_wait: Duration::seconds(2),
        longest_wait: Duration::minutes(5),
    };

    fn start() -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap()
    }

    #[test]
    fn waits_double_up_to_the_longest_and_end() {
        let mut now = start();
        let mut record = None;
        let mut waits = Vec::new();
        for _ in 0..14 {
            let next = charge(record, now, POLICY).unwrap();
            if let Some(until) = next.blocked_until {
                assert_eq!(charge(Some(next), now, POLICY), Err(Blocked { until }));
                waits.push((until - now).num_seconds());
                now = until;
            }
            record = Some(next);
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
    }

    #[test]
    fn a_quiet_window_forgets() {
        let first = charge(None, start(), POLICY).unwrap();
        let second = charge(Some(first), start(), POLICY).unwrap();
        assert_eq!(second.attempts, 2);
        let later = start() + POLICY.window;
        assert_eq!(charge(Some(second), later, POLICY).unwrap().attempts, 1);
    }

    #[test]
    fn no_policy_overflows() {
        let record = ThrottleRecord {
            attempts: u32::MAX,
            window_started_at: start(),
            blocked_until: None,
        };
        let next = charge(Some(record), start(), POLICY).unwrap();
        assert_eq!(next.blocked_until, Some(start() + POLICY.longest_wait));
    }
}
