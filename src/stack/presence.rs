//! Who needs the stack to stay up: connections that said `hold`.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// Counts holders and decides, once, that the stack closes.
pub(super) struct Presence {
    closing: Mutex<bool>,
    holders: watch::Sender<usize>,
}

impl Presence {
    pub fn new() -> Self {
        Self {
            closing: Mutex::new(false),
            holders: watch::Sender::new(0),
        }
    }

    /// Adds a holder until the guard is dropped; `None` when the stack is
    /// already closing, so that nobody relies on servers about to stop.
    pub fn hold(&self) -> Option<Hold<'_>> {
        let closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if *closing {
            return None;
        }
        self.holders.send_modify(|n| *n += 1);
        Some(Hold(self))
    }

    pub fn close(&self) {
        *self.closing.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Closes only if nobody holds; the same lock as [`Presence::hold`] takes.
    fn close_if_unheld(&self) -> bool {
        let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
        if *self.holders.borrow() == 0 {
            *closing = true;
        }
        *closing
    }

    /// Returns once nobody has held the stack for `linger`, having closed it.
    pub async fn abandoned(&self, linger: Duration) {
        let mut holders = self.holders.subscribe();
        loop {
            // The sender lives in self, so waiting cannot fail.
            let _ = holders.wait_for(|n| *n == 0).await;
            tokio::select! {
                () = tokio::time::sleep(linger) => {
                    if self.close_if_unheld() {
                        return;
                    }
                }
                _ = holders.wait_for(|n| *n > 0) => {}
            }
        }
    }
}

/// One holder.
pub(super) struct Hold<'a>(&'a Presence);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        self.0.holders.send_modify(|n| *n -= 1);
    }
}
