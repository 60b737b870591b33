//! What one broker owes another.

use super::words::words;

words!(
    /// The life of an obligation.
    ObligationStatus {
        /// Its saga runs.
        Pending = "pending",
        Active = "active",
        /// Nothing remains.
        Settled = "settled",
        /// Its saga was compensated: it never stood.
        Failed = "failed",
    }
);
