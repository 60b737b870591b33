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

words!(
    /// Which side of a debt a broker is on.
    DebtSide {
        Debtor = "debtor",
        Creditor = "creditor",
    }
);

/// The ages, in days, by which debts are told apart: up to a week, a month, a quarter, and older.
pub const AGES: [i64; 3] = [7, 30, 90];
