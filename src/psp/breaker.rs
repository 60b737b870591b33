//! A circuit breaker: a provider that fails again and again is left alone for a while, and then
//! asked once before all others are let through.

use std::time::{Duration, Instant};

/// When it opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Failures in a row that open it.
    pub failures: u32,
    /// How long it stays open before somebody is let through to try.
    pub cool_down: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        failures: u32,
    },
    Open {
        since: Instant,
    },
    /// Somebody was let through and has not come back.
    HalfOpen {
        since: Instant,
    },
}

#[derive(Debug)]
pub(super) struct Breaker {
    limits: Limits,
    state: State,
}

impl Breaker {
    pub(super) const fn new(limits: Limits) -> Self {
        let state = State::Closed { failures: 0 };
        Self { limits, state }
    }

    /// Whether a call may be made now. Of those who ask while it is half open one is let through
    /// per cool-down, so that one who never comes back shuts out nobody for good.
    pub(super) fn lets_through(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { .. } => true,
            State::Open { since } | State::HalfOpen { since } => {
                let over = now.saturating_duration_since(since) >= self.limits.cool_down;
                if over {
                    self.state = State::HalfOpen { since: now };
                }
                over
            }
        }
    }

    /// The provider has answered, whatever it said.
    pub(super) fn answered(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// It has not. Says whether that opened the breaker.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        match self.state {
            State::Closed { failures } => {
                let failures = failures.saturating_add(1);
                let opens = failures >= self.limits.failures;
                self.state = if opens {
                    State::Open { since: now }
                } else {
                    State::Closed { failures }
                };
                opens
            }
            // Of a call that was let through before it opened.
            State::Open { .. } => false,
            State::HalfOpen { .. } => {
                self.state = State::Open { since: now };
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COOL_DOWN: Duration = Duration::from_secs(10);
    const ALMOST: Duration = Duration::from_millis(9_999);

    fn breaker() -> Breaker {
        Breaker::new(Limits {
            failures: 3,
            cool_down: COOL_DOWN,
        })
    }

    fn opened(at: Instant) -> Breaker {
        let mut breaker = breaker();
        assert!(!breaker.failed(at));
        assert!(!breaker.failed(at));
        assert!(breaker.failed(at));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_others_do_not() {
        let now = Instant::now();
        let mut breaker = breaker();
        for _ in 0..10 {
            assert!(!breaker.failed(now));
            assert!(!breaker.failed(now));
            breaker.answered();
            assert!(breaker.lets_through(now));
        }
        let mut breaker = opened(now);
        assert!(!breaker.lets_through(now));
        assert!(!breaker.lets_through(now + ALMOST));
    }

    #[test]
    fn after_the_cool_down_one_is_let_through() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + COOL_DOWN;
        assert!(breaker.lets_through(later));
        assert!(!breaker.lets_through(later));
        breaker.answered();
        assert!(breaker.lets_through(later));
        assert!(breaker.lets_through(later));
    }

    #[test]
    fn the_one_who_fails_closes_the_door_again() {
        let now = Instant::now();
        let mut breaker = opened(now);
        let later = now + COOL_DOWN;
        assert!(breaker.lets_through(later));
        assert!(breaker.failed(later));
        assert!(!breaker.lets_through(later + ALMOST));
        assert!(breaker.lets_through(later + COOL_DOWN));
    }

    #[test]
    fn one_who_never_comes_back_shuts_out_nobody() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert!(breaker.lets_through(now + COOL_DOWN));
        assert!(breaker.lets_through(now + 2 * COOL_DOWN));
    }

    #[test]
    fn a_late_failure_prolongs_nothing() {
        let now = Instant::now();
        let mut breaker = opened(now);
        assert!(!breaker.failed(now + COOL_DOWN / 2));
        assert!(breaker.lets_through(now + COOL_DOWN));
    }
}
