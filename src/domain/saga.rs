//! The states of a saga. What its steps are is in [`super::plan`].

use super::words::words;

words!(
    /// What a saga is for.
    SagaKind {
        /// Reserves what the completion will debit.
        Accept = "accept",
        /// Books a confirmed request in three places.
        Confirm = "confirm",
        /// Books a decision of an arbiter over what had completed.
        Correct = "correct",
        /// Gives reservations back after a request ended without completing.
        Release = "release",
    }
);

words!(
    /// Which way a saga goes. Decided once: by the ledger where it has ledger steps (and recorded
    /// here afterwards), else by a compare-and-set of this very column.
    Direction {
        Undecided = "undecided",
        Forward = "forward",
        Back = "back",
    }
);

words!(
    SagaStatus {
        Running = "running",
        Completed = "completed",
        /// Going back, having been refused.
        Compensating = "compensating",
        Compensated = "compensated",
        /// Out of retries: waits for an admin. What it did stands, and is safe to go on from.
        Stuck = "stuck",
    }
);

impl SagaKind {
    /// Whether it books entries, and may leave a debt.
    #[must_use]
    pub const fn books(self) -> bool {
        match self {
            Self::Confirm | Self::Correct => true,
            Self::Accept | Self::Release => false,
        }
    }

    /// What a saga of this kind begins with: a release has nothing to decide.
    #[must_use]
    pub const fn first_direction(self) -> Direction {
        match self {
            Self::Accept | Self::Confirm | Self::Correct => Direction::Undecided,
            Self::Release => Direction::Forward,
        }
    }
}

impl SagaStatus {
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Compensated => true,
            Self::Running | Self::Compensating | Self::Stuck => false,
        }
    }
}

words!(
    /// The record of a step in `exchange_outbox`; it may lag behind what has happened.
    StepStatus {
        Waiting = "waiting",
        /// Next to run; carries the saga's lease.
        Pending = "pending",
        Done = "done",
        Refused = "refused",
        /// Out of retries.
        Failed = "failed",
    }
);

words!(
    /// Whether a row stands for a step or for its undoing.
    StepDirection {
        Do = "do",
        Undo = "undo",
    }
);

words!(
    /// What a book has recorded of a saga's step: written once, with the effect.
    Outcome {
        Done = "done",
        /// A business rule said no (the balance, a closed account).
        Refused = "refused",
        /// The undo came first: the step may not happen any more.
        Tombstone = "tombstone",
    }
);
