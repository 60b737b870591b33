//! Named places between two side effects. In a debug build the environment variable
//! `SETTLENET_FAILPOINTS` (`name=action`, several separated by `;`) makes the process die or
//! stop there, so that tests can show what the next one finds. A release build has none.
//!
//! Actions: `kill` (SIGKILL to itself), `stop` (SIGSTOP to itself, once), `error` (the step
//! fails with a transient fault, every time); `N*action` acts at the N-th arrival only.

/// What a test asks of the place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    GoOn,
    Fail,
}

/// Arrives at a place.
#[cfg(not(debug_assertions))]
#[inline]
pub fn at(_name: &str) -> Ask {
    Ask::GoOn
}

#[cfg(debug_assertions)]
pub use active::{at, watch};

/// Arrives at a place of a saga's step, named `{kind}.{step}.{when}`.
#[inline]
pub fn at_step(kind: &str, step: &str, when: &str) -> Ask {
    #[cfg(debug_assertions)]
    return at(&format!("{kind}.{step}.{when}"));
    #[cfg(not(debug_assertions))]
    {
        let _ = (kind, step, when);
        Ask::GoOn
    }
}

#[cfg(debug_assertions)]
mod active {
    use std::cell::RefCell;
    use std::collections::HashMap;
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicU64, Ordering};

    use nix::sys::signal::Signal;

    use super::Ask;

    #[derive(Clone, Copy)]
    enum Action {
        Kill,
        Stop,
        Error,
    }

    struct Armed {
        action: Action,
        only_arrival: Option<u64>,
        arrivals: AtomicU64,
    }

    static ARMED: LazyLock<HashMap<String, Armed>> = LazyLock::new(|| {
        std::env::var("SETTLENET_FAILPOINTS")
            .unwrap_or_default()
            .split(';')
            .filter(|part| !part.is_empty())
            .map(parse)
            .collect()
    });

    type Watcher = Box<dyn FnMut(&str) -> Ask>;

    thread_local! {
        static WATCHER: RefCell<Option<Watcher>> = const { RefCell::new(None) };
    }

    /// Asks `watcher` at every arrival on this thread, before the environment. A simulation whose
    /// runtime has one thread decides so where its steps fail; a watcher that unwinds ends the
    /// task there as a crash would.
    pub fn watch(watcher: Option<Watcher>) {
        WATCHER.with_borrow_mut(|watching| *watching = watcher);
    }

    fn parse(part: &str) -> (String, Armed) {
        let (name, action) = part.split_once('=').unwrap_or((part, "kill"));
        let (count, action) = match action.split_once('*') {
            Some((count, action)) => (count.parse().ok(), action),
            None => (None, action),
        };
        let action = match action {
            "stop" => Action::Stop,
            "error" => Action::Error,
            _ => Action::Kill,
        };
        let only_arrival = match action {
            Action::Stop => count.or(Some(1)),
            Action::Kill | Action::Error => count,
        };
        let armed = Armed {
            action,
            only_arrival,
            arrivals: AtomicU64::new(0),
        };
        (name.to_owned(), armed)
    }

    /// Arrives at a place.
    pub fn at(name: &str) -> Ask {
        let watched = WATCHER.with_borrow_mut(|watching| watching.as_mut().map(|ask| ask(name)));
        if watched == Some(Ask::Fail) {
            return Ask::Fail;
        }
        let Some(armed) = ARMED.get(name) else {
            return Ask::GoOn;
        };
        let arrival = armed.arrivals.fetch_add(1, Ordering::SeqCst) + 1;
        if armed.only_arrival.is_some_and(|only| only != arrival) {
            return Ask::GoOn;
        }
        match armed.action {
            Action::Kill => raise(Signal::SIGKILL),
            Action::Stop => raise(Signal::SIGSTOP),
            Action::Error => return Ask::Fail,
        }
        Ask::GoOn
    }

    /// To the thread that has arrived, not to the process: of that any thread may take it, and
    /// this one would go on past the place until that one has come to it.
    fn raise(signal: Signal) {
        let raised = nix::sys::signal::raise(signal);
        assert!(raised.is_ok(), "a process may signal itself");
    }
}
